"""Which decode steps are in the capture, and what did DSpark record about each? Tracks: Steps, and its counters.

Needs the `scheduler.*` and `step[...]` spans of the host trace; DSpark records are optional.
A step is a `scheduler.run_batch` span that holds a verify span (design.md, Definitions). The first step of a
`start_step` profile has no such span (the profiler is switched on inside it): it runs from its draft span's start to
the end of the following `copy_result_to_cpu`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from annotators.annotation import Annotation
from annotators.columns import evidence_column, float_column, int_column, texts_column
from annotators.grouping import extents
from annotators.linking import linked_to
from annotators.matching import Match, match
from annotators.spans import Span, find_spans
from schemas.annotation_bytes import nested_annotation
from schemas.dspark import (
    RECORD_FLOATS,
    RECORD_INTS,
    REQUEST_FLOATS,
    REQUEST_ID,
    REQUEST_INTS,
    REQUEST_TOKENS,
    Float64,
    RankRecords,
)
from schemas.dspark_tables import Links, Spans, Steps
from schemas.timeline import NULL, Int64, Kind, Layer, Role, Timeline

NO_STEPS = "no step[VERIFY ...] span in the host trace"


def annotate(
    timeline: Timeline,
    records: RankRecords | None = None,
    first_forward_ct: int | None = None,
    with_token_ids: bool = False,
    with_request_ids: bool = False,
    links: Links | None = None,
) -> Annotation:
    """Tracks Steps and counters; table `steps` (Steps), and `match` (Match) where records were given.

    records: those of this rank; first_forward_ct: the user's word for the first step; links: for the extent of each
    step's linked tasks (`first_task_ts`, `last_task_end`).
    """
    spans = find_spans(timeline)
    steps = find_steps(spans)
    if not len(steps):
        unplaced = [] if records is None else [f"{len(records)} DSpark records can't be placed: {NO_STEPS}"]
        return Annotation(skipped=NO_STEPS, refused=unplaced)
    counted = _count_run_batches(steps, spans)
    out = Annotation(tables={"steps": steps})
    if records is not None:
        found = match(records, steps.bs, steps.g_sq, steps.g_sk, _start_to_start_ms(steps), counted, first_forward_ct)
        out.tables["match"] = found
        out.warnings.extend(found.warnings)
        if found.shift is None:
            out.refused.append(f"DSpark records are not matched to steps: {found.refused}")
        else:
            _apply(steps, records, found)
        out.facts["dspark"] = _facts(records, found)
        _warn_of_jumps(steps, counted, out)
    if first_forward_ct is not None:
        steps.forward_ct = np.where(steps.forward_ct == NULL, counted + first_forward_ct, steps.forward_ct)
    steps.wall_ns = _walls(steps, counted)
    extent = _task_extents(timeline, steps, links)
    out.layer = _layer(timeline, steps, extent, with_token_ids, with_request_ids)
    return out


def find_steps(spans: Spans) -> Steps:
    """The steps of all threads, by start; without forward_ct, wall_ns and records."""
    rows: list[tuple[int, int, bool, int, int]] = []  # ts, end, cut, track, row of the verify span
    drafts: list[list[int]] = []
    for track in np.unique(spans.track).tolist():
        of_track = np.flatnonzero(spans.track == track)
        for ts, end, cut, verify_row, draft in _steps_of_track(spans, of_track):
            rows.append((ts, end, cut, track, verify_row))
            drafts.append(draft)
    order = sorted(range(len(rows)), key=lambda i: rows[i])
    rows, drafts = [rows[i] for i in order], [drafts[i] for i in order]
    table = np.array(rows, np.int64).reshape(-1, 5)
    verify = table[:, 4]
    draft_rows = np.array([row for one in drafts for row in one], np.int64)
    n = len(rows)
    return Steps(
        ts=table[:, 0],
        end=table[:, 1],
        cut=table[:, 2].astype(np.bool_),
        track=table[:, 3],
        bs=spans.bs[verify],
        g_sq=spans.g_sq[verify],
        g_sk=spans.g_sk[verify],
        verify_ts=spans.ts[verify],
        verify_end=spans.end[verify],
        verify_slice=spans.slice[verify],
        draft_step=np.repeat(np.arange(n), [len(one) for one in drafts]).astype(np.int64),
        draft_ts=spans.ts[draft_rows],
        draft_end=spans.end[draft_rows],
        draft_slice=spans.slice[draft_rows],
        forward_ct=np.full(n, NULL, np.int64),
        wall_ns=np.full(n, NULL, np.int64),
        record=np.full(n, NULL, np.int64),
    )


def _steps_of_track(spans: Spans, rows: Int64) -> list[tuple[int, int, bool, int, list[int]]]:
    """(ts, end, cut, verify row, draft rows) of one thread."""
    kind = spans.kind[rows]
    batches = rows[kind == Span.RUN_BATCH]
    copies = rows[kind == Span.COPY_RESULT]
    forwards = rows[(kind == Span.DRAFT) | (kind == Span.VERIFY) | (kind == Span.VERIFY_OR_DRAFT)]
    if (kind == Span.VERIFY).any():  # the newer names: a TARGET_VERIFY beside them is neither
        forwards = forwards[spans.kind[forwards] != Span.VERIFY_OR_DRAFT]
    before = np.searchsorted(spans.ts[batches], spans.ts[forwards], side="right") - 1
    inside = (before >= 0) & (spans.end[forwards] <= spans.end[batches][before]) if len(batches) else before >= 0
    out = []
    for batch in np.unique(before):
        held = forwards[(before == batch) & inside]
        for verify, drafts in _pair(spans, held)[-1:]:
            out.append((int(spans.ts[batches[batch]]), int(spans.end[batches[batch]]), False, verify, drafts))
        loose = _pair(spans, forwards[(before == batch) & ~inside])
        starts = [int(spans.ts[drafts[0] if drafts else verify]) for verify, drafts in loose]
        after = int(spans.ts[batches[batch + 1]]) if batch + 1 < len(batches) else np.iinfo(np.int64).max
        for (verify, drafts), start, limit in zip(loose, starts, [*starts[1:], after], strict=False):
            end = int(spans.end[verify])
            copy = copies[(spans.ts[copies] >= end) & (spans.ts[copies] < limit)][:1]
            out.append((start, int(spans.end[copy[0]]) if len(copy) else end, True, verify, drafts))
    return out


def _pair(spans: Spans, forwards: Int64) -> list[tuple[int, list[int]]]:
    """(verify, its drafts) in a run of forwards. In older traces draft and verify share the name: the second of each
    pair is the verify; one left over at the front has lost its draft.
    """
    kinds = spans.kind[forwards]
    old = kinds == Span.VERIFY_OR_DRAFT
    alone = bool(old.sum() % 2)
    out: list[tuple[int, list[int]]] = []
    drafts: list[int] = []
    seen_old = 0
    for row, is_old, kind in zip(forwards.tolist(), old.tolist(), kinds.tolist(), strict=True):
        closes = kind == Span.VERIFY
        if is_old:
            seen_old += 1
            closes = (seen_old % 2 == 1) if alone else (seen_old % 2 == 0)
        if closes:
            out.append((row, drafts))
            drafts = []
        else:
            drafts.append(row)
    return out


def _count_run_batches(steps: Steps, spans: Spans) -> Int64:
    """int64[steps]: forward_ct relative to the first step, as far as run_batch spans tell: each is one forward; so is
    a step whose span was cut.
    """
    starts = np.sort(spans.ts[spans.kind == Span.RUN_BATCH])
    started = np.searchsorted(starts, steps.ts, side="right")
    cut = np.cumsum(steps.cut)
    return np.asarray((started - started[0]) + (cut - cut[0]), np.int64)


def _first_forward_ts(steps: Steps) -> Int64:
    """The start of each step's first forward: known for cut steps too."""
    out = steps.verify_ts.copy()
    np.minimum.at(out, steps.draft_step, steps.draft_ts)
    return out


