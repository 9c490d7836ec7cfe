"""The command as a user runs it: what it leaves behind, what it says, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from converter.cli import COMMANDS

EPOCH_US = 1_767_000_000_000_000
HEADER = "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"


def kernel_csv(path: Path, rows: int = 3, start_us: int = EPOCH_US) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"1,0,4294967295,{i},{i % 4},k{i % 7},Add,dynamic,AI_CORE,{start_us + 20 * i}.{i % 1000:03d}\t,5.500,0,40"
        for i in range(rows)
    ]
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def run(*args: str | Path, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "converter", *map(str, args)]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, env=environment(), **options)  # type: ignore[call-overload,no-any-return]


def environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": root, "NO_COLOR": "1"}


def test_without_a_target_the_trace_is_named_after_the_input(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "run0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    done = run("convert", "run0_ascend_pt", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run0_ascend_pt", "run0_ascend_pt.pftrace"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["kernel_details.csv"]),
        ("a,b\n1,2\n", ["kernel_details.csv", "Start Time(us)"]),
        (HEADER + "\n1,0,1,1,1,k,Add,dynamic,AI_CORE,soon,5,0,40\n", ["kernel_details.csv"]),
    ],
)
def test_a_wrong_input_gives_one_line_and_no_file(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "kernel_details.csv").write_text(text)
    done = run("convert", "kernel_details.csv", "-o", "out.pftrace", cwd=tmp_path)
    assert done.returncode == 1 and not done.stdout
    assert len(done.stderr.strip().splitlines()) == 1
    assert all(w in done.stderr for w in words)
    assert [p.name for p in tmp_path.iterdir()] == ["kernel_details.csv"]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["nowhere"], "nowhere"),
        (["k.csv", "-o", "k.csv"], "k.csv"),
        (["k.csv", "k.csv"], "k.csv"),
        (["k.csv", "-o", "no/out.pftrace"], "no"),
        (["k.csv", "-o", "a", "--out-dir", "b"], "--out-dir"),
        (["k.csv", "--annotate", "magic"], "magic"),
        (["k.csv", "--window", "20:10"], "--window"),
        (["k.csv", "--clock-tolerance", "fast"], "--clock-tolerance"),
        (["k.csv", "--fact", "novalue"], "--fact"),
        (["k.csv", "-o", "/dev/null"], "/dev/null"),
        (["k.csv", "--jobs", "0"], "--jobs"),
    ],
)
def test_usage_errors_leave_with_2_and_read_nothing(tmp_path: Path, args: list[str], word: str) -> None:
    kernel_csv(tmp_path / "k.csv")
    done = run("convert", *args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert word in done.stderr and "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["k.csv"]


def test_one_failing_input_does_not_stop_the_others(tmp_path: Path) -> None:
    for name in ("a", "c"):
        kernel_csv(tmp_path / f"kernel_details_{name}.csv")
    (tmp_path / "kernel_details_b.csv").write_text("")
    names = [f"kernel_details_{n}.csv" for n in "abc"]
    done = run("convert", *names, "--out-dir", "out", "--summary", "-", cwd=tmp_path)
    assert done.returncode == 1
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "kernel_details_a.pftrace",
        "kernel_details_c.pftrace",
    ]
    assert [json.loads(line)["output"] for line in done.stdout.splitlines()] == [
        "out/kernel_details_a.pftrace",
        "out/kernel_details_c.pftrace",
    ]


def test_losses_are_counted_and_strict_leaves_with_3(tmp_path: Path) -> None:
    path = kernel_csv(tmp_path / "kernel_details.csv")
    path.write_text(path.read_text().replace(f"{EPOCH_US + 20}.001", "N/A"))
    for strict, status in ([], 0), (["--strict"], 3):
        done = run("convert", path.name, "-o", "o.pftrace", "--summary", "s.json", *strict, cwd=tmp_path)
        assert done.returncode == status, done.stderr
        slices = json.loads((tmp_path / "s.json").read_text())["ranks"][0]["slices"]
        assert slices["read"] == 3 and slices["written"] == 2 and slices["dropped"] == {"not a number": 1}
        assert "line 3" in done.stderr


def test_the_window_cuts_and_counts(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv", rows=10)
    done = run("convert", "k.csv", "-o", "o.pftrace", "--window", "+20us:+61us", "--summary", "-", cwd=tmp_path)
    rank = json.loads(done.stdout)["ranks"][0]
    # tasks at 0, 20, 40, 60, ... us: those at 20, 40 and 60 share time with the window, the first has ended
    assert rank["slices"]["written"] == 3 and rank["slices"]["dropped"] == {"outside window": 7}
    assert rank["window_ns"] == [EPOCH_US * 1000 + 20_000, EPOCH_US * 1000 + 61_000]


def test_an_old_trace_stays_when_the_conversion_fails(tmp_path: Path) -> None:
    (tmp_path / "kernel_details.csv").write_text("")
    (tmp_path / "out.pftrace").write_text("old")
    assert run("convert", "kernel_details.csv", "-o", "out.pftrace", cwd=tmp_path).returncode == 1
    assert (tmp_path / "out.pftrace").read_text() == "old"


def test_stdout_as_target_gives_the_same_bytes(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv")
    run("convert", "k.csv", "-o", "o.pftrace", cwd=tmp_path)
    argv = [sys.executable, "-m", "converter", "convert", "k.csv", "-o", "-"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=True, env=environment())
    assert done.stdout == (tmp_path / "o.pftrace").read_bytes()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals, status: int) -> None:
    kernel_csv(tmp_path / "k.csv", rows=300_000)
    argv = [sys.executable, "-m", "converter", "convert", "k.csv", "-o", "out.pftrace"]
    for wait in (0.3, None):
        process = subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment())
        if wait:
            time.sleep(wait)
        else:  # as soon as something is being written
            while process.poll() is None and len(list(tmp_path.iterdir())) == 1:
                time.sleep(0.002)
        process.send_signal(number)
        _, text = process.communicate(timeout=60)
        assert "Traceback" not in text
        if process.returncode != 0:  # it may have been done already
            assert process.returncode == status
            assert [p.name for p in tmp_path.iterdir()] == ["k.csv"]
        (tmp_path / "out.pftrace").unlink(missing_ok=True)


def test_sigkill_leaves_the_whole_trace_or_nothing_under_the_target(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv", rows=100_000)
    run("convert", "k.csv", "-o", "whole.pftrace", cwd=tmp_path)
    whole = (tmp_path / "whole.pftrace").read_bytes()
    argv = [sys.executable, "-m", "converter", "convert", "k.csv", "-o", "out.pftrace"]
    for wait in (0.2, 0.5, 0.8, 1.1):
        process = subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.DEVNULL, env=environment())
        time.sleep(wait)
        process.kill()
        process.wait()
        if (tmp_path / "out.pftrace").exists():  # killed between the rename and its exit, or not at all
            assert (tmp_path / "out.pftrace").read_bytes() == whole
        (tmp_path / "out.pftrace").unlink(missing_ok=True)


def test_help_shows_every_command(tmp_path: Path) -> None:
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    for name in COMMANDS:
        assert name in done.stdout
    assert "--dspark" in run("convert", "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("name", ["", "convert", "check"])
def test_a_flag_has_no_type_in_the_help(tmp_path: Path, name: str) -> None:
    shown = run(*name.split(), "--help", cwd=tmp_path).stdout
    assert "--help" in shown and "<bool>" not in shown


def test_converting_does_not_import_pandas(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv")
    code = (
        "import sys; from converter.convert import convert; convert(['k.csv'], 'o.pftrace'); "
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=True)
