"""Group gaps: an intersection, refused where the clocks do not carry it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from annotators import intervals
from annotators.group_gaps import annotate, common_window, group_gaps
from tests.annotators.bare_timeline import timeline_of

rank_rows = st.lists(
    st.fixed_dictionaries({"ts": st.integers(0, 40), "dur": st.integers(0, 12)}), min_size=1, max_size=8
)


@given(st.lists(rank_rows, min_size=2, max_size=4))
def test_against_every_nanosecond(ranks):
    timelines = [timeline_of(rows, rank=i) for i, rows in enumerate(ranks)]
    start, end = annotate(timelines).tables["group_gaps"]
    window = set.intersection(*(set(range(*t.window)) for t in timelines))
    covered = {m for rows in ranks for r in rows for m in range(r["ts"], r["ts"] + r["dur"])}
    assert {m for a, b in zip(start, end, strict=True) for m in range(a, b)} == window - covered
    assert np.all(end > start) and np.all(start[1:] > end[:-1])


def test_two_ranks_with_twenty_percent_each_that_never_coincide():
    a = timeline_of([{"ts": 0, "dur": 20}, {"ts": 40, "dur": 60}], rank=0)
    b = timeline_of([{"ts": 0, "dur": 60}, {"ts": 80, "dur": 20}], rank=1)
    annotation = annotate([a, b])
    assert annotation.slice_count == 0
    assert annotation.facts["group_gaps"]["gap_ns"] == 0
    for timeline in (a, b):
        busy = intervals.merged(timeline.tasks.ts, timeline.tasks.end)
        assert intervals.length(intervals.gaps(busy, timeline.window)) == 20


def test_slices_and_their_rank_count():
    ranks = [timeline_of([{"ts": r, "dur": 10}, {"ts": 50 - r, "dur": 10}], rank=r) for r in range(3)]
    layer = annotate(ranks).layer
    gaps = layer.slices[0]
    assert (gaps.ts.tolist(), gaps.dur.tolist()) == ([12], [36])
    assert gaps.columns[0].key == "rank_count" and gaps.columns[0].values.tolist() == [3]
    assert layer.strings[gaps.category] == "npu.group_gap"


def test_evidence_is_that_of_the_clocks():
    for methods, want in (
        (["reference", "same_host"], "recorded"),
        (["reference", "collective"], "inferred"),
        (["reference", "manual"], "inferred"),
    ):
        ranks = [timeline_of([{"ts": 0, "dur": 10}, {"ts": 50, "dur": 10}], rank=r) for r in range(2)]
        for timeline, method in zip(ranks, methods, strict=True):
            timeline.clock.method = method
        layer = annotate(ranks).layer
        (column,) = (c for c in layer.slices[0].columns if c.key == "evidence")
        assert [layer.strings[v] for v in column.values.tolist()] == [want]


def test_refusals():
    ranks = [timeline_of([{"ts": 0, "dur": 10}], rank=0), timeline_of([], rank=3)]
    reason = "rank 3: residual_max_ns 81000 exceeds the tolerance of 50000 ns"
    refused = annotate(ranks, reason)
    assert refused.layer is None and refused.refused == [f"group gaps: {reason}"]
    assert annotate(ranks).refused == ["group gaps: rank 3 has no recorded task"]
    assert annotate(ranks[:1]).skipped is not None


def test_windows_that_share_no_time():
    assert common_window([(0, 5), (9, 12)]) == (9, 9)
    none = np.empty(0, np.int64), np.empty(0, np.int64)
    assert group_gaps([none, none], [(0, 5), (9, 12)])[0].size == 0
    assert group_gaps([], [])[0].size == 0
