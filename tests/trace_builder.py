"""Small traces for tests, made with perfetto's own builder and so independent of the project's writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder


class TraceBuilder:
    """Tracks get uuids 1, 2, ...; a track method returns the uuid."""

    def __init__(self) -> None:
        self._builder = TraceProtoBuilder()
        self._uuid = 0

    def _descriptor(self, parent: int = 0) -> Any:
        self._uuid += 1
        descriptor = self._builder.add_packet().track_descriptor
        descriptor.uuid = self._uuid
        if parent:
            descriptor.parent_uuid = parent
        return descriptor

    def process(self, name: str, pid: int) -> int:
        process = self._descriptor().process
        process.pid, process.process_name = pid, name
        return self._uuid

    def thread(self, name: str, pid: int, tid: int) -> int:
        thread = self._descriptor().thread
        thread.pid, thread.tid, thread.thread_name = pid, tid, name
        return self._uuid

    def track(self, name: str, parent: int = 0) -> int:
        self._descriptor(parent).name = name
        return self._uuid

    def counter(self, name: str, parent: int = 0) -> int:
        descriptor = self._descriptor(parent)
        descriptor.name, descriptor.counter.unit_name = name, "x"
        return self._uuid

    def _event(self, track: int, ts: int, kind: int) -> Any:
        packet = self._builder.add_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = ts, 1
        packet.track_event.track_uuid, packet.track_event.type = track, kind
        return packet.track_event

    def slice(
        self,
        track: int,
        ts: int,
        dur: int,
        name: str,
        category: str,
        /,
        inside: Callable[[], None] | None = None,
        **arguments: Any,
    ) -> None:
        """A slice with debug annotations; inside: writes what nests in it, before its end."""
        self._begin(track, ts, TrackEvent.TYPE_SLICE_BEGIN, name, category, arguments)
        if inside:
            inside()
        self._event(track, ts + dur, TrackEvent.TYPE_SLICE_END)

    def open_slice(self, track: int, ts: int, name: str) -> None:
        self._begin(track, ts, TrackEvent.TYPE_SLICE_BEGIN, name, "x", {})

    def instant(self, track: int, ts: int, name: str, category: str, /, **arguments: Any) -> None:
        self._begin(track, ts, TrackEvent.TYPE_INSTANT, name, category, arguments)

    def sample(self, track: int, ts: int, value: float) -> None:
        self._event(track, ts, TrackEvent.TYPE_COUNTER).double_counter_value = value

    def _begin(self, track: int, ts: int, kind: int, name: str, category: str, arguments: dict[str, Any]) -> None:
        event = self._event(track, ts, kind)
        event.name = name
        event.categories.append(category)
        for flow in arguments.pop("flow_ids", ()):
            event.flow_ids.append(flow)
        for flow in arguments.pop("terminating_flow_ids", ()):
            event.terminating_flow_ids.append(flow)
        for key, value in arguments.items():
            _annotate(event.debug_annotations, key, value)

    def bytes(self) -> bytes:
        data: bytes = self._builder.serialize()
        return data

    def write(self, path: Path) -> str:
        path.write_bytes(self.bytes())
        return str(path)


def _annotate(entries: Any, key: str | None, value: Any) -> None:
    annotation = entries.add()
    if key is not None:
        annotation.name = key
    if isinstance(value, dict):
        for k, v in value.items():
            _annotate(annotation.dict_entries, k, v)
    elif isinstance(value, list):
        for v in value:
            _annotate(annotation.array_values, None, v)
    elif isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int):
        annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    else:
        annotation.string_value = value
