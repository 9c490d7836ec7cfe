"""`check --against`: does a trace hold what its input holds? The input is read again and compared by name.

Per rank and slice name: how many slices, the sum of their durations, a checksum over start and length of each, the
first start and the last end, all exact integers. Per rank and counter: how many samples, a checksum over their times,
and the sum of their values. Per rank: how many flows (which ends they have, `check` compares with what was written).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from converter.remote import fetched
from schemas.checksum import PRIME, SQL, slice_checksums
from schemas.errors import printable
from schemas.timeline import Timeline

if TYPE_CHECKING:
    from converter.engine import Engine

Row = tuple[int, int, int, int, int]  # count, sum of durations, checksum of starts and lengths, first start, last end

SLICES = """
INCLUDE PERFETTO MODULE npu._tracks;
SELECT t.rank, s.name, count(*), sum(s.dur >> 32), sum(s.dur & 0xFFFFFFFF), sum({checksum}), min(s.ts), max(s.ts + s.dur)
FROM slice s JOIN _npu_tracks t USING (track_id)
WHERE coalesce(s.category, '') = 'npu.task' OR coalesce(s.category, '') NOT GLOB 'npu.*' GROUP BY t.rank, s.name
"""

SAMPLES = """
INCLUDE PERFETTO MODULE npu._tracks;
SELECT t.rank, k.name, count(*), sum(c.ts % {prime}), sum(c.value)
FROM counter c JOIN _npu_tracks t USING (track_id) JOIN track k ON k.id = c.track_id
WHERE t.derived = 0 GROUP BY t.rank, k.name
"""
FLOWS = """
INCLUDE PERFETTO MODULE npu.facts;
SELECT rank, CAST(value AS INT) FROM npu_facts WHERE key = 'input_flows.written' AND rank IS NOT NULL
"""


def compare(tp: Engine, inputs: Sequence[str]) -> list[str]:
    """The differences between an open trace and its inputs, one line each; none where they agree.

    Raises InputError or UsageError where an input can't be read.
    """
    wanted: dict[int, Timeline] = {}
    from_db = {int(rank) for (rank,) in tp.rows(
        "INCLUDE PERFETTO MODULE npu.facts; SELECT rank FROM npu_facts WHERE key = 'capture.read_from' "
        "AND value = 'SQLite export' AND rank IS NOT NULL"
    )}  # fmt: skip
    with fetched(inputs) as given:
        for capture in find_captures(list(given)):
            options = Options(annotate=(), prefer="db" if capture.rank in from_db else "text")
            wanted[capture.rank] = read(capture, options).timeline
    offsets = {rank: int(offset) for rank, offset in tp.rows(
        "INCLUDE PERFETTO MODULE npu.ranks; SELECT rank, coalesce(offset_ns, 0) FROM npu_rank_clocks"
    )}  # fmt: skip
    left_out = _left_out(tp)
    held = tp.rows(SLICES.format(checksum=SQL))
    samples = tp.rows(SAMPLES.format(prime=PRIME))
    flows = {int(rank): int(count) for rank, count in tp.rows(FLOWS)}
    problems = []
    for rank, timeline in sorted(wanted.items()):
        if rank not in offsets:
            problems.append(f"rank {rank}: the trace has no such rank")
            continue
        have = {name: _row(*(int(v or 0) for v in rest)) for r, name, *rest in held if r == rank}
        want = _by_name(timeline, offsets[rank])
        problems += _differences(rank, have, want, left_out.get((rank, "slices"), 0))
        problems += _other_counters(
            rank,
            {n: tuple(v) for r, n, *v in samples if r == rank},
            timeline,
            offsets[rank],
            left_out.get((rank, "counters"), 0),
        )
        written = timeline.tally.flows.written - left_out.get((rank, "flows"), 0)
        if flows.get(rank, 0) != written:
            problems.append(f"rank {rank}: {written:,} flows in the input, {flows.get(rank, 0):,} in the trace")
    for rank in sorted(set(offsets) - set(wanted)):
        problems.append(f"rank {rank}: is in the trace and not in the input")
    return problems


def _other_counters(rank: int, have: dict[str, Any], timeline: Timeline, offset: int, left_out: int) -> list[str]:
    """Differences of the counters. Values are float64 in the engine, so their sums agree to rounding.

    left_out: how many samples were left out on purpose; then only the numbers are compared.
    """
    if left_out:
        lost = sum(map(len, timeline.counters)) - sum(int(count) for count, *_ in have.values())
        what = f"rank {rank}: {lost:,} counter samples of the input are not in the trace, {left_out:,} were left out on purpose"
        return [] if lost == left_out else [what]
    want: dict[str, list[Any]] = {}
    for batch in timeline.counters:
        ts = (batch.ts + offset) % PRIME
        for i in np.unique(batch.track).tolist():
            mine = batch.track == i
            row = want.setdefault(_in_trace(timeline.tracks[i].name), [0, 0, 0.0])
            row[0] += int(mine.sum())
            row[1] += int(ts[mine].sum())
            row[2] += float(batch.values[mine].sum())
    out = []
    for name in sorted(set(want) | set(have)):
        a, b = want.get(name, [0, 0, 0.0]), have.get(name, (0, 0, 0.0))
        shown = printable(name, 80)
        if a[0] != b[0]:
            out.append(f"rank {rank}: counter {shown}: {a[0]:,} samples in the input, {b[0]:,} in the trace")
        elif a[1] != b[1]:
            out.append(f"rank {rank}: counter {shown}: the times of its samples differ")
        elif not math.isclose(a[2], b[2], rel_tol=1e-6, abs_tol=1e-6):
            out.append(f"rank {rank}: counter {shown}: the values of its samples differ")
    return out


def _left_out(tp: Engine) -> dict[tuple[int, str], int]:
    """What --window, --steps or --drop left out, by rank and kind: such a trace can't equal its whole input."""
    rows = tp.rows(
        "INCLUDE PERFETTO MODULE npu.facts; SELECT rank, key, CAST(value AS INT) FROM npu_facts "
        "WHERE key GLOB 'input_*.dropped.*' AND rank IS NOT NULL"
    )
    out: dict[tuple[int, str], int] = {}
    for rank, key, count in rows:
        what, _, reason = key.removeprefix("input_").partition(".dropped.")
        if reason in ("outside window", "excluded"):
            out[int(rank), what] = out.get((int(rank), what), 0) + int(count)
    return out


