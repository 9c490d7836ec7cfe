"""Figures of size: time and memory over rows, a big JSON, the engine's load time, jobs, many ranks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.bench.timing import in_turn, median_of, once, python

Figure = Callable[..., None]
Command = Callable[..., list[str]]


def big_csv(folder: Path, rows: int) -> Path:
    from samples import big

    path = folder / f"kernel_details_{rows}.csv"
    if not path.exists():
        big.big_csv(path, rows)
    return path


def big_json(folder: Path, megabytes: int) -> Path:
    from samples import big

    path = folder / f"trace_view_{megabytes}.json"
    if not path.exists():
        big.big_json(path, megabytes)
    return path


def slope_figure(folder: Path, most_rows: int, command: Command, figure: Figure) -> None:
    """Time and memory of annotated conversions, 100,000 rows to the most."""
    sizes = [n for n in (100_000, 400_000, 1_000_000, 4_000_000, 10_000_000) if n <= most_rows]
    base = median_of(command("--help"), 3).wall_s
    times = []
    for rows in sizes:
        path = big_csv(folder, rows)
        size = path.stat().st_size
        run = once(command("convert", str(path), "-q", "-o", str(folder / "out.pftrace")))
        times.append(run.wall_s)
        print(
            f"  {rows:>10,} rows annotated: {run.wall_s:6.2f} s, {rows / run.wall_s / 1e6:.2f} M rows/s, "
            f"{size / run.wall_s / 1e6:.0f} MB/s, {run.rss_mb:.0f} MB, {run.rss_mb * 1024**2 / rows:.0f} bytes a row",
            flush=True,
        )
    fit = np.polyfit(np.log(sizes), np.log([max(t - base, 0.01) for t in times]), 1)[0]
    what = "log-log slope of time over rows (start-up taken off)"
    figure(what, float(fit), 1.1, f"{sizes[0]:,} to {sizes[-1]:,} rows")


LOAD = """
import sys
from converter.engine import open_trace
with open_trace(sys.argv[1]) as trace:
    print(trace.rows("SELECT COUNT(*) FROM slice")[0][0])
"""


def load_figures(folder: Path, megabytes: int, command: Command) -> None:
    """Bytes per slice of a trace, and the time that the engine takes to load it, against the JSON it was made of."""
    from converter.engine import open_trace

    path = big_json(folder, megabytes)
    out = folder / "load.pftrace"
    once(command("convert", str(path), "--annotate", "none", "-q", "-o", str(out)))
    with open_trace(out) as trace:
        slices = int(trace.rows("SELECT COUNT(*) FROM slice")[0][0])
    size = out.stat().st_size
    print(f"the trace of {megabytes} MB JSON: {slices:,} slices, {size / slices:.0f} bytes a slice with arguments")
    ours, theirs, ratio = in_turn(python(LOAD, str(out)), python(LOAD, str(path)), 1)
    print(
        f"loading it in trace_processor against loading the JSON: {ratio:.2f} ({ours.wall_s:.1f} s / {theirs.wall_s:.1f} s)"
    )


def jobs_figure(source: Path, folder: Path, command: Command, figure: Figure, runs: int, captures: int = 8) -> None:
    """Eight captures with `--jobs 1` (one core), with `--jobs 2`, and without (one process of two threads), in turn."""
    inputs = folder / "eight"
    inputs.mkdir(exist_ok=True)
    names = [inputs / f"kernel_details_{i}.csv" for i in range(captures)]
    for name in names:
        if not name.exists():
            name.hardlink_to(source)
    out = folder / "eight_out"

    def batch(*jobs: str) -> float:
        shutil.rmtree(out, ignore_errors=True)
        return once(command("convert", *map(str, names), "--out-dir", str(out), "-q", *jobs)).wall_s

    times = np.array([(batch("--jobs", "1"), batch("--jobs", "2"), batch()) for _ in range(runs)])
    one, two, plain = (float(median) for median in np.median(times, axis=0))
    faster, than_plain = (float(np.median(times[:, i] / times[:, 1])) for i in (0, 2))  # pair by pair
    shutil.rmtree(out, ignore_errors=True)
    what = f"--jobs 1 against --jobs 2 over {captures} captures of {source.stat().st_size / 1e6:.0f} MB"
    figure(what, faster, 1.7, f"{one:.2f} s / {two:.2f} s", at_least=True)
    figure("no --jobs (two threads) against --jobs 2", than_plain, 1, f"{plain:.2f} s / {two:.2f} s", at_least=True)


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


def ranks_figure(folder: Path, command: Command, figure: Figure) -> None:
    """The memory of many ranks against that of one of them: they go through one after the other."""
    from samples.config import Config
    from samples.generate import write

    out = str(folder / "out.pftrace")
    for ranks in (1, 8, 64):
        run = folder / f"ranks{ranks}"
        if not run.exists():
            write(Config(ranks=ranks, steps=4), run)
        found = once(command("convert", str(run), "-q", "-o", out))
        if ranks == 1:
            single = found
        what, took = f"memory of {ranks} ranks against one", f"{found.rss_mb:.0f} MB, {found.wall_s:.1f} s"
        figure(what, found.rss_mb / single.rss_mb, 3, took)
