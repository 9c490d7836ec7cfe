"""The sections of a report about what steps consist of: segments, tails, DeepEP, replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from converter.report_facts import by_rank, reason
from converter.report_tables import Tables
from converter.report_view import (
    Grid,
    Limits,
    Row,
    View,
    columns,
    grouped,
    median,
    ms,
    name,
    number,
    percent,
    spread,
    us,
)

PARTS = ("accept", "tp_sync", "finalize", "out_tokens", "commit", "other")


def segments_view(tables: Tables, limits: Limits) -> View:
    """Kernel sum, stage elapsed and wall side by side."""
    view = View(
        "segments",
        "Segments",
        "Medians. Three times that are not each other: the sum of kernel durations (all streams, overlap counted "
        "twice), the stage's elapsed time on the current stream, the wall time of the whole step. others: other "
        "streams than the main one. resid.: the recorded length less first start to last end of the linked tasks; of draft "
        "it is what the segment does before the draft forward (embedding, metadata and sampling copies). known by: "
        "inferred: as long as the record says, ending with the last linked task; linked: no record, first to last linked "
        "task: another measurement, in a row of its own.",
    )
    cut = {r["id"] for r in tables.dicts("cut_slices")}
    found = tables.dicts("segments")
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
            name(evidence),
        ]
        for (rank, segment, evidence), rows in sorted(
            grouped([r for r in found if r["id"] not in cut], "rank", "segment", "evidence").items(), key=str
        )
    ]
    view.notes += _cut_note(found, cut)
    if cells:
        view.grids.append(Grid(head.split(", "), cells, text=columns(1, 9)))
    elif not found:
        view.notes.append(reason(by_rank(tables), "segments"))
    return view


def _cut_note(rows: Sequence[Row], cut: set[int]) -> list[str]:
    """What stays out of the medians because an edge of the window may have shortened it."""
    steps = {(r["rank"], r["forward_ct"]) for r in rows if r["id"] in cut}
    return ["Steps that the window cuts are left out: what it shows of them may be a part."] if steps else []


def tails_view(tables: Tables, limits: Limits) -> View:
    """What runs on the device after target_verify, by part."""
    view = View(
        "tails",
        "Eager tail",
        "What runs after target_verify, by part, in the order of the code. elapsed: first start to last end; parts may "
        "overlap, so they do not add up to the tail. other: what no kernel name tells. known by: inferred: the tasks are "
        "linked to the step, their part is told from names and order.",
    )
    heads = ("rank", "part", "steps", "kernels", "elapsed us", "p90 us", "max us", "busy us", "known by")
    order = {part: i for i, part in enumerate(PARTS)}
    cut = {r["id"] for r in tables.dicts("cut_slices")}
    found = tables.dicts("tails")
    groups = grouped([r for r in found if r["id"] not in cut], "rank", "part")
    cells = []
    for (rank, part), rows in sorted(groups.items(), key=lambda g: (g[0][0], order.get(g[0][1], len(PARTS)))):
        s = spread(r["dur"] for r in rows)
        kernels = number(median(r["kernel_count"] for r in rows))
        busy = us(median(r["busy_ns"] for r in rows))
        figures = [number(s.count), kernels, us(s.median), us(s.p90), us(s.max), busy]
        cells.append([str(rank), name(part), *figures, _known_by(rows)])
    view.notes += _cut_note(found, cut)
    if cells:
        view.grids.append(Grid(heads, cells, "kernels, elapsed, busy: medians", text=columns(1, 8)))
    elif not found:
        view.notes.append(reason(by_rank(tables), "tails"))
    return view


def _known_by(rows: Sequence[Row]) -> str:
    return "+".join(sorted({name(r["evidence"]) for r in rows}))


def deepep_view(tables: Tables, limits: Limits) -> View:
    """Total against exposed, and who waited for whom."""
    view = View(
        "deepep",
        "DeepEP",
        "Total communication is not exposed communication. in_kernel_wait: total is the kernel's time, which waits for "
        "its peers inside: how much of it is waiting is not recorded; exposed is the part with no other stream computing. "
        "recv_hook: total is issue to done; exposed is what is left at the hook.",
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
        "listed where the trace holds it. known by: linked: the call by id, flow or replay order; recorded: no call known.",
    )
    heads = (
        "rank",
        "model",
        "replays",
        "prepare us",
        "p90 us",
        "max us",
        "gap us",
        "p90 us",
        "max us",
        "gap sum ms",
        "known by",
    )
    cells = []
    for (rank, model), rows in sorted(grouped(tables.dicts("replays"), "rank", "model_id").items(), key=_known_first):
        prepare, gap = spread(r["prepare_ns"] for r in rows), spread(r["exposed_gap_ns"] for r in rows)
        figures = [us(v) for s in (prepare, gap) for v in (s.median, s.p90, s.max)]
        total = ms(sum(r["exposed_gap_ns"] or 0 for r in rows))
        cells.append([str(rank), name(model), number(len(rows)), *figures, total, _known_by(rows)])
    if not cells:
        view.notes.append(reason(by_rank(tables), "replays"))
        return view
    view.grids.append(Grid(heads, cells, "prepare, gap: medians", text=columns(10)))
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
    caption = "What the host did in prepare, inferred from time; unnamed: no host event covers it"
    return Grid(heads, cells, caption, columns(1), columns(1))
