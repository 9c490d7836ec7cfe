"""What a capture may hold, and what is made of each file: for `--describe` and docs/sources.md, which a test keeps equal.

Formats: each reader's first lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from converter.file_kinds import FileKind


@dataclass(frozen=True)
class Source:
    """One kind of file. names: examples; gives: what is read from it; needs: when it is read, "" for always;
    readers: the modules under converter/readers that know its format."""

    kind: FileKind
    names: tuple[str, ...]
    gives: str
    needs: str
    readers: tuple[str, ...]


_TRACE = (
    "trace_json", "trace_batches", "trace_counters", "trace_flows", "trace_pairs", "trace_tracks", "json_events",
    "json_text", "event_chunk", "event_by_hand", "arg_columns",
)  # fmt: skip
_CSV = ("csv_table", "csv_text", "csv_cells", "arrow_arrays")
_SQLITE = (
    "sqlite_export", "sqlite_tables", "sqlite_texts", "sqlite_rows", "sqlite_device", "sqlite_host", "sqlite_flows",
    "sqlite_counters",
)  # fmt: skip

SOURCES: tuple[Source, ...] = (
    Source(
        "kernels", ("kernel_details.csv", "op_summary_20260101000005.csv", "op_summary_slice_0_20260101000005.csv"),
        "recorded tasks: device, stream, ids, shapes, waits; PMU columns with --pmu", "",
        ("kernel_csv", "kernel_part", "kernel_join", *_CSV),
    ),
    Source(
        "trace", ("trace_view.json", "msprof_20260101000004.json", "1769-TP-0-DP-0-EP-0-DECODE.trace.json.gz"),
        "host calls and operators, tasks on streams, collectives and their planes, flows, counters, Overlap Analysis; "
        "of Kineto also GPU kernels as recorded tasks", "", _TRACE,
    ),
    Source(
        "db", ("ascend_pytorch_profiler_0.db", "ascend_mindspore_profiler_0.db", "msprof_20260101000004.db"),
        "the same as from text: recorded tasks, host calls and operators with shapes and call chains, collectives, "
        "connections as flows, marks, counters, Overlap Analysis, steps; PMU values with --pmu",
        "without a text export beside it, or with --prefer db", _SQLITE,
    ),
    Source(
        "task_time", ("task_time_20260101000005.csv",), "tasks with start and stop; compute tasks are recorded tasks",
        "without a kernel table and a trace", ("kernel_csv", "kernel_part", *_CSV),
    ),
    Source(
        "memory", ("memory_record.csv",), "counters: allocated, reserved and active memory per component",
        "not beside a database that is read", ("memory_csv", *_CSV),
    ),
    Source(
        "step_trace", ("step_trace_time.csv",), "the vendor's own times per step, for comparison; not in the trace", "",
        ("side_files",),
    ),
    Source(
        "communication", ("communication.json",), "arguments of each collective: step, elapsed, wait, idle, bandwidth",
        "", ("hccl_detail",),
    ),
    Source(
        "communication_matrix", ("communication_matrix.json",), "arguments of collectives: what each link carried", "",
        ("hccl_detail",),
    ),
    Source(
        "analysis", ("analysis.db",), "the detail of collectives, as communication.json has it",
        "with a database, or without communication.json", ("hccl_detail",),
    ),
    Source(
        "iterations", ("step_trace_20260101000005.csv",), "slices per iteration, with its forward-backward part and "
        "all-reduces", "", ("msprof_tables",),
    ),
    Source(
        "marks", ("msprof_tx_20260101000005.csv",), "marks and ranges of the user, on host and device",
        "without a trace, which holds them", ("msprof_tables",),
    ),
    Source(
        "communication_statistic", ("communication_statistic_20260101000005.csv",), "facts: sums per operator type", "",
        ("msprof_tables",),
    ),
)  # fmt: skip

#: Files beside these that are read, by name. They hold facts and clock relations.
SIDE_FILES: tuple[tuple[str, str], ...] = (
    (r"profiler_info(_\d+)?\.json", "profiler options, rank, clock relations"),
    (r"profiler_metadata\.json", "groups of ranks, which label the communication tracks; run facts"),
    (r"(start|end)_info(\.\d+)?", "clock relations of msprof"),
    (r"(host|dev)_start\.log(\.\d+)?", "clock relations of msprof"),
    (r"info\.json(\.\d+)?", "host, rank and counter frequency of msprof"),
)

#: Files that are not read, by name, and why.
NOT_READ: tuple[tuple[str, str], ...] = (
    (r"operator_details.*\.csv", "no times in it; the trace has the operators"),
    (r"(op|api)_statistic.*\.csv", "sums of what the slices show"),
    (r"operator_memory.*\.csv", "single allocations; the counters have their sums"),
    (r"npu_module_mem.*\.csv", "memory by module of CANN"),
    (r"(msprof_tx|step_trace).*\.json", "the same as the CSV of this name"),
    (r"(l2_cache|aicpu|dp|soc_pmu|hbm|llc_.*|hccs|pcie|nic|roce|ddr|npu_mem|ai_core_utilization).*\.csv",
     "samples that the trace or database holds as counters, or none of a timeline"),
    (r"sample\.json(\.\d+)?", "the profiler's options again"),
    (r"README\.txt", "the exporter's own description"),
    (r".*\.(db-wal|db-shm|db-journal)", "part of the database beside it"),
)  # fmt: skip

#: Folders of raw data, which only the vendor's tools can parse.
RAW_FOLDERS = ("data", "sqlite", "FRAMEWORK", "logs")


def source_of(kind: FileKind) -> Source:
    return next(source for source in SOURCES if source.kind == kind)


def why_not_read(name: str) -> str:
    """Why a file of this name is not read."""
    for pattern, why in NOT_READ:
        if re.fullmatch(pattern, name, re.IGNORECASE):
            return why
    return "not a file that is known here"


def side_file(name: str) -> str | None:
    """What a side file of this name holds, or None."""
    return next((what for pattern, what in SIDE_FILES if re.fullmatch(pattern, name)), None)


def as_markdown() -> str:
    """The table of docs/sources.md."""
    lines = ["| files, for example | what is read | when | readers |", "|---|---|---|---|"]
    for s in SOURCES:
        names = ", ".join(f"`{name}`" for name in s.names)
        readers = ", ".join(f"`{reader}`" for reader in s.readers)
        lines.append(f"| {names} | {s.gives} | {s.needs or 'always'} | {readers} |")
    return "\n".join(lines)
