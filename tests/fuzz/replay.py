"""A second opinion on a trace's bytes: perfetto's own classes decode them and a stack replays each track.

No engine is started, so thousands of conversions can be compared with the Timelines of their inputs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from schemas.timeline import Timeline


class Slice(NamedTuple):
    name: str
    ts: int
    end: int
    category: str


class Held(NamedTuple):
    """Of one trace: recorded slices by rank as a multiset, counter samples by rank, flow ids seen, derived slices."""

    slices: dict[int, Counter[tuple[str, int, int]]]
    samples: dict[int, int]
    flows: int
    derived: int


def decode(path: Path) -> Held:
    """Raises AssertionError where the packets contradict themselves: an END without a BEGIN, a text that isn't there,
    a track without a descriptor, a slice that is left open, a flow id without a partner."""
    trace = Trace.FromString(path.read_bytes())
    texts: dict[tuple[int, str, int], str] = {}
    parents: dict[int, int] = {}
    ranks: dict[int, int] = {}
    events: dict[int, list[tuple[int, int, int, TrackEvent]]] = defaultdict(list)
    threads: dict[int, int] = {}
    processes: dict[int, int] = {}
    for number, packet in enumerate(trace.packet):
        sequence = packet.trusted_packet_sequence_id
        data = packet.interned_data
        for entry in data.event_names:
            assert (sequence, "name", entry.iid) not in texts
            texts[sequence, "name", entry.iid] = entry.name
        for entry in data.event_categories:
            texts[sequence, "category", entry.iid] = entry.name
        for entry in data.debug_annotation_names:
            texts[sequence, "key", entry.iid] = entry.name
        for entry in data.debug_annotation_string_values:
            texts[sequence, "text", entry.iid] = ""
        if packet.HasField("track_descriptor"):
            d = packet.track_descriptor
            assert d.uuid not in parents, "one uuid twice"
            parents[d.uuid] = d.parent_uuid
            name = d.process.process_name or d.name
            if d.HasField("process") and name.startswith("Rank "):
                ranks[d.uuid] = int(name.split()[1])
                processes[d.process.pid] = d.uuid
            if d.HasField("thread"):
                threads[d.uuid] = d.thread.pid
            if not d.parent_uuid and name.startswith("Rank ") and "·" in name:
                ranks[d.uuid] = int(name.split()[1])
        if packet.HasField("track_event"):
            assert packet.timestamp >= 0
            events[packet.track_event.track_uuid].append((packet.timestamp, number, sequence, packet.track_event))
    slices: dict[int, Counter[tuple[str, int, int]]] = defaultdict(Counter)
    samples: dict[int, int] = defaultdict(int)
    flows: Counter[int] = Counter()
    derived = 0
    for uuid, found in events.items():
        assert uuid in parents, f"track {uuid} has no descriptor"
        rank = _rank(uuid, parents, ranks, threads, processes)
        stack: list[tuple[int, str, str]] = []
        for ts, _, sequence, event in sorted(found, key=lambda e: e[0]):  # stable: file order among equals
            if event.type == TrackEvent.TYPE_COUNTER:
                samples[rank] += 1
                continue
            if event.type == TrackEvent.TYPE_SLICE_END:
                begin, name, category = stack.pop()
                if _recorded(category):
                    slices[rank][name, begin, ts] += 1
                else:
                    derived += 1
                continue
            flows.update(event.flow_ids)
            flows.update(event.terminating_flow_ids)
            for annotation in event.debug_annotations:
                if annotation.name_iid:
                    assert (sequence, "key", annotation.name_iid) in texts
                if annotation.HasField("string_value_iid"):
                    assert (sequence, "text", annotation.string_value_iid) in texts
            name = texts[sequence, "name", event.name_iid]
            category = texts[sequence, "category", event.category_iids[0]] if event.category_iids else ""
            if event.type == TrackEvent.TYPE_INSTANT:
                if _recorded(category):
                    slices[rank][name, ts, ts] += 1
                else:
                    derived += 1
            else:
                stack.append((ts, name, category))
                assert len(stack) <= 500, "deeper than the engine nests"
        assert not stack, "a slice without an end"
    assert all(count == 2 for count in flows.values()), "a flow without a partner"
    return Held(dict(slices), dict(samples), len(flows), derived)


def _recorded(category: str) -> bool:
    return category == "npu.task" or not category.startswith("npu.")


def _rank(
    uuid: int, parents: dict[int, int], ranks: dict[int, int], threads: dict[int, int], processes: dict[int, int]
) -> int:
    while uuid not in ranks:
        if uuid in threads:
            uuid = processes[threads[uuid]]
        elif parents.get(uuid):
            uuid = parents[uuid]
        else:
            return -1
    return ranks[uuid]


def recorded(timeline: Timeline, offset_ns: int) -> Counter[tuple[str, int, int]]:
    """What the trace must hold of a Timeline as it was read."""
    out: Counter[tuple[str, int, int]] = Counter()
    for batch in timeline.slices:
        dur = np.zeros(len(batch), np.int64) if batch.instant else batch.dur
        for name, ts, length in zip(batch.name.tolist(), batch.ts.tolist(), dur.tolist(), strict=True):
            text = timeline.strings[name].encode("utf-8", "replace").decode("utf-8")
            out[text, ts + offset_ns, ts + length + offset_ns] += 1
    return out
