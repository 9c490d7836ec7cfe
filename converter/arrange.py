"""The order of recorded tracks, for people: what works comes first, what only counts comes last.

The UI sorts the children of a process by name; inside a custom group the given order counts. So the groups of
counters go under one group, their tracks are sorted as people count (acc_id 2 before 10), and streams that only hold
events or notifies stand below those with recorded tasks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from converter.device_tracks import SYNTHETIC_PID, process_track
from schemas.timeline import Kind, Role, Timeline

COUNTERS = "System counters"
BELOW = 1 << 24  # added to the order of streams without recorded tasks


def arrange(timeline: Timeline) -> None:
    """Sets parents and orders of the recorded tracks of a rank."""
    _group_counters(timeline)
    busy = set(np.unique(timeline.tasks.track).tolist())
    for i, track in enumerate(timeline.tracks):
        if track.role is Role.STREAM and i not in busy and track.order is not None:
            track.order += BELOW
            track.description = (
                track.description or "No recorded task: events, notifies, copies or profiler marks only."
            )


def _group_counters(timeline: Timeline) -> None:
    process = process_track(timeline)
    children: dict[int, list[int]] = defaultdict(list)
    for i, track in enumerate(timeline.tracks):
        children[track.parent].append(i)
    groups = [
        i
        for i in children[process]
        if timeline.tracks[i].kind is Kind.GROUP
        and children[i]
        and all(timeline.tracks[c].kind is Kind.COUNTER for c in children[i])
    ]
    if not groups:
        return
    above = timeline.track(
        COUNTERS, Kind.GROUP, parent=process, explicit_order=True, description="Counters as the profiler exported them."
    )
    for place, group in enumerate(sorted(groups, key=lambda i: _as_counted(timeline.tracks[i].name))):
        timeline.tracks[group].parent = above
        timeline.tracks[group].order = place
        timeline.tracks[group].explicit_order = True
        for order, child in enumerate(sorted(children[group], key=lambda i: _as_counted(timeline.tracks[i].name))):
            timeline.tracks[child].order = order


def _as_counted(name: str) -> list[tuple[int, str]]:
    """`acc_id 2` before `acc_id 10`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]{1,18})", name)]


def tell_processes_apart(timelines: Sequence[Timeline]) -> list[int]:
    """A pid per rank: the real one where it is known and unique; ranks of several containers may share one, and then
    all but the first get a synthetic one: two processes of one pid would be one process in the trace."""
    taken: set[int] = set()
    out = [timeline.tracks[process_track(timeline)].pid for timeline in timelines]
    waiting = []
    for i, pid in enumerate(out):
        if pid >= SYNTHETIC_PID or pid in taken:
            waiting.append(i)
        else:
            taken.add(pid)
    for i in waiting:
        pid = timelines[i].rank + 1  # shown in the UI: a small number reads better
        while pid in taken:
            pid += len(timelines)
        taken.add(pid)
        out[i] = pid
    return out


def set_pid(timeline: Timeline, pid: int) -> None:
    """Gives the rank's process this pid."""
    if timeline.tracks[process_track(timeline)].pid != pid:
        for track in timeline.tracks:
            if track.kind in (Kind.PROCESS, Kind.THREAD):
                track.pid = pid
