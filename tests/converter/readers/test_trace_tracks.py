"""Which track a thread becomes, on small inputs written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from converter.readers.trace_counters import Series, label_and_unit
from converter.readers.trace_json import TraceParts, read_trace_json
from converter.readers.trace_tracks import Process, device_of
from schemas.timeline import Host, Kind, Role, Timeline


def meta(kind: str, pid: Any, tid: Any = 0, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def event(name: str, pid: Any, tid: Any, ts: int, cat: str = "", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{ts}.000", "dur": 1, "cat": cat, "args": args}


def read(path: Path, events: list[dict[str, Any]]) -> tuple[Timeline, TraceParts, dict[str, list[str]]]:
    """And per slice name its track and the tracks above, from the root down."""
    path = path / "trace_view.json"
    path.write_text(json.dumps(events))
    timeline = Timeline(3, "t")
    parts = read_trace_json([path], timeline)
    above: dict[str, list[str]] = {}
    for batch in timeline.slices:
        for name, track in zip(batch.name.tolist(), batch.track.tolist(), strict=True):
            names = []
            while track >= 0:
                names.insert(0, timeline.tracks[track].name)
                track = timeline.tracks[track].parent
            above[timeline.strings[name]] = names
    return timeline, parts, above


def test_planes_follow_their_group(tmp_path: Path) -> None:
    """By sort index, in any order in the file; a group without slices still holds its planes."""
    events = [
        *(event(f"p{tid}", 9, tid, 10 + tid, **{"task id": 1}) for tid in (4, 1, 3)),
        event("op", 9, 0, 9, connection_id=4),
        *(meta("thread_sort_index", 9, tid, sort_index=tid) for tid in range(5)),
        meta("thread_name", 9, 0, name="Group a Communication"),
        meta("thread_name", 9, 1, name="Plane 0"),
        meta("thread_name", 9, 2, name="Group b Communication"),
        meta("thread_name", 9, 3, name="Plane 0"),
        meta("thread_name", 9, 4, name="Plane 1"),
        meta("process_name", 9, name="Communication"),
    ]
    timeline, parts, above = read(tmp_path, events)
    root = ["Rank 3", "Communication"]
    assert above["op"] == [*root, "Group a Communication"]
    assert above["p1"] == [*root, "Group a Communication", "Plane 0"]
    assert above["p3"] == [*root, "Group b Communication", "Plane 0"]
    assert above["p4"] == [*root, "Group b Communication", "Plane 1"]
    assert parts.communication is not None
    assert [timeline.strings[n] for n in parts.communication.name] == ["op"]
    assert [c.key for b in parts.planes for c in b.columns] == ["task_id"]


def test_host(tmp_path: Path) -> None:
    """Threads of Python are threads; CANN's have the same tids and are lanes."""
    events = [
        meta("process_name", 70, name="Python"),
        meta("process_name", 71, name="CANN"),
        meta("process_name", 72, name="Python GC"),
        event("op", 70, 7, 1, "cpu_op"),
        event("frame", 70, 7, 2, "python_function"),
        event("Enqueue", 70, 7, 3, "enqueue", correlation_id=5),
        event("api", 71, 7, 4, connection_id=6),
        event("gc", 72, 7, 5, "GC"),
        event("lane", 70, 0, 6, "cpu_op"),
    ]
    timeline, parts, above = read(tmp_path, events)
    assert above["op"] == above["frame"] == ["Rank 3", "Thread 7"]
    assert above["api"] == ["Rank 3", "CANN", "Thread 7"]
    assert above["gc"] == ["Rank 3", "Python GC", "Thread 7"]
    assert [(t.kind, t.pid, t.tid) for t in timeline.tracks if t.tid] == [(Kind.THREAD, 70, 7)]
    assert [t.name for t in timeline.tracks if t.role is Role.CANN] == ["Thread 7"]
    found = {
        timeline.strings[name]: (Host(source), connection, correlation)
        for part in parts.host
        for name, source, connection, correlation in zip(
            part.batch.name.tolist(),
            part.source.tolist(),
            part.connection_id.tolist(),
            part.correlation_id.tolist(),
            strict=True,
        )
    }
    assert found["op"] == (Host.FRAMEWORK, -1, -1)
    assert found["frame"] == (Host.PYTHON, -1, -1)
    assert found["Enqueue"] == (Host.ENQUEUE, -1, 5)
    assert found["api"] == (Host.CANN, 6, -1)
    assert found["gc"] == (Host.OTHER, -1, -1)


