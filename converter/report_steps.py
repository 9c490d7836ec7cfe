"""The sections of a report that need steps: the step table, segments, tails, DeepEP, replays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from converter.report_facts import by_rank, reason
from converter.report_tables import Tables
from converter.report_view import Grid, Limits, View, columns, median, ms, name, number, percent, plural, spread, us

#: Columns of npu_step_report in the step table: head, column, what kind of number. Times in ms.
STEP_COLUMNS = (
    ("bs", "bs", "count"),
    ("tok", "num_verify_tokens", "count"),
    ("wall", "step_wall_ms", "ms"),
    ("draft", "draft_ms", "ms"),
    ("verify", "verify_ms", "ms"),
    ("outside", "unattributed_ms", "ms"),
    ("tail", "tail_ms", "ms"),
    ("exposed", "exposed_comm_ms", "ms"),
    ("replay", "pre_replay_gap_ms", "ms"),
    ("gaps", "gap_ms", "ms"),
    ("commit", "avg_commit_len", "mean"),
    ("TPOT", "effective_tpot_ms", "ms"),
    ("tok/s", "tokens_per_s", "count"),
)

#: What the summaries are made of; in this order in the json's steps_summary too.
METRICS = (*(column for _, column, _ in STEP_COLUMNS), "step_gpu_ms", "committed_tokens")

PARTS = ("accept", "tp_sync", "finalize", "out_tokens", "commit", "other")
Row = dict[str, Any]


def grouped(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by the values of these columns, in order of first appearance."""
    out: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        out[tuple(row[key] for key in keys)].append(row)
    return dict(out)


def steps_view(tables: Tables, limits: Limits) -> View:
    """One table per rank, its summary below, and one over the run."""
    view = View(
        "steps",
        "Steps",
        "Times in ms. wall: start to start; draft, verify: elapsed on the current stream; outside: step on the device "
        "less both (it flags time, it does not say where); tail: after verify; exposed: communication not covered by "
        "other work; replay: before replays without a recorded task; gaps: in the whole step. TPOT = wall / commit "
        "length: a longer acceptance is not a lower TPOT. - is not known, not zero.",
    )
    rows = tables.dicts("steps")
    if not rows:
        view.notes.append(reason(by_rank(tables), "steps"))
        return view
    decimals = _decimals(rows)
    for (rank,), steps in grouped(rows, "rank").items():
        numbered = [(str(i) if s["forward_ct"] is None else str(s["forward_ct"]), s) for i, s in enumerate(steps)]
        shown = numbered
        if len(numbered) > limits.steps:
            by_length = sorted(numbered, key=lambda n: -(n[1]["step_wall_ms"] or 0))[: limits.steps]
            keep = {id(s) for _, s in by_length}
            shown = [n for n in numbered if id(n[1]) in keep]
        caption = f"Rank {rank}, {plural(len(steps), 'step')}"
        if len(shown) < len(numbered):
            caption += f", the {len(shown)} longest shown"
        if any(s["forward_ct"] is None for s in steps):
            caption += "; forward_ct is not known, steps are counted from 0"
        cells = [[label, *_step_cells(step, decimals)] for label, step in shown]
        cells += _summary(steps, decimals)
        grid = Grid(("step", *(head for head, _, _ in STEP_COLUMNS)), cells, caption, summary=4)
        grid.open = ["" if s["forward_ct"] is None else f"--step {s['forward_ct']} --rank {rank}" for _, s in shown]
        view.grids.append(grid)
    ranks = len(grouped(rows, "rank"))
    if ranks > 1:
        heads = ("run", *(head for head, _, _ in STEP_COLUMNS))
        view.grids.append(
            Grid(
                heads,
                _summary(rows, decimals),
                f"All {ranks} ranks, {plural(len(rows), 'step of one rank', 'steps of one rank each')}",
            )
        )
    return view


def _decimals(rows: Sequence[Row]) -> int:
    """So many that the longest step takes six characters."""
    longest = max((s["step_wall_ms"] or 0 for s in rows), default=0)
    return 3 if longest < 100 else 2 if longest < 1000 else 1


def _text(value: float | int | None, kind: str, decimals: int) -> str:
    return number(value, {"ms": decimals, "mean": 2, "count": 0}[kind])


