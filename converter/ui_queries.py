"""The tables that the UI opens with, in SQL that needs nothing but the trace: the package `npu` is not known there.

They travel in the URL, so they are short; the package's npu_step_report and npu_gaps are the full ones.
"""

from __future__ import annotations

from collections.abc import Sequence

_ARG = "extract_arg(s.arg_set_id,'debug.{}')"

# As in the package: of a cut step only what is whole.
_CUT = _ARG.format("cut")

# As in the package: NULL where the step's tasks or the rank's gaps are not known.
_GAPS_OF_STEP = (
    "(SELECT total(dur) FROM d WHERE c='npu.gap' AND rank=x.rank AND ts>=first_task_ts AND ts<last_task_end "
    "HAVING first_task_ts IS NOT NULL AND EXISTS (SELECT 1 FROM d WHERE c='npu.gap' AND rank=x.rank))/1e6"
)


def _args(*keys: str) -> str:
    return ", ".join(f"{_ARG.format(key)} AS {key}" for key in keys)


def _rounded(expression: str, name: str, digits: int = 3) -> str:
    return f"round({expression},{digits}) AS {name}"


def step_report(ranks: Sequence[int] = ()) -> str:
    """One row per step of these ranks (none: all), in ms: the columns of npu_step_report that tell where time went."""
    only = f" AND {_of(ranks)}" if ranks else ""
    return _one_line(f"""
WITH d AS (
  SELECT CAST(substr(p.name,6) AS INT) AS rank, s.ts, s.dur, s.category AS c, {_args("step", "forward_ct")}, s.arg_set_id
  FROM slice s JOIN track t ON t.id=s.track_id JOIN track p ON p.id=t.parent_id
  WHERE p.name GLOB 'Rank * · DSpark'{only}
), x AS (
  SELECT s.rank, s.forward_ct, s.ts, s.dur, {_args("bs", "step_gpu_ms", "draft_gpu_ms", "target_verify_gpu_ms")},
    {_args("unattributed_ms", "avg_commit_len", "committed_tokens", "last_task_end")},
    iif({_CUT} IS NULL,{_ARG.format("first_task_ts")},NULL) AS first_task_ts,
    iif({_CUT} IS NULL,{_ARG.format("step_wall_ns")},NULL) AS step_wall_ns,
    sum(iif(g.c='npu.segment' AND extract_arg(g.arg_set_id,'debug.segment')='draft',g.dur,NULL)) AS draft,
    sum(iif(g.c='npu.segment' AND extract_arg(g.arg_set_id,'debug.segment')='target_verify',g.dur,NULL)) AS verify,
    max(extract_arg(g.arg_set_id,'debug.tail_ns')) AS tail, sum(extract_arg(g.arg_set_id,'debug.exposed_ns')) AS exposed,
    sum(extract_arg(g.arg_set_id,'debug.exposed_gap_ns')) AS before_replay
  FROM d s LEFT JOIN d g ON g.rank=s.rank AND g.step=s.step AND
    (g.c IN ('npu.segment','npu.tail') AND {_CUT} IS NOT 'window' OR g.c IN ('npu.deepep','npu.replay') AND {_CUT} IS NULL)
  WHERE s.c='npu.step' GROUP BY s.rank, s.ts
)
SELECT rank, forward_ct, bs, {_rounded("step_wall_ns/1e6", "wall_ms")}, {_rounded("step_gpu_ms", "gpu_ms")},
  {_rounded("coalesce(draft_gpu_ms,draft/1e6)", "draft_ms")},
  {_rounded("coalesce(target_verify_gpu_ms,verify/1e6)", "verify_ms")},
  {_rounded("unattributed_ms", "unattributed_ms")}, {_rounded("tail/1e6", "tail_ms")},
  {_rounded("exposed/1e6", "exposed_comm_ms")}, {_rounded("before_replay/1e6", "pre_replay_gap_ms")},
  {_rounded(_GAPS_OF_STEP, "gap_ms")},
  {_rounded("avg_commit_len", "commit_len")}, {_rounded("step_wall_ns/1e6/avg_commit_len", "tpot_ms")},
  {_rounded("committed_tokens*1e9/step_wall_ns", "tokens_per_s", 1)}, ts, dur
FROM x ORDER BY rank, ts
""")


def _of(ranks: Sequence[int]) -> str:
    return f"rank IN ({','.join(str(r) for r in ranks)})"


def _one_line(sql: str) -> str:
    return " ".join(sql.split())


def longest_gaps(ranks: Sequence[int] = ()) -> str:
    """The longest gaps of these ranks (none: all), for a trace without steps. A task's rank is in its process's name."""
    only = f" AND {_of(ranks)}" if ranks else ""
    return _one_line(f"""
WITH k AS (
  SELECT CAST(substr(p.name,6) AS INT) AS rank, {_args("task")}, s.name
  FROM slice s JOIN process_track t ON t.id=s.track_id JOIN process p USING (upid) WHERE s.category='npu.task'
), g AS (
  SELECT CAST(substr(p.name,6) AS INT) AS rank, s.ts, s.dur, {_args("prev_task", "next_task", "endpoint_class")},
    {_args("host_event", "host_cover_ratio", "launch_name")}
  FROM slice s JOIN track t ON t.id=s.track_id JOIN track p ON p.id=t.parent_id
  WHERE s.category='npu.gap' AND p.name GLOB 'Rank * · DSpark'{only} ORDER BY s.dur DESC LIMIT 200
)
SELECT g.rank, round(dur/1e3,3) AS gap_us, a.name AS prev_name, b.name AS next_name, endpoint_class, host_event,
  round(host_cover_ratio,3) AS host_cover, launch_name, ts, dur
FROM g LEFT JOIN k a ON a.task=prev_task AND a.rank=g.rank LEFT JOIN k b ON b.task=next_task AND b.rank=g.rank
ORDER BY dur DESC, ts
""")
