from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from annotators.launch_check import launch_check
from schemas.timeline import NULL, Host, HostSlices, Timeline
from tests.annotators.timelines import timeline_of

Call = tuple[int, int, Host]  # start, connection id, source
Task = tuple[int, int, int]  # start, connection id, model id


def with_calls(tasks: list[Task], calls: list[Call]) -> Timeline:
    tasks = sorted(tasks, key=lambda t: t[0])
    timeline = timeline_of(0, [("k", start, start + 10) for start, _, _ in tasks])
    timeline.tasks.connection_id = np.array([c for _, c, _ in tasks], np.int64)
    timeline.tasks.model_id = np.array([m for _, _, m in tasks], np.int64)
    n = len(calls)
    timeline.host = HostSlices(
        ts=np.array([c[0] for c in calls], np.int64),
        dur=np.full(n, 5, np.int64),
        name=np.zeros(n, np.int32),
        track=np.zeros(n, np.int32),
        slice=np.arange(n, dtype=np.int64),
        source=np.array([c[2] for c in calls], np.int8),
        connection_id=np.array([c[1] for c in calls], np.int64),
        correlation_id=np.full(n, NULL, np.int64),
    )
    return timeline


def test_counts_pairs_and_the_worst() -> None:
    tasks = [(100, 1, NULL), (200, 2, NULL), (300, 3, NULL), (400, NULL, NULL), (500, 9, NULL), (50, 4, 7)]
    calls = [
        (90, 1, Host.CANN),
        (207, 2, Host.CANN),  # 7 after its task
        (310, 3, Host.CANN),  # nested in the next one, which starts first
        (303, 3, Host.CANN),  # 3 after its task
        (600, 4, Host.CANN),  # its task belongs to a graph
        (900, 1, Host.FRAMEWORK),
    ]
    assert launch_check(with_calls(tasks, calls)) == (3, 2, 7)


def test_nothing_to_check() -> None:
    assert launch_check(with_calls([], [])) == (0, 0, 0)
    assert launch_check(with_calls([(1, 1, NULL)], [])) == (0, 0, 0)
    assert launch_check(with_calls([(1, 1, NULL)], [(1, 1, Host.CANN)])) == (1, 0, 0)


ids = st.integers(-1, 6)


@given(
    st.lists(st.tuples(st.integers(0, 50), ids, st.sampled_from([NULL, 3])), max_size=12),
    st.lists(st.tuples(st.integers(0, 50), ids, st.sampled_from([Host.CANN, Host.PYTHON])), max_size=12),
)
def test_equals_the_plain_count(tasks: list[Task], calls: list[Call]) -> None:
    pairs = violations = worst = 0
    for start, connection, model in tasks:
        starts = [c[0] for c in calls if c[1] == connection and c[2] is Host.CANN]
        if connection != NULL and model == NULL and starts:
            pairs += 1
            violations += start < min(starts)
            worst = max(worst, min(starts) - start)
    assert launch_check(with_calls(tasks, calls)) == (pairs, violations, worst)
