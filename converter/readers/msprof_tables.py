"""Small tables of msprof: step_trace_*.csv, msprof_tx_*.csv, communication_statistic_*.csv.

Specified by the headers that msprof writes (times in us as text, `N/A` where absent, a TAB behind numbers):
* step_trace: one slice `Iteration N` per row, which ends at Iteration End and is Iteration Time long, and `FP_BP Time N`
  from FP Start to BP End. The header repeats `Reduce Start(us)`, `Reduce Duration(us)` per all-reduce: columns beyond
  the tenth come in pairs.
* msprof_tx: marks and ranges of the user on the host, and on the device where it says so. Read only without a trace,
  which holds the same marks.
* communication_statistic: sums per operator type, kept as facts: they can be compared with the slices.
Ignored on purpose: step_trace_*.json and msprof_tx_*.json (the same again), api_statistic and op_statistic (sums of
what the slices show). A file that can't be used is a warning; a row that can't be used is counted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import numpy as np

from converter.clock_relations import decimal_of
from converter.device_tracks import process_track
from converter.readers.exact_time import EPOCH_2000_NS
from converter.readers.side_files import Damaged, read_bytes
from schemas.errors import printable
from schemas.tally import Tally
from schemas.timeline import Kind, Role, Timeline

Span = tuple[str, str, int, int]  # track, name, start (ns), duration (ns)
_REDUCE_FROM = 10  # columns of step_trace before the pairs of all-reduces


def read_iterations(paths: Sequence[str], timeline: Timeline) -> None:
    """step_trace: slices on `Step trace` > `NPU d`."""
    _add(timeline, "Step trace", Role.NONE, "step_trace", (s for p in paths for s in _iterations(p, timeline)))


def read_marks(paths: Sequence[str], timeline: Timeline) -> None:
    """msprof_tx: slices on `MsTx` > `Thread T` and `MsTx` > `NPU d`."""
    _add(timeline, "MsTx", Role.HOST, "mstx", (s for p in paths for s in _marks(p, timeline)))


def communication_statistic(paths: Sequence[str], timeline: Timeline) -> dict[str, str]:
    """Facts `communication_statistic.NPU d.<operator type>`: the row's other cells as written."""
    facts = {}
    for path in paths:
        header, rows = _table(path, timeline)
        for _, cells in rows:
            row = dict(zip(header, cells, strict=False))
            if not row.get("OP Type"):
                continue
            key = f"communication_statistic.NPU {row.get('Device_id', '')}.{row['OP Type']}"
            rest = [f"{k} {v}" for k, v in row.items() if k not in ("Device_id", "OP Type") and v]
            facts[printable(key)] = printable(", ".join(rest))
    return facts


def _table(path: str, timeline: Timeline) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """(header, (line, cells) per row); cells without blanks around them."""
    try:
        text = read_bytes(path).decode("utf-8-sig", "replace")
    except Damaged as error:
        timeline.warn(f"{printable(path)}: {printable(error)}; left out", damaged=True)
        return [], iter(())
    reader = csv.reader(io.StringIO(text, newline=""))

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
        except csv.Error as error:
            timeline.warn(f"{printable(path)}, line {reader.line_num}: {printable(error)}; the rest is left out", True)

    found = rows()
    _, header = next(found, (0, []))
    return header, found


def _ns(cell: str) -> int | None:
    number = decimal_of(cell)
    return None if number is None else round(number * 1000)


def _usable(tally: Tally, place: str, start: int | None, dur: int | None) -> bool:
    """Counts a slice; whether it can be placed."""
    tally.read += 1
    if start is None or dur is None:
        tally.drop("not a number", 1, place)
    elif not EPOCH_2000_NS <= start < 2**63 - max(dur, 0):
        tally.drop("start out of range", 1, place)
    elif dur < 0:
        tally.drop("negative duration", 1, place)
    else:
        return True
    return False


def _iterations(path: str, timeline: Timeline) -> Iterator[Span]:
    header, rows = _table(path, timeline)
    tally = timeline.tally.slices
    for line, cells in rows:
        row = dict(zip(header[:_REDUCE_FROM], cells, strict=False))
        track = f"NPU {row.get('Device_id', '') or 0}"
        number, place = row.get("Iteration ID", ""), f"{PurePath(path).name}, line {line}"
        end, dur = _ns(row.get("Iteration End(us)", "")), _ns(row.get("Iteration Time(us)", ""))
        start = None if end is None or dur is None else end - dur
        if _usable(tally, place, start, dur) and start is not None and dur is not None:
            yield track, f"Iteration {number}", start, dur
        begin, stop = _ns(row.get("FP Start(us)", "")), _ns(row.get("BP End(us)", ""))
        if begin is not None and stop is not None and _usable(tally, place, begin, stop - begin):
            yield track, f"FP_BP Time {number}", begin, stop - begin
        for i in range(_REDUCE_FROM, len(cells) - 1, 2):
            begin, dur = _ns(cells[i]), _ns(cells[i + 1])
            if begin is not None and _usable(tally, place, begin, dur) and dur is not None:
                yield track, f"Reduce {number}", begin, dur


def _marks(path: str, timeline: Timeline) -> Iterator[Span]:
    header, rows = _table(path, timeline)
    tally = timeline.tally.slices
    for line, cells in rows:
        row = dict(zip(header, cells, strict=False))
        name, place = row.get("message", "") or "no name", f"{PurePath(path).name}, line {line}"
        for prefix, track in (
            ("", f"Thread {row.get('tid', '')}"),
            ("Device ", f"NPU {row.get('Device_id', '') or 0}"),
        ):
            start, end = _ns(row.get(f"{prefix}Start_time(us)", "")), _ns(row.get(f"{prefix}End_time(us)", ""))
            if prefix and start is None:
                continue  # a mark of the host only
            dur = None if start is None or end is None else end - start
            if _usable(tally, place, start, dur) and start is not None and dur is not None:
                yield track, name, start, dur


def _add(timeline: Timeline, group: str, role: Role, category: str, spans: Iterator[Span]) -> None:
    by_track: dict[str, list[Span]] = {}
    for span in spans:
        by_track.setdefault(span[0], []).append(span)
    if not by_track:
        return
    parent = timeline.track(group, Kind.GROUP, parent=process_track(timeline))
    for name, found in by_track.items():
        track = timeline.track(name, Kind.LANE, parent=parent, role=role)
        ts, dur = (np.array([span[i] for span in found], np.int64) for i in (2, 3))
        timeline.add_slices(track, ts, dur, [span[1] for span in found], category)
