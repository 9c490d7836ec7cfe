"""Tasks of the device and collectives in an SQLite export: TASK, COMPUTE_TASK_INFO, COMMUNICATION_OP and
COMMUNICATION_TASK_INFO.

Every row of TASK is a slice on its stream. Those with a row in COMPUTE_TASK_INFO are what kernel_details.csv lists, so
they are recorded tasks, as are the rows of COMMUNICATION_OP. A task with a row in COMMUNICATION_TASK_INFO is shown a
second time on a plane of its group, as the text export does. Arguments have the keys of the text export.
Ignored on purpose: attrInfo (attributes of the operator, mostly N/A), COMMUNICATION_SCHEDULE_TASK_INFO (host side of
AI CPU collectives, without times of its own).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from converter.device_tracks import process_track, stream_tracks
from converter.readers.sqlite_rows import usable
from converter.readers.sqlite_tables import Database, lookup
from converter.readers.sqlite_texts import Texts
from schemas.timeline import (
    NULL,
    Bool,
    Column,
    Int32,
    Int64,
    Kind,
    Role,
    SliceBatch,
    Timeline,
    id_column,
    text_column,
)
from schemas.trace_keys import NONE_ID, NONE_ID_KEYS

if TYPE_CHECKING:
    from converter.readers.trace_batches import TraceParts

Rows = dict[str, npt.NDArray[Any]]

_TASK = {
    "start": "startNs", "end": "endNs", "device": "deviceId", "connection_id": "connectionId",
    "global": "globalTaskId", "kind": "taskType", "context_id": "contextId", "stream": "streamId",
    "task_id": "taskId", "model_id": "modelId", "batch_id": "batchId", "subtask_id": "subtaskId",
}  # fmt: skip
_COMPUTE_TEXTS = {
    "op_type": "opType", "accelerator_core": "taskType", "op_state": "opState", "hf32_eligible": "hf32Eligible",
    "input_shapes": "inputShapes", "input_data_types": "inputDataTypes", "input_formats": "inputFormats",
    "output_shapes": "outputShapes", "output_data_types": "outputDataTypes", "output_formats": "outputFormats",
}  # fmt: skip
_COMPUTE_NUMBERS = {
    "block_dim": "blockDim", "block_num": "blockNum", "mix_block_dim": "mixBlockDim", "mix_block_num": "mixBlockNum",
    "wait_ns": "waitNs",
}  # fmt: skip
_PLANE = {
    "global": "globalTaskId", "op": "name", "kind": "taskType", "plane": "planeId", "group": "groupName",
    "notify_id": "notifyId", "rdma type": "rdmaType", "src rank": "srcRank", "dst rank": "dstRank",
    "transport type": "transportType", "size(Byte)": "size", "data type": "dataType", "link type": "linkType",
}  # fmt: skip
_ENUMS = {
    "rdma type": "ENUM_HCCL_RDMA_TYPE", "transport type": "ENUM_HCCL_TRANSPORT_TYPE",
    "data type": "ENUM_HCCL_DATA_TYPE", "link type": "ENUM_HCCL_LINK_TYPE",
}  # fmt: skip


@dataclass
class DeviceRows:
    """What arrows from the host may end at. number: global slice numbers, connection: their ids; int64[n]."""

    number: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    connection: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, batch: SliceBatch, connection: npt.NDArray[Any], which: Bool) -> None:
        at = np.flatnonzero(which & (connection != NULL))
        self.number = np.concatenate((self.number, batch.first + at))
        self.connection = np.concatenate((self.connection, connection[at].astype(np.int64)))


def read_device(
    db: Database, texts: Texts, timeline: Timeline, parts: TraceParts, floor_ns: int, *, pmu: bool = False
) -> DeviceRows:
    """Adds the slices of the device to the timeline and to parts."""
    out = DeviceRows()
    groups = _Groups(timeline)
    if db.has("TASK"):
        db.require("TASK", "startNs", "endNs")
        tasks = usable("TASK", db.read("TASK", _TASK, times=("start", "end")), timeline.tally.slices, floor_ns)
        if len(tasks["start"]):
            of_plane = _add_tasks(db, texts, timeline, parts, tasks, pmu)
            assert parts.hardware is not None
            out.add(parts.hardware, tasks["connection_id"], ~of_plane)
            _add_planes(db, texts, timeline, parts, tasks, groups)
    _add_collectives(db, texts, timeline, parts, out, groups, floor_ns)
    return out


def _ids(key: str, values: npt.NDArray[Any]) -> Column | None:
    """An id argument, or None where no row has one."""
    if key in NONE_ID_KEYS or key == "context_id":
        values = np.where(values == NONE_ID, NULL, values)
    column = id_column(key, values)
    return column if column.valid is not None and column.valid.any() else None


def _texts(key: str, ids: Int32) -> Column | None:
    return text_column(key, ids) if ids.any() else None


def _add_tasks(db: Database, texts: Texts, timeline: Timeline, parts: TraceParts, tasks: Rows, pmu: bool) -> Bool:
    """The batch of all tasks; which of them belong to collectives."""
    integers = {"global": "globalTaskId", "name": "name", **_COMPUTE_TEXTS, **_COMPUTE_NUMBERS}
    infos = db.read("COMPUTE_TASK_INFO", integers)
    info = lookup(infos["global"].astype(np.int64), tasks["global"])
    computes = info >= 0
    unplaced = len(infos["global"]) - int(np.isin(infos["global"], tasks["global"]).sum())
    if unplaced:
        timeline.warn(f"{db.path}: {unplaced} rows of COMPUTE_TASK_INFO have no row in TASK, so no time; left out")
    kind = texts.names(tasks["kind"])
    name = kind.copy()
    name[computes] = texts.names(infos["name"][info[computes]])
    columns: list[Column | None] = [_texts("task_type", kind)]
    for key in ("task_id", "model_id", "batch_id", "subtask_id", "connection_id", "context_id"):
        columns.append(_ids(key, tasks[key]))
    for key in _COMPUTE_TEXTS:
        values = np.zeros(len(name), np.int32)
        values[computes] = texts.arguments(infos[key][info[computes]])
        columns.append(_texts(key, values))
    for key in _COMPUTE_NUMBERS:
        numbers = np.full(len(name), NULL, np.int64)
        numbers[computes] = infos[key][info[computes]]
        columns.append(_ids(key, numbers))
    if pmu:
        columns += _pmu(db, texts, tasks["global"])
    device, stream = np.maximum(tasks["device"], 0), tasks["stream"]
    track = stream_tracks(timeline, process_track(timeline), device, stream)
    batch = SliceBatch(track, tasks["start"], tasks["dur"], name, columns=[c for c in columns if c is not None])
    parts.hardware = timeline.add(batch)
    parts.device_id, parts.stream_id = device.astype(np.int64), stream.astype(np.int64)
    parts.recorded = computes
    planes = db.read("COMMUNICATION_TASK_INFO", {"global": "globalTaskId"})["global"]
    return np.asarray(np.isin(tasks["global"], planes) & (tasks["global"] != NULL))


def _pmu(db: Database, texts: Texts, tasks: npt.NDArray[Any]) -> list[Column]:
    """TASK_PMU_INFO as one argument per counter, values as written."""
    found = db.read("TASK_PMU_INFO", {"global": "globalTaskId", "name": "name"}, {"value": "value"})
    columns = []
    for name in np.unique(found["name"]).tolist():
        of_name = np.flatnonzero((found["name"] == name) & ~np.isnan(found["value"]))
        at = lookup(found["global"][of_name].astype(np.int64), tasks)
        have = at >= 0
        if not have.any():
            continue
        values = np.zeros(len(tasks), np.float64)
        values[have] = found["value"][of_name][at[have]]
        columns.append(Column(texts.text(name) or f"unknown text {name}", "float", values, have))
    return columns


class _Groups:
    """The tracks of collectives: `Communication` > `Group <name> Communication` > `Plane k`, made when asked for."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._parents: dict[int, int] = {}
        self._tracks: dict[tuple[int, int, int], int] = {}

    def lanes(self, device: npt.NDArray[Any], group: Int32, plane: npt.NDArray[Any] | None = None) -> Int32:
        """int32[n]: the lane of each row. plane None: the group's own lane."""
        planes = np.full(len(group), NULL, np.int64) if plane is None else plane
        rows = np.stack((device.astype(np.int64), group.astype(np.int64), planes.astype(np.int64)), axis=1)
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        index = np.array([self._lane(*row) for row in distinct.tolist()], np.int32)
        return index[inverse.reshape(-1)]

    def _lane(self, device: int, group: int, plane: int) -> int:
        found = self._tracks.get((device, group, plane))
        if found is not None:
            return found
        if plane != NULL:
            parent = self._lane(device, group, NULL)
            found = self._timeline.track(f"Plane {plane}", parent=parent, role=Role.PLANE, device=device, order=plane)
        else:
            if device not in self._parents:
                devices = {t.device for t in self._timeline.tracks if t.kind is Kind.GROUP and t.device != NULL}
                name = f"Communication NPU {device}" if len(devices) > 1 else "Communication"
                self._parents[device] = self._timeline.track(name, Kind.GROUP, parent=process_track(self._timeline))
            name = self._timeline.strings[group]
            found = self._timeline.track(
                f"Group {name} Communication" if name else "Group Communication",
                Kind.LANE, parent=self._parents[device], role=Role.COMMUNICATION, device=device,
            )  # fmt: skip
        self._tracks[device, group, plane] = found
        return found


