"""Columns of the exporters' CSV files: every header that is known, the key it stands for, its kind and its unit.

Sources: headers measured on real exports of CANN 7.0 to 8.3 and 2026 builds, the msprof and torch_npu parsers, the
msprof-analyze reader for MindSpore (`Step ID`). Headers are compared without case, spaces and underscores, because
the exporters themselves disagree (`Step Id`, `Step ID`, `Device_id`).

A column that is not listed keeps its header as its key and its cells as text. Columns of the performance monitoring
unit (`aic_*`, `aiv_*`, ...) are known by their form and left out unless asked for: there are up to fifty of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "int", "float", "time"]

#: Roles that are the slice or its track, not an argument of it.
NAME, START, DURATION, STOP, WAIT = "name", "start", "duration", "stop", "wait_ns"
DEVICE, STREAM, TASK, MODEL = "device_id", "stream_id", "task_id", "model_id"

#: Ids of this value mean "none" (2^32 - 1), for the keys listed.
NO_ID = 4294967295
KEYS_WITH_NO_ID = frozenset({"model_id", "subtask_id"})

#: Cells that mean "absent".
ABSENT_CELLS = ("", "N/A")

#: `Accelerator Core` / `Task Type` of a collective's row (HCCL up to CANN 8.0, COMMUNICATION from 8.3).
COMMUNICATION_CORES = ("HCCL", "COMMUNICATION")

UNITS_NS = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}

_TEXT_KEYS = {
    # kernel_details*.csv, then the names of op_summary*.csv, then task_time*.csv
    "name": ("Name", "Op Name", "kernel_name"),
    "op_type": ("Type", "OP Type"),
    "op_state": ("OP State",),
    "accelerator_core": ("Accelerator Core", "Task Type"),
    "hf32_eligible": ("HF32 Eligible",),
    "input_shapes": ("Input Shapes",),
    "input_data_types": ("Input Data Types",),
    "input_formats": ("Input Formats",),
    "output_shapes": ("Output Shapes",),
    "output_data_types": ("Output Data Types",),
    "output_formats": ("Output Formats",),
    "task_type": ("kernel_type",),
}
_INT_KEYS = {
    "step_id": ("Step Id",),
    "device_id": ("Device_id",),
    "model_id": ("Model ID",),
    "task_id": ("Task ID",),
    "stream_id": ("Stream ID",),
    "block_dim": ("Block Dim",),
    "block_num": ("Block Num",),
    "mix_block_dim": ("Mix Block Dim",),
    "mix_block_num": ("Mix Block Num",),
    "context_id": ("Context ID",),
    "batch_id": ("Batch Id",),
    "subtask_id": ("Subtask Id",),
    "connection_id": ("connection_id",),
}
_TIME_KEYS = {  # the unit stands in the header: `Start Time(us)`
    "start": ("Start Time", "Task Start Time", "task_start"),
    "duration": ("Duration", "Task Duration", "task_time"),
    "stop": ("task_stop",),
    "wait_ns": ("Wait Time", "Task Wait Time"),
}
#: What a bare CSV may call its start and duration besides (`npu-perfetto gaps`).
_PLAIN_TIME_KEYS = {
    "start": ("start", "ts", "timestamp", "begin", "start_time"),
    "duration": ("dur", "duration", "duration_time", "elapsed", "elapsed_time"),
    "stop": ("end", "stop", "end_time", "stop_time"),
    "wait_ns": ("wait", "wait_time"),
}

_UNIT = re.compile(r"^(.*?)[\s_]*[(\[]\s*(ns|us|ms|s)\s*[)\]]$", re.IGNORECASE)
_PLAIN_UNIT = re.compile(r"^(.*?)[\s_]+(ns|us|ms)$", re.IGNORECASE)
_PMU = re.compile(
    r"^(aic|aiv|aicore)_|^(cube_utilization|memory_bound|total_cycles)\b"
    # single-core chips print the same metrics without a prefix
    r"|^(vec|mac|scalar|mte[123]|fixpipe|icache_miss|l0[abc]|l1|l2|main_mem|ub|vector|cube)_\w*"
    r"(time|ratio|rate|bw|fops|cycles|hit|datas|allocate|miss)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ColumnSpec:
    """One column of one file. index: its place in the file; header: as written; unit_ns: of a time, else 1."""

    index: int
    header: str
    key: str
    kind: Kind
    unit_ns: int = 1
    pmu: bool = False
    canonical: bool = True  # the key is one of ours, with one type for the whole trace


def plain_header(header: str) -> str:
    """The form in which headers are compared."""
    return re.sub(r"[\s_]+", "", header).lower()


def _lookup(tables: Sequence[Mapping[str, tuple[str, ...]]]) -> dict[str, str]:
    return {plain_header(h): key for table in tables for key, headers in table.items() for h in headers}


_TEXTS, _INTS, _TIMES = _lookup([_TEXT_KEYS]), _lookup([_INT_KEYS]), _lookup([_TIME_KEYS])
_PLAIN_TIMES = _lookup([_PLAIN_TIME_KEYS, _TIME_KEYS])


def is_pmu(header: str) -> bool:
    """Whether the header is one of the performance monitoring unit's."""
    return _PMU.search(header.strip()) is not None


def column_spec(index: int, header: str, *, plain: bool = False) -> ColumnSpec:
    """What one column is. plain: a bare CSV with start and duration under any of their usual names."""
    header = header.strip()
    found = _UNIT.match(header) or (_PLAIN_UNIT.match(header) if plain else None)
    if found:
        key = (_PLAIN_TIMES if plain else _TIMES).get(plain_header(found[1]))
        if key:
            return ColumnSpec(index, header, key, "time", UNITS_NS[found[2].lower()])
    form = plain_header(header)
    if form in _TEXTS:
        return ColumnSpec(index, header, _TEXTS[form], "text")
    if form in _INTS:
        return ColumnSpec(index, header, _INTS[form], "int")
    if is_pmu(header):
        return ColumnSpec(index, header, header, "float", pmu=True, canonical=False)
    return ColumnSpec(index, header, header, "text", canonical=False)


def column_specs(headers: Sequence[str], *, pmu: bool = False, plain: bool = False) -> list[ColumnSpec]:
    """The columns of a file that are to be read, in file order.

    A second column with a key that is taken keeps its header as key and its cells as text. Columns without a header
    are left out, PMU columns unless `pmu`.
    """
    specs: list[ColumnSpec] = []
    taken: set[str] = set()
    for index, header in enumerate(headers):
        spec = column_spec(index, header, plain=plain)
        if not spec.header or (spec.pmu and not pmu):
            continue
        if spec.key in taken:
            key, number = spec.header, 2
            while key in taken:
                key, number = f"{spec.header} ({number})", number + 1
            spec = ColumnSpec(index, spec.header, key, "text", canonical=False)
        taken.add(spec.key)
        specs.append(spec)
    return specs
