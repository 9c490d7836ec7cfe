"""Small inputs of every format, mostly well-formed and partly odd. Each takes a seeded Random and gives bytes."""

from __future__ import annotations

import gzip
import json
from random import Random

from tests.fuzz.pieces import (
    EPOCH_US,
    duration_text,
    id_text,
    mutated,
    odd_json,
    text,
    time_text,
)

_KERNEL_HEADERS = (
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num,"
    "Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
    "aicore_time(us),cube_utilization(%)",
    "Name,Start Time(us),Duration(us)",
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us),"
    "Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes",
    "Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,Name,Task ID,Model ID,,Stream ID",
)  # fmt: skip
_TASK_TIME_HEADER = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
_MEMORY_HEADERS = (
    "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type",
    "Device_id,Component,Timestamp(us),Total Reserved(MB),Device",
    "event,timestamp(us),total_reserve_memory(KB)",
)
_CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "AI_CPU", "HCCL", "COMMUNICATION", "N/A", "EVENT_WAIT")
_STEP_TIME_HEADER = (
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)


def _cell(rng: Random, header: str) -> str:
    form = header.lower()
    if "start" in form or "timestamp" in form or "stop" in form:
        return time_text(rng, 0.06)
    if "(us)" in form or "(mb)" in form or "(kb)" in form or "ratio" in form:
        return duration_text(rng, 0.06)
    if "id" in form.replace("hf32 eligible", "") or "dim" in form or "num" in form:
        return id_text(rng, 0.06)
    if form in ("accelerator core", "task type", "kernel_type"):
        return rng.choice(_CORES)
    found = text(rng, 0.15)
    return '"' + found.replace('"', '""') + '"' if rng.random() < 0.2 or "," in found else found


def _table(rng: Random, header: str, most: int = 8) -> bytes:
    names = header.split(",")
    lines = [header]
    for _ in range(rng.randint(0, most)):
        cells = [_cell(rng, name) for name in names]
        if rng.random() < 0.04:
            cells = cells[: rng.randint(0, len(cells))] if rng.random() < 0.5 else [*cells, text(rng)]
        lines.append(",".join(cells))
    if rng.random() < 0.05:
        lines.insert(rng.randint(0, len(lines)), rng.choice(["", "   ", header, ","]))
    end = rng.choice(("\n", "\n", "\n", "\r\n", "\r"))
    data = (end.join(lines) + (end if rng.random() < 0.8 else "")).encode("utf-8", "surrogatepass")
    way = rng.random()
    if way < 0.03:
        data = data.decode("utf-8", "replace").encode("utf-16")
    elif way < 0.06:
        data = b"\xef\xbb\xbf" + data
    elif way < 0.09:
        data = data.decode("utf-8", "replace").encode("gbk", "replace")
    elif way < 0.12:
        data = data.replace(b",", b";").replace(b".", b",")
    return mutated(rng, data) if rng.random() < 0.4 else data


def kernel_csv(rng: Random) -> bytes:
    return _table(rng, rng.choice(_KERNEL_HEADERS))


def task_time_csv(rng: Random) -> bytes:
    return _table(rng, _TASK_TIME_HEADER)


def memory_csv(rng: Random) -> bytes:
    return _table(rng, rng.choice(_MEMORY_HEADERS))


def plain_csv(rng: Random) -> bytes:
    header = rng.choice(
        (
            "ts(ns),dur(ns)",
            "start_us,Duration [ms],name",
            "begin(s),end(s)",
            "start,dur",
            "Name,Start Time(us),Duration(us)",
        )
    )
    return _table(rng, header)


def step_time_csv(rng: Random) -> bytes:
    return _table(rng, _STEP_TIME_HEADER, 3)


_MSPROF_HEADERS = {
    "step_trace": "Device_id,Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),FP to BP Time(us),"
    "Iteration Refresh(us),Data Aug Bound(us),Model ID,Reduce Start(us),Reduce Duration(us)",
    "msprof_tx": "pid,tid,category,event_type,payload_type,payload_value,Start_time(us),End_time(us),message_type,message,domain,"
    "Device Start_time(us),Device End_time(us)",
    "communication_statistic": "Device_id,OP Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)",
}  # fmt: skip


def msprof_table(rng: Random, name: str) -> bytes:
    """One of the small tables of msprof, by the start of its name."""
    return _table(rng, _MSPROF_HEADERS[name], 4)