def _start_to_start_ms(steps: Steps) -> Float64:
    """float64[steps]: from the previous step's start; from forward to forward where one of the two was cut."""
    out = np.full(len(steps), np.nan)
    if len(steps) > 1:
        first = _first_forward_ts(steps)
        cut = steps.cut[1:] | steps.cut[:-1]
        out[1:] = np.where(cut, np.diff(first), np.diff(steps.ts)) / 1e6
    return out


def _apply(steps: Steps, records: RankRecords, found: Match) -> None:
    assert found.shift is not None
    row = np.arange(len(steps)) + found.shift
    steps.record = np.where((row >= 0) & (row < len(records)), row, NULL).astype(np.int64)
    steps.records = records
    steps.forward_ct = steps.ints("forward_ct")


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


def _layer(
    timeline: Timeline, steps: Steps, extent: tuple[Int64, Int64], with_token_ids: bool, with_request_ids: bool
) -> Layer:
    layer = Layer(timeline.strings, timeline.slice_count)
    track = layer.track(
        "Steps",
        Kind.LANE,
        role=Role.DERIVED,
        order=10,
        description="Decode steps: scheduler.run_batch spans that hold a verify span, with the DSpark record of each. "
        "`inferred`: the span was cut, bounds are those of the forwards inside it.",
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
        evidence_column(layer.strings, ~steps.cut, "recorded", "inferred"),
    ]
    names = ["step" if number == NULL else f"step {number}" for number in steps.forward_ct.tolist()]
    extra = [_request_bytes(one, with_token_ids, with_request_ids) for one in _requests(steps)]
    layer.add_slices(track, steps.ts, steps.end - steps.ts, names, "npu.step", columns, extra)
    counters: list[tuple[str, str, Any, Any]] = [
        ("Unattributed step time", "ms", unattributed, ~np.isnan(unattributed)),
        ("Committed tokens", "", committed, committed != NULL),
        ("Average commit length", "", average, ~np.isnan(average)),
        ("Verify tokens", "", tokens, tokens != NULL),
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
