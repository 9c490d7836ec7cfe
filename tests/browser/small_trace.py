"""A trace of two ranks as this project lays it out, written with perfetto's own builder: no code of the writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

REALTIME = BuiltinClock.BUILTIN_CLOCK_REALTIME
START_NS = 1_736_408_883_704_643_212
PERIOD_NS = 20_000_000
STEP_NS = (17_000_000, 19_000_000, 18_000_000, 17_500_000)  # the second is the slowest
FIRST_FORWARD_CT = 100
TRACKS = ("Steps", "Segments", "Eager tail", "Gaps")


class Builder:
    """Tracks and slices by name, packet by packet."""

    def __init__(self) -> None:
        self.trace = TraceProtoBuilder()
        self.last_uuid = 0
        packet = self.trace.add_packet()
        packet.clock_snapshot.primary_trace_clock = REALTIME
        packet.clock_snapshot.clocks.add(clock_id=REALTIME, timestamp=START_NS)

    def track(self, name: str, parent: int = 0, order: int | None = None, pid: int = 0, unit: str = "") -> int:
        self.last_uuid += 1
        packet = self.trace.add_packet()
        packet.timestamp, packet.timestamp_clock_id = START_NS, REALTIME
        descriptor = packet.track_descriptor
        descriptor.uuid = self.last_uuid
        if pid:
            descriptor.process.pid, descriptor.process.process_name = pid, name
        else:
            descriptor.name = name
            descriptor.child_ordering = TrackDescriptor.EXPLICIT
        if parent:
            descriptor.parent_uuid = parent
        if order is not None:
            descriptor.sibling_order_rank = order
        if unit:
            descriptor.counter.unit_name = unit
        return self.last_uuid

    def _event(self, track: int, ts: int, kind: TrackEvent.Type.ValueType) -> TrackEvent:
        packet = self.trace.add_packet()
        packet.timestamp, packet.timestamp_clock_id, packet.trusted_packet_sequence_id = ts, REALTIME, 1
        packet.track_event.type, packet.track_event.track_uuid = kind, track
        return packet.track_event

    def slice(self, track: int, ts: int, dur: int, name: str, category: str, **args: Any) -> None:
        event = self._event(track, ts, TrackEvent.TYPE_SLICE_BEGIN)
        event.name = name
        event.categories.append(category)
        _annotate(event, args)
        self._event(track, ts + dur, TrackEvent.TYPE_SLICE_END)

    def sample(self, track: int, ts: int, value: float) -> None:
        self._event(track, ts, TrackEvent.TYPE_COUNTER).double_counter_value = value


def _annotate(event: TrackEvent, args: Mapping[str, Any]) -> None:
    for key, value in args.items():
        annotation = event.debug_annotations.add(name=key)
        if isinstance(value, int):
            annotation.int_value = value
        elif isinstance(value, float):
            annotation.double_value = value
        else:
            annotation.string_value = value


def small_trace(ranks: int = 2, steps: bool = True) -> bytes:
    """Per rank: four steps of draft, verify, tail and a gap, and the kernels of one stream."""
    b = Builder()
    for rank in range(ranks):
        root = b.track(f"Rank {rank} · DSpark", order=1 + rank)
        names = TRACKS if steps else ("Gaps",)
        tracks = {name: b.track(name, root, 10 * (i + 1)) for i, name in enumerate(names)}
        process = b.track(f"Rank {rank}", pid=1000 + rank)
        stream = b.track("Stream 2", b.track("NPU 0", process))
        counter = b.track("Unattributed step time", root, 70, unit="ms") if steps else 0
        for i, step_ns in enumerate(STEP_NS):
            start = START_NS + i * PERIOD_NS + rank * 100
            if steps:
                place = {"forward_ct": FIRST_FORWARD_CT + i, "step": i}
                b.slice(
                    tracks["Steps"], start, step_ns, f"step {FIRST_FORWARD_CT + i}", "npu.step", **place,
                    bs=8, step_wall_ns=step_ns + 1_000_000, step_gpu_ms=step_ns / 1e6, draft_gpu_ms=4.0,
                    target_verify_gpu_ms=10.0, committed_tokens=20, avg_commit_len=2.5, evidence="recorded",
                    first_task_ts=start, last_task_end=start + step_ns,
                )  # fmt: skip
                for name, segment, at, dur in (("Draft", "draft", 500_000, 4_000_000), ("Target Verify", "target_verify", 5_000_000, 10_000_000)):  # fmt: skip
                    b.slice(tracks["Segments"], start + at, dur, name, "npu.segment", **place, segment=segment)
                b.slice(
                    tracks["Eager tail"],
                    start + 15_000_000,
                    1_500_000,
                    "Accept",
                    "npu.tail",
                    **place,
                    part="accept",
                )
                b.sample(counter, start, 1.0 + i)
            b.slice(tracks["Gaps"], start + step_ns - 500_000, 540_000, "gap 540 us", "npu.gap", prev_task=2 * i)
            b.slice(stream, start + 500_000, 4_000_000, "MatMul", "npu.task", task=2 * i, task_id=7)
            b.slice(
                stream, start + 5_000_000, step_ns - 5_500_000, "FusedInferAttentionScore", "npu.task", task=2 * i + 1
            )
    return b.trace.serialize()