def _event(rng: Random, relative: bool) -> str:
    phase = rng.choice("XXXXXXXXXBEBEsftCCMMiInbebeRPODd")
    pid = str(rng.randrange(3)) if rng.random() < 0.9 else odd_json(rng, 2)
    tid = str(rng.randrange(3)) if rng.random() < 0.9 else odd_json(rng, 2)
    name = (
        rng.choice(("process_name", "thread_name", "process_labels", "process_sort_index", "thread_sort_index"))
        if phase == "M"
        else text(rng)
    )
    moment = str(rng.randrange(60) / 4) if relative else json.dumps(time_text(rng, 0.03))
    moment = moment if rng.random() < 0.95 else odd_json(rng, 2)
    fields = [f'"ph":"{phase}"', f'"name":{json.dumps(name)}', f'"pid":{pid}', f'"tid":{tid}', f'"ts":{moment}']
    if phase == "X" or rng.random() < 0.05:
        fields.append(f'"dur":{rng.randrange(80) / 4}' if rng.random() < 0.9 else f'"dur":{odd_json(rng, 2)}')
    if phase in "sftbebn" or rng.random() < 0.05:
        fields.append(f'"id":{json.dumps(str(rng.randrange(3))) if rng.random() < 0.8 else odd_json(rng, 2)}')
    if rng.random() < 0.5:
        category = rng.choice(
            ("HostToDevice", "async_npu", "async_task_queue", "cpu_op", "python_function", "fwdbwd", "kernel", "")
        )
        fields.append(f'"cat":{json.dumps(category)}')
    if phase == "M":
        value = rng.choice(('"Python"', '"CANN"', '"Ascend Hardware"', '"Overlap Analysis"', '"NPU 0"', '"Stream 43"', '"Communication"', '"Plane 0"', '"Group x Communication"', "7", "-2", odd_json(rng, 2)))  # fmt: skip
        fields.append(f'"args":{{"{rng.choice(("name", "labels", "sort_index"))}":{value}}}')
    elif phase == "C" and rng.random() < 0.7:
        fields.append(
            f'"args":{{"{rng.choice(("KB", "value", "Usage(%)"))}":{rng.randrange(9)},"acc_id":{rng.randrange(2)}}}'
        )
    elif rng.random() < 0.6:
        keys = ("Task Type", "Stream Id", "Task Id", "Model Id", "connection_id", "Physic Stream Id", "correlation_id", "Input Dims", "x", "a.b", "stream", "device")  # fmt: skip
        inside = ",".join(f"{json.dumps(rng.choice(keys))}:{odd_json(rng, 1)}" for _ in range(rng.randrange(4)))
        fields.append(f'"args":{{{inside}}}' if rng.random() < 0.95 else f'"args":{odd_json(rng)}')
    if rng.random() < 0.04:
        fields.pop(rng.randrange(len(fields)))
    if rng.random() < 0.04:
        fields.append(f"{json.dumps(text(rng))}:{odd_json(rng)}")
    rng.shuffle(fields)
    return "{" + ",".join(fields) + "}"


def trace_json(rng: Random, zipped: bool = True) -> bytes:
    relative = rng.random() < 0.3
    separator = rng.choice((",", ", ", ",\n", "\n,\n  "))
    body = (
        "["
        + separator.join(_event(rng, relative) for _ in range(rng.randrange(12)))
        + rng.choice(("]", "]", "]\n", "", ",]"))
    )
    if rng.random() < 0.4:
        head = rng.choice(
            ("", '"schemaVersion":1,', '"displayTimeUnit":"ms",', '"deviceProperties":[],', f'"x":{odd_json(rng)},')
        )
        tail = rng.choice(
            (
                "",
                f',"baseTimeNanoseconds":{EPOCH_US}000',
                f',"baseTimeNanoseconds":{odd_json(rng)}',
                f',"y":{odd_json(rng)}',
            )
        )
        body = "{" + head + '"traceEvents":' + body + tail + rng.choice(("}", "}", "", "}}"))
    data = body.encode("utf-8", "surrogatepass")
    if rng.random() < 0.5:
        data = mutated(rng, data)
    if zipped and rng.random() < 0.08:
        data = gzip.compress(data, 1)
        if rng.random() < 0.5:
            data = mutated(rng, data, 2)
    return data


