"""Small tables of msprof against rows computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from converter.convert import read
from converter.file_kinds import kind_by_name
from converter.find import find_captures
from converter.options import Options
from schemas.timeline import Timeline

OUTPUT = "PROF_000001_20260101000000000_AB/mindstudio_profiler_output"
OP_SUMMARY = (
    "Device_id,Op Name,Task Type,Task Start Time(us),Task Duration(us)\n0,Add,AI_CORE,1767000000000000.001\t,2.000\n"
)


def timeline_of(folder: Path, **files: str) -> Timeline:
    output = folder / OUTPUT
    output.mkdir(parents=True)
    for name, text in {"op_summary": OP_SUMMARY, **files}.items():
        (output / f"{name}_20260101000005.csv").write_text(text)
    (capture,) = find_captures([str(folder)])
    return read(capture, Options(annotate=())).timeline


def slices(t: Timeline, group: str) -> list[tuple[Any, ...]]:
    out = []
    for batch in t.slices:
        for track, ts, dur, name in zip(
            *(x.tolist() for x in (batch.track, batch.ts, batch.dur, batch.name)), strict=True
        ):
            if t.tracks[t.tracks[track].parent].name == group:
                out.append((t.tracks[track].name, t.strings[name], ts - 1_767_000_000_000_000_000, dur))
    return sorted(out)


def test_names() -> None:
    assert [kind_by_name(f"{n}_20260101000005.csv") for n in ("step_trace", "msprof_tx", "communication_statistic")] == [
        "iterations", "marks", "communication_statistic",
    ]  # fmt: skip
    assert kind_by_name("step_trace_time.csv") == "step_trace"


def test_iterations(tmp_path: Path) -> None:
    header = (
        "Device_id,Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),FP to BP Time(us),"
        "Iteration Refresh(us),Data Aug Bound(us),Model ID,Reduce Start(us),Reduce Duration(us),"
        "Reduce Start(us),Reduce Duration(us)\n"
    )
    t = timeline_of(
        tmp_path,
        step_trace=header
        + "0,1,1767000000000001.001\t,1767000000000003.5\t,1767000000000004.25\t,4.001,2.499,0.75,N/A,5,"
        "1767000000000002\t,0.125,1767000000000002.5\t,0.25\n"
        "1,1,N/A,N/A,1767000000000009\t,2,N/A,N/A,N/A,5\n"
        "1,2,N/A,N/A,N/A,N/A,N/A,N/A,N/A,5\n",
    )
    assert slices(t, "Step trace") == [
        ("NPU 0", "FP_BP Time 1", 1_001, 2_499),
        ("NPU 0", "Iteration 1", 249, 4_001),
        ("NPU 0", "Reduce 1", 2_000, 125),
        ("NPU 0", "Reduce 1", 2_500, 250),
        ("NPU 1", "Iteration 1", 7_000, 2_000),
    ]
    assert t.tally.slices.dropped == {"not a number": 1}
    assert t.tally.slices.first["not a number"] == "step_trace_20260101000005.csv, line 4"
    assert len(t.tasks) == 1 and t.tally.slices.written == t.slice_count


@pytest.mark.parametrize("with_trace", [False, True])
def test_marks_are_read_where_no_trace_holds_them(tmp_path: Path, with_trace: bool) -> None:
    if with_trace:
        (tmp_path / OUTPUT).mkdir(parents=True)
        (tmp_path / OUTPUT / "msprof_20260101000004.json").write_text("[]")
        (tmp_path / OUTPUT).rename(tmp_path / "kept")
    header = (
        "Device_id,pid,tid,category,event_type,payload_type,payload_value,Start_time(us),End_time(us),message_type,"
        "message,domain,Device Start_time(us),Device End_time(us)\n"
    )
    text = header + (
        "1,41,42,N/A,start/end,N/A,N/A,1767000000000001\t,1767000000000002.5\t,0,dispatch_a,default,"
        "1767000000000003\t,1767000000000004\t\n"
        "1,41,42,N/A,marker,N/A,N/A,1767000000000005\t,1767000000000005\t,0,a mark,default,N/A,N/A\n"
    )
    if with_trace:
        (tmp_path / OUTPUT).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "kept").rename(tmp_path / OUTPUT)
        for name, body in (("op_summary", OP_SUMMARY), ("msprof_tx", text)):
            (tmp_path / OUTPUT / f"{name}_20260101000005.csv").write_text(body)
        (capture,) = find_captures([str(tmp_path)])
        assert slices(read(capture, Options(annotate=())).timeline, "MsTx") == []
        return
    assert slices(timeline_of(tmp_path, msprof_tx=text), "MsTx") == [
        ("NPU 1", "dispatch_a", 3_000, 1_000),
        ("Thread 42", "a mark", 5_000, 0),
        ("Thread 42", "dispatch_a", 1_000, 1_500),
    ]


def test_sums_per_operator_are_facts(tmp_path: Path) -> None:
    t = timeline_of(
        tmp_path,
        communication_statistic="Device_id,OP Type,Count,Total Time(us),Ratio(%)\n0,hcom_allReduce_,4,99.25,N/A\n0\n",
    )
    assert t.facts["communication_statistic.NPU 0.hcom_allReduce_"] == "Count 4, Total Time(us) 99.25, Ratio(%) N/A"
