"""The four kinds of time, and the arithmetic of the article on gaps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotators.times import (
    IDEALISATION,
    NOT_RECOVERABLE,
    exact_sum,
    idealisation,
    idealised_throughput_gain,
    npu_rank_times,
    rank_times,
)
from tests.annotators.bare_timeline import timeline_of

MS = 1_000_000


def column(*values):
    return np.array(values, np.int64)


def test_teaching_example():
    """Two streams, 7 ms and 4 ms of work in a 10 ms window."""
    times = rank_times(column(0, 5, 4, 8) * MS, column(3, 4, 2, 2) * MS)  # stream A: 3 + 4 ms, stream B: 2 + 2 ms
    assert (times.wall_ns, times.duration_sum_ns, times.busy_union_ns, times.gap_ns) == (10 * MS, 11 * MS, 9 * MS, MS)
    assert times.gap_ratio == 0.1
    assert times.kernel_count == 4


def test_waits_are_added_where_recorded():
    times = rank_times(column(0, 10), column(5, 5), column(7, -1))
    assert (times.duration_sum_ns, times.duration_wait_sum_ns) == (10, 17)
    assert rank_times(column(0, 10), column(5, 5), column(0, -1)).duration_wait_sum_ns == 10  # a recorded wait of 0


def test_a_sum_with_waits_is_not_known_where_none_was_recorded():
    for wait in (None, column(-1, -1)):
        times = rank_times(column(0, 10), column(5, 5), wait)
        assert times.duration_wait_sum_ns is None and "duration_wait_sum_ns" not in times.as_facts()
    assert rank_times(column(0, 10), column(5, 5), column(-1, 3), (0, 6)).duration_wait_sum_ns is None  # 3 is outside


def test_window_clips_and_counts_what_touches():
    ts, dur, wait = column(0, 10, 20, 30, 15), column(5, 10, 5, 5, 0), column(1, 2, 4, 8, 16)
    times = rank_times(ts, dur, wait, (12, 22))
    assert times.window_ts == 12 and times.wall_ns == 10
    assert times.duration_sum_ns == 8 + 2
    assert times.duration_wait_sum_ns == 10 + 2 + 4 + 16
    assert times.busy_union_ns == 10 and times.gap_ns == 0
    assert times.kernel_count == 3


def test_no_length_no_ratio():
    times = rank_times(column(7), column(0))
    assert times.wall_ns == 0 and times.gap_ratio is None and times.kernel_count == 1
    assert rank_times(column(), column()).gap_ratio is None


def test_window_in_which_nothing_was_recorded():
    times = rank_times(column(0), column(5), None, (100, 110))
    assert (times.wall_ns, times.gap_ns, times.gap_ratio, times.kernel_count) == (10, 10, 1.0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(-1, 5)), min_size=1, max_size=12),
    st.none() | st.tuples(st.integers(-5, 20), st.integers(1, 40)),
)
def test_against_every_nanosecond(rows, window):
    if window:
        window = window[0], window[0] + window[1]
    ts, dur, wait = (column(*side) for side in zip(*rows, strict=True))
    times = rank_times(ts, dur, wait, window)
    low, high = window or (min(r[0] for r in rows), max(r[0] + r[1] for r in rows))
    inside = [set(range(a, a + d)) & set(range(low, high)) for a, d, _ in rows]
    busy = set().union(*inside)
    assert times.duration_sum_ns == sum(map(len, inside))
    assert times.busy_union_ns == len(busy)
    assert times.gap_ns == high - low - len(busy)
    assert times.kernel_count == sum(
        bool(i) or (not r[1] and low <= r[0] <= high) for i, r in zip(inside, rows, strict=True)
    )


def test_timeline_and_bare_arrays_agree():
    rows = [{"ts": 5, "dur": 10, "wait_ns": 3}, {"ts": 30, "dur": 2}]
    assert npu_rank_times(timeline_of(rows)) == rank_times(column(5, 30), column(10, 2), column(3, -1))


def test_float64_is_not_enough():
    """30,000 tasks at today's epoch in us: read as float64 the union is off by more than 100 us, ours is exact."""
    first, n = 1_767_000_000_000_000_000, 30_000
    # 1 us apart with 110 ns of work from an odd ns on: float64 holds quarters of a us at this epoch.
    ts = first + 130 + np.arange(n, dtype=np.int64) * 1_000
    dur = np.full(n, 110, np.int64)
    exact = rank_times(ts, dur).busy_union_ns
    assert exact == n * 110
    start_us = np.array([float(f"{t // 1000}.{t % 1000:03d}") for t in ts.tolist()])
    end_us = start_us + 0.110
    lost_us = abs(float(np.sum(end_us - start_us)) - exact / 1000)
    assert lost_us > 100


def test_nineteen_percent_less_time_is_not_nineteen_percent_more_throughput():
    assert idealised_throughput_gain(0.19) == pytest.approx(float(1 / (1 - Fraction(19, 100)) - 1))
    text = idealisation(0.19)
    assert "23.46%" in text and "not a forecast" in text and IDEALISATION in text
    for share in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="share"):
            idealised_throughput_gain(share)


def test_words():
    assert len(NOT_RECOVERABLE) <= 80
    assert "not recoverable" in NOT_RECOVERABLE


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_sums_beyond_int64(values):
    assert exact_sum(column(*values)) == sum(values)
