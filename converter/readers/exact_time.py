"""Decimal text to whole nanoseconds, exactly.

The exporters write times as decimal text in microseconds: `1736408883704643.212<TAB>`. A float64 has steps of
0.25 us at today's epoch, so no value here ever goes through a float. Digits below a nanosecond round half to even.

Three ways, from fast to general; each takes the cells that the one before could not read:
1. pyarrow casts to a decimal128 whose scale makes the unscaled integer the ns count (scale 3 for us).
2. Plain decimals with up to 15 digits below a nanosecond: as decimal128, divided in numpy. Not by pyarrow: its division
   (26.0) is wrong where 32 bits of the quotient are all ones, once in 4.3 s of nanoseconds.
3. Cell by cell with Python integers: exponents, very long digit strings, values outside int64.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.readers import arrow_arrays
from schemas.timeline import Bool, Int64

OK, NOT_A_NUMBER, OUT_OF_RANGE = 0, 1, 2  #: what became of a cell
Status = npt.NDArray[np.int8]

MAX_NS = 2**63 - 1
#: Among epoch times, a start before 2000-01-01 is no recorded time (a zero, mostly): it is out of range.
EPOCH_2000_NS = 946_684_800 * 10**9
LONGEST_NUMBER = 2000  # characters; longer text is not a time and would cost quadratic time to read

_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?", re.ASCII)
_BELOW_NS = 15  # digits below a nanosecond that the second way reads


def _power_of_ten(unit_ns: int) -> int:
    power = len(str(unit_ns)) - 1
    if unit_ns != 10**power or power > 9:
        raise ValueError(f"a unit is a power of ten up to one second: {unit_ns} ns")
    return power


def text_to_ns(text: str, unit_ns: int = 1000) -> tuple[int, int]:
    """One cell: (ns, status). ns is 0 unless the status is OK. unit_ns: what 1 in the text stands for."""
    power = _power_of_ten(unit_ns)
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= LONGEST_NUMBER else None
    if found is None:
        return 0, NOT_A_NUMBER
    sign, whole, part, bare, exponent_text = found.groups()
    part = part or bare or ""
    digits = int((whole or "") + part)
    if not digits:
        return 0, OK
    if exponent_text and len(exponent_text) > 10:  # beyond any value: too large to compute, or zero
        return 0, OK if exponent_text[0] == "-" else OUT_OF_RANGE
    shift = int(exponent_text or 0) - len(part) + power
    size = len(str(digits)) + shift  # digits in front of the point, once in ns
    if size > 19:
        return 0, OUT_OF_RANGE
    if size < 0:
        return 0, OK
    if shift >= 0:
        ns = digits * 10**shift
    else:
        scale = 10**-shift
        ns, rest = divmod(digits, scale)
        ns += 2 * rest > scale or (2 * rest == scale and ns & 1)
    ns = -ns if sign == "-" else ns
    return (ns, OK) if -MAX_NS <= ns <= MAX_NS else (0, OUT_OF_RANGE)


def _as_strings(texts: Any) -> pa.Array:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if not isinstance(texts, pa.Array):
        texts = arrow_arrays.strings(texts)
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise TypeError(f"texts, not {texts.type}")
    return texts


def decimal_to_int64(values: pa.Array) -> tuple[Int64, Bool]:
    """The unscaled integers of a decimal128 array, and where they are present and fit int64."""
    words = arrow_arrays.values(values, np.int64, 2).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    fits = high == (low >> 63)
    if values.null_count:
        fits &= arrow_arrays.valid(values)
    return (low.copy() if fits.all() else np.where(fits, low, 0)), fits


def rounded_ns(texts: pa.Array, power: int = 3) -> tuple[Int64, Bool]:
    """Strings, all of them decimals with up to 15 digits below a nanosecond, as ns, half to even; and where they fit
    int64. power: of the unit, 10^power ns. Raises pa.ArrowInvalid where a text is anything else.
    """
    import pyarrow.compute as pc

    exact = pc.cast(texts, pa.decimal128(38, power + _BELOW_NS))
    words = arrow_arrays.values(exact, np.int64, 2).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    per_ns = 10**_BELOW_NS
    # An estimate from floats is off by some thousand ns at most; the low words tell exactly by how much.
    estimate = (high * 2.0**64 + low.view(np.uint64)) / per_ns
    fits = np.abs(estimate) < 2.0**63 - 2.0**13
    ns = np.where(fits, estimate, 0).astype(np.int64)
    rest = low - ns * per_ns  # modulo 2^64, in which it fits
    step = rest // per_ns
    ns += step
    rest -= step * per_ns
    ns += (2 * rest > per_ns) | ((2 * rest == per_ns) & (ns & 1 == 1))
    if texts.null_count:
        fits &= arrow_arrays.valid(texts)
    return np.where(fits, ns, 0), fits


def _plain_to_ns(texts: pa.Array, power: int) -> tuple[Int64, Bool]:
    """The second way. Cells that are not plain decimals within range come back not ok."""
    import pyarrow.compute as pc

    front = 38 - power - _BELOW_NS  # digits that fit a decimal128
    pattern = rf"^[+-]?[0-9]{{1,{front}}}(\.[0-9]{{0,{power + _BELOW_NS}}})?$"
    ok = arrow_arrays.booleans(pc.match_substring_regex(texts, pattern))
    ns = np.zeros(len(ok), np.int64)
    ns[ok], ok[ok] = rounded_ns(texts.filter(arrow_arrays.mask(ok)), power)
    return ns, ok


def not_for_decimals(cells: pa.Array) -> Bool:
    """bool[n]: texts that pyarrow (26.0.1) must not read as decimals.

    Those that may hold more than 38 digits: it takes them modulo 2^128 without a word, "5.5" with 130 more zeros is 0.
    Those with an exponent: below 1e-38 it reads the power of ten from behind its table, "1e-12370436" ends the process.
    """
    import pyarrow.compute as pc

    lengths = pc.binary_length(cells)
    wide = np.int64 if pa.types.is_int64(lengths.type) else np.int32
    found = np.asarray(np.where(arrow_arrays.valid(cells), arrow_arrays.values(lengths, wide), 0) > 38, np.bool_)
    data = cells.buffers()[2]
    letters = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    if (letters == ord("e")).any() or (letters == ord("E")).any():
        found |= arrow_arrays.booleans(pc.match_substring(cells, "e", ignore_case=True))
    return found


def read_ns(texts: Any, unit_ns: int = 1000) -> tuple[Int64, Status]:
    """Times as ns with what became of each cell.

    texts: pyarrow strings (Array or ChunkedArray, dictionary-encoded or not, nulls allowed) or a sequence of str.
    unit_ns: what 1 in the text stands for, a power of ten: 1000 for us. Spaces, tabs and non-breaking spaces around
    a number are no part of it. Returns ns int64[n] (0 where not OK) and status int8[n]: OK, NOT_A_NUMBER (text,
    empty, null, N/A, nan, inf) or OUT_OF_RANGE (a number outside int64 ns).
    """
    power = _power_of_ten(unit_ns)
    import pyarrow.compute as pc  # 70 ms that a plain file, read straight into decimals, does not pay

    cells = _as_strings(texts)
    by_hand = not_for_decimals(cells)
    if by_hand.any():
        ns, status = np.zeros(len(cells), np.int64), np.zeros(len(cells), np.int8)
        ns[~by_hand], status[~by_hand] = read_ns(cells.filter(arrow_arrays.mask(~by_hand)), unit_ns)
        rows = np.flatnonzero(by_hand)
        for row, text in zip(rows.tolist(), cells.take(arrow_arrays.rows(rows)).to_pylist(), strict=True):
            ns[row], status[row] = text_to_ns(text, unit_ns)
        return ns, status
    kind = pa.decimal128(20, power)
    try:
        ns, ok = decimal_to_int64(pc.cast(cells, kind))
    except pa.ArrowInvalid:
        cells = pc.utf8_trim_whitespace(cells)
        try:
            ns, ok = decimal_to_int64(pc.cast(cells, kind))
        except pa.ArrowInvalid:
            ns, ok = _plain_to_ns(cells, power)
    status = np.zeros(len(ns), np.int8)
    if not ok.all():
        left = np.flatnonzero(~ok)
        for row, text in zip(left.tolist(), cells.take(arrow_arrays.rows(left)).to_pylist(), strict=True):
            ns[row], status[row] = (0, NOT_A_NUMBER) if text is None else text_to_ns(text, unit_ns)
    return ns, status


def to_ns(texts: Any, unit_ns: int = 1000) -> tuple[Int64, Bool]:
    """Times as ns int64[n], and bool[n] where they could be read. The arguments are those of `read_ns`."""
    ns, status = read_ns(texts, unit_ns)
    return ns, status == OK


def texts_to_ns(texts: Sequence[str], unit_ns: int = 1000) -> tuple[Int64, Bool]:
    """`to_ns` for a list of str, as a JSON reader has it."""
    return to_ns(texts, unit_ns)