def _add_planes(
    db: Database, texts: Texts, timeline: Timeline, parts: TraceParts, tasks: Rows, groups: _Groups
) -> None:
    reals: dict[str, str | None] = (
        {"bandwidth(GB/s)": "bandwidth"} if db.has("COMMUNICATION_TASK_INFO", "bandwidth") else {}
    )
    rows = db.read("COMMUNICATION_TASK_INFO", _PLANE, reals)
    if not len(rows["global"]):
        return
    tally = timeline.tally.slices
    tally.read += len(rows["global"])
    task = lookup(tasks["global"].astype(np.int64), rows["global"])
    placed = task >= 0
    if not placed.all():
        lost = int((~placed).sum())
        tally.drop("no start", lost, f"COMMUNICATION_TASK_INFO, row {int(np.argmin(placed)) + 1}: no row in TASK")
        rows, task = {key: values[placed] for key, values in rows.items()}, task[placed]
    if not len(task):
        return
    name = texts.names(rows["kind"])
    columns: list[Column | None] = [_texts("task_type", name), _texts("op", texts.arguments(rows["op"]))]
    columns += [_ids(key, tasks[key][task]) for key in ("task_id", "context_id", "model_id")]
    columns.append(_ids("stream id", tasks["stream"][task]))
    for key in ("notify_id", "src rank", "dst rank", "size(Byte)"):
        columns.append(_ids(key, rows[key]))
    columns += [_texts(key, texts.enum(table, rows[key])) for key, table in _ENUMS.items()]
    for key in reals:
        columns.append(Column(key, "float", rows[key], ~np.isnan(rows[key])))
    lanes = groups.lanes(
        np.maximum(tasks["device"][task], 0), texts.arguments(rows["group"]), np.maximum(rows["plane"], 0)
    )
    batch = SliceBatch(
        lanes, tasks["start"][task], tasks["dur"][task], name, columns=[c for c in columns if c is not None]
    )
    parts.planes.append(timeline.add(batch))


