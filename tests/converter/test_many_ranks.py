"""Many ranks and very large ones: what waits on disk, what is encoded in parts, archives, and what is cut."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converter import aside, shelf
from converter.check import check
from converter.convert import convert
from converter.engine import open_trace
from converter.find import find_captures
from converter.options import Options
from converter.write import parts
from converter.write.lanes import lay_out
from samples.config import Config
from samples.generate import write
from schemas.errors import InputError

SAMPLE = str(Path(__file__).resolve().parents[2] / "samples" / "dspark_two_ranks")
RECORDS = f"{SAMPLE}/server_info.json"

STEPS = """
INCLUDE PERFETTO MODULE npu.report;
SELECT rank, forward_ct, bs, step_gpu_ms, draft_ms, verify_ms, tail_ms, exposed_comm_ms, gap_ms, committed_tokens
FROM npu_step_report ORDER BY rank, forward_ct
"""
SLICES = """
SELECT t.name, s.ts, s.dur, s.name, s.category,
  (SELECT group_concat(key || '=' || coalesce(a.string_value, a.int_value, a.real_value), ' ')
   FROM (SELECT * FROM args WHERE arg_set_id = s.arg_set_id ORDER BY key) AS a WHERE a.key NOT GLOB 'debug.tallies*')
FROM slice AS s JOIN track AS t ON t.id = s.track_id ORDER BY 1, 2, 3, 4, 5, 6
"""


def rows(trace: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_trace(trace) as tp:
        return tp.rows(sql)


def test_ranks_that_wait_on_disk_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(dspark=((None, RECORDS),))
    convert([SAMPLE], str(tmp_path / "memory.pftrace"), options)
    monkeypatch.setattr(shelf, "IN_MEMORY_BYTES", 0)
    convert([SAMPLE], str(tmp_path / "disk.pftrace"), options)
    assert (tmp_path / "memory.pftrace").read_bytes() == (tmp_path / "disk.pftrace").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["disk.pftrace", "memory.pftrace"]


def test_parts_and_columns_aside_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(dspark=((None, RECORDS),))
    convert([SAMPLE], str(tmp_path / "whole.pftrace"), options)
    monkeypatch.setattr(aside, "MANY_SLICES", 0)
    monkeypatch.setattr(parts.split, "__defaults__", (100, 60))
    convert([SAMPLE], str(tmp_path / "parts.pftrace"), options)
    assert rows(tmp_path / "whole.pftrace", SLICES) == rows(tmp_path / "parts.pftrace", SLICES)
    flows = "SELECT count(*), sum(slice_out * 7 + slice_in) FROM flow"
    assert rows(tmp_path / "whole.pftrace", flows)[0][0] == rows(tmp_path / "parts.pftrace", flows)[0][0] > 0
    assert not check(str(tmp_path / "parts.pftrace"), [SAMPLE]).problems


def test_a_part_has_the_lanes_of_the_whole() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        n = int(rng.integers(1, 60))
        track = rng.integers(0, 3, n).astype(np.int32)
        ts, dur = rng.integers(0, 80, n), rng.integers(0, 12, n)
        whole = lay_out(track, ts, dur)
        lane = np.empty(n, np.int32)
        lane[whole.order] = whole.lane
        found = parts.split(track, ts, dur, whole=0, size=5)
        assert sorted(np.concatenate(found).tolist()) == list(range(n))
        for ids in found:
            part = lay_out(track[ids], ts[ids], dur[ids])
            assert (lane[ids[part.order]] == part.lane).all()


def test_an_archive_holds_offsets_and_recorded_times(tmp_path: Path) -> None:
    write(Config(offsets_ms=(0, -123.4)), tmp_path / "run")
    single, archive = tmp_path / "one.pftrace", tmp_path / "run.tar"
    summary = convert([str(tmp_path / "run")], str(single))
    convert([str(tmp_path / "run")], str(archive), Options(layout="archive"))
    again = tmp_path / "again.tar"
    convert([str(tmp_path / "run")], str(again), Options(layout="archive"))
    assert archive.read_bytes() == again.read_bytes()
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["manifest.json", "all_ranks.pftrace", "rank0.pftrace", "rank1.pftrace"]
        tar.extractall(tmp_path, filter="data")
    manifest = json.loads((tmp_path / "manifest.json").read_text())["perfetto_manifest"]
    entry = {f["path"]: f for f in manifest["files"]}
    assert manifest["version"] == 1 and set(entry) == {"rank0.pftrace", "rank1.pftrace", "all_ranks.pftrace"}
    offset = summary.ranks[1]["clock"]["offset_ns"]
    assert offset != 0 and entry["rank1.pftrace"]["clocks"]["offset_ns"] == offset
    first = "INCLUDE PERFETTO MODULE npu.kernels; SELECT rank, min(ts), count(*) FROM npu_kernels GROUP BY rank"
    aligned = {rank: (ts, n) for rank, ts, n in rows(single, first)}
    ((_, ts, count),) = rows(tmp_path / "rank1.pftrace", first)
    assert (ts + offset, count) == aligned[1]
    # what spans ranks is on the reference's clock in both
    group = "INCLUDE PERFETTO MODULE npu.gaps; SELECT ts, dur, rank_count FROM npu_group_gaps"
    assert rows(tmp_path / "all_ranks.pftrace", group) == rows(single, group)
    # an engine that knows no manifest merges the members
    assert [(rank, n) for rank, _, n in rows(archive, first)] == [(rank, n) for rank, (_, n) in aligned.items()]


def test_steps_cut_the_trace_and_not_the_figures(tmp_path: Path) -> None:
    whole, some = tmp_path / "whole.pftrace", tmp_path / "some.pftrace"
    options = Options(dspark=((None, RECORDS),))
    convert([SAMPLE], str(whole), options)
    every = rows(whole, STEPS)
    numbers = sorted({row[1] for row in every})
    low, high = numbers[1], numbers[3]
    summary = convert([SAMPLE], str(some), Options(dspark=((None, RECORDS),), steps=(low, high)))
    assert rows(some, STEPS) == [row for row in every if low <= row[1] <= high]
    for rank in summary.ranks:
        assert rank["slices"]["dropped"]["outside window"] > 0
        assert rank["slices"]["read"] == rank["slices"]["written"] + sum(rank["slices"]["dropped"].values())
    assert not check(str(some), None).problems


@pytest.mark.parametrize(("options", "word"), [(Options(steps=(1, 2)), "forward_ct"), (None, "has none of them")])
def test_steps_that_are_not_there(tmp_path: Path, options: Options | None, word: str) -> None:
    options = options or Options(dspark=((None, RECORDS),), steps=(1, 2))
    with pytest.raises(InputError, match=word):
        convert([SAMPLE], str(tmp_path / "o.pftrace"), options)
    assert not list(tmp_path.iterdir())


def test_dropped_categories_are_counted(tmp_path: Path) -> None:
    whole = convert([SAMPLE], str(tmp_path / "whole.pftrace"))
    kinds = "SELECT category, count(*) FROM slice WHERE coalesce(category, '') NOT GLOB 'npu.*' GROUP BY category"
    count = dict(rows(tmp_path / "whole.pftrace", kinds))
    wanted = max((c for c in count if c), key=lambda c: count[c])
    cut = convert([SAMPLE], str(tmp_path / "cut.pftrace"), Options(drop=(wanted, "no_such")))
    left = dict(rows(tmp_path / "cut.pftrace", kinds))
    assert left == {c: n for c, n in count.items() if c != wanted}
    assert sum(r["slices"]["dropped"].get("excluded", 0) for r in cut.ranks) == count[wanted]
    assert sum(r["slices"]["written"] for r in whole.ranks) - count[wanted] == sum(
        r["slices"]["written"] for r in cut.ranks
    )
    assert any("no_such" in w for w in cut.warnings)


@pytest.mark.slow
def test_64_ranks_on_one_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = tuple(round(-3.7 * rank + 0.001 * rank * rank, 3) for rank in range(64))
    write(Config(ranks=64, steps=4, offsets_ms=offsets), tmp_path / "run")
    assert len(find_captures([str(tmp_path / "run")])) == 64
    truth = json.loads((tmp_path / "run/truth.json").read_text())["ranks"]
    monkeypatch.setattr(shelf, "IN_MEMORY_BYTES", 0)
    trace = tmp_path / "run.pftrace"
    summary = convert([str(tmp_path / "run")], str(trace))
    for rank, known in zip(summary.ranks[1:], truth[1:], strict=True):
        assert rank["clock"]["method"] == "collective"
        assert abs(rank["clock"]["offset_ns"] - known["clock"]["expected_offset_ns"]) <= 500
    assert not check(str(trace), None).problems
    counted = rows(
        trace, "INCLUDE PERFETTO MODULE npu.ranks; SELECT count(*), count(DISTINCT rank) FROM npu_rank_times"
    )
    assert counted == [(64, 64)]
