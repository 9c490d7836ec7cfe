"""Arrows of an SQLite export, from its connection ids.

* HostToDevice: CANN_API.connectionId = TASK.connectionId or COMMUNICATION_OP.connectionId.
* async_npu: PYTORCH_API.connectionId -> CONNECTION_IDS (many rows per id) -> the same.
* async_task_queue: an Enqueue and a Dequeue of one id. fwdbwd: operators that share an id which no task has.
Tasks of collectives get none: the collective has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from converter.readers.sqlite_device import DeviceRows
from converter.readers.sqlite_host import HostRows
from converter.readers.sqlite_tables import Database
from schemas.tally import Tally
from schemas.timeline import NULL, FlowBatch, Host, Int64, Timeline

_LOW = (1 << 32) - 1


class Connections:
    """CONNECTION_IDS. The ids behind each row's id."""

    def __init__(self, db: Database) -> None:
        rows = db.read("CONNECTION_IDS", {"id": "id", "connection": "connectionId"})
        keep = rows["connection"] != NULL
        ids, connection = rows["id"][keep].astype(np.int64), rows["connection"][keep].astype(np.int64)
        order = np.argsort(ids, kind="stable")
        self._ids, self._connection = ids[order], connection[order]

    def firsts(self) -> dict[int, int]:
        """id -> its first connection."""
        at = np.flatnonzero(np.diff(self._ids, prepend=NULL - 1))
        return dict(zip(self._ids[at].tolist(), self._connection[at].tolist(), strict=True))

    def expand(self, ids: Int64) -> tuple[Int64, Int64]:
        """(row, connection) for each connection of each row's id; rows in order."""
        low, high = np.searchsorted(self._ids, ids, "left"), np.searchsorted(self._ids, ids, "right")
        count = np.where(ids == NULL, 0, high - low)
        row = np.repeat(np.arange(len(ids)), count)
        first = np.repeat(low - np.concatenate(([0], np.cumsum(count)[:-1])) if len(count) else low, count)
        return row, self._connection[first + np.arange(len(row))]


def add_flows(
    timeline: Timeline,
    connections: Connections,
    framework: HostRows,
    cann: HostRows,
    marks: HostRows,
    device: DeviceRows,
) -> None:
    """Adds all arrows and counts them."""
    tally = timeline.tally.flows
    order = np.argsort(device.connection, kind="stable")
    ends, end_ids = device.number[order], device.connection[order]
    row, connection = connections.expand(framework.connection)
    source = framework.source[row]
    queue = (source == Host.ENQUEUE) | (source == Host.DEQUEUE)
    _queue(timeline, tally, framework, row[queue], connection[queue], source[queue])
    row, connection = row[~queue], connection[~queue]
    is_task = np.isin(connection, end_ids)
    _to_device(timeline, "async_npu", framework, row[is_task], connection[is_task], ends, end_ids, tally)
    _forward_backward(timeline, tally, framework, row[~is_task], connection[~is_task])
    # Of nested calls with one id the outermost is where the arrow starts.
    calls = np.flatnonzero(cann.connection != NULL)
    calls = calls[np.lexsort((-cann.dur[calls], cann.ts[calls], cann.connection[calls]))]
    calls = calls[np.diff(cann.connection[calls], prepend=NULL - 1) != 0]
    _to_device(timeline, "HostToDevice", cann, calls, cann.connection[calls], ends, end_ids, tally)
    of_task = np.flatnonzero((marks.connection != NULL) & (marks.connection != _LOW))
    _to_device(timeline, "MsTx", marks, of_task, marks.connection[of_task], ends, end_ids, tally)


def _to_device(
    timeline: Timeline,
    category: str,
    host: HostRows,
    row: npt.NDArray[Any],
    connection: Int64,
    ends: Int64,
    end_ids: Int64,
    tally: Tally,
) -> None:
    low, high = np.searchsorted(end_ids, connection, "left"), np.searchsorted(end_ids, connection, "right")
    count = high - low
    out = np.repeat(row, count)
    first = np.repeat(low - np.concatenate(([0], np.cumsum(count)[:-1])) if len(count) else low, count)
    into = ends[first + np.arange(len(out))]
    _add(timeline, category, host, out, into, tally)


def _add(timeline: Timeline, category: str, host: HostRows, out: npt.NDArray[Any], into: Int64, tally: Tally) -> None:
    if not len(out):
        return
    tally.read += len(out)
    timeline.flows.append(FlowBatch(timeline.strings.add(category), host.number[out], into, host.ts[out]))


def _queue(
    timeline: Timeline,
    tally: Tally,
    host: HostRows,
    row: npt.NDArray[Any],
    connection: Int64,
    source: npt.NDArray[np.int8],
) -> None:
    starts, finishes = row[source == Host.ENQUEUE], row[source == Host.DEQUEUE]
    start_ids, finish_ids = connection[source == Host.ENQUEUE], connection[source == Host.DEQUEUE]
    order = np.argsort(finish_ids, kind="stable")
    finishes, finish_ids = finishes[order], finish_ids[order]
    low, high = np.searchsorted(finish_ids, start_ids, "left"), np.searchsorted(finish_ids, start_ids, "right")
    alone, lonely = high == low, ~np.isin(finish_ids, start_ids)
    tally.read += int(alone.sum()) + int(lonely.sum())
    tally.drop("no end", int(alone.sum()), f"Enqueue at {host.ts[starts[alone][0]]} ns" if alone.any() else "")
    tally.drop("no start", int(lonely.sum()), f"Dequeue at {host.ts[finishes[lonely][0]]} ns" if lonely.any() else "")
    count = high - low
    out = np.repeat(starts, count)
    first = np.repeat(low - np.concatenate(([0], np.cumsum(count)[:-1])) if len(count) else low, count)
    into = finishes[first + np.arange(len(out))]
    _add(timeline, "async_task_queue", host, out, host.number[into], tally)


def _forward_backward(
    timeline: Timeline, tally: Tally, host: HostRows, row: npt.NDArray[Any], connection: Int64
) -> None:
    """Operators that share an id: the first in time is the forward one. An op alone has lost its task."""
    order = np.lexsort((host.ts[row], connection))
    row, connection = row[order], connection[order]
    new = np.diff(connection, prepend=NULL - 1) != 0
    group = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    later = np.flatnonzero(~new)
    size = np.bincount(group, minlength=len(first)) if len(group) else np.empty(0, np.int64)
    alone = first[size == 1] if len(first) else first
    tally.read += len(alone)
    tally.drop("no end", len(alone), f"operator at {host.ts[row[alone[0]]]} ns" if len(alone) else "")
    _add(timeline, "fwdbwd", host, row[first[group[later]]], host.number[row[later]], tally)
