"""Writes trace_view.json: one bare array, `ts` a text of microseconds with three decimals, `dur` a number.

First the Python process as torch_npu appends it, then the events of CANN and the device. Pids are packed as the exporters
pack them: (os pid << 10) | (sort index << 5) | device, with 31 for the host. Sources: reference formats of CANN 8.3/2026.
"""

from __future__ import annotations

import json
from typing import Any

from samples.capture import Capture
from samples.model import Span, Task
from samples.overlap import overlap, us

Event = dict[str, Any]
NONE = 4294967295
HARDWARE, FREQUENCY, COMMUNICATION, OVERLAP, HBM = 13, 14, 15, 17, 18
LEVELS = {"AscendCL": ("acl", "ACL_RTS"), "Node": ("node", "launch"), "Communication": ("communication", "hccl")}


def trace_view(capture: Capture) -> str:
    """The text of trace_view.json."""
    events = [*_python(capture), *_cann(capture), *_hardware(capture), *_communication(capture), *_overlap(capture)]
    events += [*_counters(capture), *_flows(capture)]
    return "[" + ",\n".join(json.dumps(e, ensure_ascii=False, separators=(",", ":")) for e in events) + "]"


def _pid(capture: Capture, sort: int, host: bool = False) -> int:
    return (capture.rank.pid << 10) | (sort << 5) | (31 if host else capture.config.device(capture.rank.rank))


def _tid(capture: Capture, thread: str) -> int:
    return capture.rank.pid if thread == "main" else capture.rank.pid + 13


def _process(pid: int, name: str, labels: str, sort: int) -> list[Event]:
    return [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}},
        {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": labels}},
        {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": sort}},
    ]


def _thread(pid: int, tid: int, name: str) -> list[Event]:
    return [
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}},
        {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}},
    ]


def _x(name: str, pid: int, tid: int, start: int, end: int, args: Event) -> Event:
    return {"name": name, "pid": pid, "tid": tid, "ts": us(start), "dur": (end - start) / 1000, "args": args, "ph": "X"}


def _python(capture: Capture) -> list[Event]:
    pid = capture.rank.pid
    out = _process(pid, "Python", "CPU", 0)
    for thread in ("main", "acl"):
        out += _thread(pid, _tid(capture, thread), f"Thread {_tid(capture, thread)}")
    for number, span in enumerate(sorted((s for s in capture.spans if s.cat != "cann"), key=lambda s: s.end)):
        args: Event = {"correlation_id": span.id}
        if span.cat == "python_function":
            args = {"Python id": number, "Python parent id": None}
        if span.cat == "cpu_op":
            args = {"Sequence number": -1, "Fwd thread id": 0}
            if span.name.startswith("aten::"):
                args |= {"Input Dims": "8;\r\n", "Input type": "long int;\r\nScalar"}
        event = _x(span.name, pid, _tid(capture, span.thread), span.start, span.end, args)
        out.append({"ph": "X", **event, "cat": span.cat})
    return out


def _cann(capture: Capture) -> list[Event]:
    pid = _pid(capture, 7, host=True)
    level0 = capture.config.level0
    out = _process(pid, "CANN", "CPU", 7)
    if level0:  # the exporter drops the name and every slice, and leaves the rest
        out = out[1:]
    for thread in ("main", "acl"):
        out += _thread(pid, _tid(capture, thread), f"Thread {_tid(capture, thread)}")
    if level0:
        return out
    for span in capture.spans:
        if span.cat != "cann":
            continue
        kind, _, api = span.name.partition("@")
        level, mode = LEVELS[kind]
        args = {
            "Thread Id": _tid(capture, span.thread),
            "Mode": mode,
            "level": level,
            "id": "0" if kind == "Node" else api,
            "item_id": span.item,
            "connection_id": span.id,
        }
        out.append(_x(span.name, pid, _tid(capture, span.thread), span.start, span.end, args))
    return out