def _add_collectives(
    db: Database,
    texts: Texts,
    timeline: Timeline,
    parts: TraceParts,
    out: DeviceRows,
    groups: _Groups,
    floor_ns: int,
) -> None:
    if not db.has("COMMUNICATION_OP"):
        return
    db.require("COMMUNICATION_OP", "startNs", "endNs")
    integers = {
        "start": "startNs", "end": "endNs", "name": "opName", "connection_id": "connectionId", "group": "groupName",
        "relay": "relay", "retry": "retry", "data_type": "dataType", "alg_type": "algType", "count": "count",
        "op_type": "opType", "device": "deviceId", "wait_ns": "waitNs", "model_id": "modelId",
    }  # fmt: skip
    found = db.read("COMMUNICATION_OP", integers, times=("start", "end"))
    rows = usable("COMMUNICATION_OP", found, timeline.tally.slices, floor_ns)
    if not len(rows["start"]):
        return
    yes_no = np.array([timeline.strings.add("no"), timeline.strings.add("yes"), 0], np.int32)  # -1: absent
    columns = [
        _ids("connection_id", rows["connection_id"]),
        _ids("model_id", rows["model_id"]),
        _texts("op_type", texts.arguments(rows["op_type"])),
        _texts("data_type", texts.enum("ENUM_HCCL_DATA_TYPE", rows["data_type"])),
        _texts("alg_type", texts.arguments(rows["alg_type"])),
        _ids("count", rows["count"]),
        _ids("wait_ns", rows["wait_ns"]),
        *(_texts(key, yes_no[np.clip(rows[key], -1, 1)]) for key in ("relay", "retry")),
    ]
    device = rows["device"]
    if (device == NULL).all():  # schema 1.0.0: the op doesn't say, so it is the one device of the file
        device = np.full(len(device), int(parts.device_id[0]) if len(parts.device_id) else 0, np.int64)
    lanes = groups.lanes(np.maximum(device, 0), texts.arguments(rows["group"]))
    batch = SliceBatch(
        lanes, rows["start"], rows["dur"], texts.names(rows["name"]), columns=[c for c in columns if c is not None]
    )
    parts.communication = timeline.add(batch)
    out.add(batch, rows["connection_id"], np.ones(len(batch), np.bool_))
