"""Who did the others wait for in each dispatch and combine? Only where the ranks' clocks are known to agree.

A dispatch or combine ends at one moment on all ranks of its expert group, to a few tens of us (public measurements on
910: median 3 us, at most 27). Groups are not named in the kernels, so the ends tell which ranks belong together; calls
pair by order, at the lag (a rank may have lost its first ones) where the ends agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from annotators.deepep import Peers
from schemas.dspark_tables import DeepEp
from schemas.timeline import NULL, Int64

_LAGS = 64  # how many calls a rank may have lost at its start


def find_peers(ranks: Sequence[tuple[int, DeepEp]], tolerance_ns: int) -> tuple[list[Peers], list[str]]:
    """For each (rank, its table, times on one clock): Peers, and one line for each rank that fits no group.

    waited_ns of a rank = how much later than it the last rank reached the call: start of the kernel (`in_kernel_wait`),
    or issue (`recv_hook`, where waiting begins at the hook). 0 for the last rank.
    """
    out = [Peers(*(np.full(len(d), NULL, np.int64) for _ in range(3))) for _, d in ranks]
    left = [i for i, (_, d) in enumerate(ranks) if len(d)]
    warnings: list[str] = []
    while left:
        leader = left.pop(0)
        group = {leader: 0}
        for other in list(left):
            lag = _lag(ranks[leader][1], ranks[other][1], tolerance_ns)
            if lag is not None:
                group[other] = lag
                left.remove(other)
        if len(group) == 1:
            if len(ranks) > 1:
                warnings.append(
                    f"rank {ranks[leader][0]}: its dispatches and combines end with those of no other rank within "
                    f"{tolerance_ns / 1000:g} us, so nothing is said about who waited for whom"
                )
            continue
        _fill(ranks, group, out)
    return out, warnings


def _lag(one: DeepEp, other: DeepEp, tolerance_ns: int) -> int | None:
    """The lag l at which call i of `one` is call i + l of `other`: ops equal, ends within the tolerance. None where no
    lag fits, or two do.
    """
    fitting = []
    for lag in range(-_LAGS, _LAGS + 1):
        first, last = max(0, -lag), min(len(one), len(other) - lag)
        if last - first < max(1, min(len(one), len(other)) // 2):
            continue
        mine, theirs = slice(first, last), slice(first + lag, last + lag)
        if (one.combine[mine] == other.combine[theirs]).all():
            apart = np.abs(one.done_ts[mine] - other.done_ts[theirs])
            if int(np.median(apart)) <= tolerance_ns:
                fitting.append(lag)
    return fitting[0] if len(fitting) == 1 else None


def _fill(ranks: Sequence[tuple[int, DeepEp]], group: dict[int, int], out: list[Peers]) -> None:
    """group: position in ranks -> lag against the leader."""
    first = max(0, *(-lag for lag in group.values()))
    count = min(len(ranks[i][1]) - lag for i, lag in group.items()) - first
    members = list(group)
    arrival = np.empty((len(members), count), np.int64)
    begin = np.empty((len(members), count), np.int64)
    for row, i in enumerate(members):
        own = slice(first + group[i], first + group[i] + count)
        d = ranks[i][1]
        begin[row] = d.hook_ts[own]  # from here on the rank waits
        arrival[row] = np.where(d.recv_hook[own], d.issue_ts[own], d.hook_ts[own])
    last: Int64 = np.argmax(arrival, axis=0)
    numbers = np.array([ranks[i][0] for i in members], np.int64)
    for row, i in enumerate(members):
        own = slice(first + group[i], first + group[i] + count)
        out[i].group_index[own] = np.arange(count)
        out[i].last_rank[own] = numbers[last]
        waited = np.maximum(arrival.max(axis=0) - begin[row], 0)
        out[i].waited_ns[own] = np.where(last == row, 0, waited)
