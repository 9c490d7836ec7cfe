"""Records of another run, from the simulator: never taken, whatever the seed; those of the run itself always are."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from annotators import steps
from annotators.linking import link
from annotators.replay_calls import find_replays
from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from converter.readers.dspark import read_records
from samples.config import Config
from samples.generate import write
from samples.truth import truth
from schemas.dspark import RankRecords, RecordFile
from schemas.dspark_tables import Links
from schemas.roles import load_roles
from schemas.timeline import Timeline

SEEDS = range(1, 6)
TIMES_ONLY = ("core", "step_cpu_time", "step_gpu_time", "draft_gpu_time", "target_verify_gpu_time")


class Run:
    """A simulated run as it was read."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.truth = truth(write(config, folder))
        self.records: RecordFile = read_records(folder / "server_info.json")
        roles = load_roles()
        self.ranks: list[tuple[Timeline, Links]] = []
        for capture in find_captures([str(folder)]):
            timeline = read(capture, Options()).timeline
            self.ranks.append((timeline, link(timeline, find_replays(timeline, roles))))


def matched(timeline: Timeline, links: Links, records: RankRecords | None, first: int | None = None):
    return steps.annotate(timeline, records, first, links=links)


@pytest.mark.parametrize("bs", [0, 4], ids=["bs varies", "bs of 4"])
def test_of_every_pair_of_runs_only_a_run_and_its_own_records_match(tmp_path: Path, bs: int) -> None:
    runs = [Run(tmp_path / str(seed), Config(seed=seed, steps=3 + seed % 3, bs=bs)) for seed in SEEDS]
    for capture, recorded in itertools.product(runs, runs):
        for (timeline, links), true in zip(capture.ranks, capture.truth["ranks"], strict=True):
            out = matched(timeline, links, recorded.records.for_rank(timeline.rank))
            found = out.tables["match"]
            if capture is recorded:
                assert out.tables["steps"].forward_ct.tolist() == [step["forward_ct"] for step in true["steps"]]
                assert not found.warnings
            else:
                assert found.shift is None
                assert out.refused


def test_without_lengths_what_fits_by_chance_is_said(tmp_path: Path) -> None:
    """Nothing but batch sizes and times: a chance fit can't be told from a true one, so it is never silent."""
    runs = [
        Run(tmp_path / str(seed), Config(seed=seed, steps=3, max_bs=4, records_after=12, components=TIMES_ONLY))
        for seed in SEEDS
    ]
    for capture, recorded in itertools.product(runs, runs):
        for timeline, links in capture.ranks:
            found = matched(timeline, links, recorded.records.for_rank(timeline.rank)).tables["match"]
            assert found.shift is None or any("run" in warning for warning in found.warnings)
            assert capture is not recorded or found.shift is not None or "ambiguous" in found.refused


def test_the_users_word_is_taken_and_contradicted(tmp_path: Path) -> None:
    one, other = (Run(tmp_path / str(seed), Config(seed=seed, steps=4)) for seed in (1, 3))
    timeline, links = one.ranks[0]
    found = matched(timeline, links, other.records.for_rank(0), first=1203).tables["match"]
    assert found.shift is not None
    assert any("another run" in warning for warning in found.warnings)
