"""Which DSpark record belongs to which step? Records hold no time of day, so a matching is one shift of the list of
records against the list of steps (design.md, Matching): step k has record k + shift. It is unique, or it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from annotators.match_doubts import ANOTHER_RUN, MANY_STEPS, contradiction, prefix_sums, rows_at, weak
from schemas.dspark import Float64, RankRecords
from schemas.timeline import NULL, Bool, Int64

_DECIDES = "--first-forward-ct N decides, the forward_ct of the first step"
_FEW_MS = 1.0  # below this, a difference in step_cpu_ms is no sign of another run


@dataclass
class Match:
    """shift: None where refused, with the reason in `refused`. score_ms: mean |step_cpu_ms - start-to-start time| of
    the matching that was taken, runner_up_ms of the next one (None = not needed, or unknown).
    records_before, records_after: unmatched records on either side of the matched ones.
    """

    shift: int | None
    matched: int = 0
    unmatched_steps: int = 0
    records_before: int = 0
    records_after: int = 0
    candidates: int = 0
    score_ms: float | None = None
    runner_up_ms: float | None = None
    refused: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def unmatched_records(self) -> int:
        return self.records_before + self.records_after


def match(
    records: RankRecords,
    bs: Int64,
    g_sq: Int64,
    g_sk: Int64,
    start_to_start_ms: Float64,
    counted_ct: Int64,
    first_forward_ct: int | None = None,
    placed_ns: Mapping[str, Int64] | None = None,
) -> Match:
    """The one shift that fits and that nothing contradicts, or a refusal.

    bs, g_sq, g_sk: int64[steps] from the spans, NULL where they do not hold them.
    start_to_start_ms: float64[steps], from the previous step's start; NaN for the first, or where unknown.
    counted_ct: int64[steps], forward_ct relative to the first step, counted by run_batch spans.
    first_forward_ct: the user's word for the first step's forward_ct; it decides, and contradictions are warnings.
    placed_ns: see `contradiction`; None where tasks are not linked to spans.
    """
    found = _place(records, bs, g_sq, g_sk, start_to_start_ms, counted_ct, first_forward_ct)
    if found.shift is None:
        return found
    against = contradiction(records, found.shift, g_sk, placed_ns or {})
    if not against:
        by_time = found.runner_up_ms is not None and found.matched >= MANY_STEPS
        if first_forward_ct is None and not by_time and found.unmatched_steps <= found.matched:
            found.warnings += filter(None, [weak(records, found.shift, bs, g_sk)])
        return found
    if first_forward_ct is not None:
        found.warnings.append(f"with forward_ct {first_forward_ct} as the first step's, {against}: {ANOTHER_RUN}")
        return found
    return _refused(records, len(bs), f"{against}: {ANOTHER_RUN}", found.candidates)


def _place(
    records: RankRecords,
    bs: Int64,
    g_sq: Int64,
    g_sk: Int64,
    start_to_start_ms: Float64,
    counted_ct: Int64,
    first_forward_ct: int | None,
) -> Match:
    """The one shift that bs, g_sq, g_sk and step_cpu_ms allow, or the user's."""
    steps, n = len(bs), len(records)
    if not n:
        return _refused(records, steps, "the file holds no usable record for this rank")
    if first_forward_ct is not None:
        return _decided(records, bs, counted_ct, first_forward_ct)
    warnings: list[str] = []
    possible = _possible(records, bs, g_sq, g_sk, warnings)
    if not len(possible):
        return _refused(
            records, steps, f"no place where the batch sizes of {n} records fit {steps} steps: {ANOTHER_RUN}"
        )
    overlap = _overlap(possible, steps, n)
    best = possible[overlap == overlap.max()]
    if len(best) == 1:
        scores = _scores(records, start_to_start_ms, best)
        return _taken(records, start_to_start_ms, int(best[0]), steps, 1, scores[0], None, warnings)
    scores = _scores(records, start_to_start_ms, best)
    order = np.argsort(scores, kind="stable")  # NaN last
    first, second = scores[order[0]], scores[order[1]]
    unscored = np.isnan(scores)
    if unscored.any():
        why = f"{len(best)} places fit {steps} steps equally well, and not all of them have step_cpu_ms to tell them apart"
        return _refused(records, steps, f"ambiguous: {why}", len(best), warnings)
    if first < second and first * 3 <= second:
        chosen = int(best[order[0]])
        return _taken(records, start_to_start_ms, chosen, steps, len(best), first, second, warnings)
    why = (
        f"{len(best)} places fit {steps} steps; by step_cpu_ms the best is off by {first:.3f} ms a step and "
        f"the next by {second:.3f} ms, less than three times as much"
    )
    refusal = _refused(records, steps, f"ambiguous: {why}", len(best), warnings)
    refusal.score_ms, refusal.runner_up_ms = float(first), float(second)
    return refusal


