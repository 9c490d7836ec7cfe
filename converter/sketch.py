"""What the others must know of a rank: a Timeline with hardly anything in it, which stands for the whole one.

It holds the tracks and the tasks that anchors come from (before alignment), or the merged busy intervals (after it),
so that what compares ranks works on it as on a whole Timeline, and 64 ranks need not be in memory at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from annotators import intervals
from annotators.align import HostFacts
from annotators.anchors import anchor_rows
from annotators.launch_check import launch_check
from converter.rank import Rank
from converter.shelf import Held
from schemas.roles import Roles
from schemas.timeline import NO_TEXT, Int64, Tasks, Timeline, empty_tasks

_TEXTS = ("name", "op_type", "op_state", "accelerator_core", "input_shapes")


@dataclass
class Sketch:
    """A rank as it was read. timeline: the light one; first, last: the earliest and the latest time in it; launch: `launch_check`'s."""

    timeline: Timeline
    held: Held
    host: HostFacts
    declared_ranks: Any
    first: int
    last: int
    launch: tuple[int, int, int]


def first_time(timeline: Timeline) -> int:
    """The earliest time of anything recorded; 0 in an empty Timeline."""
    firsts = [int(b.ts.min()) for b in timeline.slices if len(b)]
    firsts += [int(c.ts.min()) for c in timeline.counters if len(c)]
    return min(firsts, default=0)


def last_time(timeline: Timeline) -> int:
    """The latest time of anything recorded; 0 in an empty Timeline."""
    lasts = [int((b.ts + b.dur).max()) for b in timeline.slices if len(b)]
    lasts += [int(c.ts.max()) for c in timeline.counters if len(c)]
    return max(lasts, default=0)


def sketch(rank: Rank, held: Held, roles: Roles | None) -> Sketch:
    """roles: where ranks are to be compared, so that anchors are needed; None for one rank alone."""
    timeline = rank.timeline
    light = _bare(timeline)
    if roles is not None:
        rows, _ = anchor_rows(timeline, roles)
        light.tasks = _rows(timeline, light, rows)
    first = timeline.window[0] if timeline.window else first_time(timeline)
    last = timeline.window[1] if timeline.window else last_time(timeline)
    return Sketch(light, held, rank.side.host, rank.side.declared_ranks, first, last, launch_check(timeline))


def busy_only(timeline: Timeline) -> Timeline:
    """Tally, warnings, clock, window, and of the tasks their merged intervals: enough for figures over ranks."""
    light = _bare(timeline)
    light.tally, light.warnings, light.damage = timeline.tally, timeline.warnings, timeline.damage
    light.clock = timeline.clock
    start, end = intervals.merged(timeline.tasks.ts, timeline.tasks.end)
    light.tasks = empty_tasks()
    light.tasks.ts, light.tasks.dur = start, end - start
    return light


def _bare(timeline: Timeline) -> Timeline:
    light = Timeline(timeline.rank, timeline.source)
    light.tracks = list(timeline.tracks)
    light.window = timeline.window
    return light


def _rows(timeline: Timeline, light: Timeline, rows: Int64) -> Tasks:
    tasks = timeline.tasks
    columns = {f.name: getattr(tasks, f.name)[rows] for f in fields(tasks)}
    for name in _TEXTS:
        if name in ("name", "op_type"):
            distinct, inverse = np.unique(columns[name], return_inverse=True)
            ids = light.strings.add_all([timeline.strings[i] for i in distinct.tolist()])
            columns[name] = ids[inverse].astype(np.int32) if len(ids) else columns[name]
        else:
            columns[name] = np.full(len(rows), NO_TEXT, np.int32)
    return Tasks(**columns)
