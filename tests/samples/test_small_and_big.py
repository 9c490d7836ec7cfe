"""The hand-made captures, the shipped sample and the generators of big inputs."""

from __future__ import annotations

import csv
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

import samples
from samples import shipped
from samples.big import write_big
from samples.cases import alternating_gaps
from schemas.errors import UsageError

HOME = Path(samples.__file__).parent


def test_gap_teaching_numbers() -> None:
    """Article on NPU gaps, part 2: wall 10, sum 11 (7 + 4), union 9, gap 1 ms. Counted us by us."""
    with (HOME / "gap_teaching.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    spans = [(int(Decimal(r["Start Time(us)"].strip())), int(Decimal(r["Duration(us)"]))) for r in rows]
    work: Counter[str] = Counter()
    covered: set[int] = set()
    for row, (start, dur) in zip(rows, spans, strict=True):
        work[row["Stream ID"]] += dur
        covered.update(range(start, start + dur))
    assert work == {"1": 7000, "2": 4000}
    assert max(a + d for a, d in spans) - min(a for a, _ in spans) == 10_000
    assert len(covered) == 9000


def test_alternating_gaps_never_coincide(tmp_path: Path) -> None:
    alternating_gaps(tmp_path)
    known = json.loads((tmp_path / "truth.json").read_text())
    for rank in known["ranks"]:
        assert rank["times"]["gap_ns"] * 5 == rank["times"]["wall_ns"] == 10_000_000
        assert len(rank["gaps"]) == 10
    assert known["group_gaps"] == []


def test_the_shipped_sample_is_what_the_code_makes(tmp_path: Path) -> None:
    from samples.generate import write

    write(shipped.CONFIG, tmp_path / "again")
    for path in sorted((tmp_path / "again").rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (shipped.FOLDER / path.relative_to(tmp_path / "again")).read_bytes(), path.name


def test_big_csv(tmp_path: Path) -> None:
    path = write_big(tmp_path / "csv", rows=2000, seed=3)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2000
    assert 150 < path.stat().st_size / 2000 < 230
    starts = [Decimal(r["Start Time(us)"].strip()) for r in rows]
    assert starts == sorted(starts)
    assert len({r["Input Shapes"] for r in rows}) > 200
    assert len({r["Stream ID"] for r in rows}) == 40
    assert path.read_bytes() == write_big(tmp_path / "again", rows=2000, seed=3).read_bytes()


def test_big_json(tmp_path: Path) -> None:
    path = write_big(tmp_path / "json", megabytes=1)
    assert 1_000_000 <= path.stat().st_size < 2_000_000
    events = json.loads(path.read_text())
    share = Counter(e.get("cat", e["ph"]) for e in events)
    assert 0.2 < share["python_function"] / len(events) < 0.35
    assert 0.1 < share["cpu_op"] / len(events) < 0.25
    ends = {(e["cat"], str(e["id"])) for e in events if e["ph"] == "f"}
    assert ends == {(e["cat"], str(e["id"])) for e in events if e["ph"] == "s"}


def test_big_refuses_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError):
        write_big(tmp_path, rows=1)


def test_the_command(tmp_path: Path) -> None:
    import typer

    from converter.commands.sample import command

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, [str(tmp_path / "s"), "--ranks", "3", "--steps", "1", "--offsets-ms", "0,1.5"])
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(tmp_path / "s"), str(tmp_path / "s/server_info.json")]
    assert result.stderr.startswith("npu-perfetto convert ")
    assert json.loads((tmp_path / "s/truth.json").read_text())["ranks"][1]["clock"]["offset_ahead_ns"] == 1_500_000
    assert isinstance(CliRunner().invoke(app, [str(tmp_path / "s")]).exception, UsageError)
    assert isinstance(CliRunner().invoke(app, [str(tmp_path / "t"), "--drift-ppm", "a"]).exception, UsageError)
    assert not (tmp_path / "t").exists()
