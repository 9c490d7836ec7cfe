"""A small trace with every derived kind, whose figures the tests compute by hand; made with perfetto's own builder."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import typer
from typer.testing import CliRunner

from schemas.errors import NpuPerfettoError
from tests.trace_builder import TraceBuilder

BASE = 1_792_454_400_000_000_000
HOSTILE = "<script>alert('x')</script>|\x1b[31m\u202eevil`*_[a](javascript:alert(1))@you"

CAPTURE: dict[str, Any] = {
    "profiler_level": "Level1",
    "aic_metrics": "PipeUtilization",
    "record_shapes": True,
    "with_stack": False,
    "cann_version": "8.3.RC1",
    "not_recorded": "Python stacks",
}


def invoke(command: Callable[..., None], *arguments: str) -> SimpleNamespace:
    """A command as main() runs it, in this process: returncode, stdout, stderr."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    done = CliRunner().invoke(app, arguments)
    status, stderr = done.exit_code, done.stderr
    if isinstance(done.exception, NpuPerfettoError):
        status, stderr = done.exception.exit_status, stderr + str(done.exception)
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return SimpleNamespace(returncode=status, stdout=done.stdout, stderr=stderr)


def section(text: str, title: str) -> list[str]:
    """The lines of a section of a report."""
    return text.split(f"## {title}\n")[1].split("\n## ", maxsplit=1)[0].splitlines()


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [c.strip() for c in line.strip("|").split(" | ")]


def report_trace(
    ranks: tuple[int, ...] = (0, 1),
    steps: int = 10,
    *,
    tail_us: int = 100,
    bs: int = 4,
    width: int = 4,
    capture: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    name: str = "k",
    numbered: bool = True,
    unrecorded: tuple[int, ...] = (),
    cut: dict[int, str] | None = None,
) -> TraceBuilder:
    """Per rank `steps` steps of 1 ms + 10 us per step; draft 200 us, verify 400 us, the tail as told. Between the two
    tasks of a step lies a gap of 50 us + 1 us per step. All of it is the same on every rank. unrecorded: the steps without
    a record; cut: the argument `cut` of a step."""
    t = TraceBuilder()
    for rank in ranks:
        npu = t.track("NPU 0", t.process(f"Rank {rank}", 100 + rank))
        stream = t.track("Stream 2", npu)
        root = t.track(f"Rank {rank} · DSpark")
        tracks = {n: t.track(n, root) for n in ("Steps", "Segments", "Eager tail", "DeepEP", "Pre-replay", "Gaps")}
        at = BASE
        for i in range(steps):
            last = i == steps - 1
            recorded, mark = i not in unrecorded, (cut or {}).get(i)
            _step(t, stream, tracks, at, i, tail_us, bs, width, name, numbered, last, recorded, mark)
            at += 1_000_000 + 10_000 * i
        wall = at - BASE
        gap = sum(50_000 + 1_000 * i for i in range(steps))
        times = {
            "window_ts": BASE,
            "wall_ns": wall,
            "duration_sum_ns": wall + 7,
            "duration_wait_sum_ns": wall + 9,
            "busy_union_ns": wall - gap,
            "gap_ns": gap,
            "gap_ratio": gap / wall if wall else 0.0,
            "kernel_count": 2 * steps,
        }
        vendor = {"step": "7", "source": "overlap_analysis", "computing_ns": 5, "communication_ns": 4}
        vendor |= {"communication_not_overlapped_ns": 3, "free_ns": 2_000_000}
        t.instant(
            root,
            BASE,
            "facts",
            "npu.facts",
            source="x_ascend_pt",
            times=times,
            clock={"method": "same_host" if rank else "reference", "offset_ns": 0, "launch_pairs": 3},
            capture=CAPTURE if capture is None else capture,
            vendor_times=[vendor],
            dspark={"mode": "static", "record_count": steps, "matched_steps": steps},
            skipped={"replays": "no graph replay"},
        )
    everything: dict[str, Any] = {"tool": {"name": "npu-perfetto", "version": "0"}, "ranks": "0, 1"}
    if run:
        everything["run"] = run
    everything["refused"] = {"group_gaps": "rank 1 is not aligned"}
    t.instant(t.track("All ranks"), BASE, "facts", "npu.facts", **everything)
    return t


def _step(
    t: TraceBuilder,
    stream: int,
    tracks: dict[str, int],
    at: int,
    i: int,
    tail_us: int,
    bs: int,
    width: int,
    name: str,
    numbered: bool,
    last: bool,
    recorded: bool,
    cut: str | None,
) -> None:
    gap = 50_000 + 1_000 * i
    count = {"step": i} | ({"forward_ct": 100 + i} if numbered else {})
    wall = {} if last else {"step_wall_ns": 1_000_000 + 10_000 * i}
    record = {"step_gpu_ms": 0.7 + tail_us / 1000, "draft_gpu_ms": 0.2, "target_verify_gpu_ms": 0.4}
    record["unattributed_ms"] = 0.1 + tail_us / 1000
    mark = {"cut": cut} if cut else {}
    t.slice(
        tracks["Steps"], at, 900_000, "step", "npu.step", **count, **wall, bs=bs, num_verify_tokens=bs * width,
        mode="static", **(record if recorded else {}), **mark, committed_tokens=2 * bs + i, avg_commit_len=(2 * bs + i) / bs,
        first_task_ts=at, last_task_end=at + 900_000, evidence="recorded",
    )  # fmt: skip
    t.slice(stream, at, 300_000, name, "npu.task", task=2 * i, task_id=1, wait_ns=0)
    t.slice(
        tracks["Gaps"], at + 300_000, gap, "gap", "npu.gap", prev_task=2 * i, next_task=2 * i + 1,
        endpoint_class="dynamic->dynamic", host_event="aten::to", host_cover_ratio=0.5, launch_ts=at + 310_000,
        launch_name="Node@launch", evidence="linked",
    )  # fmt: skip
    t.slice(stream, at + 300_000 + gap, 400_000, f"{name}2", "npu.task", task=2 * i + 1, task_id=2, wait_ns=gap)
    for segment, start, dur in (("draft", at, 200_000), ("target_verify", at + 210_000, 400_000)):
        t.slice(
            tracks["Segments"], start, dur, segment, "npu.segment", **count, segment=segment, placed_ns=dur - 5,
            **({"record_ns": dur, "residual_ns": 5} if recorded else {}), kernel_sum_ns=dur + 50_000, busy_union_ns=dur - 10_000,
            other_stream_busy_ns=0, evidence="inferred" if recorded else "linked",
        )  # fmt: skip
    end = at + 610_000
    t.slice(
        tracks["Eager tail"],
        end,
        tail_us * 1000,
        "Accept",
        "npu.tail",
        **count,
        part="accept",
        kernel_count=2,
        busy_ns=9,
        evidence="inferred",
        tail_ns=tail_us * 1000,
    )
    t.slice(
        tracks["DeepEP"], at + 400_000, 30_000, "dispatch", "npu.deepep", **count, op="dispatch", model="in_kernel_wait",
        issue_ts=at + 400_000, hook_ts=at + 400_000, done_ts=at + 430_000, in_flight_ns=0, wait_ns=30_000,
        overlapped_ns=10_000, exposed_ns=20_000, evidence="recorded",
    )  # fmt: skip
