"""Sums and extents per group of intervals, as columns: what `np.bincount` is to counts."""

from __future__ import annotations

import numpy as np

from schemas.timeline import NULL, Int64


def extents(group: Int64, start: Int64, end: Int64, count: int) -> tuple[Int64, Int64]:
    """(first start, last end) of each group, int64[count] ns; NULL where a group is empty. group: int64[n]."""
    first = np.full(count, np.iinfo(np.int64).max, np.int64)
    last = np.full(count, np.iinfo(np.int64).min, np.int64)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    empty = last < first
    first[empty] = last[empty] = NULL
    return first, last


def union_lengths(group: Int64, start: Int64, end: Int64, count: int) -> Int64:
    """int64[count]: ns that each group's intervals cover, overlaps counted once."""
    out = np.zeros(count, np.int64)
    if not len(group):
        return out
    # Each group on a stretch of one axis of its own: then one running maximum of ends serves all of them.
    base = int(start.min())
    span = int(end.max()) - base + 1
    if count * span >= 2**62:  # stretches of whole ranks instead of ns
        times = np.unique(np.concatenate((start, end)))
        base, span, start, end = 0, len(times), np.searchsorted(times, start), np.searchsorted(times, end)
    else:
        times = None
    at = np.argsort(group * span + (start - base), kind="stable")
    group, start, end = group[at], start[at] - base, end[at] - base
    shift = group * span
    reach = np.maximum.accumulate(end + shift) - shift
    floor = np.append(0, np.where(group[1:] == group[:-1], reach[:-1], 0))
    begin = np.minimum(np.maximum(start, floor), end)
    np.add.at(out, group, times[end] - times[begin] if times is not None else end - begin)
    return out


def overlap_sums(start: Int64, end: Int64, from_ns: Int64, to_ns: Int64) -> Int64:
    """int64[m]: for each interval [from_ns, to_ns), the sum of what every one of the n intervals has in it (overlaps
    count twice). Differences of sums of times: exact modulo 2**64, whatever the sums do.
    """
    starts, ends = np.sort(start), np.sort(end)
    before_start = np.concatenate((np.zeros(1, np.int64), np.cumsum(starts)))
    before_end = np.concatenate((np.zeros(1, np.int64), np.cumsum(ends)))

    def until(at: Int64) -> Int64:
        begun, done = np.searchsorted(starts, at), np.searchsorted(ends, at)
        return np.asarray((begun * at - before_start[begun]) - (done * at - before_end[done]), np.int64)

    return until(to_ns) - until(from_ns)
