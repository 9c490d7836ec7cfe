"""The sections of a report that every capture has: ranks, vendor times, clocks, gaps, patterns."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from annotators.times import NOT_RECOVERABLE, idealisation
from annotators.vendor_times import WHY_THEY_DIFFER
from converter.report_facts import Facts, by_rank, reason, spell_ranks
from converter.report_tables import Tables
from converter.report_view import Grid, Limits, View, columns, ms, name, number, percent, plural, us

#: The Overlap Analysis is written in rounded microseconds: free and gap that are nearer to each other are alike.
ALIKE_NS = 1_000

#: From this gap share on the arithmetic of "removed entirely" says nothing that anyone could take for a gain.
ARITHMETIC_BELOW = 0.5


def ranks_view(tables: Tables, limits: Limits) -> View:
    """The four kinds of time, side by side."""
    rows = tables.dicts("ranks")
    view = View(
        "ranks",
        "Ranks",
        "Four kinds of time, each with its own question. wall: how long the window is. duration: recorded work, overlap "
        "counted twice. + waits: with recorded waits, which overlap too; - where none is recorded. union: how long at least one task was "
        f"recorded. {NOT_RECOVERABLE}",
    )
    heads = ("rank", "tasks", "wall ms", "duration ms", "+ waits ms", "union ms", "gap ms", "gap %")
    lengths = ("wall_ns", "duration_sum_ns", "duration_wait_sum_ns", "busy_union_ns", "gap_ns")
    cells = [
        [str(r["rank"]), number(r["kernel_count"]), *(ms(r[k]) for k in lengths), percent(r["gap_ratio"])] for r in rows
    ]
    if not rows:
        view.notes.append("no recorded task.")
        return view
    view.grids.append(Grid(heads, cells))
    if any(r["duration_sum_ns"] is None for r in rows):
        view.notes.append(
            "-: the sum exceeds what 64 bits of nanoseconds hold (292 years); a duration or wait is wrong."
        )
    largest = max(rows, key=lambda r: r["gap_ratio"] or 0)
    if 0 < (largest["gap_ratio"] or 0) < ARITHMETIC_BELOW:
        view.notes.append(
            f"With the gap share of rank {largest['rank']}: {idealisation(largest['gap_ratio'])}. "
            "Nothing here says which part of a gap could be removed."
        )
    return view


def vendor_view(tables: Tables, limits: Limits) -> View:
    """The vendor's split beside ours."""
    ours = {r["rank"]: r for r in tables.dicts("ranks")}
    parts = ("computing_ns", "communication_ns", "communication_not_overlapped_ns", "free_ns")
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in tables.dicts("vendor"):
        steps[row["rank"]].append(row)
    heads = ("rank", "step", "computing ms", "comm. ms", "not overl. ms", "free ms", "union ms", "gap ms", "from")
    cells = []
    equal = []
    for rank, rows in steps.items():
        mine = ours.get(rank, {})
        free = sum(row["free_ns"] or 0 for row in rows)
        equal.append(abs(free - (mine.get("gap_ns") or 0)) < ALIKE_NS)
        own = [ms(mine.get("busy_union_ns")), ms(mine.get("gap_ns"))]
        for row in rows:
            last = own if len(rows) == 1 else ["", ""]
            cells.append([str(rank), name(row["step"]), *(ms(row[p]) for p in parts), *last, name(row["source"])])
        if len(rows) > 1:
            sums = [ms(sum(row[p] or 0 for row in rows)) for p in parts]
            cells.append([str(rank), "sum", *sums, *own, ""])
    view = View(
        "vendor",
        "Vendor times and ours",
        "Computing, communication, not overlapped and free by the vendor's definition (step_trace_time.csv), per step; "
        "union and gap as above, over the window. Copies and event waits are in neither's busy time.",
    )
    if cells:
        view.grids.append(Grid(heads, cells, names=columns(1), text=columns(1, 8)))
        view.notes.append("Free and gap agree here to a microsecond." if all(equal) else WHY_THEY_DIFFER)
        cut = [rank for rank in steps if "cut" in by_rank(tables).get(rank, {})]
        if cut:
            view.notes.append(
                f"The trace was cut ({spell_ranks(cut)}): the vendor's intervals are clipped to the window, and its steps, "
                "whose ranges only a whole capture shows, are not told apart."
            )
    else:
        view.notes.append(reason(by_rank(tables), "vendor_times"))
    return view


def clocks_view(tables: Tables, limits: Limits) -> View:
    """How the ranks' clocks were put on one."""
    head = "rank, method, offset us, drift ppm, resid. med us, resid. max us, anchors, launches, too early, worst us"
    cells = [
        [
            str(r["rank"]),
            name(r["method"]),
            us(r["offset_ns"]),
            number(r["drift_ppm"], 2),
            us(r["residual_median_ns"]),
            us(r["residual_max_ns"]),
            number(r["anchor_count"]),
            number(r["launch_pairs"]),
            number(r["causality_violations"]),
            us(r["worst_violation_ns"]),
        ]
        for r in tables.dicts("clocks")
    ]
    view = View(
        "clocks",
        "Clocks",
        "Trace time = recorded time + offset; drift is reported, not applied. Residuals are distances of matched "
        "collectives after that. too early: tasks that start before the call that launched them, so far apart are host "
        "and device clock of that rank.",
    )
    if cells:
        view.grids.append(Grid(head.split(", "), cells, text=columns(1)))
    else:
        view.notes.append("no clock is described.")
    return view


