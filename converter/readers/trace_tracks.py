"""Processes and threads of a trace JSON to tracks of the Timeline.

Processes are told by `process_name`, never by pid; names may come after the events. What goes where: design.md,
"The trace". Threads without slices get no track.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas import trace_keys as keys
from schemas.timeline import NULL, Int32, Kind, Role, Timeline

Key = int | str
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,40}")
_MAX_OS_ID = 2**31 - 1
_LAST = 1 << 62


@dataclass(frozen=True)
class AsyncId:
    """The thread of asynchronous events of one id and name."""

    category: str
    id: str
    name: str


@dataclass
class Process:
    """What the metadata events of one pid say."""

    pid: Key
    name: str = ""
    label: str = ""
    sort_index: int | None = None


@dataclass
class Thread:
    process: int  # index
    tid: Key | AsyncId
    name: str = ""
    sort_index: int | None = None


def _key(value: object) -> Key | AsyncId:
    """A pid or tid: the same for 7, 7.0 and "7"."""
    if isinstance(value, (AsyncId, int)):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    text = "" if value is None else str(value)
    return int(text) if _INTEGER.fullmatch(text) else text


class Threads(dict[tuple[object, object], int]):
    """The index of a thread by (pid, tid) as decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []
        self.threads: list[Thread] = []
        self._process_index: dict[Key, int] = {}
        self._index: dict[tuple[int, object], int] = {}

    def __missing__(self, key: tuple[object, object]) -> int:
        process = self.process(key[0])
        tid = _key(key[1])
        found = self._index.get((process, tid))
        if found is None:
            found = self._index[process, tid] = len(self.threads)
            self.threads.append(Thread(process, tid))
        self[key] = found
        return found

    def process(self, pid: object) -> int:
        """The index of a process."""
        key = _key(pid)
        assert not isinstance(key, AsyncId)
        found = self._process_index.get(key)
        if found is None:
            found = self._process_index[key] = len(self.processes)
            self.processes.append(Process(key))
        return found


class Where(enum.IntEnum):
    """The part of the trace that a thread's slices belong to."""

    HARDWARE = 0  # streams of a device
    COMMUNICATION = 1  # collectives of a group
    PLANE = 2  # tasks of collectives
    OVERLAP = 3
    HOST = 4


@dataclass
class Placement:
    """Per thread (arrays [threads]): its track (NULL where it has no slices), its part, its device."""

    track: Int32
    where: Int32
    device: Int32
    pid: int | None = None  # of the Python process
    groups: dict[int, int] = field(default_factory=dict)  # process -> its group track
    group_names: set[str] = field(default_factory=set)


def process_track(timeline: Timeline) -> int:
    """The track of the rank's process, made where the Timeline has none."""
    for index, track in enumerate(timeline.tracks):
        if track.kind is Kind.PROCESS:
            return index
    return timeline.track(f"Rank {timeline.rank}", Kind.PROCESS)


def device_of(process: Process) -> int:
    """The device that a process is about: from the label `NPU 1`, else from an exporter's pid, else 0.

    An exporter's pid is (OS pid << 10) | (sort index << 5) | device.
    """
    label = re.fullmatch(r"NPU (\d{1,6})", process.label)
    if label:
        return int(label[1])
    if isinstance(process.pid, int) and process.pid >> 10 > 0 and process.sort_index is not None:
        device = process.pid & 31
        if (process.pid >> 5) & 31 == process.sort_index and device != keys.HOST_DEVICE:
            return device
    return 0


def _thread_order(threads: Threads, index: int) -> tuple[int, int, int]:
    thread = threads.threads[index]
    tid = thread.tid if isinstance(thread.tid, int) else _LAST
    return (tid if thread.sort_index is None else thread.sort_index, tid, index)


def group_track(timeline: Timeline, threads: Threads, placement: Placement, process_index: int) -> int:
    """The track that holds what a process has beside threads of the OS."""
    found = placement.groups.get(process_index)
    if found is not None:
        return found
    process = threads.processes[process_index]
    if process.name == keys.HARDWARE:
        name = f"NPU {device_of(process)}"
    elif process.name in keys.COMMUNICATION:
        name = "Communication"
    else:
        name = process.name or (f"Process {process.pid}" if process.pid != "" else "No process")
    if name in placement.group_names:
        name = f"{name} {process.label or process.pid}" if process.name != keys.HARDWARE else name
    fields: dict[str, Any] = {}
    if process.name == keys.HARDWARE:
        device = device_of(process)
        fields = {"device": device, "explicit_order": True, "order": 10 + device}
    track = timeline.track(name, Kind.GROUP, parent=process_track(timeline), **fields)
    placement.groups[process_index] = track
    placement.group_names.add(name)
    return track


def place(
    timeline: Timeline, threads: Threads, used: Iterable[int], gpu: frozenset[int], host: frozenset[int]
) -> Placement:
    """Makes the tracks. used: threads with slices; gpu: threads that are streams of a GPU; host: threads with events
    of the framework, which in a trace without a process named Python tell its process."""
    count = len(threads.threads)
    placement = Placement(
        np.full(count, NULL, np.int32), np.full(count, Where.HOST, np.int32), np.full(count, NULL, np.int32)
    )
    by_process: dict[int, list[int]] = {}
    for index in used:
        by_process.setdefault(threads.threads[index].process, []).append(index)
    everyone: dict[int, list[int]] = {}
    for index, thread in enumerate(threads.threads):
        everyone.setdefault(thread.process, []).append(index)
    python = _python_process(threads, by_process, gpu, host)
    order = sorted(by_process, key=lambda p: (_sort_index(threads.processes[p]), p))
    for number in order:
        process = threads.processes[number]
        members = sorted(by_process[number], key=lambda index: _thread_order(threads, index))
        if number == python:
            _place_python(timeline, threads, placement, members)
        elif process.name == keys.HARDWARE or any(index in gpu for index in members):
            _place_streams(timeline, threads, placement, number, members, gpu)
        elif process.name in keys.COMMUNICATION:
            _place_communication(timeline, threads, placement, number, members, everyone[number])
        else:
            _place_others(timeline, threads, placement, number, members)
    return placement


