"""`npu-perfetto record` against a server that behaves as SGLang's sources say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from converter.readers.dspark import read_records
from tests.converter.stand_in_server import StandIn
from tests.converter.test_command_line import environment, run


def record(server: StandIn, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run("record", server.url, "-o", "out", "--seconds", "0.3", "--timeout", "5", *more, cwd=folder)


def test_the_window_holds_no_read_and_the_file_only_its_records(tmp_path: Path) -> None:
    with StandIn() as server:
        done = record(server, tmp_path, "--profile-dir", "/data/run1")
        assert done.returncode == 0 and not done.stdout, done.stderr
        assert server.reads_inside == 0
        paths = [path for path, _ in server.calls]
    assert paths == ["/server_info", "/set_internal_state", "/start_profile", "/stop_profile", "/server_info"]
    body = server.calls[2][1]
    assert body["output_dir"] == "/data/run1" and body["activities"] == ["CPU", "GPU"] and "num_steps" not in body
    log = json.loads((tmp_path / "out/record.json").read_text())
    assert [call["path"] for call in log["calls"]] == paths
    begin, end = log["window_ns"]
    assert 0.3e9 <= end - begin < 5e9
    assert not [c for c in log["calls"] if c["path"] == "/server_info" and begin <= c["begin_ns"] < end]
    found = read_records(str(tmp_path / "out/server_info.json"))
    assert len(found.ranks[0]) == log["records"] > 5
    # the records of before were cleared: about 0.3 s of them are left, at 10 ms a step
    assert log["records"] < log["records_before"] + 200
    assert "--dspark out/server_info.json" in done.stderr


@pytest.mark.parametrize("blocking", [False, True])
def test_steps_end_the_profile_by_themselves(tmp_path: Path, blocking: bool) -> None:
    with StandIn(blocking=blocking) as server:
        done = record(server, tmp_path, "--steps", "5", "--no-annotations", "--no-shapes", "--with-stack")
        assert done.returncode == 0, done.stderr
        assert server.reads_inside == 0
        body = next(body for path, body in server.calls if path == "/start_profile")
    assert (body["num_steps"], body["detailed_annotations"], body["record_shapes"], body["with_stack"]) == (
        5, False, False, True,
    )  # fmt: skip
    assert json.loads((tmp_path / "out/record.json").read_text())["stopped_by"] == "steps"


def test_too_few_steps_are_said(tmp_path: Path) -> None:
    with StandIn(step_s=30.0) as server:
        done = record(server, tmp_path, "--steps", "50")
    assert done.returncode == 0
    assert "50 steps had not passed" in done.stderr and "was there load" in done.stderr


def test_an_older_server_and_one_that_does_not_record(tmp_path: Path) -> None:
    with StandIn(old=True, recording=False) as server:
        done = record(server, tmp_path)
        assert done.returncode == 0 and "SGLANG_DSPARK_DEBUG_DUMP" in done.stderr
        assert "/set_internal_state" not in [path for path, _ in server.calls]


@pytest.mark.parametrize(
    ("path", "status", "text", "words"),
    [
        ("/server_info", 401, "Unauthorized", ["401", "NPU_PERFETTO_API_KEY"]),
        ("/server_info", 200, "<html>", ["no JSON"]),
        ("/server_info", 200, '{"a": 1}', ["internal_states"]),
        ("/server_info", 500, "boom\x1b[31m", ["/server_info: 500 boom\\x1b"]),
        ("/set_internal_state", 404, "Not Found", ["/set_internal_state: 404"]),
        ("/start_profile", 400, "Profiling is already in progress.", ["someone else", "/start_profile: 400"]),
        ("/stop_profile", 500, "export failed", ["/stop_profile: 500 export failed"]),
    ],
)
def test_every_refusal_is_one_line(tmp_path: Path, path: str, status: int, text: str, words: list[str]) -> None:
    with StandIn() as server:
        server.faults[path] = [status, text, -1]
        done = record(server, tmp_path)
        asked = [path for path, _ in server.calls]
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert not list((tmp_path / "out").iterdir())
    if path == "/start_profile":
        assert "/stop_profile" not in asked  # it is not ours to stop


def test_a_short_failure_is_tried_again_but_a_start_is_not(tmp_path: Path) -> None:
    with StandIn() as server:
        server.faults["/server_info"] = [503, "loading", 2]
        assert record(server, tmp_path).returncode == 0
        assert [path for path, _ in server.calls].count("/server_info") == 4
        server.faults["/start_profile"] = [503, "busy", -1]
        server.calls.clear()
        done = run("record", server.url, "-o", "out2", "--seconds", "0.1", cwd=tmp_path)
        assert done.returncode == 1 and [path for path, _ in server.calls].count("/start_profile") == 1


def test_no_server_is_said_soon(tmp_path: Path) -> None:
    began = time.monotonic()
    done = run("record", "http://127.0.0.1:9", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1 and "can't be reached" in done.stderr and time.monotonic() - began < 10


def test_wrong_arguments(tmp_path: Path) -> None:
    assert run("record", "ftp://host", "-o", "out", cwd=tmp_path).returncode == 2
    assert run("record", "127.0.0.1:30000", "-o", "out", cwd=tmp_path).returncode == 2
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "record.json").write_text("mine")
    done = run("record", "http://127.0.0.1:9", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2 and (tmp_path / "out" / "record.json").read_text() == "mine"


def test_an_interrupt_stops_the_profile(tmp_path: Path) -> None:
    with StandIn() as server:
        argv = [sys.executable, "-m", "converter", "record", server.url, "-o", "out", "--seconds", "60"]
        process = subprocess.Popen(argv, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
        while server.profile_until is None and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=20)
        assert process.returncode == 130 and "Traceback" not in text
        assert server.profile_until is None and server.reads_inside == 0
        assert not list((tmp_path / "out").iterdir())


def test_a_password_in_the_url_is_not_kept(tmp_path: Path) -> None:
    with StandIn() as server:
        url = server.url.replace("http://", "http://me:secret@")
        assert run("record", url, "-o", "out", "--seconds", "0.1", cwd=tmp_path).returncode == 0
    assert "secret" not in (tmp_path / "out/record.json").read_text()
