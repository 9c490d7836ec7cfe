"""Big inputs for benchmarks, written in a stream: the same seed gives the same bytes, memory stays small.

`big_csv`: a kernel_details.csv of N rows of about 200 bytes (the header of CANN 8.0 without its PMU columns, 40 streams,
a few hundred distinct shapes). `big_json`: a trace_view.json of N MB with the mix of a real one: by count about 27 %
python_function, 18 % cpu_op, 9 % queue, 9 % CANN, 5 % hardware, 27 % flow points, 5 % counters.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from schemas.errors import UsageError

START_NS = 1_736_408_883_704_643_212
STREAMS = 40
CHUNK = 100_000
HEADER = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
    "Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Context ID"
)
OPS = (
    ("aclnnMatmul_MatMulV3Common_MatMulV3", "MatMulV3", "AI_CORE", "DT_BF16;DT_BF16", "ND;ND"),
    ("aclnnAdd_AddAiCore_Add", "Add", "AI_VECTOR_CORE", "DT_BF16;DT_BF16", "ND;ND"),
    ("aclnnGroupedMatmulV5_GroupedMatmul_GroupedMatmul", "GroupedMatmul", "MIX_AIC", "INT8;INT8", "ND;ND"),
    ("aclnnRmsNorm_RmsNorm_RmsNorm", "RmsNorm", "AI_VECTOR_CORE", "DT_BF16;DT_BF16", "ND;ND"),
    ("aclnnSwiGlu_SwiGlu_SwiGlu", "SwiGlu", "AI_VECTOR_CORE", "DT_BF16", "ND"),
    ("trans_TransData_0", "TransData", "AI_VECTOR_CORE", "FLOAT", "NCHW"),
    ("MoeDistributeDispatchV2", "MoeDistributeDispatchV2", "MIX_AIV", "DT_BF16;INT32", "ND;ND"),
    (
        "_fused_correct_drafts_and_bonus_kernel",
        "_fused_correct_drafts_and_bonus_kernel",
        "AI_VECTOR_CORE",
        "INT64",
        "ND",
    ),
)


def write_big(folder: Path, *, rows: int = 0, megabytes: int = 0, seed: int = 1) -> Path:
    """Writes kernel_details.csv or trace_view.json into `folder`, absent or empty (else UsageError). The file's path."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder; name another one")
    folder.mkdir(parents=True, exist_ok=True)
    if rows:
        return big_csv(folder / "kernel_details.csv", rows, seed)
    return big_json(folder / "trace_view.json", megabytes, seed)


