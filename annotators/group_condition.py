"""May ranks be compared at all? The conditions of every figure that spans ranks (design.md, Cross-rank alignment)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from annotators.times import task_window
from schemas.timeline import Clock, Timeline

COMMON_SHARE = 0.9  # of the shortest window


def _span(ns: int) -> str:
    return f"{ns} ns" if ns < 1000 else f"{ns / 1000:.1f} us"


def _window(timeline: Timeline, clock: Clock) -> tuple[int, int] | None:
    """The rank's window in trace time."""
    window = timeline.window or task_window(timeline.tasks.ts, timeline.tasks.dur)
    return None if window is None else (window[0] + clock.offset_ns, window[1] + clock.offset_ns)


def group_condition(
    timelines: Sequence[Timeline],
    clocks: Sequence[Clock],
    tolerance_ns: int,
    declared_ranks: Collection[int] | None = None,
) -> str | None:
    """Why figures that span ranks are refused (it names the rank and the condition), or None where they may be made.

    timelines: as recorded (before the offsets are added), with their clocks; tolerance_ns: --clock-tolerance;
    declared_ranks: the ranks that belong together by profiler_metadata, or None where nothing is declared.
    """
    ranks = [timeline.rank for timeline in timelines]
    if declared_ranks is not None and (missing := sorted(set(declared_ranks) - set(ranks))):
        shown = ", ".join(str(rank) for rank in missing[:8]) + (", ..." if len(missing) > 8 else "")
        return f"rank {shown} is declared in profiler_metadata.json and not among the inputs"
    for rank, clock in zip(ranks, clocks, strict=True):
        if clock.method == "none":
            return f"rank {rank} is not aligned (no shared collectives that tell its clock, no proof of one host)"
        if clock.residual_max_ns is not None and clock.residual_max_ns > tolerance_ns:
            drift = f", drift {clock.drift_ppm:+.1f} ppm: try a shorter --window" if clock.drift_ppm is not None else ""
            return (
                f"rank {rank} is aligned to {_span(clock.residual_max_ns)} at worst, more than the tolerance of "
                f"{_span(tolerance_ns)} ({clock.method}, {clock.anchor_count} anchors{drift})"
            )
    windows = [_window(timeline, clock) for timeline, clock in zip(timelines, clocks, strict=True)]
    found = []
    for rank, window in zip(ranks, windows, strict=True):
        if window is None:
            return f"rank {rank} has no recorded task"
        found.append(window)
    if not found:
        return "there is no rank"
    common = min(end for _, end in found) - max(start for start, _ in found)
    for rank, clock in zip(ranks, clocks, strict=True):
        # One constant moves a rank, so drift is left in the figures: half of it shows in the residuals of either end.
        moved_ns = abs(clock.drift_ppm or 0.0) * 1e-6 * max(common, 0)
        if moved_ns > tolerance_ns:
            return (
                f"rank {rank} drifts by {clock.drift_ppm:+.1f} ppm, {moved_ns / 1000:.1f} us over the common window of "
                f"{common / 1e9:.3f} s, more than the tolerance of {_span(tolerance_ns)}: try a shorter --window"
            )
    shortest = min(end - start for start, end in found)
    if common < COMMON_SHARE * shortest or common <= 0:
        late = ranks[max(range(len(found)), key=lambda i: found[i][0])]
        early = ranks[min(range(len(found)), key=lambda i: found[i][1])]
        return (
            f"the windows share {max(common, 0) / 1e6:.3f} ms, less than 90 % of the shortest ({shortest / 1e6:.3f} ms): "
            f"rank {late} starts last, rank {early} ends first"
        )
    return None


def group_warnings(
    timelines: Sequence[Timeline], clocks: Sequence[Clock], declared_ranks: Collection[int] | None = None
) -> list[str]:
    """What is to be said where the figures are made all the same: conditions that count as met without a measurement."""
    if len(timelines) < 2:
        return []
    warnings = []
    for timeline, clock in zip(timelines, clocks, strict=True):
        if clock.method in ("manual", "same_host") and clock.residual_max_ns is None:
            why = "as told by --assume-aligned" if clock.method == "manual" else "it is on the reference's host"
            warnings.append(f"rank {timeline.rank}: taken as aligned ({why}); no shared collective measures how well")
    if declared_ranks is None:
        ranks = ", ".join(str(timeline.rank) for timeline in timelines)
        warnings.append(f"no input declares the whole set of ranks; ranks {ranks} are taken as all of them")
    return warnings
