"""--window and --steps over whole captures of the simulator: clocks and records are those of the whole input."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from converter.convert import convert
from converter.options import Options
from samples.config import Config
from samples.generate import write
from samples.truth import truth
from schemas.errors import InputError

OFFSETS_MS = (0.0, -12.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("run")
    found = truth(write(Config(ranks=2, steps=6, seed=1, bs=4, offsets_ms=OFFSETS_MS), folder))
    return folder, [rank["steps"] for rank in found["ranks"]]


def steps_of(summary: Any) -> list[Any]:
    return [summary.annotators["steps"]["matching"][f"rank {rank}"] for rank in (0, 1)]


@pytest.mark.parametrize("window", ["+2ms:+4ms", "+3ms:+3.2ms", "+6ms:+6.001ms", "+0ms:+1us"])
def test_a_window_however_short_is_on_the_clock_of_the_whole_input(
    run: tuple[Path, list[Any]], tmp_path: Path, window: str
) -> None:
    folder, _ = run
    options = Options(window=window, dspark=((None, str(folder / "server_info.json")),))
    summary = convert([str(folder)], os.fspath(tmp_path / "w.pftrace"), options)
    clock = summary.ranks[1]["clock"]
    assert clock["method"] == "collective"
    assert abs(clock["offset_ns"] - 12_500_000) < 5_000
    assert summary.ranks[0]["window_ns"] == summary.ranks[1]["window_ns"]


@pytest.mark.parametrize("step", range(6))
def test_one_step_in_a_window_keeps_its_record(run: tuple[Path, list[Any]], tmp_path: Path, step: int) -> None:
    """bs is the same in every step, and one step alone fits everywhere: only the whole input tells."""
    folder, true = run
    ts, dur = (true[0][step][key] for key in ("ts", "dur"))
    options = Options(
        window=f"{ts + dur // 2}:{ts + dur // 2 + 1000}", dspark=((None, str(folder / "server_info.json")),)
    )
    summary = convert([str(folder)], os.fspath(tmp_path / "w.pftrace"), options)
    found = steps_of(summary)[0]
    assert found["refused"] is None
    if found["matched_steps"]:
        assert (found["matched_steps"], found["unmatched_records_before"]) == (1, 3 + step)


def test_steps_keep_what_the_whole_was_matched_to(run: tuple[Path, list[Any]], tmp_path: Path) -> None:
    folder, true = run
    number = true[0][2]["forward_ct"]
    options = Options(steps=(number, number + 1), dspark=((None, str(folder / "server_info.json")),))
    summary = convert([str(folder)], os.fspath(tmp_path / "w.pftrace"), options)
    for found in steps_of(summary):
        assert (found["matched_steps"], found["unmatched_records_before"]) == (2, 5)
        assert found["score_ms"] is not None


def test_without_records_first_forward_ct_is_of_the_first_step_of_the_input(
    run: tuple[Path, list[Any]], tmp_path: Path
) -> None:
    folder, true = run
    target = os.fspath(tmp_path / "w.pftrace")
    number = true[0][0]["forward_ct"]
    convert([str(folder)], target, Options(steps=(number + 3, number + 4), first_forward_ct={None: number}))
    data = Path(target).read_bytes()
    assert f"step {number + 3}".encode() in data
    assert f"step {number}".encode() not in data


def test_nothing_in_the_window_says_what_the_capture_spans(run: tuple[Path, list[Any]], tmp_path: Path) -> None:
    folder, _ = run
    with pytest.raises(
        InputError, match=r"nothing in it lies in the window.*spans \d{19}:\d{19}, or \+0\.\d{3}ms:\+1\d"
    ):
        convert([str(folder)], os.fspath(tmp_path / "w.pftrace"), Options(window="+90ms:+95ms"))


def test_a_forgotten_plus_is_said(run: tuple[Path, list[Any]], tmp_path: Path) -> None:
    folder, _ = run
    summary = convert([str(folder)], os.fspath(tmp_path / "w.pftrace"), Options(window="10ms:+50ms"))
    assert any("--window 10ms:+50ms: " in warning and "far outside" in warning for warning in summary.warnings)


def test_steps_of_a_capture_without_step_spans_does_not_advise_records(tmp_path: Path) -> None:
    write(Config(ranks=1, steps=3, spans=False), tmp_path / "in")
    records = json.dumps({"records": [{"forward_ct": 1, "bs": 1}]})
    (tmp_path / "records.json").write_text(records)
    with pytest.raises(InputError, match="has no steps") as error:
        convert([str(tmp_path / "in")], os.fspath(tmp_path / "w.pftrace"), Options(steps=(1, 2)))
    assert "--dspark" not in str(error.value)
    assert "--window START:END" in str(error.value)


def test_a_rank_beside_one_with_records_of_another_run_is_in_doubt(run: tuple[Path, list[Any]], tmp_path: Path) -> None:
    folder, _ = run
    write(Config(ranks=2, steps=6, seed=9), tmp_path / "other")
    mine, other = (json.loads((f / "server_info.json").read_text()) for f in (folder, tmp_path / "other"))
    mine["internal_states"][1] = other["internal_states"][1]
    (tmp_path / "mixed.json").write_text(json.dumps(mine))
    target = os.fspath(tmp_path / "m.pftrace")
    summary = convert([str(folder)], target, Options(dspark=((None, str(tmp_path / "mixed.json")),)))
    found = steps_of(summary)
    assert found[0]["refused"] is None
    assert "another run?" in found[1]["refused"]
    (doubt,) = (warning for warning in summary.warnings if "check which run" in warning)
    assert doubt.startswith("rank 0: ") and "those of rank 1, of the same file" in doubt
    # A file of its own says nothing about the other rank's.
    files = ((0, str(folder / "server_info.json")), (1, str(tmp_path / "mixed.json")))
    summary = convert([str(folder)], target, Options(dspark=files))
    assert not any("check which run" in warning for warning in summary.warnings)


def test_a_window_of_an_archive_is_in_trace_time_too(run: tuple[Path, list[Any]], tmp_path: Path) -> None:
    folder, _ = run
    options = Options(window="+2ms:+4ms", dspark=((None, str(folder / "server_info.json")),), layout="archive")
    archived = convert([str(folder)], os.fspath(tmp_path / "w.tar"), options)
    options = Options(window="+2ms:+4ms", dspark=options.dspark)
    single = convert([str(folder)], os.fspath(tmp_path / "w.pftrace"), options)
    assert steps_of(archived) == steps_of(single)
