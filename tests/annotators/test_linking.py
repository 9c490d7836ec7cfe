"""Tasks to their host source, by eye: the queue, op flows, connection ids and flows of all exporters, replays."""

from __future__ import annotations

import numpy as np

from annotators.linking import link, linked_to
from annotators.replay_calls import find_replays
from schemas.roles import load_roles
from schemas.timeline import NULL
from tests.annotators.builder import Builder, ns


def sources(t: Builder) -> list[int]:
    """The source of each task in order of start, in us; NULL where unknown."""
    timeline = t.build()
    links = link(timeline, find_replays(timeline, load_roles()))
    return [NULL if s == NULL else round((s - ns(0)) / 1000) for s in links.source_ts.tolist()]


def test_the_queue_is_followed_back_to_the_enqueue() -> None:
    t = Builder()
    t.queued(900, 10, 12)
    t.queued(900, 30, 40, "Dequeue", tid=2)
    t.launch(7, 32, 36, tid=2)
    t.task("MatMul", 50, 60, connection=7)
    assert sources(t) == [10]


def test_a_launch_on_another_thread_at_the_same_time_is_not_in_the_dequeue() -> None:
    t = Builder()
    t.queued(900, 10, 12)
    t.queued(900, 30, 40, "Dequeue", tid=2)
    t.launch(7, 32, 36, tid=1)
    t.task("MatMul", 50, 60, connection=7)
    assert sources(t) == [32]


def test_the_queue_goes_before_the_op_and_the_op_before_the_launch() -> None:
    t = Builder()
    main = t.thread()
    op = t.host(main, "aten::mm", 5, 20)
    t.launch(7, 32, 36, tid=2)
    task = t.task("MatMul", 50, 60, connection=7)
    t.flow("async_npu", op, task)
    assert sources(t) == [5]
    t.queued(900, 10, 12)
    t.queued(900, 30, 40, "Dequeue", tid=2)
    assert sources(t) == [10]


def test_enqueue_by_flow_where_correlation_ids_are_absent() -> None:
    t = Builder()
    enqueue = t.queued(NULL, 10, 12)
    dequeue = t.queued(NULL, 30, 40, "Dequeue", tid=2)
    t.flow("async_task_queue", enqueue, dequeue)
    t.launch(7, 32, 36, tid=2)
    t.task("MatMul", 50, 60, connection=7)
    assert sources(t) == [10]


def test_submission_by_flow_where_the_task_has_no_connection_id() -> None:
    """In the CANN 8.0 export the flow of a collective has an id of its own; a reader resolves it to a pair."""
    for category in ("HostToDevice", "ac2g"):
        t = Builder()
        launch = t.launch(7, 32, 36)
        task = t.task("hcom_allReduce__868_0_1", 50, 60, communication=True, stream=NULL)
        t.flow(category, launch, task)
        assert sources(t) == [32]


def test_one_call_may_launch_several_tasks() -> None:
    t = Builder()
    t.launch(7, 32, 36)
    t.task("a", 50, 60, connection=7)
    t.task("b", 60, 70, connection=7)
    t.task("c", 70, 80, connection=8)
    assert sources(t) == [32, 32, NULL]


def test_tasks_of_a_replay_have_its_call_and_not_the_capture_times_id() -> None:
    t = Builder()
    t.launch(7, 32, 36)  # at capture time: another use of the same id
    t.launch(8, 100, 110, "AscendCL@aclmdlRIExecuteAsync")
    t.task("norm", 120, 125, connection=7, model_id=47, task_id=1)
    t.task("attn", 125, 130, connection=7, model_id=47, task_id=2)
    assert sources(t) == [100, 100]


def test_which_interval_holds_the_source() -> None:
    t = Builder()
    main, other = t.thread(), t.thread("other", tid=9)
    for number, (start, thread) in enumerate([(10, 1), (20, 1), (25, 9), (30, 1)]):
        t.queued(number, start, start + 1, tid=thread)
        t.queued(number, start + 40, start + 44, "Dequeue", tid=2)
        t.launch(100 + number, start + 41, start + 42, tid=2)
        t.task(f"k{number}", start + 50, start + 55, connection=100 + number)
    t.launch(200, 21, 22, tid=3)  # no queue: known by its submission only
    t.task("triton", 100, 101, connection=200)
    t.task("unknown", 110, 111)
    timeline = t.build()
    links = link(timeline, find_replays(timeline, load_roles()))
    start, end = np.array([ns(5), ns(20)]), np.array([ns(15), ns(29)])
    owner = linked_to(links, start, end, np.array([main, main]))
    assert owner.tolist() == [0, 1, NULL, NULL, 1, NULL]  # k2 was queued by another thread, k3 is too late
    assert linked_to(links, start, end, np.array([main, other])).tolist() == [0, NULL, 1, NULL, 1, NULL]
    assert linked_to(links, start[:0], end[:0], start[:0]).tolist() == [NULL] * 6


def test_a_capture_without_host_events() -> None:
    t = Builder()
    t.task("a", 50, 60, connection=7)
    assert sources(t) == [NULL]
    assert sources(Builder()) == []
