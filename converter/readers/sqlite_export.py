"""SQLite exports: `ascend_pytorch_profiler_{rank}.db`, `ascend_mindspore_profiler_{rank}.db`, `msprof_*.db`.

Format: the tables of the profiler's "DB" export, schema 1.0.0 to 1.2.0; times are ns of the local epoch, texts ids into
STRING_IDS. What is read is told by the tables and columns that are there, not by a version. The result is what the
trace JSON reader gives: slices, flows and counters in the Timeline, and parts for the assembler.
Ignored on purpose: OP_MEMORY and NPU_OP_MEM (allocations, no counters of their own), connectionCats and status_info
(written by viewers), SESSION_TIME_INFO (the profiler's own start and end).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from converter.device_tracks import process_track
from converter.readers.sqlite_counters import TABLES, read_counters
from converter.readers.sqlite_device import read_device
from converter.readers.sqlite_flows import Connections, add_flows
from converter.readers.sqlite_host import read_cann, read_framework, read_marks
from converter.readers.sqlite_rows import floor_of, usable
from converter.readers.sqlite_tables import Database, open_database
from converter.readers.sqlite_texts import Texts
from converter.readers.trace_batches import TraceParts
from schemas.errors import InputError, printable
from schemas.timeline import Kind, Role, SliceBatch, Timeline
from schemas.trace_keys import OVERLAP

#: Tables with slices: one of them must be there and have rows.
SLICE_TABLES = ("TASK", "COMMUNICATION_OP", "CANN_API", "PYTORCH_API", "MSTX_EVENTS")
_OVERLAPS = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")  # type of OVERLAP_ANALYSIS
DEFAULT_MAX_INPUT_BYTES = 16 << 30

READ_TABLES = frozenset(
    {
        *SLICE_TABLES, *(spec.table for spec in TABLES), "COMPUTE_TASK_INFO", "COMMUNICATION_TASK_INFO",
        "TASK_PMU_INFO", "CONNECTION_IDS", "PYTORCH_CALLCHAINS", "STRING_IDS", "OVERLAP_ANALYSIS", "STEP_TIME",
        "NPU_INFO", "HOST_INFO", "META_DATA", "RANK_DEVICE_MAP",
    }
)  # fmt: skip


@dataclass
class Export:
    """What one database gave. facts: capture facts; host_uid: of the machine, or None."""

    parts: TraceParts
    facts: dict[str, str | int] = field(default_factory=dict)
    host_uid: str | None = None


def read_export(
    path: str, timeline: Timeline, *, pmu: bool = False, max_input_bytes: int = DEFAULT_MAX_INPUT_BYTES
) -> Export:
    """Reads one database into the timeline, as `read_trace_json` does for text.

    Raises InputError where it can't be read or holds no slices; the table is named.
    """
    with open_database(path, max_input_bytes) as db:
        return _read(db, timeline, pmu)


def _read(db: Database, timeline: Timeline, pmu: bool) -> Export:
    tables = [table for table in SLICE_TABLES if db.has(table)]
    if not tables:
        raise InputError(
            db.path, f"has none of the tables {', '.join(SLICE_TABLES)}", todo="give a profiler's SQLite export"
        )
    if not db.has("TASK"):
        timeline.warn(f"{printable(db.path)}: has no table TASK, so no tasks of the device")
    process_track(timeline)
    parts = TraceParts()
    texts, connections = Texts(db, timeline.strings), Connections(db)
    floor_ns = floor_of(db)
    framework = read_framework(db, texts, timeline, parts, connections.firsts(), floor_ns)
    cann = read_cann(db, texts, timeline, parts, floor_ns)
    marks = read_marks(db, texts, timeline, parts, floor_ns)
    device = read_device(db, texts, timeline, parts, floor_ns, pmu=pmu)
    if not timeline.slice_count and not timeline.tally.slices.read:
        lacking = [table for table in SLICE_TABLES if not db.has(table)]
        what = f"holds no slices: {', '.join(tables)} empty" + (f", {', '.join(lacking)} absent" if lacking else "")
        raise InputError(db.path, what, todo="export the profile again")
    _overlap(db, timeline, parts, floor_ns)
    _steps(db, timeline, floor_ns)
    read_counters(db, texts, timeline, floor_ns)
    add_flows(timeline, connections, framework, cann, marks, device)
    parts.relative = floor_ns == 0
    if texts.missing:
        timeline.warn(
            f"{printable(db.path)}: {len(texts.missing)} ids have no text in STRING_IDS (first: {min(texts.missing)}); "
            "their slices are kept as `unknown name <id>`",
            damaged=True,
        )
    return _facts(db, parts)


def _overlap(db: Database, timeline: Timeline, parts: TraceParts, floor_ns: int) -> None:
    """The vendor's Overlap Analysis, a lane per type."""
    if not db.has("OVERLAP_ANALYSIS", "startNs", "endNs", "type"):
        return
    integers = {"start": "startNs", "end": "endNs", "type": "type", "device": "deviceId"}
    found = db.read("OVERLAP_ANALYSIS", integers, times=("start", "end"))
    known = (found["type"] >= 0) & (found["type"] < len(_OVERLAPS))
    found = {key: values[known] for key, values in found.items()}
    rows = usable("OVERLAP_ANALYSIS", found, timeline.tally.slices, floor_ns)
    if not len(rows["start"]):
        return
    names = timeline.strings.add_all(_OVERLAPS)
    kind, device = rows["type"], np.maximum(rows["device"], 0)
    devices = np.unique(device).tolist()
    track = np.empty(len(kind), np.int32)
    for number in devices:
        name = OVERLAP if len(devices) == 1 else f"{OVERLAP} NPU {number}"
        group = timeline.track(name, Kind.GROUP, parent=process_track(timeline))
        lanes = [timeline.track(n, Kind.LANE, parent=group, role=Role.OVERLAP, device=number) for n in _OVERLAPS]
        track[device == number] = np.array(lanes, np.int32)[kind[device == number]]
    batch = SliceBatch(track, rows["start"], rows["dur"], names[kind])
    parts.overlap.append(timeline.add(batch))


