"""Which decode steps are in the capture, and what did DSpark record about each? Tracks: Steps, and its counters.

Needs the `scheduler.*` and `step[...]` spans of the host trace; DSpark records are optional.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from annotators.annotation import Annotation
from annotators.columns import evidence_column, float_column, int_column, texts_column
from annotators.grouping import extents
from annotators.linking import linked_to
from annotators.match_doubts import rows_at
from annotators.matching import Match, match
from annotators.segments import placed_lengths
from annotators.spans import find_spans
from annotators.step_bounds import count_run_batches, find_steps, start_to_start_ms
from schemas.annotation_bytes import nested_annotation
from schemas.dspark import (
    RECORD_FLOATS,
    RECORD_INTS,
    REQUEST_FLOATS,
    REQUEST_ID,
    REQUEST_INTS,
    REQUEST_TOKENS,
    RankRecords,
)
from schemas.dspark_tables import Links, Steps
from schemas.timeline import NULL, Int64, Kind, Layer, Role, Timeline

NO_STEPS = "no step[VERIFY ...] span in the host trace"


@dataclass(frozen=True)
class Whole:
    """The steps of a rank before it was cut to a window, which would leave fewer of them to match.

    verify_ts: int64[k], tells a step also where the cut took its other spans; counted: int64[k], forward_ct relative to
    the first step; found: the matching, None without records; first_forward_ct: the user's word.
    """

    verify_ts: Int64
    counted: Int64
    found: Match | None
    first_forward_ct: int | None

    def index(self, verify_ts: Int64) -> Int64:
        """int64[n]: which of these steps each one is, NULL where none."""
        order = np.argsort(self.verify_ts, kind="stable")
        at = np.minimum(np.searchsorted(self.verify_ts[order], verify_ts), len(order) - 1)
        return np.where(self.verify_ts[order][at] == verify_ts, order[at], NULL)


def whole(timeline: Timeline, records: RankRecords | None, first_forward_ct: int | None, links: Links) -> Whole | None:
    """Steps and records of the whole input; None where it has no steps."""
    spans = find_spans(timeline)
    steps = find_steps(spans)
    if not len(steps):
        return None
    counted = count_run_batches(steps, spans)
    found = None if records is None else _match(timeline, steps, counted, records, first_forward_ct, links)
    return Whole(steps.verify_ts, counted, found, first_forward_ct)


def _match(
    timeline: Timeline, steps: Steps, counted: Int64, records: RankRecords, first: int | None, links: Links | None
) -> Match:
    placed = None if links is None else placed_lengths(timeline, steps, links)
    return match(records, steps.bs, steps.g_sq, steps.g_sk, start_to_start_ms(steps), counted, first, placed)


def annotate(
    timeline: Timeline,
    records: RankRecords | None = None,
    first_forward_ct: int | None = None,
    with_token_ids: bool = False,
    with_request_ids: bool = False,
    links: Links | None = None,
    before_cut: Whole | None = None,
) -> Annotation:
    """Tracks Steps and counters; table `steps` (Steps), and `match` (Match) where records were given.

    records: those of this rank; first_forward_ct: the user's word for the first step; links: for the extent of each
    step's linked tasks (`first_task_ts`, `last_task_end`), and for what contradicts the records; before_cut: what `whole`
    found where the timeline was cut since: its matching counts.
    """
    spans = find_spans(timeline)
    steps = find_steps(spans)
    if not len(steps):
        unplaced = [] if records is None else [f"{len(records)} DSpark records can't be placed: {NO_STEPS}"]
        return Annotation(skipped=NO_STEPS, refused=unplaced)
    counted = count_run_batches(steps, spans)
    at = None if before_cut is None else before_cut.index(steps.verify_ts)
    known = np.ones(len(steps), np.bool_)
    if before_cut is not None and at is not None:
        known = at != NULL
        counted = before_cut.counted[at] if known.all() else counted  # from the first step of the input
    out = Annotation(tables={"steps": steps})
    if records is not None:
        if before_cut is None or before_cut.found is None or at is None:
            found = _match(timeline, steps, counted, records, first_forward_ct, links)
            row = _rows(found, np.arange(len(steps)), len(records))
        else:
            row = _rows(before_cut.found, at, len(records))
            found = _of_cut(before_cut.found, row, len(records))
        out.tables["match"] = found
        out.warnings.extend(found.warnings)
        if found.shift is None:
            out.refused.append(f"DSpark records are not matched to steps: {found.refused}")
        else:
            steps.record, steps.records = row, records
            steps.forward_ct = steps.ints("forward_ct")
        out.facts["dspark"] = _facts(records, found)
        _warn_of_jumps(steps, counted, out)
    if first_forward_ct is not None:
        number = counted if before_cut is None or at is None else before_cut.counted[at]
        steps.forward_ct = np.where((steps.forward_ct == NULL) & known, number + first_forward_ct, steps.forward_ct)
    steps.wall_ns = _walls(steps, counted)
    extent = _task_extents(timeline, steps, links)
    out.layer = _layer(timeline, steps, extent, links, with_token_ids, with_request_ids)
    return out


def _rows(found: Match, step: Int64, n: int) -> Int64:
    """int64[k]: the record of each step, given its number among the matched ones (NULL: not among them)."""
    if found.shift is None:
        return np.full(len(step), NULL, np.int64)
    has, row = rows_at(found.shift, int(step.max(initial=0)) + 1, n)
    return np.where((step != NULL) & has[step], row[step], NULL)


def _of_cut(found: Match, row: Int64, n: int) -> Match:
    """The matching of the whole input, counted over the steps that the cut left."""
    if found.shift is None:
        return replace(found, unmatched_steps=len(row))
    mine = row[row != NULL]
    before, after = (int(mine.min()), n - 1 - int(mine.max())) if len(mine) else (n, 0)
    return replace(
        found, matched=len(mine), unmatched_steps=len(row) - len(mine), records_before=before, records_after=after
    )


def _walls(steps: Steps, counted: Int64) -> Int64:
    out = np.full(len(steps), NULL, np.int64)
    if len(steps) > 1:
        number = np.where((steps.forward_ct == NULL).any(), counted, steps.forward_ct)
        following = (np.diff(number) == 1) & ~steps.cut[1:] & ~steps.cut[:-1]
        out[:-1] = np.where(following, np.diff(steps.ts), NULL)
    return out


def _warn_of_jumps(steps: Steps, counted: Int64, out: Annotation) -> None:
    """forward_ct grows by one per run_batch: where the records say otherwise, the matching or the capture is odd."""
    known = steps.forward_ct != NULL
    both = known[1:] & known[:-1]
    odd = both & (np.diff(steps.forward_ct) != np.diff(counted))
    if odd.any():
        out.warnings.append(
            f"forward_ct and the scheduler.run_batch spans disagree on {int(odd.sum())} of {int(both.sum())} distances "
            "between steps"
        )


def _committed(steps: Steps) -> Int64:
    """int64[steps]: sum of acc_len over the requests, NULL where unknown."""
    out = np.full(len(steps), NULL, np.int64)
    for step, requests in enumerate(_requests(steps)):
        lengths = [request.get("acc_len") for request in requests or []]
        if lengths and all(isinstance(length, int) for length in lengths):
            out[step] = sum(length for length in lengths if isinstance(length, int))
    return out


def _requests(steps: Steps) -> list[list[dict[str, Any]] | None]:
    if steps.records is None:
        return [None] * len(steps)
    reqs = steps.records.reqs
    return [reqs[row] if row >= 0 else None for row in steps.record.tolist()]


def _task_extents(timeline: Timeline, steps: Steps, links: Links | None) -> tuple[Int64, Int64]:
    """First start and last end of each step's linked tasks, NULL where unknown."""
    if links is None:
        return np.full(len(steps), NULL, np.int64), np.full(len(steps), NULL, np.int64)
    owner = linked_to(links, steps.ts, steps.end, steps.track)
    rows = np.flatnonzero(owner != NULL)
    return extents(owner[rows], timeline.tasks.ts[rows], timeline.tasks.end[rows], len(steps))


