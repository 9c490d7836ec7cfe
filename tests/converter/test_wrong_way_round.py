"""A capture where a trace is wanted, a trace where a CSV is wanted, odd names and words: one line says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from annotators.group_condition import _span
from converter.check import check
from converter.convert import convert
from converter.engine import open_trace
from converter.options import Options
from converter.request import odd_ending
from converter.summary import told
from tests.converter.test_command_line import kernel_csv, run

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "dspark_two_ranks"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(SAMPLE, folder / "run")
    kernel_csv(folder / "kernel_details.csv")
    (folder / "empty").mkdir()
    convert([str(folder / "kernel_details.csv")], str(folder / "o.pftrace"))
    return folder


@pytest.mark.parametrize("given", ["run", "run/rank0_ascend_pt", "kernel_details.csv"])
@pytest.mark.parametrize("command", ["sql", "report", "compare", "check"])
def test_a_capture_is_no_trace(place: Path, command: str, given: str) -> None:
    more = {"sql": ["SELECT 1"], "compare": ["o.pftrace"]}.get(command, [])
    done = run(command, given, *more, cwd=place)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines() == [
        f"npu-perfetto: {given}: is a capture, not a trace; convert it first: npu-perfetto convert {given}"
    ]


def test_folders_without_a_capture_and_trace_json(place: Path) -> None:
    assert "empty: is a folder, not a trace" in run("check", "empty", cwd=place).stderr
    json = next((place / "run").rglob("trace_view.json"))
    assert "is a capture, not a trace" in run("check", json, cwd=place).stderr
    assert run("sql", json, "SELECT 1", cwd=place).returncode == 0  # trace_processor reads it


@pytest.mark.parametrize("layout", ["single", "archive"])
def test_a_trace_is_no_csv(place: Path, layout: str) -> None:
    name = "x.tar" if layout == "archive" else "x.pftrace"
    convert([str(place / "run")], str(place / name), Options(layout=layout))
    done = run("gaps", name, cwd=place)
    assert done.returncode == 1
    assert done.stderr.startswith(f"npu-perfetto: {name}: is a trace, not a kernel CSV")


@pytest.mark.parametrize(
    ("target", "layout", "odd"),
    [
        ("a.pftrace", "single", False), ("a.pftrace.gz", "single", False), ("-", "single", False),
        ("a.perfetto-trace", "single", False), ("a", "single", False), ("a.tar", "archive", False),
        ("a.json", "single", True), ("a.JSON.gz", "single", True), ("a.csv", "single", True), ("a.db", "single", True),
        ("a.tar", "single", True), ("a.pftrace", "archive", True), ("", "single", False),
    ],
)  # fmt: skip
def test_names_that_mislead(target: str, layout: str, odd: bool) -> None:
    assert bool(odd_ending(target, layout)) is odd


def test_an_odd_name_is_one_warning(place: Path) -> None:
    done = run("convert", "kernel_details.csv", "-o", "x.json", cwd=place)
    assert done.returncode == 0 and (place / "x.json").exists()
    assert [line for line in done.stderr.splitlines() if line.startswith("warning: x.json: ")]
    assert run("convert", "kernel_details.csv", "-o", "x.json", "-q", cwd=place).stderr == ""


def test_what_was_left_out_on_request_is_a_fact(place: Path, tmp_path: Path) -> None:
    options = Options(window="+0ms:+20ms", drop=("enqueue", "no_such"))
    trace = str(tmp_path / "o.pftrace")
    summary = convert([str(place / "run")], trace, options)
    with open_trace(trace) as tp:
        facts = tp.rows("INCLUDE PERFETTO MODULE npu.facts; SELECT * FROM npu_facts WHERE key GLOB 'option.*'")
    assert sorted(facts) == [(None, "option.drop", "enqueue,no_such"), (None, "option.window", "+0ms:+20ms")]
    (line,) = {w.partition(": ")[2] for w in summary.warnings if "no_such" in w}
    assert line.startswith("--drop no_such: no slice has this category; there are ")
    assert set(line.rpartition("there are ")[2].split(", ")) == {"npu.task", "cpu_op", "enqueue", "dequeue"}


def test_pmu_counters_that_are_not_there(place: Path, tmp_path: Path) -> None:
    summary = convert([str(place / "run")], str(tmp_path / "o.pftrace"), Options(pmu=True, pmu_counters=("foo",)))
    assert all("no recorded task has such a column; there are" in text for text in summary.refused if "foo" in text)
    assert any("foo" in text for text in summary.refused)


def test_convert_and_check_count_alike(place: Path, tmp_path: Path) -> None:
    trace = str(tmp_path / "o.pftrace")
    summary = convert([str(place / "run")], trace, Options(dspark=((None, str(SAMPLE / "server_info.json")),)))
    figures = summary.headline().partition("ranks, ")[2].partition("; ")[0]
    assert "derived" in figures
    found = check(trace).compared
    for part in figures.split(", "):
        assert part in found, (part, found)


def test_small_words() -> None:
    assert (_span(5), _span(999), _span(50_000)) == ("5 ns", "999 ns", "50.0 us")
    assert (told(1, 0, "slice"), told(2_000, 1, "flow")) == ("1 slice", "2,000 flows + 1 derived")
