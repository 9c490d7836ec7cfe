"""The vendor's times: by hand, against every nanosecond, and against step_trace_time.csv of real captures."""

from __future__ import annotations

import csv
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotators.vendor_times import WHY_THEY_DIFFER, VendorTimes, annotate, npu_vendor_times
from schemas.timeline import Column, Host, Kind, Role, SliceBatch, Timeline
from tests.annotators.bare_timeline import host_of, timeline_of


def add_overlap(timeline: Timeline, rows, device=0):
    """rows: (thread, ts, dur)."""
    group = timeline.track("Overlap Analysis", Kind.GROUP, device=device)
    tracks = {name: timeline.track(name, parent=group, role=Role.OVERLAP) for name in {r[0] for r in rows}}
    timeline.add(
        SliceBatch(
            np.array([tracks[r[0]] for r in rows], np.int32),
            np.array([r[1] for r in rows], np.int64),
            np.array([r[2] for r in rows], np.int64),
            timeline.strings.add_all([r[0] for r in rows]),
        )
    )


def label_steps(timeline: Timeline, labels, kind="int"):
    """Gives the tasks (which came in file order) a batch with the argument step_id; None is absent."""
    known = np.array([label is not None for label in labels])
    if kind == "int":
        column = Column("step_id", "int", np.array([label or 0 for label in labels], np.int64), known)
    else:
        column = Column("step_id", "text", timeline.strings.add_all([str(label or "") for label in labels]), known)
    n, none = len(labels), np.zeros(len(labels), np.int32)
    batch = SliceBatch(none, np.zeros(n, np.int64), np.zeros(n, np.int64), none, columns=[column])
    timeline.add(batch)
    timeline.tasks.slice += batch.first


OVERLAP = [
    ("Computing", 100, 10),
    ("Communication", 105, 20),
    ("Communication(Not Overlapped)", 110, 15),
    ("Free", 125, 5),
    ("Computing", 130, 7),
    ("Free", 205, 3),
]


def test_overlap_slices_without_steps():
    timeline = timeline_of([])
    add_overlap(timeline, OVERLAP)
    assert npu_vendor_times(timeline) == [VendorTimes(None, "overlap_analysis", 17, 20, 15, 8, 0)]


@pytest.mark.parametrize("kind", ["int", "text"])
def test_overlap_slices_by_step(kind):
    """A slice belongs to the first step whose device range holds its start; outside of all steps it is left out."""
    timeline = timeline_of([{"ts": 105, "dur": 5}, {"ts": 130, "dur": 70}])
    timeline.host = host_of(
        [{"ts": 50, "dur": 60, "name": "ProfilerStep#7"}, {"ts": 110, "dur": 60, "name": "ProfilerStep#8"}],
        timeline.strings,
    )
    label_steps(timeline, [7, 8], kind)
    add_overlap(timeline, OVERLAP)
    # Step 7 is [105, 110) and step 8 [130, 200): what starts at 100, 110, 125 and 205 is in neither.
    assert npu_vendor_times(timeline) == [
        VendorTimes("7", "overlap_analysis", 0, 20, 0, 0, 0),
        VendorTimes("8", "overlap_analysis", 7, 0, 0, 0, 0),
    ]


def test_step_ranges_from_submissions():
    timeline = timeline_of([{"ts": 100, "dur": 5, "connection_id": 1}, {"ts": 130, "dur": 90, "connection_id": 2}])
    timeline.host = host_of(
        [
            {"ts": 50, "dur": 60, "name": "ProfilerStep#7"},
            {"ts": 60, "dur": 5, "name": "Node@launch", "source": Host.CANN, "connection_id": 1, "track": 1},
            {"ts": 70, "dur": 5, "name": "Node@launch", "source": Host.CANN, "connection_id": 2, "track": 1},
        ],
        timeline.strings,
    )
    add_overlap(timeline, OVERLAP)
    assert npu_vendor_times(timeline) == [VendorTimes("7", "overlap_analysis", 17, 20, 15, 8, 0)]


def test_two_devices_are_not_mixed():
    timeline = timeline_of([])
    add_overlap(timeline, OVERLAP[:1], device=1)
    add_overlap(timeline, OVERLAP[1:], device=0)
    assert [(r.device_id, r.computing_ns) for r in npu_vendor_times(timeline)] == [(0, 7), (1, 10)]


rows_of_tasks = st.lists(
    st.fixed_dictionaries(
        {
            "ts": st.integers(0, 40),
            "dur": st.integers(0, 10),
            "communication": st.booleans(),
            "name": st.sampled_from(["MatMul", "hcom_x_AivKernel", "yAicpuKernel", "z_AivKernel_1"]),
        }
    ),
    min_size=1,
    max_size=10,
)


