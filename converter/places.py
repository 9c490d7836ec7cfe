"""Where the recorded tasks are: rows of slice batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemas.timeline import NO_TEXT, NULL, Bool, Int32, Int64, IntArray, SliceBatch

#: Task Types that are recorded tasks where no kernel_details exists (design.md, Recorded tasks).
TASK_TYPES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE")


@dataclass
class Place:
    """Rows of one batch that are recorded tasks. at: rows of the batch; row: the kernel row of each, or NULL;
    order: int64, file order among all tasks."""

    batch: SliceBatch
    at: Int64
    row: Int64
    order: Int64
    device_id: IntArray
    stream_id: IntArray
    communication: Bool


def text_of(batch: SliceBatch, key: str) -> Int32:
    out = np.zeros(len(batch), np.int32)
    for c in batch.columns:
        if c.key == key and c.kind == "text":
            out = c.values if c.valid is None else np.where(c.valid, c.values, NO_TEXT)
    return out.astype(np.int32, copy=False)


def number_of(batch: SliceBatch, key: str) -> IntArray:
    for c in batch.columns:
        if c.key == key and c.kind == "int":
            return c.values if c.valid is None else np.where(c.valid, c.values, c.values.dtype.type(NULL))
    return np.full(len(batch), NULL, np.int32)


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
