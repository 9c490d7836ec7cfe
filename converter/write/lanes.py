"""Lanes: which slices nest on one Perfetto track, and in which order their begin and end events stand in the file.

Perfetto's track is a stack: an end closes the innermost open slice. Slices that overlap without nesting are corrupted
in silence (reference/perfetto.md, 0.1), so they are spread over lanes of the same name: each slice goes to the first
lane in which it nests, in the order start, then longer first, then file order. Within a lane the events stand in
depth-first order, which settles every tie of equal timestamps (0.2). A lane nests at most MAX_DEPTH deep: the engine
stops at 512.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.timeline import Bool, Int32, Int64

MAX_DEPTH = 500
FEW_SLICES = 256  # a cluster up to here is placed by scanning its lanes


@dataclass
class Layout:
    """Slices in the order in which their begin events stand in the file: by track, then lane, then depth first.

    order: int64[n], index of the slice; track, lane: int32[n]; depth: int32[n], 0 = outermost;
    descendants: int64[n], how many slices lie inside it on its lane. All but `order` are in file order.
    """

    order: Int64
    track: Int32
    lane: Int32
    depth: Int32
    descendants: Int64

    @property
    def leaf(self) -> Bool:
        out: Bool = self.descendants == 0
        return out


def sort_slices(track: Int32, ts: Int64, dur: Int64) -> Int64:
    """The order track, start, longer first, given order. int64[n]. Cheap where the input is sorted already."""
    n = len(ts)
    if n == 0:
        return np.empty(0, np.int64)
    # A stable sort by a small integer is a radix sort in numpy.
    small = track.astype(np.int16) if track.max() < 2**15 else track
    order = np.argsort(small, kind="stable")
    t, s, d = track[order], ts[order], dur[order]
    same = t[1:] == t[:-1]
    later = (s[1:] > s[:-1]) | ((s[1:] == s[:-1]) & (d[1:] <= d[:-1]))
    wrong = same & ~later
    if wrong.any():
        starts = np.flatnonzero(np.concatenate(([True], ~same)))
        bounds = np.append(starts, n)
        for i in np.unique(np.searchsorted(starts, np.flatnonzero(wrong), side="right") - 1).tolist():
            rows = order[bounds[i] : bounds[i + 1]]
            order[bounds[i] : bounds[i + 1]] = rows[np.lexsort((-dur[rows], ts[rows]))]
    return order


def lay_out(track: Int32, ts: Int64, dur: Int64) -> Layout:
    """Spreads slices over lanes. track: int32[n]; ts, dur: int64[n] ns, dur >= 0. O(n log n)."""
    n = len(ts)
    order = sort_slices(track, ts, dur)
    t, s = track[order], ts[order]
    e = s + dur[order]
    lane = np.zeros(n, np.int32)
    depth = np.zeros(n, np.int32)
    inside = np.zeros(n, np.int64)
    overlap = (t[1:] == t[:-1]) & (s[1:] < e[:-1])
    if overlap.any():
        for a, b in _overlapping_tracks(t, overlap):
            depth[a:b], inside[a:b], odd = _nest_all(s[a:b], e[a:b])
            for first, last in _clusters(s[a:b], e[a:b], odd):
                _nest(s, e, a + first, a + last, lane, depth, inside)
        if lane.any():
            by_lane = np.lexsort((np.arange(n), lane, t))
            order, t, lane, depth, inside = order[by_lane], t[by_lane], lane[by_lane], depth[by_lane], inside[by_lane]
    return Layout(order, t, lane, depth, inside)


def _overlapping_tracks(t: Int32, overlap: Bool) -> list[tuple[int, int]]:
    """[first, last) of every track on which neighbours overlap; on all others slices just follow each other."""
    starts = np.flatnonzero(np.concatenate(([True], t[1:] != t[:-1])))
    bounds = np.append(starts, len(t))
    which = np.unique(np.searchsorted(starts, np.flatnonzero(overlap), side="right") - 1)
    return [(int(bounds[i]), int(bounds[i + 1])) for i in which]


def _nest_all(s: Int64, e: Int64) -> tuple[Int32, Int64, Bool]:
    """(depth, slices inside, whether it ends after the slice around it or lies too deep), as if all nested on one lane.

    The first that does not nest is found whatever comes behind it, so a cluster without one is placed rightly.
    """
    n = len(s)
    at = np.arange(n)
    follow = np.maximum(np.searchsorted(s, e), at + 1)  # the first slice that starts when this one has ended
    depth = at - np.cumsum(np.bincount(follow, minlength=n)[:n])
    odd = depth >= MAX_DEPTH
    inner = np.flatnonzero(depth)
    by_depth = np.argsort(depth.astype(np.int16) if depth.max() < 2**15 else depth, kind="stable")
    # The slice around another is the last one before it that is one level less deep.
    around = np.searchsorted(depth[by_depth] * n + by_depth, (depth[inner] - 1) * n + inner) - 1
    odd[inner] |= e[inner] > e[by_depth[around]]
    return depth.astype(np.int32), follow - at - 1, odd


def _clusters(s: Int64, e: Int64, odd: Bool) -> list[tuple[int, int]]:
    """[first, last) of every maximal run of slices that hang together by overlap and that holds an odd one."""
    if not odd.any():
        return []
    reach = np.maximum.accumulate(e)
    starts = np.flatnonzero(np.concatenate(([True], s[1:] >= reach[:-1])))
    bounds = np.append(starts, len(s))
    which = np.unique(np.searchsorted(starts, np.flatnonzero(odd), side="right") - 1)
    return [(int(bounds[i]), int(bounds[i + 1])) for i in which]


def _nest(s: Int64, e: Int64, first: int, last: int, lane: Int32, depth: Int32, inside: Int64) -> None:
    """Places one cluster that does not nest on one lane. All lanes are empty at its start, so they are its own."""
    starts, ends = s[first:last].tolist(), e[first:last].tolist()
    if last - first <= FEW_SLICES:
        lane[first:last], depth[first:last], inside[first:last] = _nest_few(starts, ends)
        return
    stacks: list[list[tuple[int, int, int]]] = []  # per lane: (end, index, slices on the lane when it was pushed)
    counts: list[int] = []
    lanes, depths, insides = [0] * len(starts), [0] * len(starts), [0] * len(starts)
    search = _FirstLane()
    for i, start in enumerate(starts):
        end = ends[i]
        for k in search.ended(start):
            stack, count = stacks[k], counts[k]
            while stack and stack[-1][0] <= start:
                _, j, pushed = stack.pop()
                insides[j] = count - pushed - 1
            search.set(k, _room(stack), stack[-1][0] if stack else None)
        k = search.find(end)
        if k == len(stacks):
            stacks.append([])
            counts.append(0)
        stack = stacks[k]
        lanes[i], depths[i] = k, len(stack)
        stack.append((end, i, counts[k]))
        counts[k] += 1
        search.set(k, _room(stack), end)
    for stack, count in zip(stacks, counts, strict=True):
        for _, j, pushed in stack:
            insides[j] = count - pushed - 1
    lane[first:last], depth[first:last], inside[first:last] = lanes, depths, insides


def _nest_few(starts: list[int], ends: list[int]) -> tuple[list[int], list[int], list[int]]:
    """(lanes, depths, slices inside each) of a small cluster, lane by lane: what nests on none opens a new one."""
    n = len(starts)
    lanes, depths, insides = [0] * n, [0] * n, [0] * n
    stacks: list[list[int]] = []
    seen = [0] * n  # slices on the lane before this one
    counts: list[int] = []
    for i, start in enumerate(starts):
        end = ends[i]
        for k, stack in enumerate(stacks):
            while stack and ends[stack[-1]] <= start:
                j = stack.pop()
                insides[j] = counts[k] - seen[j] - 1
            if not stack or (ends[stack[-1]] >= end and len(stack) < MAX_DEPTH):
                break
        else:
            k, stack = len(stacks), []
            stacks.append(stack)
            counts.append(0)
        lanes[i], depths[i], seen[i] = k, len(stack), counts[k]
        stack.append(i)
        counts[k] += 1
    for stack, count in zip(stacks, counts, strict=True):
        for j in stack:
            insides[j] = count - seen[j] - 1
    return lanes, depths, insides


_INFINITE = 1 << 63


def _room(stack: list[tuple[int, int, int]]) -> int:
    """The latest end that still nests on the lane: that of its innermost slice, if it may nest deeper at all."""
    if not stack:
        return _INFINITE
    return stack[-1][0] if len(stack) < MAX_DEPTH else -_INFINITE


class _FirstLane:
    """The first lane with room for a given end. A plain scan for the usual few lanes, a tree of maxima beyond:
    a hostile staircase of n overlapping slices needs n lanes, and must not cost n * n."""

    FEW = 32

    def __init__(self) -> None:
        self.room: list[int] = []
        self.heap: list[tuple[int, int]] = []  # (end of a lane's innermost slice, lane): who must be looked at next
        self.size = 0
        self.tree: list[int] = []

    def ended(self, start: int) -> list[int]:
        """The lanes whose innermost slice ends at or before start."""
        out: list[int] = []
        while self.heap and self.heap[0][0] <= start:
            k = heapq.heappop(self.heap)[1]
            if not out or out[-1] != k:
                out.append(k)
        return out

    def set(self, k: int, room: int, top_end: int | None) -> None:
        if top_end is not None:
            heapq.heappush(self.heap, (top_end, k))
        if k == len(self.room):
            self.room.append(room)
            if len(self.room) > max(self.FEW, self.size):
                self._build()
        else:
            self.room[k] = room
        if self.size:
            at = self.size + k
            self.tree[at] = room
            at >>= 1
            while at:
                self.tree[at] = max(self.tree[2 * at], self.tree[2 * at + 1])
                at >>= 1

    def find(self, end: int) -> int:
        """The lane, or the number of lanes where none has room."""
        if not self.size:
            for k, room in enumerate(self.room):
                if room >= end:
                    return k
            return len(self.room)
        if self.tree[1] < end:
            return len(self.room)
        at = 1
        while at < self.size:
            at *= 2
            if self.tree[at] < end:
                at += 1
        return at - self.size

    def _build(self) -> None:
        self.size = 1 << (len(self.room) * 2 - 1).bit_length()
        self.tree = [-_INFINITE] * (2 * self.size)
        self.tree[self.size : self.size + len(self.room)] = self.room
        for at in range(self.size - 1, 0, -1):
            self.tree[at] = max(self.tree[2 * at], self.tree[2 * at + 1])


WHOLE, OPEN, CLOSE = 0, 1, 2  # a leaf's begin and end together; a begin; an end


@dataclass
class Items:
    """What stands in the file, in order. what: int8[m] of WHOLE, OPEN, CLOSE; slice: int64[m], global slice index."""

    what: npt.NDArray[np.int8]
    slice: Int64


def file_order(layout: Layout) -> Items:
    """Depth-first order of begins and ends, vectorised: where a begin stands is its rank, plus the ends before it."""
    n = len(layout.order)
    inner = ~layout.leaf
    before: Int64 = np.cumsum(inner) - inner  # slices with children among those that begin earlier
    place = np.arange(n) + before - layout.depth  # all of these have ended, except the open ancestors
    total = n + int(inner.sum())
    what = np.full(total, CLOSE, np.int8)
    which = np.empty(total, np.int64)
    what[place] = np.where(inner, OPEN, WHOLE)
    which[place] = layout.order
    parents = np.flatnonzero(inner)
    follow = parents + 1 + layout.descendants[parents]  # the first slice after the subtree
    next_place = np.append(place, total)[follow]
    next_depth = np.append(layout.depth, 0)[follow]
    which[next_place - 1 - (layout.depth[parents] - next_depth)] = layout.order[parents]
    return Items(what, which)