def _hardware(capture: Capture) -> list[Event]:
    pid = _pid(capture, HARDWARE)
    out: list[Event] = []
    streams = {t.stream for t in capture.tasks if t.stream >= 0}
    for task in capture.tasks:
        if task.stream < 0:
            continue
        core = task.task_type
        mix = task.kind == "kernel" and core.startswith("MIX")
        args: Event = {
            "Model Id": task.model_id,
            "Task Type": core if task.kind == "kernel" else task.task_type,
            "Physic Stream Id": task.stream,
            "Task Id": task.task_id % 65536,
            "Batch Id": task.task_id // 65536,
            "Subtask Id": 0 if mix else NONE,
            "connection_id": task.connection_id,
        }
        if task.name == "MEMCPY_ASYNC":
            args |= {
                "size(B)": task.size,
                "bandwidth(GB/s)": 0.01,
                "operation": "host to device" if task.size else "device to host",
            }
        event = _x(task.name, pid, task.stream, task.start, task.end, args)
        if capture.config.sub_ns and task.end > task.start:
            event["dur"] += 0.00003125
        out.append(event)
    for number, task in enumerate(t for t in capture.tasks if t.group):
        out += _raw_communication(pid, task, 300 + number)
        streams.add(51)
    out += _process(pid, "Ascend Hardware", f"NPU {capture.config.device(capture.rank.rank)}", HARDWARE)
    for stream in sorted(streams):
        out += _thread(pid, stream, f"Stream {stream}")
    return out


def _raw_communication(pid: int, task: Task, task_id: int) -> list[Event]:
    """What a collective looks like on its stream: FFTS+ sub-tasks that overlap, and writes of no length."""
    middle = max(task.end - 4000, task.start)
    out = []
    for sub, (name, start, end) in enumerate(
        (
            ("Notify Wait", task.start, middle),
            ("SDMA", max(middle - 1500, task.start), task.end),
            ("Write Value", task.end, task.end),
        )
    ):
        args = {"Model Id": NONE, "Task Type": name, "Physic Stream Id": 51, "Task Id": task_id, "Batch Id": 0}
        out.append(_x(name, pid, 51, start, end, {**args, "Subtask Id": sub, "connection_id": task.connection_id}))
    return out


def _communication(capture: Capture) -> list[Event]:
    """Each group's ops and, on two planes, their tasks. The exporter rounds where the CSV truncates: 1 ns later."""
    pid = _pid(capture, COMMUNICATION)
    groups = sorted({t.group for t in capture.tasks if t.group})
    out = (
        _process(pid, "Communication", f"NPU {capture.config.device(capture.rank.rank)}", COMMUNICATION)
        if groups
        else []
    )
    for number in range(len(groups)):
        names = (f"Group {number} Communication", "Plane 0", "Plane 1")
        for lane, name in enumerate(names):
            out += _thread(pid, 3 * number + lane, name)
    for count, task in enumerate(t for t in capture.tasks if t.group):
        lane = 3 * groups.index(task.group)
        args = {
            "connection_id": task.connection_id,
            "model id": task.model_id,
            "data_type": "INT64",
            "alg_type": "MESH-RING",
            "count": 16,
        }
        out.append(_x(task.name, pid, lane, task.start + count % 2, task.end, args))
        wait = max(task.end - 6000, task.start)
        for plane in (1, 2):
            for name, start, end in (("Notify_Wait", task.start, wait), ("Memcpy", wait, task.end)):
                args = {
                    "notify_id": str(70 + plane) if name == "Notify_Wait" else "18446744073709551615",
                    "duration estimated(us)": 0.5,
                    "stream id": 50 + plane,
                    "task id": 300 + count,
                    "context id": 0,
                    "task type": name,
                    "src rank": capture.rank.rank,
                    "dst rank": NONE if name == "Notify_Wait" else (capture.rank.rank + plane) % capture.config.ranks,
                    "transport type": "SDMA",
                    "size(Byte)": 0 if name == "Notify_Wait" else 128,
                    "data type": "INT64",
                    "link type": "ON_CHIP",
                    "bandwidth(GB/s)": 0.0,
                    "model id": task.model_id,
                }
                out.append(_x(name, pid, lane + plane, start, end, args))
    return out


