"""Signals at random moments. The long version is a command: python -m tests.faults --kills 200."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.kills import kill_at_random


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_whenever_it_comes_the_target_is_absent_or_whole(tmp_path: Path, number: signal.Signals) -> None:
    kills = kill_at_random(tmp_path, 6, number, seed=int(number), rows=20_000)
    assert not kills.faults
    assert kills.good == kills.runs == 6
