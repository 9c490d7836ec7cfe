"""Cells of one CSV column, as pyarrow parsed them, to numpy arrays. What has another type is kept apart, as text.

The engine refuses a table whose column changes type, so a public column has one type for the whole trace: a cell of
another type is `raw` and goes into an argument of its own (`task_id_raw`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from converter.readers.exact_time import NOT_A_NUMBER, OUT_OF_RANGE, Status, decimal_to_int64, read_ns
from schemas.columns import ABSENT_CELLS
from schemas.timeline import NULL, Bool, Int32, Int64, IntArray

INT32_MAX = 2**31 - 1
_NO_ROWS = np.empty(0, np.int64)


@dataclass
class Raw:
    """Cells that do not have their column's type. rows: int64[k]; texts: as written."""

    rows: Int64 = field(default_factory=lambda: _NO_ROWS)
    texts: list[str] = field(default_factory=list)

    def keep(self, mask: Bool) -> Raw:
        """The cells of the rows where the mask holds, with the row numbers that remain."""
        if not len(self.rows):
            return self
        kept = mask[self.rows]
        moved = np.cumsum(mask) - 1
        return Raw(moved[self.rows[kept]], [t for t, k in zip(self.texts, kept, strict=True) if k])


def times(cells: pa.Array, unit_ns: int, decimal_comma: bool = False) -> tuple[Int64, Status]:
    """ns int64[n] and status int8[n] of a decimal128 or string array (exact_time.read_ns)."""
    if not pa.types.is_decimal(cells.type):
        return read_ns(pc.replace_substring(cells, ",", ".") if decimal_comma else cells, unit_ns)
    ns, fits = decimal_to_int64(cells)
    status = np.zeros(len(ns), np.int8)
    if not fits.all():
        present = np.asarray(cells.is_valid())
        status[~present] = NOT_A_NUMBER
        status[present & ~fits] = OUT_OF_RANGE
    return ns, status


def waits(cells: pa.Array, unit_ns: int, decimal_comma: bool = False) -> tuple[Int64, Raw]:
    """ns int64[n] of recorded waits, NULL where absent; a wait that is negative or no number is raw."""
    ns, status = times(cells, unit_ns, decimal_comma)
    other = (status != 0) | (ns < 0)
    if not other.any():
        return ns, Raw()
    ns = np.where(other, NULL, ns)
    shown = cells.cast(pa.string()) if pa.types.is_decimal(cells.type) else cells
    other &= ~np.asarray(pc.fill_null(_absent(pc.utf8_trim_whitespace(shown)), True))
    rows = np.flatnonzero(other)
    return ns, Raw(rows, shown.take(pa.array(rows)).to_pylist())


def _absent(cells: pa.Array) -> pa.Array:
    return pc.is_in(cells, value_set=pa.array(ABSENT_CELLS, pa.string()))


def compact(values: Int64) -> IntArray:
    """int32 where all values fit, else as they are."""
    if len(values) and (values.max() > INT32_MAX or values.min() < -INT32_MAX):
        return values
    return values.astype(np.int32)


def ids(cells: pa.Array, none: int | None = None) -> tuple[IntArray, Raw]:
    """Whole numbers from 0, NULL where absent; anything else is raw. none: the value that also means absent."""
    raw = Raw()
    if pa.types.is_integer(cells.type):
        found = np.asarray(pc.fill_null(cells, NULL)) if cells.null_count else np.asarray(cells)
        if len(found) and found.min() < 0:
            negative = np.flatnonzero((found < 0) & np.asarray(cells.is_valid()))
            if len(negative):
                raw = Raw(negative, [str(v) for v in found[negative].tolist()])
                found = found.copy()
                found[negative] = NULL
    else:
        trimmed = pc.utf8_trim_whitespace(cells)
        good = pc.match_substring_regex(trimmed, r"^[0-9]{1,18}$")
        found = np.asarray(pc.fill_null(pc.cast(pc.if_else(good, trimmed, None), pa.int64()), NULL))
        other = np.flatnonzero(~np.asarray(pc.or_(good, _absent(trimmed))))
        if len(other):
            raw = Raw(other, cells.take(pa.array(other)).to_pylist())
    if none is not None and len(found) and found.max() >= none:
        found = np.where(found == none, NULL, found)
    return compact(found), raw


def floats(cells: pa.Array) -> tuple[npt.NDArray[np.float64], Bool, Raw]:
    """float64[n], where they are present, and what is no number."""
    raw = Raw()
    if not pa.types.is_floating(cells.type):
        trimmed = pc.utf8_trim_whitespace(cells)
        good = pc.match_substring_regex(trimmed, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$")
        other = np.flatnonzero(~np.asarray(pc.or_(good, _absent(trimmed))))
        if len(other):
            raw = Raw(other, cells.take(pa.array(other)).to_pylist())
        cells = pc.cast(pc.if_else(good, trimmed, None), pa.float64())
    valid = np.asarray(cells.is_valid())
    return np.asarray(pc.fill_null(cells, 0.0)), valid, raw


def texts(cells: pa.Array) -> tuple[Int32, list[str]]:
    """Indices int32[n] into the distinct texts of the chunk. Cells that mean absent are the empty text."""
    coded = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
    values = ["" if v is None or v.strip() in ABSENT_CELLS else v for v in coded.dictionary.to_pylist()]
    indices = coded.indices
    if indices.null_count:
        values.append("")
        indices = pc.fill_null(indices, len(values) - 1)
    return np.asarray(indices).astype(np.int32, copy=False), values
