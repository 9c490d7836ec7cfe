"""`npu-perfetto gaps`: the accounting of recorded time on bare CSVs, no trace needed.

One row per file: any kernel CSV of the exporters, or a plain CSV with start and duration columns. The figures are
those of `npu_rank_times` in a trace made from the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annotators.times import NOT_RECOVERABLE, RankTimes, rank_times, task_window
from converter.file_kinds import is_folder, kind_by_name, refuse_trace
from converter.ranks import rank_in_name
from converter.remote import check_inputs, is_remote
from converter.window import Window, doubts
from schemas.errors import InputError, UsageError, printable
from schemas.kernel_rows import KernelRows
from schemas.tally import Tally
from schemas.timeline import Bool, StringPool

#: Takes one line for stderr. routine: said with --verbose only.
Say = Callable[[str, bool], None]

MS_DECIMALS = 1_000  # us per ms: three decimals


@dataclass(frozen=True)
class FileTimes:
    """The row of one file. rank: what its name says, else None."""

    file: str
    rank: int | None
    times: RankTimes

    def as_dict(self) -> dict[str, Any]:
        """`file` and the columns of `npu_rank_times`: ns, integers exact; gap_ratio null where there is no window,
        duration_wait_sum_ns where no wait is recorded."""
        return {"file": self.file, "rank": self.rank, **self.times.as_dict()}


def check_paths(paths: Sequence[str]) -> None:
    """Raises UsageError: a path does not exist, is a folder, or is given twice."""
    check_inputs([path for path in paths if is_remote(path)])
    seen: dict[str, str] = {}
    for path in paths:
        if is_remote(path):
            continue
        try:
            folder = is_folder(path)
        except InputError:
            continue  # no regular file: said when its turn comes, so that the others are still read
        if folder:
            raise UsageError(f"{printable(path)}: is a folder; give the CSV files in it, or use `npu-perfetto convert`")
        real = os.path.realpath(path)
        if real in seen:
            raise UsageError(f"{printable(path)}: is given twice")
        seen[real] = path


def account(path: str, window: Window | None, say: Say, local: str | None = None) -> FileTimes:
    """The times of one CSV, clipped to the window. local: where it was fetched to, if `path` is a URL.

    Raises InputError: it can't be read, is no such CSV, or holds no usable row; UsageError: the window ends before it
    starts once the first task is known.
    """
    from converter.readers import kernel_csv

    file = Path(local or path)
    is_folder(str(file))  # FIFOs and devices are refused: reading one would wait for ever
    refuse_trace(str(file), path)
    tally, shown = Tally(), printable(path)

    def warn(text: str, damaged: bool = False) -> None:
        say(text, False)

    strings = StringPool()
    if kind_by_name(os.path.basename(path)) == "task_time":
        rows = kernel_csv.read_task_time([file], strings, tally, warn)
        keep = _recorded_tasks(rows, strings)
    else:
        rows = kernel_csv.read_plain_csv(file, tally, warn, strings)
        keep = np.ones(len(rows), np.bool_)
    if tally.dropped:
        parts = [f"{count} {reason} (first: {tally.first.get(reason, '?')})" for reason, count in tally.dropped.items()]
        say(
            f"{shown}: {sum(tally.dropped.values())} of {tally.read} rows left out: {printable('; '.join(parts), 600)}",
            False,
        )
    others = len(rows) - int(np.count_nonzero(keep))
    if others:
        say(f"{shown}: {others} of {len(rows)} rows are no recorded tasks (events, copies, profiler marks)", False)
    ts, dur, wait_ns = rows.ts[keep], rows.dur[keep], rows.wait_ns[keep]
    recorded = task_window(ts, dur)
    if recorded is None:
        raise InputError(path, "holds no usable row", todo="give a kernel CSV with at least one task")
    asked = window.resolve(recorded[0]) if window else None
    if asked:  # as in a trace cut to the window: a task of no length belongs to it where it starts before its end
        inside = (dur > 0) | (ts < asked[1])
        ts, dur, wait_ns = ts[inside], dur[inside], wait_ns[inside]
        for doubt in doubts(window.text if window else "", asked, recorded):
            say(f"{shown}: {doubt}", False)
    times = rank_times(ts, dur, wait_ns, asked)
    if asked and (asked[0] < recorded[0] or asked[1] > recorded[1]):
        some = "holds no recorded task" if not times.kernel_count else "reaches beyond the recorded tasks"
        say(
            f"{shown}: --window {some} ({recorded[0]} to {recorded[1]} ns); what is outside of them counts as gap",
            False,
        )
    say(f"{shown}: {len(rows)} rows, window {times.window_ts} to {times.window_ts + times.wall_ns} ns", True)
    return FileTimes(path, _rank(path), times)


def _recorded_tasks(rows: KernelRows, strings: StringPool) -> Bool:
    """bool[n]: the rows of a task_time file that are recorded tasks. It lists every task of the device: events and
    profiler marks would widen the window (1067 instead of 14 ms in one real capture)."""
    from converter.places import TASK_TYPES

    kind = next((c for c in rows.columns if c.key == "task_type" and c.kind == "text"), None)
    if kind is None:
        return np.ones(len(rows), np.bool_)
    return rows.communication | np.isin(kind.values, [strings.find(name) for name in TASK_TYPES])


def _rank(path: str) -> int | None:
    """The rank that the file's name tells, else that of the nearest folder in the path as given."""
    found = (rank_in_name(part) for part in reversed(Path(path).parts))
    return next((rank for rank in found if rank is not None), None)


def exact_ms(ns: int) -> str:
    """ns as ms with three decimals, half to even, from integers only."""
    us, rest = divmod(ns, 1_000)
    us += rest > 500 or (rest == 500 and us % 2 == 1)
    return f"{us // MS_DECIMALS}.{us % MS_DECIMALS:03d}"


_HEADS = ("kernels", "wall ms", "duration ms", "+ waits ms", "union ms", "gap ms", "gap %")


def _cells(times: RankTimes) -> tuple[str, ...]:
    waits = "-" if times.duration_wait_sum_ns is None else exact_ms(times.duration_wait_sum_ns)
    ratio = "-" if times.gap_ratio is None else f"{100 * times.gap_ratio:.2f}"
    lengths = [exact_ms(ns) for ns in (times.wall_ns, times.duration_sum_ns, times.busy_union_ns, times.gap_ns)]
    return (str(times.kernel_count), *lengths[:2], waits, *lengths[2:], ratio)


def table(rows: Sequence[FileTimes]) -> str:
    """Aligned columns, the file above its figures (a path does not fit beside them), and what a gap is not."""
    cells = [_cells(row.times) for row in rows]
    width = [max(map(len, column)) for column in zip(_HEADS, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.rjust(w) for cell, w in zip(row, width, strict=True))

    out = [line(_HEADS)]
    for row, figures in zip(rows, cells, strict=True):
        out += [printable(row.file, 1_000), line(figures)]
    out += ["", "duration counts overlap twice; + waits adds recorded waits, which overlap too.", NOT_RECOVERABLE]
    if any(row.times.duration_wait_sum_ns is None for row in rows):
        out.append("- under + waits: no wait is recorded.")
    return "\n".join(out)
