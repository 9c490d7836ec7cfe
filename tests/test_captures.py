"""Whole conversions of real captures, judged by an independent reader and the real engine (../shared/tools)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from converter.convert import convert
from converter.options import Options

DB_CAPTURES = ("train_cann80_level1_db/rank0_ascend_pt",)
TEXT_CAPTURES = (
    "train_cann80_level0/rank0_ascend_pt",
    "train_cann80_level1/rank0_ascend_pt",
    "train_cann80_level1/rank1_ascend_pt",
    "train_cann83_level2/rank_0_ascend_pt",
    "msprof_2026/PROF_000001_20260823165326062_00625538CIGQAHCJ",
)


def lossless(shared: Path, *captures: Path, trace: Path) -> str:
    argv = [sys.executable, str(shared / "tools" / "lossless.py"), *map(str, captures), str(trace)]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("name", [*TEXT_CAPTURES, *DB_CAPTURES])
def test_a_real_capture_is_lossless(shared: Path, tmp_path: Path, name: str) -> None:
    capture, trace = shared / "captures" / name, tmp_path / "out.pftrace"
    convert([str(capture)], str(trace))
    report = lossless(shared, capture, trace=trace)
    assert "lossless: OK" in report, report


def test_two_ranks_in_one_trace_are_lossless(shared: Path, tmp_path: Path) -> None:
    folder, trace = shared / "captures" / "train_cann80_level1", tmp_path / "out.pftrace"
    convert([str(folder)], str(trace), Options(assume_aligned=True))
    report = lossless(shared, folder / "rank0_ascend_pt", folder / "rank1_ascend_pt", trace=trace)
    assert "lossless: OK" in report, report


@pytest.mark.parametrize("name", [n for n in TEXT_CAPTURES if "cann80" in n])
def test_the_trace_is_at_most_a_third_of_the_json(shared: Path, tmp_path: Path, name: str) -> None:
    (source,) = (shared / "captures" / name).rglob("trace_view.json")
    summary = convert([str(source)], str(tmp_path / "out.pftrace"), Options(annotate=()))
    assert source.stat().st_size > 1_000_000
    assert summary.bytes * 3 <= source.stat().st_size


@pytest.mark.parametrize("name", [*TEXT_CAPTURES, *DB_CAPTURES])
def test_the_same_input_gives_the_same_bytes(shared: Path, tmp_path: Path, name: str) -> None:
    capture = str(shared / "captures" / name)
    for out in ("a.pftrace", "b.pftrace", "a.pftrace.gz", "b.pftrace.gz"):
        convert([capture], str(tmp_path / out))
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()
    assert (tmp_path / "a.pftrace.gz").read_bytes() == (tmp_path / "b.pftrace.gz").read_bytes()
