"""Flow points of a trace JSON to arrows between slices.

A start (ph s) and a finish (ph f) of equal category and id are one arrow; one start may have several finishes. Steps
(ph t) make a chain in time. A point belongs to the innermost slice of its own thread that covers it, ends included;
where one slice ends and the next one starts, to the one that starts. Ids are texts: they exceed 64 bits, and "7" is 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Raw

from converter.readers import arrow_arrays
from converter.readers.exact_time import MAX_NS
from converter.readers.json_text import raw_ids
from schemas.tally import Tally
from schemas.timeline import NULL, FlowBatch, Int32, Int64, Timeline

START, STEP, FINISH = 0, 1, 2
#: More arrows than this under one id aren't arrows: the id was used again and again. Pairs are then made in time order.
MAX_ARROWS_PER_ID = 1 << 20


@dataclass
class Slices:
    """All slices that an arrow may bind to. Arrays are [n]; number: the global slice number."""

    thread: Int32
    ts: Int64
    dur: Int64
    number: Int64


@dataclass
class FlowPoints:
    """The points of all chunks."""

    tally: Tally
    kind: list[npt.NDArray[np.int8]] = field(default_factory=list)
    thread: list[Int32] = field(default_factory=list)
    ts: list[Int64] = field(default_factory=list)
    category: list[Int32] = field(default_factory=list)
    id: list[pa.Array] = field(default_factory=list)

    def add(self, kind: int, thread: Int32, ts: Int64, category: Int32, ids: Sequence[Raw]) -> list[int]:
        """Adds points; the rows left out because their id is no text or integer."""
        texts, valid = raw_ids(ids)
        bad: list[int] = []
        if not valid.all():
            bad = np.flatnonzero(~valid).tolist()
            thread, ts, category = thread[valid], ts[valid], category[valid]
            texts = texts.filter(arrow_arrays.mask(valid))
        self.kind.append(np.full(len(ts), kind, np.int8))
        self.thread.append(thread)
        self.ts.append(ts)
        self.category.append(category)
        self.id.append(texts)
        return bad

    def resolve(self, timeline: Timeline, slices: Slices, base_ns: int) -> None:
        """Adds a FlowBatch per category to the timeline and counts what has no place."""
        if not self.ts:
            return
        kind, thread, category = np.concatenate(self.kind), np.concatenate(self.thread), np.concatenate(self.category)
        ts = np.concatenate(self.ts)
        beyond = ts > MAX_NS - base_ns
        ts = np.minimum(ts, MAX_NS - base_ns) + base_ns
        ids = pa.chunked_array(self.id).combine_chunks().dictionary_encode()
        code = arrow_arrays.values(ids.indices, np.int32).astype(np.int64)
        code += category.astype(np.int64) * max(len(ids.dictionary), 1)
        self.id.clear()
        out, into, lonely_starts, lonely_finishes = _pairs(kind, code, ts)
        bound = bind(thread, ts, slices)
        bound[beyond] = NULL
        self.tally.read += len(out) + len(lonely_starts) + len(lonely_finishes)
        self.tally.drop("no end", len(lonely_starts), _place(ts, lonely_starts))
        self.tally.drop("no start", len(lonely_finishes), _place(ts, lonely_finishes))
        no_out, no_in = bound[out] == NULL, bound[into] == NULL
        self.tally.drop("no slice at start", int(no_out.sum()), _place(ts, out[no_out]))
        self.tally.drop("no slice at end", int((no_in & ~no_out).sum()), _place(ts, into[no_in & ~no_out]))
        good = ~(no_out | no_in)
        out, into = out[good], into[good]
        for category_id in np.unique(category[out]).tolist():
            of = category[out] == category_id
            timeline.flows.append(FlowBatch(category_id, bound[out[of]], bound[into[of]], ts[out[of]]))


def _place(ts: Int64, points: Int64) -> str:
    return f"at {ts[points[0]]} ns" if len(points) else ""


def _pairs(kind: npt.NDArray[np.int8], code: Int64, ts: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Points by index: starts and ends of the arrows, starts without a finish, finishes without a start."""
    steps = np.unique(code[kind == STEP])
    chained = np.isin(code, steps) if len(steps) else np.zeros(len(code), np.bool_)
    order = np.argsort(code, kind="stable")
    order = order[~chained[order]]
    starts, finishes = order[kind[order] == START], order[kind[order] == FINISH]
    finish_code = code[finishes]
    first = np.searchsorted(finish_code, code[starts], "left")
    count = np.searchsorted(finish_code, code[starts], "right") - first
    lonely_starts = np.sort(starts[count == 0])
    start_code = code[starts]
    at = np.searchsorted(start_code, finish_code, "left")
    per_finish = np.searchsorted(start_code, finish_code, "right") - at
    lonely_finishes = np.sort(finishes[per_finish == 0])
    total_of_start = count * (
        np.searchsorted(start_code, start_code, "right") - np.searchsorted(start_code, start_code)
    )
    parts: list[tuple[Int64, Int64]] = []
    alone = [lonely_starts, lonely_finishes]
    chains = [np.flatnonzero(chained)] if len(steps) else []
    huge = total_of_start > MAX_ARROWS_PER_ID
    if huge.any():
        chains.append(np.flatnonzero(np.isin(code, np.unique(start_code[huge]))))
        starts, first, count = starts[~huge], first[~huge], count[~huge]
    for members in chains:
        members = members[np.lexsort((members, ts[members], code[members]))]
        same = code[members[:-1]] == code[members[1:]]
        linked = same & (kind[members[:-1]] != FINISH) & (kind[members[1:]] != START)
        parts.append((members[:-1][linked], members[1:][linked]))
        free = np.ones(len(members), np.bool_)
        free[:-1] &= ~linked
        free[1:] &= ~linked
        for which in (True, False):
            left = members[free & ((kind[members] == START) == which)]
            alone[0 if which else 1] = np.concatenate([alone[0 if which else 1], left])
    out = np.repeat(starts, count)
    run = np.arange(len(out)) - np.repeat(np.cumsum(count) - count, count)
    parts.append((out, finishes[np.repeat(first, count) + run]))
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), alone[0], alone[1]


