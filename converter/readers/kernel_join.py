"""Joins the chunks of kernel CSVs, file by file, into KernelRows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.readers.exact_time import EPOCH_2000_NS
from converter.readers.kernel_part import Part
from schemas import columns
from schemas.errors import printable
from schemas.kernel_rows import KernelRows
from schemas.tally import Tally
from schemas.timeline import NO_TEXT, NULL, Bool, Column, Int32, Int64, StringPool

Warn = Callable[[str, bool], None]

#: Where a row has no name, what stands for it (the exporters do the same for tasks without an op).
_NAME_FALLBACKS = ("op_type", "task_type", "accelerator_core")
_NO_ARGUMENTS = (columns.NAME, columns.DEVICE, columns.STREAM)
_ABSENT: dict[str, tuple[type[np.generic], Any]] = {
    "int": (np.int32, NULL),
    "text": (np.int32, NO_TEXT),
    "float": (np.float64, np.nan),
    "time": (np.int64, NULL),
}


class FileNotes:
    """What is to be said about one file, once each."""

    def __init__(self, path: Path, warn: Warn) -> None:
        self.name, self.warn = printable(path.name), warn
        self.unclosed: list[int] = []
        self.headers: list[int] = []
        self.bad_utf8: int | None = None
        self.last_broken = 0
        self.raws: dict[str, tuple[int, int]] = {}  # header -> count, first line

    def place(self, line: int) -> str:
        return f"{self.name}, line {line}"

    def add(self, part: Part, line: int) -> None:
        """line: the number of the chunk's first line."""
        chunk = part.chunk
        self.unclosed += [line + at for at in chunk.unclosed]
        self.headers += [line + at for at in chunk.repeated_headers]
        if chunk.bad_utf8 >= 0 and self.bad_utf8 is None:
            self.bad_utf8 = line + chunk.bad_utf8
        if chunk.broken:
            self.last_broken = line + chunk.broken[-1][1]
        for key, raw in part.raws.items():
            count, first = self.raws.get(key, (0, line + part.raw_lines[key]))
            self.raws[key] = count + len(raw.rows), first

    def finish(self, last_line: int, ends_with_newline: bool) -> None:
        if self.bad_utf8 is not None:
            what = "bytes that are not UTF-8, each replaced by U+FFFD; save the file as UTF-8"
            self.warn(f"{self.place(self.bad_utf8)}: {what}", True)
        if self.unclosed:
            more = f" ({len(self.unclosed)} such lines)" if len(self.unclosed) > 1 else ""
            self.warn(f"{self.place(self.unclosed[0])}: a quote is not closed{more}", True)
        if not ends_with_newline and self.last_broken == last_line:
            self.warn(f"{self.place(last_line)}: the file ends inside this row", True)
        if self.headers:
            what = f"the header stands again among the rows, left out ({len(self.headers)} in all)"
            self.warn(f"{self.place(self.headers[0])}: {what}", False)
        for key, (count, first) in self.raws.items():
            what = f"{count} cells of another type than `{printable(key, 60)}` has, kept as text"
            self.warn(f"{self.place(first)}: {what}", False)


