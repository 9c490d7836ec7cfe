"""memory_record.csv and npu_module_mem.csv to counters.

Specified by the headers that the exporters write: `Component`, `Timestamp(us)`, one column per value with its unit
(`Total Allocated(MB)`), and the device (`Device Type`, `Device` or `Device_id`). A counter is one component, one
value column and one device; rows need not be sorted. Ignored on purpose: `Stream Ptr`, since the totals are those of
the component, whichever stream it was that asked. These are side files: damage gives a warning, never a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from converter.readers import arrow_arrays, csv_cells
from converter.readers.csv_cells import Raw
from converter.readers.csv_table import Chunk, TableReader, read_chunks
from converter.readers.csv_text import CsvFile
from converter.readers.exact_time import EPOCH_2000_NS, OK
from schemas.columns import UNITS_NS, ColumnSpec, plain_header
from schemas.errors import InputError, printable
from schemas.tally import Tally
from schemas.timeline import Int64

Warn = Callable[[str, bool], None]
Float64 = npt.NDArray[np.float64]

_COMPONENT = ("component", "event")
_DEVICE = ("devicetype", "device", "deviceid")
_TIMESTAMP = re.compile(r"^timestamp\((ns|us|ms|s)\)$")
_VALUE = re.compile(r"^(.*?)\s*\(([KMGT]?i?B)\)$")


class MemoryCounter(NamedTuple):
    """One counter, samples in file order. name: e.g. `APP Total Reserved`, with the device behind it where the files
    name more than one; unit: `MB`; ts: int64[n] ns; values: float64[n], unscaled."""

    name: str
    unit: str
    ts: Int64
    values: Float64


def read_memory(paths: Sequence[Path], warn: Warn, tally: Tally | None = None) -> list[MemoryCounter]:
    """The counters of memory_record and npu_module_mem files. Empty cells are no samples.

    tally counts samples read and dropped (one per value cell); without one, a warning says what was dropped. A file
    that can't be used is named in a warning.
    """
    silent = tally is None
    tally = Tally() if tally is None else tally
    samples: dict[tuple[str, str, str], list[tuple[Int64, Float64]]] = {}  # (counter, unit, device)
    for path in paths:
        try:
            _read_file(path, samples, tally, warn)
        except InputError as error:
            warn(f"{error}; left out", True)
    if silent:
        for reason, count in tally.dropped.items():
            warn(f"{tally.first.get(reason, 'memory')}: {count} memory samples left out: {reason}", False)
    several = len({device for _, _, device in samples}) > 1
    counters = []
    for (name, unit, device), parts in samples.items():
        ts = np.concatenate([ts for ts, _ in parts])
        values = np.concatenate([values for _, values in parts])
        counters.append(MemoryCounter(f"{name} {device}" if several and device else name, unit, ts, values))
    return counters


def _read_file(
    path: Path, samples: dict[tuple[str, str, str], list[tuple[Int64, Float64]]], tally: Tally, warn: Warn
) -> None:
    with CsvFile(path) as file:
        component, device, timestamp, values = _columns(path, file.header)
        specs = [spec for spec in (component, device, timestamp) if spec is not None] + list(values)
        line = file.first_line
        place = printable(path.name)
        broken = 0
        bad_utf8 = False
        for chunk, numbers in read_chunks(TableReader(file, specs), partial(_numbers, values)):
            _add_chunk(chunk, numbers, (component, device, timestamp), values, samples, tally, (place, line))
            broken += len(chunk.broken)
            bad_utf8 |= chunk.bad_utf8 >= 0
            line += chunk.lines
    if broken:
        warn(f"{place}: {broken} rows have too few or too many cells, left out", True)
    if bad_utf8:
        warn(f"{place}: bytes that are not UTF-8, each replaced by U+FFFD", True)


def _columns(
    path: Path, header: Sequence[str]
) -> tuple[ColumnSpec | None, ColumnSpec | None, ColumnSpec, list[ColumnSpec]]:
    component: ColumnSpec | None = None
    device: ColumnSpec | None = None
    timestamp: ColumnSpec | None = None
    values: list[ColumnSpec] = []
    for index, text in enumerate(header):
        form, text = plain_header(text), text.strip()
        if form in _COMPONENT and component is None:
            component = ColumnSpec(index, text, "component", "text")
        elif form in _DEVICE and (device is None or _DEVICE.index(form) < _DEVICE.index(plain_header(device.header))):
            device = ColumnSpec(index, text, "device", "text")
        elif found := _TIMESTAMP.match(form):
            timestamp = ColumnSpec(index, text, "start", "time", UNITS_NS[found[1]])
        elif _VALUE.match(text):
            values.append(ColumnSpec(index, text, text, "float"))
    if timestamp is None or not values:
        missing = "Timestamp(us)" if timestamp is None else "Total Reserved(MB)"
        raise InputError(path, f"no column `{missing}`")
    return component, device, timestamp, values


def _numbers(values: Sequence[ColumnSpec], chunk: Chunk) -> tuple[Chunk, list[tuple[Float64, Raw]]]:
    return chunk, [csv_cells.floats(chunk.cells[spec.index], spec.index) for spec in values]


def _add_chunk(
    chunk: Chunk,
    cells: Sequence[tuple[Float64, Raw]],
    labels: tuple[ColumnSpec | None, ColumnSpec | None, ColumnSpec],
    values: Sequence[ColumnSpec],
    samples: dict[tuple[str, str, str], list[tuple[Int64, Float64]]],
    tally: Tally,
    place: tuple[str, int],
) -> None:
    component, device, timestamp = labels
    ts, status = csv_cells.times(chunk.cells[timestamp.index], timestamp.unit_ns)
    late = ts >= EPOCH_2000_NS
    in_range = late if late.any() else ts >= 0
    group, names = _groups(chunk, component, device)

    def drop(reason: str, rows: npt.NDArray[np.bool_]) -> None:
        if rows.any():
            name, line = place
            tally.drop(reason, int(rows.sum()), f"{name}, line {line + chunk.line_of(int(rows.argmax()))}")

    for spec, (numbers, raw) in zip(values, cells, strict=True):
        text = np.zeros(chunk.rows, np.bool_)
        text[raw.rows] = True
        valid = np.isfinite(numbers)
        present = valid | text
        tally.read += int(present.sum())
        unreadable = text | (present & (status != OK))
        drop("not a number", unreadable)
        drop("start out of range", present & ~unreadable & ~in_range)
        good = valid & ~unreadable & in_range
        found = _VALUE.match(spec.header)
        key, unit = (found[1], found[2]) if found else (spec.header, "")
        for number, (component_name, device_name) in enumerate(names):
            rows = np.flatnonzero(good & (group == number))
            if len(rows):
                counter = (f"{component_name} {key}".strip(), unit, device_name)
                samples.setdefault(counter, []).append((ts[rows], numbers[rows]))


def _groups(
    chunk: Chunk, component: ColumnSpec | None, device: ColumnSpec | None
) -> tuple[Int64, list[tuple[str, str]]]:
    """Per row the number of its (component, device), and those."""
    nothing = arrow_arrays.strings([""] * chunk.rows)
    coded = [csv_cells.texts(nothing if spec is None else chunk.cells[spec.index]) for spec in (component, device)]
    (first, components), (second, devices) = coded
    pairs = first.astype(np.int64) * (len(devices) + 1) + second
    distinct, group = np.unique(pairs, return_inverse=True)
    names = [(components[p // (len(devices) + 1)], devices[p % (len(devices) + 1)]) for p in distinct.tolist()]
    return group.astype(np.int64), names
