"""Real captures against Python's json with exact decimals: every slice, counter sample and flow, nothing more."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converter.readers.trace_json import TraceParts, read_trace_json
from schemas.timeline import Kind, Role, Timeline
from schemas.trace_keys import PLANE_FLOATS

CAPTURES = [
    "train_cann80_level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "train_cann80_level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "train_cann80_level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "msprof_2026/PROF_000001_20260823165326062_00625538CIGQAHCJ/mindstudio_profiler_output/msprof_20260823165334.json",
]


def ns(us: object) -> int:
    return int((Decimal(str(us).strip()) * 1000).to_integral_value(ROUND_HALF_EVEN))


@pytest.fixture(scope="module", params=CAPTURES)
def capture(request: pytest.FixtureRequest, shared: Path) -> tuple[list[dict[str, Any]], Timeline, TraceParts]:
    path = shared / "captures" / request.param
    events = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    timeline = Timeline(0, "capture")
    return events, timeline, read_trace_json([path], timeline)


def slices_of(timeline: Timeline) -> list[tuple[str, str, int, int]]:
    """(name, track name, ts, dur) of every slice, by global number."""
    out = []
    for batch in timeline.slices:
        assert batch.first == len(out)
        for track, name, ts, dur in zip(batch.track, batch.name, batch.ts.tolist(), batch.dur.tolist(), strict=True):
            out.append((timeline.strings[name], timeline.tracks[track].name, ts, dur))
    return out


def test_slices(capture: tuple[list[dict[str, Any]], Timeline, TraceParts]) -> None:
    events, timeline, _ = capture
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    want = Counter((e["name"], names[e["pid"], e["tid"]], ns(e["ts"]), ns(e["dur"])) for e in events if e["ph"] == "X")
    assert Counter(slices_of(timeline)) == want
    assert timeline.tally.slices.read == timeline.tally.slices.written == want.total()
    assert not timeline.warnings


def test_arguments(capture: tuple[list[dict[str, Any]], Timeline, TraceParts]) -> None:
    """Values as multisets per slice; keys may be canonical, streams are on the track, "none" is absent."""
    events, timeline, _ = capture
    want: Counter[Any] = Counter()
    for e in events:
        if e["ph"] == "X":
            values = [
                str(float(v)) if isinstance(v, Decimal) or k in PLANE_FLOATS else str(v)
                for k, v in e.get("args", {}).items()
                if v != ""
                and k not in ("Physic Stream Id",)
                and not (v == 4294967295 and k.lower() in ("model id", "subtask id"))
            ]
            want[e["name"], ns(e["ts"]), tuple(sorted(values))] += 1
    have: Counter[Any] = Counter()
    for batch in timeline.slices:
        assert batch.extra is None
        rows: list[list[str]] = [[] for _ in range(len(batch))]
        for column in batch.columns:
            valid = np.ones(len(batch), bool) if column.valid is None else column.valid
            for row in np.flatnonzero(valid).tolist():
                value = column.values[row]
                rows[row].append(timeline.strings[value] if column.kind == "text" else str(value.item()))
        for row, values in enumerate(rows):
            have[timeline.strings[batch.name[row]], int(batch.ts[row]), tuple(sorted(values))] += 1
    assert have == want


def test_counters(capture: tuple[list[dict[str, Any]], Timeline, TraceParts]) -> None:
    events, timeline, _ = capture
    want: dict[Any, Counter[tuple[int, float]]] = defaultdict(Counter)
    process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    for e in events:
        if e["ph"] == "C":
            which = tuple(f"{k} {v}" for k, v in e["args"].items() if k.endswith("id"))
            for key, value in e["args"].items():
                if not key.endswith("id"):
                    want[process[e["pid"]], " ".join((e["name"], *which)), key][ns(e["ts"]), float(value)] += 1
    have: dict[Any, Counter[tuple[int, float]]] = defaultdict(Counter)
    for batch in timeline.counters:
        for track, ts, value in zip(batch.track, batch.ts.tolist(), batch.values.tolist(), strict=True):
            have[int(track)][ts, float(value)] += 1
    found = {}
    for index, track in enumerate(timeline.tracks):
        if track.kind is Kind.COUNTER:
            assert timeline.tracks[track.parent].kind is Kind.GROUP
            found[timeline.tracks[track.parent].name, track.name, track.unit] = have[index]
    assert len(found) == len(want)
    for (group, name, key), samples in want.items():
        unit = {"value": "", "MHz": "MHz", "KB": "KB"}.get(key, key[key.find("(") + 1 : -1] if "(" in key else "")
        assert found[group, name, unit] == samples
    assert timeline.tally.counters.read == sum(c.total() for c in want.values()) == timeline.tally.counters.written


def test_flows(capture: tuple[list[dict[str, Any]], Timeline, TraceParts]) -> None:
    events, timeline, _ = capture
    threads = defaultdict(list)
    ends: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: {"s": [], "f": []})
    for e in events:
        if e["ph"] == "X":
            threads[e["pid"], e["tid"]].append((e["name"], ns(e["ts"]), ns(e["dur"])))
        elif e["ph"] in "sf":
            ends[e["cat"], str(e["id"])][e["ph"]].append(e)

    def innermost(e: dict[str, Any]) -> tuple[int, int] | None:
        at = ns(e["ts"])
        covering = [(ts, -dur) for _, ts, dur in threads[e["pid"], e["tid"]] if ts <= at <= ts + dur]
        return max(covering, default=None)

    want: Counter[Any] = Counter()
    lost = 0
    for (category, _), points in ends.items():
        lost += 0 if points["s"] else len(points["f"])
        lost += 0 if points["f"] else len(points["s"])
        for s, f in itertools.product(points["s"], points["f"]):
            out, into = innermost(s), innermost(f)
            if out and into:
                want[category, ns(s["ts"]), out, into] += 1
            else:
                lost += 1
    slices = slices_of(timeline)
    have: Counter[Any] = Counter()
    for batch in timeline.flows:
        for out, into, ts in zip(batch.out.tolist(), batch.into.tolist(), batch.out_ts.tolist(), strict=True):
            (*_, out_ts, out_dur), (*_, in_ts, in_dur) = slices[out], slices[into]
            have[timeline.strings[batch.category], ts, (out_ts, -out_dur), (in_ts, -in_dur)] += 1
    assert have == want
    assert sum(timeline.tally.flows.dropped.values()) == lost
    assert timeline.tally.flows.read == want.total() + lost


def test_parts(capture: tuple[list[dict[str, Any]], Timeline, TraceParts]) -> None:
    events, timeline, parts = capture
    process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    by_process = Counter(process.get(e["pid"]) for e in events if e["ph"] == "X")
    assert parts.hardware is not None
    assert len(parts.hardware) == by_process["Ascend Hardware"] == len(parts.device_id) == len(parts.stream_id)
    communication = 0 if parts.communication is None else len(parts.communication)
    assert communication + sum(map(len, parts.planes)) == by_process["HCCL"]
    assert sum(len(h.batch) for h in parts.host) == by_process["Python"] + by_process["CANN"]
    for host in parts.host:
        assert len(host.source) == len(host.connection_id) == len(host.correlation_id) == len(host.batch)
    assert parts.pid == next((pid for pid, name in process.items() if name == "Python"), None)
    assert not parts.relative
    assert not parts.is_kineto
    for batch_track in np.unique(parts.hardware.track):
        assert timeline.tracks[batch_track].role is Role.STREAM
    order = [e["name"] for e in events if e["ph"] == "X" and process.get(e["pid"]) == "Ascend Hardware"]
    assert [timeline.strings[n] for n in parts.hardware.name] == order


def test_numbers_of_plane_tasks_have_one_type_each(shared: Path) -> None:
    from converter.readers.trace_json import read_trace_json
    from schemas.timeline import Timeline

    timeline = Timeline(0, "x")
    path = shared / "captures/train_cann80_level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json"
    parts = read_trace_json([path], timeline)
    kinds = {(c.key, c.kind) for batch in parts.planes for c in batch.columns}
    assert len({key for key, _ in kinds}) == len(kinds)
    assert {
        ("size(Byte)", "int"),
        ("bandwidth(GB/s)", "float"),
        ("src rank", "int"),
        ("transport type", "text"),
    } <= kinds