class _Growing:
    """A column that grows. Room is reserved but not touched, so it costs no memory before it is filled."""

    def __init__(self, kind: str, room: int) -> None:
        dtype, self.absent = _ABSENT[kind]
        self.array: npt.NDArray[Any] = np.empty(room, dtype)
        self.rows = 0

    def pad(self, rows: int) -> None:
        """Absent up to `rows`: a file before did not have the column."""
        if rows > self.rows:
            self._reserve(rows, self.array.dtype)
            self.array[self.rows : rows] = self.absent
            self.rows = rows

    def add(self, values: npt.NDArray[Any]) -> None:
        rows = self.rows + len(values)
        self._reserve(rows, np.promote_types(self.array.dtype, values.dtype))
        self.array[self.rows : rows] = values
        self.rows = rows

    def _reserve(self, rows: int, dtype: np.dtype[Any]) -> None:
        if rows > len(self.array) or dtype != self.array.dtype:
            room = len(self.array) if rows <= len(self.array) else max(rows, len(self.array) * 3 // 2)
            array = np.empty(room, dtype)
            array[: self.rows] = self.array[: self.rows]
            self.array = array

    @property
    def values(self) -> npt.NDArray[Any]:
        return self.array[: self.rows]


class RowJoin:
    """Collects parts; `finish` gives the rows."""

    def __init__(self, strings: StringPool, tally: Tally, warn: Warn) -> None:
        self.strings, self.tally, self.warn = strings, tally, warn
        self.rows = 0
        self.room = 0
        self.ts = _Growing("time", 0)
        self.dur = _Growing("time", 0)
        self.kinds: dict[str, str] = {}  # key -> int, text or float, in the order of the first file's columns
        self.values: dict[str, _Growing] = {}
        self.raws: dict[str, list[tuple[Int64, Int32]]] = {}
        self.early: list[str] = []  # places of rows that start before 2000, the first of each part

    def reserve(self, rows: int) -> None:
        """About how many rows there will be: so many that one more copy is rarely needed."""
        self.room = rows
        self.ts, self.dur = _Growing("time", rows), _Growing("time", rows)

    def add(self, part: Part, notes: FileNotes, line: int) -> None:
        """line: the number of the part's first line in its file."""
        self.tally.read += part.chunk.rows + len(part.chunk.broken)
        for reason, count, at in part.drops:
            self.tally.drop(reason, count, notes.place(line + at))
        if part.early_line >= 0:
            self.early.append(notes.place(line + part.early_line))
        notes.add(part, line)
        self.ts.add(part.ts)
        self.dur.add(part.dur)
        for key, column in part.columns.items():
            if isinstance(column, tuple):
                indices, values = column
                self._append(key, "text", self.strings.add_all(values)[indices] if values else indices)
            else:
                self._append(key, "float" if column.dtype == np.float64 else "int", column)
        for key, raw in part.raws.items():
            self.raws.setdefault(key, []).append((raw.rows + self.rows, self.strings.add_all(raw.texts)))
        self.rows += len(part.ts)

    def _append(self, key: str, kind: str, array: npt.NDArray[Any]) -> None:
        column = self.values.get(key)
        if column is None:
            column = self.values[key] = _Growing(kind, self.room)
            self.kinds[key] = kind
        column.pad(self.rows)
        column.add(array)

    def finish(self) -> KernelRows:
        """The joined rows. Nothing can be added after."""
        ts, keep = self._epoch(self.ts.values)
        dur = self.dur.values if keep is None else self.dur.values[keep]
        found: dict[str, npt.NDArray[Any]] = {}
        for key in self.kinds:
            column = self.values.pop(key)
            column.pad(self.rows)
            found[key] = column.values if keep is None else column.values[keep]
        n = len(ts)
        nothing, no_text = np.full(n, NULL, np.int32), np.zeros(n, np.int32)
        name = self._names(found, no_text)
        core = found.get("accelerator_core", no_text)
        communication = np.zeros(n, np.bool_)
        for text in columns.COMMUNICATION_CORES:
            communication |= core == self.strings.find(text)
        rows = KernelRows(
            ts=ts,
            dur=dur,
            name=name,
            device_id=found.get(columns.DEVICE, nothing),
            stream_id=found.get(columns.STREAM, nothing),
            task_id=found.get(columns.TASK, nothing),
            model_id=found.get(columns.MODEL, nothing),
            op_type=found.get("op_type", no_text),
            op_state=found.get("op_state", no_text),
            accelerator_core=core,
            input_shapes=found.get("input_shapes", no_text),
            wait_ns=found[columns.WAIT] if columns.WAIT in found else np.full(n, NULL, np.int64),
            communication=communication,
        )
        rows.columns = self._arguments(found, keep)
        self._count_duplicates(rows)
        return rows

    def _epoch(self, ts: Int64) -> tuple[Int64, Bool | None]:
        """Drops starts before 2000 among epoch starts; a table whose starts are all small is relative and legal."""
        if not self.early or not len(ts) or ts.max() < EPOCH_2000_NS:
            return ts, None
        keep = ts >= EPOCH_2000_NS
        self.tally.drop("start out of range", len(ts) - int(keep.sum()), self.early[0])
        return ts[keep], keep

    def _names(self, found: dict[str, npt.NDArray[Any]], no_text: Int32) -> Int32:
        name = found.get(columns.NAME, no_text)
        for key in _NAME_FALLBACKS:
            if name.all() or key not in found:
                continue
            name = np.where(name == NO_TEXT, found[key], name)
        return name if name.all() else np.where(name == NO_TEXT, np.int32(self.strings.add("N/A")), name)

    def _arguments(self, found: dict[str, npt.NDArray[Any]], keep: Bool | None) -> list[Column]:
        out = []
        for key, array in found.items():
            if key not in _NO_ARGUMENTS:
                kind = self.kinds[key]
                absent = np.isnan(array) if kind == "float" else array == (NO_TEXT if kind == "text" else NULL)
                if not absent.all():
                    valid = ~absent if absent.any() else None
                    out.append(
                        Column(key, "float" if kind == "float" else "text" if kind == "text" else "int", array, valid)
                    )
        for key, parts in self.raws.items():
            array = np.zeros(self.rows, np.int32)
            for rows, ids in parts:
                array[rows] = ids
            array = array if keep is None else array[keep]
            if array.any():
                out.append(Column(f"{key}_raw", "text", array, array != NO_TEXT))
        return out

    def _count_duplicates(self, rows: KernelRows) -> None:
        """Identical rows are kept, and counted in a warning: files joined twice look like that."""
        ts = rows.ts
        order = np.arange(len(ts)) if len(ts) < 2 or (np.diff(ts) >= 0).all() else np.argsort(ts, kind="stable")
        same = np.diff(ts[order]) == 0
        if not same.any():
            return
        tied = np.zeros(len(ts), np.bool_)
        tied[1:] |= same
        tied[:-1] |= same
        some = order[tied]
        # A 64-bit hash of the row instead of a sort over twenty columns: two rows in ten million that are not equal
        # share one with a chance of 5e-6.
        row_hash = np.zeros(len(some), np.uint64)
        hashed: list[npt.NDArray[Any]] = [
            ts,
            rows.dur,
            rows.name,
            rows.device_id,
            rows.stream_id,
            *(c.values for c in rows.columns),
        ]
        for values in hashed:
            row_hash ^= values[some].astype(np.int64 if values.dtype.kind == "i" else np.float64).view(np.uint64)
            row_hash *= np.uint64(0x9E3779B97F4A7C15)
            row_hash ^= row_hash >> np.uint64(32)
        row_hash.sort()
        if count := int((row_hash[1:] == row_hash[:-1]).sum()):
            self.warn(f"{count} rows repeat another row in every cell that is read; all are kept", False)
