from __future__ import annotations

import json
from pathlib import Path

import pytest

from converter.capture import Capture
from converter.find import find_captures
from converter.readers.side_files import Damaged, Group, StepTime, read_json, read_log, read_side_files


def capture_with(
    tmp_path: Path, info: object = None, metadata: object = None, step_trace: str | None = None
) -> Capture:
    capture = Capture(str(tmp_path), str(tmp_path), "x", "torch_npu", 0)
    if info is not None:
        capture.profiler_info = str(tmp_path / "profiler_info_0.json")
        Path(capture.profiler_info).write_text(info if isinstance(info, str) else json.dumps(info))
    if metadata is not None:
        capture.profiler_metadata = str(tmp_path / "profiler_metadata.json")
        Path(capture.profiler_metadata).write_text(metadata if isinstance(metadata, str) else json.dumps(metadata))
    if step_trace is not None:
        (tmp_path / "step_trace_time.csv").write_text(step_trace)
        capture.step_trace_csvs = [str(tmp_path / "step_trace_time.csv")]
    return capture


def test_facts_of_profiler_info(tmp_path: Path) -> None:
    info = {
        "config": {
            "common_config": {"record_shapes": True, "with_stack": False, "profile_memory": False},
            "experimental_config": {
                "_profiler_level": "Level0",
                "_aic_metrics": "ACL_AICORE_NONE",
                "_export_type": ["text", "db"],
            },
        },
        "start_info": {"freq": 100, "start_cnt": 5, "start_monotonic": 40},
        "torch_npu_version": "2.7.1",
        "cann_version": "8.3.RC1",
    }
    side = read_side_files(capture_with(tmp_path, info))
    assert side.warnings == []
    expected = {
        "profiler_level": "Level0",
        "aic_metrics": "ACL_AICORE_NONE",
        "record_shapes": True,
        "with_stack": False,
        "export_type": "text,db",
        "torch_npu_version": "2.7.1",
        "cann_version": "8.3.RC1",
        "syscnt_mhz": "100",
    }
    assert expected.items() <= side.facts.items()
    for missing in ("Level", "task ids", "Python stacks", "memory", "AI Core metrics", "clock relations"):
        assert missing.lower() in side.facts["not_recorded"].lower()
    assert (side.host.epoch_minus_monotonic_ns, side.host.counter_minus_monotonic_ns) == (None, 10)


def test_groups_and_declared_ranks(tmp_path: Path) -> None:
    metadata = {
        "distributed_args": {"world_size": 8, "rank": 1, "tensor_model_parallel_size": 2},
        "parallel_group_info": {
            "group_name_0": {"group_name": "default_group", "global_ranks": [0, 1, 2, 3]},
            "group_name_7": {"group_name": "tp", "global_ranks": [0, 1]},
            "broken": {"group_name": 5},
            "also": None,
        },
    }
    side = read_side_files(capture_with(tmp_path, metadata=metadata))
    assert side.declared_ranks == {0, 1, 2, 3}  # the group's own list, before the world size
    assert side.groups == {"group_name_0": Group("default_group", (0, 1, 2, 3)), "group_name_7": Group("tp", (0, 1))}
    assert side.facts["distributed.tensor_model_parallel_size"] == 2
    del metadata["parallel_group_info"]
    assert read_side_files(capture_with(tmp_path, metadata=metadata)).declared_ranks == set(range(8))


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "\x00\x00", "{" * 5000, '{"a": NaN}', "\xff\xfe"])
def test_damaged_side_files_are_named(tmp_path: Path, content: str) -> None:
    side = read_side_files(capture_with(tmp_path, content, content, content))
    assert [
        name in warning
        for name, warning in zip(("profiler_info_0.json", "profiler_metadata.json"), side.warnings, strict=False)
    ] == [True, True]
    assert side.relations == []


@pytest.mark.parametrize(
    "info",
    [
        {"config": 5, "start_info": [], "end_info": "x", "rank_id": {}},
        {"config": {"common_config": None, "experimental_config": [1]}},
        {"hostUid": {}, "cann_version": 8},
    ],
)
def test_odd_shapes_are_no_failure(tmp_path: Path, info: object) -> None:
    read_side_files(capture_with(tmp_path, info, {"parallel_group_info": [], "distributed_args": "x"}))


def test_step_trace_time(tmp_path: Path) -> None:
    text = (
        "\ufeffDevice_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage\r\n"
        "0,13,400448.2599999992,420174.2600000001,0.0,420174.2600000001,158558.00000000032,1\r\n"
    )
    side = read_side_files(capture_with(tmp_path, step_trace=text))
    assert side.step_times == [StepTime("0", "13", 400448260, 420174260, 420174260, 158558000)]
    assert side.warnings == []
    side = read_side_files(capture_with(tmp_path, step_trace="Step,Computing\n1,abc\n"))
    assert side.step_times == [StepTime("", "1", None, None, None, None)]
    assert "1 of 1 rows" in side.warnings[0]


def test_logs_with_and_without_a_section(tmp_path: Path) -> None:
    for text in (
        "[Host]\nclock_monotonic_raw: 12\ncntvct: 34\ncntvct_diff: 0\n",
        "clock_monotonic_raw: 12\ncntvct: 34\n",
    ):
        (tmp_path / "log").write_text(text)
        log = read_log(str(tmp_path / "log"))
        assert (log["clock_monotonic_raw"], log["cntvct"]) == ("12", "34")
    (tmp_path / "log").write_text("clock_monotonic_raw: many\ncntvct:\n")
    with pytest.raises(Damaged):
        read_log(str(tmp_path / "log"))


def test_missing_file_is_damage(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="read"):
        read_json(str(tmp_path / "gone.json"))


def test_real_captures(shared: Path) -> None:
    one, two = find_captures([str(shared / "captures" / "train_cann80_level1")])
    sides = [read_side_files(one), read_side_files(two)]
    # Two ranks of one host: both relations agree within 3.1 us.
    for a, b in zip(*(list(vars(s.host).values())[1:] for s in sides), strict=True):
        assert abs(a - b) < 3100
    assert [[r["clock"] for r in s.relations] for s in sides] == [["monotonic", "syscnt"]] * 2
    (msprof,) = find_captures([str(shared / "captures" / "msprof_2026")])
    side = read_side_files(msprof)
    assert side.warnings == []
    assert side.facts["device_0.counter_mhz"] == "49.999001"  # 20.0004 ns: a fact, no relation
    assert [(r["clock"], r["period_ns"]) for r in side.relations] == [
        ("monotonic_raw", None),
        ("monotonic_raw", None),
        ("syscnt", 10),
    ]
    offsets = [r["readings"][0][1] - r["readings"][0][0] for r in side.relations[:2]]
    assert offsets == [1786617218803223980, 1786617218803227480]


@pytest.mark.parametrize(
    "info", [{"CPU": 5}, {"CPU": [5]}, {"DeviceInfo": {"a": 1}}, {"DeviceInfo": [None], "CPU": []}]
)
def test_odd_shapes_of_msprof_files_are_no_failure(tmp_path: Path, info: object) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "info.json").write_text(json.dumps(info))
    (tmp_path / "host" / "start_info").write_text(
        '{"clockMonotonicRaw": "10", "collectionTimeBegin": "1767000000000000"}'
    )
    capture = Capture("x", "x", "x", "msprof", 0)
    capture.info_jsons, capture.start_infos = (
        [str(tmp_path / "host" / "info.json")],
        [str(tmp_path / "host" / "start_info")],
    )
    assert read_side_files(capture).relations[0]["readings"] == [(10, 1767000000000000000)]
