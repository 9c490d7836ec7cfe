"""Writes one capture as torch_npu's "DB" export: ascend_pytorch_profiler_{rank}.db, of the same run as the text export.

Schema 1.0.0 (Block Dim, no device on collectives, the waits that a viewer adds) or 1.2.0 (Block Num, opState, device).
Times are ns, those of PYTORCH_API as TEXT; texts are ids into STRING_IDS; a thread is pid << 32 | tid.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from samples.capture import Capture
from samples.exporters import quoted
from samples.model import Span, Task
from samples.overlap import overlap

NONE = 4294967295
LEVELS = {"AscendCL": 20000, "Node": 10000, "Communication": 5500}
KINDS = {"cpu_op": 50001, "enqueue": 50002, "dequeue": 50002, "python_function": 50003}
#: Host names of tasks by their core, as the runtime registers them.
HOST_NAMES = {"AI_CORE": "KERNEL_AICORE", "AI_VECTOR_CORE": "KERNEL_AIVEC", "MIX_AIC": "KERNEL_MIX_AIC", "MIX_AIV": "KERNEL_MIX_AIV"}  # fmt: skip

SCHEMA = """
CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE META_DATA (name TEXT, value TEXT);
CREATE TABLE NPU_INFO (id INTEGER, name TEXT);
CREATE TABLE HOST_INFO (hostUid TEXT, hostName TEXT);
CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER);
CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_HCCL_DATA_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_HCCL_TRANSPORT_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_HCCL_LINK_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER,
  globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);
CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, {block} INTEGER, {mix} INTEGER,
  taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER,
  outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER, {extra} INTEGER);
CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER,
  opId INTEGER PRIMARY KEY, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, count NUMERIC,
  opType INTEGER{device});
CREATE TABLE COMMUNICATION_TASK_INFO (name INTEGER, globalTaskId INTEGER, taskType INTEGER, planeId INTEGER,
  groupName INTEGER, notifyId INTEGER, rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER, transportType INTEGER,
  size INTEGER, dataType INTEGER, linkType INTEGER, opId INTEGER);
CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER,
  connectionId INTEGER PRIMARY KEY, name INTEGER);
CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER,
  sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER,
  type INTEGER);
CREATE TABLE CONNECTION_IDS (id INTEGER, connectionId INTEGER);
CREATE TABLE OVERLAP_ANALYSIS (id INTEGER PRIMARY KEY, deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INTEGER);
CREATE TABLE AICORE_FREQ (deviceId INTEGER, timestampNs NUMERIC, freq INTEGER);
INSERT INTO NPU_INFO VALUES (0, 'Ascend910B');
INSERT INTO ENUM_API_TYPE VALUES (5000, 'runtime'), (5500, 'communication'), (10000, 'node'), (15000, 'model'),
  (20000, 'acl'), (50001, 'op'), (50002, 'queue'), (50003, 'trace'), (50004, 'mstx');
INSERT INTO ENUM_HCCL_DATA_TYPE VALUES (0, 'INT8'), (5, 'INT64');
INSERT INTO ENUM_HCCL_TRANSPORT_TYPE VALUES (0, 'SDMA'), (2, 'LOCAL');
INSERT INTO ENUM_HCCL_LINK_TYPE VALUES (0, 'ON_CHIP'), (1, 'HCCS');
"""


class _Ids(dict[str, int]):
    """Texts to ids, in order of first use."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self) + 7  # ids need not begin at 0
        return self[text]


