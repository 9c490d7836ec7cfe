"""What was the host doing during a gap? (design.md, Definitions: Host cover)

Over the host slices that overlap the gap and end no later than it does (what still runs when the next task starts did
not hold it back), wrappers left out: the one with the largest self time inside the gap, its own time without its
children on the same thread. Being there at the same time is not being the cause: evidence `inferred`, always.

Each host slice ends in at most one gap, so it is a candidate for at most one, and only the children that end in the
same gap matter. That makes the whole question a few sorts over the host slices that end in gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from annotators.intervals import Spans
from schemas.roles import Roles
from schemas.timeline import NULL, Bool, Host, HostSlices, Int64, StringPool


@dataclass
class HostCover:
    """Per gap. host: int64[k] row of HostSlices, NULL where no slice qualifies; ratio: float64[k], the fraction of the
    gap that this slice covers as a whole, 0 where there is none; self_ns: int64[k], its own time inside the gap."""

    host: Int64
    ratio: npt.NDArray[np.float64]
    self_ns: Int64


def host_cover(gaps: Spans, host: HostSlices, strings: StringPool, roles: Roles) -> HostCover:
    """The host slice with the largest self time inside each gap.

    gaps: sorted and disjoint, int64[k] ns. Ties: the shorter slice, then the earlier, then the first in the input.
    A child of a slice is a slice of the same thread whose innermost container, of those that end in the gap, it is
    (where slices overlap without nesting, as some do, that is a choice). Wrappers and Python frames are neither
    candidates nor children: with stacks on, the answer is the same as without.
    """
    start, end = gaps
    count = len(start)
    out = HostCover(np.full(count, NULL, np.int64), np.zeros(count), np.zeros(count, np.int64))
    if not count or not len(host):
        return out
    rows, gap = _ending_in_gaps(start, end, host, _wrapped(host, strings, roles))
    if not len(rows):
        return out
    # By gap and thread, then as the stack grows: start, longer first, input order.
    order = np.lexsort((host.slice[rows], -host.dur[rows], host.ts[rows], host.track[rows], gap))
    rows, gap = rows[order], gap[order]
    begin, stop, track = host.ts[rows], host.end[rows], host.track[rows]
    inside = stop - np.maximum(begin, start[gap])
    group = np.append(True, (gap[1:] != gap[:-1]) | (track[1:] != track[:-1]))
    parent = innermost_container(stop, np.flatnonzero(group)[np.cumsum(group) - 1])
    own = inside - _children(parent, np.maximum(begin, start[gap]), stop)
    best = np.lexsort((host.slice[rows], begin, host.dur[rows], -own, gap))
    best = best[np.append(True, gap[best][1:] != gap[best][:-1])]
    out.host[gap[best]] = rows[best]
    out.self_ns[gap[best]] = own[best]
    out.ratio[gap[best]] = inside[best] / (end - start)[gap[best]]
    return out


def _wrapped(host: HostSlices, strings: StringPool, roles: Roles) -> Bool:
    """bool[n]: host slices that the question leaves out. Each distinct name is tested once."""
    used = np.flatnonzero(np.bincount(host.name, minlength=len(strings)))
    wraps = np.zeros(len(strings), np.bool_)
    wraps[used] = roles.is_wrapper([strings[i] for i in used.tolist()])
    left_out: Bool = wraps[host.name] | (host.source == Host.PYTHON)
    return left_out


def _ending_in_gaps(start: Int64, end: Int64, host: HostSlices, left_out: Bool) -> tuple[Int64, Int64]:
    """Rows that end in a gap, (start, end], after some time in it; and the gap of each."""
    rows = np.flatnonzero(~left_out & (host.dur > 0))
    stop = host.end[rows]
    gap = np.searchsorted(end, stop, side="left")  # the first gap that ends no earlier
    some = gap < len(end)
    some[some] = start[gap[some]] < stop[some]
    return rows[some], gap[some]


def innermost_container(stop: Int64, group_start: Int64) -> Int64:
    """int64[n]: the nearest row before, in the same group, that ends no earlier; NULL where there is none.

    Rows are sorted by group, start, longer first, so that this row contains the row. group_start: the first row of
    each row's group. Jumps over rows that are already known to end earlier, so rounds grow with the logarithm of the
    number of siblings.
    """
    parent = np.arange(len(stop), dtype=np.int64) - 1
    active = np.flatnonzero(parent >= group_start)
    while len(active):
        earlier = parent[active]
        active = active[stop[earlier] < stop[active]]
        parent[active] = parent[parent[active]]
        active = active[parent[active] >= group_start[active]]
    return np.where(parent >= group_start, parent, NULL)


def _children(parent: Int64, begin: Int64, stop: Int64) -> Int64:
    """int64[n]: ns that the union of each row's children covers. Children may overlap where they do not nest."""
    child = np.flatnonzero(parent != NULL)
    if not len(child):
        return np.zeros(len(parent), np.int64)
    child = child[np.lexsort((begin[child], parent[child]))]
    of, begin, stop = parent[child], begin[child], stop[child]
    # A running maximum of the ends that starts anew with each parent: on (parent, rank of the end) pairs.
    ends = np.unique(stop)
    rank = np.searchsorted(ends, stop) + of * len(ends)
    reach = ends[np.maximum.accumulate(rank) - of * len(ends)]
    floor = np.append(begin[0], reach[:-1])
    fresh = np.append(True, of[1:] != of[:-1])
    added = stop - np.maximum(begin, np.where(fresh, begin, floor))
    return np.bincount(of, np.maximum(added, 0), len(parent)).astype(np.int64)
