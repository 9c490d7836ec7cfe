"""Gaps: where is time without a recorded task, what stands at its ends, and what is known about it?

A gap is a maximal open interval of the window that no recorded task covers. What the track says of each gap: both
neighbours, the class of its endpoints, the host event that covers most of it, the submission of the task after it.
None of these is its cause. The task after a gap may carry a long recorded wait: it bore the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from annotators import intervals
from annotators.annotation import Annotation
from annotators.host_cover import host_cover
from annotators.linking import submissions
from annotators.times import npu_rank_times
from schemas.dspark_tables import Steps
from schemas.roles import Roles, load_roles
from schemas.timeline import (
    NULL,
    Bool,
    Column,
    HostSlices,
    Int32,
    Int64,
    IntArray,
    Kind,
    Layer,
    Role,
    StringPool,
    Tasks,
    Timeline,
    id_column,
    text_column,
)

GAPS = (
    "Time without a recorded task on any stream of this rank, inside the window. It is not idle hardware: what the "
    "profiler did not record (events, notifies, copies) may run in it. It is not recoverable time. The task after a "
    "gap that carries a long wait bore that wait; nothing here says what caused it. host_event is the host slice with "
    "the largest own time inside the gap, inferred from time alone; evidence `linked` speaks of launch_name, not of it."
)
BUSY_STREAMS = "How many streams (a communication group counts as one) have a recorded task at this moment."
GAP_SHARE = "Share of each 10 ms that no recorded task covers; the last one may be shorter. Not a share to be won."
GAP_SHARE_STEP = (
    "Share of each step's span, as far as it lies in the window, that no recorded task covers. Not a share to be won."
)

Float64 = npt.NDArray[np.float64]

SHARE_PERIOD_NS = 10_000_000


@dataclass
class Ends:
    """The tasks at the ends of each gap. prev, next: int[k] task indexes, NULL at an edge of the window."""

    prev: IntArray
    next: IntArray


def task_gaps(timeline: Timeline) -> intervals.Spans:
    """The gaps of a rank: (start, end) int64[k] ns."""
    if timeline.window is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return intervals.gaps(intervals.merged(timeline.tasks.ts, timeline.tasks.end), timeline.window)


def neighbours(tasks: Tasks, gaps: intervals.Spans) -> Ends:
    """prev ends at the gap's start (ties: the latest started, then the first in file order), next starts at its end
    (ties: the first in file order). Tasks of zero length count as neighbours, although they cover nothing."""
    start, end = gaps
    index: type[np.int32] | type[np.int64] = np.int32 if len(tasks) < 1 << 31 else np.int64
    prev: IntArray = np.full(len(start), NULL, index)
    following: IntArray = np.full(len(start), NULL, index)
    row, gap = _at(start, tasks.end)
    order = np.lexsort((tasks.slice[row], -tasks.ts[row], gap))
    _take_first(prev, gap[order], row[order])
    # Tasks are sorted by start, but longer first: among those of one start the file order is that of the slices.
    low, high = np.searchsorted(tasks.ts, end, side="left"), np.searchsorted(tasks.ts, end, side="right")
    one = high - low == 1
    following[one] = low[one]
    many = np.flatnonzero(high - low > 1)
    if len(many):
        row, gap = _at(end[many], tasks.ts)
        order = np.lexsort((tasks.slice[row], gap))
        _take_first(following, many[gap[order]], row[order])
    return Ends(prev, following)


def _at(places: Int64, times: Int64) -> tuple[Int64, Int64]:
    """(row, place): the rows whose time is one of the places (sorted, distinct), and which one."""
    if not len(places):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    found = np.searchsorted(places, times)
    row = np.flatnonzero(places[np.minimum(found, len(places) - 1)] == times)
    return row, found[row]


def _take_first(into: IntArray, group: Int64, row: Int64) -> None:
    """into[g] = the first row of each group; groups are sorted."""
    first = _differs_from_last(group)
    into[group[first]] = row[first]


def launches(timeline: Timeline, rows: IntArray) -> Int64:
    """int64[m]: the host row that submitted each task, by connection id or flow; NULL where none does, for a row of
    NULL, and for a task with a Model ID: its connection id dates from the capture of its graph."""
    tasks = timeline.tasks
    out = np.full(len(rows), NULL, np.int64)
    some = np.flatnonzero(rows != NULL)
    some = some[tasks.model_id[rows[some]] == NULL]
    out[some] = submissions(timeline, tasks.slice[rows[some]], tasks.connection_id[rows[some]])
    return out


def endpoint_classes(tasks: Tasks, ends: Ends, strings: StringPool) -> Int32:
    """int32[k] text ids: `A->B`, each `model N`, `dynamic`, or `edge` where the window and not a task bounds the gap.

    It describes the endpoints, not the inside of a graph: dynamic is what carries no Model ID.
    """
    edge = -2  # no model id, and not NULL
    before = np.where(ends.prev == NULL, edge, tasks.model_id[ends.prev])
    after = np.where(ends.next == NULL, edge, tasks.model_id[ends.next])
    models, code = np.unique(np.concatenate((before, after)), return_inverse=True)
    names = ["edge" if m == edge else "dynamic" if m == NULL else f"model {m}" for m in models.tolist()]
    pairs, which = np.unique(code[: len(before)] * len(models) + code[len(before) :], return_inverse=True)
    texts = [f"{names[p // len(models)]}->{names[p % len(models)]}" for p in pairs.tolist()]
    return strings.add_all(texts)[which] if texts else np.empty(0, np.int32)


def gap_names(dur: Int64, strings: StringPool) -> Int32:
    """int32[k] text ids: `gap 540 us`. Whole ns, us or tenths of ms (seconds from 10 s), rounded half up: at most some
    thousand names, so that gaps of one size read alike."""
    units = ((1_000, 1, "ns", 1), (1_000_000, 1_000, "us", 1), (10_000_000_000, 100_000, "ms", 10))
    code = np.empty(len(dur), np.int64)
    unit = np.full(len(dur), len(units), np.int64)
    for i in reversed(range(len(units))):
        unit[dur < units[i][0]] = i
    steps = np.array([u[1] for u in units] + [100_000_000])
    code = (dur + steps[unit] // 2) // steps[unit] * 4 + unit
    distinct, which = np.unique(code, return_inverse=True)
    texts = []
    for value, kind in ((c // 4, c % 4) for c in distinct.tolist()):
        name, parts = (units[kind][2], units[kind][3]) if kind < len(units) else ("s", 10)
        texts.append(f"gap {value} {name}" if parts == 1 else f"gap {value // parts}.{value % parts} {name}")
    return strings.add_all(texts)[which] if texts else np.empty(0, np.int32)


def busy_streams(tasks: Tasks, window: tuple[int, int]) -> tuple[Int64, Int32]:
    """(ts, count) at each change, inside the window."""
    order = np.argsort(
        tasks.track.astype(np.uint16) if tasks.track.max(initial=0) < 1 << 16 else tasks.track, kind="stable"
    )
    bounds = np.flatnonzero(np.diff(tasks.track[order], prepend=-1, append=-1))

    def busy(rows: Int64) -> intervals.Spans:
        ts = tasks.ts[rows]
        return intervals.merged(*intervals.clipped(ts, ts + tasks.dur[rows], window))

    return intervals.count_over_time([busy(order[a:b]) for a, b in pairwise(bounds)])


def gap_share(
    busy: intervals.Spans, window: tuple[int, int], period_ns: int = SHARE_PERIOD_NS
) -> tuple[Int64, Float64]:
    """(ts, percent): of each period from the window's start, where it differs from the period before.

    Only periods in which a busy interval begins or ends, and the one after each, are looked at: a window of years
    (one broken time in the input) costs nothing.
    """
    low, high = window
    if high <= low:
        return np.empty(0, np.int64), np.empty(0)
    start, end = intervals.clipped(*busy, window)
    sides = [(side - low) // period_ns for side in (start, end)]
    edges = np.unique(np.concatenate([side[_differs_from_last(side)] for side in sides]))  # sorted: cheap
    last = (high - low - 1) // period_ns
    period = np.unique(np.concatenate((edges, edges + 1, [0, last])))
    period = period[period <= last]
    begin = low + period * period_ns
    stop = low + np.minimum((period + 1) * period_ns, high - low)
    percent = _gap_percent(busy, begin, stop - begin)
    differs = _differs_from_last(percent)
    return begin[differs], percent[differs]


def _gap_percent(busy: intervals.Spans, begin: Int64, dur: Int64) -> Float64:
    return np.asarray(100 * (1 - intervals.covered_within(busy, begin, begin + dur) / dur), np.float64)


def _differs_from_last(values: Int64 | Float64) -> Bool:
    """bool[n]: the first row, and each that differs from the one before."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def annotate(timeline: Timeline, steps: Steps | None = None, roles: Roles | None = None) -> Annotation:
    """The track `Gaps`, the counters `Busy streams` and `Gap share`, and the fact `times` (`npu_rank_times`).

    steps: adds the counter `Gap share per step`. roles: the built-in table where None. Tables: `gaps` (start, end),
    `gap_ends` (Ends), `busy` (start, end).
    """
    tasks, host, strings = timeline.tasks, timeline.host, timeline.strings
    if timeline.window is None or not len(tasks):
        return Annotation(skipped="no recorded task")
    facts = {"times": npu_rank_times(timeline).as_facts()}
    busy = intervals.merged(tasks.ts, tasks.end)
    start, end = gaps = intervals.gaps(busy, timeline.window)
    ends = neighbours(tasks, gaps)
    cover = host_cover(gaps, host, strings, roles or load_roles())
    launch = launches(timeline, ends.next)

    layer = Layer(strings, timeline.slice_count)
    track = layer.track("Gaps", Kind.LANE, role=Role.DERIVED, order=60, description=GAPS)
    columns = _end_columns(tasks, ends)
    columns.append(text_column("endpoint_class", endpoint_classes(tasks, ends, strings)))
    columns += _known_columns(strings, host, cover.host, cover.ratio, launch)
    layer.add_slices(track, start, end - start, gap_names(end - start, strings), "npu.gap", columns)
    _counters(layer, tasks, busy, timeline.window, steps)
    return Annotation(layer, {"gaps": gaps, "gap_ends": ends, "busy": busy}, facts=facts)


