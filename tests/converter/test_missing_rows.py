"""A kernel CSV that was cut at a line's end: the trace beside it tells."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from samples.config import Config
from samples.generate import write
from schemas.timeline import Timeline


def timelines(folder: Path) -> list[Timeline]:
    return [read(capture, Options()).timeline for capture in find_captures([str(folder)])]


def said(timeline: Timeline) -> list[str]:
    return [warning for warning in timeline.warnings if "no row in the kernel CSV" in warning]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write(Config(ranks=1, steps=3), folder)
    return folder


@pytest.mark.parametrize("config", [Config(), Config(graphs=False, recv_hook=True), Config(level0=True)])
def test_whole_captures_are_not_suspected(tmp_path: Path, config: Config) -> None:
    write(config, tmp_path)
    for timeline in timelines(tmp_path):
        assert not said(timeline)


@pytest.mark.parametrize("lost", [1, 2, 50, 10_000], ids=["the last row", "two", "50", "all"])
def test_rows_lost_at_the_end_are_counted_with_the_first(whole: Path, tmp_path: Path, lost: int) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(whole, folder)
    path = next(folder.rglob("kernel_details.csv"))
    header, *rows = path.read_text().splitlines(keepends=True)
    kept, gone = rows[: max(len(rows) - lost, 0)], rows[max(len(rows) - lost, 0) :]
    path.write_text("".join([header, *kept]))
    (timeline,) = timelines(folder)
    (warning,) = said(timeline)
    core = header.rstrip().split(",").index("Accelerator Core")
    kernels = [row for row in gone if row.split(",")[core] not in ("HCCL", "COMMUNICATION", "N/A")]
    assert warning.startswith(f"{len(kernels)} of ")
    assert warning.endswith("was the CSV cut short?")
    assert (", all of them after its last row" in warning) == bool(kept)
    assert timeline.damaged


def test_a_hole_in_the_middle(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(whole, folder)
    path = next(folder.rglob("kernel_details.csv"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:50] + lines[55:]))  # a few: a row may be dropped for a reason of its own
    assert not said(timelines(folder)[0])
    path.write_text("".join(lines[:50] + lines[150:]))
    (warning,) = said(timelines(folder)[0])
    assert "after its last row" not in warning


def test_real_captures(shared: Path, tmp_path: Path) -> None:
    for folder in sorted((shared / "captures").iterdir()):
        if folder.is_dir():
            for timeline in timelines(folder):
                assert not said(timeline)
    shutil.copytree(shared / "captures" / "train_cann80_level1" / "rank0_ascend_pt", tmp_path / "rank0_ascend_pt")
    path = next(tmp_path.rglob("kernel_details.csv"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.chmod(0o644)
    path.write_bytes(b"".join(lines[:92]))
    (warning,) = said(timelines(tmp_path)[0])
    # Of the 100 lost rows three are collectives, which have no hardware slice of their own.
    assert warning.startswith("97 of 187 kernels of the trace have no row in the kernel CSV, all of them after")
    assert "aclnnMm_MatMulCommon_MatMulV2, starts at 1736408883733651792 ns" in warning
