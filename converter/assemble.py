"""One set of slices from a capture's rows and its trace, and the sorted views that annotators read."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from converter import views
from converter.device_tracks import process_track
from converter.join import place_rows
from converter.places import TASK_TYPES, Place, text_of
from schemas.kernel_rows import KernelRows
from schemas.timeline import NULL, Timeline

if TYPE_CHECKING:
    from converter.readers.trace_json import TraceParts

CUDA_TASK_TYPES = ("kernel",)  # cat of Kineto; communication kernels are kernels there


def assemble(
    timeline: Timeline, rows: KernelRows | None, parts: TraceParts | None, *, compute_only: bool = False
) -> None:
    """Fills timeline.tasks, host and device. rows, parts: what the readers found; parts' slices are in the timeline.

    compute_only: the rows are of task_time, which lists every task of the device: only compute tasks are recorded
    tasks there (events and PROFILING_* would widen the window), all are slices.
    """
    process = process_track(timeline)
    if parts is not None and parts.pid is not None:
        timeline.tracks[process].pid = parts.pid
    places: list[Place] = []
    if rows is not None:
        places = place_rows(timeline, process, rows, parts)
        if compute_only:
            places = [p for p in (_compute_tasks(timeline, p) for p in places) if len(p.at)]
    elif parts is not None:
        places = _tasks_of_trace(timeline, parts)
    views.tasks(timeline, places)
    if parts is not None:
        timeline.host = views.host(parts)
        timeline.device = views.device(timeline, parts, places)
    if len(timeline.tasks):
        timeline.window = (int(timeline.tasks.ts[0]), int(timeline.tasks.end.max()))


def _compute_tasks(timeline: Timeline, place: Place) -> Place:
    """The place without what is no compute task, by its task_type."""
    kind = text_of(place.batch, "task_type")[place.at]
    ids = [i for i in (timeline.strings.find(t) for t in TASK_TYPES) if i != NULL]
    keep = np.isin(kind, ids) | place.communication
    return replace(place, **{f.name: getattr(place, f.name)[keep] for f in fields(place) if f.name != "batch"})


def _tasks_of_trace(timeline: Timeline, parts: TraceParts) -> list[Place]:
    places = []
    first = 0
    h = parts.hardware
    if h is not None:
        kind = text_of(h, "task_type")
        types = CUDA_TASK_TYPES if parts.is_kineto else TASK_TYPES
        ids = [i for i in (timeline.strings.find(t) for t in types) if i != NULL]
        at = np.flatnonzero(np.isin(kind, ids) if parts.recorded is None else parts.recorded)
        nulls = np.full(len(at), NULL, np.int64)
        places.append(
            Place(h, at, nulls, at + first, parts.device_id[at], parts.stream_id[at], np.zeros(len(at), np.bool_))
        )
        first += len(h)
    c = parts.communication
    if c is not None:
        at = np.arange(len(c))
        nulls = np.full(len(at), NULL, np.int64)
        places.append(Place(c, at, nulls, at + first, nulls, nulls, np.ones(len(at), np.bool_)))
    return [p for p in places if len(p.at)]
