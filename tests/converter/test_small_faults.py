"""What newcomers met: pipes that close early, empty tables, words that are not known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from converter.cli import _take_debug
from tests.converter.test_command_line import environment, kernel_csv, run

CLOSED_PIPE = 128 + signal.SIGPIPE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """t.pftrace of kernel_details.csv, one rank without steps; other/ holds many names that are not in it."""
    made = tmp_path_factory.mktemp("small")
    kernel_csv(made / "kernel_details.csv")
    other = kernel_csv(made / "other" / "kernel_details.csv", rows=60)
    lines = other.read_text().splitlines()
    other.write_text("\n".join(line.replace(f",k{i % 7},", f",name{i},") for i, line in enumerate(lines, -1)) + "\n")
    assert run("convert", "kernel_details.csv", "-o", "t.pftrace", cwd=made).returncode == 0
    return made


@pytest.mark.parametrize(
    "args",
    [
        ("convert", "--help"),
        ("sql", "t.pftrace", "SELECT * FROM args AS a, (SELECT 1 FROM args)"),
        ("check", "t.pftrace"),
        ("report", "t.pftrace"),
    ],
)
def test_a_reader_that_goes_away(folder: Path, args: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # closed before anything is written: what `| head` comes to
    argv = [sys.executable, "-m", "converter", *args]
    done = subprocess.run(
        argv, cwd=folder, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, env=environment()
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (CLOSED_PIPE, "")


def test_check_shows_ten_differences_and_counts_the_others(folder: Path) -> None:
    done = run("check", "t.pftrace", "--against", "other", cwd=folder)
    *shown, last = done.stdout.splitlines()
    assert (done.returncode, len(shown)) == (1, 10)
    whole = run("check", "t.pftrace", "--against", "other", "-v", cwd=folder)
    every = whole.stdout.splitlines()
    assert every[:10] == shown and whole.returncode == 1
    assert last == f"t.pftrace: ... and {len(every) - 10} more (-v lists them)"


def test_csv_of_a_table_without_rows_has_its_header(folder: Path) -> None:
    done = run("report", "t.pftrace", "--table", "steps", "--format", "csv", cwd=folder)
    assert done.returncode == 0 and done.stdout.startswith("rank,forward_ct,bs,") and done.stdout.count("\n") == 1


def test_a_statement_without_a_result_prints_nothing(folder: Path) -> None:
    query = "INCLUDE PERFETTO MODULE npu.steps"
    for form, text in (("table", ""), ("csv", ""), ("json", "[]\n")):
        done = run("sql", "t.pftrace", query, "--format", form, cwd=folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, text, "")
    empty = run("sql", "t.pftrace", f"{query}; SELECT rank, bs FROM npu_steps", cwd=folder)
    assert empty.stdout == "rank  bs\n----  --\n"


def test_debug_behind_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT nothing FROM nowhere"
    (folder / "no_trace").write_text("no trace")
    before = run("--debug", "check", "no_trace", cwd=folder)
    behind = run("check", "no_trace", "--debug", cwd=folder)
    assert "Traceback" in before.stderr and "Traceback" in behind.stderr
    assert "Traceback" not in run("check", "no_trace", cwd=folder).stderr
    monkeypatch.delenv("NPU_PERFETTO_DEBUG", raising=False)
    argv = ["npu-perfetto", "sql", "t", "--", query, "--debug"]
    _take_debug(argv)
    assert argv[-1] == "--debug" and "NPU_PERFETTO_DEBUG" not in os.environ


def test_a_fact_under_test_that_is_none(folder: Path) -> None:
    done = run("compare", "t.pftrace", "t.pftrace", "--under-test", "no_such_fact", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "'no_such_fact' is no fact of these traces" in line and "capture.profiler_level" in line
    for name in ("profiler_level", "profiler level", "ranks"):
        assert run("compare", "t.pftrace", "t.pftrace", "--under-test", name, cwd=folder).returncode == 0
