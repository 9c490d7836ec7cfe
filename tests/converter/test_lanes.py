"""Lanes against brute force: placement slice by slice, and a replay of the stack that Perfetto keeps."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.write import lanes
from converter.write.lanes import MAX_DEPTH, Layout, lay_out

intervals = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.sampled_from([0, 0, 1, 2, 3, 7, 20])), min_size=0, max_size=60
)


def run(rows: list[tuple[int, int, int]]) -> Layout:
    track, ts, dur = (np.array([r[k] for r in rows], dt) for k, dt in ((0, np.int32), (1, np.int64), (2, np.int64)))
    return lay_out(track, ts, dur)


def brute_lanes(rows: list[tuple[int, int, int]]) -> dict[int, int]:
    """The first lane in which a slice partially overlaps none of the slices there."""
    order = sorted(range(len(rows)), key=lambda i: (rows[i][0], rows[i][1], -rows[i][2], i))
    lanes: dict[int, int] = {}
    for i in order:
        track, start, dur = rows[i]
        k = 0
        while True:
            mates = [j for j in lanes if rows[j][0] == track and lanes[j] == k]
            if all(rows[j][1] + rows[j][2] <= start or rows[j][1] + rows[j][2] >= start + dur for j in mates):
                break
            k += 1
        lanes[i] = k
    return lanes


def replay(rows: list[tuple[int, int, int]], layout: Layout) -> dict[int, tuple[int, int]]:
    """What a stack per (track, lane) makes of begin/end events, sorted by time and stable in file order."""
    items: list[tuple[int, int]] = []  # (slice, +1 begin / -1 end) in depth-first order
    open_: list[tuple[int, int]] = []
    n = len(rows)
    for i in range(n):
        while open_ and open_[-1][1] <= i:
            items.append((open_.pop()[0], -1))
        items.append((int(layout.order[i]), 1))
        open_.append((int(layout.order[i]), i + 1 + int(layout.descendants[i])))
    while open_:
        items.append((open_.pop()[0], -1))
    lane_of = {int(o): (int(t), int(k)) for o, t, k in zip(layout.order, layout.track, layout.lane, strict=True)}
    events = [(rows[i][1] + (rows[i][2] if what < 0 else 0), i, what) for i, what in items]
    events.sort(key=lambda e: e[0])
    stacks: dict[tuple[int, int], list[int]] = {}
    out = {}
    for when, i, what in events:
        stack = stacks.setdefault(lane_of[i], [])
        if what > 0:
            stack.append(i)
            out[i] = (when, -1)
        else:
            j = stack.pop()  # the engine closes the innermost, whatever we meant
            out[j] = (out[j][0], when - out[j][0])
    assert not any(stacks.values())
    return out


@pytest.mark.parametrize("few", [0, lanes.FEW_SLICES])  # both ways of placing a cluster
@given(rows=intervals)
@settings(max_examples=300, deadline=None)
def test_every_slice_keeps_its_interval_and_its_lane(few: int, rows: list[tuple[int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "FEW_SLICES", few)
        layout = run(rows)
    assert replay(rows, layout) == {i: (r[1], r[2]) for i, r in enumerate(rows)}
    assert {int(o): int(k) for o, k in zip(layout.order, layout.lane, strict=True)} == brute_lanes(rows)


def test_depth_is_limited() -> None:
    rows = [(0, i, 5000 - 2 * i) for i in range(1200)]
    layout = run(rows)
    assert int(layout.depth.max()) == MAX_DEPTH - 1
    assert int(layout.lane.max()) == 2
    assert replay(rows, layout) == {i: (r[1], r[2]) for i, r in enumerate(rows)}


def test_a_staircase_of_lanes_is_not_quadratic() -> None:
    n = 20_000
    began = time.perf_counter()
    layout = lay_out(np.zeros(n, np.int32), np.arange(n, dtype=np.int64), np.full(n, n, np.int64))
    assert int(layout.lane.max()) == n - 1
    assert time.perf_counter() - began < 5


def test_unsorted_rows_give_the_same_slices() -> None:
    rng = np.random.default_rng(3)
    ts = np.arange(1000, dtype=np.int64) * 10
    mixed = rng.permutation(1000)
    layout = lay_out(np.zeros(1000, np.int32), ts[mixed], np.full(1000, 10, np.int64))
    assert (ts[mixed][layout.order] == ts).all()
    assert not layout.lane.any()