def _in_trace(text: str) -> str:
    """A name as it is in the trace: texts that differ only in what UTF-8 or SQL can't hold are one name there."""
    return text.encode("utf-8", "replace").decode("utf-8").split("\0")[0]


def _by_name(timeline: Timeline, offset: int) -> dict[str, Row]:
    if not timeline.slice_count:  # counters alone
        return {}
    name = np.concatenate([b.name for b in timeline.slices])
    ts = np.concatenate([b.ts for b in timeline.slices]) + offset
    dur = np.concatenate([np.zeros(len(b), np.int64) if b.instant else b.dur for b in timeline.slices])
    order = np.argsort(name, kind="stable")
    name, ts, dur = name[order], ts[order], dur[order]
    first = np.flatnonzero(np.diff(name, prepend=-1))
    count = np.diff(np.append(first, len(name)))
    columns = (
        count,
        np.add.reduceat(dur >> 32, first),
        np.add.reduceat(dur & 0xFFFFFFFF, first),
        np.add.reduceat(slice_checksums(ts, dur), first),
        np.minimum.reduceat(ts, first),
        np.maximum.reduceat(ts + dur, first),
    )
    texts = [timeline.strings[i] for i in name[first].tolist()]
    out: dict[str, Row] = {}
    for text, *row in zip(texts, *(c.tolist() for c in columns), strict=True):
        key = _in_trace(text)
        out[key] = _sum(out[key], _row(*row)) if key in out else _row(*row)
    return out


def _row(count: int, high: int, low: int, checksum: int, first: int, last: int) -> Row:
    """The sum of durations comes in two parts: it may exceed an int64."""
    return count, (high << 32) + low, checksum, first, last


def _sum(a: Row, b: Row) -> Row:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], min(a[3], b[3]), max(a[4], b[4])


def _differences(rank: int, have: dict[str, Any], want: dict[str, Row], dropped: int) -> list[str]:
    if dropped:
        lost = sum(row[0] for row in want.values()) - sum(row[0] for row in have.values())
        if lost != dropped:
            return [
                f"rank {rank}: {lost:,} slices of the input are not in the trace, {dropped:,} were left out on purpose"
            ]
        return []
    out = []
    for name in sorted(set(want) | set(have)):
        a, b = want.get(name), have.get(name)
        shown = printable(name, 80)
        if b is None:
            out.append(f"rank {rank}: {shown}: {a[0] if a else 0:,} slices of the input are not in the trace")
        elif a is None:
            out.append(f"rank {rank}: {shown}: {b[0]:,} slices of the trace are not in the input")
        elif a[0] != b[0]:
            out.append(f"rank {rank}: {shown}: {a[0]:,} slices in the input, {b[0]:,} in the trace")
        elif a != b:
            what = [
                k
                for k, x, y in zip(
                    ("durations", "starts and lengths", "first start", "last end"), a[1:], b[1:], strict=True
                )
                if x != y
            ]
            out.append(f"rank {rank}: {shown}: the sums of {', '.join(what)} differ")
    return out
