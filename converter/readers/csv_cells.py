"""Cells of one CSV column, as pyarrow parsed them, to numpy arrays. What has another type is kept apart, as text.

The engine refuses a table whose column changes type, so a public column has one type for the whole trace: a cell of
another type is `raw` and goes into an argument of its own (`task_id_raw`).

pyarrow.compute is imported where text has to be read: a plain file does without it (70 ms).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.readers import arrow_arrays
from converter.readers.arrow_arrays import booleans, strings
from converter.readers.exact_time import NOT_A_NUMBER, OK, OUT_OF_RANGE, Status, decimal_to_int64, read_ns
from schemas.columns import ABSENT_CELLS
from schemas.timeline import NULL, Bool, Int32, Int64, IntArray


class AsText(Exception):
    """The typed cells are not enough: the column has to be parsed as text, so that odd cells are kept as written."""

    def __init__(self, column: int) -> None:
        super().__init__(column)
        self.column = column


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
        if decimal_comma:
            import pyarrow.compute as pc

            cells = pc.replace_substring(cells, ",", ".")
        return read_ns(cells, unit_ns)
    ns, fits = decimal_to_int64(cells)
    status = np.zeros(len(ns), np.int8)
    if not fits.all():
        present = arrow_arrays.valid(cells)
        status[~present] = NOT_A_NUMBER
        status[present & ~fits] = OUT_OF_RANGE
    return ns, status


def waits(cells: pa.Array, column: int, unit_ns: int, decimal_comma: bool = False) -> tuple[Int64, Raw]:
    """ns int64[n] of recorded waits, NULL where absent; a wait that is negative or no number is raw."""
    ns, status = times(cells, unit_ns, decimal_comma)
    other = (status != OK) | (ns < 0)
    if not other.any():
        return ns, Raw()
    ns = np.where(other, NULL, ns)
    if pa.types.is_decimal(cells.type):
        if (other & arrow_arrays.valid(cells)).any():
            raise AsText(column)
        return ns, Raw()
    return ns, _raw(cells, other & ~_absent(cells))


def _absent(cells: pa.Array) -> Bool:
    """Where string cells mean absent."""
    import pyarrow.compute as pc

    return booleans(pc.is_in(pc.utf8_trim_whitespace(cells), value_set=strings(ABSENT_CELLS).cast(cells.type)))


def _raw(cells: pa.Array, other: Bool) -> Raw:
    rows = np.flatnonzero(other)
    return Raw(rows, cells.take(arrow_arrays.rows(rows)).to_pylist()) if len(rows) else Raw()


def _numbers(
    cells: pa.Array, pattern: str, kind: pa.DataType, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], Bool, Raw]:
    """String cells as numbers where they match the pattern, where that is, and the cells that are something else."""
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(cells)
    good = booleans(pc.match_substring_regex(trimmed, pattern))
    found = np.zeros(len(cells), dtype)
    found[good] = arrow_arrays.values(pc.cast(trimmed.filter(arrow_arrays.mask(good)), kind), dtype)
    return found, good, _raw(cells, ~good & ~_absent(cells))


def compact(values: Int64) -> IntArray:
    """int32 where all values fit, else as they are."""
    if len(values) and (values.max() > INT32_MAX or values.min() < -INT32_MAX):
        return values
    return values.astype(np.int32)


def ids(cells: pa.Array, column: int, none: int | None = None) -> tuple[IntArray, Raw]:
    """Whole numbers from 0, NULL where absent; anything else is raw. none: the value that also means absent;
    column: its index, for AsText."""
    raw = Raw()
    if pa.types.is_integer(cells.type):
        found = arrow_arrays.values(cells, np.int64)
        present = arrow_arrays.valid(cells) if cells.null_count else None
        if present is not None:
            found = np.where(present, found, 0)
        if len(found) and found.min() < 0:
            raise AsText(column)
        if present is not None:
            found[~present] = NULL
    else:
        found, good, raw = _numbers(cells, r"^[0-9]{1,18}$", pa.int64(), np.int64)
        found[~good] = NULL
    if none is not None and len(found) and found.max() >= none:
        found = np.where(found == none, NULL, found)
    return compact(found), raw


def floats(cells: pa.Array, column: int) -> tuple[npt.NDArray[np.float64], Raw]:
    """float64[n], NaN where absent; what is no finite number is raw. column: its index, for AsText."""
    if pa.types.is_floating(cells.type):
        found = arrow_arrays.values(cells, np.float64)
        present = arrow_arrays.valid(cells)
        if not np.isfinite(found[present]).all():
            raise AsText(column)
        return np.where(present, found, np.nan), Raw()
    pattern = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$"
    found, good, raw = _numbers(cells, pattern, pa.float64(), np.float64)
    found[~good] = np.nan
    return found, raw


def texts(cells: pa.Array) -> tuple[Int32, list[str]]:
    """Indices int32[n] into the distinct texts of the chunk. Cells that mean absent are the empty text."""
    coded = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
    distinct = ["" if text.strip() in ABSENT_CELLS else text for text in coded.dictionary.to_pylist()]
    indices = arrow_arrays.values(coded.indices, np.int32)
    if coded.indices.null_count:
        distinct.append("")
        indices = np.where(arrow_arrays.valid(coded.indices), indices, np.int32(len(distinct) - 1))
    return indices, distinct
