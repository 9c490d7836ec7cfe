"""Reads from a trace what the opening view needs (`ui_link.Contents`), through the real trace_processor."""

from __future__ import annotations

from typing import Any, Protocol

from converter.ui_link import Contents, Step

# Tracks with something on them, under the root tracks of this project. Lanes share their name.
TRACKS = """
INCLUDE PERFETTO MODULE npu._tracks;
SELECT DISTINCT n.rank, t.name
FROM track AS t
JOIN track AS p ON p.id = t.parent_id
JOIN _npu_tracks AS n ON n.track_id = p.id
WHERE p.parent_id IS NULL AND p.name = 'Rank ' || n.rank || ' · DSpark'
  AND (t.id IN (SELECT track_id FROM slice) OR t.id IN (SELECT track_id FROM counter))
ORDER BY 1, 2
"""
STEPS = """
INCLUDE PERFETTO MODULE npu.steps;
SELECT s.rank, s.ts, s.dur, s.forward_ct, s.step_wall_ns, p.first_task_ts, p.last_task_end
FROM npu_steps AS s JOIN _npu_step_slices AS p USING (id)
ORDER BY s.rank, s.ts
"""
WINDOWS = "INCLUDE PERFETTO MODULE npu.ranks; SELECT rank, window_ts, window_ts + wall_ns FROM npu_rank_times"
DEVICES = "SELECT DISTINCT name FROM track WHERE name GLOB 'NPU [0-9]*' ORDER BY name"
GAPS = "SELECT EXISTS (SELECT 1 FROM slice WHERE category = 'npu.gap')"
BOUNDS = "SELECT start_ts, end_ts FROM trace_bounds"


class Rows(Protocol):
    """An open trace (converter/engine.py)."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...


def read_contents(tp: Rows) -> Contents:
    """EngineError where the SQL package can't run."""
    tracks: dict[int, set[str]] = {}
    for rank, name in tp.rows(TRACKS):
        tracks.setdefault(rank, set()).add(name)
    start, end = tp.rows(BOUNDS)[0]
    return Contents(
        bounds=(start, end),
        tracks={rank: frozenset(names) for rank, names in tracks.items()},
        windows={rank: (a, b) for rank, a, b in tp.rows(WINDOWS) if a is not None and b is not None},
        steps=tuple(Step(*row) for row in tp.rows(STEPS)),
        devices=tuple(name for (name,) in tp.rows(DEVICES)),
        gaps=bool(tp.rows(GAPS)[0][0]),
    )