def test_hardware_is_one_batch_under_canonical_keys(tmp_path: Path) -> None:
    none = 4294967295
    events = [
        meta("process_name", 9, name="Ascend Hardware"),
        event("b", 9, 2, 5, **{"Model Id": none, "Task Id": 1, "Physic Stream Id": 2, "Task Type": "AI_CORE"}),
        event("a", 9, 3, 1, **{"Task Id": 4, "Model Id": 7, "Physic Stream Id": 8, "size(B)": 2.5}),
        event("c", 9, 3, 1, **{"Task Id": "x", "Task Type": 5}),
    ]
    timeline, parts, _ = read(tmp_path, events)
    batch = parts.hardware
    assert batch is not None
    assert len(timeline.slices) == 1
    assert [timeline.strings[n] for n in batch.name] == ["b", "a", "c"]
    assert parts.stream_id.tolist() == [2, 3, 3]
    assert sorted(timeline.warnings) == [
        f"trace_view.json: 1 {key} of another type, kept as {key}_raw" for key in ("task_id", "task_type")
    ]
    values = {}
    for column in batch.columns:
        assert column.valid is not None
        values[column.key] = [
            None if not ok else timeline.strings[v] if column.kind == "text" else v
            for v, ok in zip(column.values.tolist(), column.valid.tolist(), strict=True)
        ]
    assert values == {
        "model_id": [None, 7, None],
        "task_id": [1, 4, None],
        "task_id_raw": [None, None, "x"],
        "task_type": ["AI_CORE", None, None],
        "task_type_raw": [None, None, 5],
        "Physic Stream Id": [None, 8, None],  # differs from its track
        "size(B)": [None, 2.5, None],
    }


def test_relative_times_are_legal(tmp_path: Path) -> None:
    timeline, parts, _ = read(tmp_path, [event("a", 1, 1, 5), event("b", 1, 1, 9)])
    assert parts.relative
    assert timeline.tally.slices.dropped == {}


@pytest.mark.parametrize(
    ("process", "device"),
    [
        (Process(3170822561, "Ascend Hardware", "NPU", 13), 1),
        (Process(3170822561, "Ascend Hardware", "NPU 5", 13), 5),
        (Process(800, "Ascend Hardware", "NPU", 13), 0),  # the encoding of 2023
        (Process(3170822369, "CANN", "CPU", 7), 1),
        (Process((77 << 10) | (7 << 5) | 31, "CANN", "CPU", 7), 0),
        (Process("text", "Ascend Hardware"), 0),
    ],
)
def test_device(process: Process, device: int) -> None:
    assert device_of(process) == device


@pytest.mark.parametrize(
    ("name", "id_", "key", "which", "label", "unit"),
    [
        ("HBM 0/Read", "", "Read(MB/s)", (), "HBM 0/Read", "MB/s"),
        ("LLC 0 Read/Hit Rate", "", "Hit Rate(%)", (), "LLC 0 Read/Hit Rate", "%"),
        ("read_bandwidth", "", "value", (("acc_id", "3"),), "read_bandwidth acc_id 3", ""),
        ("AI Core Freq", "", "MHz", (), "AI Core Freq", "MHz"),
        ("Memory", "0x5", "Total Reserved", (), "Memory Total Reserved 0x5", ""),
        ("", "", "KB", (), "KB", "KB"),
    ],
)
def test_counter_label(name: str, id_: str, key: str, which: Any, label: str, unit: str) -> None:
    assert label_and_unit(Series(0, name, id_, key, which)) == (label, unit)