def _overlap(capture: Capture) -> list[Event]:
    pid = _pid(capture, OVERLAP)
    out = _process(pid, "Overlap Analysis", f"NPU {capture.config.device(capture.rank.rank)}", OVERLAP)
    for tid, (name, pairs) in enumerate(overlap(capture).items()):
        out += _thread(pid, tid, name)
        out += [_x(name, pid, tid, start, end, {}) for start, end in pairs]
    return out


def _counters(capture: Capture) -> list[Event]:
    """AI Core Freq and HBM, a sample every 10 ms at most 40 times."""
    frequency, hbm = _pid(capture, FREQUENCY), _pid(capture, HBM)
    label = f"NPU {capture.config.device(capture.rank.rank)}"
    out = _process(frequency, "AI Core Freq", label, FREQUENCY) + _process(hbm, "HBM", label, HBM)
    begin, end = capture.window
    every = max((end - begin) // 40, 1_000_000)
    for number, at in enumerate(range(begin, end, every)):
        out.append(
            {
                "name": "HBM 0/Read",
                "ts": us(at),
                "pid": hbm,
                "tid": 0,
                "args": {"Read(MB/s)": 812.5 + number},
                "ph": "C",
            }
        )
    out.append({"name": "AI Core Freq", "ts": us(begin), "pid": frequency, "tid": 0, "args": {"MHz": 1800}, "ph": "C"})
    return out


def _flows(capture: Capture) -> list[Event]:
    """async_task_queue (Enqueue to Dequeue), async_npu (op to task), HostToDevice (CANN call to task)."""
    rank = capture.rank
    python, cann, hardware, comm = (
        rank.pid,
        _pid(capture, 7, host=True),
        _pid(capture, HARDWARE),
        _pid(capture, COMMUNICATION),
    )
    here = {id(s) for s in capture.spans}
    groups = sorted({t.group for t in capture.tasks if t.group})
    out: list[Event] = []

    def arrow(ph: str, name: str, flow: int | str, pid: int, tid: int, ts: int, cat: str) -> None:
        event: Event = {"ph": ph, "bp": "e", "name": name, "id": flow, "pid": pid, "tid": tid, "ts": us(ts), "cat": cat}
        if cat == "HostToDevice" and ph == "s":
            del event["bp"]
        out.append(event)

    for enqueue, dequeue in rank.queue:
        if id(enqueue) in here:
            arrow(
                "s", "enqueue_to_dequeue", enqueue.id, python, _tid(capture, "main"), enqueue.start, "async_task_queue"
            )
        if id(dequeue) in here:
            arrow(
                "f", "enqueue_to_dequeue", dequeue.id, python, _tid(capture, "acl"), dequeue.start, "async_task_queue"
            )
    collectives = 0
    for task in capture.tasks:
        pid, tid, start = hardware, task.stream, task.start
        if task.group:
            pid, tid = comm, 3 * groups.index(task.group)
            start += collectives % 2
            collectives += 1
        op: Span | None = task.op
        while op is not None and id(op) not in here:  # the profiler came too late for the inner range
            op = op.parent
        if op is not None and task.call is not None:
            arrow("s", "torch_to_npu", start, python, _tid(capture, op.thread), op.start, "async_npu")
            arrow("f", "torch_to_npu", start, pid, tid, start, "async_npu")
        call = task.call
        if call is not None and id(call) in here:
            flow = str(call.id << 32)
            at = call.start + (call.end - call.start) // 3 if call.name == "Node@launch" else call.start
            arrow("s", f"HostToDevice{flow}", flow, cann, _tid(capture, call.thread), at, "HostToDevice")
            arrow("f", f"HostToDevice{flow}", flow, pid, tid, start, "HostToDevice")
    return out