def _record(rng: Random) -> str:
    fields = [f'"forward_ct":{rng.randrange(1200, 1206) if rng.random() < 0.9 else odd_json(rng)}']
    for key in (
        "bs",
        "step_cpu_ms",
        "step_gpu_ms",
        "draft_gpu_ms",
        "target_verify_gpu_ms",
        "num_tokens",
        "g_sq",
        "dp_rank",
        "committed_tokens",
    ):
        if rng.random() < 0.4:
            fields.append(f'"{key}":{rng.randrange(9) if rng.random() < 0.8 else odd_json(rng)}')
    if rng.random() < 0.4:
        parts = ",".join(
            f'"{k}":{odd_json(rng)}'
            for k in ("req_pool_idx", "prefix_len", "rid", "verify_len", "draft_tokens", "commit_len", "confidence")
        )
        fields.append(f'"reqs":[{{{parts}}}]' if rng.random() < 0.8 else f'"reqs":{odd_json(rng)}')
    rng.shuffle(fields)
    return "{" + ",".join(fields) + "}"


def dspark(rng: Random) -> bytes:
    records = "[" + ",".join(_record(rng) for _ in range(rng.randrange(5))) + "]"
    payload = f'{{"mode":"static","gamma":3,"verify_num_draft_tokens":{odd_json(rng)},"components":["core"],"records":{records}}}'
    way = rng.randrange(7)
    whole = (
        f'{{"tp_size":2,"dp_size":{odd_json(rng)},"internal_states":[{{"dspark_info_record":{payload}}},{{}}]}}',
        payload,
        f'{{"dspark_info_record":{payload}}}',
        f'{{"sampling":{odd_json(rng)},"records":{records}}}',
        records,
        "\n".join(_record(rng) for _ in range(rng.randrange(5))),
        "\n".join(rng.choice((payload, records, _record(rng), odd_json(rng))) for _ in range(rng.randrange(4))),
    )[way]
    data = whole.encode("utf-8", "surrogatepass")
    if rng.random() < 0.03:
        data = data.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-32", "utf-8-sig")))
    return mutated(rng, data) if rng.random() < 0.4 else data


def clock_file(rng: Random, name: str) -> bytes:
    """One of the small files about clocks and ranks, by its name."""

    def number() -> str:
        return str(rng.randrange(1, 10**18)) if rng.random() < 0.8 else odd_json(rng)

    if name.endswith(".log"):
        keys = ("clock_monotonic_raw", "cntvct", "cntvct_diff", "clock_realtime")
        data = ("[Host]\n" + "\n".join(f"{k}: {number()}" for k in keys)).encode("utf-8", "replace")
    elif name.startswith("profiler_info"):
        start = ",".join(f'"{k}":{number()}' for k in ("freq", "start_cnt", "start_monotonic", "syscnt_enable"))
        end = ",".join(f'"{k}":{number()}' for k in ("collectionTimeEnd", "MonotonicTimeEnd"))
        config = f'"common_config":{{"with_stack":{odd_json(rng)},"schedule":{odd_json(rng)}}},"experimental_config":{{"_profiler_level":{odd_json(rng)}}}'
        data = f'{{"config":{{{config}}},"start_info":{{{start}}},"end_info":{{{end}}},"rank_id":{number()},"hostUid":{number()}}}'.encode(
            "utf-8", "replace"
        )
    elif name == "profiler_metadata.json":
        group = f'{{"group_name":"default_group","group_rank":0,"global_ranks":[0,{number()}]}}'
        data = f'{{"distributed_args":{{"world_size":{number()},"rank":{number()}}},"parallel_group_info":{{"g":{group},"h":{odd_json(rng)}}}}}'.encode(
            "utf-8", "replace"
        )
    elif name == "info.json":
        data = f'{{"hostname":{odd_json(rng)},"rank_id":{number()},"CPU":[{{"Frequency":{number()}}}],"DeviceInfo":[{{"hwts_frequency":{number()}}}]}}'.encode(
            "utf-8", "replace"
        )
    elif name == "communication.json":
        info = f'{{"Communication Time Info":{{"Elapse Time(ms)":{number()},"k":{odd_json(rng)}}},"Communication Bandwidth Info":{{"HCCS":{{"Transit Size(MB)":{number()}}}}}}}'
        data = f'{{"step1":{{"collective":{{"hcom_allReduce__123_4_1@g":{info},"x":{odd_json(rng)}}}}},"y":{odd_json(rng)}}}'.encode(
            "utf-8", "replace"
        )
    else:
        keys = ("clockMonotonicRaw", "collectionTimeBegin", "collectionDateBegin")
        data = (
            "{"
            + ",".join(
                f'"{k}":{json.dumps(str(rng.randrange(10**17))) if rng.random() < 0.7 else odd_json(rng)}' for k in keys
            )
            + "}"
        ).encode("utf-8", "replace")
    return mutated(rng, data) if rng.random() < 0.4 else data