def cut_by(timeline: Timeline, steps: Steps, extent: tuple[Int64, Int64], links: Links | None) -> list[str]:
    """What cuts each step: `window`, `span` (its own span was cut), or nothing (empty).

    extent: as of `_task_extents`. A window cuts a step that it does not hold whole, host span and linked tasks. The
    device lags behind: where a step ends before the window does, its last tasks may lie outside. So it counts as whole
    only where a task that was submitted after it starts in the window, after its last one. `--steps` ends its window
    with the last task of its steps.
    """
    out = np.where(steps.cut, "span", "").astype("<U6")
    if not timeline.cut or timeline.window is None:
        return [str(text) for text in out.tolist()]
    low, high = timeline.window
    first, last = extent
    whole = (steps.ts >= low) & (steps.end <= high) & ((last == NULL) | ((first >= low) & (last <= high)))
    if timeline.cut == "window" and links is not None:
        order = np.argsort(links.source_ts, kind="stable")
        latest = np.maximum.accumulate(timeline.tasks.ts[order][::-1])[::-1]  # start of a task submitted then or later
        at = np.searchsorted(links.source_ts[order], steps.end, side="right")
        follows = np.append(latest, NULL)[at]
        whole &= (last != NULL) & (follows >= last)
    out[~whole] = "window"
    return [str(text) for text in out.tolist()]


