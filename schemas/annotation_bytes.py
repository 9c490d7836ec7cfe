"""Nested arguments as bytes: what SliceBatch.extra holds. TrackEvent.debug_annotations is field 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TrackEvent

_INT64 = range(-(2**63), 2**63)


def nested_annotation(key: str, value: Any) -> bytes:
    """The bytes of one debug annotation in a TrackEvent. value: dicts, lists, int, float, bool, str; None is left out."""
    event = TrackEvent()
    annotation = event.debug_annotations.add()
    annotation.name = _utf8(key)
    _fill(annotation, value)
    return bytes(event.SerializeToString())


def _fill(annotation: DebugAnnotation, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if item is not None:
                entry = annotation.dict_entries.add()
                entry.name = _utf8(str(key))
                _fill(entry, item)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            _fill(annotation.array_values.add(), item)
    elif isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int) and value in _INT64:
        annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    else:
        annotation.string_value = _utf8(str(value))


def _utf8(text: str) -> str:
    """The text without lone surrogates (a file name in a C locale has them), which UTF-8 can't hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
