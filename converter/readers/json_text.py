"""Scalars that were left as JSON text (times, ids) to numbers and texts, without a Python object per value."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from converter.readers import arrow_arrays
from converter.readers.exact_time import Status, not_for_decimals, read_ns, rounded_ns
from schemas.timeline import Int64

_NEWLINE, _QUOTE, _ZERO, _NINE = b'\n"09'
_U64 = np.uint64


def raw_ns(raws: Sequence[Raw]) -> tuple[Int64, Status]:
    """Times in us as ns, with what became of each: `read_ns` for JSON texts, strings and numbers alike."""
    joined = b"\n".join(raws)
    ns = _fixed_width_ns(joined, len(raws))
    if ns is None:
        texts = _texts(joined, raws)
        ns = _rounded_ns(texts)
        if ns is None:
            return read_ns(texts)
    return ns, np.zeros(len(ns), np.int8)


def _rounded_ns(texts: pa.Array) -> Int64 | None:
    """ns of plain decimals with digits below a nanosecond, rounded half to even; None where a text is anything else."""
    if not_for_decimals(texts).any():
        return None
    try:
        ns, ok = rounded_ns(texts)
    except pa.ArrowInvalid:
        return None
    return ns if ok.all() else None


def _fixed_width_ns(joined: bytes, count: int) -> Int64 | None:
    """ns of `"1736408883704643.212"`, all of one width with three decimals, 16 digits in front; else None.

    Eight digits at a time in one 64-bit word: neighbours are added up to 2, 4, then 8 digits.
    """
    width = len(_FORM) + 1
    if not count or len(joined) != count * width - 1 or joined[: len(_FORM)].translate(_TO_FORM) != _FORM:
        return None
    rows = np.frombuffer(joined + b"\n", np.uint8).reshape(count, width)
    if not ((rows & _FORM_MASK) == _FORM_BYTES).all():
        return None
    words = np.empty((count, 3), _U64)
    digits = words.view(np.uint8).reshape(count, 24)
    digits[:, :16] = rows[:, 1:17]
    digits[:, 16:21] = _ZERO
    digits[:, 21:] = rows[:, 18:21]
    if (digits > _NINE).any():
        return None
    words &= _U64(0x0F0F0F0F0F0F0F0F)
    words = (words * _U64(2561)) >> _U64(8)
    words = ((words & _U64(0x00FF00FF00FF00FF)) * _U64(6553601)) >> _U64(16)
    words = ((words & _U64(0x0000FFFF0000FFFF)) * _U64(42949672960001)) >> _U64(32)
    whole = words[:, 0] * _U64(10**8) + words[:, 1]
    ns = whole * _U64(1000) + words[:, 2]
    # 16 digits of us stay below 2^63 ns up to 9223372036854775.807 us.
    return None if int(whole.max()) >= 9_223_372_036_854_775 else ns.astype(np.int64)


_FORM = b'"0000000000000000.000"'
_TO_FORM = bytes(_ZERO if _ZERO <= c <= _NINE else c for c in range(256))
_FORM_MASK = np.frombuffer(bytes(0xF0 if c == _ZERO else 0xFF for c in _FORM + b"\n"), np.uint8)
_FORM_BYTES = np.frombuffer(_FORM + b"\n", np.uint8) & _FORM_MASK


def raw_texts(raws: Sequence[Raw]) -> pa.Array:
    """string[n]: a JSON string without its quotes, anything else (number, true, list) as its JSON; "" if absent."""
    return _texts(b"\n".join(raws), raws)


def _texts(joined: bytes, raws: Sequence[Raw]) -> pa.Array:
    found = _plain_texts(joined, len(raws))
    if found is not None:
        return found
    return pc.cast(arrow_arrays.strings([_text(bytes(raw)) for raw in raws]), pa.string())


def _plain_texts(joined: bytes, n: int) -> pa.Array | None:
    """The values between newlines without quotes; None where there are escapes, lists, objects or bytes that are not
    UTF-8."""
    data = np.frombuffer(joined, np.uint8)
    if not n or not len(data) or b"\\" in joined or b"[" in joined or b"{" in joined:
        return None
    if not joined.isascii():
        try:
            joined.decode()
        except UnicodeDecodeError:
            return None
    separator = np.flatnonzero(data == _NEWLINE)
    if len(separator) != n - 1:
        return None
    kept = data != _NEWLINE
    if b'"' in joined:
        kept &= data != _QUOTE
    ends = np.cumsum(kept, dtype=np.int32)
    offsets = np.zeros(n + 1, np.int32)
    offsets[1:n] = ends[separator]
    offsets[n] = ends[-1]
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(data[kept]))


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if not text.startswith('"'):
        return text
    return str(json.loads(text, strict=False))


def raw_ids(raws: Sequence[Raw]) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Ids as texts, string[n], and which are ids: a text that isn't empty, or an integer of any size. 7 is "7"."""
    joined = b"\n".join(raws)
    texts = _texts(joined, raws)
    if not joined.translate(None, b'0123456789"\n') and b"\n\n" not in joined and joined[:1] > b"\n" < joined[-1:]:
        valid = np.ones(len(raws), np.bool_)
        if b'""' in joined:
            valid = np.array([len(memoryview(raw)) > 2 or memoryview(raw)[0] != _QUOTE for raw in raws])
        return texts, valid
    return texts, np.array([_is_id(bytes(raw)) for raw in raws], np.bool_)


def _is_id(data: bytes) -> bool:
    if data.startswith(b'"'):
        return len(data) > 2
    return data.removeprefix(b"-").isdigit()


__all__ = ["raw_ids", "raw_ns", "raw_texts"]
