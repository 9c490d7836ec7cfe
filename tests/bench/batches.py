"""Figures of batches: two jobs against one, memory per row, memory of a big JSON, many ranks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.bench.timing import median_of, once

Figure = Callable[..., None]
Command = Callable[..., list[str]]


def jobs_figure(source: Path, folder: Path, command: Command, figure: Figure, runs: int, captures: int = 8) -> None:
    """Eight captures with one and with two processes, in turn."""
    inputs = folder / "eight"
    inputs.mkdir(exist_ok=True)
    names = [inputs / f"kernel_details_{i}.csv" for i in range(captures)]
    for name in names:
        if not name.exists():
            name.hardlink_to(source)
    out = folder / "eight_out"

    def batch(jobs: int) -> float:
        shutil.rmtree(out, ignore_errors=True)
        return once(command("convert", *map(str, names), "--out-dir", str(out), "-q", "--jobs", str(jobs))).wall_s

    pairs = sorted((batch(1), batch(2)) for _ in range(runs))
    one, two = pairs[len(pairs) // 2]
    shutil.rmtree(out, ignore_errors=True)
    size = source.stat().st_size / 1e6
    figure(
        f"one job against two over {captures} captures of {size:.0f} MB",
        one / two,
        1.7,
        f"{one:.2f} s / {two:.2f} s",
        at_least=True,
    )


def memory_figure(source: Path, rows: int, folder: Path, command: Command, figure: Figure) -> None:
    """Peak memory of an annotated conversion, per kernel row."""
    run = once(command("convert", str(source), "-q", "-o", str(folder / "out.pftrace")))
    per_row = run.rss_mb * 1024**2 / rows
    figure(
        f"peak memory in bytes per row, annotated, {rows:,} rows",
        per_row,
        300,
        f"{run.rss_mb:.0f} MB, {run.wall_s:.1f} s",
    )


def big_json_figure(source: Path, folder: Path, command: Command, figure: Figure) -> None:
    """Peak memory of a big trace_view.json, annotated."""
    run = median_of(command("convert", str(source), "-q", "-o", str(folder / "out.pftrace")), 1)
    size = source.stat().st_size
    figure(
        f"peak memory in GB of a {size / 1e6:.0f} MB trace_view.json",
        run.rss_mb * 1024**2 / 1e9,
        1.5,
        f"{run.wall_s:.1f} s",
    )


def ranks_figure(folder: Path, command: Command, figure: Figure, ranks: int = 64) -> None:
    """The memory of many ranks against that of one of them: they go through one after the other."""
    from samples.config import Config
    from samples.generate import write

    run = folder / f"ranks{ranks}"
    if not run.exists():
        write(Config(ranks=ranks, steps=4), run)
    one = sorted(run.glob("*rank0*")) or sorted(p for p in run.iterdir() if p.is_dir())
    out = str(folder / "out.pftrace")
    single = once(command("convert", str(one[0]), "-q", "-o", out))
    every = once(command("convert", str(run), "-q", "-o", out))
    figure(
        f"memory of {ranks} ranks against one",
        every.rss_mb / single.rss_mb,
        3,
        f"{every.rss_mb:.0f} MB, {every.wall_s:.1f} s",
    )
