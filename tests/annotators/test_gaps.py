"""Gaps and what stands at their ends, against a reference that looks at every nanosecond."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators import intervals
from annotators.gaps import annotate, busy_streams, gap_names, gap_share, launches, neighbours, task_gaps
from schemas.timeline import NULL, Host, HostSlices, Kind, StringPool, Tasks
from tests.annotators.bare_timeline import timeline_of

MS = 1_000_000
rows_of_tasks = st.lists(
    st.fixed_dictionaries({"ts": st.integers(0, 40), "dur": st.integers(0, 9), "track": st.integers(0, 2)}),
    min_size=1,
    max_size=14,
)
windows = st.none() | st.tuples(st.integers(-5, 20), st.integers(1, 45)).map(lambda w: (w[0], w[0] + w[1]))


def moments(row):
    return set(range(row["ts"], row["ts"] + row["dur"]))


@settings(max_examples=300)
@given(rows_of_tasks, windows)
def test_gaps_and_neighbours(rows, window):
    timeline = timeline_of(rows, window=window)
    start, end = task_gaps(timeline)
    free = sorted(set(range(*timeline.window)) - set().union(*map(moments, rows)))
    expected = []
    for t in free:
        if expected and expected[-1][1] == t:
            expected[-1][1] = t + 1
        else:
            expected.append([t, t + 1])
    assert [list(g) for g in zip(start.tolist(), end.tolist(), strict=True)] == expected

    ends = neighbours(timeline.tasks, (start, end))
    file_row = timeline.tasks.slice  # the slice number of these timelines is the row in the file
    for i, (low, high) in enumerate(expected):
        before = [(-r["ts"], n) for n, r in enumerate(rows) if r["ts"] + r["dur"] == low]
        after = [n for n, r in enumerate(rows) if r["ts"] == high]
        assert (file_row[ends.prev[i]] if ends.prev[i] != NULL else None) == (min(before)[1] if before else None)
        assert (file_row[ends.next[i]] if ends.next[i] != NULL else None) == (min(after) if after else None)


@given(rows_of_tasks, windows)
def test_busy_streams(rows, window):
    timeline = timeline_of(rows, window=window)
    ts, count = busy_streams(timeline.tasks, timeline.window)
    for t in range(timeline.window[0] - 1, timeline.window[1]):
        row = np.searchsorted(ts, t, side="right") - 1
        inside = timeline.window[0] <= t
        assert (count[row] if row >= 0 else 0) == len({r["track"] for r in rows if inside and t in moments(r)})


@given(rows_of_tasks, windows, st.integers(1, 60))
def test_gap_share(rows, window, period):
    timeline = timeline_of(rows, window=window)
    low, high = timeline.window
    busy = intervals.merged(timeline.tasks.ts, timeline.tasks.end)
    ts, percent = gap_share(busy, (low, high), period)
    covered = set().union(*map(moments, rows))
    assert np.all(np.diff(ts) > 0)
    for begin in range(low, high, period):
        cell = set(range(begin, min(begin + period, high)))
        row = np.searchsorted(ts, begin, side="right") - 1
        assert abs(percent[row] - 100 * len(cell - covered) / len(cell)) < 1e-9


def test_gap_share_of_fifty_years():
    """One broken time in the input must not cost a sample per 10 ms."""
    year = 365 * 86_400 * 10**9
    busy = np.array([0, 50 * year]), np.array([25 * MS, 50 * year + 5])
    ts, percent = gap_share(busy, (0, 50 * year + 5))
    assert ts.tolist() == [0, 20 * MS, 30 * MS, 50 * year] and percent.tolist() == [0, 50, 100, 0]


def test_names_are_short_and_stable():
    pool = StringPool()
    durations = np.array([1, 999, 1_000, 540_860, 540_499, 9_405_000, 10_049_999, 12_340_000_000], np.int64)
    assert [pool[i] for i in gap_names(durations, pool)] == [
        "gap 1 ns",
        "gap 999 ns",
        "gap 1 us",
        "gap 541 us",
        "gap 540 us",
        "gap 9.4 ms",
        "gap 10.0 ms",
        "gap 12.3 s",
    ]


def column(annotation, key):
    """The values of one argument of the gap slices, None where absent."""
    batch = annotation.layer.slices[0]
    found = next(c for c in batch.columns if c.key == key)
    values = [annotation.layer.strings[v] if found.kind == "text" else v for v in found.values.tolist()]
    valid = found.valid.tolist() if found.valid is not None else [True] * len(values)
    return [v if ok else None for v, ok in zip(values, valid, strict=True)]


FILL_CLAMP = [
    {"ts": 0, "dur": 1_440, "name": "Fill", "task_id": 21924, "stream_id": 43, "connection_id": 7},
    {
        "ts": 542_300,
        "dur": 3_000,
        "name": "Clamp",
        "task_id": 21925,
        "stream_id": 43,
        "connection_id": 8,
        "wait_ns": 540_860,
    },
    {"ts": 600_000, "dur": 10, "name": "MatMul", "model_id": 47, "connection_id": 7, "stream_id": 2, "track": 1},
]
HOST = [
    {"ts": 100_000, "dur": 300_000, "name": "aten::to"},
    {"ts": 110_000, "dur": 280_000, "name": "aten::copy_"},
    {"ts": 0, "dur": 542_000, "name": "scheduler.run_batch"},
    {"ts": 500_000, "dur": 2_000, "name": "Node@launch", "source": Host.CANN, "connection_id": 8, "track": 1},
    {"ts": 550_000, "dur": 2_000, "name": "Node@launch", "source": Host.CANN, "connection_id": 7, "track": 1},
]


def test_annotation():
    annotation = annotate(timeline_of(FILL_CLAMP, HOST))
    gaps = annotation.layer.slices[0]
    assert annotation.layer.tracks[gaps.track[0]].name == "Gaps"
    assert gaps.ts.tolist() == [1_440, 545_300] and gaps.dur.tolist() == [540_860, 54_700]
    assert [annotation.layer.strings[i] for i in gaps.name] == ["gap 541 us", "gap 55 us"]
    assert annotation.layer.strings[gaps.category] == "npu.gap"
    expected = {
        "prev_task": [0, 1],
        "next_task": [1, 2],
        "prev_name": ["Fill", "Clamp"],
        "next_name": ["Clamp", "MatMul"],
        "prev_stream": [43, 43],
        "next_stream": [43, 2],
        "prev_task_id": [21924, 21925],
        "next_task_id": [21925, None],
        "prev_model_id": [None, None],
        "next_model_id": [None, 47],
        "next_wait_ns": [540_860, None],
        "endpoint_class": ["dynamic->dynamic", "dynamic->model 47"],
        "host_event": ["aten::copy_", "Node@launch"],
        "host_cover_ratio": [280_000 / 540_860, 2_000 / 54_700],
        "launch_ts": [500_000, None],  # the second belongs to a graph: its connection id dates from the capture
        "launch_name": ["Node@launch", None],
        "evidence": ["linked", "inferred"],
    }
    assert {key: column(annotation, key) for key in expected} == expected
    assert annotation.facts["times"]["gap_ns"] == 540_860 + 54_700


def test_track_descriptions_do_not_promise():
    layer = annotate(timeline_of(FILL_CLAMP, HOST)).layer
    about = layer.tracks[0].description
    assert "not idle hardware" in about and "not recoverable" in about and "bore that wait" in about
    for track in layer.tracks:
        words = track.description.replace("nothing here says what caused it", "")
        assert "caus" not in words, track.name


def test_edges_of_a_window_have_no_neighbour():
    annotation = annotate(timeline_of([{"ts": 10, "dur": 5, "model_id": 3}], window=(0, 20)))
    assert column(annotation, "endpoint_class") == ["edge->model 3", "model 3->edge"]
    assert column(annotation, "prev_task") == [None, 0] and column(annotation, "next_task") == [0, None]
    assert column(annotation, "evidence") == ["recorded", "recorded"]


def test_counters_and_steps():
    steps = SimpleNamespace(ts=np.array([0, 12 * MS]), end=np.array([10 * MS, 16 * MS]))
    rows = [{"ts": 0, "dur": 5 * MS}, {"ts": 4 * MS, "dur": 4 * MS, "track": 1}, {"ts": 13 * MS, "dur": 3 * MS}]
    layer = annotate(timeline_of(rows), steps=steps).layer
    samples = {layer.tracks[c.track[0]].name: (c.ts.tolist(), c.values.tolist()) for c in layer.counters}
    assert all(t.kind is Kind.COUNTER for t in layer.tracks[1:])
    assert samples["Busy streams"] == ([0, 4 * MS, 5 * MS, 8 * MS, 13 * MS, 16 * MS], [1, 2, 1, 0, 1, 0])
    assert samples["Gap share"][0] == [0, 10 * MS]
    assert np.allclose(samples["Gap share"][1], [20, 50])
    assert samples["Gap share per step"][0] == [0, 12 * MS]
    assert np.allclose(samples["Gap share per step"][1], [20, 25])
    # A step's host span may begin before the first task and end after the last: the window bounds it.
    steps = SimpleNamespace(ts=np.array([-9 * MS, 20 * MS]), end=np.array([10 * MS, 30 * MS]))
    per_step = annotate(timeline_of(rows), steps=steps).layer.counters[-1]
    assert per_step.ts.tolist() == [0] and np.allclose(per_step.values, [20])


def test_one_task_no_gap():
    annotation = annotate(timeline_of([{"ts": 10, "dur": 0}]))
    assert annotation.slice_count == 0 and annotation.skipped is None
    assert "gap_ratio" not in annotation.facts["times"]
    assert annotate(timeline_of([])).skipped == "no recorded task"


def test_launch_by_connection_id_only_for_eager_tasks():
    tasks = [
        {"ts": 50, "dur": 1, "connection_id": 5},
        {"ts": 60, "dur": 1},
        {"ts": 70, "dur": 1, "connection_id": 9},
        {"ts": 80, "dur": 1, "connection_id": 5, "model_id": 47},
    ]
    host = [
        {"ts": 10, "dur": 9, "name": "Node@launch", "source": Host.CANN, "connection_id": 5},
        {"ts": 20, "dur": 3, "name": "aten::x", "connection_id": 9},
    ]
    timeline = timeline_of(tasks, host)
    timeline.host.slice += 100  # numbers of their own, after those of the tasks
    assert launches(timeline, np.array([0, 1, 2, 3, NULL])).tolist() == [0, NULL, NULL, NULL, NULL]


def test_sums_beyond_int64_are_left_out():
    big = 2**62
    annotation = annotate(timeline_of([{"ts": 0, "dur": big, "track": i} for i in range(3)]))
    assert "duration_sum_ns" not in annotation.facts["times"]
    assert annotation.facts["times"]["busy_union_ns"] == big


@pytest.mark.slow
def test_a_million_tasks():
    """Columns all the way: some seconds would mean that something loops over gaps or tasks."""
    n, timeline = 1_000_000, timeline_of([])
    rng = np.random.default_rng(3)
    ts = np.cumsum(rng.integers(500, 4_000, n)).astype(np.int64)
    dur = rng.integers(300, 6_000, n).astype(np.int64)
    stream = rng.integers(0, 40, n)
    none, text = np.full(n, NULL, np.int64), np.zeros(n, np.int32)
    rows = np.arange(n)
    timeline.tasks = Tasks(
        ts,
        dur,
        text,
        stream.astype(np.int32),
        rows,
        none,
        stream,
        rows,
        none,
        text,
        text,
        text,
        none,
        none,
        text,
        text > 0,
    )
    timeline.window = int(ts[0]), int((ts + dur).max())
    m = 300_000
    begin, track = np.sort(rng.integers(0, ts[-1], m)), rng.integers(0, 4, m).astype(np.int32)
    order = np.argsort(track, kind="stable")
    names, none = np.zeros(m, np.int32), np.full(m, NULL, np.int64)
    source = np.zeros(m, np.int8)
    timeline.host = HostSlices(begin[order], np.full(m, 3_000), names, track[order], order, source, none, none)
    started = time.process_time()
    annotation = annotate(timeline)
    assert annotation.slice_count > 100_000
    assert time.process_time() - started < 4
