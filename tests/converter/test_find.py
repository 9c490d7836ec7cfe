from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from converter.capture_files import choose, natural
from converter.file_kinds import kind_by_content, kind_by_name, stem
from converter.find import check_paths, find_captures, input_name, output_names
from converter.ranks import rank_in_name, rank_of_value
from schemas.errors import InputError, UsageError

KERNELS = "Device_id,Name,Start Time(us),Duration(us)\n0,a,1767000000000000.000\t,10\n"


def put(path: Path, text: str = KERNELS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def torch_capture(folder: Path, rank: object = None) -> Path:
    put(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    if rank is not None:
        put(folder / "profiler_info.json", json.dumps({"rank_id": rank}))
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3_ascend_pt", 3),
        ("rank_12_ascend_pt", 12),
        ("dp0_pp0_tp0_dcp0_ep0_rank7_20260101_ascend_pt", 7),
        ("1769071195.66-TP-3.trace.json.gz", 3),
        ("1769071195.66-TP-3-DP-1-PP-0.trace.json.gz", 3),
        ("1769071195.66-TP-3-PP-1.trace.json.gz", None),  # the TP rank is inside a pipeline stage
        ("dp_rank2_x", None),
        ("dp_rank2_global_rank_9", 9),
        ("prank3", None),
        ("host_4100_20260101000000000_ascend_pt", None),
        ("RANK-4", 4),
        ("rank123456789", None),
    ],
)
def test_rank_in_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(
    ("value", "rank"),
    [(0, 0), ("2", 2), (-1, None), ("-1", None), (True, None), (1.0, None), ("x", None), (None, None), (10**9, None)],
)
def test_rank_of_value(value: object, rank: int | None) -> None:
    assert rank_of_value(value) == rank


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("kernel_details.csv", "kernels"),
        ("kernel_details (1).csv", "kernels"),
        ("op_summary_slice_0_20260101000000.csv", "kernels"),
        ("op_statistic_20260101000000.csv", None),
        ("task_time_20260823165335.csv", "task_time"),
        ("trace_view.json", "trace"),
        ("trace_view.json.gz", "trace"),
        ("msprof_20260823165334.json", "trace"),
        ("msprof_tx_20260823165334.json", None),
        ("x.trace.json.gz", "trace"),
        ("ascend_pytorch_profiler_0.db", "db"),
        ("msprof_20260101.db", "db"),
        ("analysis.db", "analysis"),
        ("memory_record.csv", "memory"),
        ("step_trace_time.csv", "step_trace"),
        ("step_trace_20260101.csv", "iterations"),
        ("communication.json", "communication"),
        ("communication_matrix.json", "communication_matrix"),
    ],
)
def test_kind_by_name(name: str, kind: str | None) -> None:
    assert kind_by_name(name) == kind


def test_stem() -> None:
    assert stem("a-TP-3.trace.json.gz") == "a-TP-3"
    assert stem("kernel_details.csv") == "kernel_details"
    assert stem("odd.name") == "odd.name"
    assert stem(".json") == ".json"


def test_odd_names_are_recognised_by_content(tmp_path: Path) -> None:
    assert kind_by_content(str(put(tmp_path / "a.txt"))) == "kernels"
    (tmp_path / "b").write_bytes(("\ufeff" + KERNELS.replace("Start Time", "Task Start Time")).encode("utf-16-le"))
    assert kind_by_content(str(tmp_path / "b")) == "kernels"
    assert kind_by_content(str(put(tmp_path / "c", " \n[{"))) == "trace"
    (tmp_path / "d").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    assert kind_by_content(str(tmp_path / "d")) == "trace"
    tasks = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n"
    assert kind_by_content(str(put(tmp_path / "e", tasks))) == "task_time"
    (tmp_path / "f").write_bytes(b"SQLite format 3\x00" + b"\x00" * 100)
    assert kind_by_content(str(tmp_path / "f")) == "db"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\x0a\x0e\x58\x01\x52\x06trusty", "Perfetto trace"),
        (b"PK\x03\x04" + b"x" * 50, "zip"),
        (b"x" * 257 + b"ustar\x0000", "tar"),
        (b"\x89PNG\r\n", "image"),
        (b"only words\n", "no profile"),
        (gzip.compress(KERNELS.encode(), mtime=0), "gunzip"),
        (gzip.compress(b"nothing here", mtime=0), "no profile"),
        (b"\x1f\x8bnot gzip at all", "no profile"),
        (bytes(range(256)), "no profile"),
    ],
)
def test_what_is_something_else_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "odd").write_bytes(content)
    with pytest.raises(InputError, match=says) as error:
        find_captures(["odd"])
    assert "odd" in str(error.value)


