"""Dispatch and combine by eye: the kernel that waits inside, hooks that are real, and who waited for whom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from annotators import deepep, steps
from annotators.annotation import Annotation
from annotators.deepep_peers import find_peers
from annotators.linking import link
from annotators.replay_calls import find_replays
from schemas.dspark_tables import DeepEp
from schemas.roles import load_roles
from schemas.timeline import NULL
from tests.annotators.builder import Builder, arguments, ns

ROLES = load_roles()
DISPATCH, COMBINE = "MoeLowLatencyDispatchV2", "MoeLowLatencyCombineV2"


def annotate(t: Builder) -> Annotation:
    timeline = t.build()
    links = link(timeline, find_replays(timeline, ROLES))
    return deepep.annotate(timeline, steps.annotate(timeline).tables.get("steps"), links, ROLES)


def rows(t: Builder) -> list[dict[str, Any]]:
    out = annotate(t)
    assert out.layer is not None
    return arguments(out.layer, "npu.deepep")


def us(row: dict[str, Any], *keys: str) -> list[float]:
    """Times of a row from the common base, durations as they are, in us."""
    return [(row[key] - (ns(0) if key.endswith("ts") else 0)) / 1000 for key in keys]


ALL = ("issue_ts", "hook_ts", "done_ts", "in_flight_ns", "wait_ns", "overlapped_ns", "exposed_ns")


def test_in_a_replay_the_kernel_is_all_there_is() -> None:
    t = Builder()
    t.task(DISPATCH, 100, 150, model_id=47, task_id=1)
    t.task("SharedExpert", 90, 120, stream=3)
    t.task(COMBINE, 160, 170, model_id=47, task_id=2)
    dispatch, combine = rows(t)
    assert us(dispatch, *ALL) == [100, 100, 150, 0, 50, 20, 30]
    assert us(combine, *ALL) == [160, 160, 170, 0, 10, 0, 10]
    assert (dispatch["op"], combine["op"], dispatch["model"]) == ("dispatch", "combine", "in_kernel_wait")
    assert dispatch["evidence"] == "recorded"


def test_an_eager_kernel_is_in_flight_from_its_launch() -> None:
    t = Builder()
    t.launch(7, 80, 85)
    t.task(DISPATCH, 100, 150, connection=7)
    (row,) = rows(t)
    assert us(row, *ALL) == [80, 100, 150, 20, 50, 0, 50]
    assert row["evidence"] == "linked"


def test_a_launch_that_seems_to_come_later_is_no_negative_delay() -> None:
    t = Builder()
    t.launch(7, 103, 108)
    t.task(DISPATCH, 100, 150, connection=7)
    assert us(rows(t)[0], "issue_ts", "in_flight_ns") == [100, 0]


def test_communication_other_exchanges_and_the_own_stream_hide_nothing() -> None:
    t = Builder()
    t.task(DISPATCH, 100, 150)
    t.task("hcom_allReduce__1_0_1", 100, 150, stream=NULL, communication=True)
    t.task("hcom_reduceScatter_AivKernel", 100, 150, stream=5)
    t.task(COMBINE, 110, 120, stream=4)
    t.task("Nested", 120, 130, stream=2)
    dispatch, combine = rows(t)
    assert us(dispatch, "overlapped_ns", "exposed_ns") == [0, 50]
    assert us(combine, "overlapped_ns", "exposed_ns") == [0, 10]  # "Nested" runs later


def test_the_step_and_its_number() -> None:
    t = Builder()
    main = t.thread()
    t.host(main, "scheduler.run_batch", 0, 200)
    t.host(main, "step[VERIFY bs=2]", 5, 100)
    t.launch(7, 80, 85)
    t.task(DISPATCH, 210, 250, connection=7)  # runs after the step, was launched in it
    assert rows(t)[0]["step"] == 0


def hooked(receive: bool) -> Builder:
    """dispatch_a [10, 20), dispatch_b [60, 70); send kernel [25, 30), receive kernel [72, 90)."""
    t = Builder()
    main = t.thread()
    t.host(main, "dispatch_a", 10, 20)
    t.host(main, "dispatch_b", 60, 70)
    t.launch(1, 12, 14)
    t.task("dispatch_low_latency", 25, 30, connection=1)
    if receive:
        t.launch(2, 62, 64)
        t.task("dispatch_low_latency_recv", 72, 90, connection=2)
    return t


def test_marks_of_issue_and_hook_with_a_receive_task() -> None:
    (row,) = rows(hooked(receive=True))
    assert us(row, "issue_ts", "hook_ts", "done_ts", "in_flight_ns", "wait_ns", "exposed_ns") == [
        10,
        60,
        90,
        50,
        30,
        30,
    ]
    assert (row["model"], row["evidence"]) == ("recv_hook", "linked")
    assert "overlapped_ns" not in row


def test_marks_without_a_receive_task_end_with_the_hook() -> None:
    (row,) = rows(hooked(receive=False))
    assert us(row, "done_ts", "wait_ns", "exposed_ns") == [70, 10, 10]
    assert row["evidence"] == "inferred"


def test_names_of_two_batch_overlap_and_a_hook_from_before_the_profile() -> None:
    t = Builder()
    main = t.thread()
    t.host(main, "op_dispatch_b0", 5, 8)  # its issue was not recorded
    for number, start in enumerate((10, 100)):
        t.host(main, f"op_dispatch_a{number}", start, start + 5)
        t.host(main, f"op_dispatch_b{number}", start + 40, start + 45)
    assert [us(r, "issue_ts", "hook_ts") for r in rows(t)] == [[10, 50], [100, 140]]


def test_a_receive_task_without_marks() -> None:
    t = Builder()
    t.task("dispatch_low_latency", 25, 30)
    t.task("dispatch_low_latency_recv", 72, 90)
    t.task("combine_low_latency", 100, 110)
    dispatch, combine = rows(t)
    assert us(dispatch, "issue_ts", "hook_ts", "done_ts") == [25, 72, 90]
    assert (dispatch["model"], dispatch["evidence"], combine["model"]) == ("recv_hook", "inferred", "in_kernel_wait")


def test_normal_mode_and_fused_kernels() -> None:
    t = Builder()
    t.task("DispatchLayout", 0, 5)
    t.task("NotifyDispatch", 5, 10)
    t.task("CamMoeDispatchNormal", 10, 20)
    t.task("CamMoeCombineNormal", 20, 30)
    t.task("FusedDeepMoe", 30, 40)
    assert [(r["op"], *us(r, "hook_ts")) for r in rows(t)] == [("dispatch", 5), ("dispatch", 10), ("combine", 20)]
    assert "1 kernels hold dispatch, experts and combine in one" in annotate(t).warnings[0]


def test_all_to_all_by_its_place_between_routing_and_experts() -> None:
    t = Builder()
    names = (
        "hcom_alltoall__1_0_1",
        "MoeInitRoutingV2",
        "hcom_alltoallv__1_1_1",
        "GroupedMatmul",
        "hcom_alltoallv__1_2_1",
    )
    for place, name in enumerate((*names, "MoeFinalizeRoutingV2", "hcom_alltoall__1_3_1")):
        hcom = name.startswith("hcom")
        t.task(name, 10 * place, 10 * place + 5, stream=NULL if hcom else 2, communication=hcom)
    assert [(r["op"], *us(r, "hook_ts")) for r in rows(t)] == [("dispatch", 20), ("combine", 40)]


def test_nothing_to_find_is_skipped() -> None:
    t = Builder()
    t.task("MatMul", 0, 5)
    assert "no dispatch or combine" in str(annotate(t).skipped)
    assert "no dispatch or combine" in str(annotate(Builder()).skipped)


def table(*calls: tuple[str, int, int], hook: bool = False) -> DeepEp:
    """Calls (d or c, start, end) in us."""
    n = len(calls)
    start = np.array([ns(s) for _, s, _ in calls], np.int64)
    end = np.array([ns(e) for _, _, e in calls], np.int64)
    null = np.full(n, NULL, np.int64)
    combine = np.array([op == "c" for op, _, _ in calls], np.bool_)
    false = np.zeros(n, np.bool_)
    return DeepEp(null, combine, ~false if hook else false, start, start, end, null, end - start, null, false)


ONE = (("d", 100, 150), ("c", 200, 250), ("d", 400, 450), ("c", 500, 550), ("d", 900, 950))
TWO = (("d", 130, 151), ("c", 190, 249), ("d", 420, 450), ("c", 500, 552), ("d", 905, 950))


def test_the_last_rank_and_how_long_the_others_waited() -> None:
    (one, two), warnings = find_peers([(0, table(*ONE)), (5, table(*TWO))], 50_000)
    assert not warnings
    assert one.last_rank.tolist() == [5, 0, 5, 0, 5]
    assert one.waited_ns.tolist() == [30_000, 0, 20_000, 0, 5_000]
    assert two.waited_ns.tolist() == [0, 10_000, 0, 0, 0]
    assert two.group_index.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("swap", [False, True])
def test_a_rank_that_lost_its_first_calls(swap: bool) -> None:
    ranks = [(0, table(*ONE)), (1, table(*TWO[2:]))]
    peers, warnings = find_peers(ranks[::-1] if swap else ranks, 50_000)
    one, two = peers[::-1] if swap else peers
    assert not warnings
    assert one.group_index.tolist() == [NULL, NULL, 0, 1, 2]
    assert two.group_index.tolist() == [0, 1, 2]
    assert one.waited_ns.tolist() == [NULL, NULL, 20_000, 0, 5_000]


def test_two_expert_groups() -> None:
    far = [(op, s + 3000, e + 3000) for op, s, e in ONE]
    near = [(op, s + 3000, e + 3000) for op, s, e in TWO]
    peers, warnings = find_peers([(0, table(*ONE)), (1, table(*far)), (2, table(*TWO)), (3, table(*near))], 50_000)
    assert not warnings
    assert [p.last_rank.tolist()[0] for p in peers] == [2, 3, 2, 3]


def test_a_rank_that_ends_with_no_other_is_said() -> None:
    far = [(op, s + 3000, e + 3000) for op, s, e in ONE]
    peers, warnings = find_peers([(0, table(*ONE)), (1, table(*far))], 50_000)
    assert len(warnings) == 2
    assert peers[0].group_index.tolist() == [NULL] * 5


def test_peers_reach_the_slices() -> None:
    t = Builder()
    t.task(DISPATCH, 100, 150)
    out = annotate(t)
    (own, _), _ = find_peers([(0, out.tables["deepep"]), (1, table(("d", 110, 150)))], 50_000)
    deepep.add_peers(out, own)
    assert out.layer is not None
    (row,) = arguments(out.layer, "npu.deepep")
    assert (row["group_index"], row["last_rank"], row["waited_ns"]) == (0, 1, 10_000)