def bind(thread: Int32, ts: Int64, slices: Slices) -> Int64:
    """int64[points]: the number of the innermost slice of the point's thread that covers it, or NULL."""
    bound = np.full(len(ts), NULL, np.int64)
    if not len(ts) or not len(slices.ts):
        return bound
    wanted = np.unique(thread)
    picked = np.flatnonzero(np.isin(slices.thread, wanted))
    picked = picked[np.argsort(_narrow(slices.thread[picked]), kind="stable")]
    threads = slices.thread[picked]
    point_order = np.argsort(_narrow(thread), kind="stable")
    edges = np.searchsorted(thread[point_order], wanted, "left"), np.searchsorted(thread[point_order], wanted, "right")
    bounds = np.searchsorted(threads, wanted, "left"), np.searchsorted(threads, wanted, "right")
    for first, last, low, high in zip(*(edge.tolist() for edge in (*edges, *bounds)), strict=True):
        if low == high:
            continue
        points, members = point_order[first:last], _by_start(picked[low:high], slices)
        at = _innermost(slices.ts[members], slices.dur[members], ts[points])
        bound[points] = np.where(at >= 0, slices.number[members[at]], NULL)
    return bound


def _narrow(thread: Int32) -> npt.NDArray[Any]:
    """Numbers of threads in 16 bits where they fit: numpy sorts those by radix."""
    return thread.astype(np.uint16) if len(thread) and int(thread.max()) < 1 << 16 else thread


def _by_start(members: Int64, slices: Slices) -> Int64:
    """Slices by start, longer first where it is equal, so that the innermost is the last one at or before a point.

    Exports are nearly sorted, and equal starts are few: only those are sorted by length.
    """
    ts = slices.ts[members]
    if (ts[1:] < ts[:-1]).any():
        order = np.argsort(ts, kind="stable")
        members, ts = members[order], ts[order]
    equal = np.flatnonzero(ts[1:] == ts[:-1])
    if len(equal):
        tied = np.unique(np.concatenate((equal, equal + 1)))
        of_tied = members[tied]
        members = members.copy()
        members[tied] = of_tied[np.lexsort((of_tied, -slices.dur[of_tied], slices.ts[of_tied]))]
    return members


def _innermost(start: Int64, dur: Int64, point: Int64) -> Int64:
    """int64[points]: the last slice that starts at or before the point and covers it, or -1. start is sorted."""
    end = start + dur
    at = np.searchsorted(start, point, "right") - 1
    missed = np.flatnonzero((at >= 0) & (end[at] < point))
    if not len(missed):
        return at
    # The slice before each that ends later: those in between end no later than it, so they can't cover the point.
    before = np.arange(-1, len(end) - 1)
    short = np.flatnonzero((before >= 0) & (end[before] <= end))
    while len(short):
        before[short] = before[before[short]]
        short = short[(before[short] >= 0) & (end[before[short]] <= end[short])]
    while len(missed):
        at[missed] = before[at[missed]]
        missed = missed[(at[missed] >= 0) & (end[at[missed]] < point[missed])]
    return at


def no_slices() -> Slices:
    """None."""
    empty: npt.NDArray[Any] = np.empty(0, np.int64)
    return Slices(np.empty(0, np.int32), empty, empty, empty)
