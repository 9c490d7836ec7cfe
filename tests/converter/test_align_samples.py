"""Alignment from files to clocks: against the simulator's truth, and on real captures of one host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from annotators.align import align
from annotators.group_condition import group_condition
from annotators.launch_check import launch_check
from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from converter.rank import Rank
from samples.config import Config
from samples.generate import write
from samples.truth import truth

TOLERANCE = 50_000


def ranks_of(folder: Path) -> list[Rank]:
    return [read(capture, Options()) for capture in find_captures([str(folder)])]


@pytest.mark.parametrize(
    "config",
    [
        Config(ranks=4, steps=4, offsets_ms=(0, 3.417, -8.25, 12), drift_ppm=(0, 20, -20, 11)),
        Config(ranks=4, steps=4, offsets_ms=(0, 3.417, -8.25, 12), drift_ppm=(0, 20, -20, 11), duration_s=0.5),
        Config(ranks=2, steps=8, offsets_ms=(0, -5), late_start=(0, 2)),
        Config(ranks=2, steps=8, offsets_ms=(0, -5), late_start=(0, 2), plan_collective=False),
    ],
    ids=["short", "half a second", "late start", "experts only"],
)
def test_offsets_of_the_simulator(tmp_path: Path, config: Config) -> None:
    expected = [rank.get("clock", rank) for rank in truth(write(config, tmp_path))["ranks"]]
    ranks = ranks_of(tmp_path)
    clocks = align([r.timeline for r in ranks], host_facts={r.timeline.rank: r.side.host for r in ranks})
    assert [c.method for c in clocks] == ["reference"] + ["collective"] * (config.ranks - 1)
    for clock, true in zip(clocks[1:], expected[1:], strict=True):
        error = abs(clock.offset_ns - true["expected_offset_ns"])
        assert error < 20_000
        assert clock.residual_max_ns is not None
        assert error <= clock.residual_max_ns < TOLERANCE


def test_three_seconds_are_refused_with_their_drift(tmp_path: Path) -> None:
    write(Config(ranks=2, steps=12, offsets_ms=(0, 4), drift_ppm=(20, -20), duration_s=3.0), tmp_path)
    ranks = ranks_of(tmp_path)
    clocks = align([r.timeline for r in ranks])
    assert clocks[1].drift_ppm == pytest.approx(-40, abs=1)
    reason = group_condition([r.timeline for r in ranks], clocks, TOLERANCE, ranks[0].side.declared_ranks)
    assert reason is not None
    assert "rank 1" in reason


def test_real_ranks_of_one_host(shared: Path) -> None:
    folder = shared / "captures" / "train_cann80_level1"
    ranks = ranks_of(folder)
    timelines = [r.timeline for r in ranks]
    clock = align(timelines, host_facts={r.timeline.rank: r.side.host for r in ranks})[1]
    assert (clock.method, clock.offset_ns, clock.anchor_count) == ("same_host", 0, 4)
    # The four all-reduces of the CSVs by hand: ends of rank 0 minus ends of rank 1, ns.
    ends = [
        (1736408883732241563 + 79089520) - (1736408883737849280 + 73475168),
        (1736408883811334844 + 2281105) - (1736408883811328708 + 2280145),
        (1736408883813620129 + 2402388) - (1736408883813612334 + 2395387),
        (1736408883816026237 + 22218863) - (1736408883816011341 + 22224584),
    ]
    assert clock.residual_max_ns == max(map(abs, ends))
    assert group_condition(timelines, align(timelines), TOLERANCE) is None
    assert align(timelines)[1].offset_ns == 8136  # between 7096 and 9175, half to even
    assert sorted(ends)[1:3] == [7096, 9175]


def test_launches_of_a_real_capture(shared: Path) -> None:
    """Against the trace read as plain JSON: kernels and collectives, and their CANN call by connection id."""
    folder = shared / "captures" / "train_cann80_level1" / "rank1_ascend_pt"
    events = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    process = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    starts: dict[int, int] = {}
    for e in events:
        if e["ph"] == "X" and process.get(e["pid"]) == "CANN" and "connection_id" in e["args"]:
            at = int(e["ts"].replace(".", ""))
            starts[e["args"]["connection_id"]] = min(at, starts.get(e["args"]["connection_id"], at))
    (rank,) = ranks_of(folder)
    pairs, violations, worst = launch_check(rank.timeline)
    tasks = rank.timeline.tasks
    early = [starts[c] - t for t, c in zip(tasks.ts.tolist(), tasks.connection_id.tolist(), strict=True) if c in starts]
    assert (pairs, violations, worst) == (len(early), sum(e > 0 for e in early), max(early))
    assert pairs == 191  # every recorded task
    assert violations == 36  # host and device agree to a few us only
