"""Kernel rows and the slices of a trace tell of the same tasks: they become one slice with the arguments of both.

The join is name + exact start for kernels, name + start within 1 ns for communication ops (the CSV truncates, the
trace rounds); where the two differ by a nanosecond the CSV wins, so that the trace and `npu-perfetto gaps` give the
same figures. Rows of either side without a partner are kept and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from converter.device_tracks import COMMUNICATION, stream_tracks
from converter.missing_rows import warn_of_missing_rows
from converter.places import Place, task_order
from schemas.kernel_rows import KernelRows
from schemas.timeline import NO_TEXT, NULL, Column, Int64, IntArray, SliceBatch, Timeline

if TYPE_CHECKING:
    from converter.readers.trace_json import TraceParts


def match(name_a: IntArray, ts_a: Int64, name_b: IntArray, ts_b: Int64) -> tuple[Int64, Int64]:
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


def place_rows(timeline: Timeline, process: int, rows: KernelRows, parts: TraceParts | None) -> list[Place]:
    n = len(rows.ts)
    places: list[Place] = []
    left = np.ones(n, np.bool_)
    if parts is not None:
        kernel, comm = np.flatnonzero(~rows.communication), np.flatnonzero(rows.communication)
        if parts.hardware is not None:
            h = parts.hardware
            at, k = _match_kernels(h, parts.device_id, rows, kernel)
            places.append(_join(timeline, h, at, kernel[k], rows, parts.device_id[at], parts.stream_id[at]))
            left[kernel[k]] = False
            warn_of_missing_rows(timeline, parts, at, rows.ts[kernel])
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


def _match_kernels(h: SliceBatch, device: Int64, rows: KernelRows, kernel: Int64) -> tuple[Int64, Int64]:
    """Pairs (row of h, position in kernel). With several devices those of one device first: two devices may start a
    kernel at one time. What is left is paired without: some exporters write device 0 in every row."""
    name, row_name, row_device = h.name, rows.name[kernel], rows.device_id[kernel]
    several = len(device) > 0 and bool((device != device[0]).any())
    if not several or not len(row_device) or not (row_device != row_device[0]).any():
        return match(name, h.ts, row_name, rows.ts[kernel])
    wide = int(max(name.max(), row_name.max(initial=0))) + 1
    at, k = match(name + device * wide, h.ts, row_name + row_device.astype(np.int64) * wide, rows.ts[kernel])
    free_at, free_k = np.ones(len(h), np.bool_), np.ones(len(kernel), np.bool_)
    free_at[at], free_k[k] = False, False
    open_at, open_k = np.flatnonzero(free_at), np.flatnonzero(free_k)
    more_at, more_k = match(name[open_at], h.ts[open_at], row_name[open_k], rows.ts[kernel][open_k])
    return np.concatenate((at, open_at[more_at])), np.concatenate((k, open_k[more_k]))


def _rows_alone(timeline: Timeline, process: int, rows: KernelRows, which: Int64) -> Place:
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
    track = stream_tracks(timeline, process, device, np.where(comm & (stream == NULL), COMMUNICATION, stream))
    columns = [Column(c.key, c.kind, take(c.values), None if c.valid is None else take(c.valid)) for c in rows.columns]
    batch = timeline.add(SliceBatch(track, take(rows.ts), take(rows.dur), take(rows.name), NO_TEXT, columns))
    return Place(batch, np.arange(len(order)), order, order, device, stream, comm)


def _join(
    timeline: Timeline, batch: SliceBatch, at: Int64, k: Int64, rows: KernelRows, device: IntArray, stream: IntArray
) -> Place:
    """Writes rows k over the batch's rows `at`: their times, and their arguments where the row has them."""
    if (at[1:] < at[:-1]).any():  # in order of the batch, as everything that reads a Place expects
        by = np.argsort(at, kind="stable")
        at, k, device, stream = at[by], k[by], device[by], stream[by]
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
    return Place(batch, at, k, k, device, stream, rows.communication[k])