def _possible(records: RankRecords, bs: Int64, g_sq: Int64, g_sk: Int64, warnings: list[str]) -> Int64:
    """Every shift at which bs, g_sq and g_sk are equal wherever both sides state them."""
    steps, n = len(bs), len(records)
    shifts = np.arange(-(steps - 1), n, dtype=np.int64)
    shifts = _filter(shifts, bs, records.ints["bs"])[0]
    if (g_sq != NULL).any() and records.verify_width != NULL:
        # Compact mode has ragged widths: the span's g_sq assumes uniform ones and is wrong there.
        uniform = np.array([records.mode_of(row) != "compact" for row in range(n)], np.bool_)
        known = uniform & (records.ints["bs"] != NULL)
        shifts = _filter(shifts, g_sq, np.where(known, records.ints["bs"] * records.verify_width, NULL))[0]
    if not (g_sk != NULL).any() or not len(shifts):
        return shifts
    prefix = prefix_sums(records)
    fitting = np.zeros(len(shifts), np.bool_)
    compared_any = fits_any = False
    for width in {0, max(records.verify_width, 0)}:
        known = (prefix != NULL) & (records.ints["bs"] != NULL)
        expected = np.where(known, prefix + records.ints["bs"] * width, NULL)
        kept, compared = _filter(shifts, g_sk, expected)
        fitting |= np.isin(shifts, kept)
        fits_any |= bool((compared > 0).any())
        compared_any |= bool(known.any())
    if compared_any and not fits_any:
        warnings.append(
            "g_sk of the spans is neither sum(prefix_len) nor that plus bs x verify width anywhere: it is set aside"
        )
        return shifts
    return shifts[fitting]


def _filter(shifts: Int64, of_steps: Int64, of_records: Int64) -> tuple[Int64, Int64]:
    """The shifts at which the two columns are equal wherever both are known, and how many pairs were compared there.

    One pass per step over the shifts still alive: few survive the first steps unless the columns are constant.
    """
    compared = np.zeros(len(shifts), np.int64)
    padded = _padded(of_records, len(of_steps), NULL)
    for step in np.flatnonzero(of_steps != NULL):
        value = _of_step(padded, shifts, int(step), len(of_steps))
        known = value != NULL
        alive = ~known | (value == of_steps[step])
        compared += known
        if not alive.all():
            shifts, compared = shifts[alive], compared[alive]
    return shifts, compared


def _padded(column: Int64 | Float64, steps: int, missing: float) -> Any:
    """The column with as many missing rows on either side as a shift can reach."""
    edge = np.full(steps, missing, column.dtype)
    return np.concatenate((edge, column, edge))


def _of_step(padded: Any, shifts: Int64, step: int, steps: int) -> Any:
    """The value that each shift gives to a step: a view where the shifts are a range, which is the costly case."""
    if len(shifts) and int(shifts[-1]) - int(shifts[0]) == len(shifts) - 1:
        first = int(shifts[0]) + step + steps
        return padded[first : first + len(shifts)]
    return padded[shifts + (step + steps)]


def _overlap(shifts: Int64, steps: int, n: int) -> Int64:
    """How many steps have a record under each shift."""
    return np.minimum(steps, n - shifts) - np.maximum(0, -shifts)