@given(rows_of_tasks)
def test_kernel_rows_against_every_nanosecond(rows):
    (got,) = npu_vendor_times(timeline_of(rows))
    sets = {True: set(), False: set()}
    for r in rows:
        if r["communication"] or not r["name"].endswith(("AivKernel", "AicpuKernel")):
            sets[r["communication"]] |= set(range(r["ts"], r["ts"] + r["dur"]))
    whole = set(range(min(r["ts"] for r in rows), max(r["ts"] + r["dur"] for r in rows)))
    assert got.source == "kernel_rows" and got.step is None
    assert got.computing_ns == len(sets[False])
    assert got.communication_ns == len(sets[True])
    assert got.communication_not_overlapped_ns == len(sets[True] - sets[False])
    assert got.free_ns == len(whole - sets[True] - sets[False])


def test_kernel_rows_by_step():
    timeline = timeline_of(
        [{"ts": 0, "dur": 5}, {"ts": 10, "dur": 5}, {"ts": 17, "dur": 3, "communication": True}, {"ts": 30, "dur": 1}]
    )
    label_steps(timeline, [9, 10, 10, None])
    rows = npu_vendor_times(timeline)
    assert [(r.step, r.computing_ns, r.communication_ns, r.free_ns) for r in rows] == [("9", 5, 0, 0), ("10", 5, 3, 2)]


@given(rows_of_tasks, st.integers(0, 25), st.integers(1, 30), st.booleans())
def test_a_cut_trace_is_clipped_to_its_window(rows, low, length, from_overlap):
    """Against every nanosecond of the window; there is one row, without a step."""
    window = (low, low + length)
    kept = [r for r in rows if r["ts"] < window[1] and r["ts"] + r["dur"] > low]
    inside = set(range(*window))
    sets = {True: set(), False: set()}
    for r in kept:
        if r["communication"] or not r["name"].endswith(("AivKernel", "AicpuKernel")):
            sets[r["communication"]] |= inside & set(range(r["ts"], r["ts"] + r["dur"]))
    timeline = timeline_of(kept, window=window)
    timeline.cut = "window"
    if kept:
        label_steps(timeline, [7] * len(kept))
    if from_overlap:
        timeline.host = host_of([{"ts": low, "dur": length, "name": "ProfilerStep#7"}], timeline.strings)
        computing, alone = sorted(sets[False]), sorted(sets[True] - sets[False])
        # A slice of three units around each moment would reach beyond the window: only the part in it counts.
        edges = [("Free", low - 2, 2 + min(1, length)), ("Computing", window[1] - 1, 5)]
        add_overlap(
            timeline, [*(("Communication", m, 1) for m in alone), *(("Computing", m, 1) for m in computing), *edges]
        )
        (got,) = npu_vendor_times(timeline)
        assert got.step is None and got.free_ns == 1
        assert (got.computing_ns, got.communication_ns) == (len(computing) + 1, len(alone))
    elif kept:
        (got,) = npu_vendor_times(timeline)
        assert got.step is None and got.source == "kernel_rows"
        assert (got.computing_ns, got.communication_ns) == (len(sets[False]), len(sets[True]))
        assert got.communication_not_overlapped_ns == len(sets[True] - sets[False])
        assert got.free_ns == len(inside - sets[True] - sets[False])
    if kept or from_overlap:
        assert annotate(timeline).facts["cut"] == "window"


def test_facts_leave_out_what_is_not_known():
    timeline = timeline_of([{"ts": 0, "dur": 5}])
    (row,) = annotate(timeline).facts["vendor_times"]
    assert "step" not in row and "device_id" not in row
    assert row["computing_ns"] == 5 and row["communication_ns"] == 0
    assert annotate(timeline_of([])).skipped
    assert "Free" in WHY_THEY_DIFFER


def captures(shared):
    return sorted((shared / "captures").glob("*/*_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv"))


def test_equal_to_step_trace_time_of_every_text_capture(shared):
    from converter.convert import read
    from converter.find import find_captures

    paths = captures(shared)
    assert len(paths) == 4
    for path in paths:
        timeline = read(find_captures([str(path.parent.parent)])[0], _options()).timeline
        with open(path, newline="") as file:
            expected = list(csv.DictReader(file))
        rows = npu_vendor_times(timeline)
        assert [r.step for r in rows] == [e["Step"] for e in expected]
        source = "overlap_analysis" if (path.parent / "trace_view.json").exists() else "kernel_rows"
        for row, e in zip(rows, expected, strict=True):
            assert row.source == source
            columns = {
                "Computing": row.computing_ns,
                "Communication": row.communication_ns,
                "Communication(Not Overlapped)": row.communication_not_overlapped_ns,
                "Free": row.free_ns,
            }
            for name, ns in columns.items():
                assert abs(Decimal(ns) / 1000 - Decimal(e[name])) <= 1, (path, name)


def _options():
    from converter.options import Options

    return Options()
