"""One chunk of a kernel CSV to numpy arrays: times as ns, ids, text numbers; rows that can't be used are left out.

Runs in the threads that parse, so it knows nothing of the StringPool or of other chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.readers import csv_cells
from converter.readers.csv_cells import Raw
from converter.readers.csv_table import Chunk
from converter.readers.exact_time import EPOCH_2000_NS, MAX_NS, NOT_A_NUMBER, OK, OUT_OF_RANGE, Status
from schemas import columns
from schemas.columns import ColumnSpec
from schemas.timeline import Int32, Int64

_NOT_A_NUMBER, _OUT_OF_RANGE, _NEGATIVE = 1, 2, 3
_REASONS = {_NOT_A_NUMBER: "not a number", _OUT_OF_RANGE: "start out of range", _NEGATIVE: "negative duration"}


@dataclass
class Part:
    """The usable rows of one chunk, still with the chunk's own text numbers."""

    chunk: Chunk
    ts: Int64
    dur: Int64
    #: key -> ids or waits (int32 or int64, NULL absent), float64 (NaN absent), or (indices int32, distinct texts)
    columns: dict[str, npt.NDArray[Any] | tuple[Int32, list[str]]] = field(default_factory=dict)
    raws: dict[str, Raw] = field(default_factory=dict)
    raw_lines: dict[str, int] = field(default_factory=dict)  # key -> line of its first raw cell
    drops: list[tuple[str, int, int]] = field(default_factory=list)  # reason, count, first line
    early_line: int = -1  # line of the first usable row that starts before 2000


def part_of(chunk: Chunk, specs: Sequence[ColumnSpec], decimal_comma: bool, by_stop: bool) -> Part:
    """One chunk to numpy, its unusable rows dropped. Runs in the threads that parse."""
    by_key = {spec.key: spec for spec in specs}

    def time_of(key: str) -> tuple[Int64, Status] | None:
        spec = by_key.get(key)
        return None if spec is None else csv_cells.times(chunk.cells.pop(spec.index), spec.unit_ns, decimal_comma)

    ts, start_status = time_of(columns.START) or (np.empty(0, np.int64), np.empty(0, np.int8))
    dur, dur_status = _durations(ts, start_status, time_of(columns.DURATION), time_of(columns.STOP), by_stop)
    why = _unusable(ts, start_status, dur, dur_status)
    keep = why == OK
    part = Part(chunk, ts, dur)
    if all_kept := bool(keep.all()):
        kept_rows = np.arange(chunk.rows)
    else:
        kept_rows = np.flatnonzero(keep)
        part.ts, part.dur = ts[keep], dur[keep]
        for code, reason in _REASONS.items():
            rows = np.flatnonzero(why == code)
            if len(rows):
                part.drops.append((reason, len(rows), chunk.line_of(rows[0])))
    for reason in ("short row", "long row"):
        lines = [line for which, line in chunk.broken if which == reason]
        if lines:
            part.drops.append((reason, len(lines), lines[0]))
    early = part.ts < EPOCH_2000_NS
    if early.any():
        part.early_line = chunk.line_of(kept_rows[int(early.argmax())])

    def add_raw(key: str, raw: Raw) -> None:
        raw = raw if all_kept else raw.keep(keep)
        if len(raw.rows):
            part.raws[key] = raw
            part.raw_lines[key] = chunk.line_of(kept_rows[raw.rows[0]])

    for spec in specs:
        if spec.key in (columns.START, columns.DURATION, columns.STOP):
            continue
        cells = chunk.cells.pop(spec.index)
        if spec.kind == "text":
            indices, values = csv_cells.texts(cells)
            part.columns[spec.key] = (indices if all_kept else indices[keep], values)
        elif spec.kind == "int":
            numbers, raw = csv_cells.ids(
                cells, spec.index, columns.NO_ID if spec.key in columns.KEYS_WITH_NO_ID else None
            )
            part.columns[spec.key] = numbers if all_kept else numbers[keep]
            add_raw(spec.key, raw)
        elif spec.kind == "float":
            reals, raw = csv_cells.floats(cells, spec.index)
            part.columns[spec.key] = reals if all_kept else reals[keep]
            add_raw(spec.key, raw)
        else:  # a wait: NULL where absent, raw where it is text or negative
            waits, raw = csv_cells.waits(cells, spec.index, spec.unit_ns, decimal_comma)
            part.columns[spec.key] = waits if all_kept else waits[keep]
            add_raw(spec.key, raw)
    return part


def _durations(
    ts: Int64,
    start_status: Status,
    given: tuple[Int64, Status] | None,
    stop: tuple[Int64, Status] | None,
    by_stop: bool,
) -> tuple[Int64, Status]:
    """stop - start where asked for or where no duration is given, else the duration."""
    if given is not None and (stop is None or not by_stop):
        return given
    if stop is None:
        raise ValueError("neither a duration nor a stop")
    ends, end_status = stop
    usable = (start_status == OK) & (end_status == OK)
    # Both lie in int64, their difference may not: a start that far back is dropped as out of range anyway.
    dur = np.where(usable, ends - np.where(usable, ts, 0), 0)
    status = end_status
    if given is not None:
        dur = np.where(usable, dur, given[0])
        status = np.where(usable, OK, given[1]).astype(np.int8)
    return dur, status


def _unusable(ts: Int64, start_status: Status, dur: Int64, dur_status: Status) -> Status:
    """Per row 0, or the number of its reason."""
    why = np.zeros(len(ts), np.int8)
    if not len(ts):
        return why
    readable = not (start_status.any() or dur_status.any())
    if readable and ts.min() >= 0 and dur.min() >= 0 and int(ts.max()) + int(dur.max()) <= MAX_NS:
        return why
    why[dur < 0] = _NEGATIVE
    why[(ts < 0) | (dur > MAX_NS - np.maximum(ts, 0))] = _OUT_OF_RANGE
    why[(start_status == OUT_OF_RANGE) | (dur_status == OUT_OF_RANGE)] = _OUT_OF_RANGE
    why[(start_status == NOT_A_NUMBER) | (dur_status == NOT_A_NUMBER)] = _NOT_A_NUMBER
    return why