def write_database(capture: Capture, folder: Path, schema: str = "1.2.0") -> Path:
    """Writes the database into `folder`/ASCEND_PROFILER_OUTPUT, which is made where absent. Its path."""
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True, exist_ok=True)
    rank = capture.rank.rank
    path = output / f"ascend_pytorch_profiler_{rank}.db"
    old = schema == "1.0.0"
    names = (
        {"block": "blockDim", "mix": "mixBlockDim", "extra": "waitNs", "device": ""}
        if old
        else {"block": "blockNum", "mix": "mixBlockNum", "extra": "opState", "device": ", deviceId INTEGER"}
    )
    db = sqlite3.connect(path)
    db.executescript(SCHEMA.format(**names))
    ids = _Ids()

    def insert(table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        rows = iter(rows)
        first = next(rows, None)
        if first is not None:
            marks = ",".join("?" * len(first))
            db.execute(f"INSERT INTO {table} VALUES ({marks})", first)
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    insert("META_DATA", [("SCHEMA_VERSION", schema)])
    insert("HOST_INFO", [("5001", "sample")])
    insert("RANK_DEVICE_MAP", [(rank, capture.config.device(rank))])
    _device(capture, ids, insert, old)
    insert("CANN_API", _cann(capture, ids))
    _python(capture, ids, insert)
    kinds = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    parts = overlap(capture)
    sections = [(a, b, kinds.index(name)) for name, pairs in parts.items() for a, b in pairs]
    insert("OVERLAP_ANALYSIS", ((i, capture.config.device(rank), *s) for i, s in enumerate(sections)))
    insert("AICORE_FREQ", [(capture.config.device(rank), capture.window[0], 1800)])
    insert("STRING_IDS", ((i, text) for text, i in ids.items()))
    db.commit()
    db.close()
    return path


def _tid(capture: Capture, thread: str) -> int:
    return capture.rank.pid << 32 | capture.rank.pid + (0 if thread == "main" else 13)


def _cann(capture: Capture, ids: _Ids) -> Iterator[tuple[Any, ...]]:
    for span in capture.spans:
        if span.cat == "cann" and not capture.config.level0:
            kind, _, api = span.name.partition("@")
            yield span.start, span.end, LEVELS[kind], _tid(capture, span.thread), span.id, ids[api]


def _python(capture: Capture, ids: _Ids, insert: Any) -> None:
    """PYTORCH_API in order of ends, and the connection ids of what its rows launched."""
    here = {id(s) for s in capture.spans}
    launched: dict[int, list[int]] = {}
    for task in capture.tasks:
        op: Span | None = task.op
        while op is not None and id(op) not in here:  # the profiler came too late for the inner range
            op = op.parent
        if op is not None and task.call is not None:
            launched.setdefault(id(op), []).append(task.connection_id)
    rows, connections = [], []
    for number, span in enumerate(sorted((s for s in capture.spans if s.cat != "cann"), key=lambda s: s.end)):
        mine = [span.id] if span.cat in ("enqueue", "dequeue") else list(dict.fromkeys(launched.get(id(span), [])))
        connections += [(number, connection) for connection in mine]
        op_args: tuple[Any, ...] = (None, None, None, None)
        if span.cat == "cpu_op":
            op_args = (-1, 0, None, None)
            if span.name.startswith("aten::"):
                op_args = (-1, 0, ids["long int;\r\nScalar"], ids["8;\r\n"])
        rows.append(
            (str(span.start), str(span.end), _tid(capture, span.thread), number if mine else None, ids[span.name],
             *op_args, None, KINDS[span.cat])
        )  # fmt: skip
    insert("PYTORCH_API", rows)
    insert("CONNECTION_IDS", connections)


def _device(capture: Capture, ids: _Ids, insert: Any, old: bool) -> None:
    device, pid = capture.config.device(capture.rank.rank), capture.rank.pid
    tasks: list[tuple[Any, ...]] = []
    infos: list[tuple[Any, ...]] = []
    ops: list[tuple[Any, ...]] = []
    planes: list[tuple[Any, ...]] = []
    end_before = 0
    for task in capture.tasks:
        wait = max(task.start - end_before, 0) if end_before else 0
        end_before = task.end if task.recorded else end_before
        if task.stream < 0:
            continue
        number = len(tasks)
        host_name = HOST_NAMES.get(task.task_type, task.task_type) if task.kind == "kernel" else task.name
        context = 0 if task.kind == "kernel" and task.task_type.startswith("MIX") else NONE
        tasks.append(
            (task.start, task.end, device, task.connection_id, number, pid, ids[host_name], context, task.stream,
             task.task_id % 65536, task.model_id)
        )  # fmt: skip
        if task.kind == "kernel":
            infos.append(_info(task, number, ids, wait if old else None))
    groups = sorted({t.group for t in capture.tasks if t.group})
    for count, task in enumerate(t for t in capture.tasks if t.group):
        assert task.kernel is not None
        name, group = ids[task.name], ids[f"group_name_{groups.index(task.group)}"]
        row = (name, task.start, task.end, task.connection_id, group, count, 0, 0, 5, ids["MESH-RING"], 16,
               ids[task.kernel.op_type])  # fmt: skip
        ops.append(row if old else (*row, device))
        # What a collective looks like on its stream: the text export shows the same three.
        middle = max(task.end - 4000, task.start)
        parts = (
            ("Notify Wait", task.start, middle),
            ("SDMA", max(middle - 1500, task.start), task.end),
            ("Write Value", task.end, task.end),
        )
        for plane, (what, start, end) in enumerate(parts):
            number = len(tasks)
            tasks.append((start, end, device, task.connection_id, number, pid, ids[what], plane, 51, 300 + count, NONE))
            planes.append(
                (name, number, ids[what.replace(" ", "_")], plane, group, 70 + plane, 65535, capture.rank.rank, NONE,
                 0, 128, 5, 0, count)
            )  # fmt: skip
    insert("TASK", tasks)
    insert("COMPUTE_TASK_INFO", infos)
    insert("COMMUNICATION_OP", ops)
    insert("COMMUNICATION_TASK_INFO", planes)


def _info(task: Task, number: int, ids: _Ids, wait: int | None) -> tuple[Any, ...]:
    """A row of COMPUTE_TASK_INFO with what kernel_details.csv says of the task. wait: None in schema 1.2.0."""
    assert task.kernel is not None
    fill = {"n": max(task.tokens, 1), "bs": max(task.bs, 1)}
    shapes, out = task.kernel.shapes.format(**fill), task.kernel.out.format(**fill)
    inputs = shapes.count(";") + 1
    dtypes = ";".join((task.kernel.dtypes.split(";") * inputs)[:inputs])
    core = task.kernel.core
    blocks = (40 if core == "AI_VECTOR_CORE" else 20, 40 if core.startswith("MIX") else 0)
    state = "dynamic" if task.model_id == NONE else "static"
    texts = (
        core, task.kernel.op_type, ";".join(["ND"] * inputs), dtypes, quoted(shapes)[2:-2], "ND",
        dtypes.split(";")[0], quoted(out)[2:-2], "N/A",
    )  # fmt: skip
    extra = ids[state] if wait is None else wait
    return (ids[task.name], number, *blocks, *(ids[t] for t in texts), extra)