def big_csv(path: Path, rows: int, seed: int = 1) -> Path:
    """kernel_details.csv of `rows` rows, sorted by start. Runs of five tasks on one stream, each run overlapping
    the end of the one before on another stream; one in a hundred overlaps on its own stream, as FFTS sub-tasks do."""
    rng = np.random.default_rng(seed)
    heads, tails = [], []
    for shape in range(320):
        name, kind, core, dtypes, formats = OPS[shape % len(OPS)]
        n, k = 8 + shape, 512 * (1 + shape % 14)
        inputs = f"{n},{k};{k},{n}" if ";" in dtypes else f"{n},{k}"
        heads.append(f"{name},{kind},{'static' if shape % 3 else 'dynamic'},{core},")
        out = dtypes.split(";")[0]
        context = "0" if core.startswith("MIX") else "N/A"
        tails.append(f',{20 + shape % 21},0,NO,"""{inputs}""",{dtypes},{formats},"""{n},{n}""",{out},ND,{context}\r\n')
    at = START_NS
    task = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(HEADER + "\r\n")
        for first in range(0, rows, CHUNK):
            n = min(CHUNK, rows - first)
            dur = (rng.gamma(2.0, 6_000.0, n) + 900).astype(np.int64)
            # a task begins before the one before it has ended where the stream changes, and rarely on one stream
            leaves = rng.random(n) < 0.2
            early = leaves | (rng.random(n) < 0.01)
            step = np.where(early, dur * rng.random(n), dur + rng.exponential(1_500.0, n)).astype(np.int64)
            start = np.concatenate(([0], np.cumsum(step)[:-1])) + at
            at = int(start[-1] + step[-1])
            wait = np.concatenate(([0], np.maximum(step - dur, 0)[:-1]))
            stream = (np.cumsum(leaves) - leaves.astype(np.int64) + first) % STREAMS + 2
            model = np.where(stream % 2 == 0, 47, 4294967295)
            variant = rng.integers(0, 320, size=n, dtype=np.int64)
            lines = [
                f"50,{m},{(task + i) % 65536},{s},{heads[v]}{t // 1000}.{t % 1000:03d}\t,{d / 1000},{w / 1000},".replace(",0.0,", ",0,")[:-1]
                + tails[v]
                for i, (m, s, v, t, d, w) in enumerate(
                    zip(*(np.asarray(c).tolist() for c in (model, stream, variant, start, dur, wait)), strict=True)
                )
            ]  # fmt: skip
            task += n
            file.write("".join(lines))
    return path


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def big_json(path: Path, megabytes: int, seed: int = 1) -> Path:
    """trace_view.json of at least `megabytes` x 10^6 bytes: one unit of 22 events per kernel, streamed."""
    rng = np.random.default_rng(seed)
    python, acl, cann, hardware, hbm = 3096504, 3099702, 3170820320, 3170820512, 3170820640
    target, written, at, number = megabytes * 1_000_000, 0, START_NS, 0
    names = [f"torch/nn/modules/module.py({1000 + i}): forward_{i}" for i in range(400)]
    with path.open("w", encoding="utf-8", newline="") as file:
        text = "[" + ",".join(_metadata(python, acl, cann, hardware, hbm)) + ","
        while written < target:
            written += file.write(text)
            parts = []
            durs = (rng.gamma(2.0, 6_000.0, 100) + 900).astype(np.int64).tolist()
            shapes = rng.integers(1, 300, 100).tolist()
            for dur, shape in zip(durs, shapes, strict=True):
                number += 1
                op = OPS[number % len(OPS)][0]
                stream = 2 + number // 25 % STREAMS
                parts.append(_unit(number, at, dur, shape, op, stream, names, (python, acl, cann, hardware, hbm)))
                at += 90_000 + dur
            text = ",".join(parts) + ","
        written += file.write(text[:-1] + "]")
    return path


def _metadata(python: int, acl: int, cann: int, hardware: int, hbm: int) -> list[str]:
    out = []
    for pid, name, label in ((python, "Python", "CPU"), (cann, "CANN", "CPU"), (hardware, "Ascend Hardware", "NPU"), (hbm, "HBM", "NPU")):  # fmt: skip
        out.append(f'{{"ph":"M","name":"process_name","pid":{pid},"tid":0,"args":{{"name":"{name}"}}}}')
        out.append(f'{{"ph":"M","name":"process_labels","pid":{pid},"tid":0,"args":{{"labels":"{label}"}}}}')
    for pid, tid in ((python, python), (python, acl), (cann, acl)):
        out.append(f'{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},"args":{{"name":"Thread {tid}"}}}}')
    for stream in range(2, 2 + STREAMS):
        out.append(
            f'{{"ph":"M","name":"thread_name","pid":{hardware},"tid":{stream},"args":{{"name":"Stream {stream}"}}}}'
        )
    return out


