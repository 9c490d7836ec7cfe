"""A damaged capture: a trace is made of what is left, and nobody can miss that something is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from converter.check import check
from converter.convert import convert, damage_facts
from converter.engine import open_trace
from converter.options import Options
from tests.converter.test_command_line import kernel_csv, run

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "dspark_two_ranks"
FACTS = "INCLUDE PERFETTO MODULE npu.facts; SELECT rank, key, value FROM npu_facts WHERE key GLOB '*damage[[]*'"


def cut(folder: Path) -> None:
    """Cuts its trace_view.json in the middle of an event."""
    path = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b'"ph"', len(data) // 2) + 3])


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """Two captures of one rank each, the second one cut short."""
    for name in ("good_1_ascend_pt", "cut_1_ascend_pt"):
        shutil.copytree(SAMPLE / "rank0_ascend_pt", tmp_path / "night" / name)
    cut(tmp_path / "night" / "cut_1_ascend_pt")
    return tmp_path


def test_quiet_still_names_a_damaged_input(night: Path) -> None:
    args = ("convert", "-q", "night/cut_1_ascend_pt", "-o", "d.pftrace")
    done = run(*args, cwd=night)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "night/cut_1_ascend_pt" in line and "cut short" in line
    strict = run(*args, "--strict", cwd=night)
    assert strict.returncode == 3
    assert "malformed event" in strict.stderr  # what makes it 3 is said
    assert run("convert", "-q", "night/good_1_ascend_pt", "-o", "g.pftrace", cwd=night).stderr == ""


def test_the_trace_keeps_the_damage_and_check_tells(night: Path) -> None:
    trace = str(night / "d.pftrace")
    summary = convert([str(night / "night" / "cut_1_ascend_pt")], trace)
    with open_trace(trace) as tp:
        facts = tp.rows(FACTS)
    assert [(rank, key) for rank, key, _ in facts] == [(0, "capture.damage[0]"), (0, "capture.damage[1]")]
    assert facts[0][2].startswith("trace_view.json, byte ") and "cut short" in facts[0][2]
    assert [what for _, what in summary.damage] == [[value for *_, value in facts]]
    assert str(night) not in "".join(value for *_, value in facts)
    found = check(trace)
    assert found.problems == []
    assert found.notes[:2] == [f"the input was damaged: rank 0: {value}" for *_, value in facts]
    assert any(note.startswith("converting left out: ") and "1 slice (malformed event)" in note for note in found.notes)
    told = run("check", "d.pftrace", cwd=night)
    assert told.returncode == 0 and told.stdout.count("note: the input was damaged") == 2
    assert "note" not in run("check", "-q", "d.pftrace", cwd=night).stdout


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_batch_names_them_at_its_end(night: Path, jobs: str) -> None:
    args = ("convert", "night/good_1_ascend_pt", "night/cut_1_ascend_pt", "--out-dir", "out", "--jobs", jobs)
    quiet = run(*args, "-q", cwd=night)
    assert quiet.returncode == 0
    assert quiet.stderr.splitlines()[-2:] == [
        "npu-perfetto: 1 of 2 inputs was damaged, some of their events are missing:",
        "npu-perfetto: damaged: night/cut_1_ascend_pt",
    ]
    assert len(quiet.stderr.splitlines()) == 3
    loud = run(*args, "--summary", "-", "--drop", "no_such", cwd=night)
    warnings = [line for line in loud.stderr.splitlines() if line.startswith("warning: ")]
    for name in ("good_1_ascend_pt", "cut_1_ascend_pt"):
        assert any(line.startswith(f"warning: {name}: rank 0: --drop no_such") for line in warnings)
    assert any(line.startswith("cut_1_ascend_pt: rank 0: 1 slice dropped") for line in loud.stderr.splitlines())
    damage = {line["output"]: line["damage"] for line in map(json.loads, loud.stdout.splitlines())}
    assert damage["out/good_1_ascend_pt.pftrace"] == []
    assert damage["out/cut_1_ascend_pt.pftrace"][0]["input"] == "night/cut_1_ascend_pt"
    assert run(*args, "-q", "--strict", cwd=night).returncode == 3


def test_a_damaged_input_is_named_on_every_run(night: Path) -> None:
    args = ("convert", "night/good_1_ascend_pt", "night/cut_1_ascend_pt", "--out-dir", "out", "--skip-existing")
    first, second = (run(*args, "--summary", "-", "-q", cwd=night) for _ in range(2))
    assert first.stderr == second.stderr and "cut short" in second.stderr
    skipped = {line["output"]: line.get("skipped", False) for line in map(json.loads, second.stdout.splitlines())}
    assert skipped == {"out/good_1_ascend_pt.pftrace": True, "out/cut_1_ascend_pt.pftrace": False}


def test_of_several_ranks_the_damaged_one_is_named(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "run")
    cut(tmp_path / "run" / "rank1_ascend_pt")
    summary = convert([str(tmp_path / "run")], str(tmp_path / "o.pftrace"))
    assert all(text.startswith("rank ") for _, what in summary.damage for text in what)
    assert all(text.startswith(("rank ", "no input declares")) for text in summary.warnings), summary.warnings
    with open_trace(str(tmp_path / "o.pftrace")) as tp:
        assert {rank for rank, *_ in tp.rows(FACTS)} == {1}


def test_damaged_records_are_a_fact_of_the_run(tmp_path: Path) -> None:
    text = json.dumps(json.loads((SAMPLE / "server_info.json").read_text()))
    (tmp_path / "steps.jsonl").write_text(f"{text}\n{{broken\n")
    trace = str(tmp_path / "o.pftrace")
    summary = convert([str(SAMPLE)], trace, Options(dspark=((None, str(tmp_path / "steps.jsonl")),)))
    assert summary.damaged and "steps.jsonl: 1 of 2 lines" in "".join(summary.warnings)
    with open_trace(trace) as tp:
        ((rank, key, value),) = tp.rows(FACTS)
    assert (rank, key) == (None, "damage[0]") and value.startswith("steps.jsonl: 1 of 2 lines are not JSON")
    assert check(trace).notes[0] == f"the input was damaged: {value}"


def test_damage_facts_are_bounded_and_name_no_folder() -> None:
    facts = damage_facts(
        [f"/tmp/fetched/0/a_ascend_pt/x/{i}.json: broken" for i in range(150)], "/tmp/fetched/0/a_ascend_pt"
    )
    assert len(facts) == 101 and facts[0] == "x/0.json: broken" and facts[-1] == "and 50 more"


def test_whole_inputs_have_no_such_facts(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv")
    trace = str(tmp_path / "o.pftrace")
    convert([str(tmp_path / "k.csv")], trace)
    with open_trace(trace) as tp:
        assert tp.rows(FACTS) == []
    assert check(trace).notes == []
