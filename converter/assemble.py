"""One set of slices from a capture's rows and its trace, and the sorted views that annotators read.

kernel_details rows and the trace's hardware slices tell of the same tasks: they become one slice with the arguments
of both (design.md, The trace). The join is name + exact start for kernels, name + start within 1 ns for communication
ops (the CSV truncates, the trace rounds); where the two differ by a nanosecond the CSV wins, so that the trace and
`npu-perfetto gaps` give the same figures. Rows of either side without a partner are kept and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from schemas.kernel_rows import KernelRows
from schemas.timeline import (
    NO_TEXT,
    NULL,
    Bool,
    Column,
    DeviceSlices,
    HostSlices,
    Int32,
    Int64,
    IntArray,
    Kind,
    Role,
    SliceBatch,
    Tasks,
    Timeline,
    empty_host,
)

if TYPE_CHECKING:
    from converter.readers.trace_json import TraceParts

#: Task Types that are recorded tasks where no kernel_details exists (design.md, Recorded tasks).
TASK_TYPES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE")
CUDA_TASK_TYPES = ("kernel",)  # cat of Kineto; communication kernels are kernels there
SYNTHETIC_PID = 1 << 22  # above any pid of Linux: no real process is meant


def assemble(timeline: Timeline, rows: KernelRows | None, parts: TraceParts | None) -> None:
    """Fills timeline.tasks, host and device. rows, parts: what the readers found; parts' slices are in the timeline."""
    process = process_track(timeline)
    if parts is not None and parts.pid is not None:
        timeline.tracks[process].pid = parts.pid
    places: list[_Place] = []
    if rows is not None:
        places = _place_rows(timeline, process, rows, parts)
    elif parts is not None:
        places = _tasks_of_trace(timeline, parts)
    _tasks(timeline, places, rows)
    if parts is not None:
        timeline.host = _host(parts)
        timeline.device = _device(timeline, parts, {p.batch.first for p in places}, places)
    if len(timeline.tasks):
        timeline.window = (int(timeline.tasks.ts[0]), int(timeline.tasks.end.max()))


def process_track(timeline: Timeline) -> int:
    """The index of the process track `Rank N`, made where no reader has."""
    for i, t in enumerate(timeline.tracks):
        if t.kind is Kind.PROCESS:
            return i
    return timeline.track(f"Rank {timeline.rank}", Kind.PROCESS, pid=SYNTHETIC_PID + max(timeline.rank, 0))


@dataclass
class _Place:
    """Rows of one batch that are recorded tasks. at: rows of the batch; row: the kernel row of each, or NULL;
    order: int64, file order among all tasks."""

    batch: SliceBatch
    at: Int64
    row: Int64
    order: Int64
    device_id: IntArray
    stream_id: IntArray
    communication: Bool


# ---- joining ------------------------------------------------------------------------------------------------------


def match(name_a: Int32, ts_a: Int64, name_b: Int32, ts_b: Int64) -> tuple[Int64, Int64]:
    """Pairs (a, b) of equal name and ts; the k-th of a with the k-th of b where several are equal. int64[m] each."""
    n = len(name_a)
    name, ts = np.concatenate((name_a, name_b)), np.concatenate((ts_a, ts_b))
    order = np.lexsort((ts, name))  # stable: within a group first all of a, then all of b, in their order
    name, ts = name[order], ts[order]
    new = np.concatenate(([True], (name[1:] != name[:-1]) | (ts[1:] != ts[:-1]))) if len(order) else np.empty(0, bool)
    group = np.cumsum(new) - 1
    is_b = order >= n
    group_start = np.flatnonzero(new)
    in_a = np.bincount(group[~is_b], minlength=len(group_start)) if len(order) else np.empty(0, np.int64)
    rank = np.arange(len(order)) - group_start[group] if len(order) else np.empty(0, np.int64)
    rank[is_b] -= in_a[group[is_b]]  # position among its own side of the group
    from_b = np.flatnonzero(is_b)
    partner = from_b[rank[from_b] < in_a[group[from_b]]]
    a = order[group_start[group[partner]] + rank[partner]]
    b = order[partner] - n
    return a.astype(np.int64), b.astype(np.int64)


