"""Varints, one by one and as columns of a fixed number of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def varint(value: int) -> bytes:
    """The shortest varint of a value >= 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    return max(1, -(-int(value).bit_length() // 7))


def padded_varints(values: npt.NDArray[np.integer[Any]], size: int) -> Bytes:
    """uint8[n, size]: every value as a varint of exactly `size` bytes. Values are taken as 64-bit two's complement."""
    v = values.astype(np.int64, copy=False).view(np.uint64) if values.dtype != np.uint64 else values
    if size <= 8:
        # Spread the 7-bit groups over the bytes of one word, then cut the word to size.
        word = np.zeros(len(v), np.uint64)
        for k in range(size):
            group = (v >> np.uint64(7 * k)) & np.uint64(0x7F)
            if k < size - 1:
                group |= np.uint64(0x80)
            word |= group << np.uint64(8 * k)
        return word.astype("<u8", copy=False).view(np.uint8).reshape(len(v), 8)[:, :size]
    out = np.empty((len(v), size), np.uint8)
    for k in range(size):
        out[:, k] = (v >> np.uint64(7 * k)).astype(np.uint8) & 0x7F if k < 9 else (v >> np.uint64(63)).astype(np.uint8)
        if k < size - 1:
            out[:, k] |= 0x80
    return out
