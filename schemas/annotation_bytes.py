"""Nested debug annotations: lists and dicts as arguments of a slice, for the few rows that need them.

debug_annotation.proto: DebugAnnotation has a name, and a value, dict_entries or array_values. TrackEvent field 4.
"""

from __future__ import annotations

from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation

INT64 = range(-(1 << 63), 1 << 63)
MAX_DEPTH = 64


def nested_annotation(key: str, value: Any) -> bytes:
    """The bytes of `debug_annotations` (TrackEvent field 4) for one argument, its name inline.

    value: None, bool, int, float, str, or lists and dicts of these; an int beyond 64 bits becomes text.
    Raises ValueError where the value nests deeper than 64 levels.
    """
    annotation = DebugAnnotation(name=_utf8(key))
    _fill(annotation, value, 0)
    body = annotation.SerializeToString()
    size = bytearray()
    n = len(body)
    while n > 0x7F:
        size.append(n & 0x7F | 0x80)
        n >>= 7
    size.append(n)
    return b"\x22" + bytes(size) + body


def _fill(annotation: DebugAnnotation, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("nested deeper than 64 levels")
    if value is None:
        return
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int):
        if value in INT64:
            annotation.int_value = value
        elif 0 <= value < 1 << 64:
            annotation.uint_value = value
        else:
            annotation.string_value = str(value)
    elif isinstance(value, float):
        annotation.double_value = value
    elif isinstance(value, dict):
        for key, item in value.items():
            if item is not None:
                _fill(annotation.dict_entries.add(name=_utf8(str(key))), item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _fill(annotation.array_values.add(), item, depth + 1)
    else:
        annotation.string_value = _utf8(str(value))


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
