"""The tree of tracks as descriptors: one per lane, children of the recorded process or of our own root tracks.

A child of a process or thread track is shown beside it, not below it, so groups are custom tracks (perfetto.md 1.2).
Overflow lanes have the name and the parent of their track: the engine merges siblings of one name into one visual
track. An overflow lane of a thread is a custom track under the thread. Tracks without content are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor

from schemas.checksum import slice_checksums
from schemas.timeline import Bool, Int32, Int64, Kind, Track

INT64_MAX = 2**63 - 1
MAX_ORDER = 2**31 - 1  # sibling_order_rank is an int32
CROSSING = "Slices that cross those of the thread: they overlap without nesting."


@dataclass
class LaneTracks:
    """uuid: int64 by track index, the track's own uuid (0 = not written); lane_uuid: int64[k] of each overflow lane;
    lane_key: int64[k] = track << 32 | lane, sorted. slices, duration_ns, samples: what each written track holds."""

    uuid: Int64
    lane_key: Int64
    lane_uuid: Int64
    slices: dict[int, tuple[int, int, int]]  # uuid -> (count, duration sum, checksum)
    samples: dict[int, int]  # uuid -> count
    last: int  # the highest uuid

    def count(self, track: Int32, lane: Int32, ts: Int64, dur: Int64) -> None:
        """Adds slices to what the tracks hold."""
        if not len(track):
            return
        of_slices = self.of_slices(track, lane)
        base = int(of_slices.min())
        of_slices -= base
        count = np.bincount(of_slices)
        # Sums in integers: float weights would round them.
        low, check = np.zeros((2, len(count)), np.int64)
        high = np.zeros(len(count), np.int64)
        if int(dur.max()) > INT64_MAX // len(dur):  # their sum may exceed int64
            np.add.at(high, of_slices, dur >> 32)
            dur_low = dur & 0xFFFFFFFF
        else:
            dur_low = dur
        np.add.at(low, of_slices, dur_low)
        np.add.at(check, of_slices, slice_checksums(ts, dur))
        for u in np.flatnonzero(count).tolist():
            before = self.slices.get(u + base, (0, 0, 0))
            self.slices[u + base] = (
                before[0] + int(count[u]), before[1] + (int(high[u]) << 32) + int(low[u]), before[2] + int(check[u])
            )  # fmt: skip

    def of_slices(self, track: Int32, lane: Int32) -> Int64:
        """int64[n]: the uuid of the lane each slice is on."""
        out = self.uuid[track]
        upper = np.flatnonzero(lane)
        if len(upper):
            keys = (track[upper].astype(np.int64) << 32) | lane[upper]
            out[upper] = self.lane_uuid[np.searchsorted(self.lane_key, keys)]
        return out


def lane_keys(track: Int32, lane: Int32) -> Int64:
    """The overflow lanes that slices are on: track << 32 | lane, sorted, distinct."""
    upper = lane > 0
    return np.unique((track[upper].astype(np.int64) << 32) | lane[upper])


def assign(tracks: Sequence[Track], used: Bool, keys: Int64, sampled: Int64, base: int, keep: set[int]) -> LaneTracks:
    """Numbers the tracks that hold something. used: bool by track index, where slices are; keys: `lane_keys` of all
    slices; sampled: samples by track index; base: the first uuid is base + 1; keep: tracks that are written even when
    they are empty. What the lanes hold is still to be counted."""
    n = len(tracks)
    parent = np.array([t.parent for t in tracks], np.int64)
    used = used | (sampled > 0)
    used[list(keep)] = True
    for i in np.flatnonzero(used).tolist():
        while parent[i] >= 0 and not used[parent[i]]:
            i = int(parent[i])
            used[i] = True
    uuid = np.zeros(n, np.int64)
    uuid[used] = base + 1 + np.arange(int(used.sum()))
    last = base + int(used.sum())
    lane_uuid = last + 1 + np.arange(len(keys), dtype=np.int64)
    made = LaneTracks(uuid, keys, lane_uuid, {}, {}, last + len(keys))
    made.samples = {int(uuid[i]): int(sampled[i]) for i in np.flatnonzero(sampled)}
    return made


def descriptors(tracks: Sequence[Track], lanes: LaneTracks) -> Iterator[TrackDescriptor]:
    """A descriptor per written track and overflow lane, parents first."""
    siblings: dict[tuple[int, str], int] = {}
    for i, t in enumerate(tracks):
        if lanes.uuid[i] and t.kind in (Kind.LANE, Kind.GROUP, Kind.COUNTER):
            siblings[t.parent, t.name] = siblings.get((t.parent, t.name), 0) + 1
    for i, t in enumerate(tracks):
        if lanes.uuid[i]:
            d = _descriptor(t, int(lanes.uuid[i]), _parent_uuid(t, tracks, lanes))
            if siblings.get((t.parent, t.name), 0) > 1:
                _merge_only_with_itself(d, int(lanes.uuid[i]))
            yield d
    for key, uuid in zip(lanes.lane_key.tolist(), lanes.lane_uuid.tolist(), strict=True):
        i = key >> 32
        t = tracks[i]
        own = int(lanes.uuid[i])
        if t.kind is Kind.THREAD:
            yield TrackDescriptor(uuid=uuid, parent_uuid=own, name=t.name, description=CROSSING)
            continue
        d = _descriptor(t, uuid, _parent_uuid(t, tracks, lanes))
        if siblings.get((t.parent, t.name), 0) > 1:
            _merge_only_with_itself(d, own)
        yield d


def _parent_uuid(t: Track, tracks: Sequence[Track], lanes: LaneTracks) -> int:
    return int(lanes.uuid[t.parent]) if t.parent >= 0 else 0


def _merge_only_with_itself(d: TrackDescriptor, key: int) -> None:
    """Two tracks of one name under one parent are two tracks: only lanes of one track are merged."""
    d.sibling_merge_behavior = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY
    d.sibling_merge_key = str(key)


def _descriptor(t: Track, uuid: int, parent_uuid: int) -> TrackDescriptor:
    d = TrackDescriptor(uuid=uuid)
    match t.kind:
        case Kind.PROCESS:
            d.process.pid = t.pid
            d.process.process_name = t.name
        case Kind.THREAD:
            d.thread.pid, d.thread.tid = t.pid, t.tid
            if t.name != f"Thread {t.tid}":  # the UI shows the tid itself
                d.thread.thread_name = t.name
        case _:
            d.name = t.name
            if parent_uuid:
                d.parent_uuid = parent_uuid
            if t.kind is Kind.COUNTER:
                d.counter.SetInParent()
                if t.unit:
                    d.counter.unit_name = t.unit
    if t.description:
        d.description = t.description
    if t.order is not None:
        d.sibling_order_rank = min(t.order, MAX_ORDER)
    if t.explicit_order:
        d.child_ordering = TrackDescriptor.EXPLICIT
    return d


def packet(descriptor: TrackDescriptor, sequence: int, timestamp: int) -> TracePacket:
    made = TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=2, track_descriptor=descriptor)
    if descriptor.HasField("process") or descriptor.HasField("thread"):
        made.timestamp = timestamp
    return made