def _sort_index(process: Process) -> int:
    return _LAST if process.sort_index is None else process.sort_index


def _python_process(
    threads: Threads, by_process: dict[int, list[int]], gpu: frozenset[int], host: frozenset[int]
) -> int | None:
    """The process named Python; without one and with GPU streams, the first that has events of the framework."""
    for number in sorted(by_process):
        if threads.processes[number].name == keys.PYTHON:
            return number
    if gpu:
        for number in sorted(by_process):
            members = by_process[number]
            if any(index in host for index in members) and not any(index in gpu for index in members):
                return number
    return None


def _thread_name(thread: Thread) -> str:
    if isinstance(thread.tid, AsyncId):
        return f"{thread.tid.name} {thread.tid.id}".strip()
    return thread.name or (f"Thread {thread.tid}" if isinstance(thread.tid, int) else thread.tid or "No thread")


def _place_python(timeline: Timeline, threads: Threads, placement: Placement, members: list[int]) -> None:
    parent = process_track(timeline)
    pid = threads.processes[threads.threads[members[0]].process].pid
    real = isinstance(pid, int) and 0 < pid <= _MAX_OS_ID
    placement.pid = pid if real and isinstance(pid, int) else None
    for index in members:
        thread = threads.threads[index]
        name = _thread_name(thread)
        if real and isinstance(pid, int) and isinstance(thread.tid, int) and 0 < thread.tid <= _MAX_OS_ID:
            track = timeline.track(name, Kind.THREAD, parent=parent, role=Role.HOST, pid=pid, tid=thread.tid)
        else:
            track = timeline.track(name, Kind.LANE, parent=parent, role=Role.HOST)
        placement.track[index] = track


def _place_streams(
    timeline: Timeline,
    threads: Threads,
    placement: Placement,
    number: int,
    members: list[int],
    gpu: frozenset[int],
) -> None:
    process = threads.processes[number]
    is_npu = process.name == keys.HARDWARE
    device = device_of(process) if is_npu else 0
    if not is_npu and isinstance(process.pid, int) and 0 <= process.pid <= _MAX_OS_ID:
        device = process.pid
    if not is_npu:
        placement.groups[number] = timeline.track(
            f"GPU {device}", Kind.GROUP, parent=process_track(timeline), device=device, explicit_order=True
        )
        placement.group_names.add(f"GPU {device}")
    group = group_track(timeline, threads, placement, number)
    for index in members:
        thread = threads.threads[index]
        if not is_npu and index not in gpu:
            placement.track[index] = timeline.track(_thread_name(thread), Kind.LANE, parent=group)
            continue
        stream = thread.tid if isinstance(thread.tid, int) and 0 <= thread.tid < _LAST else NULL
        name = f"Stream {stream}" if stream != NULL and (not is_npu or not thread.name) else _thread_name(thread)
        placement.track[index] = timeline.track(
            name, Kind.LANE, parent=group, role=Role.STREAM, device=device, stream=stream, order=max(stream, 0)
        )
        placement.where[index] = Where.HARDWARE
        placement.device[index] = device


def _place_communication(
    timeline: Timeline, threads: Threads, placement: Placement, number: int, members: list[int], everyone: list[int]
) -> None:
    """`Plane k` threads follow the thread of their group, by sort index and tid. The group may have no slices.

    everyone: all threads of the process, those without slices too."""
    group = group_track(timeline, threads, placement, number)
    device = device_of(threads.processes[number])
    used = set(members)
    parent = group
    waiting: Thread | None = None
    for index in sorted(everyone, key=lambda index: _thread_order(threads, index)):
        thread = threads.threads[index]
        plane = thread.name.startswith("Plane")
        if not plane:
            parent, waiting = group, thread if thread.name.startswith("Group") else None
        if index not in used:
            continue
        if plane and waiting is not None:
            parent = timeline.track(waiting.name, Kind.LANE, parent=group, role=Role.COMMUNICATION, device=device)
            waiting = None
        role = Role.PLANE if plane else Role.COMMUNICATION
        track = timeline.track(_thread_name(thread), Kind.LANE, parent=parent, role=role, device=device)
        if not plane:
            parent, waiting = track, None
        placement.track[index] = track
        placement.where[index] = Where.PLANE if plane else Where.COMMUNICATION
        placement.device[index] = device


def _place_others(timeline: Timeline, threads: Threads, placement: Placement, number: int, members: list[int]) -> None:
    process = threads.processes[number]
    role = {keys.CANN: Role.CANN, keys.OVERLAP: Role.OVERLAP, keys.PYTHON: Role.HOST}.get(process.name, Role.NONE)
    group = group_track(timeline, threads, placement, number)
    for index in members:
        placement.track[index] = timeline.track(
            _thread_name(threads.threads[index]), Kind.LANE, parent=group, role=role
        )
        if process.name == keys.OVERLAP:
            placement.where[index] = Where.OVERLAP