def test_capture_its_output_folder_and_its_file_are_one_capture(tmp_path: Path) -> None:
    torch_capture(tmp_path / "x_ascend_pt", "5")
    for path in (
        "x_ascend_pt",
        "x_ascend_pt/ASCEND_PROFILER_OUTPUT",
        "x_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    ):
        (capture,) = find_captures([path])
        assert (capture.rank, capture.rank_source) == (5, "profiler_info"), path
        assert capture.path == path
        assert [os.path.basename(p) for p in capture.kernel_csvs] == ["kernel_details.csv"]
    assert find_captures(["x_ascend_pt/ASCEND_PROFILER_OUTPUT"])[0].name == "x_ascend_pt"
    with pytest.raises(UsageError, match="given twice"):
        find_captures(["x_ascend_pt", "x_ascend_pt/ASCEND_PROFILER_OUTPUT"])


def test_folder_of_captures_in_the_order_of_numbers(tmp_path: Path) -> None:
    for n in (10, 2, 1):
        torch_capture(tmp_path / "run" / f"node{n % 2}" / f"rank{n}_ascend_pt")
    captures = find_captures(["run"])
    assert [(c.path, c.rank, c.rank_source) for c in captures] == [
        ("run/node0/rank2_ascend_pt", 2, "folder name"),
        ("run/node0/rank10_ascend_pt", 10, "folder name"),
        ("run/node1/rank1_ascend_pt", 1, "folder name"),
    ]
    assert {c.input for c in captures} == {"run"}


def test_rank_of_a_folder_above_counts(tmp_path: Path) -> None:
    torch_capture(tmp_path / "run" / "rank4" / "host_1_2026_ascend_pt")
    assert find_captures(["run"])[0].rank == 4


def test_rank_from_metadata_and_disagreement(tmp_path: Path) -> None:
    folder = torch_capture(tmp_path / "rank3_ascend_pt", -1)
    put(folder / "profiler_metadata.json", json.dumps({"distributed_args": {"rank": 6}}))
    (capture,) = find_captures(["rank3_ascend_pt"])
    assert (capture.rank, capture.rank_source) == (6, "metadata")
    assert len(capture.notes) == 1
    assert "3" in capture.notes[0]


def test_position_gives_the_rank_that_nothing_tells(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        put(tmp_path / f"{name}.csv")
    assert [c.rank for c in find_captures(["a.csv", "b.csv", "c.csv"])] == [0, 1, 2]
    torch_capture(tmp_path / "x_ascend_pt", 1)
    captures = find_captures(["x_ascend_pt", "b.csv", "a.csv"])
    assert [c.rank for c in captures] == [1, 0, 2]
    assert "rank 0" in captures[1].notes[0]


def test_two_captures_of_one_rank_name_both(tmp_path: Path) -> None:
    torch_capture(tmp_path / "one_ascend_pt", 0)
    torch_capture(tmp_path / "two_ascend_pt", "0")
    with pytest.raises(InputError) as error:
        find_captures(["one_ascend_pt", "two_ascend_pt"])
    assert "one_ascend_pt" in str(error.value)
    assert "two_ascend_pt" in str(error.value)


def test_bad_inputs_beside_good_ones(tmp_path: Path) -> None:
    torch_capture(tmp_path / "run" / "good_ascend_pt", 0)
    put(tmp_path / "run" / "raw_ascend_pt" / "FRAMEWORK" / "torch.op_range", "x")
    put(tmp_path / "words.txt", "only words")
    failures: list[InputError] = []
    captures = find_captures(["words.txt", "run"], failures)
    assert [c.name for c in captures] == ["good_ascend_pt"]
    assert [failure.path for failure in failures] == ["words.txt", "run/raw_ascend_pt"]
    assert "analyse" in str(failures[1])
    with pytest.raises(InputError, match="words"):
        find_captures(["words.txt", "run"])


def test_same_path_by_link_or_spelling(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    (tmp_path / "link.csv").symlink_to("a.csv")
    for twice in ("a.csv", "./a.csv", "link.csv"):
        with pytest.raises(UsageError, match="twice"):
            check_paths(["a.csv", twice])


def test_input_inside_another_input(tmp_path: Path) -> None:
    torch_capture(tmp_path / "run" / "r0_ascend_pt", 0)
    with pytest.raises(UsageError, match="twice"):
        find_captures(["run", "run/r0_ascend_pt"])


def test_missing_paths(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    for path in ("nothing", "", "a.csv/below", "x" * 300):
        with pytest.raises(UsageError, match="does not exist"):
            find_captures([path])


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kernel_details.csv")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "empty").mkdir()
    for path in ("kernel_details.csv", "self", "nowhere", "empty", "/dev/null"):
        with pytest.raises(InputError, match=path):
            find_captures([path])


def test_fifo_inside_a_capture_is_left_out_and_said(tmp_path: Path) -> None:
    folder = torch_capture(tmp_path / "r_ascend_pt")
    os.mkfifo(folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json")
    (capture,) = find_captures(["r_ascend_pt"])
    assert capture.trace_jsons == []
    assert "trace_view.json" in capture.notes[0]


def test_links_that_lead_back_end(tmp_path: Path) -> None:
    torch_capture(tmp_path / "run" / "r0_ascend_pt", 0)
    (tmp_path / "run" / "again").symlink_to(".")
    (tmp_path / "run" / "up").symlink_to("..")
    assert [c.name for c in find_captures(["run"])] == ["r0_ascend_pt"]


def test_prof_inside_a_torch_capture_is_part_of_it(tmp_path: Path) -> None:
    folder = torch_capture(tmp_path / "r_ascend_pt", 0)
    prof = folder / "PROF_000001_20260101000000000_AB"
    put(prof / "mindstudio_profiler_output" / "op_summary_20260101000000.csv")
    put(prof / "host" / "start_info", "{}")
    put(prof / "device_0" / "host_start.log.0", "x")
    (capture,) = find_captures(["r_ascend_pt"])
    assert [os.path.basename(p) for p in capture.kernel_csvs] == ["kernel_details.csv"]
    assert len(capture.start_infos) == len(capture.host_start_logs) == 1


def test_export_of_the_prof_is_used_where_there_is_no_other(tmp_path: Path) -> None:
    prof = tmp_path / "r_ascend_pt" / "PROF_1"
    put(prof / "mindstudio_profiler_output" / "op_summary_20260101000000.csv")
    (capture,) = find_captures(["r_ascend_pt"])
    assert capture.kind == "torch_npu"
    assert len(capture.kernel_csvs) == 1
    assert "PROF_*" in capture.notes[0]


def test_newest_export_of_an_msprof_folder(tmp_path: Path) -> None:
    out = tmp_path / "PROF_1" / "mindstudio_profiler_output"
    for name in ("op_summary_20260101000000.csv", "op_summary_20260301000000.csv", "task_time_20260301000002.csv"):
        put(out / name)
    (capture,) = find_captures(["PROF_1"])
    assert [os.path.basename(p) for p in capture.kernel_csvs] == ["op_summary_20260301000000.csv"]
    assert [os.path.basename(p) for p in capture.task_time_csvs] == ["task_time_20260301000002.csv"]
    (note,) = capture.notes
    assert "not read: op_summary_20260101000000.csv" in note


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a_slice_1_20260101000000.csv", "a_slice_0_20260101000000.csv"], [1, 0]),
        (["a_slice_10_20260101000009.csv", "a_slice_2_20260101000003.csv", "a_20260101000000.csv"], [2, 1, 0]),
        (["a_slice_0_20260101000000.csv", "a_slice_0_20260102000000.csv"], [1]),
        (["a_slice_0_20260102000000.csv", "a_slice_1_20260101000000.csv"], [0]),
        (["a_20260101000000.csv", "a_20260101000000 (1).csv"], [0]),
        (["op_summary_0_1_1.csv", "op_summary_0_1_2.csv"], [0, 1]),
        (["kernel_details.csv", "kernel_details (1).csv"], [0]),
        (["op_summary_20260101000000.csv", "kernel_details.csv"], [1]),
    ],
)
def test_choice_among_files_of_one_kind(names: list[str], chosen: list[int]) -> None:
    read, left = choose(names)
    assert read == [names[i] for i in chosen]
    assert sorted(read + left) == sorted(names)


def test_loose_folders(tmp_path: Path) -> None:
    for n in (0, 1, 2):
        put(tmp_path / "sglang" / f"1769-TP-{n}.trace.json", "[]")
    assert [(c.rank, c.path) for c in find_captures(["sglang"])] == [
        (n, f"sglang/1769-TP-{n}.trace.json") for n in range(3)
    ]
    put(tmp_path / "flat" / "kernel_details.csv")
    put(tmp_path / "flat" / "trace_view.json", "[]")
    put(tmp_path / "flat" / "profiler_info_8.json", '{"rank_id": 8}')
    (capture,) = find_captures(["flat"])
    assert (capture.rank, capture.name, len(capture.kernel_csvs), len(capture.trace_jsons)) == (8, "flat", 1, 1)
    put(tmp_path / "csvs" / "kernel_details_rank0.csv")
    put(tmp_path / "csvs" / "kernel_details_rank1.csv")
    assert [c.rank for c in find_captures(["csvs"])] == [0, 1]


def test_database_alone(tmp_path: Path) -> None:
    (tmp_path / "msprof_1.db").write_bytes(b"SQLite format 3\x00")
    (tmp_path / "ascend_pytorch_profiler_0.db").write_bytes(b"words")
    assert find_captures(["msprof_1.db"])[0].dbs == ["msprof_1.db"]
    with pytest.raises(InputError, match="not an SQLite"):
        find_captures(["ascend_pytorch_profiler_0.db"])
    (tmp_path / "ascend_pytorch_profiler_0.db").write_bytes(b"SQLite format 3\x00")
    (capture,) = find_captures(["."])  # the framework's holds what the other one does
    assert capture.dbs == ["./ascend_pytorch_profiler_0.db"] and capture.rank == 0 and "msprof_1.db" in capture.notes[0]
    torch_capture(tmp_path / "r_ascend_pt")
    (tmp_path / "r_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db").write_bytes(b"")
    assert len(find_captures(["r_ascend_pt"])[0].dbs) == 1  # the text export beside it is read


def test_output_names(tmp_path: Path) -> None:
    put(tmp_path / "a" / "kernel_details.csv")
    put(tmp_path / "b" / "kernel_details.csv")
    put(tmp_path / "x" / "b" / "kernel_details.csv")
    assert output_names(["a/kernel_details.csv"]) == ["kernel_details"]
    assert output_names(["a/kernel_details.csv", "b/kernel_details.csv"]) == ["a_kernel_details", "b_kernel_details"]
    with pytest.raises(UsageError, match="both be written"):
        output_names(["b/kernel_details.csv", "x/b/kernel_details.csv"])
    torch_capture(tmp_path / "r_ascend_pt")
    assert input_name("r_ascend_pt/ASCEND_PROFILER_OUTPUT/") == "r_ascend_pt"
    assert input_name(".") == tmp_path.name


def test_natural_order() -> None:
    assert sorted(["r10", "r2", "r1a", "b"], key=natural) == ["b", "r1a", "r2", "r10"]


def test_mindspore_and_older_msprof_layouts(tmp_path: Path) -> None:
    torch_capture(tmp_path / "rank_2_ascend_ms")
    (capture,) = find_captures(["rank_2_ascend_ms"])
    assert (capture.kind, capture.rank) == ("mindspore", 2)
    put(tmp_path / "PROF_9" / "device_0" / "summary" / "op_summary_0_1_1.csv")
    put(tmp_path / "PROF_9" / "device_0" / "timeline" / "msprof_0_1_1.json", "[]")
    (capture,) = find_captures(["PROF_9"])
    assert (len(capture.kernel_csvs), len(capture.trace_jsons)) == (1, 1)
    put(tmp_path / "PROF_9" / "device_0" / "info.json.0", '{"rank_id": 3}')
    assert (find_captures(["PROF_9"])[0].rank, find_captures(["PROF_9"])[0].rank_source) == (3, "info.json")


def test_raw_data_says_what_to_run(tmp_path: Path) -> None:
    for folder, says in (("a_ascend_pt", "torch_npu"), ("b_ascend_ms", "mindspore"), ("PROF_1", "msprof --export")):
        put(tmp_path / folder / "PROF_x" / "device_0" / "data" / "ts.slice_0", "x")
        with pytest.raises(InputError, match=says) as error:
            find_captures([folder])
        assert "not parsed yet" in str(error.value)


def test_search_ends_at_a_depth_and_says_so(tmp_path: Path) -> None:
    torch_capture(tmp_path / "run" / "r0_ascend_pt", 0)
    deep = tmp_path / "run" / "/".join("abcdefghij")
    torch_capture(deep / "r1_ascend_pt", 1)
    (capture,) = find_captures(["run"])
    assert "not searched" in capture.notes[0]


def test_names_with_control_characters_are_shown_as_escapes() -> None:
    with pytest.raises(UsageError) as error:
        find_captures(["x\x1b[2J"])
    assert "\x1b" not in str(error.value)


def test_real_captures(shared: Path) -> None:
    captures = find_captures([str(shared / "captures" / "train_cann80_level1")])
    assert [(c.rank, c.rank_source, c.name) for c in captures] == [
        (0, "profiler_info", "rank0_ascend_pt"),
        (1, "profiler_info", "rank1_ascend_pt"),
    ]
    assert [len(c.kernel_csvs) + len(c.trace_jsons) + len(c.memory_csvs) for c in captures] == [3, 3]
    (msprof,) = find_captures([str(shared / "captures" / "msprof_2026")])
    assert (msprof.kind, msprof.rank) == ("msprof", 0)
    assert [len(x) for x in (msprof.start_infos, msprof.info_jsons, msprof.host_start_logs)] == [2, 2, 1]
    assert msprof.notes == []
