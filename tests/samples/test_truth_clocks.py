"""The clocks that the converter finds in the simulator's files against those the simulator gave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from annotators.group_condition import group_condition
from converter import derive
from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from converter.sketch import sketch
from samples.config import Config
from samples.generate import write
from schemas.roles import load_roles

#: name -> configuration, the method expected of rank 1, how far its offset may be off in ns
VARIANTS = {
    "one_host": (Config(), "same_host", 0),
    "two_hosts": (Config(offsets_ms=(0, -123.4)), "collective", 500),
    "two_hours": (Config(ranks=3, offsets_ms=(0, 7_200_000.0, 3.5)), "collective", 500),
    "lost_first_steps": (Config(offsets_ms=(0, 1), late_start=(0, 2), plan_collective=False), "collective", 500),
    "lost_at_the_reference": (Config(offsets_ms=(0, 1), late_start=(2, 0), plan_collective=False), "collective", 500),
    "csv_only_level0": (Config(steps=8, offsets_ms=(0, 1), trace=False, level0=True), "collective", 500),
    "drift": (Config(steps=12, offsets_ms=(0, 5), drift_ppm=(0, 15), duration_s=1.0), "collective", 3000),
    "drift_of_both": (Config(steps=12, offsets_ms=(0, 5), drift_ppm=(10, -5), duration_s=1.0), "collective", 3000),
    "idle_rank": (Config(offsets_ms=(0, 9), dp_idle=((1, 2),)), "collective", 500),
    "nothing_shared": (Config(offsets_ms=(0, 1), recv_hook=True, plan_collective=False), "none", 0),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_offsets_and_drift(name: str, tmp_path: Path) -> None:
    config, method, tolerance_ns = VARIANTS[name]
    write(config, tmp_path / "run")
    known = json.loads((tmp_path / "run/truth.json").read_text())["ranks"]
    ranks = [read(capture, Options()) for capture in find_captures([str(tmp_path / "run")])]
    roles = load_roles()
    clocks, _ = derive.align_clocks([sketch(rank, rank, roles) for rank in ranks], Options(), roles)
    refused = group_condition([rank.timeline for rank in ranks], clocks, Options().clock_tolerance_ns)
    assert (refused is None) == (method != "none")
    assert clocks[0].method == "reference"
    for clock, truth in zip(clocks[1:], known[1:], strict=True):
        assert clock.method == method
        if method == "none":
            assert clock.offset_ns == 0
            continue
        assert abs(clock.offset_ns - truth["clock"]["expected_offset_ns"]) <= tolerance_ns
        if clock.drift_ppm is not None:
            assert clock.drift_ppm == pytest.approx(truth["clock"]["drift_ppm"], abs=1.5)
    if name.startswith("drift"):
        assert clocks[1].drift_ppm is not None