def _taken(values: IntArray, rows: IntArray, absent: int) -> Any:
    return np.where(rows == NULL, values.dtype.type(absent), values[rows])


def _end_columns(tasks: Tasks, ends: Ends) -> list[Column]:
    columns = []
    for side, rows in (("prev", ends.prev), ("next", ends.next)):
        columns += [
            id_column(f"{side}_task", rows),
            text_column(f"{side}_name", _taken(tasks.name, rows, 0)),
            id_column(f"{side}_stream", _taken(tasks.stream_id, rows, NULL)),
            id_column(f"{side}_task_id", _taken(tasks.task_id, rows, NULL)),
            id_column(f"{side}_model_id", _taken(tasks.model_id, rows, NULL)),
        ]
    columns.append(id_column("next_wait_ns", _taken(tasks.wait_ns, ends.next, NULL)))
    return columns


def _known_columns(strings: StringPool, host: HostSlices, cover: Int64, ratio: Any, launch: Int64) -> list[Column]:
    covered: Bool = cover != NULL
    linked: Bool = launch != NULL
    recorded, inferred, by_id = (strings.add(t) for t in ("recorded", "inferred", "linked"))
    if not len(host):
        return [Column("evidence", "text", np.full(len(cover), recorded, np.int32))]
    return [
        text_column("host_event", _taken(host.name, cover, 0)),
        Column("host_cover_ratio", "float", ratio, covered),
        Column("launch_ts", "int", host.ts[launch], linked),
        text_column("launch_name", _taken(host.name, launch, 0)),
        # The strongest that is known of what stands around the gap; the gap itself follows from recorded intervals.
        Column("evidence", "text", np.where(linked, by_id, np.where(covered, inferred, recorded)).astype(np.int32)),
    ]


def _counters(layer: Layer, tasks: Tasks, busy: intervals.Spans, window: tuple[int, int], steps: Steps | None) -> None:
    fields = {"role": Role.DERIVED}
    streams = layer.track("Busy streams", Kind.COUNTER, order=80, unit="streams", description=BUSY_STREAMS, **fields)
    layer.add_samples(streams, *busy_streams(tasks, window))
    share = layer.track("Gap share", Kind.COUNTER, order=81, unit="%", description=GAP_SHARE, **fields)
    layer.add_samples(share, *gap_share(busy, window))
    if steps is not None and len(steps.ts):
        begin, end = intervals.clipped(steps.ts, steps.end, window)
        some = end > begin
        begin, dur = begin[some], (end - begin)[some]
        percent = _gap_percent(busy, begin, dur)
        per_step = layer.track(
            "Gap share per step", Kind.COUNTER, order=82, unit="%", description=GAP_SHARE_STEP, **fields
        )
        layer.add_samples(per_step, begin, percent)