def _unit(
    number: int,
    at: int,
    dur: int,
    shape: int,
    op: str,
    stream: int,
    names: list[str],
    pids: tuple[int, int, int, int, int],
) -> str:
    """22 events of one kernel: frames, ops, queue, CANN, task, arrows, a counter sample."""
    python, acl, cann, hardware, hbm = pids
    out = []
    main = f'"pid": {python}, "tid": {python}'
    for depth in range(6):
        name = names[(number * 7 + depth) % len(names)]
        out.append(
            f'{{"ph": "X", "name": "{name}", {main}, "ts": "{_us(at + depth * 900)}", "dur": {(80_000 - depth * 2000) / 1000}, '
            f'"cat": "python_function", "args": {{"Python id": {number * 6 + depth}, "Python parent id": {number * 6 + depth - 1}}}}}'
        )
    for depth, name in enumerate(("aten::linear", "aten::matmul", "aten::mm", op.split("_", maxsplit=1)[0])):
        out.append(
            f'{{"ph": "X", "name": "{name}", {main}, "ts": "{_us(at + 6000 + depth * 1500)}", "dur": {(60_000 - depth * 3500) / 1000}, '
            f'"cat": "cpu_op", "args": {{"Sequence number": {number if depth == 2 else -1}, "Fwd thread id": 0, '
            f'"Input Dims": "{shape},7168;\\r\\n7168,{shape}", "Input type": "c10::BFloat16;\\r\\nc10::BFloat16"}}}}'
        )
    connection, kernel = 1000 + 2 * number, at + 70_123
    queue = "async_task_queue"
    out.append(
        f'{{"ph": "X", "name": "Enqueue", {main}, "ts": "{_us(at + 20_000)}", "dur": 3.1, "cat": "enqueue", "args": {{"correlation_id": {number}}}}}'
    )
    out.append(
        f'{{"ph": "X", "name": "Dequeue@{op}", "pid": {python}, "tid": {acl}, "ts": "{_us(at + 30_000)}", "dur": 22.75, "cat": "dequeue", "args": {{"correlation_id": {number}}}}}'
    )
    out.append(
        f'{{"ph": "s", "bp": "e", "name": "enqueue_to_dequeue", "id": {number}, {main}, "ts": "{_us(at + 20_000)}", "cat": "{queue}"}}'
    )
    out.append(
        f'{{"ph": "f", "bp": "e", "name": "enqueue_to_dequeue", "id": {number}, "pid": {python}, "tid": {acl}, "ts": "{_us(at + 30_000)}", "cat": "{queue}"}}'
    )
    out.append(
        f'{{"ph": "s", "bp": "e", "name": "torch_to_npu", "id": {kernel}, {main}, "ts": "{_us(at + 10_500)}", "cat": "async_npu"}}'
    )
    out.append(
        f'{{"ph": "f", "bp": "e", "name": "torch_to_npu", "id": {kernel}, "pid": {hardware}, "tid": {stream}, "ts": "{_us(kernel)}", "cat": "async_npu"}}'
    )
    for offset, name, level, item in (
        (32_000, "AscendCL@aclrtLaunchKernelWithHostArgs", "acl", "0"),
        (40_000, "Node@launch", "node", op),
    ):
        out.append(
            f'{{"name": "{name}", "pid": {cann}, "tid": {acl}, "ts": "{_us(at + offset)}", "dur": 6.25, "args": {{"Thread Id": {acl}, '
            f'"Mode": "launch", "level": "{level}", "id": "0", "item_id": "{item}", "connection_id": {connection + (level == "acl")}}}, "ph": "X"}}'
        )
    flow = (stream << 64) + (number % 65536 << 48) + 4294967295
    out.append(
        f'{{"name": "HostToDevice{flow}", "ph": "s", "cat": "HostToDevice", "id": "{flow}", "pid": {cann}, "tid": {acl}, "ts": "{_us(at + 42_500)}"}}'
    )
    out.append(
        f'{{"name": "HostToDevice{flow}", "ph": "f", "id": "{flow}", "ts": "{_us(kernel)}", "cat": "HostToDevice", "pid": {hardware}, "tid": {stream}, "bp": "e"}}'
    )
    out.append(
        f'{{"name": "{op}", "pid": {hardware}, "tid": {stream}, "ts": "{_us(kernel)}", "dur": {dur / 1000}, "args": {{"Model Id": 4294967295, '
        f'"Task Type": "AI_CORE", "Physic Stream Id": {stream}, "Task Id": {number % 65536}, "Batch Id": 0, "Subtask Id": 4294967295, "connection_id": {connection}}}, "ph": "X"}}'
    )
    out.append(
        f'{{"name": "HBM 0/Read", "ts": "{_us(at)}", "pid": {hbm}, "tid": 0, "args": {{"Read(MB/s)": {dur / 100}}}, "ph": "C"}}'
    )
    return ",".join(out)
