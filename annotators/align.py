"""Which clock is each rank on? One constant offset per rank, with what it is based on and how well it fits.

Order of preference (design.md, Cross-rank alignment): `manual` (the user's word), `same_host`, `collective` (the ends
of matched anchors), `none`. Trace time = recorded time + offset_ns; durations are never scaled. Drift is reported, not
applied: where it spoils the residual the answer is a shorter window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from annotators.anchors import UNRELATED_NS, Pairs, RankAnchors, find_anchors, match
from schemas.errors import UsageError
from schemas.roles import Roles, load_roles
from schemas.timeline import Clock, Int64, Timeline

SAME_HOST_NS = 1_000_000  # four real captures of one host agree within 3.1 us
MIN_ANCHORS = 3  # with fewer the residual says nothing about the error
MIN_FOR_DRIFT = 5  # a line fits three points by itself
EXPECTED_DRIFT = 20e-6
CLEAR_DRIFT = 3  # a drift is fitted where the expected one would exceed this many residuals
THEIL_SEN_POINTS = 300
AGREE = 4  # groups agree where all together scatter at most this many times the tightest one alone


@dataclass
class HostFacts:
    """What a rank's side files say about its host; None where they don't.

    host_uid: hostUid; epoch_minus_monotonic_ns: collectionTimeEnd - MonotonicTimeEnd; counter_minus_monotonic_ns:
    start_cnt * 1000 / freq - start_monotonic. A host's name (`localhost`) is no evidence and isn't here.
    """

    host_uid: str | None = None
    epoch_minus_monotonic_ns: int | None = None
    counter_minus_monotonic_ns: int | None = None


@dataclass
class _Edge:
    """How one rank's clock relates to another's. offset_ns: what is added to the second to fit the first."""

    method: str
    offset_ns: int
    drift_ppm: float | None = None
    residual_median_ns: int | None = None
    residual_max_ns: int | None = None
    anchor_count: int = 0


def same_host(one: HostFacts, other: HostFacts) -> bool:
    """Equal hostUid, or both relations of profiler_info agree within 1 ms."""
    if one.host_uid and other.host_uid:
        return one.host_uid == other.host_uid
    pairs = (
        (one.epoch_minus_monotonic_ns, other.epoch_minus_monotonic_ns),
        (one.counter_minus_monotonic_ns, other.counter_minus_monotonic_ns),
    )
    return all(a is not None and b is not None and abs(a - b) <= SAME_HOST_NS for a, b in pairs)


def align(
    timelines: Sequence[Timeline],
    *,
    reference_rank: int | None = None,
    assume_aligned: bool = False,
    host_facts: Mapping[int, HostFacts] | None = None,
    roles: Roles | None = None,
    window: tuple[int, int] | None = None,
) -> list[Clock]:
    """A clock per timeline, in their order; the timelines are as recorded and stay so.

    reference_rank: the rank that the others are moved to, else the lowest; host_facts: by rank; roles: tells MoE
    kernels by name, the built-in table where None; window: ns in trace time (--window): only anchors in it count, because drift
    over the rest of a long profile says nothing about it, and those nearest around it where it holds too few. A rank that shares no anchors with the reference is aligned
    through one that does (a chain of groups); its residuals are then the sums along the way.
    Raises UsageError where the reference rank isn't among the timelines.
    """
    roles = roles or load_roles()
    ranks = [timeline.rank for timeline in timelines]
    if reference_rank is not None and reference_rank not in ranks:
        known = ", ".join(str(rank) for rank in sorted(ranks))
        raise UsageError(f"--reference-rank {reference_rank}: no such rank here; the ranks are {known}")
    if len(timelines) < 2:
        return [Clock(method="reference") for _ in timelines]
    reference = ranks.index(min(ranks) if reference_rank is None else reference_rank)
    facts = [(host_facts or {}).get(rank, HostFacts()) for rank in ranks]

    def clocks_by(anchors: Sequence[RankAnchors]) -> list[Clock]:
        def edge(a: int, b: int) -> _Edge | None:
            known = "manual" if assume_aligned else "same_host" if same_host(facts[a], facts[b]) else None
            return _edge(anchors[a], anchors[b], known)

        clocks = {reference: Clock(method="reference")}
        _spread(clocks, range(len(timelines)), reference, edge)
        return [clocks.get(position, Clock()) for position in range(len(timelines))]

    clocks = clocks_by([find_anchors(timeline, roles) for timeline in timelines])
    if window is None:
        return clocks
    # The window is on the common clock, the anchors are not yet: the first pass says where it lies on each rank. A
    # window that holds too few of them is widened until it aligns every rank that the whole input aligns.
    start, end = window
    lowest, highest = _extent(timelines, clocks)
    while start > lowest or end < highest:
        recorded = [(start - clock.offset_ns, end - clock.offset_ns) for clock in clocks]
        found = clocks_by([find_anchors(t, roles, w) for t, w in zip(timelines, recorded, strict=True)])
        if all(f.method != "none" for f, c in zip(found, clocks, strict=True) if c.method != "none"):
            return found
        around = end - start
        start, end = start - around, end + around
    return clocks


def _extent(timelines: Sequence[Timeline], clocks: Sequence[Clock]) -> tuple[int, int]:
    """From the first start to the last end of any task, in trace time; (0, 0) where there is none."""
    some = [(t.tasks, c.offset_ns) for t, c in zip(timelines, clocks, strict=True) if len(t.tasks)]
    lowest = min((int(tasks.ts[0]) + offset for tasks, offset in some), default=0)
    return lowest, max((int(tasks.end.max()) + offset for tasks, offset in some), default=0)


def _spread(
    clocks: dict[int, Clock], positions: Sequence[int], reference: int, edge: Callable[[int, int], _Edge | None]
) -> None:
    """Aligns every rank to the reference where it can be, the rest through ranks that are aligned, best ones first."""
    tried: set[int] = set()
    while len(clocks) < len(positions):
        open_ones = [p for p in clocks if p not in tried]
        if not open_ones:
            return
        via = min(open_ones, key=lambda p: (p != reference, clocks[p].residual_max_ns or 0, p))
        tried.add(via)
        for position in positions:
            if position not in clocks and (found := edge(via, position)) is not None:
                clocks[position] = _through(clocks[via], found)


def _through(via: Clock, edge: _Edge) -> Clock:
    """The clock of a rank that is tied to `via` by an edge."""
    if via.method == "reference":
        return Clock(
            edge.method,
            edge.offset_ns,
            edge.drift_ppm,
            edge.residual_median_ns,
            edge.residual_max_ns,
            edge.anchor_count,
        )
    drifts = [d for d in (via.drift_ppm, edge.drift_ppm) if d is not None]
    return Clock(
        edge.method if edge.method == via.method else "collective",
        via.offset_ns + edge.offset_ns,
        sum(drifts) if drifts else None,
        _sum(via.residual_median_ns, edge.residual_median_ns),
        _sum(via.residual_max_ns, edge.residual_max_ns),
        edge.anchor_count,
    )


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


def _edge(here: RankAnchors, there: RankAnchors, known: str | None) -> _Edge | None:
    """known: `manual` or `same_host`, whose offset is 0; the anchors then only measure."""
    pairs = match(here, there, None if known is None else 0)
    if known is not None:
        return _measured(known, 0, pairs) if len(pairs) else _Edge(known, 0)
    if len(pairs) < MIN_ANCHORS:
        return None
    difference = pairs.here - pairs.there
    fitted = _fitted_rows(pairs, difference)
    if _scatter(pairs.here[fitted], difference[fitted]) >= UNRELATED_NS:
        return None
    return _measured("collective", middle(difference[fitted]), pairs, fitted)


def _fitted_rows(pairs: Pairs, difference: Int64) -> Int64:
    """Rows that the offset is fitted on: all, or the tightest group where groups contradict each other.

    Two groups may bear one name (the names are counted per process), and then their ends have nothing in common. The
    rows that are set aside still count in the residuals.
    """
    every = np.arange(len(pairs), dtype=np.int64)
    groups = [rows for g in np.unique(pairs.group) if len(rows := np.flatnonzero(pairs.group == g)) >= MIN_ANCHORS]
    if not groups:
        return every
    scatter = [_scatter(pairs.here[rows], difference[rows]) for rows in groups]
    best = int(np.argmin(scatter))
    together = _scatter(pairs.here, difference)
    return every if together <= AGREE * max(scatter[best], 1000.0) else groups[best]


def middle(values: Int64) -> int:
    """The median of int64[n > 0], exact, rounded half to even."""
    ordered = np.sort(values)
    low, high = int(ordered[(len(values) - 1) // 2]), int(ordered[len(values) // 2])
    half, odd = divmod(low + high, 2)
    return half + (half & 1) if odd else half


def theil_sen(at: Int64, difference: Int64) -> float:
    """The median slope of `difference` over `at` (both ns, int64[n]) among all pairs of at most 300 points."""
    if len(at) > THEIL_SEN_POINTS:
        some = np.linspace(0, len(at) - 1, THEIL_SEN_POINTS).astype(np.int64)
        order = np.argsort(at, kind="stable")[some]
        at, difference = at[order], difference[order]
    i, j = np.triu_indices(len(at), 1)
    run, rise = at[j] - at[i], difference[j] - difference[i]
    some = run != 0
    return float(np.median(rise[some] / run[some])) if some.any() else 0.0


def _line(at: Int64, difference: Int64) -> tuple[float, float]:
    """(slope, median distance from the line through the median with it, ns)."""
    slope = theil_sen(at, difference)
    relative = (difference - difference[0]).astype(np.float64) - slope * (at - at[0]).astype(np.float64)
    return slope, float(np.median(np.abs(relative - np.median(relative))))


def _scatter(at: Int64, difference: Int64) -> float:
    return _line(at, difference)[1]


def _measured(method: str, offset_ns: int, pairs: Pairs, fitted: Int64 | None = None) -> _Edge:
    """The edge with its residuals over all pairs, outliers included, and the drift where it can be told.

    Drift is positive where the second clock runs faster than the first. The condition takes the scatter about the
    fitted line, not about the constant offset: drift itself is no reason to hide it.
    """
    difference = pairs.here - pairs.there
    distance = np.abs(difference - offset_ns)
    rows = np.arange(len(pairs)) if fitted is None else fitted
    drift = None
    if len(rows) >= MIN_FOR_DRIFT:
        at = pairs.there[rows]
        slope, scatter = _line(at, difference[rows])
        if int(at.max() - at.min()) * EXPECTED_DRIFT > CLEAR_DRIFT * scatter:
            drift = -slope * 1e6
    return _Edge(method, offset_ns, drift, middle(distance), int(distance.max()), len(pairs))