def _place_rows(timeline: Timeline, process: int, rows: KernelRows, parts: TraceParts | None) -> list[_Place]:
    n = len(rows.ts)
    places: list[_Place] = []
    left = np.ones(n, np.bool_)
    if parts is not None:
        kernel, comm = np.flatnonzero(~rows.communication), np.flatnonzero(rows.communication)
        if parts.hardware is not None:
            h = parts.hardware
            at, k = match(h.name, h.ts, rows.name[kernel], rows.ts[kernel])
            places.append(_join(timeline, h, at, kernel[k], rows, parts.device_id[at], parts.stream_id[at]))
            left[kernel[k]] = False
        if parts.communication is not None and len(comm):
            c = parts.communication
            free = np.ones(len(c), np.bool_)
            for step in (0, -1, 1):
                open_c, open_k = np.flatnonzero(free), comm[left[comm]]
                at, k = match(c.name[open_c], c.ts[open_c], rows.name[open_k], rows.ts[open_k] + step)
                at, k = open_c[at], open_k[k]
                nulls = np.full(len(at), NULL, np.int64)
                if len(at):
                    places.append(_join(timeline, c, at, k, rows, nulls, nulls))
                free[at], left[k] = False, False
    rest = np.flatnonzero(left)
    if parts is not None:
        joined = n - len(rest)
        timeline.tally.slices.read -= joined
        timeline.tally.slices.joined += joined
    if len(rest):
        places.append(_rows_alone(timeline, process, rows, rest))
    return places


def _join(
    timeline: Timeline, batch: SliceBatch, at: Int64, k: Int64, rows: KernelRows, device: IntArray, stream: IntArray
) -> _Place:
    """Writes rows k over the batch's rows `at`: their times, and their arguments where the row has them."""
    batch.ts[at], batch.dur[at] = rows.ts[k], rows.dur[k]
    mine = {(c.key, c.kind): c for c in batch.columns}
    for column in rows.columns:
        have = np.ones(len(k), np.bool_) if column.valid is None else column.valid[k]
        if not have.any():
            continue
        target = mine.get((column.key, column.kind))
        if target is None:
            target = Column(column.key, column.kind, np.zeros(len(batch), column.values.dtype))
            target.valid = np.zeros(len(batch), np.bool_)
            batch.columns.append(target)
            mine[column.key, column.kind] = target
            # a key that the trace has under another kind: the row's value replaces it
            for other in batch.columns:
                if other.key == column.key and other is not target:
                    other.valid = np.ones(len(batch), np.bool_) if other.valid is None else other.valid
                    other.valid[at[have]] = False
        elif target.valid is None:
            target.valid = np.ones(len(batch), np.bool_)
        assert target.valid is not None
        values = column.values[k][have]
        target.values = target.values.astype(np.result_type(target.values, values), copy=False)
        target.values[at[have]] = values
        target.valid[at[have]] = True
    return _Place(batch, at, k, k, device, stream, rows.communication[k])


