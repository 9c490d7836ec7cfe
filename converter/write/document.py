"""One rank (or the run-wide `All ranks`) as packets: header, interned texts, tracks, facts, slices, samples.

Every document has a packet sequence of its own with its own interned ids, so documents can be encoded apart and
their bytes put one after the other (reference/perfetto.md 1.1, 1.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BuiltinClock,
    ClockSnapshot,
    InternedData,
    Trace,
    TracePacket,
)

from converter.write import parts
from converter.write import tracks as track_writer
from converter.write.encode import Flows, encode_counters, encode_slices
from converter.write.lanes import Layout, lay_out
from converter.write.shapes import Names
from converter.write.varints import varint_size
from schemas.annotation_bytes import nested_annotation
from schemas.timeline import Bool, Int32, Int64, Kind, Layer, SliceBatch, StringPool

REALTIME = BuiltinClock.BUILTIN_CLOCK_REALTIME
UUID_SPACE = 1 << 22  # track uuids of one document
FLOW_SPACE = 1 << 40  # flow ids of one document: they are global in a trace
TEXTS_PER_PACKET = 20_000
TEXT_BYTES_PER_PACKET = 1 << 20


@dataclass
class Document:
    """What one packet sequence holds. facts_track: the track of the `facts` instant, -1 for none;
    facts: nested values for it; start: where the instant stands; readings: clock snapshots for this sequence,
    each {clock id: ns}; shared_readings: those of clocks that all ranks share; release: gives back the memory of
    columns that lie in a file, after each use."""

    layer: Layer
    facts_track: int = -1
    facts: dict[str, Any] = field(default_factory=dict)
    start: int = 0
    readings: list[dict[int, int]] = field(default_factory=list)
    shared_readings: list[dict[int, int]] = field(default_factory=list)
    release: Callable[[], None] | None = None


def merge_layers(base: Layer, extra: list[Layer], root: int) -> Layer:
    """One layer of a rank and what annotators add; tracks of theirs without a parent go under `root`."""
    out = Layer(base.strings)
    out.tracks = list(base.tracks)
    out.slices, out.counters, out.flows = list(base.slices), list(base.counters), list(base.flows)
    out.slice_count = base.slice_count
    for layer in extra:
        shift = len(out.tracks)
        for t in layer.tracks:
            parent = t.parent + shift if t.parent >= 0 else root
            out.tracks.append(replace(t, parent=parent))
        for batch in layer.slices:
            moved = replace(batch, track=batch.track + np.int32(shift))
            out.add(moved)
        for counter in layer.counters:
            out.counters.append(type(counter)(counter.track + np.int32(shift), counter.ts, counter.values))
        out.flows += layer.flows  # they name recorded slices, whose numbers have not changed
    return out


def clock_header(start: int, readings: Iterable[dict[int, int]] = ()) -> bytes:
    """The trace's clock: REALTIME, absolute ns. readings: snapshots of clocks that the whole trace shares.

    Those of all ranks stand here once, so that no clock goes back from rank to rank.
    """
    out = b""
    for reading in forward([{REALTIME: start}, *readings]):
        packet = TracePacket()
        if not out:
            packet.clock_snapshot.primary_trace_clock = REALTIME
        for clock_id, value in sorted(reading.items()):
            packet.clock_snapshot.clocks.add(clock_id=clock_id, timestamp=value)
        out += _bytes(packet)
    return out


def forward(readings: Iterable[dict[int, int]]) -> Iterator[dict[int, int]]:
    """Snapshots by time, without those in which a clock goes back: the engine refuses them, and one of two is wrong."""
    last: dict[int, int] = {}
    for reading in sorted(readings, key=lambda r: (r[REALTIME], len(r))):
        if all(value >= last.get(clock_id, value) for clock_id, value in reading.items()):
            last.update(reading)
            yield reading


def encode(document: Document, number: int) -> Iterator[bytes]:
    """The packets of a document in file order. number: its position in the trace, from 0."""
    layer, sequence = document.layer, number + 1
    batches = list(layer.slices)
    facts_batch: SliceBatch | None = None
    if document.facts_track >= 0:
        facts_batch = SliceBatch(
            np.array([document.facts_track], np.int32),
            np.array([document.start], np.int64),
            np.zeros(1, np.int64),
            np.array([layer.strings.add("facts")], np.int32),
            layer.strings.add("npu.facts"),
            extra=[b""],
            instant=True,
        )
        batches.append(facts_batch)
    batches = [b for b in batches if len(b)]
    track = _joined([b.track for b in batches], np.int32)
    ts = _joined([b.ts for b in batches], np.int64)
    dur = _joined([np.zeros(len(b), np.int64) if b.instant else b.dur for b in batches], np.int64)
    pieces = parts.split(track, ts, dur)
    lane = np.zeros(len(track), np.int32)
    place = np.empty(len(track) if layer.flows else 0, np.int64)
    layout: Layout | None = None
    done = 0
    for ids in pieces:
        layout = lay_out(track[ids], ts[ids], dur[ids]) if len(pieces) > 1 else lay_out(track, ts, dur)
        lane[ids[layout.order]] = layout.lane
        if layer.flows:
            place[ids[layout.order]] = done + np.arange(len(ids))
        done += len(ids)

    sampled = np.zeros(len(layer.tracks), np.int64)
    for counter in layer.counters:
        sampled += np.bincount(counter.track, minlength=len(layer.tracks))
    keep = {i for i, t in enumerate(layer.tracks) if t.kind is Kind.PROCESS}
    used = np.bincount(track, minlength=len(layer.tracks)) > 0
    lanes = track_writer.assign(
        layer.tracks, used, track_writer.lane_keys(track, lane), sampled, number * UUID_SPACE, keep
    )
    for ids in pieces:
        lanes.count(track[ids], lane[ids], ts[ids], dur[ids])
    flows = _flows(layer, ts, place, number * FLOW_SPACE)
    if facts_batch is not None:
        held = dict(document.facts)
        held["tallies"] = [
            {"uuid": u, "slices": n, "duration_ns": total, "checksum": check}
            for u, (n, total, check) in sorted(lanes.slices.items())
        ] + [{"uuid": u, "samples": n} for u, n in sorted(lanes.samples.items())]
        held["flows"] = 0 if flows is None else len(flows[2])
        facts_batch.extra = [b"".join(nested_annotation(k, v) for k, v in held.items() if v is not None)]

    key_iids = _key_iids(batches)
    pool = layer.strings
    names = Names(
        name=varint_size(len(pool)),
        category=varint_size(len(pool)),
        text=varint_size(len(pool)),
        uuid=varint_size(lanes.last),
        key_iids=key_iids,
    )
    first = TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=3)
    first.trace_packet_defaults.timestamp_clock_id = REALTIME
    yield _bytes(first)
    for reading in forward(document.readings):
        packet = TracePacket(trusted_packet_sequence_id=sequence)
        for clock_id, value in reading.items():
            packet.clock_snapshot.clocks.append(ClockSnapshot.Clock(clock_id=clock_id, timestamp=value))
        yield _bytes(packet)
    yield from _interned(pool, batches, key_iids, sequence)
    for descriptor in track_writer.descriptors(layer.tracks, lanes):
        yield _bytes(track_writer.packet(descriptor, sequence, document.start))
    together = np.zeros(len(track), np.bool_)
    if flows is not None:
        same = ts[flows[0]] == ts[flows[1]]
        together[flows[0][same]] = True
        together[flows[1][same]] = True
    del track, ts, dur, place
    for ids in pieces:
        some = parts.take(batches, ids, document.release)
        if len(pieces) > 1:
            where = _joined([b.track for b in some], np.int32)
            lengths = [np.zeros(len(b), np.int64) if b.instant else b.dur for b in some]
            layout = lay_out(where, _joined([b.ts for b in some], np.int64), _joined(lengths, np.int64))
        else:
            where = _joined([b.track for b in some], np.int32)
        assert layout is not None
        uuid = lanes.of_slices(where, lane[ids])
        yield from encode_slices(some, layout, uuid, names, sequence, _flows_of(flows, together, ids))
    yield from encode_counters(layer.counters, lanes.uuid, names, sequence)


def _joined(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _flows(layer: Layer, ts: Int64, place: Int64, base: int) -> tuple[Int64, Int64, Int64] | None:
    """(slice with flow_ids, slice with terminating_flow_ids, id): the id goes on whichever begin comes first in time,
    then in the file; an arrow written the other way round vanishes without a trace in `stats` (design.md, Flows).
    place: where each slice stands in the file."""
    if not layer.flows:
        return None
    out = np.concatenate([f.out for f in layer.flows])
    into = np.concatenate([f.into for f in layer.flows])
    if not len(out):
        return None
    swap = (ts[into] < ts[out]) | ((ts[into] == ts[out]) & (place[into] < place[out]))
    return np.where(swap, into, out), np.where(swap, out, into), base + np.arange(1, len(out) + 1, dtype=np.int64)


def _flows_of(flows: tuple[Int64, Int64, Int64] | None, together: Bool, ids: Int64) -> Flows | None:
    """The starts and ends that lie on the slices `ids`, which count from 0 there."""
    if flows is None:
        return None

    def mine(slices: Int64) -> tuple[Int64, Int64]:
        at = np.minimum(np.searchsorted(ids, slices), len(ids) - 1)
        here = ids[at] == slices
        return at[here], flows[2][here]

    return Flows(mine(flows[0]), mine(flows[1]), together[ids])


def _key_iids(batches: list[SliceBatch]) -> dict[str, int]:
    keys: dict[str, int] = {}
    for batch in batches:
        for column in batch.columns:
            keys.setdefault(column.key, len(keys) + 1)
    return keys


def _interned(pool: StringPool, batches: list[SliceBatch], key_iids: dict[str, int], sequence: int) -> Iterator[bytes]:
    """The texts in use, as InternedData ahead of all events. iid = text id + 1."""
    used = {what: np.zeros(len(pool), np.bool_) for what in ("names", "categories", "texts")}
    for batch in batches:
        used["names"][batch.name] = True
        used["categories"][batch.category] = True
        for column in batch.columns:
            if column.kind == "text":
                ids: Int32 = column.values if column.valid is None else column.values[column.valid]
                used["texts"][ids] = True
    data = InternedData()
    for key, iid in key_iids.items():
        data.debug_annotation_names.add(iid=iid, name=_utf8(key))
    for i in np.flatnonzero(used["categories"]).tolist():
        data.event_categories.add(iid=i + 1, name=_utf8(pool[i]))
    yield _interned_packet(data, sequence)
    for what in ("names", "texts"):
        data, count, size = InternedData(), 0, 0
        for i in np.flatnonzero(used[what]).tolist():
            text = pool[i]
            if what == "names":
                data.event_names.add(iid=i + 1, name=_utf8(text))
            else:
                data.debug_annotation_string_values.add(iid=i + 1, str=text.encode("utf-8", "replace"))
            count, size = count + 1, size + len(text)
            if count >= TEXTS_PER_PACKET or size >= TEXT_BYTES_PER_PACKET:
                yield _interned_packet(data, sequence)
                data, count, size = InternedData(), 0, 0
        if count:
            yield _interned_packet(data, sequence)


def _utf8(text: str) -> str:
    """The text without lone surrogates, which UTF-8 can't hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _interned_packet(data: InternedData, sequence: int) -> bytes:
    return _bytes(TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=2, interned_data=data))


def _bytes(packet: TracePacket) -> bytes:
    data: bytes = Trace(packet=[packet]).SerializeToString()
    return data
