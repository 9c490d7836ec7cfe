"""The cases of broken, odd and hostile trace JSON: what each expects of slices and flows, asked of the reader."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from converter.readers.trace_json import TraceParts, read_trace_json
from schemas.errors import InputError
from schemas.timeline import Kind, Role, Timeline

MAX_BYTES = 1 << 30
EPOCH_NS = 1767000000 * 10**9


def read(path: Path, rank: int = 0) -> tuple[Timeline, TraceParts]:
    timeline = Timeline(rank, str(path))
    parts = read_trace_json([path], timeline, max_input_bytes=MAX_BYTES)
    for tally in (timeline.tally.slices, timeline.tally.flows, timeline.tally.counters):
        assert tally.written >= 0
        assert set(tally.first) == set(tally.dropped), "every reason names its first place"
    assert timeline.tally.slices.written == sum(map(len, timeline.slices))
    assert timeline.tally.flows.written == sum(len(f.out) for f in timeline.flows)
    assert timeline.tally.counters.written == sum(map(len, timeline.counters))
    for batch in timeline.slices:
        assert (batch.dur >= 0).all()
        assert (batch.track > 0).all()
    return timeline, parts


def slices(timeline: Timeline) -> list[tuple[str, int, int]]:
    return [
        (timeline.strings[name], ts, dur)
        for batch in timeline.slices
        for name, ts, dur in zip(batch.name.tolist(), batch.ts.tolist(), batch.dur.tolist(), strict=True)
    ]


def flows(timeline: Timeline) -> set[tuple[str, str]]:
    names = [name for name, _, _ in slices(timeline)]
    return {(names[o], names[i]) for f in timeline.flows for o, i in zip(f.out.tolist(), f.into.tolist(), strict=True)}


def case_files(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.suffix in (".json", ".gz") and p.name != "expect.json"]


def names_of(shared: Path) -> list[str]:
    folders = [p for pattern in ("json_*", "flow_*", "gz_*", "kineto_*") for p in (shared / "cases").glob(pattern)]
    return sorted(p.name for p in folders if case_files(p))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        shared = Path(__file__).resolve().parents[3].parent / "shared"
        names = names_of(shared) if shared.is_dir() else []
        metafunc.parametrize("case", names)


def test_case(case: str, shared: Path) -> None:
    folder = shared / "cases" / case
    expect = json.loads((folder / "expect.json").read_text())
    (path,) = case_files(folder)
    statuses = expect["exit"] if isinstance(expect["exit"], list) else [expect["exit"]]
    try:
        timeline, _ = read(path)
    except InputError as error:
        assert 1 in statuses
        assert path.name in str(error)
        return
    assert 0 in statuses or 3 in statuses
    said = " ".join(timeline.warnings) + json.dumps(
        [t.as_dict() for t in (timeline.tally.slices, timeline.tally.flows, timeline.tally.counters)]
    )
    queries = list(expect.get("sql", []))
    if "kept_or_said" in expect:
        wanted = {tuple(row) for row in expect["kept_or_said"]["rows"] if len(row) == 3}
        assert wanted <= set(slices(timeline)) or re.search(expect["kept_or_said"]["matches"], said)
    for entry in queries:
        check(entry, timeline)
    for pattern in expect.get("report_matches", []):
        if not re.search(pattern, said, re.IGNORECASE):
            dropped = timeline.tally.flows.dropped or timeline.tally.slices.dropped
            assert dropped, f"nothing says {pattern}: {said}"
    low, high = expect.get("dropped_slices", {}).get("min", 0), expect.get("dropped_slices", {}).get("max", 10**9)
    assert low <= sum(timeline.tally.slices.dropped.values()) <= high
    if statuses == [3]:
        assert timeline.damaged


def check(entry: dict[str, Any], timeline: Timeline) -> None:
    query, rows = entry["query"], entry["rows"]
    if query.startswith("SELECT name, ts, dur FROM slice"):
        names = set(re.findall(r"'(\w+)'", query))
        have = sorted((ts, name, dur) for name, ts, dur in slices(timeline) if name in names)
        assert [[name, ts, dur] for ts, name, dur in have] == rows
    elif "FROM flow" in query:
        have_flows = {f for f in flows(timeline) if all(name.startswith("case_") for name in f)}
        assert have_flows == {tuple(row) for row in rows}
    elif "AS apart" in query:
        by_name = {name: (ts, dur) for name, ts, dur in slices(timeline)}
        (a, dur_a), (b, dur_b) = by_name["case_a"], by_name["case_kernel"]
        assert [[b - a, dur_a, dur_b]] == rows


def test_kineto(shared: Path) -> None:
    timeline, parts = read(shared / "cases/kineto_object_form/host-TP-3.trace.json")
    assert parts.is_kineto
    assert not parts.relative
    assert parts.pid == 26
    assert parts.header["distributedInfo"]["rank"] == 3
    assert parts.hardware is not None
    (task_type,) = [c for c in parts.hardware.columns if c.key == "task_type"]
    assert timeline.strings[task_type.values[0]] == "kernel"
    assert (parts.device_id.tolist(), parts.stream_id.tolist()) == ([0], [7])
    track = timeline.tracks[parts.hardware.track[0]]
    assert (track.name, track.role, timeline.tracks[track.parent].name) == ("Stream 7", Role.STREAM, "GPU 0")
    starts = {name: ts for name, ts, _ in slices(timeline)}
    assert starts["case_a"] == 1766000000000000000 + 1000000000123
    assert [t.kind for t in timeline.tracks if t.tid == 98] == [Kind.THREAD]


def test_two_devices(shared: Path) -> None:
    timeline, parts = read(shared / "cases/json_two_processes_of_one_name/trace_view.json")
    assert parts.device_id.tolist() == [0, 1]
    assert [t.name for t in timeline.tracks if t.name.startswith("NPU")] == ["NPU 0", "NPU 1"]


def test_phases(shared: Path) -> None:
    timeline, _ = read(shared / "cases/json_phases_of_every_kind/trace_view.json")
    found = slices(timeline)
    assert ("case_be", EPOCH_NS + 70000, 1500) in found
    assert found.count(("case_ph", EPOCH_NS + 60000, 0)) == 5  # i, I, R, n and the pair b/e
    assert sum(len(b) for b in timeline.slices if b.instant) == 4
    assert timeline.tally.slices.dropped == {"unknown phase": 9}
    assert timeline.tally.flows.dropped == {"no start": 1}
    assert any("'Q'" in line for line in timeline.warnings)


def test_counters(shared: Path) -> None:
    timeline, _ = read(shared / "cases/json_counters_of_every_kind/trace_view.json")
    tally = timeline.tally.counters
    assert tally.dropped == {"not a number": 3, "malformed event": 1}
    tracks = [(t.name, t.unit) for t in timeline.tracks if t.kind is Kind.COUNTER]
    assert tracks == [("AI Core Freq", "MHz"), ("AI Core Freq acc_id 1", ""), ("AI Core Freq acc_id 2", "")]
    samples = sorted(
        (timeline.tracks[track].name, ts - EPOCH_NS, value)
        for batch in timeline.counters
        for track, ts, value in zip(batch.track.tolist(), batch.ts.tolist(), batch.values.tolist(), strict=True)
    )
    assert samples == [
        ("AI Core Freq", 0, 1800),
        ("AI Core Freq", 5, 1850.5),
        ("AI Core Freq", 8, -1),
        ("AI Core Freq acc_id 1", 6, 3),
        ("AI Core Freq acc_id 2", 7, 4),
    ]


def test_threads_are_not_merged(shared: Path) -> None:
    timeline, parts = read(shared / "cases/json_pids_out_of_range/trace_view.json")
    track_of = {
        timeline.strings[n]: t for b in timeline.slices for n, t in zip(b.name.tolist(), b.track.tolist(), strict=True)
    }
    assert len({track_of[name] for name in ("case_a", "case_b", "case_c", "case_d")}) == 4
    assert not any(t.kind is Kind.THREAD for t in timeline.tracks)
    assert parts.pid is None


def test_100000_threads(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = shared / "cases/json_100000_threads/make.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
    runpy.run_path(str(script))
    timeline, parts = read(tmp_path / "trace_view.json")
    assert parts.pid == 4100
    assert sum(t.kind is Kind.THREAD for t in timeline.tracks) == 100000
    assert timeline.slice_count == 100000


@pytest.mark.slow
def test_gz_bomb(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = shared / "cases/gz_bomb_of_zeros/make.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
    runpy.run_path(str(script))
    with pytest.raises(InputError, match="not JSON"):
        read(tmp_path / "rank0.trace.json.gz")
