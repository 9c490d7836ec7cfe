"""Between pyarrow and numpy through the buffers, without `pa.array`, scalars or `to_numpy`.

Those three import pandas where it is installed (0.3 s), which costs more than reading a million rows of one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.timeline import Bool


def valid(array: pa.Array) -> Bool:
    """bool[n]: where the array is not null."""
    bitmap = array.buffers()[0]
    return np.ones(len(array), np.bool_) if not array.null_count or bitmap is None else _bits(bitmap, array)


def booleans(array: pa.Array) -> Bool:
    """bool[n] of a boolean array; null is False."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), np.bool_)
    return _bits(data, array) & valid(array) if array.null_count else _bits(data, array)


def values(array: pa.Array, dtype: npt.DTypeLike, words: int = 1) -> npt.NDArray[Any]:
    """The values of a fixed-width array as they lie in memory, [n * words]; what stands under nulls is undefined."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array) * words, dtype)
    return np.frombuffer(data, dtype, words * (array.offset + len(array)))[words * array.offset :]


def strings(texts: Sequence[str | None]) -> pa.Array:
    """A large_string array. What UTF-8 can't hold (lone surrogates) becomes `?`."""
    encoded = [b"" if text is None else text.encode("utf-8", "replace") for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
    bitmap = None
    if any(text is None for text in texts):
        bitmap = _bitmap(np.fromiter((text is not None for text in texts), np.bool_, len(encoded)))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def mask(selected: Bool) -> pa.Array:
    """A boolean array."""
    return pa.Array.from_buffers(pa.bool_(), len(selected), [None, _bitmap(selected)])


def rows(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """An int64 array, e.g. for `take`."""
    data = pa.py_buffer(np.ascontiguousarray(numbers, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, data])


def _bits(bitmap: pa.Buffer, array: pa.Array) -> Bool:
    end = array.offset + len(array)
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), count=end, bitorder="little")[array.offset :].view(np.bool_)


def _bitmap(selected: Bool) -> pa.Buffer:
    return pa.py_buffer(np.packbits(selected, bitorder="little"))
