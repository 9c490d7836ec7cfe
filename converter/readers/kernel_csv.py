"""kernel_details*.csv, op_summary*.csv and task_time*.csv to KernelRows; any CSV with times for the gap accounting.

Specified by the headers that the msprof and torch_npu exporters write (schemas/columns.py). One row is one kernel
or one collective. Columns are found by name. Ignored on purpose: PMU columns unless asked for, and in task_time the
task_time column where start and stop are given (it is rounded by itself and differs by a nanosecond).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from converter.readers.csv_table import CHUNK_BYTES, TableReader, read_chunks
from converter.readers.csv_text import CsvFile
from converter.readers.kernel_join import FileNotes, RowJoin, Warn
from converter.readers.kernel_part import part_of
from schemas import columns
from schemas.columns import ColumnSpec
from schemas.errors import InputError, printable
from schemas.kernel_rows import KernelRows
from schemas.tally import Tally
from schemas.timeline import StringPool


def read_kernel_rows(
    paths: Sequence[Path], strings: StringPool, tally: Tally, warn: Warn, *, pmu: bool = False
) -> KernelRows:
    """The rows of kernel_details or op_summary files; several files are slices of one table and are joined.

    tally counts rows read and dropped; warn(text, damaged) takes one line each. pmu: read the PMU columns too.
    Raises InputError: a file is empty, no CSV, or lacks its start, duration or name column.
    """
    return _read(paths, strings, tally, warn, pmu=pmu)


def read_task_time(paths: Sequence[Path], strings: StringPool, tally: Tally, warn: Warn) -> KernelRows:
    """The rows of task_time files; dur is stop - start. Otherwise as `read_kernel_rows`."""
    return _read(paths, strings, tally, warn, by_stop=True)


def read_plain_csv(path: Path, tally: Tally, warn: Warn, strings: StringPool | None = None) -> KernelRows:
    """The rows of any CSV that has a start and a duration (or an end) with their unit in the header.

    Known kernel CSVs come out as from `read_kernel_rows`; elsewhere `ts(ns)`, `start_us`, `Duration [ms]` and the
    like are taken, and a name is not needed. Raises InputError where there is no such column.
    """
    return _read([path], strings if strings is not None else StringPool(), tally, warn, plain=True)


def _wanted(path: Path, header: list[str], *, pmu: bool, plain: bool, by_stop: bool) -> list[ColumnSpec]:
    """The columns to read; InputError where one is missing that a row can't do without."""
    specs = columns.column_specs(header, pmu=pmu, plain=plain)
    keys = {spec.key for spec in specs}
    shown = ", ".join(header)
    missing = ""
    if columns.START not in keys:
        missing = "task_start(us)" if by_stop else "Start Time(us)"
    elif not keys & {columns.DURATION, columns.STOP}:
        missing = "task_time(us)" if by_stop else "Duration(us)"
    elif columns.NAME not in keys and not plain:
        missing = "kernel_name" if by_stop else "Name"
    if missing:
        what = f"no column `{missing}`; the first line is: {printable(shown, 120)}"
        raise InputError(path, what, todo="give a kernel CSV that the profiler exported")
    if plain:
        used = (columns.NAME, columns.START, columns.DURATION, columns.STOP, columns.WAIT, columns.MODEL)
        specs = [s for s in specs if s.key in (*used, columns.DEVICE, columns.STREAM, "accelerator_core")]
    return specs


def _read(
    paths: Sequence[Path],
    strings: StringPool,
    tally: Tally,
    warn: Warn,
    *,
    pmu: bool = False,
    plain: bool = False,
    by_stop: bool = False,
) -> KernelRows:
    join = RowJoin(strings, tally, warn)
    rows = 0
    for path in paths:
        with CsvFile(path) as file:
            specs = _wanted(path, file.header, pmu=pmu, plain=plain, by_stop=by_stop)
            notes = FileNotes(path, warn)
            line = file.first_line
            to_part = partial(part_of, specs=specs, decimal_comma=file.decimal_comma, by_stop=by_stop)
            for part in read_chunks(TableReader(file, specs), to_part):
                if not rows and part.chunk.rows:
                    total_bytes = sum(os.path.getsize(p) for p in paths if p.exists())
                    chunk_bytes = min(CHUNK_BYTES, file.size - file.start)
                    join.reserve(int(part.chunk.rows * total_bytes / chunk_bytes * 1.1))
                rows += part.chunk.rows
                join.add(part, notes, line)
                line += part.chunk.lines
            notes.finish(line - 1, file.read(file.size - 1, file.size) == file.newline)
    return join.finish()
