"""Scalars that were left as JSON text (times, ids) to pyarrow texts, without a Python object per value."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from msgspec import Raw

_NEWLINE, _QUOTE = 10, 34


def raw_texts(raws: Sequence[Raw]) -> pa.Array:
    """string[n]: a JSON string without its quotes, anything else (number, true, list) as its JSON; "" if absent."""
    n = len(raws)
    joined = b"\n".join(raws)
    data = np.frombuffer(joined, np.uint8)
    if n and len(data) and b"\\" not in joined and b"[" not in joined and b"{" not in joined:
        separator = np.flatnonzero(data == _NEWLINE)
        if len(separator) == n - 1:
            kept = (data != _NEWLINE) & (data != _QUOTE)
            ends = np.cumsum(kept, dtype=np.int32)
            offsets = np.zeros(n + 1, np.int32)
            offsets[1:n] = ends[separator]
            offsets[n] = ends[-1]
            return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(data[kept]))
    return pa.array([_text(bytes(raw)) for raw in raws], pa.string())


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if not text.startswith('"'):
        return text
    return str(json.loads(text, strict=False))
