"""Gap accounting of the shipped sample against the truth that the simulator wrote beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from annotators.align import align
from annotators.gaps import annotate
from annotators.group_gaps import annotate as annotate_group
from annotators.times import npu_rank_times
from converter.convert import read
from converter.find import find_captures
from converter.options import Options

SAMPLE = Path(__file__).resolve().parent.parent.parent / "samples" / "dspark_two_ranks"


@pytest.fixture(scope="module")
def truth():
    return json.loads((SAMPLE / "truth.json").read_text())


@pytest.fixture(scope="module")
def timelines():
    captures = sorted(find_captures([str(SAMPLE)]), key=lambda c: c.rank)
    return [read(capture, Options()).timeline for capture in captures]


def test_times_and_gaps(truth, timelines):
    for expected, timeline in zip(truth["ranks"], timelines, strict=True):
        times = npu_rank_times(timeline)
        for key in ("wall_ns", "duration_sum_ns", "busy_union_ns", "gap_ns", "kernel_count"):
            assert getattr(times, key) == expected["times"][key]
        gaps = annotate(timeline).layer.slices[0]
        assert [list(g) for g in zip(gaps.ts.tolist(), gaps.dur.tolist(), strict=True)] == expected["gaps"]


def test_group_gaps_of_one_host(truth, timelines):
    """The ranks of the sample share a host: no clock moves, so the group gaps are the true ones."""
    clocks = align(timelines, assume_aligned=True)
    assert [clock.offset_ns for clock in clocks] == [0, 0]
    gaps = annotate_group(timelines).layer.slices[0]
    assert [list(g) for g in zip(gaps.ts.tolist(), gaps.dur.tolist(), strict=True)] == truth["group_gaps"]


def test_a_host_collective_is_seen_in_the_gap_it_covers(timelines):
    for timeline in timelines:
        layer = annotate(timeline).layer
        columns = {c.key: c.values for c in layer.slices[0].columns}
        gaps, host = layer.slices[0], timeline.host
        wide = gaps.dur.argmax()
        assert timeline.strings[columns["host_event"][wide]] == "gloo:all_gather"
        low, high = int(gaps.ts[wide]), int(gaps.ts[wide] + gaps.dur[wide])
        called = host.name == timeline.strings.find("gloo:all_gather")
        covers = [
            (min(b, high) - max(a, low)) / (high - low)
            for a, b in zip(host.ts[called].tolist(), host.end[called].tolist(), strict=True)
            if low < b <= high
        ]
        assert columns["host_cover_ratio"][wide] == pytest.approx(max(covers))