def _scores(records: RankRecords, start_to_start_ms: Float64, shifts: Int64) -> Float64:
    """Mean |step_cpu_ms - start-to-start time| per shift, NaN where there is no pair. A record's step_cpu_ms looks
    back, so it meets the time from the previous step's start to its own.
    """
    steps = len(start_to_start_ms)
    padded = _padded(records.floats["step_cpu_ms"], steps, np.nan)
    total, count = np.zeros(len(shifts)), np.zeros(len(shifts), np.int64)
    for step in np.flatnonzero(~np.isnan(start_to_start_ms)):
        off = np.abs(_of_step(padded, shifts, int(step), steps) - start_to_start_ms[step])
        known = ~np.isnan(off)
        total += np.where(known, off, 0.0)
        count += known
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _taken(
    records: RankRecords,
    start_to_start_ms: Float64,
    shift: int,
    steps: int,
    candidates: int,
    score: float,
    runner_up: float | None,
    warnings: list[str],
) -> Match:
    n = len(records)
    first, last = max(0, shift), min(n, shift + steps)
    out = Match(shift, last - first, steps - (last - first), first, n - last, candidates, warnings=warnings)
    out.score_ms = None if np.isnan(score) else round(float(score), 4)
    out.runner_up_ms = None if runner_up is None or np.isnan(runner_up) else round(float(runner_up), 4)
    against = list(warnings)  # g_sk set aside
    typical = np.nanmedian(start_to_start_ms) if (~np.isnan(start_to_start_ms)).any() else np.nan
    if out.score_ms is not None and out.score_ms > max(_FEW_MS, typical / 4):
        against.append(f"step_cpu_ms differs there by {out.score_ms:.3f} ms a step (a step takes {typical:.3f} ms)")
    few = f"only {out.matched} of {steps} steps have a record where the batch sizes fit"
    at_the_ends = out.matched < min(steps, n) or out.unmatched_steps > out.matched  # the lists hardly overlap
    if at_the_ends and against:
        return _refused(records, steps, f"{few}, and {against[-1]}: {ANOTHER_RUN}", candidates)
    if out.unmatched_steps > out.matched:
        warnings.append(f"{few}: too few to be sure that it is the same run ({_DECIDES})")
    elif len(against) > len(warnings):
        warnings.append(f"the batch sizes fit in one place only, but {against[-1]}: {ANOTHER_RUN} ({_DECIDES})")
    return out


def _decided(records: RankRecords, bs: Int64, counted_ct: Int64, first_forward_ct: int) -> Match:
    """The user's word: the record with this forward_ct is the first step's; where it is absent, the first step whose
    counted forward_ct has a record.
    """
    steps, n = len(bs), len(records)
    number = counted_ct + first_forward_ct
    row = np.searchsorted(records.forward_ct, number)
    found = (row < n) & (records.forward_ct[np.minimum(row, n - 1)] == number)
    if not found.any():
        ends = f"{records.forward_ct[0]} to {records.forward_ct[-1]}"
        why = f"no record of a step from forward_ct {first_forward_ct} on (the records go from {ends})"
        return _refused(records, steps, why)
    step = int(np.argmax(found))
    shift = int(row[step]) - step
    out = _taken(records, np.full(steps, np.nan), shift, steps, 1, np.nan, None, [])
    out.warnings = []
    differs = _bs_differs(records, bs, shift)
    if differs.any():
        out.warnings.append(
            f"with forward_ct {first_forward_ct} as the first step's, bs differs from the record in "
            f"{int(differs.sum())} of {out.matched} steps"
        )
    return out


def _bs_differs(records: RankRecords, bs: Int64, shift: int) -> Bool:
    has, row = rows_at(shift, len(bs), len(records))
    value = np.where(has, records.ints["bs"][row], NULL)
    return np.asarray((value != NULL) & (bs != NULL) & (value != bs), np.bool_)


def _refused(records: RankRecords, steps: int, why: str, candidates: int = 0, warnings: Sequence[str] = ()) -> Match:
    n = len(records)
    hint = f"; {_DECIDES}" if n else ""
    return Match(None, 0, steps, n, 0, candidates, refused=why + hint, warnings=list(warnings))
