"""Small Timelines by hand: recorded tasks and host slices from plain rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from schemas.timeline import NULL, Host, HostSlices, Int64, Kind, Role, StringPool, Tasks, Timeline


def ints(rows: Sequence[dict[str, Any]], key: str, default: int = NULL) -> Int64:
    return np.array([row.get(key, default) for row in rows], np.int64)


def texts(rows: Sequence[dict[str, Any]], key: str, pool: StringPool) -> Any:
    return pool.add_all([row.get(key, "") for row in rows])


def tasks_of(rows: Sequence[dict[str, Any]], pool: StringPool) -> Tasks:
    """Rows in file order, dicts with ts, dur and any of the columns; sorted as every reader sorts them."""
    ts, dur = ints(rows, "ts", 0), ints(rows, "dur", 0)
    order = np.lexsort((np.arange(len(rows)), -dur, ts))
    named = [rows[i] for i in order]
    return Tasks(
        ts=ts[order],
        dur=dur[order],
        name=texts(named, "name", pool),
        track=ints(named, "track", 0).astype(np.int32),
        slice=order.astype(np.int64),
        **{k: ints(named, k) for k in ("device_id", "stream_id", "task_id", "model_id")},
        **{k: texts(named, k, pool) for k in ("op_type", "op_state", "accelerator_core", "input_shapes")},
        wait_ns=ints(named, "wait_ns"),
        connection_id=ints(named, "connection_id"),
        communication=np.array([row.get("communication", False) for row in named], np.bool_),
    )


def host_of(rows: Sequence[dict[str, Any]], pool: StringPool) -> HostSlices:
    """Rows in input order: ts, dur, name, track, source, connection_id."""
    ts, dur, track = ints(rows, "ts", 0), ints(rows, "dur", 0), ints(rows, "track", 0)
    order = np.lexsort((np.arange(len(rows)), -dur, ts, track))
    named = [rows[i] for i in order]
    return HostSlices(
        ts=ts[order],
        dur=dur[order],
        name=texts(named, "name", pool),
        track=track[order].astype(np.int32),
        slice=order.astype(np.int64),
        source=ints(named, "source", Host.FRAMEWORK).astype(np.int8),
        connection_id=ints(named, "connection_id"),
        correlation_id=ints(named, "correlation_id"),
    )


def timeline_of(
    tasks: Sequence[dict[str, Any]],
    host: Sequence[dict[str, Any]] = (),
    window: tuple[int, int] | None = None,
    rank: int = 0,
) -> Timeline:
    """A rank. Each `track` number of a task is a stream of its own."""
    timeline = Timeline(rank, f"rank{rank}")
    for stream in range(1 + max((row.get("track", 0) for row in tasks), default=0)):
        timeline.track(f"Stream {stream}", Kind.LANE, role=Role.STREAM, device=0, stream=stream)
    timeline.tasks = tasks_of(tasks, timeline.strings)
    timeline.host = host_of(host, timeline.strings)
    timeline.window = window
    if window is None and tasks:
        timeline.window = int(timeline.tasks.ts.min()), int(timeline.tasks.end.max())
    return timeline
