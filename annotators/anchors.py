"""Anchors: moments that two ranks share, told from the tasks alone. Which end on one rank is which end on the other?

Two kinds (design.md, Cross-rank alignment):

* Collectives pair by full name (`hcom_allReduce__868_0_1`: op, last digits of the group's hash, running index) inside
  one group. A name that comes more than once (a graph replays its collectives under the names of the capture) pairs by
  order.
* MoE dispatch and combine kernels have no index and no group: they pair by order.

Order needs a lag, because a rank may have lost its first ones. It is the lag with the smallest residual, and there is
none where two lags fit: a regular sequence fits everywhere.

Only *ends* are anchors: a collective starts when its rank is ready and ends when all are (public measurements: ends of
one MoE dispatch agree to a few us, starts differ by milliseconds). So ops that a rank may leave before its peers are
no anchors: point-to-point, and those with a root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from schemas.roles import Roles, load_roles
from schemas.timeline import Int32, Int64, Role, Timeline

#: Ends within this of each other fit in any case: it is the noise of the ends themselves.
NOISE_NS = 1000
#: A lag is taken if no other one has a residual below this many times its own.
CLEARLY = 3
#: What pairs at this residual or above has nothing to do with each other.
UNRELATED_NS = 1_000_000
MIN_IN_ORDER = 4  # with fewer there is no second lag to compare with
MAX_LOST = 512  # kernels that a rank may have lost more than its peer, beyond the difference of their counts
SAMPLE = 1024  # pairs looked at per lag
MAX_DRIFT = 200e-6  # of one clock against another: real ones drift by tens of ppm

_COLLECTIVE = re.compile(r"hcom_([A-Za-z]+)_*_(\d+)_")
_LEAVES_EARLY = {"send", "receive", "recv", "batchsendrecv", "broadcast", "scatter", "gather", "reduce"}
_EXPERT_ROLES = ("dispatch", "combine", "fused_exchange")


@dataclass
class InOrder:
    """Kernels that pair by order: names[n] and ends int64[n], by end."""

    names: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


@dataclass
class RankAnchors:
    """named: group -> full name -> ends (int, in order); experts: the MoE kernels of the rank."""

    named: dict[str, dict[str, list[int]]]
    experts: InOrder


@dataclass
class Pairs:
    """Matched anchors of two ranks: ends on both, int64[n], and the group of each (index, int64[n])."""

    here: Int64
    there: Int64
    group: Int64

    def __len__(self) -> int:
        return len(self.here)


def find_anchors(timeline: Timeline, roles: Roles | None = None, window: tuple[int, int] | None = None) -> RankAnchors:
    """The anchors of a rank, those that end inside the window; all of them where it holds fewer than three.

    roles: tells MoE kernels (dispatch, combine, fused_exchange), the built-in table where None; window: ns as the rank
    recorded them, else timeline.window.
    """
    window, tasks, strings = window or timeline.window, timeline.tasks, timeline.strings
    rows, groups = anchor_rows(timeline, roles)
    end = tasks.end[rows]
    if window is not None:
        inside = (end >= window[0]) & (end <= window[1])
        if np.count_nonzero(inside) >= 3:
            rows, end = rows[inside], end[inside]
    rows = rows[np.argsort(end, kind="stable")]
    anchors = RankAnchors({}, InOrder())
    ends, names, tracks = tasks.end[rows].tolist(), tasks.name[rows].tolist(), tasks.track[rows].tolist()
    for at, text_id, track in zip(ends, names, tracks, strict=True):
        name = strings[text_id]
        if text_id in groups:
            group = groups[text_id] + _group_name(timeline, track)
            anchors.named.setdefault(group, {}).setdefault(name, []).append(at)
        else:
            anchors.experts.names.append(name)
            anchors.experts.ends.append(at)
    return anchors


def anchor_rows(timeline: Timeline, roles: Roles | None = None) -> tuple[Int64, dict[int, str]]:
    """(rows of the tasks that may be anchors, digits of the group by the text id of a collective's name)."""
    tasks, strings, roles = timeline.tasks, timeline.strings, roles or load_roles()
    groups: dict[int, str] = {}
    collective, exchange = np.zeros((2, len(strings)), np.bool_)  # by text id: distinct names are few
    for text_id in _distinct(tasks.name):
        named = _COLLECTIVE.match(strings[text_id])
        collective[text_id] = named is not None
        if named and named[1].lower() not in _LEAVES_EARLY:
            groups[text_id] = named[2]
    for text_id in _distinct(tasks.name) + _distinct(tasks.op_type):
        exchange[text_id] = any(roles.fits(role, strings[text_id]) for role in _EXPERT_ROLES)
    expert = (exchange[tasks.name] | exchange[tasks.op_type]) & ~collective[tasks.name]
    # A helper kernel of a collective may carry its name; the collective's own row is marked.
    anchor = np.zeros(len(strings), np.bool_)
    anchor[list(groups)] = True
    return np.flatnonzero(expert | (anchor[tasks.name] & tasks.communication)), groups


def _distinct(text_ids: Int32) -> list[int]:
    return [int(i) for i in np.flatnonzero(np.bincount(text_ids))]


def _group_name(timeline: Timeline, track: int) -> str:
    """What the trace adds to the digits in the name: the group's own name, unless it is only a running number."""
    if not 0 <= track < len(timeline.tracks) or timeline.tracks[track].role is not Role.COMMUNICATION:
        return ""
    own = re.fullmatch(r"Group (.+?)( Communication)?", timeline.tracks[track].name)
    return f" {own[1]}" if own and not own[1].isdecimal() else ""


def match(here: RankAnchors, there: RankAnchors, offset_ns: int | None = None) -> Pairs:
    """The anchors that two ranks share.

    offset_ns: what `there` must be moved by to fit `here` where that is known (one host), else None: then the named
    collectives tell it for the kernels that pair by order.
    """
    found: list[tuple[list[int], list[int]]] = []
    by_order: list[tuple[InOrder, InOrder]] = []
    for group, names in here.named.items():
        others = there.named.get(group) or _same_digits(group, there)
        once: tuple[list[int], list[int]] = ([], [])
        often = (InOrder(), InOrder())
        for name, ends in names.items():
            other = others.get(name, [])
            if len(ends) == len(other) == 1:
                once[0].append(ends[0])
                once[1].append(other[0])
            elif other:
                for sequence, values in zip(often, (ends, other), strict=True):
                    sequence.names += [name] * len(values)
                    sequence.ends += values
        if once[0]:
            found.append(once)
        if often[0].ends:
            by_order.append((_sorted(often[0]), _sorted(often[1])))
    if here.experts.ends and there.experts.ends:
        by_order.append((here.experts, there.experts))
    if offset_ns is None and found:
        offset_ns = _offset_hint([np.subtract(a, b) for a, b in found])
    for pair in by_order:
        matched = match_by_order(*pair, offset_ns=offset_ns)
        if matched is not None:
            found.append((matched[0].tolist(), matched[1].tolist()))
    groups = np.repeat(np.arange(len(found), dtype=np.int64), [len(a) for a, _ in found])
    return Pairs(
        np.array([t for a, _ in found for t in a], np.int64),
        np.array([t for _, b in found for t in b], np.int64),
        groups,
    )


def _same_digits(group: str, there: RankAnchors) -> dict[str, list[int]]:
    """The group of the other rank where only one side names it: a CSV has nothing but the digits."""
    digits, _, name = group.partition(" ")
    for other, names in there.named.items():
        if other.partition(" ")[0] == digits and (not name or " " not in other):
            return names
    return {}


def _sorted(sequence: InOrder) -> InOrder:
    order = np.argsort(np.array(sequence.ends, np.int64), kind="stable").tolist()
    return InOrder([sequence.names[i] for i in order], [sequence.ends[i] for i in order])


def _offset_hint(groups: list[Int64]) -> int | None:
    """The offset that the tightest group of named collectives tells, or None where none has three anchors."""
    best: tuple[float, int] | None = None
    for difference in groups:
        if len(difference) >= 3:
            middle = int(np.median(difference - difference[0])) + int(difference[0])
            spread = float(np.median(np.abs(difference - middle)))
            if spread < UNRELATED_NS and (best is None or spread < best[0]):
                best = spread, middle
    return best[1] if best else None


def match_by_order(here: InOrder, there: InOrder, offset_ns: int | None = None) -> tuple[Int64, Int64] | None:
    """(ends here, ends there) of the kernels of one order at the lag with the smallest residual, or None.

    None: too few, no lag at which the names agree, none that fits, or two that fit.
    offset_ns: the offset that is known, else the residual is taken about the best one (a line, for drift).
    """
    ids: dict[str, int] = {}
    names_a, names_b = (np.array([ids.setdefault(n, len(ids)) for n in s.names], np.int64) for s in (here, there))
    a, b = np.array(here.ends, np.int64), np.array(there.ends, np.int64)
    shortest = min(len(a), len(b))
    least = max(3, shortest // 2)
    if shortest < MIN_IN_ORDER:
        return None
    first = -min(len(a) - least, MAX_LOST + max(0, len(a) - len(b)))
    last = min(len(b) - least, MAX_LOST + max(0, len(b) - len(a)))
    fits: list[tuple[float, int]] = []
    for lag in range(first, last + 1):
        rows = _overlap(len(a), len(b), lag)
        if len(rows) < least:
            continue
        step = max(1, len(rows) // SAMPLE)
        # Every `step`-th row, but with a stride that no period of the sequence divides for long.
        rows = rows[:: step if step % 2 else step + 1] if step > 1 else rows
        same = names_a[rows] == names_b[rows + lag]
        if np.count_nonzero(same) < max(3, 0.95 * len(rows)):
            continue
        rows = rows[same]
        fits.append((_residual(a[rows], a[rows] - b[rows + lag], offset_ns), lag))
    fits.sort()
    if not fits or fits[0][0] >= UNRELATED_NS:
        return None
    if len(fits) > 1 and fits[1][0] < CLEARLY * max(fits[0][0], NOISE_NS):
        return None
    lag = fits[0][1]
    rows = _overlap(len(a), len(b), lag)
    rows = rows[names_a[rows] == names_b[rows + lag]]
    return a[rows], b[rows + lag]


def _overlap(n: int, m: int, lag: int) -> Int64:
    """Rows i of the first sequence for which i + lag is a row of the second."""
    return np.arange(max(0, -lag), min(n, m - lag), dtype=np.int64)


def _residual(at: Int64, difference: Int64, offset_ns: int | None) -> float:
    """Upper quartile of the distances from the offset, or from a resistant line (through the outer thirds' medians).

    The quartile tells a wrong lag better than the median does: steps of one batch size repeat to a few us, but not all.
    """
    if offset_ns is not None:
        return float(np.percentile(np.abs(difference - offset_ns), 75))
    relative = (difference - difference[0]).astype(np.float64)
    time = (at - at[0]).astype(np.float64)
    third = max(1, len(at) // 3)
    run = float(np.median(time[-third:]) - np.median(time[:third]))
    slope = float(np.median(relative[-third:]) - np.median(relative[:third])) / run if run > 0 else 0.0
    # A steeper line would let a wrong lag fit a sequence that speeds up or slows down.
    relative -= min(max(slope, -MAX_DRIFT), MAX_DRIFT) * time
    return float(np.percentile(np.abs(relative - np.median(relative)), 75))