def _layer(
    timeline: Timeline,
    steps: Steps,
    extent: tuple[Int64, Int64],
    links: Links | None,
    with_token_ids: bool,
    with_request_ids: bool,
) -> Layer:
    layer = Layer(timeline.strings, timeline.slice_count)
    track = layer.track(
        "Steps",
        Kind.LANE,
        role=Role.DERIVED,
        order=10,
        description="Decode steps: scheduler.run_batch spans that hold a verify span, with the DSpark record of each. "
        "`inferred`: the span was cut, bounds are those of the forwards inside it. cut: `span`, or `window` where "
        "--window leaves a part of the step or of its tasks out.",
    )
    step_gpu, draft, verify = (steps.floats(f"{k}_gpu_ms") for k in ("step", "draft", "target_verify"))
    unattributed = np.round(step_gpu - draft - verify, 4)  # as SGLang rounds the three
    committed = _committed(steps)
    average = np.where((committed != NULL) & (steps.bs > 0), committed / np.maximum(steps.bs, 1), np.nan)
    tokens = steps.ints("num_verify_tokens")
    mode_of = steps.records.mode_of if steps.records is not None else None
    columns = [
        int_column("step", np.arange(len(steps), dtype=np.int64)),
        int_column("forward_ct", steps.forward_ct),
        int_column("bs", steps.bs),
        texts_column("mode", layer.strings, [mode_of(r) if mode_of and r >= 0 else "" for r in steps.record.tolist()]),
        int_column("step_wall_ns", steps.wall_ns),
        *(int_column(key, steps.ints(key)) for key in RECORD_INTS if key not in ("forward_ct", "bs")),
        *(float_column(key, steps.floats(key)) for key in RECORD_FLOATS),
        float_column("unattributed_ms", unattributed),
        int_column("committed_tokens", committed),
        float_column("avg_commit_len", average),
        int_column("first_task_ts", extent[0]),
        int_column("last_task_end", extent[1]),
        texts_column("cut", layer.strings, cut_by(timeline, steps, extent, links)),
        evidence_column(layer.strings, ~steps.cut, "recorded", "inferred"),
    ]
    names = ["step" if number == NULL else f"step {number}" for number in steps.forward_ct.tolist()]
    extra = [_request_bytes(one, with_token_ids, with_request_ids) for one in _requests(steps)]
    layer.add_slices(track, steps.ts, steps.end - steps.ts, names, "npu.step", columns, extra)
    counters: list[tuple[str, str, Any, Any]] = [
        ("Unattributed step time", "us", unattributed * 1000, ~np.isnan(unattributed)),
        ("Committed tokens", "tokens", committed, committed != NULL),
        ("Average commit length", "tokens", average, ~np.isnan(average)),
        ("Verify tokens", "tokens", tokens, tokens != NULL),
    ]
    for order, (name, unit, values, valid) in enumerate(counters, 70):
        if valid.any():
            counter = layer.track(name, Kind.COUNTER, role=Role.DERIVED, order=order, unit=unit)
            layer.add_samples(counter, steps.ts[valid], values[valid])
    return layer


def _request_bytes(requests: list[dict[str, Any]] | None, with_token_ids: bool, with_request_ids: bool) -> bytes:
    """The nested argument `requests` of a step. Token and request ids are personal: only where asked for."""
    if not requests:
        return b""
    keys = [*REQUEST_INTS, *REQUEST_FLOATS]
    keys += REQUEST_TOKENS if with_token_ids else ()
    keys += [REQUEST_ID] if with_request_ids else []
    rows = []
    for index, request in enumerate(requests):
        row: dict[str, Any] = {"req_index": index}
        for key in keys:
            value = request.get(key)
            if _is_usable(key, value):
                row[key] = value
        rows.append(row)
    return nested_annotation("requests", rows)


def _is_usable(key: str, value: Any) -> bool:
    if key == REQUEST_ID:
        return isinstance(value, str)
    if key in REQUEST_FLOATS:
        return isinstance(value, list) and all(isinstance(v, (int, float)) for v in value)
    if key == "draft_tokens":
        return isinstance(value, list) and all(isinstance(v, int) for v in value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _facts(records: RankRecords, found: Match) -> dict[str, Any]:
    """What the summary and the facts slice say about the matching. None is left out by the writer."""
    return {
        "record_count": len(records),
        "matched_steps": found.matched,
        "unmatched_steps": found.unmatched_steps,
        "unmatched_records_before": found.records_before,
        "unmatched_records_after": found.records_after,
        "candidates": found.candidates,
        "score_ms": found.score_ms,
        "runner_up_ms": found.runner_up_ms,
        "refused": found.refused or None,
        "mode": records.mode or None,
        "gamma": records.gamma if records.gamma != NULL else None,
        "verify_num_draft_tokens": records.verify_width if records.verify_width != NULL else None,
        "components": ",".join(records.components) or None,
        "simulate_acc_len": records.simulate_acc_len,
    }
