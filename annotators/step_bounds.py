"""Where does each decode step begin and end on the host? Out of the spans alone (design.md, Step).

A step is a `scheduler.run_batch` span that holds a verify span. The first step of a `start_step` profile has no such
span, because the profiler is switched on inside it: it runs from its draft span's start to the end of the following
`copy_result_to_cpu`, else of its verify span.
"""

from __future__ import annotations

import numpy as np

from annotators.spans import Span
from schemas.dspark import Float64
from schemas.dspark_tables import Spans, Steps
from schemas.timeline import NULL, Int64


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


def count_run_batches(steps: Steps, spans: Spans) -> Int64:
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


def start_to_start_ms(steps: Steps) -> Float64:
    """float64[steps]: from the previous step's start; from forward to forward where one of the two was cut."""
    out = np.full(len(steps), np.nan)
    if len(steps) > 1:
        first = _first_forward_ts(steps)
        cut = steps.cut[1:] | steps.cut[:-1]
        out[1:] = np.where(cut, np.diff(first), np.diff(steps.ts)) / 1e6
    return out
