"""Graph replays: where one ends and the next begins, which call started it, and what came before. By eye."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from annotators import replays, steps
from annotators.linking import link
from annotators.replay_calls import find_replays, split_replays
from schemas.roles import load_roles
from schemas.timeline import NULL
from tests.annotators.builder import Builder, arguments, ns

CALL = "AscendCL@aclmdlRIExecuteAsync"


def replay(t: Builder, start: float, model: int = 47, ids: str = "123", stream: int = 2) -> None:
    """Tasks of 8 us each, 10 us apart, with these task ids."""
    for place, number in enumerate(ids):
        at = start + 10 * place
        t.task(f"k{number}", at, at + 8, stream=stream, model_id=model, task_id=int(number))


def found(t: Builder) -> list[tuple[int, float, float, float | None]]:
    """(model, first task, last end, call) in us."""
    r = find_replays(t.build(), load_roles())

    def us(value: int) -> float | None:
        return None if value == NULL else (value - ns(0)) / 1000

    return [
        (m, us(a), us(b), us(c))  # type: ignore[misc]
        for m, a, b, c in zip(
            r.model_id.tolist(),
            r.first_task_ts.tolist(),
            r.last_task_end.tolist(),
            r.launch_ts.tolist(),
            strict=True,
        )
    ]


def test_a_repeated_task_id_begins_the_next_replay() -> None:
    t = Builder()
    replay(t, 100)
    replay(t, 200)
    replay(t, 130, model=46)
    assert found(t) == [(47, 100, 128, None), (46, 130, 158, None), (47, 200, 228, None)]


def test_equal_task_ids_on_two_streams_are_two_tasks() -> None:
    t = Builder()
    replay(t, 100, ids="12", stream=2)
    replay(t, 105, ids="12", stream=3)
    assert found(t) == [(47, 100, 123, None)]


def test_task_ids_that_cannot_be_numbered_repeat_nothing() -> None:
    t = Builder()
    for at, number in ((100, 2**63 - 2), (110, 5), (120, 2**63 - 2), (130, 5)):
        t.task("k", at, at + 8, model_id=47, task_id=number)
    assert found(t) == [(47, 100, 138, None)]


def test_a_first_replay_that_lacks_its_beginning_does_not_shift_the_others() -> None:
    t = Builder()
    replay(t, 100, ids="3")
    replay(t, 200)
    replay(t, 300)
    assert [(a, b) for _, a, b, _ in found(t)] == [(100, 108), (200, 228), (300, 328)]


def test_a_last_replay_that_lacks_its_end() -> None:
    t = Builder()
    replay(t, 100, ids="23")
    replay(t, 200)
    replay(t, 300, ids="1")
    assert [(a, b) for _, a, b, _ in found(t)] == [(100, 118), (200, 228), (300, 308)]


@given(st.integers(1, 7), st.integers(2, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_cut_at_both_ends(kernels: int, count: int, lost_first: int, lost_last: int, jitter: int) -> None:
    """Replays with a pause of 100 between them, tasks 10 apart; some tasks are lost at either end."""
    rows = [(k, 1000 * r + 10 * k + jitter) for r in range(count) for k in range(kernels)]
    lost_first, lost_last = min(lost_first, kernels - 1), min(lost_last, kernels - 1)
    rows = rows[lost_first : len(rows) - lost_last]
    key, start = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    assume(len(np.unique(key)) < len(key))  # without a repeated task nothing tells two cut replays from one
    first = split_replays(key, start, start + 8)
    assert start[first].tolist() == sorted({min(s for _, s in rows if s // 1000 == r) for r in range(count)})


def test_calls_in_order_and_a_replay_from_before_the_profile_is_skipped() -> None:
    t = Builder()
    replay(t, 100)
    replay(t, 200)
    replay(t, 300)
    t.launch(1, 150, 160, CALL)
    t.launch(2, 250, 260, CALL)
    assert [call for *_, call in found(t)] == [None, 150, 250]


def test_a_task_a_few_us_before_its_call_is_a_matter_of_clocks() -> None:
    t = Builder()
    replay(t, 146)
    t.launch(1, 150, 160, CALL)
    assert [call for *_, call in found(t)] == [150]


def test_model_execute_decides_where_it_is_exported() -> None:
    t = Builder()
    replay(t, 155)  # called before the profile began, but late enough to look like the first call's
    replay(t, 255)
    t.launch(1, 150, 152, CALL)
    t.device("MODEL_EXECUTE", 250, 251, connection_id=1, model_id=47)
    assert [call for *_, call in found(t)] == [None, 150]
    timeline = t.build()
    r = find_replays(timeline, load_roles())
    assert (r.unlaunched, r.uncalled) == (1, 0)


def test_more_calls_than_replays() -> None:
    t = Builder()
    replay(t, 155)
    t.launch(1, 150, 152, CALL)
    t.launch(2, 400, 402, CALL)
    r = find_replays(t.build(), load_roles())
    assert (r.unlaunched, r.uncalled) == (0, 1)


def whole(t: Builder) -> list[dict[str, Any]]:
    timeline, roles = t.build(), load_roles()
    r = find_replays(timeline, roles)
    links = link(timeline, r)
    s = steps.annotate(timeline).tables.get("steps")
    out = replays.annotate(timeline, s, r, links, roles)
    assert out.layer is not None
    return arguments(out.layer, "npu.replay") + arguments(out.layer, "npu.replay_host")


def step_with_replay() -> Builder:
    """run_batch [0, 200): launch [10, 14) of `embed` [20, 30), aten::item [40, 70) with a wait [50, 60) inside, then the
    call [80, 90) of a replay that starts at 95."""
    t = Builder()
    main = t.thread()
    t.host(main, "scheduler.run_batch", 0, 200)
    t.host(main, "step[VERIFY bs=2]", 5, 100)
    t.launch(1, 10, 14)
    t.task("embed", 20, 30, connection=1)
    t.host(main, "aten::item", 40, 70)
    t.launch(2, 50, 60, "AscendCL@aclrtSynchronizeStream")
    t.launch(3, 80, 90, CALL)
    replay(t, 95)
    return t


def test_prepare_from_the_last_submission_to_the_call_and_what_the_host_did() -> None:
    row, *pieces = whole(step_with_replay())
    assert (row["launch_ts"], row["prepare_ns"], row["exposed_gap_ns"]) == (ns(80), 66_000, 65_000)
    assert (row["ts"], row["dur"], row["step"], row["model_id"], row["replay_index"]) == (ns(14), 66_000, 0, 47, 0)
    assert [(p["name"], (p["ts"] - ns(0)) / 1000, p["dur"] / 1000, p.get("kind")) for p in pieces] == [
        ("unnamed", 14, 26, None),
        ("aten::item", 40, 10, "sync point"),
        ("AscendCL@aclrtSynchronizeStream", 50, 10, "sync point"),
        ("aten::item", 60, 10, "sync point"),
        ("unnamed", 70, 10, None),
    ]


def test_a_copy_is_a_submission_too() -> None:
    t = step_with_replay()
    t.launch(4, 71, 74, "AscendCL@aclrtMemcpyAsync")
    t.device("MEMCPY_ASYNC", 76, 78, connection_id=4)
    row = whole(t)[0]
    assert row["prepare_ns"] == 6_000
    assert row["exposed_gap_ns"] == 65_000  # a copy is no recorded task


def test_without_a_submission_before_it_is_from_the_steps_start() -> None:
    t = Builder()
    main = t.thread()
    t.launch(1, -50, -40)
    t.task("earlier", -30, -10, connection=1)
    t.host(main, "scheduler.run_batch", 0, 200)
    t.host(main, "step[VERIFY bs=2]", 5, 100)
    t.launch(3, 80, 90, CALL)
    replay(t, 95)
    row = whole(t)[0]
    assert (row["prepare_ns"], row["exposed_gap_ns"]) == (80_000, 105_000)


def test_a_task_that_still_runs_leaves_no_exposed_gap() -> None:
    t = step_with_replay()
    t.task("long", 25, 300, stream=5)
    assert whole(t)[0]["exposed_gap_ns"] == 0


def test_a_replay_without_a_call_is_a_mark() -> None:
    t = Builder()
    replay(t, 95)
    (row,) = whole(t)
    assert (row["ts"], row["dur"]) == (ns(95), 0)
    assert not {"launch_ts", "forward_ct", "prepare_ns", "exposed_gap_ns"} & set(row)


def test_no_replay_is_skipped() -> None:
    t = Builder()
    t.task("a", 1, 2)
    timeline, roles = t.build(), load_roles()
    r = find_replays(timeline, roles)
    assert "no graph replay" in str(replays.annotate(timeline, None, r, link(timeline, r), roles).skipped)


@pytest.mark.parametrize("begin", [0.0, 14.0, 45.0, 55.0, 65.0, 79.0])
def test_pieces_cover_the_preparation_wherever_it_begins(begin: float) -> None:
    t = step_with_replay()
    t.launch(9, begin - 1, begin)
    t.task("last", begin, begin + 1, connection=9)
    row, *pieces = whole(t)
    begin_ns = max(ns(begin), ns(14)) if begin >= 14 else ns(14)
    assert row["ts"] == begin_ns
    assert [p["ts"] for p in pieces] == [begin_ns, *(p["ts"] + p["dur"] for p in pieces[:-1])]
    assert pieces[-1]["ts"] + pieces[-1]["dur"] == ns(80)


def test_replays_back_to_back_of_a_graph_that_pauses_inside() -> None:
    """Three replays of one model per step, 3 apart; inside each a pause of 8."""
    start = np.array(
        [1000 * s + 33 * r + k for s in range(4) for r in range(3) for k in (0, 10, 28 - 10 + 2)], np.int64
    )
    key = np.tile(np.arange(3), 12)
    first = split_replays(key, start, start + 10)
    assert np.flatnonzero(first).tolist() == list(range(0, 36, 3))
