"""The four kinds of time of a rank (design.md, Definitions), side by side because they answer different questions.

wall: how long the window is. duration_sum: how much recorded work was added up, overlap counted twice. duration_wait_sum:
the same with recorded waits, which overlap other tasks' work and each other. busy_union: how long at least one task
was recorded. gap = wall - busy_union is time without a recorded task: not idle hardware, not recoverable time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from annotators import intervals
from schemas.timeline import Int64, IntArray, Timeline

#: Stands under every table of gaps. One line, under 80 columns.
NOT_RECOVERABLE = "A gap is time without a recorded task: not idle hardware, not recoverable time."

#: With what a gain computed by `idealised_throughput_gain` has to be shown.
IDEALISATION = (
    "arithmetic under an idealisation (fixed work, this share of the elapsed time removed entirely, the rest and the "
    "output unchanged), not a forecast and not an upper bound"
)

INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class RankTimes:
    """A row of `npu_rank_times` without its rank. ns, exact. gap_ratio is None where the window has no length,
    duration_wait_sum_ns where no task of the window has a recorded wait (a recorded wait of 0 is one)."""

    window_ts: int
    wall_ns: int
    duration_sum_ns: int
    duration_wait_sum_ns: int | None
    busy_union_ns: int
    gap_ns: int
    gap_ratio: float | None
    kernel_count: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def as_facts(self) -> dict[str, Any]:
        """The same for a trace: absent are a ratio without a window and a sum that no int64 holds."""
        return {k: v for k, v in asdict(self).items() if v is not None and v <= INT64_MAX}


def exact_sum(values: IntArray) -> int:
    """The sum as a Python int, also where it exceeds int64 (a broken duration may be near 2**63)."""
    values = np.asarray(values, np.int64)
    return (int(np.sum(values >> 32)) << 32) + int(np.sum(values & 0xFFFFFFFF))


def task_window(ts: Int64, dur: Int64) -> tuple[int, int] | None:
    """First start to last end, or None without tasks."""
    return (int(ts.min()), int((ts + dur).max())) if len(ts) else None


def rank_times(
    ts: Int64, dur: Int64, wait_ns: IntArray | None = None, window: tuple[int, int] | None = None
) -> RankTimes:
    """The times of bare tasks: ts, dur int64[n] ns in any order; wait_ns [n] with NULL (-1) where none was recorded.

    window: [start, end) ns, else first start to last end. Intervals are clipped to it. A wait is a figure without a
    place on the time line: it counts whole where its task shares time with the window.
    """
    window = window or task_window(ts, dur) or (0, 0)
    end = ts + dur
    inside = intervals.touches(ts, end, window)
    start, stop = intervals.clipped(ts, end, window)
    wall = max(0, window[1] - window[0])
    busy = intervals.union_length(start, stop)
    duration_sum = exact_sum(stop - start)
    waits = np.empty(0, np.int64) if wait_ns is None else wait_ns[inside & (wait_ns >= 0)]
    return RankTimes(
        window_ts=window[0],
        wall_ns=wall,
        duration_sum_ns=duration_sum,
        duration_wait_sum_ns=duration_sum + exact_sum(waits) if len(waits) else None,
        busy_union_ns=busy,
        gap_ns=wall - busy,
        gap_ratio=(wall - busy) / wall if wall else None,
        kernel_count=int(np.count_nonzero(inside)),
    )


def npu_rank_times(timeline: Timeline) -> RankTimes:
    """The times of a rank's recorded tasks in its window."""
    tasks = timeline.tasks
    return rank_times(tasks.ts, tasks.dur, tasks.wait_ns, timeline.window)


def idealised_throughput_gain(removed_share: float) -> float:
    """How much more would be done per time if this share of the elapsed time of fixed work were removed entirely.

    0.19 -> 0.2346. Show it with the words of IDEALISATION only: no gap says which share can be removed.
    Raises ValueError outside [0, 1).
    """
    if not 0 <= removed_share < 1:
        raise ValueError(f"a share of elapsed time to remove is in [0, 1), not {removed_share}")
    return 1 / (1 - removed_share) - 1


def idealisation(removed_share: float) -> str:
    """The gain in words that do not let it pass for a forecast."""
    gain = idealised_throughput_gain(removed_share)
    return f"{removed_share:.2%} less time would be {gain:.2%} more throughput: {IDEALISATION}"