def _rows_alone(timeline: Timeline, process: int, rows: KernelRows, which: Int64) -> _Place:
    """Kernel rows without a slice in the trace: a batch of their own, in the order of tasks where it is all of them."""
    device = np.maximum(rows.device_id[which], 0)
    stream = rows.stream_id[which]
    order = which
    by = task_order(rows.ts[which], rows.dur[which])
    if by is not None:
        order, device, stream = which[by], device[by], stream[by]
    whole = len(order) == len(rows.ts) and bool((order == np.arange(len(order))).all())

    def take(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if whole else values[order]

    comm = take(rows.communication)
    track = stream_tracks(timeline, process, device, np.where(comm & (stream == NULL), _COMMUNICATION, stream))
    columns = [Column(c.key, c.kind, take(c.values), None if c.valid is None else take(c.valid)) for c in rows.columns]
    batch = timeline.add(SliceBatch(track, take(rows.ts), take(rows.dur), take(rows.name), NO_TEXT, columns))
    return _Place(batch, np.arange(len(order)), order, order, device, stream, comm)


def task_order(ts: Int64, dur: Int64) -> Int64 | None:
    """The order of tasks: by start, longer first, then as given; None where they stand in it already.

    Exports are nearly sorted, and equal starts are few: only those are sorted by length.
    """
    if not np.any((ts[1:] < ts[:-1]) | ((ts[1:] == ts[:-1]) & (dur[1:] > dur[:-1]))):
        return None
    order = np.argsort(ts, kind="stable")
    sorted_ts = ts[order]
    equal = np.flatnonzero(sorted_ts[1:] == sorted_ts[:-1])
    tied = np.unique(np.concatenate((equal, equal + 1)))  # equal starts stand together, so each group stays in place
    rows = order[tied]
    order[tied] = rows[np.lexsort((rows, -dur[rows], ts[rows]))]
    return order


_COMMUNICATION = -2  # stands for the stream of a communication row, which has none


def stream_tracks(timeline: Timeline, process: int, device: IntArray, stream: IntArray) -> Int32:
    """int32[n]: the lane of each row, `NPU d` > `Stream s`; made where the trace has none."""
    groups = {t.device: i for i, t in enumerate(timeline.tracks) if t.kind is Kind.GROUP and t.device != NULL}
    lanes = {
        (t.device, t.stream): i for i, t in enumerate(timeline.tracks) if t.role is Role.STREAM and t.kind is Kind.LANE
    }
    # Two small integers in one key: distinct values are few, rows are many.
    low = int(stream.min(initial=0))
    wide = int(stream.max(initial=0)) - low + 1
    key = device.astype(np.int64) * wide + (stream.astype(np.int64) - low)
    top = int(key.max(initial=0))
    if top < 1 << 22:  # no sort of all rows
        distinct = np.flatnonzero(np.bincount(key, minlength=top + 1))
    else:
        distinct = np.unique(key)
    index = np.empty(len(distinct), np.int32)
    for i, k in enumerate(distinct.tolist()):
        d, s = k // wide, k % wide + low
        if d not in groups:
            groups[d] = timeline.track(
                f"NPU {d}", Kind.GROUP, parent=process, device=d, explicit_order=True, order=10 + d
            )
        found = lanes.get((d, s))
        if found is None:
            if s == _COMMUNICATION:
                found = timeline.track(
                    "Communication", parent=groups[d], role=Role.COMMUNICATION, device=d, order=1 << 20,
                    description="Collectives of kernel_details.csv; the file names no stream for them.",
                )  # fmt: skip
            elif s == NULL:
                found = timeline.track(
                    "Tasks", parent=groups[d], role=Role.STREAM, device=d, order=(1 << 20) + 1,
                    description="Tasks of kernel_details.csv; at this profiler level the file names no stream.",
                )  # fmt: skip
            else:
                found = timeline.track(f"Stream {s}", parent=groups[d], role=Role.STREAM, device=d, stream=s, order=s)
            lanes[d, s] = found
        index[i] = found
    if top < 1 << 22:
        table = np.zeros(top + 1, np.int32)
        table[distinct] = index
        return table[key]
    return index[np.searchsorted(distinct, key)]


# ---- tasks from a trace alone -------------------------------------------------------------------------------------


def _tasks_of_trace(timeline: Timeline, parts: TraceParts) -> list[_Place]:
    places = []
    first = 0
    h = parts.hardware
    if h is not None:
        kind = _text(h, "task_type")
        types = CUDA_TASK_TYPES if parts.is_kineto else TASK_TYPES
        ids = [i for i in (timeline.strings.find(t) for t in types) if i != NULL]
        at = np.flatnonzero(np.isin(kind, ids))
        nulls = np.full(len(at), NULL, np.int64)
        places.append(
            _Place(h, at, nulls, at + first, parts.device_id[at], parts.stream_id[at], np.zeros(len(at), np.bool_))
        )
        first += len(h)
    c = parts.communication
    if c is not None:
        at = np.arange(len(c))
        nulls = np.full(len(at), NULL, np.int64)
        places.append(_Place(c, at, nulls, at + first, nulls, nulls, np.ones(len(at), np.bool_)))
    return [p for p in places if len(p.at)]


# ---- the views ----------------------------------------------------------------------------------------------------


def _text(batch: SliceBatch, key: str) -> Int32:
    out = np.zeros(len(batch), np.int32)
    for c in batch.columns:
        if c.key == key and c.kind == "text":
            out = c.values if c.valid is None else np.where(c.valid, c.values, NO_TEXT)
    return out.astype(np.int32, copy=False)


def _number(batch: SliceBatch, key: str) -> IntArray:
    for c in batch.columns:
        if c.key == key and c.kind == "int":
            return c.values if c.valid is None else np.where(c.valid, c.values, c.values.dtype.type(NULL))
    return np.full(len(batch), NULL, np.int32)


def _tasks(timeline: Timeline, places: list[_Place], rows: KernelRows | None) -> None:
    """Sorts the recorded tasks, gives each slice its `task` argument and its category."""
    category = timeline.strings.add("npu.task")
    if not places:
        return

    def joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def whole(p: _Place) -> bool:
        return len(p.at) == len(p.batch)

    def of(p: _Place, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
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
        task_id=view(lambda p: of(p, _number(p.batch, "task_id"))),
        model_id=view(lambda p: of(p, _number(p.batch, "model_id"))),
        op_type=view(lambda p: of(p, _text(p.batch, "op_type"))),
        op_state=view(lambda p: of(p, _text(p.batch, "op_state"))),
        accelerator_core=view(lambda p: of(p, _text(p.batch, "accelerator_core"))),
        wait_ns=view(lambda p: of(p, _number(p.batch, "wait_ns"))),
        connection_id=view(lambda p: of(p, _number(p.batch, "connection_id"))),
        input_shapes=view(lambda p: of(p, _text(p.batch, "input_shapes"))),
        communication=view(lambda p: p.communication),
    )
    n = len(ts)
    small = np.int32 if n < 1 << 31 else np.int64
    index = np.arange(n, dtype=small)
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


def _host(parts: TraceParts) -> HostSlices:
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


def _device(timeline: Timeline, parts: TraceParts, firsts: set[int], places: list[_Place]) -> DeviceSlices:
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
        stream_id=parts.stream_id[by], task_type=_text(h, "task_type")[by], model_id=_number(h, "model_id")[by],
        connection_id=_number(h, "connection_id")[by],
    )  # fmt: skip
