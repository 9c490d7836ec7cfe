"""The sorted views of a Timeline that annotators read: recorded tasks, host slices, other device slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from converter.places import Place, number_of, task_order, text_of
from schemas.timeline import NULL, Column, DeviceSlices, HostSlices, Tasks, Timeline, empty_host

if TYPE_CHECKING:
    from converter.readers.trace_json import TraceParts


def tasks(timeline: Timeline, places: list[Place]) -> None:
    """Sorts the recorded tasks, gives each slice its `task` argument and its category."""
    category = timeline.strings.add("npu.task")
    if not places:
        return

    def joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def whole(p: Place) -> bool:
        return len(p.at) == len(p.batch)

    def of(p: Place, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if whole(p) else values[p.at]

    ts, dur = joined([of(p, p.batch.ts) for p in places]), joined([of(p, p.batch.dur) for p in places])
    file_order = joined([p.order for p in places])
    by = task_order(ts, dur) if len(places) == 1 else np.lexsort((file_order, -dur, ts))

    def view(pick: Any) -> npt.NDArray[Any]:
        values = joined([pick(p) for p in places])
        return values if by is None else values[by]

    timeline.tasks = Tasks(
        ts=ts if by is None else ts[by],
        dur=dur if by is None else dur[by],
        name=view(lambda p: of(p, p.batch.name)),
        track=view(lambda p: of(p, p.batch.track)),
        slice=view(lambda p: p.batch.first + p.at),
        device_id=view(lambda p: p.device_id),
        stream_id=view(lambda p: p.stream_id),
        task_id=view(lambda p: of(p, number_of(p.batch, "task_id"))),
        model_id=view(lambda p: of(p, number_of(p.batch, "model_id"))),
        op_type=view(lambda p: of(p, text_of(p.batch, "op_type"))),
        op_state=view(lambda p: of(p, text_of(p.batch, "op_state"))),
        accelerator_core=view(lambda p: of(p, text_of(p.batch, "accelerator_core"))),
        wait_ns=view(lambda p: of(p, number_of(p.batch, "wait_ns"))),
        connection_id=view(lambda p: of(p, number_of(p.batch, "connection_id"))),
        input_shapes=view(lambda p: of(p, text_of(p.batch, "input_shapes"))),
        communication=view(lambda p: p.communication),
    )
    n = len(ts)
    small = np.int32 if n < 1 << 31 else np.int64
    index: npt.NDArray[Any] = np.arange(n, dtype=small)
    if by is not None:
        rank = np.empty(n, small)
        rank[by] = index
        index = rank
    first = 0
    for p in places:
        mine = index[first : first + len(p.at)]
        first += len(p.at)
        task = next((c for c in p.batch.columns if c.key == "task"), None)
        if whole(p):
            p.batch.columns.insert(0, Column("task", "int", mine))
            p.batch.category = category
            continue
        if task is None:
            task = Column("task", "int", np.full(len(p.batch), NULL, small), np.zeros(len(p.batch), np.bool_))
            p.batch.columns.insert(0, task)
        assert task.valid is not None
        task.values[p.at], task.valid[p.at] = mine, True
        if not isinstance(p.batch.category, np.ndarray):
            p.batch.category = np.full(len(p.batch), p.batch.category, np.int32)
        p.batch.category[p.at] = category


def host(parts: TraceParts) -> HostSlices:
    if not parts.host:
        return empty_host()

    def joined(pick: Any, dtype: Any = np.int64) -> npt.NDArray[Any]:
        return np.concatenate([pick(h) for h in parts.host]).astype(dtype, copy=False)

    ts, dur = joined(lambda h: h.batch.ts), joined(lambda h: h.batch.dur)
    track = joined(lambda h: h.batch.track, np.int32)
    slices = joined(lambda h: h.batch.first + np.arange(len(h.batch)))
    source = joined(lambda h: np.full(len(h.batch), h.source, np.int8), np.int8)
    connection, correlation = joined(lambda h: h.connection_id), joined(lambda h: h.correlation_id)
    by = np.lexsort((slices, -dur, ts, track))
    name = joined(lambda h: h.batch.name, np.int32)
    return HostSlices(
        ts[by], dur[by], name[by], track[by], slices[by], source[by], connection[by], correlation[by]
    )  # fmt: skip


def device(timeline: Timeline, parts: TraceParts, places: list[Place]) -> DeviceSlices:
    h = parts.hardware
    if h is None:
        return timeline.device
    task = np.zeros(len(h), np.bool_)
    for p in places:
        if p.batch is h:
            task[p.at] = True
    at = np.flatnonzero(~task)
    by = at[np.lexsort((at, -h.dur[at], h.ts[at]))]
    return DeviceSlices(
        ts=h.ts[by], dur=h.dur[by], name=h.name[by], track=h.track[by], slice=h.first + by,
        stream_id=parts.stream_id[by], task_type=text_of(h, "task_type")[by], model_id=number_of(h, "model_id")[by],
        connection_id=number_of(h, "connection_id")[by],
    )  # fmt: skip
