"""Segments and eager tails of hand-made steps. One step, by eye:

host   run_batch [0, 300)  draft span [10, 50)  verify span [60, 120)
stream 2   a [40, 60) draft    b [60, 70) draft    m [90, 150), n [150, 180) verify   then the tail
stream 3   s [100, 130) verify, on the side
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators import segments, steps, tails
from annotators.annotation import Annotation
from annotators.grouping import extents, overlap_sums, union_lengths
from annotators.linking import link
from annotators.replay_calls import find_replays
from schemas.roles import load_roles
from schemas.timeline import NULL
from tests.annotators.builder import Builder, arguments, ns
from tests.annotators.records import records

ROLES = load_roles()


class Step(Builder):
    """A builder whose tasks are launched at a given host time."""

    def __init__(self) -> None:
        super().__init__()
        main = self.thread()
        self.host(main, "scheduler.run_batch", 0, 300)
        self.draft = self.host(main, "step[DRAFT bs=2]", 10, 50)
        self.verify = self.host(main, "step[VERIFY bs=2]", 60, 120)
        self.connection = 100

    def launched(self, at: float, name: str, start: float, end: float, **fields: Any) -> int:
        self.connection += 1
        self.launch(self.connection, at, at + 1)
        return self.task(name, start, end, connection=self.connection, **fields)

    def forward(self) -> Step:
        self.launched(20, "a", 40, 60)
        self.launched(30, "b", 60, 70)
        self.launched(70, "m", 90, 150)
        self.launched(75, "s", 100, 130, stream=3)
        self.launched(80, "n", 150, 180)
        return self


def both(t: Builder, record: dict[str, Any] | None = None) -> tuple[Annotation, Annotation]:
    timeline = t.build()
    links = link(timeline, find_replays(timeline, ROLES))
    s = steps.annotate(timeline, None if record is None else records(record)).tables["steps"]
    g = segments.annotate(timeline, s, links)
    if "segments" not in g.tables:
        return g, Annotation()
    return g, tails.annotate(timeline, s, g.tables["segments"], links, ROLES)


def segment_rows(t: Builder, record: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    layer = both(t, record)[0].layer
    assert layer is not None
    return arguments(layer, "npu.segment")


def test_placed_by_linked_tasks_of_the_main_stream() -> None:
    draft, verify = segment_rows(Step().forward())
    assert draft == {
        "name": "Draft",
        "track": "Segments",
        "ts": ns(40),
        "dur": 30_000,
        "step": 0,
        "segment": "draft",
        "placed_ns": 30_000,
        "kernel_sum_ns": 30_000,
        "busy_union_ns": 30_000,
        "other_stream_busy_ns": 0,
        "evidence": "linked",
    }
    assert (verify["name"], verify["ts"], verify["dur"], verify["placed_ns"]) == (
        "Target Verify",
        ns(90),
        90_000,
        90_000,
    )
    # the kernel on the side counts twice in the sum, once in the union, and alone in the other streams' time
    assert (verify["kernel_sum_ns"], verify["busy_union_ns"], verify["other_stream_busy_ns"]) == (
        120_000,
        90_000,
        30_000,
    )


def test_a_record_gives_the_length_and_the_last_task_the_end() -> None:
    record = {"forward_ct": 7, "bs": 2, "draft_gpu_ms": 0.045, "target_verify_gpu_ms": 0.0953}
    draft, verify = segment_rows(Step().forward(), record)
    assert (draft["ts"], draft["dur"], draft["evidence"], draft["forward_ct"]) == (ns(25), 45_000, "inferred", 7)
    assert (draft["record_ns"], draft["placed_ns"], draft["residual_ns"]) == (45_000, 30_000, 15_000)
    assert (verify["ts"], verify["dur"], verify["residual_ns"]) == (ns(84.7), 95_300, 5_300)
    # clipped to the slice: 70 ends before it, nothing else begins
    assert verify["kernel_sum_ns"] == 120_000


def test_a_record_shorter_than_what_is_placed_has_a_negative_residual_and_clips() -> None:
    _, verify = segment_rows(Step().forward(), {"forward_ct": 7, "bs": 2, "target_verify_gpu_ms": 0.06})
    assert (verify["ts"], verify["dur"], verify["residual_ns"]) == (ns(120), 60_000, -30_000)
    assert (verify["kernel_sum_ns"], verify["busy_union_ns"], verify["other_stream_busy_ns"]) == (
        70_000,
        60_000,
        10_000,
    )


def test_a_record_without_that_time_leaves_the_segment_linked() -> None:
    draft, _ = segment_rows(Step().forward(), {"forward_ct": 7, "bs": 2})
    assert draft["evidence"] == "linked"


def test_a_draft_on_a_stream_of_its_own() -> None:
    t = Step()
    t.launched(20, "a", 40, 60, stream=9)
    t.launched(70, "m", 90, 180)
    assert [(r["segment"], r["ts"], r["dur"]) for r in segment_rows(t)] == [
        ("draft", ns(40), 20_000),
        ("target_verify", ns(90), 90_000),
    ]


def test_communication_rows_have_no_stream_and_place_nothing_but_count_as_other() -> None:
    t = Step().forward()
    t.launched(85, "hcom_allGather__1_0_1", 170, 200, stream=NULL, communication=True)
    verify = segment_rows(t)[1]
    assert verify["dur"] == 90_000
    assert verify["other_stream_busy_ns"] == 30_000 + 10_000


def test_flows_from_each_span_to_its_first_linked_task() -> None:
    t = Step().forward()
    layer = both(t)[0].layer
    assert layer is not None
    names = [e["name"] for e in t.events]
    arrows = [(int(o), names[i]) for f in layer.flows for o, i in zip(f.out, f.into, strict=True)]
    assert sorted(arrows) == [(t.draft, "a"), (t.verify, "m")]
    assert {layer.strings[f.category] for f in layer.flows} == {"npu.link"}


def test_a_profile_that_ties_no_task_to_the_host_is_skipped_with_the_reason() -> None:
    t = Step()
    t.task("m", 90, 150)
    assert "connection ids" in str(both(t)[0].skipped)


def test_a_step_without_a_draft_span() -> None:
    t = Builder()
    t.host(t.thread(), "step[VERIFY bs=2]", 60, 120)
    t.launch(7, 70, 71)
    t.task("m", 90, 150, connection=7)
    assert [r["segment"] for r in segment_rows(t)] == ["target_verify"]


def test_a_verify_without_tasks_is_counted() -> None:
    t = Step()
    t.launched(20, "a", 40, 60)
    assert "1 of 1 verify spans" in both(t)[0].warnings[0]


def tail(t: Builder) -> list[tuple[str, float, float, int, float]]:
    """(part, start, end, kernels, busy) in us."""
    layer = both(t)[1].layer
    if layer is None:
        return []
    found = arguments(layer, "npu.tail")
    ends = [((r["ts"] - ns(0)) / 1000, (r["ts"] + r["dur"] - ns(0)) / 1000) for r in found]
    return [(r["part"], *e, r["kernel_count"], r["busy_ns"] / 1000) for r, e in zip(found, ends, strict=True)]


def eager(names: str) -> Step:
    """A tail of kernels of 5 us, 10 us apart from 200 on."""
    t = Step().forward()
    for place, name in enumerate(names.split()):
        t.launched(130 + place, name, 200 + 10 * place, 205 + 10 * place)
    return t


def test_parts_in_their_order() -> None:
    t = eager(
        "ArgMaxV2 _fused_correct_drafts_and_bonus_kernel ZerosLike hcom_broadcast__1_0_1 hcom_broadcast__1_1_1 "
        "_finalize_accept_lens_kernel Cast Fill ScatterElements IndexPutV2 MatMulV3 RmsNorm Cast IndexPutV2 RmsNorm "
        "Cast IndexPutV2 Mystery"
    )
    assert tail(t) == [
        ("accept", 200, 225, 3, 15),
        ("tp_sync", 230, 245, 2, 10),
        ("finalize", 250, 255, 1, 5),
        ("out_tokens", 260, 285, 3, 15),
        ("commit", 300, 355, 6, 30),
        ("other", 290, 375, 3, 15),  # publish before commit, the last write by index, what no role names
    ]


def test_cast_is_out_tokens_before_commit_began_and_commit_after() -> None:
    assert [(p, n) for p, _, _, n, _ in tail(eager("_finalize_accept_lens_kernel Cast MatMul Cast"))] == [
        ("finalize", 1),
        ("out_tokens", 1),
        ("commit", 2),
    ]


def test_a_name_of_one_part_only_keeps_it_even_late() -> None:
    assert [(p, n) for p, _, _, n, _ in tail(eager("MatMul ArgMaxV2 MatMul"))] == [("accept", 1), ("commit", 2)]


def test_unknown_names_are_other() -> None:
    assert tail(eager("x y")) == [("other", 200, 215, 2, 10)]


def test_the_tail_runs_from_the_end_of_the_verify_and_leaves_copies_out() -> None:
    t = eager("ArgMaxV2 MEMCPY_ASYNC")
    table = both(t)[1].tables["tails"]
    assert (table.tail_ts.tolist(), table.tail_end.tolist()) == ([ns(180)], [ns(205)])


def test_what_is_launched_after_the_step_is_not_its_tail() -> None:
    t = eager("ArgMaxV2")
    t.launched(301, "ArgMaxV2", 310, 315)
    assert [n for _, _, _, n, _ in tail(t)] == [1]


def test_folded_accept_leaves_no_tail_and_says_so() -> None:
    t = Step().forward()
    t.launched(85, "_finalize_accept_lens_kernel", 181, 185)  # in the verify
    t.launched(130, "IndexPutV2", 200, 205)
    out = both(t)[1]
    assert out.layer is None
    assert "folded" in out.warnings[0]
    assert "folded" in str(out.skipped)
    assert out.facts == {"eager_tail": {"folded_steps": 1}}


def test_a_cuda_trace_without_accept_kernels_after_the_verify_is_folded() -> None:
    t = eager("x y")
    t.launch(900, 125, 126, "cudaLaunchKernel")
    assert tail(t) == []
    t = eager("ArgMaxV2 y")
    t.launch(900, 125, 126, "cudaLaunchKernel")
    assert [p for p, *_ in tail(t)] == ["accept", "other"]


INTERVALS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 20)), max_size=12)


@given(INTERVALS, st.integers(0, 60), st.integers(0, 30))
@settings(max_examples=200, deadline=None)
def test_sums_unions_and_extents_against_moments(rows: list[tuple[int, int, int]], low: int, length: int) -> None:
    table = np.array(rows, np.int64).reshape(-1, 3)
    group, start, end = table[:, 0], table[:, 1], table[:, 1] + table[:, 2]
    for g in range(4):
        mine = [(s, s + d) for of, s, d in rows if of == g]
        moments = {m for a, b in mine for m in range(a, b)}
        assert union_lengths(group, start, end, 4)[g] == len(moments)
        first, last = extents(group, start, end, 4)
        assert first[g] == min((a for a, _ in mine), default=NULL)
        assert last[g] == max((b for _, b in mine), default=NULL)
    far = np.array([0, 2**61], np.int64)  # too far apart for sums of times
    spread = union_lengths(np.append(group, [0, 1]), np.append(start, far), np.append(end, far), 4)
    assert spread.tolist() == union_lengths(group, start, end, 4).tolist()
    window = np.array([low]), np.array([low + length])
    inside = sum(max(0, min(s + d, low + length) - max(s, low)) for _, s, d in rows)
    assert overlap_sums(start + ns(0), end + ns(0), window[0] + ns(0), window[1] + ns(0)).tolist() == [inside]