def gaps_view(tables: Tables, limits: Limits) -> View:
    """The longest gaps, what they lie between, and where all ranks have one."""
    facts = by_rank(tables)
    classes = tables.dicts("gap_classes")
    view = View(
        "gaps",
        "Gaps",
        f"{NOT_RECOVERABLE} The task after a gap bore the wait recorded for it. at: from the window's start; launch: "
        "when the call of the task after began, from the gap's start (linked by id; - in a replay; clocks: after the task "
        "itself, so far are host and device clock apart); host event: the one with most time of its own in the gap, and "
        "its share of it. Being there at the same time is inferred evidence only.",
    )
    if not classes:
        view.notes.append(reason(facts, "gaps"))
        return view
    start = {r["rank"]: r["window_ts"] for r in tables.dicts("ranks")}
    count = sum(r["gap_count"] for r in classes)
    rows = tables.dicts("gaps")[: limits.gaps]
    heads = ("rank", "at ms", "gap us", "task before", "task after", "bore us", "launch us", "host event, inferred")
    cells = [
        [
            str(r["rank"]),
            ms(r["ts"] - start.get(r["rank"], r["ts"])),
            us(r["dur"]),
            name(r["prev_name"]),
            name(r["next_name"]),
            us(r["next_wait_ns"]),
            _launch(r),
            _cover(r),
        ]
        for r in rows
    ]
    shown = plural(count, "gap") if len(rows) == count else f"The {len(rows)} longest of {plural(count, 'gap')}"
    view.grids.append(Grid(heads, cells, shown, columns(3, 4, 7), columns(3, 4, 7)))
    view.grids.append(_classes(classes))
    view.notes += _group(facts)
    return view


def _launch(row: dict[str, Any]) -> str:
    """When the call began, from the gap's start. A call after the task's own start is not shown as a time."""
    if row["launch_ts"] is None:
        return us(None)
    after = row["launch_ts"] - row["ts"]
    return "clocks" if after > row["dur"] else us(after)


def _cover(row: dict[str, Any]) -> str:
    if row["host_event"] is None:
        return name(None)
    share = "" if row["host_cover_ratio"] is None else f" {percent(row['host_cover_ratio'], 0)} %"
    return f"{row['host_event']}{share}"


def _classes(rows: list[dict[str, Any]]) -> Grid:
    total: dict[int, int] = defaultdict(int)
    for row in rows:
        total[row["rank"]] += row["total_ns"]
    heads = ("rank", "ends", "gaps", "total ms", "% of gap", "longest us")
    cells = [
        [
            str(r["rank"]),
            name(r["endpoint_class"]),
            number(r["gap_count"]),
            ms(r["total_ns"]),
            percent(r["total_ns"] / total[r["rank"]] if total[r["rank"]] else None),
            us(r["max_ns"]),
        ]
        for r in rows
    ]
    caption = "By the tasks at the ends: they describe the ends, not the inside of a graph"
    return Grid(heads, cells, caption, columns(1), columns(1))


def _group(facts: dict[int | None, Facts]) -> list[str]:
    run = facts.get(None, {})
    if "group_gaps.gap_ns" in run:
        gap, wall = int(run["group_gaps.gap_ns"]), int(run.get("group_gaps.wall_ns", 0))
        share = f" ({percent(gap / wall)} %)" if wall else ""
        return [
            f"All {run.get('group_gaps.rank_count')} ranks at once: {plural(int(run['group_gaps.gap_count']), 'gap')}, "
            f"{ms(gap)} ms of a common window of {ms(wall)} ms{share}. They may all wait for the same decision: this "
            "says when nothing was recorded on any rank, not what decides the end."
        ]
    if "refused.group_gaps" in run:
        return [f"Gaps of all ranks at once: refused, {run['refused.group_gaps']}."]
    return []


def patterns_view(tables: Tables, limits: Limits) -> View:
    """Repeated gaps by the names around them."""
    rows = tables.dicts("patterns")
    heads = ("rank", "task before", "task after", "gaps", "total ms", "longest us")
    cells = [
        [
            str(r["rank"]),
            name(r["prev_name"]),
            name(r["next_name"]),
            number(r["gap_count"]),
            ms(r["total_ns"]),
            us(r["max_ns"]),
        ]
        for r in rows[: limits.patterns]
    ]
    view = View(
        "patterns",
        "Gap patterns",
        "Gaps between tasks of the same two names, by their sum. The sum is what lies between them, not what a change "
        "to either task could win.",
    )
    if not rows:
        view.notes.append(reason(by_rank(tables), "gaps"))
        return view
    caption = f"{len(cells)} of {plural(len(rows), 'pattern')}" if len(cells) < len(rows) else ""
    view.grids.append(Grid(heads, cells, caption, columns(1, 2), columns(1, 2)))
    return view