def _steps(db: Database, timeline: Timeline, floor_ns: int) -> None:
    """STEP_TIME, where no operator of the framework shows the same steps (`ProfilerStep#N`)."""
    if not db.has("STEP_TIME", "startNs", "endNs", "id"):
        return
    found = db.read("STEP_TIME", {"start": "startNs", "end": "endNs", "id": "id"}, times=("start", "end"))
    new = np.array([timeline.strings.find(f"ProfilerStep#{i}") < 0 for i in found["id"].tolist()], np.bool_)
    if not new.any():
        return
    rows = usable("STEP_TIME", {key: values[new] for key, values in found.items()}, timeline.tally.slices, floor_ns)
    names = [f"ProfilerStep#{i}" for i in rows["id"].tolist()]
    track = timeline.track("Profiler steps", Kind.LANE, parent=process_track(timeline))
    timeline.add_slices(track, rows["start"], rows["dur"], names, "cpu_op")


def _facts(db: Database, parts: TraceParts) -> Export:
    out = Export(parts, {"read_from": "SQLite export"})
    meta = dict(db.pairs("META_DATA", "name", "value"))
    if version := meta.get("SCHEMA_VERSION"):
        out.facts["db_schema_version"] = version
    if npu := [name for _, name in db.pairs("NPU_INFO", "id", "name") if name]:
        out.facts["npu"] = ", ".join(dict.fromkeys(npu))
    if ranks := db.pairs("RANK_DEVICE_MAP", "rankId", "deviceId"):
        out.facts["ranks_of_devices"] = ", ".join(f"rank {rank} on NPU {device}" for rank, device in ranks)
    for uid, name in db.pairs("HOST_INFO", "hostUid", "hostName"):
        out.host_uid = uid.strip() or None
        if name:
            out.facts["hostname"] = name
    left = [t for t in db.tables if t not in READ_TABLES and not t.startswith(("ENUM_", "SQLITE_"))]
    if left:
        out.facts["db_tables_not_read"] = ", ".join(printable(t, 60) for t in left)
    return out
