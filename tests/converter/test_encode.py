"""The packets against a second opinion: perfetto's own protobuf classes decode them, a stack replays them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from google.protobuf.internal import decoder
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from converter.write.document import Document, clock_header, encode
from converter.write.varints import padded_varints, varint, varint_size
from schemas.timeline import Column, FlowBatch, Kind, Layer, SliceBatch, StringPool, id_column, text_column

EPOCH = 1_767_000_000_000_000_000


@given(st.integers(0, 2**64 - 1))
def test_varint_is_what_protobuf_reads(value: int) -> None:
    data = varint(value)
    assert decoder._DecodeVarint(data, 0) == (value, len(data))
    assert len(data) == varint_size(value)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), st.integers(0, 3))
def test_padded_varints_have_one_length_and_the_value(values: list[int], extra: int) -> None:
    unsigned = [v % 2**64 for v in values]
    size = min(10, max(map(varint_size, unsigned)) + extra)
    rows = padded_varints(np.array(values, np.int64), size)
    assert rows.shape == (len(values), size)
    assert [decoder._DecodeVarint(r.tobytes(), 0) for r in rows] == [(u, size) for u in unsigned]


def decode(layer: Layer, root: int = -1, facts: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Slices as dicts, by perfetto's classes and a stack per track, sorted by time and stable in file order."""
    data = clock_header(EPOCH) + b"".join(encode(Document(layer, root, facts or {}, EPOCH), 0))
    trace = Trace.FromString(data)
    names: dict[str, dict[int, Any]] = defaultdict(dict)
    events = []
    track_names = {}
    for packet in trace.packet:
        for entry in packet.interned_data.event_names:
            names["name"][entry.iid] = entry.name
        for entry in packet.interned_data.event_categories:
            names["category"][entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_names:
            names["key"][entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_string_values:
            names["text"][entry.iid] = entry.str.decode()
        if packet.HasField("track_descriptor"):
            track_names[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if packet.HasField("track_event"):
            assert packet.trusted_packet_sequence_id and packet.sequence_flags == 2
            events.append((packet.timestamp, packet.track_event))
    stacks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    out = []
    for ts, event in sorted(events, key=lambda e: e[0]):
        if event.type == TrackEvent.TYPE_COUNTER:
            continue
        if event.type == TrackEvent.TYPE_SLICE_END:
            stacks[event.track_uuid].pop()["end"] = ts
            continue
        args = {}
        for a in event.debug_annotations:
            value = a.WhichOneof("value") or "none"
            key = names["key"][a.name_iid] if a.name_iid else a.name
            args[key] = names["text"][a.string_value_iid] if value == "string_value_iid" else getattr(a, value, None)
        made = {
            "ts": ts, "end": ts, "name": names["name"][event.name_iid], "args": args, "track": track_names[event.track_uuid],
            "category": [names["category"][i] for i in event.category_iids],
            "out": list(event.flow_ids), "in": list(event.terminating_flow_ids),
        }  # fmt: skip
        out.append(made)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stacks[event.track_uuid].append(made)
    assert not any(stacks.values())
    return out


def simple_layer() -> tuple[Layer, int]:
    layer = Layer(StringPool())
    process = layer.track("Rank 0", Kind.PROCESS, pid=4194304)
    return layer, layer.track("Stream 2", parent=process, stream=2)


argument = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
row = st.tuples(
    st.integers(0, 40),
    st.sampled_from([0, 1, 3, 9]),
    st.sampled_from(["a", "b", "ü"]),
    argument,
    st.sampled_from(["", "x", "y;z"]),
)


@given(st.lists(row, min_size=1, max_size=40))
@settings(max_examples=150, deadline=None)
def test_every_column_reads_back(rows: list[tuple[int, int, str, int | None, str]]) -> None:
    layer, stream = simple_layer()
    n = len(rows)
    number = Column(
        "n", "int", np.array([r[3] or 0 for r in rows], np.int64), np.array([r[3] is not None for r in rows])
    )
    shapes = text_column("shapes", layer.strings.add_all([r[4] for r in rows]))
    ratio = Column("ratio", "float", np.array([r[0] / 7 for r in rows]))
    flag = Column("flag", "bool", np.array([r[1] > 1 for r in rows]))
    layer.add_slices(
        stream, np.array([EPOCH + r[0] for r in rows]), np.array([r[1] for r in rows]), [r[2] for r in rows],
        "npu.task", [number, shapes, ratio, flag],
    )  # fmt: skip
    have = decode(layer)

    def key(s: dict[str, Any]) -> str:
        return repr(sorted(s.items(), key=str))

    want = []
    for start, dur, name, value, text in rows:
        args: dict[str, Any] = {"ratio": start / 7, "flag": dur > 1}
        if value is not None:
            args["n"] = value
        if text:
            args["shapes"] = text
        want.append(
            {
                "ts": EPOCH + start, "end": EPOCH + start + dur, "name": name, "args": args, "track": "Stream 2",
                "category": ["npu.task"], "out": [], "in": [],
            }
        )  # fmt: skip
    assert len(have) == n
    assert sorted(map(key, [{**s, "args": sorted(s["args"].items())} for s in have])) == sorted(
        map(key, [{**s, "args": sorted(s["args"].items())} for s in want])
    )


def test_flow_ids_stand_on_whichever_begins_first() -> None:
    layer, stream = simple_layer()
    host = layer.track("Host", parent=0)
    layer.add_slices(stream, np.array([EPOCH + 10, EPOCH + 100]), np.array([5, 5]), ["k0", "k1"], "npu.task")
    layer.add_slices(host, np.array([EPOCH, EPOCH + 105, EPOCH + 100]), np.array([3, 1, 2]), ["h0", "h1", "h2"], "")
    # h0 -> k0 as usual; h1 -> k1 begins after its end; h2 and k1 begin together
    layer.flows.append(FlowBatch(0, np.array([2, 3, 4]), np.array([0, 1, 1]), np.zeros(3, np.int64)))
    have = {s["name"]: s for s in decode(layer)}
    first, second, third = have["h0"]["out"][0], have["h1"]["in"][0], (have["h2"]["out"] + have["h2"]["in"])[0]
    assert len({first, second, third}) == 3
    assert have["k0"]["in"] == [first] and not have["k0"]["out"]
    assert second in have["k1"]["out"]
    assert third in have["k1"]["out"] + have["k1"]["in"]


def test_uint_and_null_sentinels() -> None:
    layer, stream = simple_layer()
    big = Column("big", "uint", np.array([0, 2**64 - 1], np.uint64))
    ids = id_column("id", np.array([-1, 7]))
    layer.add_slices(stream, np.array([EPOCH, EPOCH + 1]), np.zeros(2, np.int64), "k", "", [big, ids])
    assert [s["args"] for s in decode(layer)] == [{"big": 0}, {"big": 2**64 - 1, "id": 7}]


def test_facts_hold_the_tallies_of_each_track() -> None:
    layer, stream = simple_layer()
    root = layer.track("Rank 0 · DSpark", Kind.GROUP)
    layer.add_slices(stream, np.array([EPOCH, EPOCH + 5]), np.array([10, 10]), "k", "")  # they overlap: two lanes
    data = b"".join(encode(Document(layer, root, {}, EPOCH), 0))
    trace = Trace.FromString(data)
    named = [p.track_descriptor for p in trace.packet if p.track_descriptor.name == "Stream 2"]
    assert len(named) == 2 and named[0].parent_uuid == named[1].parent_uuid
    (facts,) = [p.track_event for p in trace.packet if p.track_event.type == TrackEvent.TYPE_INSTANT]
    (tallies,) = [a for a in facts.debug_annotations if a.name == "tallies"]
    rows = [{e.name: e.int_value for e in item.dict_entries} for item in tallies.array_values]
    mine = {r["uuid"]: (r["slices"], r["duration_ns"]) for r in rows}
    assert [mine[d.uuid] for d in named] == [(1, 10), (1, 10)]


@pytest.mark.parametrize("count", [1, 8191, 70_001])
def test_block_edges_lose_nothing(count: int) -> None:
    layer, stream = simple_layer()
    odd = np.arange(count) % 3 == 0
    column = Column("n", "int", np.arange(count), odd)
    ts = EPOCH + np.arange(count, dtype=np.int64) * 10
    layer.add(
        SliceBatch(np.full(count, stream, np.int32), ts, np.full(count, 10), np.zeros(count, np.int32), 0, [column])
    )
    have = decode(layer)
    assert [s["ts"] for s in have] == ts.tolist()
    assert [s["args"].get("n", -1) for s in have] == np.where(odd, np.arange(count), -1).tolist()
