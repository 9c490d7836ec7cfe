"""The truth of a simulated run, from what the model knows of each task (which step, phase and part it belongs to).

Times are ns on the clock of the rank's own files (before alignment), unless a key says otherwise. Trace time of a rank is
its file time + `expected_offset_ns`. Definitions are those of the project's documentation of steps, segments and tails.
The keys are described in samples/README.md.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from samples.capture import Capture
from samples.dspark_records import record, records
from samples.intervals import Pair, clip, common, holes, length, union
from samples.model import Expert, Replay, Task
from samples.programs import Step

Json = dict[str, Any]
PARTS = ("accept", "tp_sync", "finalize", "out_tokens", "commit", "other")


def pairs(tasks: list[Task]) -> list[Pair]:
    return [(t.start, t.end) for t in tasks]


def extent(tasks: list[Task]) -> list[int] | None:
    """First start and last end, or None where there is no task."""
    return [min(t.start for t in tasks), max(t.end for t in tasks)] if tasks else None


def main_stream(tasks: list[Task]) -> int:
    """The stream with most busy time; collectives have none."""
    busy: dict[int, int] = defaultdict(int)
    for stream in {t.stream for t in tasks if t.stream >= 0}:
        busy[stream] = length(union(pairs([t for t in tasks if t.stream == stream])))
    return max(sorted(busy), key=lambda s: busy[s]) if busy else -1


def truth(captures: list[Capture]) -> Json:
    """truth.json of a run."""
    config = captures[0].config
    size = config.attention_tp
    ranks = [rank_truth(c, captures[0], captures[n // size * size]) for n, c in enumerate(captures)]
    return {
        "config": {**asdict(config), "width": config.width, "dp_size": config.dp_size},
        "ranks": ranks,
        "experts": experts_truth(captures),
        "group_gaps": group_gaps(captures),
    }


def expected_offset_ns(capture: Capture, reference: Capture) -> int:
    """What must be added to this rank's times to read them on the reference's clock, in the middle of the window."""
    config = capture.config
    middle = sum(capture.window) // 2
    # exported(true) is monotonic and nearly linear: one correction step is exact to a ns for any sane drift
    true = middle - config.offset_ns(capture.rank.rank)
    true -= config.exported(capture.rank.rank, true) - middle
    return config.exported(reference.rank.rank, true) - middle


def rank_truth(capture: Capture, reference: Capture, leader: Capture) -> Json:
    """One rank. reference: rank 0; leader: the rank of its attention-TP group whose records the group shares."""
    config, rank = capture.config, capture.rank.rank
    recorded = [t for t in capture.tasks if t.recorded]
    window = (recorded[0].start, max(t.end for t in recorded))
    gaps = holes(pairs(recorded), window)
    by_forward = {s.batch.forward_ct: record(leader, s, None) for s in leader.steps if s.batch.kind == "decode"}
    inside = capture.inside if config.spans else []
    steps = [step_truth(capture, step, recorded, by_forward[step.batch.forward_ct]) for step in inside]
    listed = {r["forward_ct"]: n for n, r in enumerate(records(leader))}
    for step in steps:
        step["record_index"] = listed.get(step["forward_ct"])
    for this, following in pairwise(steps):
        if following["forward_ct"] == this["forward_ct"] + 1 and not this["cut"] and not following["cut"]:
            this["step_wall_ns"] = following["ts"] - this["ts"]
    return {
        "rank": rank,
        "folder": capture.folder,
        "pid": capture.rank.pid,
        "records": sum(s.batch.kind == "decode" for s in capture.steps),
        "clock": {
            "offset_ahead_ns": config.offset_ns(rank),
            "drift_ppm": config.drift(rank) - config.drift(reference.rank.rank),
            "expected_offset_ns": expected_offset_ns(capture, reference),
            "same_host": config.one_host,
            "host_window": list(capture.window),
            "launches": {
                "recorded": launches(recorded),
                "all": launches(capture.tasks),
            },
        },
        "times": {
            "window": list(window),
            "wall_ns": window[1] - window[0],
            "duration_sum_ns": sum(t.end - t.start for t in recorded),
            "busy_union_ns": length(union(pairs(recorded))),
            "gap_ns": length(gaps),
            "kernel_count": len(recorded),
        },
        "gaps": [[a, b - a] for a, b in gaps],
        "steps": steps,
        "deepep": [deepep_truth(capture, e, recorded) for e in capture.experts],
        "replays": [replay_truth(capture, n, r, recorded) for n, r in enumerate(capture.replays)],
    }


def launches(tasks: list[Task]) -> list[int]:
    """[pairs of call and task, tasks that start before their call, the worst in ns]."""
    early = [t.call.start - t.start for t in tasks if t.call is not None]
    return [len(early), sum(e > 0 for e in early), max([0, *early])]


def step_truth(capture: Capture, step: Step, recorded: list[Task], whole: Json) -> Json:
    """One decode step whose verify lies in the window. whole: its record, without `step_cpu_ms`."""
    config, forward_ct = capture.config, step.batch.forward_ct
    here = {id(s) for s in capture.spans}
    span, cut = step.run_batch, False
    if span is None or id(span) not in here:
        cut = True
    ts, end = (span.start, span.end) if span and not cut else (0, 0)
    if cut and step.draft_span and step.result_span:
        ts, end = step.draft_span.start, step.result_span.end
    outside = ("other", "prelude") if cut else ("other",)  # what ran before the draft span of a cut step is not in it
    mine = [t for t in recorded if t.forward_ct == forward_ct and t.phase not in outside]
    ran = sum(t.recorded and t.forward_ct == forward_ct and t.phase not in outside for t in capture.rank.tasks)
    main = main_stream(mine)
    verify = [t for t in mine if t.phase == "verify"]
    out: Json = {
        "forward_ct": forward_ct,
        "bs": step.batch.bs,
        "ts": ts,
        "dur": end - ts,
        "cut": cut,
        "complete": len(mine) == ran,  # every recorded task of the step lies in the window
        "evidence": "inferred" if cut else "recorded",
        "step_wall_ns": None,
        "committed_tokens": sum(r.acc_len for r in step.batch.requests),
        "main_stream": main,
        "extent": extent(mine),
        "gap_ns": length(holes(pairs(recorded), (mine[0].start, max(t.end for t in mine)))) if mine else 0,
        "record": {k: v for k, v in whole.items() if k != "reqs"},
        "segments": {},
    }
    for name, phase in (("draft", "draft"), ("target_verify", "verify")):
        tasks = [t for t in mine if t.phase == phase and t.stream == main]
        event = [step.events[f"{name}_start"], step.events[f"{name}_end"]]
        # the events are on the true clock: show them as the files of this rank would
        shift = round(config.device_shift_us * 1000)
        shown = [config.exported(capture.rank.rank, e + shift) for e in event]
        placed = extent(tasks)
        record_ms = whole.get(f"{name}_gpu_ms")
        out["segments"][name] = {
            "placed": placed,
            "events": shown,
            "record_ns": None if record_ms is None else round(record_ms * 1e6),
            "kernel_count": len(tasks),
        }
    if verify and not config.folded and any(t.phase == "tail" for t in mine):
        out["tail"] = tail_truth(mine, max(t.end for t in verify if t.stream == main))
    return out


def tail_truth(mine: list[Task], verify_end: int) -> Json:
    """The eager tail. `parts`: as the model launched them. `parts_by_rule`: the IndexPut of the last commit stage
    counts as `other`, because by names alone it can't be told from a relay write."""
    tasks = [t for t in mine if t.phase == "tail"]
    others = [t for t in tasks if t.part == "commit" and t.kernel and t.kernel.op_type != "IndexPutV2"]
    last = max((t.start for t in others), default=0)
    by_rule = defaultdict(list)
    by_model = defaultdict(list)
    for task in tasks:
        by_model[task.part].append(task)
        by_rule["other" if task.part == "commit" and task.start > last else task.part].append(task)

    def rows(groups: dict[str, list[Task]]) -> list[Json]:
        return [
            {"part": p, "extent": extent(groups[p]), "kernel_count": len(groups[p]), "busy_ns": length(union(pairs(groups[p])))}
            for p in PARTS
            if groups.get(p)
        ]  # fmt: skip

    return {"extent": [verify_end, max(t.end for t in tasks)], "parts": rows(by_model), "parts_by_rule": rows(by_rule)}


