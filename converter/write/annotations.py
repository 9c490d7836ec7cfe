"""Arguments that fit no column (nested values, rare keys) as encoded DebugAnnotation fields of a TrackEvent.

Field numbers: perfetto's track_event.proto (debug_annotations = 4) and debug_annotation.proto.
"""

from __future__ import annotations

from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TrackEvent

MAX_DEPTH = 64  #: arguments nested deeper are malformed (design.md, Bad input)


class TooDeep(ValueError):
    """An argument is nested deeper than MAX_DEPTH."""


def _fill(annotation: DebugAnnotation, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise TooDeep
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int):
        if -(2**63) <= value < 2**63:
            annotation.int_value = value
        elif 0 <= value < 2**64:
            annotation.uint_value = value
        else:
            annotation.string_value = str(value)
    elif isinstance(value, float):
        annotation.double_value = value
    elif isinstance(value, str):
        annotation.string_value = value
    elif isinstance(value, dict):
        for key, item in value.items():
            entry = annotation.dict_entries.add()
            entry.name = str(key)
            _fill(entry, item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _fill(annotation.array_values.add(), item, depth + 1)
    elif value is None:
        annotation.string_value = "null"
    else:
        annotation.string_value = str(value)


def nested_annotation(key: str, value: Any) -> bytes:
    """One argument as bytes to append to a TrackEvent: repeated field 4, its name inline.

    value: what JSON holds (dict, list, str, int of any size, float, bool, None). Integers beyond 64 bits are text.
    Raises TooDeep where it is nested deeper than MAX_DEPTH.
    """
    event = TrackEvent()
    annotation = event.debug_annotations.add()
    annotation.name = key
    _fill(annotation, value, 1)
    return event.SerializeToString()
