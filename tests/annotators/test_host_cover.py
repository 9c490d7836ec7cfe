"""Host cover against a reference that walks every gap, every slice and every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.host_cover import host_cover, innermost_container
from schemas.roles import load_roles
from schemas.timeline import NULL, Host, StringPool
from tests.annotators.bare_timeline import host_of

ROLES = load_roles()

#: Names and sources: ops, an API call, a wrapper by name, a Python frame.
KINDS = [
    ("aten::to", Host.FRAMEWORK),
    ("gloo:all_gather", Host.FRAMEWORK),
    ("Node@launch", Host.CANN),
    ("scheduler.run_batch", Host.FRAMEWORK),
    ("step[VERIFY bs=4]", Host.FRAMEWORK),
    ("ProfilerStep#3", Host.FRAMEWORK),
    ("server.py(3): loop", Host.PYTHON),
]


def slice_(ts, dur, kind=0, track=0, name=None):
    named, source = KINDS[kind]
    return {"ts": ts, "dur": dur, "name": name or named, "source": source, "track": track}


def cover_of(gaps, rows):
    pool = StringPool()
    host = host_of(rows, pool)
    start, end = (np.array(side, np.int64) for side in zip(*gaps, strict=True))
    return host_cover((start, end), host, pool, ROLES), host, pool


def reference(gaps, host, pool):
    """Per gap: the chosen row, its own ns in the gap. One nanosecond at a time."""
    left_out = [pool[n].startswith(("scheduler.", "step[", "ProfilerStep#")) for n in host.name.tolist()]
    rows = [i for i in range(len(host)) if not left_out[i] and host.source[i] != Host.PYTHON and host.dur[i] > 0]
    at = {i: (int(host.ts[i]), int(host.end[i]), int(host.slice[i]), int(host.track[i])) for i in rows}

    def contains(a, b):
        """Slice a holds b: same thread, and a is first by start, then longer, then input order."""
        (a0, a1, an, at_), (b0, b1, bn, bt) = at[a], at[b]
        return a != b and at_ == bt and a0 <= b0 and b1 <= a1 and (a0, -a1, an) < (b0, -b1, bn)

    def parent(b, among):
        around = [a for a in among if contains(a, b)]
        return max(around, key=lambda a: (at[a][0], -at[a][1], at[a][2]), default=None)

    out = []
    for low, high in gaps:
        best = None
        candidates = [i for i in rows if low < at[i][1] <= high]
        parents = {i: parent(i, candidates) for i in candidates}
        for i in candidates:
            begin, stop, number, _ = at[i]
            mine = set(range(max(begin, low), stop))
            children = [c for c in candidates if parents[c] == i]
            own = len(mine - {t for c in children for t in range(at[c][0], at[c][1])})
            key = (-own, stop - begin, begin, number)
            if best is None or key < best[0]:
                best = key, i, len(mine) / (high - low), own
        out.append(best[1:] if best else (NULL, 0.0, 0))
    return out


slices = st.builds(
    slice_, st.integers(0, 30), st.integers(0, 25), st.sampled_from([0, 0, 1, 2, 3, 4, 5, 6]), st.integers(0, 1)
)


def cut_into_gaps(edges):
    """Disjoint gaps, never touching, from sorted distinct edges."""
    return list(zip(edges[0::2], edges[1::2], strict=False))


edge_lists = st.lists(st.integers(0, 50), min_size=2, max_size=8, unique=True).map(sorted)


@settings(max_examples=300)
@given(edge_lists.map(cut_into_gaps), st.lists(slices, max_size=14))
def test_against_every_nanosecond(gaps, rows):
    cover, host, pool = cover_of(gaps, rows)
    got = list(zip(cover.host.tolist(), cover.ratio.tolist(), cover.self_ns.tolist(), strict=True))
    assert got == [pytest.approx(row) for row in reference(gaps, host, pool)]


def name_of(cover, host, pool, gap=0):
    return pool[host.name[cover.host[gap]]] if cover.host[gap] != NULL else None


def test_wide_wrappers_and_frames_do_not_count():
    found = cover_of(
        [(100, 200)],
        [
            slice_(90, 105, 3),  # ends inside the gap, and is a wrapper
            slice_(95, 104, 6),  # a Python frame around the op
            slice_(110, 85, 1),
        ],
    )
    assert name_of(*found) == "gloo:all_gather"
    assert found[0].ratio[0] == 0.85
    assert found[0].self_ns[0] == 85


def test_what_still_runs_when_the_next_task_starts_did_not_hold_it_back():
    cover, host, pool = cover_of([(100, 200)], [slice_(100, 101, 0), slice_(150, 10, 1)])
    assert name_of(cover, host, pool) == "gloo:all_gather"
    cover, host, pool = cover_of([(100, 200)], [slice_(100, 100, 0)])
    assert name_of(cover, host, pool) == "aten::to" and cover.ratio[0] == 1.0


def test_own_time_decides_not_the_widest():
    found = cover_of([(0, 100)], [slice_(0, 100, 0), slice_(5, 80, 1), slice_(50, 10, 2)])
    assert name_of(*found) == "gloo:all_gather"
    assert found[0].self_ns[0] == 70 and found[0].ratio[0] == 0.8


def test_children_on_another_thread_are_not_children():
    found = cover_of([(0, 100)], [slice_(0, 100, 0, track=0), slice_(5, 80, 1, track=1)])
    assert name_of(*found) == "aten::to"


def test_touching_is_not_overlapping():
    assert cover_of([(100, 200)], [slice_(50, 50, 0), slice_(150, 0, 1)])[0].host[0] == NULL


def test_no_gap_no_host():
    pool = StringPool()
    none = np.empty(0, np.int64)
    assert len(host_cover((none, none), host_of([slice_(0, 1)], pool), pool, ROLES).host) == 0
    assert cover_of([(0, 10)], [])[0].host.tolist() == [NULL]


def test_deep_stacks_and_many_siblings():
    stop = np.concatenate((np.arange(10_000, 0, -1), np.arange(1, 20_000))).astype(np.int64)
    parent = innermost_container(stop, np.zeros(len(stop), np.int64))
    assert parent[1:10_000].tolist() == list(range(9_999))
    expected, stack = [], []
    for i, end in enumerate(stop.tolist()):
        while stack and stop[stack[-1]] < end:
            stack.pop()
        expected.append(stack[-1] if stack else NULL)
        stack.append(i)
    assert parent.tolist() == expected


def test_a_users_role_table_names_wrappers(tmp_path):
    table = tmp_path / "roles.toml"
    table.write_text("[wrapper]\npatterns = ['^gloo:']\n")
    pool = StringPool()
    host = host_of([slice_(10, 80, 1), slice_(20, 5, 3)], pool)
    cover = host_cover((np.array([0]), np.array([100])), host, pool, load_roles(table))
    assert pool[host.name[cover.host[0]]] == "scheduler.run_batch"
