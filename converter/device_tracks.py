"""The tracks of kernel rows: process `Rank N` > `NPU d` > `Stream s`, made where the trace has none."""

from __future__ import annotations

import numpy as np

from schemas.timeline import NULL, Int32, Int64, IntArray, Kind, Role, Timeline

SYNTHETIC_PID = 1 << 22  # above any pid of Linux: no real process is meant
COMMUNICATION = -2  # stands for the stream of a communication row, which has none


def process_track(timeline: Timeline) -> int:
    """The index of the process track `Rank N`, made where no reader has."""
    for i, t in enumerate(timeline.tracks):
        if t.kind is Kind.PROCESS:
            return i
    return timeline.track(f"Rank {timeline.rank}", Kind.PROCESS, pid=SYNTHETIC_PID + max(timeline.rank, 0))


def stream_tracks(timeline: Timeline, process: int, device: IntArray, stream: IntArray) -> Int32:
    """int32[n]: the lane of each row, `NPU d` > `Stream s`; made where the trace has none."""
    groups = {t.device: i for i, t in enumerate(timeline.tracks) if t.kind is Kind.GROUP and t.device != NULL}
    lanes = {
        (t.device, t.stream): i for i, t in enumerate(timeline.tracks) if t.role is Role.STREAM and t.kind is Kind.LANE
    }
    # Two small integers in one key: distinct values are few, rows are many.
    devices, of_device = _codes(device)
    streams, of_stream = _codes(stream)
    wide = len(streams)
    key = of_device * wide + of_stream
    top = len(devices) * wide - 1
    if top < 1 << 22:  # no sort of all rows
        distinct = np.flatnonzero(np.bincount(key, minlength=top + 1))
    else:
        distinct = np.unique(key)
    index = np.empty(len(distinct), np.int32)
    for i, k in enumerate(distinct.tolist()):
        d, s = int(devices[k // wide]), int(streams[k % wide])
        if d not in groups:
            groups[d] = timeline.track(
                f"NPU {d}", Kind.GROUP, parent=process, device=d, explicit_order=True, order=10 + d
            )
        found = lanes.get((d, s))
        if found is None:
            if s == COMMUNICATION:
                found = timeline.track(
                    "Communication", parent=groups[d], role=Role.COMMUNICATION, device=d, order=1 << 20,
                    description="Collectives of kernel_details.csv; the file names no stream for them.",
                )  # fmt: skip
            elif s == NULL:
                found = timeline.track(
                    "Tasks", parent=groups[d], role=Role.STREAM, device=d, order=(1 << 20) + 1,
                    description="Tasks of kernel_details.csv; at this profiler level the file names no stream.",
                )  # fmt: skip
            else:
                found = timeline.track(f"Stream {s}", parent=groups[d], role=Role.STREAM, device=d, stream=s, order=s)
            lanes[d, s] = found
        index[i] = found
    if top < 1 << 22:
        table = np.zeros(top + 1, np.int32)
        table[distinct] = index
        looked_up: Int32 = table[key]
        return looked_up
    out: Int32 = index[np.searchsorted(distinct, key)]
    return out


def _codes(values: IntArray) -> tuple[IntArray, Int64]:
    """The distinct values in order, and the number of each row's among them. Ids may be any integers."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if high - low < 1 << 16:
        return np.arange(low, high + 1), values.astype(np.int64) - low
    distinct, code = np.unique(values, return_inverse=True)
    return distinct, code.astype(np.int64)
