"""The ranges that SGLang writes into the host trace: `step[...]` around every ModelRunner.forward and `scheduler.*`.

Names: SGLang 0.5.23, `record_function` (sglang#23419, #38630); the PP loop uses `run_batch` without a prefix.
Only distinct names meet a regular expression: there are a few hundred, whatever the capture's size.
"""

from __future__ import annotations

import enum
import re

import numpy as np

from schemas.dspark_tables import Spans
from schemas.timeline import NULL, Host, Int64, Timeline

STEP_NAME = re.compile(
    r"^step\[(?P<stage>[A-Z_0-9]+) bs=(?P<bs>\d+)(?: toks=(?P<toks>\d+))?(?P<work>(?: [A-Za-z_]+=[^\s\]]+)*)\s*\]$"
)
_WORK = re.compile(r" ([A-Za-z_]+)=(\d+)(?=[\s\]]|$)")


class Span(enum.IntEnum):
    """What a span is. VERIFY_OR_DRAFT: `step[TARGET_VERIFY ...]`, which before sglang#38630 named both."""

    RUN_BATCH = 0
    COPY_RESULT = 1
    DRAFT = 2
    VERIFY = 3
    VERIFY_OR_DRAFT = 4
    OTHER_STEP = 5


_KIND_OF_STAGE = {"DRAFT": Span.DRAFT, "VERIFY": Span.VERIFY, "TARGET_VERIFY": Span.VERIFY_OR_DRAFT}
_KIND_OF_NAME = {
    "scheduler.run_batch": Span.RUN_BATCH,
    "run_batch": Span.RUN_BATCH,
    "copy_result_to_cpu": Span.COPY_RESULT,
    "scheduler.copy_result_to_cpu": Span.COPY_RESULT,
}


def read_name(name: str) -> tuple[Span, int, int, int] | None:
    """(kind, bs, g_sq, g_sk) of a span's name, NULL where it does not say; None if it is no span of ours."""
    kind = _KIND_OF_NAME.get(name)
    if kind is not None:
        return kind, NULL, NULL, NULL
    found = STEP_NAME.match(name)
    if found is None:
        return None
    work = {key: int(value) for key, value in _WORK.findall(found["work"]) if len(value) < 19}
    bs = int(found["bs"]) if len(found["bs"]) < 19 else NULL
    kind = _KIND_OF_STAGE.get(found["stage"], Span.OTHER_STEP)
    return kind, bs, work.get("g_sq", NULL), work.get("g_sk", NULL)


def find_spans(timeline: Timeline) -> Spans:
    """All spans of a rank, sorted by start, longer first. A range that the exporter wrote twice counts once."""
    host, strings = timeline.host, timeline.strings
    used = (host.source == Host.FRAMEWORK) | (host.source == Host.OTHER)
    counts = np.bincount(host.name[used], minlength=len(strings))
    read = {i: r for i in np.flatnonzero(counts).tolist() if (r := read_name(strings[i])) is not None}
    wanted = np.zeros(len(strings), np.bool_)
    wanted[list(read)] = True
    rows = np.flatnonzero(used & wanted[host.name])
    order = np.lexsort((rows, -host.dur[rows], host.ts[rows]))
    rows = rows[order]
    parts = np.array([read[int(i)] for i in host.name[rows]], np.int64).reshape(-1, 4)
    spans = Spans(
        rows.astype(np.int64),
        parts[:, 0],
        host.ts[rows],
        host.end[rows],
        host.track[rows].astype(np.int64),
        host.slice[rows],
        parts[:, 1],
        parts[:, 2],
        parts[:, 3],
    )
    return spans.select(_first_of_equals(spans))


def _first_of_equals(spans: Spans) -> Int64:
    """Rows without exact repeats (same kind, thread, start, end and batch)."""
    key = np.stack([spans.track, spans.ts, spans.end, spans.kind, spans.bs], axis=1)
    _, first = np.unique(key, axis=0, return_index=True)
    return np.sort(first)
