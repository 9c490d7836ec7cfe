"""The host in an SQLite export: PYTORCH_API, CANN_API, MSTX_EVENTS, and the call chains of PYTORCH_CALLCHAINS.

Threads are told by globalTid = pid << 32 | tid. Framework slices go on threads of the process, CANN calls and marks
on tracks of their own, since their thread ids equal those of the framework and the kinds overlap. Names of CANN calls
get the prefix that the text export has (`Node@launch`). Arguments have the keys of the text export.
Ignored on purpose: `depth` (added by viewers), endGlobalTid, rangeId.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from converter.device_tracks import process_track
from converter.readers.sqlite_rows import usable
from converter.readers.sqlite_tables import Database
from converter.readers.sqlite_texts import Texts
from converter.readers.trace_batches import HostPart
from schemas.timeline import (
    NO_TEXT,
    NULL,
    Column,
    Host,
    Int32,
    Int64,
    Kind,
    Role,
    SliceBatch,
    Timeline,
    id_column,
    text_column,
)

if TYPE_CHECKING:
    from converter.readers.trace_batches import TraceParts

Rows = dict[str, npt.NDArray[Any]]

OP, QUEUE, TRACE, MSTX = 50001, 50002, 50003, 50004  # ENUM_API_TYPE of the framework
#: type of PYTORCH_API -> category and source of its slices; a queue row is an Enqueue or a Dequeue by its name.
_KINDS = {OP: ("cpu_op", Host.FRAMEWORK), TRACE: ("python_function", Host.PYTHON), MSTX: ("mstx", Host.OTHER)}
#: type of CANN_API -> the level that the text export writes, where the file has no ENUM_API_TYPE.
_LEVELS = {5000: "runtime", 5500: "communication", 10000: "node", 15000: "model", 20000: "acl"}
_PREFIXES = {
    "acl": "AscendCL", "runtime": "Runtime", "node": "Node", "model": "Model", "communication": "Communication",
    "hccl": "Hccl",
}  # fmt: skip
_LOW = (1 << 32) - 1
_MAX_OS_ID = 2**31 - 1


@dataclass
class HostRows:
    """What arrows start at, by kind: global slice numbers, starts (ns) and, row by row, the connection ids.

    For framework rows `connection` is the id in CONNECTION_IDS, which may stand for several; NULL where there is none.
    """

    number: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    ts: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    dur: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    connection: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    source: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))


def _rows(batch: SliceBatch, connection: npt.NDArray[Any], source: npt.NDArray[np.int8]) -> HostRows:
    numbers = batch.first + np.arange(len(batch))
    return HostRows(numbers, batch.ts, batch.dur, connection.astype(np.int64), source)


def _lanes(timeline: Timeline, tids: npt.NDArray[Any], group: str, role: Role) -> Int32:
    """int32[n]: tracks `Thread T` in a group of their own."""
    distinct, inverse = np.unique(tids, return_inverse=True)
    parent = timeline.track(group, Kind.GROUP, parent=process_track(timeline))
    names = [f"Thread {tid & _LOW}" if tid >= 0 else "No thread" for tid in distinct.tolist()]
    tracks = [timeline.track(name, Kind.LANE, parent=parent, role=role) for name in names]
    return np.array(tracks, np.int32)[inverse.reshape(-1)]


def _threads(timeline: Timeline, parts: TraceParts, tids: npt.NDArray[Any]) -> Int32:
    """int32[n]: thread tracks of the process with the most rows; threads of any other go in a group of theirs."""
    distinct, inverse, counts = np.unique(tids, return_inverse=True, return_counts=True)
    pids = distinct >> 32
    per_pid = {int(pid): int(counts[pids == pid].sum()) for pid in np.unique(pids) if 0 < pid <= _MAX_OS_ID}
    main = max(per_pid, key=lambda pid: per_pid[pid]) if per_pid else None
    parts.pid = main
    process = process_track(timeline)
    groups: dict[int, int] = {}
    tracks = []
    for tid in distinct.tolist():
        pid, low = tid >> 32, tid & _LOW
        if pid == main and 0 < low <= _MAX_OS_ID:
            track = timeline.track(f"Thread {low}", Kind.THREAD, parent=process, role=Role.HOST, pid=pid, tid=low)
        else:
            name = f"Process {pid}" if tid >= 0 else "No process"
            if pid not in groups:
                groups[pid] = timeline.track(name, Kind.GROUP, parent=process)
            track = timeline.track(
                f"Thread {low}" if tid >= 0 else "No thread", Kind.LANE, parent=groups[pid], role=Role.HOST
            )
        tracks.append(track)
    return np.array(tracks, np.int32)[inverse.reshape(-1)]


def read_framework(
    db: Database, texts: Texts, timeline: Timeline, parts: TraceParts, correlation_of: dict[int, int], floor_ns: int
) -> HostRows:
    """PYTORCH_API. correlation_of: the id that an Enqueue and its Dequeue share, by their id in CONNECTION_IDS."""
    if not db.has("PYTORCH_API"):
        return HostRows()
    db.require("PYTORCH_API", "startNs", "endNs", "name")
    integers = {
        "start": "startNs", "end": "endNs", "tid": "globalTid", "connection": "connectionId", "name": "name",
        "sequence": "sequenceNumber", "forward": "fwdThreadId", "types": "inputDtypes", "shapes": "inputShapes",
        "chain": "callchainId", "type": "type",
    }  # fmt: skip
    found = db.read("PYTORCH_API", integers, times=("start", "end"), missing=_ABSENT)
    rows = usable("PYTORCH_API", found, timeline.tally.slices, floor_ns)
    n = len(rows["start"])
    if not n:
        return HostRows()
    for key in ("name", "types", "shapes", "chain", "connection"):
        rows[key] = np.where(rows[key] == _ABSENT, NULL, rows[key])
    name = texts.names(rows["name"])
    category, source = _kinds(timeline, rows["type"], name)
    columns = [
        Column("Sequence number", "int", rows["sequence"], rows["sequence"] != _ABSENT),
        Column("Fwd thread id", "int", rows["forward"], rows["forward"] != _ABSENT),
        *_inputs(timeline, texts.arguments(rows["shapes"]), texts.arguments(rows["types"])),
        text_column("Call stack", _call_chains(db, texts, timeline, rows["chain"])),
    ]
    queue = (source == Host.ENQUEUE) | (source == Host.DEQUEUE)
    correlation = np.full(n, NULL, np.int64)
    ids = rows["connection"][queue].tolist()
    correlation[queue] = np.fromiter((correlation_of.get(i, NULL) for i in ids), np.int64, len(ids))
    columns.append(id_column("correlation_id", correlation))
    batch = timeline.add(
        SliceBatch(
            _threads(timeline, parts, rows["tid"].astype(np.int64)), rows["start"], rows["dur"], name, category,
            [c for c in columns if c.valid is not None and c.valid.any()],
        )
    )  # fmt: skip
    parts.host.append(HostPart(batch, source, np.full(n, NULL, np.int64), correlation))
    return _rows(batch, rows["connection"], source)


_ABSENT = -(2**31)  # NULL cells where -1 is a value of its own: ops outside autograd have sequence number -1


def _kinds(timeline: Timeline, types: npt.NDArray[Any], name: Int32) -> tuple[Int32, npt.NDArray[np.int8]]:
    category = np.full(len(types), timeline.strings.add("cpu_op"), np.int32)
    source = np.full(len(types), Host.FRAMEWORK, np.int8)
    for type_, (text, of_type) in _KINDS.items():
        category[types == type_] = timeline.strings.add(text)
        source[types == type_] = of_type
    queue = np.flatnonzero(types == QUEUE)
    if len(queue):
        distinct, inverse = np.unique(name[queue], return_inverse=True)
        starts = np.array([timeline.strings[i].startswith("Enqueue") for i in distinct.tolist()])[inverse.reshape(-1)]
        source[queue] = np.where(starts, Host.ENQUEUE, Host.DEQUEUE)
        texts = timeline.strings.add("enqueue"), timeline.strings.add("dequeue")
        category[queue] = np.where(starts, *texts)
    return category, source


def _inputs(timeline: Timeline, shapes: Int32, types: Int32) -> list[Column]:
    """Shapes and types of inputs. CANN 8.0 has the two columns the wrong way round: their texts tell."""

    def letters(ids: Int32) -> bool:
        return any(any(c.isalpha() for c in timeline.strings[i]) for i in np.unique(ids).tolist())

    if letters(shapes) and not letters(types):
        shapes, types = types, shapes
    return [text_column("Input Dims", shapes), text_column("Input type", types)]


def _call_chains(db: Database, texts: Texts, timeline: Timeline, chains: npt.NDArray[Any]) -> Int32:
    """int32[n]: the call stack of each row as one text, frames as the text export joins them."""
    wanted = np.unique(chains[chains != NULL])
    if not len(wanted):
        return np.zeros(len(chains), np.int32)
    pool = np.zeros(len(wanted), np.int32)
    known: dict[bytes, int] = {}
    carry_id, carry = NULL, np.empty(0, np.int64)

    def done(chain: int, frames: Int64) -> None:
        at = int(np.searchsorted(wanted, chain))
        if at == len(wanted) or wanted[at] != chain:
            return
        key = frames.tobytes()
        if key not in known:
            lines = [texts.text(i) or f"unknown text {i}" for i in frames.tolist()]
            known[key] = timeline.strings.add(";\r\n".join(lines))
        pool[at] = known[key]

    integers = {"id": "id", "stack": "stack"}
    order = "id, stackDepth" if db.has("PYTORCH_CALLCHAINS", "id", "stackDepth") else "rowid"
    for piece in db.pieces("PYTORCH_CALLCHAINS", integers, order=order):
        ids, stack = piece["id"], piece["stack"]
        edges = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
        for first, last in pairwise(edges):
            if int(ids[first]) != carry_id:
                done(carry_id, carry)
                carry_id, carry = int(ids[first]), stack[first:last]
            else:
                carry = np.concatenate((carry, stack[first:last]))
    done(carry_id, carry)
    at = np.minimum(np.searchsorted(wanted, chains), len(wanted) - 1)
    out: Int32 = np.where(chains != NULL, pool[at], NO_TEXT).astype(np.int32)
    return out


def read_cann(db: Database, texts: Texts, timeline: Timeline, parts: TraceParts, floor_ns: int) -> HostRows:
    """CANN_API."""
    if not db.has("CANN_API"):
        return HostRows()
    db.require("CANN_API", "startNs", "endNs", "name")
    integers = {
        "start": "startNs", "end": "endNs", "tid": "globalTid", "connection": "connectionId", "name": "name",
        "type": "type",
    }  # fmt: skip
    found = db.read("CANN_API", integers, times=("start", "end"))
    rows = usable("CANN_API", found, timeline.tally.slices, floor_ns)
    n = len(rows["start"])
    if not n:
        return HostRows()
    levels = _LEVELS | texts.enum_names("ENUM_API_TYPE")
    name = _prefixed(timeline, texts.names(rows["name"]), rows["type"], levels)
    kinds, inverse = np.unique(rows["type"], return_inverse=True)
    level = np.array([timeline.strings.add(levels.get(k, "")) for k in kinds.tolist()], np.int32)[inverse.reshape(-1)]
    columns = [text_column("level", level), id_column("connection_id", rows["connection"])]
    batch = timeline.add(
        SliceBatch(
            _lanes(timeline, rows["tid"].astype(np.int64), "CANN", Role.CANN),
            rows["start"],
            rows["dur"],
            name,
            columns=columns,
        )
    )
    source = np.full(n, Host.CANN, np.int8)
    connection = rows["connection"].astype(np.int64)
    parts.host.append(HostPart(batch, source, connection, np.full(n, NULL, np.int64)))
    return _rows(batch, connection, source)


def _prefixed(timeline: Timeline, name: Int32, types: npt.NDArray[Any], levels: dict[int, str]) -> Int32:
    """`launch` of the level node is `Node@launch`."""
    pair = types.astype(np.int64) << 32 | name
    distinct, inverse = np.unique(pair, return_inverse=True)
    out = np.empty(len(distinct), np.int32)
    for i, key in enumerate(distinct.tolist()):
        text = timeline.strings[key & _LOW]
        prefix = _PREFIXES.get(levels.get(key >> 32, ""))
        out[i] = timeline.strings.add(f"{prefix}@{text}" if prefix and "@" not in text else text)
    renamed: Int32 = out[inverse.reshape(-1)]
    return renamed


def read_marks(db: Database, texts: Texts, timeline: Timeline, parts: TraceParts, floor_ns: int) -> HostRows:
    """MSTX_EVENTS: marks and ranges of the user."""
    if not db.has("MSTX_EVENTS", "startNs", "endNs"):
        return HostRows()
    integers = {
        "start": "startNs", "end": "endNs", "kind": "eventType", "message": "message", "tid": "globalTid",
        "domain": "domainId", "category": "category", "connection": "connectionId",
    }  # fmt: skip
    found = db.read("MSTX_EVENTS", integers, times=("start", "end"))
    rows = usable("MSTX_EVENTS", found, timeline.tally.slices, floor_ns)
    n = len(rows["start"])
    if not n:
        return HostRows()
    columns = [
        text_column("event_type", texts.enum("ENUM_MSTX_EVENT_TYPE", rows["kind"])),
        text_column("domain", texts.arguments(rows["domain"])),
        id_column("connection_id", np.where(rows["connection"] == _LOW, NULL, rows["connection"])),
    ]
    batch = timeline.add(
        SliceBatch(
            _lanes(timeline, rows["tid"].astype(np.int64), "MSTX", Role.HOST),
            rows["start"],
            rows["dur"],
            texts.names(rows["message"]),
            timeline.strings.add("mstx"),
            [c for c in columns if c.valid is not None and c.valid.any()],
        )
    )
    source = np.full(n, Host.OTHER, np.int8)
    nulls = np.full(n, NULL, np.int64)
    parts.host.append(HostPart(batch, source, nulls, nulls))
    return _rows(batch, rows["connection"], source)