def _step_cells(step: Row, decimals: int) -> list[str]:
    return [_text(step[column], kind, decimals) for _, column, kind in STEP_COLUMNS]


def _summary(steps: Sequence[Row], decimals: int) -> list[list[str]]:
    """The rows count, median, p90 and max."""
    spreads = [(spread(s[column] for s in steps), kind) for _, column, kind in STEP_COLUMNS]
    out = [["count", *(str(s.count) for s, _ in spreads)]]
    for row in ("median", "p90", "max"):
        out.append([row, *(_text(getattr(s, row), kind, decimals) for s, kind in spreads)])
    return out


def steps_summary(tables: Tables) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and rows of the json's steps_summary: per rank and metric, then over the run (rank null)."""
    rows, out = tables.dicts("steps"), []
    groups: list[tuple[int | None, list[Row]]] = [(rank, steps) for (rank,), steps in grouped(rows, "rank").items()]
    for rank, steps in [*groups, (None, rows)] if rows else []:
        for metric in METRICS:
            s = spread(step[metric] for step in steps)
            out.append((rank, metric, s.count, s.median, s.p90, s.max))
    return ["rank", "metric", "count", "median", "p90", "max"], out


def segments_view(tables: Tables, limits: Limits) -> View:
    """Kernel sum, stage elapsed and wall side by side."""
    view = View(
        "segments",
        "Segments",
        "Medians. Three times that are not each other: the sum of kernel durations (all streams, overlap counted "
        "twice), the stage's elapsed time on the current stream, the wall time of the whole step. others: other "
        "streams than the main one. resid.: recorded less placed.",
    )
    wall = {k[0]: median(s["step_wall_ms"] for s in v) for k, v in grouped(tables.dicts("steps"), "rank").items()}
    head = "rank, segment, steps, sum ms, elapsed ms, step wall ms, union ms, others ms, resid. us, known by"
    cells = [
        [
            str(rank),
            name(segment),
            number(len(rows)),
            ms(median(r["kernel_sum_ns"] for r in rows)),
            ms(median(r["dur"] for r in rows)),
            number(wall.get(rank), 3),
            ms(median(r["busy_union_ns"] for r in rows)),
            ms(median(r["other_stream_busy_ns"] for r in rows)),
            us(median(r["residual_ns"] for r in rows)),
            "+".join(sorted({name(r["evidence"]) for r in rows})),
        ]
        for (rank, segment), rows in sorted(grouped(tables.dicts("segments"), "rank", "segment").items())
    ]
    if cells:
        view.grids.append(Grid(head.split(", "), cells, text=columns(1, 9)))
    else:
        view.notes.append(reason(by_rank(tables), "segments"))
    return view


def tails_view(tables: Tables, limits: Limits) -> View:
    """What runs on the device after target_verify, by part."""
    view = View(
        "tails",
        "Eager tail",
        "What runs after target_verify, by part, in the order of the code. elapsed: first start to last end; parts may "
        "overlap, so they do not add up to the tail. other: what no kernel name tells.",
    )
    heads = ("rank", "part", "steps", "kernels", "elapsed us", "p90 us", "max us", "busy us")
    order = {part: i for i, part in enumerate(PARTS)}
    groups = grouped(tables.dicts("tails"), "rank", "part")
    cells = []
    for (rank, part), rows in sorted(groups.items(), key=lambda g: (g[0][0], order.get(g[0][1], len(PARTS)))):
        s = spread(r["dur"] for r in rows)
        kernels = number(median(r["kernel_count"] for r in rows))
        busy = us(median(r["busy_ns"] for r in rows))
        cells.append([str(rank), name(part), number(s.count), kernels, us(s.median), us(s.p90), us(s.max), busy])
    if cells:
        view.grids.append(Grid(heads, cells, "kernels, elapsed, busy: medians", text=columns(1)))
    else:
        view.notes.append(reason(by_rank(tables), "tails"))
    return view


