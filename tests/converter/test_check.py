"""`check` finds each way in which a trace can fail to hold what was written."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from converter.check import check
from schemas.errors import InputError
from tests.trace_builder import TraceBuilder

Tallies = list[dict[str, int]]


def tally(uuid: int, slices: list[tuple[int, int]]) -> dict[str, int]:
    """By hand: small times are their own remainders."""
    return {
        "uuid": uuid,
        "slices": len(slices),
        "duration_ns": sum(dur for _, dur in slices),
        "checksum": sum(ts * (dur + 1) for ts, dur in slices),
    }


def build(change: Callable[[Tallies, dict[str, Any]], None] = lambda t, f: None, **odd: Any) -> TraceBuilder:
    """Two streams, a thread, a counter and a flow, with the facts that a writer would store. `change` edits the facts;
    odd: overlap=True writes slices that do not nest, open=True one without an end, lost=True one on a lost track."""
    t = TraceBuilder()
    process = t.process("Rank 0", 100)
    npu = t.track("NPU 0", process)
    stream, other = t.track("Stream 1", npu), t.track("Stream 1", npu)
    threads = t.thread("main", 100, 101), t.thread("main", 100, 102)
    memory = t.counter("HBM", process)
    root = t.track("Rank 0 · DSpark")
    t.slice(stream, 100, 50, "k1", "npu.task", terminating_flow_ids=[1])
    t.slice(stream, 160, 40, "k2", "npu.task")
    t.slice(other, 120, 60, "k3", "npu.task")
    t.slice(threads[0], 10, 20, "launch", "cpu_op", flow_ids=[1])
    t.slice(threads[1], 10, 25, "launch", "cpu_op")
    for i in range(3):
        t.sample(memory, 100 + i, i)
    if odd.get("overlap"):
        t.slice(stream, 300, 100, "a", "npu.task", inside=lambda: t.slice(stream, 350, 100, "b", "npu.task"))
    if odd.get("open"):
        t.open_slice(other, 500, "open")
    if odd.get("lost"):
        t.slice(9999, 1, 1, "lost", "npu.task")
    overlapping = [(300, 100), (350, 100)] if odd.get("overlap") else []
    tallies: Tallies = [
        tally(stream, [(100, 50), (160, 40), *overlapping]),
        tally(other, [(120, 60)]),
        tally(threads[0], [(10, 20)]),
        tally(threads[1], [(10, 25)]),
        {"uuid": memory, "samples": 3},
        tally(root, [(100, 0)]),
    ]
    facts: dict[str, Any] = {"flows": 1}
    change(tallies, facts)
    t.instant(root, 100, "facts", "npu.facts", tallies=tallies, **facts)
    return t


def problems(t: TraceBuilder, tmp_path: Path) -> list[str]:
    return check(t.write(tmp_path / "x.pftrace")).problems


def test_a_whole_trace(tmp_path: Path) -> None:
    findings = check(build().write(tmp_path / "x.pftrace"))
    assert findings.problems == []
    assert findings.compared == (
        "5 slices + 1 of facts, 0 flows + 1 derived, 3 counter samples, on 6 tracks: all as the writer stored it; "
        "no import errors or losses"
    )


def test_overlapping_slices_are_found_although_stats_are_clean(tmp_path: Path) -> None:
    # Written: a 300..400 and b 350..450. Loaded: a 300..450 and b 350..400, the same count and sum.
    assert problems(build(overlap=True), tmp_path) == [
        "track 'Stream 1': 4 slices of 290 ns as written, but not at the same times (checksum): they overlap or moved"
    ]


def change_slices(tallies: Tallies, facts: dict[str, Any]) -> None:
    tallies[0]["slices"] += 1


def change_duration(tallies: Tallies, facts: dict[str, Any]) -> None:
    tallies[1]["duration_ns"] -= 1


def change_thread(tallies: Tallies, facts: dict[str, Any]) -> None:
    tallies[2]["duration_ns"] += 1


def change_samples(tallies: Tallies, facts: dict[str, Any]) -> None:
    tallies[4]["samples"] = 4


def change_flows(tallies: Tallies, facts: dict[str, Any]) -> None:
    facts["flows"] = 2


def lose_a_track(tallies: Tallies, facts: dict[str, Any]) -> None:
    tallies.append({"uuid": 77, "slices": 5, "duration_ns": 5, "checksum": 9})


def forget_a_track(tallies: Tallies, facts: dict[str, Any]) -> None:
    del tallies[1]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (change_slices, ["track 'Stream 1': 2 slices of 90 ns in the trace, 3 slices of 90 ns written"]),
        (change_duration, ["track 'Stream 1': 1 slice of 60 ns in the trace, 1 slice of 59 ns written"]),
        (
            change_thread,
            [
                "thread 'main': 1 slice of 20 ns (checksum 210): not as written",
                "1 slice of 21 ns (checksum 210) written, but on no track of the trace",
            ],
        ),
        (change_samples, ["track 'HBM': 3 samples in the trace, 4 samples written"]),
        (change_flows, ["flows: 1 in the trace, 2 written"]),
        (lose_a_track, ["5 slices of 5 ns (checksum 9) written, but on no track of the trace"]),
        (forget_a_track, ["track 'Stream 1': 1 slice of 60 ns in the trace, 0 slices of 0 ns written"]),
    ],
)
def test_differences(change: Callable[[Tallies, dict[str, Any]], None], want: list[str], tmp_path: Path) -> None:
    assert problems(build(change), tmp_path) == want


def test_a_trace_without_checksums_is_refused(tmp_path: Path) -> None:
    def forget_checksums(tallies: Tallies, facts: dict[str, Any]) -> None:
        for entry in tallies:
            entry.pop("checksum", None)

    with pytest.raises(InputError, match=r"made by an earlier version: .* no checksums .*; convert the capture again"):
        problems(build(forget_checksums), tmp_path)


def test_an_unclosed_slice(tmp_path: Path) -> None:
    assert "track 'Stream 1': 1 slice without an end" in problems(build(open=True), tmp_path)


def test_a_loss_that_stats_call_info(tmp_path: Path) -> None:
    t = build()
    broken = t._builder.add_packet()  # no sequence id: the event is dropped
    broken.timestamp, broken.track_event.track_uuid, broken.track_event.type = 5, 3, 1
    found = problems(t, tmp_path)
    assert any(line.startswith("import: track_event_tokenizer_errors = 1 (info)") for line in found), found


def test_a_trace_of_another_tool(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.slice(t.track("t"), 1, 1, "x", "y")
    with pytest.raises(InputError, match="not written by npu-perfetto"):
        check(t.write(tmp_path / "x.pftrace"))


def test_a_trace_that_was_cut(tmp_path: Path) -> None:
    data = build().bytes()
    for size in (0, 40, len(data) // 2, len(data) - 5):
        path = tmp_path / "x.pftrace"
        path.write_bytes(data[:size])
        with contextlib.suppress(InputError):
            assert check(str(path)).problems, size


def test_the_command(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "converter", "check", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    good, bad = build().write(tmp_path / "good.pftrace"), build(change_flows).write(tmp_path / "bad.pftrace")
    done = run(good)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{good}: 5 slices + 1 of facts")
    assert run(good, "-q").stdout == ""
    done = run(bad)
    assert (done.returncode, done.stdout) == (1, f"{bad}: flows: 1 in the trace, 2 written\n")
    assert run(str(tmp_path / "absent")).returncode == 2
    assert run(good, good).returncode == 2
    text = tmp_path / "text.pftrace"
    text.write_text("this is a text\n")
    done = run(str(text))
    assert (done.returncode, done.stdout) == (1, "")
    assert "text.pftrace" in done.stderr and done.stderr.count("\n") == 1
