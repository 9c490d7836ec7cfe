"""The SQL package through the real engine: a small trace, a query, the rows worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from converter.engine import Engine, open_trace
from schemas import sql_package
from tests.trace_builder import TraceBuilder

# design.md, SQL package: names and columns are public.
PUBLIC = {
    "npu.kernels": {
        "npu_kernels": "id ts dur name rank device_id stream_id task_id model_id op_type op_state accelerator_core "
        "wait_ns connection_id input_shapes task"
    },
    "npu.facts": {"npu_facts": "rank key value"},
    "npu.ranks": {
        "npu_rank_times": "rank window_ts wall_ns duration_sum_ns duration_wait_sum_ns busy_union_ns gap_ns gap_ratio "
        "kernel_count",
        "npu_rank_clocks": "rank method offset_ns drift_ppm residual_median_ns residual_max_ns anchor_count "
        "launch_pairs causality_violations worst_violation_ns",
        "npu_vendor_times": "rank step source computing_ns communication_ns communication_not_overlapped_ns free_ns",
    },
    "npu.gaps": {
        "npu_gaps": "id ts dur rank prev_id next_id prev_name next_name next_wait_ns endpoint_class host_event "
        "host_cover_ratio launch_ts launch_name evidence host_evidence",
        "npu_gap_patterns": "rank prev_name next_name gap_count total_ns max_ns",
        "npu_group_gaps": "ts dur rank_count evidence",
    },
    "npu.steps": {
        "npu_steps": "id ts dur rank forward_ct bs mode num_verify_tokens step_wall_ns step_cpu_ms step_gpu_ms "
        "draft_gpu_ms target_verify_gpu_ms unattributed_ms committed_tokens avg_commit_len evidence",
        "npu_requests": "rank forward_ct req_index prefix_len verify_len acc_len correct_drafts",
    },
    "npu.segments": {
        "npu_segments": "id ts dur rank forward_ct segment record_ns placed_ns residual_ns kernel_sum_ns busy_union_ns "
        "other_stream_busy_ns evidence",
        "npu_tails": "id ts dur rank forward_ct part kernel_count busy_ns evidence",
    },
    "npu.deepep": {
        "npu_deepep": "id ts dur rank forward_ct op model issue_ts hook_ts done_ts in_flight_ns wait_ns overlapped_ns "
        "exposed_ns evidence",
        "npu_deepep_peers": "rank id group_index last_rank waited_ns",
    },
    "npu.replays": {
        "npu_replays": "id ts dur rank forward_ct model_id replay_index launch_ts first_task_ts last_task_end "
        "prepare_ns exposed_gap_ns evidence",
        "npu_replay_host": "rank replay_index ts dur name evidence",
    },
    "npu.report": {
        "npu_step_report": "rank forward_ct bs num_verify_tokens step_wall_ms step_gpu_ms draft_ms verify_ms "
        "unattributed_ms tail_ms exposed_comm_ms pre_replay_gap_ms gap_ms avg_commit_len committed_tokens "
        "effective_tpot_ms tokens_per_s draft_source verify_source cut evidence"
    },
}


def build() -> TraceBuilder:
    """Two ranks. Rank 1's steps have no forward_ct. Rank 0's tracks hold a task without arguments, and one in a lane."""
    t = TraceBuilder()
    rank0 = t.process("Rank 0", 100)
    npu = t.track("NPU 3", rank0)
    s43 = t.track("Stream 43", npu)
    s43b = t.track("Stream 43", npu)
    comm = t.track("Communication", npu)
    t.slice(
        s43, 1000, 100, "MatMul", "npu.task",
        task=0, task_id=7, model_id=2, op_type="MatMulV3", op_state="dynamic", accelerator_core="AI_CORE", wait_ns=5,
        connection_id=953, input_shapes='"16,16"',
    )  # fmt: skip
    t.slice(s43b, 1050, 100, "Cast", "npu.task", task=1)
    t.slice(comm, 1400, 100, "allReduce", "npu.task", task=2, wait_ns=0, accelerator_core="HCCL")
    t.slice(s43, 2000, 10, "MatMul", "npu.task", task=3)
    t.slice(s43, 2500, 10, "EVENT_WAIT", "other", task_id=9)
    host = t.thread("main", 100, 101)
    t.slice(host, 900, 50, "aten::matmul", "cpu_op")

    rank1 = t.process("Rank 1", 200)
    stream = t.track("Stream 1", t.track("NPU 0", rank1))
    t.slice(stream, 1100, 50, "MatMul", "npu.task", task=0)

    root0 = t.track("Rank 0 · DSpark")
    gaps, steps, segments, tails, deepep, replay = (
        t.track(name, root0) for name in ("Gaps", "Steps", "Segments", "Eager tail", "DeepEP", "Pre-replay")
    )
    t.slice(
        gaps, 1150, 250, "gap", "npu.gap",
        prev_task=1, next_task=2, endpoint_class="dynamic->dynamic", host_event="aten::sum", host_cover_ratio=0.5,
        evidence="inferred",
    )  # fmt: skip
    t.slice(
        gaps, 1500, 500, "gap", "npu.gap",
        prev_task=2, next_task=3, host_cover_ratio=1, launch_ts=1450, launch_name="Node@launch", evidence="linked",
    )  # fmt: skip
    t.slice(gaps, 2010, 90, "gap", "npu.gap", prev_task=3)
    t.slice(
        steps, 900, 700, "step 11", "npu.step",
        step=0, forward_ct=11, bs=2, mode="static", num_verify_tokens=8, step_wall_ns=1_000_000, step_cpu_ms=1.5,
        step_gpu_ms=3.0, draft_gpu_ms=0.5, target_verify_gpu_ms=2, unattributed_ms=0.5, committed_tokens=5,
        avg_commit_len=2.5, evidence="recorded", first_task_ts=1000, last_task_end=2010,
        requests=[
            {"req_index": 0, "prefix_len": 10, "verify_len": 4, "acc_len": 3, "correct_drafts": 2, "confidence": [0.5]},
            {"req_index": 1, "prefix_len": 20, "verify_len": 4, "acc_len": 2},
        ],
    )  # fmt: skip
    t.slice(steps, 1900, 700, "step 12", "npu.step", step=1, forward_ct=12, bs=1, evidence="inferred")
    t.slice(
        segments, 1000, 500, "draft", "npu.segment", forward_ct=12, segment="draft", placed_ns=500, evidence="linked"
    )
    t.slice(
        segments, 1500, 400, "target_verify", "npu.segment",
        step=0, forward_ct=11, segment="target_verify", record_ns=400, placed_ns=390, residual_ns=10, kernel_sum_ns=300,
        busy_union_ns=290, other_stream_busy_ns=20, evidence="inferred",
    )  # fmt: skip
    t.slice(
        tails,
        1900,
        100,
        "accept",
        "npu.tail",
        step=0,
        forward_ct=11,
        part="accept",
        kernel_count=3,
        busy_ns=60,
        evidence="inferred",
        tail_ns=250,
    )
    t.slice(
        tails,
        2000,
        150,
        "commit",
        "npu.tail",
        step=0,
        forward_ct=11,
        part="commit",
        kernel_count=1,
        busy_ns=150,
        tail_ns=250,
    )
    t.slice(
        deepep, 1000, 300, "dispatch", "npu.deepep",
        forward_ct=11, op="dispatch", model="in_kernel_wait", issue_ts=1000, hook_ts=1100, done_ts=1300, in_flight_ns=100,
        wait_ns=200, overlapped_ns=50, exposed_ns=150, evidence="linked", group_index=0, last_rank=1, waited_ns=120,
    )  # fmt: skip
    t.slice(deepep, 1400, 100, "combine", "npu.deepep", forward_ct=11, op="combine", model="recv_hook", exposed_ns=70)
    t.slice(
        replay, 1400, 200, "replay 0", "npu.replay",
        forward_ct=11, model_id=2, replay_index=0, launch_ts=1590, first_task_ts=1600, last_task_end=1700, prepare_ns=190,
        exposed_gap_ns=80, evidence="linked",
        inside=lambda: t.slice(replay, 1410, 20, "aten::copy_", "npu.replay_host", replay_index=0, evidence="inferred"),
    )  # fmt: skip
    t.instant(
        root0, 1000, "facts", "npu.facts",
        tallies=[{"uuid": 3, "slices": 3, "duration_ns": 120}], level="Level1", shapes=True, world=2,
        times={
            "window_ts": 1000, "wall_ns": 1010, "duration_sum_ns": 310, "duration_wait_sum_ns": 315,
            "busy_union_ns": 260, "gap_ns": 750, "gap_ratio": 0.7425, "kernel_count": 4,
        },
        clock={"method": "reference", "offset_ns": 0, "anchor_count": 0, "launch_pairs": 1},
        vendor_times=[
            {"step": 5, "source": "overlap_analysis", "computing_ns": 10, "communication_ns": 7,
             "communication_not_overlapped_ns": 4, "free_ns": 86},
            {"step": "6", "source": "overlap_analysis", "computing_ns": 11, "free_ns": 89},
        ],
    )  # fmt: skip

    root1 = t.track("Rank 1 · DSpark")
    steps1 = t.track("Steps", root1)
    t.slice(
        steps1,
        1000,
        10,
        "step",
        "npu.step",
        step=0,
        bs=4,
        step_wall_ns=2_000_000,
        first_task_ts=1100,
        last_task_end=1150,
    )
    t.slice(t.track("Segments", root1), 1100, 50, "draft", "npu.segment", step=0, segment="draft", placed_ns=50)
    t.instant(root1, 1000, "facts", "npu.facts", clock={"method": "collective", "offset_ns": -25, "drift_ppm": 1.5,
              "residual_median_ns": 100, "residual_max_ns": 900, "anchor_count": 12, "launch_pairs": 0,
              "causality_violations": 0, "worst_violation_ns": 0})  # fmt: skip

    everyone = t.track("All ranks")
    t.slice(t.track("Group gaps", everyone), 1150, 250, "group gap", "npu.group_gap", rank_count=2, evidence="inferred")
    t.instant(everyone, 1000, "facts", "npu.facts", tool="npu-perfetto")
    return t


def chrome_json() -> bytes:
    return b'[{"ph": "X", "name": "a", "cat": "npu.nothing", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]'


def odd_types() -> bytes:
    """Arguments of every wrong type under public keys."""
    t = TraceBuilder()
    root = t.track("Rank 0 · DSpark")
    keys = {key for tables in PUBLIC.values() for columns in tables.values() for key in columns.split()}
    values: list[Any] = ["text", 1, 2.5, True, {"a": 1}, [1, "x"]]
    for i, category in enumerate(
        ["task", "gap", "step", "segment", "tail", "deepep", "replay", "replay_host", "group_gap", "facts"]
        * len(values)
    ):
        value = values[i // 10]
        t.slice(root, 100 * i + 1, 50, "odd", f"npu.{category}", **dict.fromkeys(keys, value))
    return t.bytes()


@pytest.fixture(scope="module")
def tp() -> Iterator[Engine]:
    with open_trace(build().bytes()) as tp:
        yield tp


def rows(tp: Engine, table: str, columns: str = "*", where: str = "1") -> list[tuple[Any, ...]]:
    module = next(m for m, tables in PUBLIC.items() if table in tables)
    return tp.rows(f"INCLUDE PERFETTO MODULE {module}; SELECT {columns} FROM {table} WHERE {where}")


def test_every_module_has_its_public_tables_and_no_others() -> None:
    for module, sql in sql_package.modules().items():
        tables = {t for t in re.findall(r"PERFETTO TABLE (\w+)", sql) if not t.startswith("_")}
        assert tables == set(PUBLIC.get(module, {})), module
    assert set(PUBLIC) <= set(sql_package.modules())


def test_every_public_table_and_column_has_a_comment() -> None:
    for module, sql in sql_package.modules().items():
        for table, body in re.findall(r"PERFETTO TABLE (npu_\w+)\((.*?)\n\) AS", sql, re.DOTALL):
            assert re.search(rf"-- .*\nCREATE OR REPLACE PERFETTO TABLE {table}\(", sql), table
            lines = body.strip().splitlines()
            columns = [line.split()[0] for line in lines if not line.strip().startswith("--")]
            assert columns == PUBLIC[module][table].split(), table
            for before, line in zip(["", *lines], lines, strict=False):
                assert line.strip().startswith("--") or before.strip().startswith("--"), f"{table}: {line}"


@pytest.mark.parametrize("module", PUBLIC)
def test_every_module_can_be_included_alone_and_is_empty_in_a_trace_of_another_tool(module: str) -> None:
    with open_trace(chrome_json()) as tp:
        for table, columns in PUBLIC[module].items():
            result = tp.query(f"INCLUDE PERFETTO MODULE {module}; SELECT * FROM {table}")
            assert result.columns == columns.split()
            assert result.rows == []


def test_values_of_a_wrong_type_do_not_break_a_table() -> None:
    with open_trace(odd_types()) as tp:
        for module, tables in PUBLIC.items():
            for table in tables:
                tp.query(f"INCLUDE PERFETTO MODULE {module}; SELECT * FROM {table}")


def test_kernels(tp: Engine) -> None:
    assert rows(tp, "npu_kernels", PUBLIC["npu.kernels"]["npu_kernels"].split(" ", 1)[1].replace(" ", ",")) == [
        (1000, 100, "MatMul", 0, 3, 43, 7, 2, "MatMulV3", "dynamic", "AI_CORE", 5, 953, '"16,16"', 0),
        (1050, 100, "Cast", 0, 3, 43, None, None, None, None, None, None, None, None, 1),
        (1100, 50, "MatMul", 1, 0, 1, None, None, None, None, None, None, None, None, 0),
        (1400, 100, "allReduce", 0, 3, None, None, None, None, None, "HCCL", 0, None, None, 2),
        (2000, 10, "MatMul", 0, 3, 43, None, None, None, None, None, None, None, None, 3),
    ]
    assert tp.rows("SELECT count(*) FROM npu_kernels JOIN slice USING (id, ts, dur, name)") == [(5,)]


def test_gaps_name_their_tasks_by_slice_id(tp: Engine) -> None:
    assert rows(tp, "npu_gaps", "ts, dur, rank, prev_name, next_name, next_wait_ns, endpoint_class, host_event") == [
        (1150, 250, 0, "Cast", "allReduce", 0, "dynamic->dynamic", "aten::sum"),
        (1500, 500, 0, "allReduce", "MatMul", None, None, None),
        (2010, 90, 0, "MatMul", None, None, None, None),
    ]
    assert rows(tp, "npu_gaps", "host_cover_ratio, launch_ts, launch_name, evidence, host_evidence") == [
        (0.5, None, None, "inferred", "inferred"),
        (1.0, 1450, "Node@launch", "linked", None),
        (None, None, None, None, None),
    ]
    ends = "SELECT g.ts - (p.ts + p.dur), n.ts - (g.ts + g.dur) FROM npu_gaps g JOIN slice p ON p.id = prev_id LEFT JOIN slice n ON n.id = next_id"
    assert tp.rows(ends) == [(0, 0), (0, 0), (0, None)]


def test_gap_patterns_and_group_gaps(tp: Engine) -> None:
    assert rows(tp, "npu_gap_patterns") == [
        (0, "allReduce", "MatMul", 1, 500, 500),
        (0, "Cast", "allReduce", 1, 250, 250),
        (0, "MatMul", None, 1, 90, 90),
    ]
    assert rows(tp, "npu_group_gaps") == [(1150, 250, 2, "inferred")]


def test_facts_are_flat_text_without_tallies(tp: Engine) -> None:
    assert sorted(rows(tp, "npu_facts", where="rank = 0 AND key NOT GLOB 'times.*'")) == [
        (0, "clock.anchor_count", "0"),
        (0, "clock.launch_pairs", "1"),
        (0, "clock.method", "reference"),
        (0, "clock.offset_ns", "0"),
        (0, "level", "Level1"),
        (0, "shapes", "true"),
        (0, "vendor_times[0].communication_not_overlapped_ns", "4"),
        (0, "vendor_times[0].communication_ns", "7"),
        (0, "vendor_times[0].computing_ns", "10"),
        (0, "vendor_times[0].free_ns", "86"),
        (0, "vendor_times[0].source", "overlap_analysis"),
        (0, "vendor_times[0].step", "5"),
        (0, "vendor_times[1].computing_ns", "11"),
        (0, "vendor_times[1].free_ns", "89"),
        (0, "vendor_times[1].source", "overlap_analysis"),
        (0, "vendor_times[1].step", "6"),
        (0, "world", "2"),
    ]
    assert rows(tp, "npu_facts", where="rank IS NULL") == [(None, "tool", "npu-perfetto")]


def test_rank_times_clocks_and_vendor_times(tp: Engine) -> None:
    assert rows(tp, "npu_rank_times") == [(0, 1000, 1010, 310, 315, 260, 750, 0.7425, 4)]
    assert rows(tp, "npu_rank_clocks") == [
        (0, "reference", 0, None, None, None, 0, 1, None, None),
        (1, "collective", -25, 1.5, 100, 900, 12, 0, 0, 0),
    ]
    assert rows(tp, "npu_vendor_times") == [
        (0, "5", "overlap_analysis", 10, 7, 4, 86),
        (0, "6", "overlap_analysis", 11, None, None, 89),
    ]


def test_steps_and_requests(tp: Engine) -> None:
    assert rows(tp, "npu_steps", PUBLIC["npu.steps"]["npu_steps"].split(" ", 1)[1].replace(" ", ",")) == [
        (900, 700, 0, 11, 2, "static", 8, 1_000_000, 1.5, 3.0, 0.5, 2.0, 0.5, 5, 2.5, "recorded"),
        (1000, 10, 1, None, 4, None, None, 2_000_000, None, None, None, None, None, None, None, None),
        (1900, 700, 0, 12, 1, None, None, None, None, None, None, None, None, None, None, "inferred"),
    ]
    assert rows(tp, "npu_requests") == [(0, 11, 0, 10, 4, 3, 2), (0, 11, 1, 20, 4, 2, None)]


def test_segments_and_tails(tp: Engine) -> None:
    assert rows(tp, "npu_segments", PUBLIC["npu.segments"]["npu_segments"].split(" ", 1)[1].replace(" ", ",")) == [
        (1000, 500, 0, 12, "draft", None, 500, None, None, None, None, "linked"),
        (1100, 50, 1, None, "draft", None, 50, None, None, None, None, None),
        (1500, 400, 0, 11, "target_verify", 400, 390, 10, 300, 290, 20, "inferred"),
    ]
    assert rows(tp, "npu_tails", "ts, dur, rank, forward_ct, part, kernel_count, busy_ns, evidence") == [
        (1900, 100, 0, 11, "accept", 3, 60, "inferred"),
        (2000, 150, 0, 11, "commit", 1, 150, None),
    ]


def test_deepep(tp: Engine) -> None:
    assert rows(tp, "npu_deepep", PUBLIC["npu.deepep"]["npu_deepep"].split(" ", 1)[1].replace(" ", ",")) == [
        (1000, 300, 0, 11, "dispatch", "in_kernel_wait", 1000, 1100, 1300, 100, 200, 50, 150, "linked"),
        (1400, 100, 0, 11, "combine", "recv_hook", None, None, None, None, None, None, 70, None),
    ]
    assert rows(tp, "npu_deepep_peers", "rank, group_index, last_rank, waited_ns") == [(0, 0, 1, 120)]
    assert tp.rows("SELECT op FROM npu_deepep_peers JOIN npu_deepep USING (id)") == [("dispatch",)]


def test_replays(tp: Engine) -> None:
    columns = PUBLIC["npu.replays"]["npu_replays"].split(" ", 1)[1].replace(" ", ",")
    assert rows(tp, "npu_replays", columns) == [(1400, 200, 0, 11, 2, 0, 1590, 1600, 1700, 190, 80, "linked")]
    assert rows(tp, "npu_replay_host") == [(0, 0, 1410, 20, "aten::copy_", "inferred")]


def test_step_report(tp: Engine) -> None:
    # exposed: 150 + 70; gaps inside [1000, 2010): 250 + 500, not the one after it.
    assert rows(tp, "npu_step_report") == [
        (0, 11, 2, 8, 1.0, 3.0, 0.5, 2.0, 0.5, 0.00025, 0.00022, 0.00008, 0.00075, 2.5, 5, 0.4, 5000.0,
         "record", "record", None, "recorded"),
        (0, 12, 1, None, None, None, 0.0005, None, None, None, None, None, None, None, None, None, None,
         "linked_tasks", None, "span", "inferred"),
        (1, None, 4, None, 2.0, None, 0.00005, None, None, None, None, None, None, None, None, None, None,
         "linked_tasks", None, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [None, "span", "window"])
def test_a_cut_step_keeps_only_what_is_whole(cut: str | None) -> None:
    t = TraceBuilder()
    root = t.track("Rank 0 · DSpark")
    lanes = {name: t.track(name, root) for name in ("Steps", "Segments", "Tails", "DeepEP", "Replays", "Gaps")}
    mark = {} if cut is None else {"cut": cut}
    evidence = "inferred" if cut == "span" else "recorded"
    t.slice(lanes["Steps"], 0, 90, "s", "npu.step", step=0, step_wall_ns=100, draft_gpu_ms=7.0, committed_tokens=4,
            avg_commit_len=2.0, first_task_ts=10, last_task_end=90, evidence=evidence, **mark)  # fmt: skip
    t.slice(lanes["Segments"], 10, 20, "v", "npu.segment", step=0, segment="target_verify", placed_ns=20)
    t.slice(lanes["Tails"], 30, 5, "t", "npu.tail", step=0, part="accept", tail_ns=5)
    t.slice(lanes["DeepEP"], 12, 5, "d", "npu.deepep", step=0, exposed_ns=3)
    t.slice(lanes["Replays"], 5, 5, "r", "npu.replay", step=0, exposed_gap_ns=2)
    t.slice(lanes["Gaps"], 40, 6, "g", "npu.gap")
    names = "step_wall_ms, draft_ms, verify_ms, tail_ms, exposed_comm_ms, pre_replay_gap_ms, gap_ms, effective_tpot_ms"
    with open_trace(t.bytes()) as tp:
        (row,) = rows(tp, "npu_step_report", f"{names}, tokens_per_s, draft_source, verify_source, cut, evidence")
    whole = (1e-4, 7.0, 2e-5, 5e-6, 3e-6, 2e-6, 6e-6, 5e-5, 4e7, "record", "linked_tasks", None, "recorded")
    if cut is None:
        assert row == pytest.approx(whole)
    elif cut == "span":
        tail = (None, None, None, None, None, "record", "linked_tasks", "span", "inferred")
        assert row == (None, 7.0, 2e-5, 5e-6, *tail)
    else:
        assert row == (None, 7.0, *[None] * 7, "record", None, "window", "recorded")


def test_a_name_that_only_looks_like_a_rank_is_none() -> None:
    t = TraceBuilder()
    for i, name in enumerate(("Rank 1x", "Rank", "Rank -", "rank 1", "Rank 01")):
        t.slice(t.track("Stream 1", t.track("NPU 0", t.process(name, 10 + i))), 1, 1, "k", "npu.task", task=i)
    t.slice(t.track("Stream 1", t.track("Rank 1 · DSpark (old)")), 1, 1, "k", "npu.task", task=9)
    with open_trace(t.bytes()) as tp:
        assert set(rows(tp, "npu_kernels", "rank, device_id, stream_id")) == {(None, None, None)}


def test_every_argument_and_category_that_the_sql_reads_is_in_its_readme() -> None:
    readme = (Path(sql_package.__file__).parent / "sql" / "README.md").read_text("utf-8")
    for module, sql in sql_package.modules().items():
        for key in re.findall(r"'debug\.([a-z_.]+)'", sql):
            assert all(f"`{part}`" in readme for part in key.split(".") if part), f"{module}: {key}"
        for category in re.findall(r"'(npu\.[a-z_]+)'", sql):
            assert f"`{category}`" in readme, f"{module}: {category}"
