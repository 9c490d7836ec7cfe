"""A short campaign, the machinery itself, and one test for each kind of thing that fuzzing found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from converter.check import check
from converter.convert import convert
from converter.readers.exact_time import OK, read_ns, text_to_ns
from converter.readers.kernel_csv import read_kernel_rows
from converter.readers.trace_json import read_trace_json
from schemas.tally import Tally
from schemas.timeline import StringPool, Timeline
from tests.fuzz.campaign import random_of, run_inputs, target_of
from tests.fuzz.conversions import run_conversions
from tests.fuzz.targets import TARGETS, Target, expected_ns

HEADER = "Name,Device_id,Stream ID,Task ID,Start Time(us),Duration(us)\n"


def test_a_short_campaign_over_all_readers(tmp_path: Path) -> None:
    counts = run_inputs(seed=20, first=0, count=3000, folder=tmp_path)
    assert counts.total == 3000
    assert not counts.findings, counts.findings[0]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_every_target_reads_and_refuses(target: Target, tmp_path: Path) -> None:
    counts = run_inputs(
        seed=21, first=0, count=30 if target.name == "sqlite" else 60, folder=tmp_path, only=target.name
    )
    assert not counts.findings, counts.findings[0]
    assert counts.by[target.name, "read"] > 0


@pytest.mark.slow
def test_whole_conversions(tmp_path: Path) -> None:
    counts = run_conversions(seed=22, first=0, count=40, folder=tmp_path)
    assert not counts.findings, counts.findings[0]
    assert sum(n for (_, became), n in counts.by.items() if became == "read") >= 20


def test_an_input_is_always_the_same_bytes() -> None:
    made = []
    for _ in range(2):
        rng = random_of(1, 77)
        target = target_of(rng, TARGETS)
        made.append((target.name, target.make(rng)))
    assert made[0] == made[1]


def test_findings_are_found(tmp_path: Path) -> None:
    """A reader that breaks is counted: else the counts of a campaign would mean nothing."""
    from tests.fuzz import campaign

    def broken(data: bytes, path: Path) -> bool:
        raise KeyError("x")

    counts = campaign.Counts()
    became = campaign._one(Target("broken", 1, lambda rng: b"", broken), b"", tmp_path, counts, "here")
    assert became == "untyped" and "KeyError" in counts.findings[0].what


# ---- what was found -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [32, 33, 40, 48, 56, 62])
@pytest.mark.parametrize("below", ["4074294967295", "5", "50000000001", "499999999999999", "999999999999999"])
def test_rounding_where_32_bits_of_a_time_are_all_ones(power: int, below: str) -> None:
    """pyarrow's decimal division is off by one or two there: once in 4.3 s of nanoseconds."""
    cells = []
    for ns in range(2**power - 3, 2**power + 3):
        text = f"{ns:04d}"
        cells += [f"{text[:-3]}.{text[-3:]}{below}", f"-{text[:-3]}.{text[-3:]}{below}"]
    ns, status = read_ns(cells)
    assert list(zip(ns.tolist(), status.tolist(), strict=True)) == [expected_ns(cell) for cell in cells]
    assert [text_to_ns(cell) for cell in cells] == [expected_ns(cell) for cell in cells]


def _kernel_rows(path: Path, data: bytes) -> tuple[Any, Tally]:
    path.write_bytes(data)
    tally = Tally()
    return read_kernel_rows([path], StringPool(), tally, lambda *_: None), tally


def test_bytes_that_are_not_utf8_in_a_row_of_another_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow dropped the exception of its own row handler and printed a traceback."""
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    rows, tally = _kernel_rows(
        tmp_path / "k.csv", HEADER.encode() + b"k\xc4\xff,0,1,2,1736408883704643.212\nk,0,1,2,5.5,1\n"
    )
    assert not dropped
    assert len(rows.ts) + sum(tally.dropped.values()) == tally.read == 2


@pytest.mark.parametrize("device", ["0", "4294967296", "999999999999999999"])
@pytest.mark.parametrize("stream", ["2147483648", "999999999999999999", "-7"])
def test_ids_of_any_size(tmp_path: Path, device: str, stream: str) -> None:
    rows = [f"k,{device},{stream},1,1736408883704643.212,1", "k,0,0,1,1736408883704650.212,1"]
    (tmp_path / "kernel_details.csv").write_text(HEADER + "\n".join(rows) + "\n")
    summary = convert([str(tmp_path / "kernel_details.csv")], str(tmp_path / "t.pftrace"))
    assert summary.as_dict()["ranks"][0]["slices"]["written"] == 2  # type: ignore[index]


def _trace(path: Path, *events: dict[str, Any], **header: Any) -> Timeline:
    path.write_text(json.dumps({**header, "traceEvents": list(events)}))
    timeline = Timeline(0, "t")
    read_trace_json([path], timeline)
    return timeline


@pytest.mark.parametrize("args", [2**70, 6.9e19, -(2**64), [2**70], "x", None, {"a": 2**70, "b": 6.9e19}])
def test_arguments_that_are_no_object_or_very_large(tmp_path: Path, args: object) -> None:
    event = {"ph": "X", "name": "k", "pid": 1, "tid": 1, "ts": "1736408883704643.212", "dur": 1, "args": args}
    timeline = _trace(tmp_path / "t.json", event, event)
    assert timeline.tally.slices.written == 2


@pytest.mark.parametrize("pid", [2**31, 2**40, -5, "x", None])
def test_processes_of_a_gpu_with_any_pid(tmp_path: Path, pid: object) -> None:
    event = {
        "ph": "X",
        "name": "k",
        "cat": "kernel",
        "pid": pid,
        "tid": 7,
        "ts": 5,
        "dur": 1,
        "args": {"stream": 7, "device": 0},
    }
    timeline = _trace(tmp_path / "t.json", event)
    assert timeline.tally.slices.written == 1


def test_a_base_time_with_control_characters(tmp_path: Path) -> None:
    event = {"ph": "X", "name": "k", "pid": 1, "tid": 1, "ts": 5, "dur": 1}
    timeline = _trace(tmp_path / "t.json", event, baseTimeNanoseconds="\x1b[31m1\u2028")
    assert any("baseTimeNanoseconds is no time" in w for w in timeline.warnings)
    assert all(w.isprintable() for w in timeline.warnings)


def test_check_against_an_input_without_slices(tmp_path: Path) -> None:
    event = {"ph": "C", "name": "c", "pid": 1, "ts": "1736408883704643.212", "args": {"x": 1}}
    (tmp_path / "trace_view.json").write_text(json.dumps([event]))
    target = str(tmp_path / "t.pftrace")
    convert([str(tmp_path / "trace_view.json")], target)
    assert check(target, [str(tmp_path / "trace_view.json")]).problems == []


def test_the_second_opinion_on_times() -> None:
    assert expected_ns("1736408883704643.2125") == (1736408883704643212, OK)
    assert expected_ns("0.0015") == (2, OK) and expected_ns("0.0005") == (0, OK)
