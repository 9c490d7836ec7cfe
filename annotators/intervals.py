"""Sets of intervals over int64 ns: union, gaps, intersection, how many at a time. Columns only, O(n log n).

An interval is half open, [start, end). One of zero length covers nothing. A "busy set" is a pair (start, end) of
int64[k]: sorted, disjoint, no two touching, none empty; `merged` makes one, and everything else takes and gives them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from schemas.timeline import Bool, Int32, Int64

#: A busy set: starts and ends, int64[k].
Spans = tuple[Int64, Int64]


def _sorted_by_start(start: Int64, end: Int64) -> Spans:
    """The same intervals by start. Recorded tasks come sorted: the check costs a hundredth of a sort."""
    if len(start) < 2 or bool(np.all(start[1:] >= start[:-1])):
        return start, end
    order = np.argsort(start, kind="stable")
    return start[order], end[order]


def merged(start: Int64, end: Int64) -> Spans:
    """The busy set of any intervals (int64[n] ns, in any order): their union, as maximal disjoint intervals.

    Intervals that touch merge: there is no time between them.
    """
    some = end > start
    if not some.all():
        start, end = start[some], end[some]
    if not len(start):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    start, end = _sorted_by_start(np.asarray(start, np.int64), np.asarray(end, np.int64))
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), np.bool_)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    last = np.append(first[1:], True)
    return start[first], reach[last]


def length(spans: Spans) -> int:
    """ns that a busy set covers."""
    return int(np.sum(spans[1] - spans[0]))


def union_length(start: Int64, end: Int64) -> int:
    """ns covered by at least one of the intervals."""
    return length(merged(start, end))


def touches(start: Int64, end: Int64, window: tuple[int, int]) -> Bool:
    """bool[n]: the interval shares time with the window; one of zero length lies in it, edges included."""
    low, high = window
    return np.where(end > start, (end > low) & (start < high), (start >= low) & (start <= high))


def clipped(start: Int64, end: Int64, window: tuple[int, int]) -> Spans:
    """The intervals cut to the window, row by row. What lies outside becomes an interval of zero length at its edge."""
    low, high = window
    return np.clip(start, low, high), np.clip(end, low, high)


def gaps(busy: Spans, window: tuple[int, int]) -> Spans:
    """The maximal open intervals of the window that a busy set leaves uncovered."""
    low, high = window
    if high <= low:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    start, end = clipped(*busy, window)
    begin = np.concatenate(([np.int64(low)], end))
    stop = np.concatenate((start, [np.int64(high)]))
    some = stop > begin
    return begin[some], stop[some]


def covered_before(busy: Spans, at: Int64) -> Int64:
    """int64[m]: ns that the busy set covers before each time. Covered in [a, b) = before(b) - before(a)."""
    start, end = busy
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(end - start)))
    row = np.searchsorted(start, at, side="right")  # spans that began at or before
    inside = np.zeros(len(at), np.int64)
    some = row > 0
    inside[some] = np.minimum(at[some], end[row[some] - 1]) - end[row[some] - 1]
    return total[row] + inside


def covered_within(busy: Spans, start: Int64, end: Int64) -> Int64:
    """int64[m]: ns of each interval [start, end) that the busy set covers."""
    return covered_before(busy, end) - covered_before(busy, start)


def count_over_time(sets: Sequence[Spans]) -> tuple[Int64, Int32]:
    """How many of the busy sets cover each moment: (ts, count) at every change, from the first start on.

    ts int64[k] strictly increasing; count int32[k], the number from ts on. The last count is 0.
    """
    if not sets:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    ts, change = _changes(sets)
    count = np.cumsum(change, dtype=np.int32)
    last = np.append(ts[1:] != ts[:-1], True)[: len(ts)]  # of the changes at one time
    ts, count = ts[last], count[last]
    changed = np.diff(count, prepend=0) != 0
    return ts[changed], count[changed]


def _changes(sets: Sequence[Spans]) -> tuple[Int64, npt.NDArray[np.int8]]:
    """(ts, +1 or -1) of all starts and ends, by time. The sign rides in the lowest bit of one plain sort, which is
    several times faster than an argsort; times too far apart for that are sorted the slow way."""
    begins = sum(len(start) for start, _ in sets)
    key = np.concatenate([start for start, _ in sets] + [end for _, end in sets])
    if not len(key):
        return key, np.empty(0, np.int8)
    low, high = int(key.min()), int(key.max())
    if high - low >= 1 << 61:
        order = np.argsort(key, kind="stable")
        return key[order], np.where(order < begins, 1, -1).astype(np.int8)
    # In place: there may be tens of millions.
    key -= low
    key *= 2
    key[:begins] += 1
    key.sort()
    change = (key & 1).astype(np.int8) * 2 - 1
    key >>= 1
    key += low
    return key, change


def intersection(sets: Sequence[Spans]) -> Spans:
    """The busy set of the moments that every one of the busy sets covers."""
    ts, count = count_over_time(sets)
    full = np.flatnonzero(count == len(sets))
    if not len(full):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return ts[full], ts[full + 1]  # the last count is 0, so full + 1 exists


def difference(spans: Spans, minus: Spans) -> Spans:
    """The busy set of the moments in `spans` and not in `minus`."""
    if not len(spans[0]):
        return spans
    window = int(spans[0][0]), int(spans[1][-1])
    return intersection([spans, gaps(minus, window)])
