"""Interval sets against a reference that looks at every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from annotators import intervals

SPAN = 40  # ns: small, so that ties, zero lengths and containment are common

bare = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, 12)), max_size=12)
windows = st.tuples(st.integers(-5, SPAN + 15), st.integers(-5, SPAN + 15)).map(lambda w: (min(w), max(w)))


def columns(rows):
    start = np.array([r[0] for r in rows], np.int64)
    return start, start + np.array([r[1] for r in rows], np.int64)


def moments(start, end):
    """The set of ns [t, t + 1) that the intervals cover."""
    return {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}


def is_busy_set(spans):
    start, end = spans
    return bool(np.all(end > start) and np.all(start[1:] > end[:-1]))


@given(bare)
def test_union(rows):
    start, end = columns(rows)
    spans = intervals.merged(start, end)
    assert is_busy_set(spans)
    assert moments(*spans) == moments(start, end)
    assert intervals.union_length(start, end) == len(moments(start, end))


@given(bare, windows)
def test_gaps_are_maximal_and_the_rest(rows, window):
    busy = intervals.merged(*columns(rows))
    gaps = intervals.gaps(busy, window)
    assert is_busy_set(gaps)
    assert moments(*gaps) == set(range(*window)) - moments(*busy)


@given(bare, windows)
def test_clipped_union(rows, window):
    start, end = columns(rows)
    assert moments(*intervals.clipped(start, end, window)) == moments(start, end) & set(range(*window))
    expected = [
        (a < window[1] and b > window[0]) if b > a else window[0] <= a <= window[1]
        for a, b in zip(start.tolist(), end.tolist(), strict=True)
    ]
    assert intervals.touches(start, end, window).tolist() == expected


@given(bare, st.lists(windows, min_size=1, max_size=6))
def test_covered_within(rows, queries):
    busy = intervals.merged(*columns(rows))
    start, end = (np.array(side, np.int64) for side in zip(*queries, strict=True))
    expected = [len(moments(*busy) & set(range(*q))) for q in queries]
    assert intervals.covered_within(busy, start, end).tolist() == expected


@given(st.lists(bare, max_size=5))
def test_count_over_time(sets):
    busy = [intervals.merged(*columns(rows)) for rows in sets]
    ts, count = intervals.count_over_time(busy)
    assert np.all(np.diff(ts) > 0) and np.all(np.diff(count, prepend=0) != 0)
    for t in range(-1, SPAN + 15):
        row = np.searchsorted(ts, t, side="right") - 1
        expected = sum(t in moments(*b) for b in busy)
        assert (count[row] if row >= 0 else 0) == expected


@given(st.lists(bare, min_size=1, max_size=4))
def test_intersection(sets):
    busy = [intervals.merged(*columns(rows)) for rows in sets]
    both = intervals.intersection(busy)
    assert is_busy_set(both)
    assert moments(*both) == set.intersection(*(moments(*b) for b in busy))


@given(bare, bare)
def test_difference(rows, minus):
    a, b = intervals.merged(*columns(rows)), intervals.merged(*columns(minus))
    rest = intervals.difference(a, b)
    assert is_busy_set(rest)
    assert moments(*rest) == moments(*a) - moments(*b)


def test_nothing_at_all():
    none = np.empty(0, np.int64), np.empty(0, np.int64)
    assert intervals.union_length(*none) == 0
    assert [side.tolist() for side in intervals.gaps(none, (3, 9))] == [[3], [9]]
    assert intervals.gaps(none, (9, 9))[0].size == 0
    assert intervals.intersection([none, none])[0].size == 0
    assert intervals.count_over_time([])[0].size == 0
