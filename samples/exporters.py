"""Writes one capture as torch_npu's text export: `ASCEND_PROFILER_OUTPUT/` and the profiler's side files.

The forms are those of CANN 8.3 to 2026: a TAB after start times, `Block Num` headers (K4) or `Block Dim` (K3), no `Step Id`
column (SGLang profiles without a schedule), N/A cells of communication rows, CSV times truncated to the nanosecond.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from samples.capture import Capture
from samples.intervals import common, length
from samples.model import EAGER, Task
from samples.overlap import overlap, us
from samples.trace_export import trace_view

IDS = ("Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core")
TIMES = ("Start Time(us)", "Duration(us)", "Wait Time(us)")
SHAPES = ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "Context ID")  # fmt: skip


def write_capture(capture: Capture, folder: Path) -> None:
    """Writes the rank's folder. `folder` must not exist."""
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (output / "kernel_details.csv").write_text(kernel_details(capture), encoding="utf-8", newline="")
    (output / "step_trace_time.csv").write_text(step_trace_time(capture), encoding="utf-8", newline="")
    if capture.config.trace:
        (output / "trace_view.json").write_text(trace_view(capture), encoding="utf-8", newline="")
    rank = capture.rank.rank
    (folder / f"profiler_info_{rank}.json").write_text(json.dumps(profiler_info(capture), indent=4), encoding="utf-8")
    (folder / "profiler_metadata.json").write_text(json.dumps(profiler_metadata(capture)), encoding="utf-8")


def _filled(text: str, task: Task) -> str:
    return text.format(n=max(task.tokens, 1), bs=max(task.bs, 1))


def quoted(shapes: str) -> str:
    """Shapes stand in double quotes that are part of the text, so the CSV cell shows three."""
    return f'"""{shapes}"""'


def kernel_details(capture: Capture) -> str:
    """kernel_details.csv of the recorded tasks, sorted by start."""
    config = capture.config
    block = "Block Num" if config.block_num else "Block Dim"
    if config.level0:
        rows = [",".join(("Device_id", "Name", "Type", "Accelerator Core", *TIMES, block))]
    else:
        rows = [",".join((*IDS, *TIMES, block, f"Mix {block}", "HF32 Eligible", *SHAPES))]
    before: Task | None = None
    device = config.device(capture.rank.rank)
    for task in capture.tasks:
        if not task.recorded:
            continue
        assert task.kernel is not None
        wait = max(task.start - before.end, 0) if before else 0
        before = task
        times = f"{us(task.start)}\t,{us(task.end - task.start)},{us(wait) if wait else 0}"
        collective = task.kind == "collective"
        core = task.kernel.core
        if config.level0:
            shown = "COMMUNICATION" if collective else "N/A"
            rows.append(f"{device},{task.name},N/A,{shown},{times},0")
        elif collective:
            cells = ",".join(["N/A"] * len(SHAPES))
            rows.append(
                f"{device},{task.model_id},N/A,N/A,{task.name},{task.kernel.op_type},N/A,{core},{times},0,N/A,N/A,{cells}"
            )
        else:
            state = "dynamic" if task.model_id == EAGER else "static"
            shapes = _filled(task.kernel.shapes, task)
            inputs = shapes.count(";") + 1
            formats = ";".join(["ND"] * inputs)
            dtypes = ";".join((task.kernel.dtypes.split(";") * inputs)[:inputs])
            out = _filled(task.kernel.out, task)
            blocks = (40 if core == "AI_VECTOR_CORE" else 20, 40 if core.startswith("MIX") else 0)
            context = "0" if core.startswith("MIX") else "N/A"
            rows.append(
                f"{device},{task.model_id},{task.task_id},{task.stream},{task.name},{task.kernel.op_type},{state},{core},"
                f"{times},{blocks[0]},{blocks[1]},NO,{quoted(shapes)},{dtypes},{formats},{quoted(out)},"
                f"{dtypes.split(';')[0]},ND,{context}"
            )
    return "\n".join(rows) + "\n"


def step_trace_time(capture: Capture) -> str:
    """step_trace_time.csv: the sums of the Overlap Analysis, in us with the float noise of the real one."""
    parts = overlap(capture)
    total = {name: length(pairs) / 1000 for name, pairs in parts.items()}
    both = length(common(parts["Computing"], parts["Communication"])) / 1000
    stage = sum(total[n] for n in ("Computing", "Communication(Not Overlapped)", "Free"))
    alone = total["Communication(Not Overlapped)"]
    header = (
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing"
    )
    row = f"{capture.config.device(capture.rank.rank)},,{total['Computing']},{alone},{both},{total['Communication']},{total['Free']},{stage},0,{alone},0"
    return f"{header}\n{row}\n"


def profiler_info(capture: Capture) -> dict[str, Any]:
    """profiler_info_{rank}.json with the two clock relations: counter to monotonic, monotonic to epoch."""
    config, rank = capture.config, capture.rank.rank
    host = random.Random(f"{config.seed} host {0 if config.one_host else rank}")
    boot = 1_788_000_000_000_000_000 + host.randrange(4 * 10**15)  # epoch - monotonic
    counter_lead = host.randrange(10**9)  # counter / 100 MHz - monotonic
    wobble = random.Random(f"{config.seed} relation {rank}").randint(-1500, 1500)
    begin, end = capture.window[0] - 40_000_000 - 1_000_000 * rank, capture.window[1] + 25_000_000 + 700_000 * rank
    start_monotonic = begin - boot
    return {
        "config": {
            "common_config": {
                "activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"],
                "schedule": None,
                "record_shapes": True,
                "profile_memory": False,
                "with_stack": False,
                "with_flops": False,
                "with_modules": False,
            },
            "experimental_config": {
                "_profiler_level": "Level0" if config.level0 else "Level1",
                "_aic_metrics": "ACL_AICORE_NONE" if config.level0 else "ACL_AICORE_PIPE_UTILIZATION",
                "_l2_cache": False,
                "_msprof_tx": False,
                "_data_simplification": False,
                "record_op_args": False,
                "_export_type": ["text"],
                "_op_attr": False,
                "_gc_detect_threshold": None,
            },
        },
        "start_info": {
            "syscnt_enable": True,
            "freq": 100,
            "start_cnt": (start_monotonic + counter_lead) // 10,
            "start_monotonic": start_monotonic,
        },
        "end_info": {"collectionTimeEnd": end + wobble, "MonotonicTimeEnd": end - boot},
        "torch_npu_version": "2.7.1",
        "cann_version": "8.3.RC1",
        "rank_id": str(rank),
    }


def profiler_metadata(capture: Capture) -> dict[str, Any]:
    """profiler_metadata.json: the declared set of ranks and the groups."""
    config, rank = capture.config, capture.rank.rank
    everyone = list(range(config.ranks))
    size = config.attention_tp
    first = rank // size * size
    return {
        "distributed_args": {"tensor_model_parallel_size": size, "data_parallel_size": config.dp_size, "expert_model_parallel_size": config.ranks, "rank": rank, "world_size": config.ranks},
        "ENV_VARIABLES": {"ASCEND_GLOBAL_LOG_LEVEL": "", "ASCEND_LAUNCH_BLOCKING": "", **config.extra},
        "parallel_group_info": {
            "group_name_0": {"group_name": "default_group", "group_rank": rank, "global_ranks": everyone},
            "group_name_1": {"group_name": "ep", "group_rank": rank, "global_ranks": everyone},
            "group_name_2": {"group_name": "tp", "group_rank": rank - first, "global_ranks": everyone[first : first + size]},
        },
    }  # fmt: skip
