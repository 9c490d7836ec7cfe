"""Timelines made by hand, for tests of what compares ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from schemas.timeline import NULL, Kind, Role, Tasks, Timeline

Row = tuple[str, int, int]  # name, start, end


def timeline_of(rank: int, rows: Iterable[Row], group_track: str | None = None) -> Timeline:
    """A rank with these tasks. Names that begin with hcom_ are collectives, on a group's track if one is named."""
    timeline = Timeline(rank, f"rank{rank}")
    stream = timeline.track("Stream 2", Kind.LANE, role=Role.STREAM)
    group = timeline.track(group_track or "Communication", Kind.LANE, role=Role.COMMUNICATION)
    ordered = sorted(rows, key=lambda r: (r[1], -(r[2] - r[1])))
    n = len(ordered)
    null, text = np.full(n, NULL, np.int64), np.zeros(n, np.int32)
    collective = np.array([r[0].startswith("hcom_") for r in ordered], np.bool_)
    ts = np.array([r[1] for r in ordered], np.int64)
    timeline.tasks = Tasks(
        ts=ts,
        dur=np.array([r[2] for r in ordered], np.int64) - ts,
        name=timeline.strings.add_all([r[0] for r in ordered]),
        track=np.where(collective, group, stream).astype(np.int32),
        slice=np.arange(n, dtype=np.int64),
        device_id=null,
        stream_id=null,
        task_id=null,
        model_id=null.copy(),
        op_type=text,
        op_state=text,
        accelerator_core=text,
        wait_ns=null,
        connection_id=null.copy(),
        input_shapes=text,
        communication=collective,
    )
    if n:
        timeline.window = int(ts.min()), int(timeline.tasks.end.max())
    return timeline


class Skewed:
    """A clock: what a rank writes for a true time. offset_ns: how far ahead it is; drift_ppm: how much faster it runs."""

    def __init__(self, offset_ns: int = 0, drift_ppm: float = 0.0, base_ns: int = 1_767_000_000_000_000_000) -> None:
        self.offset_ns, self.drift_ppm, self.base_ns = offset_ns, drift_ppm, base_ns

    def __call__(self, true_ns: int) -> int:
        return true_ns + self.offset_ns + round((true_ns - self.base_ns) * self.drift_ppm * 1e-6)


def run_of(clock: Skewed, rank: int, events: Sequence[tuple[str, int]], noise_ns: Sequence[int]) -> Timeline:
    """A rank that takes part in these events (name, true end), each seen `noise_ns` late on its clock."""
    rows = [(name, clock(end) - 40_000, clock(end) + late) for (name, end), late in zip(events, noise_ns, strict=True)]
    return timeline_of(rank, rows)
