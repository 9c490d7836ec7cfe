"""`npu-perfetto gaps`, through the command line, on files whose figures are computed by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from converter.cli import app
from converter.commands import gaps as gaps_command
from converter.gaps import exact_ms
from schemas.errors import UsageError

EPOCH_US = 1_767_000_000_000_000

TEACHING = f"""stream,name,start_us,duration_us
A,a1,{EPOCH_US}.000,3000
A,a2,{EPOCH_US + 5000}.000,4000
B,b1,{EPOCH_US + 4000}.000,2000
B,b2,{EPOCH_US + 8000}.000,2000
"""

KERNELS = f"""Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)
1,4294967295,1,2,a,MatMulV3,dynamic,AI_CORE,{EPOCH_US}.000\t,10.001,0
1,4294967295,2,2,b,MatMulV3,dynamic,AI_CORE,{EPOCH_US + 20}.000\t,N/A,1
1,4294967295,3,3,c,MatMulV3,dynamic,AI_CORE,{EPOCH_US + 30}.000\t,5,12.5
"""

TASK_TIME = f"""Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)
0,N/A,PROFILING_ENABLE,49,3,0.020,{EPOCH_US - 900}.000\t,{EPOCH_US - 899}.000\t
0,x,AI_VECTOR_CORE,46,0,4.600,{EPOCH_US}.000\t,{EPOCH_US + 4}.601\t
0,y,MIX_AIC,46,1,2.000,{EPOCH_US + 10}.000\t,{EPOCH_US + 12}.000\t
"""


@pytest.fixture(scope="module")
def run():
    if not any(c.name == "gaps" for c in app.registered_commands):
        app.command("gaps")(gaps_command.command)
    runner = CliRunner()
    return lambda *args: runner.invoke(app, ["gaps", *map(str, args)])


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def writer(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    return writer


def rows_of(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_teaching_example(run, write):
    (row,) = rows_of(run(write("plain.csv", TEACHING), "--format", "json"))
    assert row == {
        "file": "plain.csv",
        "rank": None,
        "window_ts": EPOCH_US * 1000,
        "wall_ns": 10_000_000,
        "duration_sum_ns": 11_000_000,
        "duration_wait_sum_ns": None,  # the file has no waits: not known, not zero
        "busy_union_ns": 9_000_000,
        "gap_ns": 1_000_000,
        "gap_ratio": 0.1,
        "kernel_count": 4,
    }


def test_the_shipped_teaching_example(run):
    (row,) = rows_of(run(Path(__file__).parents[2] / "samples" / "gap_teaching.csv", "--format", "json"))
    keys = ("wall_ns", "duration_sum_ns", "busy_union_ns", "gap_ns")
    assert [row[key] for key in keys] == [10_000_000, 11_000_000, 9_000_000, 1_000_000]


def test_table(run, write):
    result = run(write("plain.csv", TEACHING), write("rank3/kernel_details.csv", KERNELS))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "kernels  wall ms  duration ms  + waits ms  union ms  gap ms  gap %",
        "plain.csv",
        "      4   10.000       11.000           -     9.000   1.000  10.00",
        "rank3/kernel_details.csv",
        "      2    0.035        0.015       0.028     0.015   0.020  57.14",
        "",
        "duration counts overlap twice; + waits adds recorded waits, which overlap too.",
        "A gap is time without a recorded task: not idle hardware, not recoverable time.",
        "- under + waits: no wait is recorded.",
    ]


def test_kernel_rows_and_what_is_left_out(run, write):
    result = run(write("rank3/kernel_details.csv", KERNELS), "--format", "json")
    (row,) = rows_of(result)
    assert row["rank"] == 3 and row["kernel_count"] == 2
    assert (row["wall_ns"], row["busy_union_ns"], row["duration_wait_sum_ns"]) == (35_000, 15_001, 15_001 + 12_500)
    assert "1 of 3 rows left out: 1 not a number" in result.stderr


def test_task_time_counts_tasks_only(run, write):
    result = run(write("task_time_1.csv", TASK_TIME), "--format", "json")
    (row,) = rows_of(result)
    assert (row["window_ts"], row["wall_ns"], row["busy_union_ns"]) == (EPOCH_US * 1000, 12_000, 6_601)
    assert "1 of 3 rows are no recorded tasks" in result.stderr


def test_window_clips(run, write):
    name = write("plain.csv", TEACHING)
    for window in ("+1ms:+9ms", f"{EPOCH_US + 1000}us:{EPOCH_US + 9000}.000us", f"{EPOCH_US}000:+9ms"):
        (row,) = rows_of(run(name, "--format", "json", "--window", window))
        first = 1_000_000 if window != f"{EPOCH_US}000:+9ms" else 0
        assert row["wall_ns"] == 9_000_000 - first
        assert row["duration_sum_ns"] == 10_000_000 - first
        assert row["gap_ns"] == 1_000_000


def test_tasks_of_no_length_on_the_edges_of_a_window(run, write):
    """A window is [start, end): the same count as in a trace that is cut to it."""
    name = write(
        "edges.csv",
        "start_us,duration_us\n" + "".join(f"{EPOCH_US + t},{d}\n" for t, d in ((0, 9), (2, 0), (5, 0), (9, 0))),
    )
    assert rows_of(run(name, "--format", "json"))[0]["kernel_count"] == 4
    assert rows_of(run(name, "--format", "json", "--window", "+2us:+5us"))[0]["kernel_count"] == 2


def test_window_beyond_the_recorded_tasks_is_said(run, write):
    name = write("plain.csv", TEACHING)
    result = run(name, "--format", "json", "--window", "+5ms:+20ms")
    assert rows_of(result)[0]["gap_ns"] == 10_000_000
    assert "reaches beyond the recorded tasks" in result.stderr
    result = run(name, "--format", "json", "--window", "+50ms:+60ms")
    assert rows_of(result)[0]["gap_ratio"] == 1.0 and rows_of(result)[0]["kernel_count"] == 0
    assert "holds no recorded task" in result.stderr
    assert run(name, "-q", "--window", "+50ms:+60ms").stderr == ""


def test_one_bad_file_of_two(run, write):
    result = run(
        write("bad.csv", "Name,Start Time(us),Elapsed\nx,1,2\n"), write("plain.csv", TEACHING), "--format", "json"
    )
    assert result.exit_code == 1
    assert [row["file"] for row in json.loads(result.stdout)] == ["plain.csv"]
    assert "bad.csv" in result.stderr and "Duration" in result.stderr
    assert run(write("empty.csv", "start_us,duration_us\n")).exit_code == 1


def test_no_length(run, write):
    name = write("one.csv", f"start_us,duration_us\n{EPOCH_US},0\n")
    assert rows_of(run(name, "--format", "json"))[0]["gap_ratio"] is None
    assert run(name).stdout.splitlines()[2].endswith("-")


@pytest.mark.parametrize(
    "args", [["absent.csv"], ["."], ["plain.csv", "./plain.csv"], ["plain.csv", "--window", "9:1"]]
)
def test_usage(run, write, args):
    write("plain.csv", TEACHING)
    result = run(*args)
    assert isinstance(result.exception, UsageError) and not result.stdout


def test_a_fifo_is_not_waited_for(run, write, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    result = run("pipe.csv", write("plain.csv", TEACHING))
    assert result.exit_code == 1 and "FIFO" in result.stderr and "plain.csv" in result.stdout


def test_names_are_shown_safely(run, write):
    name = write("a\x1b[31m.csv", TEACHING)
    assert "\x1b" not in run(name).stdout
    assert rows_of(run(name, "--format", "json"))[0]["file"] == name


def test_exact_milliseconds():
    assert [exact_ms(ns) for ns in (0, 499, 500, 1_500, 2_500, 999_500, 2085289999999999)] == [
        "0.000",
        "0.000",
        "0.000",
        "0.002",
        "0.002",
        "1.000",
        "2085290000.000",
    ]


def test_real_captures_agree_with_their_rows(run, shared):
    """Independent of our readers: the csv module and integers of ns."""
    import csv
    from decimal import Decimal

    for path in sorted((shared / "captures").glob("*/*/ASCEND_PROFILER_OUTPUT/kernel_details.csv")):
        with open(path, newline="") as file:
            rows = [
                (int(Decimal(r["Start Time(us)"].strip()) * 1000), round(Decimal(r["Duration(us)"]) * 1000))
                for r in csv.DictReader(file)
            ]
        busy, reach = 0, 0
        for ts, dur in sorted(rows):
            busy += max(0, ts + dur - max(ts, reach))
            reach = max(reach, ts + dur)
        (row,) = rows_of(run(path, "--format", "json"))
        assert row["window_ts"] == min(ts for ts, _ in rows)
        assert row["wall_ns"] == reach - row["window_ts"]
        assert row["busy_union_ns"] == busy and row["gap_ns"] == row["wall_ns"] - busy
        assert row["duration_sum_ns"] == sum(dur for _, dur in rows)
        assert row["kernel_count"] == len(rows)