def deepep_truth(capture: Capture, expert: Expert, recorded: list[Task]) -> Json:
    task, out = expert.task, {"op": expert.op, "model": expert.model, "forward_ct": expert.forward_ct}
    moe = ("dispatch", "combine")
    beside = [
        (t.start, t.end)
        for t in recorded
        if t.kind == "kernel" and t.stream != task.stream and not any(m in t.name.lower() for m in moe)
    ]
    overlapped = length(clip(union(beside), (task.start, task.end)))
    if expert.model == "recv_hook":
        return {
            **out,
            "index": expert.index,
            "issue": expert.issue,
            "hook": expert.hook,
            "done": task.end,
            "overlapped_ns": None,
            "exposed_ns": task.end - expert.hook,
        }
    return {
        **out,
        "index": expert.index,
        "issue": expert.issue,
        "hook": task.start,
        "done": task.end,
        "overlapped_ns": overlapped,
        "exposed_ns": task.end - task.start - overlapped,
    }


def replay_truth(capture: Capture, number: int, replay: Replay, recorded: list[Task]) -> Json:
    """`prepare_ns` counts from the end of the last CANN call of the step that put anything on the device."""
    first, last = min(t.start for t in replay.tasks), max(t.end for t in replay.tasks)
    here = {id(s) for s in capture.spans}
    known = id(replay.call) in here
    step = next(s for s in capture.steps if s.batch.forward_ct == replay.forward_ct)
    calls = [
        t.call
        for t in capture.tasks
        if t.call and t.forward_ct == replay.forward_ct and id(t.call) in here and t.call.end <= replay.call.start
    ]
    begin = step.run_batch.start if step.run_batch and id(step.run_batch) in here else None
    prepared = max((c.end for c in calls), default=begin)
    before = max((t.end for t in recorded if t.start < first), default=None)
    return {
        "replay_index": number,
        "model_id": replay.model_id,
        "forward_ct": replay.forward_ct if known else None,
        "launch": replay.call.start if known else None,
        "first_task": first,
        "last_task_end": last,
        "task_count": len(replay.tasks),
        "prepare_ns": replay.call.start - prepared if known and prepared is not None else None,
        "exposed_gap_ns": None if before is None else max(first - before, 0),
    }