def deepep_view(tables: Tables, limits: Limits) -> View:
    """Total against exposed, and who waited for whom."""
    view = View(
        "deepep",
        "DeepEP",
        "Total communication is not exposed communication. in_kernel_wait: total is the kernel's time, which waits for "
        "its peers inside; exposed is the part with no other stream computing. recv_hook: total is issue to done; "
        "exposed is what is left at the hook.",
    )
    facts = by_rank(tables)
    heads = (
        "rank",
        "op",
        "model",
        "count",
        "total ms",
        "overlapped ms",
        "exposed ms",
        "exposed %",
        "median us",
        "max us",
    )
    cells = []
    for (rank, op, model), rows in sorted(grouped(tables.dicts("deepep"), "rank", "op", "model").items()):
        total = sum((r["dur"] if model == "recv_hook" else r["wait_ns"]) or 0 for r in rows)
        s = spread(r["exposed_ns"] for r in rows)
        exposed = sum(r["exposed_ns"] or 0 for r in rows)
        hidden = None if model == "recv_hook" else sum(r["overlapped_ns"] or 0 for r in rows)
        figures = [ms(total), ms(hidden), ms(exposed), percent(exposed / total if total else None, 1)]
        cells.append([str(rank), name(op), name(model), number(len(rows)), *figures, us(s.median), us(s.max)])
    if not cells:
        view.notes.append(reason(facts, "deepep"))
        return view
    view.grids.append(Grid(heads, cells, "median, max: of the exposed part", text=columns(1, 2)))
    peers = _peers(tables)
    if peers.rows:
        view.grids.append(peers)
    elif refused := facts.get(None, {}).get("refused.deepep_peers"):
        view.notes.append(f"Which rank came last: refused, {refused}.")
    return view


def _peers(tables: Tables) -> Grid:
    heads = ("last rank", "rank", "times", "waited ms", "median us", "p90 us", "max us")
    cells = []
    for (last, rank), rows in sorted(grouped(tables.dicts("deepep_peers"), "last_rank", "rank").items()):
        if rank == last:
            continue
        s = spread(r["waited_ns"] for r in rows)
        total = sum(r["waited_ns"] or 0 for r in rows)
        cells.append([str(last), str(rank), number(len(rows)), ms(total), us(s.median), us(s.p90), us(s.max)])
    return Grid(heads, cells, "Which rank came last, and how long each other one waited for it")


def replays_view(tables: Tables, limits: Limits) -> View:
    """Host preparation and exposed gap before graph replays."""
    view = View(
        "replays",
        "Graph replays",
        "prepare: host time from the step's last submission before the call, to the call; gap: time before the replay's "
        "first task that no recorded task covers. A long preparation behind running work leaves no gap. graph.update is "
        "listed where the trace holds it.",
    )
    heads = ("rank", "model", "replays", "prepare us", "p90 us", "max us", "gap us", "p90 us", "max us", "gap sum ms")
    cells = []
    for (rank, model), rows in sorted(grouped(tables.dicts("replays"), "rank", "model_id").items(), key=_known_first):
        prepare, gap = spread(r["prepare_ns"] for r in rows), spread(r["exposed_gap_ns"] for r in rows)
        figures = [us(v) for s in (prepare, gap) for v in (s.median, s.p90, s.max)]
        total = ms(sum(r["exposed_gap_ns"] or 0 for r in rows))
        cells.append([str(rank), name(model), number(len(rows)), *figures, total])
    if not cells:
        view.notes.append(reason(by_rank(tables), "replays"))
        return view
    view.grids.append(Grid(heads, cells, "prepare, gap: medians"))
    host = _host(tables, limits)
    if host.rows:
        view.grids.append(host)
    return view


def _known_first(group: tuple[tuple[Any, ...], list[Row]]) -> tuple[int, bool, int]:
    rank, model = group[0]
    return rank, model is None, model or 0


def _host(tables: Tables, limits: Limits) -> Grid:
    groups = grouped(tables.dicts("replay_host"), "rank", "name")
    by_total = sorted(groups.items(), key=lambda g: (g[0][0], -sum(r["dur"] for r in g[1])))
    cells = []
    for (rank, event), rows in by_total[: limits.patterns]:
        s = spread(r["dur"] for r in rows)
        total = ms(sum(r["dur"] for r in rows))
        cells.append([str(rank), name(event), number(s.count), total, us(s.median), us(s.max)])
    heads = ("rank", "host event", "times", "total ms", "median us", "longest us")
    caption = "What the host did in prepare; unnamed: no host event covers it"
    return Grid(heads, cells, caption, columns(1), columns(1))
