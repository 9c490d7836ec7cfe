"""Group gaps: when did no rank have a recorded task at all?

The intersection of the gaps of all ranks inside the intersection of their windows. It needs one clock for all ranks;
whether there is one is decided elsewhere, and told here as `reason`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from annotators import intervals
from annotators.annotation import Annotation
from schemas.timeline import Column, Kind, Layer, Role, StringPool, Timeline

DESCRIPTION = (
    "Time in which no rank has a recorded task, on the aligned clocks, inside the window that all ranks share. "
    "evidence: `recorded` where the ranks' clocks are one by their captures (same host), `inferred` where an offset was "
    "fitted to collectives or taken from --assume-aligned. "
    "It says that nothing was recorded anywhere at once. It does not say that this time can be removed, and no group "
    "gap does not mean that nothing is waiting: neither is a critical path."
)


def common_window(windows: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The intersection of [start, end) windows; (a, a) where they share no time."""
    start = max(w[0] for w in windows)
    return start, max(start, min(w[1] for w in windows))


def group_gaps(busy: Sequence[intervals.Spans], windows: Sequence[tuple[int, int]]) -> intervals.Spans:
    """The moments of the common window that no rank's busy set covers, ns on the common clock."""
    if not busy:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    window = common_window(windows)
    return intervals.intersection([intervals.gaps(rank, window) for rank in busy])


def annotate(timelines: Sequence[Timeline], reason: str | None = None) -> Annotation:
    """A track `Group gaps` for the root `All ranks`, with a StringPool of its own.

    timelines: every rank of the group, clocks already applied. `evidence` of the slices: `recorded` where no clock was
    fitted or assumed, else `inferred`. reason: why the figures are refused (which rank, which
    condition), or None where design.md's conditions hold. Tables: `group_gaps` (start, end int64[k]), `group_window`.
    """
    if len(timelines) < 2:
        return Annotation(skipped="one rank: a group gap needs at least two")
    if reason is not None:
        return Annotation(refused=[f"group gaps: {reason}"])
    idle = [t.rank for t in timelines if t.window is None]
    if idle:
        return Annotation(refused=[f"group gaps: rank {idle[0]} has no recorded task"])
    windows = [t.window for t in timelines if t.window is not None]
    start, end = group_gaps([intervals.merged(t.tasks.ts, t.tasks.end) for t in timelines], windows)
    layer = Layer(StringPool())
    track = layer.track("Group gaps", Kind.LANE, role=Role.DERIVED, order=10, description=DESCRIPTION)
    count = np.full(len(start), len(timelines), np.int64)
    one_clock = all(t.clock.method in ("reference", "same_host") for t in timelines)
    evidence = np.full(len(start), layer.strings.add("recorded" if one_clock else "inferred"), np.int32)
    columns = [Column("rank_count", "int", count), Column("evidence", "text", evidence)]
    layer.add_slices(track, start, end - start, "group gap", "npu.group_gap", columns)
    window = common_window(windows)
    facts = {
        "group_gaps": {
            "window_ts": window[0],
            "wall_ns": window[1] - window[0],
            "gap_ns": intervals.length((start, end)),
            "gap_count": len(start),
            "rank_count": len(timelines),
        }
    }
    return Annotation(layer, {"group_gaps": (start, end), "group_window": window}, facts=facts)
