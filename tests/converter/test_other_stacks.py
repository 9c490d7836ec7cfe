"""Captures of other tools: msprof with several devices, MindSpore, vllm-ascend, SGLang on CUDA."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converter.convert import convert, read
from converter.engine import open_trace
from converter.find import find_captures
from converter.options import Options
from samples.config import Config
from samples.exporters import us, write_capture
from samples.generate import Capture, simulate
from schemas.timeline import Kind, Role, Timeline

BASE = 1_767_000_000_000_000_000
HEADER = "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)\n"
#: device, stream, task id, name, start (ns after BASE), duration (ns). One name starts on both devices at one time.
TASKS = [
    (0, 2, 11, "Add", 1_000, 500), (1, 2, 21, "Add", 1_000, 700), (0, 2, 12, "Mul", 2_001, 499),
    (1, 2, 22, "Sub", 2_003, 300), (0, 3, 13, "Cast", 3_000, 0), (1, 4, 23, "Exp", 9_000, 1),
]  # fmt: skip


def timelines(path: Path, options: Options = Options(annotate=())) -> list[Timeline]:
    return [read(c, options).timeline for c in find_captures([str(path)])]


def row(task: tuple[Any, ...]) -> str:
    device, stream, number, name, start, dur = task
    return f"{device},4294967295,{number},{stream},{name},{name},AI_CORE,{us(BASE + start)}\t,{dur / 1000}\n"


def events(tasks: list[tuple[Any, ...]], with_metadata: bool = True) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for device in (0, 1):
        pid = (4100 << 10) | (13 << 5) | device
        if with_metadata:
            out += [
                {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "Ascend Hardware"}},
                {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": f"NPU {device}"}},
                {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": 13}},
            ]
        for d, stream, number, name, start, dur in tasks:
            if d == device:
                args = {"Model Id": 4294967295, "Task Type": "AI_CORE", "Physic Stream Id": stream, "Task Id": number}
                out.append(
                    {"ph": "X", "name": name, "pid": pid, "tid": stream, "ts": us(BASE + start), "dur": dur / 1000,
                     "args": args}
                )  # fmt: skip
    return out


def check_devices(t: Timeline) -> None:
    """Every task on the lane of its own device, as written."""
    have = []
    for i in range(len(t.tasks)):
        lane = t.tracks[int(t.tasks.track[i])]
        group = t.tracks[lane.parent]
        assert lane.role is Role.STREAM and group.name == f"NPU {lane.device}" and lane.device == t.tasks.device_id[i]
        name = t.strings[int(t.tasks.name[i])]
        have.append(
            (lane.device, lane.stream, int(t.tasks.task_id[i]), name, int(t.tasks.ts[i]) - BASE, int(t.tasks.dur[i]))
        )
    assert sorted(have) == sorted(TASKS)
    assert len([1 for track in t.tracks if track.kind is Kind.PROCESS]) == 1


@pytest.mark.parametrize("with_trace", [False, True])
def test_two_devices_in_one_prof_are_two_npus_of_one_rank(tmp_path: Path, with_trace: bool) -> None:
    output = tmp_path / "PROF_000001_20260101000000000_AB" / "mindstudio_profiler_output"
    output.mkdir(parents=True)
    for part in (0, 1):  # sliced files repeat their header, and slices of a trace their metadata
        mine = TASKS[part::2]
        word = f"slice_{part}_" if part else ""
        (output / f"op_summary_{word}20260101000005.csv").write_text(HEADER + "".join(map(row, mine)))
        if with_trace:
            (output / f"msprof_slice_{part}_20260101000004.json").write_text(json.dumps(events(mine)))
    (t,) = timelines(tmp_path)
    check_devices(t)


def test_device_folders_of_older_versions_are_npus_of_one_rank(tmp_path: Path) -> None:
    for device in (0, 1):
        mine = [task for task in TASKS if task[0] == device]
        folder = tmp_path / "PROF_1" / f"device_{device}"
        (folder / "summary").mkdir(parents=True)
        (folder / "timeline").mkdir()
        (folder / "summary" / f"op_summary_{device}_1_1.csv").write_text(HEADER + "".join(map(row, mine)))
        (folder / "timeline" / f"msprof_{device}_1_1.json").write_text(json.dumps(events(mine)))
    (t,) = timelines(tmp_path / "PROF_1")
    check_devices(t)


@pytest.mark.parametrize(
    "name", ["rank_1_2026_ascend_ms", "dp0_pp0_tp1_dcp0_ep1_rank1_4100_20260101_ascend_pt", "host_4100_2026_ascend_pt"]
)
def test_the_folder_of_any_framework_gives_the_same(tmp_path: Path, name: str) -> None:
    capture = simulate(Config(ranks=2, steps=2))[1]
    write_capture(capture, tmp_path / name)
    (t,) = timelines(tmp_path / name)
    assert t.rank == 1
    recorded = [task for task in capture.tasks if task.recorded]
    np.testing.assert_array_equal(t.tasks.ts, [task.start for task in recorded])


def kineto(capture: Capture) -> dict[str, Any]:
    """The run as PyTorch writes it on CUDA: annotations, runtime calls, kernels tied by their correlation."""
    base, pid, device = 1_792_000_000_000_000_000, capture.rank.pid, capture.rank.rank
    out: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python3"}},
        {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": "CPU"}},
        {"ph": "M", "name": "process_name", "pid": device, "tid": 0, "args": {"name": "python3"}},
        {"ph": "M", "name": "process_labels", "pid": device, "tid": 0, "args": {"labels": f"GPU {device}"}},
    ]

    def complete(cat: str, name: str, where: tuple[int, int], start: int, end: int, args: dict[str, Any]) -> None:
        ts, dur = (start - base) / 1000, (end - start) / 1000
        out.append(
            {"ph": "X", "cat": cat, "name": name, "pid": where[0], "tid": where[1], "ts": ts, "dur": dur, "args": args}
        )

    def point(ph: str, correlation: int, where: tuple[int, int], start: int) -> None:
        event = {"ph": ph, "id": correlation, "pid": where[0], "tid": where[1], "ts": (start - base) / 1000}
        out.append({**event, "cat": "ac2g", "name": "ac2g", **({"bp": "e"} if ph == "f" else {})})

    calls = {}
    for span in capture.spans:
        where = (pid, pid if span.thread == "main" else pid + 13)
        if span.cat == "cpu_op":
            marked = span.name.startswith(("scheduler.", "step["))
            complete("user_annotation" if marked else "cpu_op", span.name, where, span.start, span.end, {})
        elif span.cat == "cann":
            name = "cudaGraphLaunch" if "aclmdlRIExecute" in span.name else "cudaLaunchKernel"
            complete("cuda_runtime", name, where, span.start, span.end, {"correlation": span.id})
            calls[span.id] = where
    for task in capture.tasks:
        if not task.recorded:
            continue
        stream = 7 if task.stream == 43 else max(task.stream, 0)
        args = {"device": device, "stream": stream, "correlation": task.connection_id}
        complete("kernel", task.name, (device, stream), task.start, task.end, args)
        if task.call is not None and task.call.id in calls:
            point("s", task.call.id, calls[task.call.id], task.call.start)
            point("f", task.call.id, (device, stream), task.start)
    return {
        "schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": out,
        "distributedInfo": {"backend": "nccl", "rank": device, "world_size": capture.config.ranks},
    }  # fmt: skip


def answers(trace: Path) -> dict[str, Any]:
    with open_trace(str(trace)) as tp:
        return {
            name: tp.rows(sql)
            for name, sql in {
                "steps": "INCLUDE PERFETTO MODULE npu.steps; SELECT rank, ts, dur, bs, mode FROM npu_steps ORDER BY 1, 2",
                "times": "INCLUDE PERFETTO MODULE npu.ranks; "
                "SELECT rank, window_ts, wall_ns, duration_sum_ns, busy_union_ns, gap_ns, kernel_count FROM npu_rank_times",
                "gaps": "INCLUDE PERFETTO MODULE npu.gaps; SELECT rank, ts, dur FROM npu_gaps ORDER BY 1, 2",
                "losses": "SELECT name FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
                "report": "INCLUDE PERFETTO MODULE npu.report; "
                "SELECT rank, step_wall_ms, gap_ms FROM npu_step_report ORDER BY 1, 2",
            }.items()
        }


def test_sglang_on_cuda_gives_steps_and_gaps_too(tmp_path: Path) -> None:
    """The same run as an NPU capture and as Kineto traces with SGLang's names: the same steps and the same gaps."""
    run = simulate(Config(ranks=2, steps=4))
    names = ("1769071195.66-TP-0-DP-0-EP-0-DECODE.trace.json.gz", "1769071195.66-TP-1-DP-1-EP-1-DECODE.trace.json.gz")
    (tmp_path / "cuda").mkdir()
    for capture, name in zip(run, names, strict=True):
        write_capture(capture, tmp_path / "npu" / capture.folder)
        (tmp_path / "cuda" / name).write_bytes(gzip.compress(json.dumps(kineto(capture)).encode()))
    for kind in ("npu", "cuda"):
        convert([str(tmp_path / kind)], str(tmp_path / f"{kind}.pftrace"), Options(assume_aligned=True))
    npu, cuda = answers(tmp_path / "npu.pftrace"), answers(tmp_path / "cuda.pftrace")
    assert cuda["losses"] == [] and len(cuda["steps"]) == len(npu["steps"]) == 8
    for table in ("steps", "times", "gaps", "report"):
        assert cuda[table] == npu[table], table
