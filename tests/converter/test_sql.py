"""`npu-perfetto sql` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from converter.sql import run, split_arguments
from schemas.errors import UsageError
from tests.trace_builder import TraceBuilder


def sql(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "converter", "sql", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("sql")
    out = []
    for name, dur in (("a.pftrace", 5), ("b.pftrace", 7)):
        t = TraceBuilder()
        t.slice(t.track("t"), 1_736_408_883_704_643_212, dur, "k\x1b[31m", "x")
        out.append(t.write(folder / name))
    return out[0], out[1]


def test_json_of_one_trace_is_exact_and_alone_on_stdout(traces: tuple[str, str]) -> None:
    done = sql(traces[0], "SELECT ts, dur, dur, name, NULL AS n FROM slice", "--format", "json")
    assert json.loads(done.stdout) == [
        {"ts": 1736408883704643212, "dur": 5, "dur_2": 5, "name": "k\x1b[31m", "n": None}
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_several_traces_have_a_first_column(traces: tuple[str, str]) -> None:
    done = sql(*traces, "SELECT dur, 'x' AS trace FROM slice", "--format", "csv")
    assert done.stdout == f"trace,dur,trace_2\n{traces[0]},5,x\n{traces[1]},7,x\n"


def test_table_escapes_control_characters(traces: tuple[str, str]) -> None:
    done = sql(traces[0], "SELECT name FROM slice")
    assert done.stdout == "name\n---------\nk\\x1b[31m\n"


def test_query_from_a_file_or_stdin(traces: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("CREATE PERFETTO TABLE d AS SELECT dur FROM slice;\nSELECT sum(dur) AS total FROM d;\n")
    assert sql(*traces, "-f", str(file), "--format", "csv").stdout.splitlines()[1:] == [
        f"{traces[0]},5",
        f"{traces[1]},7",
    ]
    assert sql(traces[0], "-f", "-", "--format", "csv", stdin="SELECT 1 AS a").stdout == "a\n1\n"


def test_an_error_is_the_engines_message(traces: tuple[str, str]) -> None:
    done = sql(traces[0], "SELECT x FROM nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no such table: nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_bad_trace_does_not_stop_the_others(traces: tuple[str, str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.pftrace"
    bad.write_text("this is a text\n")
    answer = run([traces[0], str(bad), traces[1]], "SELECT dur FROM slice")
    assert [row[1] for row in answer.rows] == [5, 7]
    assert [str(bad) in str(failure) for failure in answer.failures] == [True]


@pytest.mark.parametrize(
    ("arguments", "file", "what"),
    [
        (["x.pftrace"], None, "a query is missing"),
        (["absent.pftrace", "SELECT 1"], None, "absent.pftrace: no such file"),
        ([__file__, " "], None, "the query is empty"),
        ([__file__], "absent.sql", "absent.sql: No such file"),
    ],
)
def test_usage(arguments: list[str], file: str | None, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        split_arguments(arguments, file)


def test_a_missing_file_leaves_with_2(tmp_path: Path) -> None:
    done = sql(str(tmp_path / "absent.pftrace"), "SELECT 1")
    assert done.returncode == 2
    assert "absent.pftrace" in done.stderr


def test_side_by_side_in_the_order_of_the_traces(traces: tuple[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "c.pftrace"
    broken.write_text("no trace")
    alone = sql(*traces, str(broken), "SELECT dur FROM slice", "--format", "csv")
    together = sql(*traces, str(broken), "SELECT dur FROM slice", "--format", "csv", "--jobs", "2")
    assert together.returncode == alone.returncode == 1
    assert together.stdout == alone.stdout and together.stderr == alone.stderr
    folder = Path(traces[0]).parent
    assert sql(f"{folder}/[ab].pftrace", "SELECT dur FROM slice", "--format", "csv").stdout == alone.stdout
