"""Arrows against brute force."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.readers import trace_flows
from converter.readers.trace_flows import Slices, bind
from converter.readers.trace_json import read_trace_json
from schemas.timeline import Timeline

intervals = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 15)), max_size=25)
points = st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 60)), max_size=25)


@settings(max_examples=300, deadline=None)
@given(intervals, points)
def test_innermost_slice(slices: list[tuple[int, int, int]], asked: list[tuple[int, int]]) -> None:
    """The latest start that covers the point, the shorter of two that start together, the later in the file."""
    thread, ts, dur = (np.array(c, np.int64) for c in (zip(*slices, strict=True) if slices else ([], [], [])))
    table = Slices(thread.astype(np.int32), ts, dur, np.arange(len(ts)) + 100)
    at_thread, at = (np.array(c, np.int64) for c in (zip(*asked, strict=True) if asked else ([], [])))
    found = bind(at_thread.astype(np.int32), at, table)
    for (point_thread, point), number in zip(asked, found.tolist(), strict=True):
        covering = [
            (start, -length, row + 100)
            for row, (t, start, length) in enumerate(slices)
            if t == point_thread and start <= point <= start + length
        ]
        assert number == max(covering, default=(0, 0, -1))[2]


def write(path: Path, flow_points: list[tuple[str, str, Any, int]]) -> None:
    """Two threads with a slice of 10 us every 100 us; points (phase, category, id, slot)."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "name": f"{tid}/{slot}", "pid": 1, "tid": tid, "ts": f"{slot * 100}.000", "dur": 10, "args": {}}
        for tid in (1, 2)
        for slot in range(8)
    ]
    for phase, category, id_, slot in flow_points:
        tid = 1 if phase == "s" else 2
        events.append(
            {"ph": phase, "cat": category, "id": id_, "pid": 1, "tid": tid, "ts": f"{slot * 100}.005", "name": "f"}
        )
    path.write_text(json.dumps(events))


def arrows(path: Path) -> tuple[Counter[tuple[str, str]], Timeline]:
    timeline = Timeline(0, "t")
    read_trace_json([path], timeline)
    names = [timeline.strings[n] for b in timeline.slices for n in b.name.tolist()]
    found: Counter[tuple[str, str]] = Counter()
    for flow in timeline.flows:
        found.update((names[o], names[i]) for o, i in zip(flow.out.tolist(), flow.into.tolist(), strict=True))
    return found, timeline


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("sf"), st.sampled_from("ab"), st.sampled_from([1, "1", "0x1", 2]), st.integers(0, 8)),
        max_size=20,
    )
)
def test_pairs(tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[str, str, Any, int]]) -> None:
    path = tmp_path_factory.mktemp("flows") / "trace_view.json"
    write(path, asked)
    found, timeline = arrows(path)
    want: Counter[tuple[str, str]] = Counter()
    dropped: Counter[str] = Counter()
    for key in {(category, str(id_)) for _, category, id_, _ in asked}:
        of = {p: [slot for ph, c, i, slot in asked if ph == p and (c, str(i)) == key] for p in "sf"}
        if not of["s"]:
            dropped["no start"] += len(of["f"])
        if not of["f"]:
            dropped["no end"] += len(of["s"])
        for s, f in itertools.product(of["s"], of["f"]):
            if s == 8:
                dropped["no slice at start"] += 1
            elif f == 8:
                dropped["no slice at end"] += 1
            else:
                want[f"1/{s}", f"2/{f}"] += 1
    assert found == want
    assert timeline.tally.flows.dropped == dict(+dropped)
    assert timeline.tally.flows.read == want.total() + dropped.total()


def test_steps_make_a_chain(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    write(path, [("f", "a", 1, 6), ("t", "a", 1, 4), ("s", "a", 1, 2), ("t", "a", 1, 5), ("t", "a", 9, 1)])
    found, timeline = arrows(path)
    assert found == Counter({("1/2", "2/4"): 1, ("2/4", "2/5"): 1, ("2/5", "2/6"): 1})
    assert timeline.tally.flows.dropped == {"no start": 1}


def test_an_id_used_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_flows, "MAX_ARROWS_PER_ID", 8)
    path = tmp_path / "trace_view.json"
    write(
        path,
        [(ph, "a", 1, slot) for slot in range(4) for ph in "sf"]
        + [("s", "a", 1, 7), ("s", "b", 2, 1), ("f", "b", 2, 1)],
    )
    found, timeline = arrows(path)
    assert found.total() == 5
    assert found["1/1", "2/1"] == 2
    assert timeline.tally.flows.dropped == {"no end": 1}


def test_ends_in_another_file(tmp_path: Path) -> None:
    """msprof cuts a long JSON in slices; flow ends may be in another one."""
    first, second = tmp_path / "msprof_slice_0.json", tmp_path / "msprof_slice_1.json"
    write(first, [("s", "a", 1, 1)])
    second.write_text('[{"ph": "f", "cat": "a", "id": "1", "pid": 1, "tid": 2, "ts": "200.000", "name": "f"}]')
    timeline = Timeline(0, "t")
    read_trace_json([first, second], timeline)
    assert timeline.tally.flows.written == 1