def experts_truth(captures: list[Capture]) -> list[Json]:
    """Every dispatch and combine that all ranks recorded: starts and ends per rank on the true clock of rank 0's files.

    `last_rank` reached it last; `waited_ns` is how much earlier each rank was there.
    """
    offsets = [expected_offset_ns(c, captures[0]) for c in captures]
    by_index: dict[int, list[tuple[int, Expert]]] = defaultdict(list)
    for number, capture in enumerate(captures):
        for expert in capture.experts:
            by_index[expert.index].append((number, expert))
    out = []
    for index, found in sorted(by_index.items()):
        if len(found) != len(captures):
            continue
        starts = [e.task.start + offsets[n] for n, e in found]
        ends = [e.task.end + offsets[n] for n, e in found]
        late = max(starts)
        out.append(
            {
                "index": index,
                "op": found[0][1].op,
                "forward_ct": found[0][1].forward_ct,
                "starts": starts,
                "ends": ends,
                "last_rank": captures[starts.index(late)].rank.rank,
                "waited_ns": [late - s for s in starts],
            }
        )
    return out


def group_gaps(captures: list[Capture]) -> list[list[int]]:
    """[ts, dur] on the reference's clock: where no rank has a recorded task, inside the common window."""
    lists, windows = [], []
    for capture in captures:
        offset = expected_offset_ns(capture, captures[0])
        tasks = [(t.start + offset, t.end + offset) for t in capture.tasks if t.recorded]
        windows.append((min(a for a, _ in tasks), max(b for _, b in tasks)))
        lists.append(holes(tasks, windows[-1]))
    window = (max(a for a, _ in windows), min(b for _, b in windows))
    shared = clip(lists[0], window)
    for other in lists[1:]:
        shared = common(shared, clip(other, window))
    return [[a, b - a] for a, b in shared]
