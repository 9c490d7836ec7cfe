"""The step table of a report: a row per step, what is known of it, and summaries that never mix two measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from converter.report_facts import by_rank, reason
from converter.report_tables import Tables
from converter.report_view import Grid, Limits, Row, View, grouped, number, plural, spread

#: Columns of npu_step_report in the step table: head, column, what kind of number. Times in ms.
STEP_COLUMNS = (
    ("bs", "bs", "count"),
    ("tok", "num_verify_tokens", "count"),
    ("wall", "step_wall_ms", "ms"),
    ("draft", "draft_ms", "ms"),
    ("verify", "verify_ms", "ms"),
    ("outside", "unattributed_ms", "ms"),
    ("tail", "tail_ms", "ms"),
    ("exposed", "exposed_comm_ms", "ms"),
    ("replay", "pre_replay_gap_ms", "ms"),
    ("gaps", "gap_ms", "ms"),
    ("commit", "avg_commit_len", "mean"),
    ("TPOT", "effective_tpot_ms", "ms"),
    ("tok/s", "tokens_per_s", "count"),
)

#: What the summaries are made of; in this order in the json's steps_summary too.
METRICS = (*(column for _, column, _ in STEP_COLUMNS), "step_gpu_ms", "committed_tokens")

#: Metrics that are one of two measurements, and the column that says which.
SOURCES = {"draft_ms": "draft_source", "verify_ms": "verify_source"}
RECORD, LINKED = "record", "linked_tasks"
LINKED_MARK = "t"


def steps_view(tables: Tables, limits: Limits) -> View:
    """One table per rank, its summary below, and one over all ranks."""
    rows = tables.dicts("steps")
    view = View("steps", "Steps", _reading(rows))
    if not rows:
        view.notes.append(reason(by_rank(tables), "steps"))
        return view
    decimals = _decimals(rows)
    by_its_rank = grouped(rows, "rank")
    for (rank,), steps in by_its_rank.items():
        numbered = [(_label(i, s), s) for i, s in enumerate(steps)]
        shown = numbered
        if len(numbered) > limits.steps:
            by_length = sorted(numbered, key=lambda n: -(n[1]["step_wall_ms"] or 0))[: limits.steps]
            keep = {id(s) for _, s in by_length}
            shown = [n for n in numbered if id(n[1]) in keep]
        caption = f"Rank {rank}, {plural(len(steps), 'step')}"
        if len(shown) < len(numbered):
            caption += f", the {len(shown)} longest shown"
        if any(s["forward_ct"] is None for s in steps):
            caption += "; forward_ct is not known, steps are counted from 0"
        cells = [[label, *_step_cells(step, decimals)] for label, step in shown]
        cells += _summary(steps, decimals)
        grid = Grid(("step", *(head for head, _, _ in STEP_COLUMNS)), cells, caption, summary=4)
        grid.open = ["" if s["forward_ct"] is None else f"--step {s['forward_ct']} --rank {rank}" for _, s in shown]
        view.grids.append(grid)
    if len(by_its_rank) > 1:
        caption = (
            f"All {len(by_its_rank)} ranks, {plural(len(rows), 'step of one rank', 'steps of one rank each')}: medians of "
            "single ranks, tok/s too; none is a figure of the run"
        )
        heads = ("ranks", *(head for head, _, _ in STEP_COLUMNS))
        view.grids.append(Grid(heads, _summary(rows, decimals), caption))
    view.notes += _mixed_notes(by_its_rank)
    return view


def _reading(rows: Sequence[Row]) -> str:
    """The legend: what each column is, and the marks that this table has."""
    sources = {s[source] for s in rows for source in SOURCES.values()}
    draft = []
    if RECORD in sources:
        draft.append("draft, verify: the DSpark record's, elapsed on the current stream")
    if LINKED in sources:
        what = "first start to last end of the linked tasks"
        draft.append(f"{LINKED_MARK}: {'no record, ' if draft else 'draft and verify without a record, '}{what}")
    if len(draft) > 1:
        draft.append("these are two measurements")
    cut = "cut: an edge of the trace or of --window lies in the step, and what is not whole is -. "
    return (
        "Times in ms. tok: tokens verified, requests times verify width. wall: start to start. "
        + (", ".join(draft) + ". " if draft else "")
        + "outside: step on the device less both (it flags time, it does not say where). tail: after verify. exposed: "
        "communication not covered by other work. replay: before replays without a recorded task. gaps: in the whole "
        "step. "
        + (cut if any(s["cut"] for s in rows) else "")
        + "commit: tokens committed per request. TPOT = wall / commit: a longer acceptance is not a lower TPOT. tok/s: "
        "committed tokens / wall, of this rank alone. - is not known, not zero."
    )


def _label(index: int, step: Row) -> str:
    number_of = index if step["forward_ct"] is None else step["forward_ct"]
    return f"{number_of} cut" if step["cut"] else str(number_of)


def _decimals(rows: Sequence[Row]) -> int:
    """So many that the longest step takes six characters."""
    longest = max((s["step_wall_ms"] or 0 for s in rows), default=0)
    return 3 if longest < 100 else 2 if longest < 1000 else 1


def _text(value: float | int | None, kind: str, decimals: int, source: str | None = None) -> str:
    text = number(value, {"ms": decimals, "mean": 2, "count": 0}[kind])
    return text + LINKED_MARK if source == LINKED and value is not None else text


def _step_cells(step: Row, decimals: int) -> list[str]:
    return [
        _text(step[column], kind, decimals, step[SOURCES[column]] if column in SOURCES else None)
        for _, column, kind in STEP_COLUMNS
    ]


def by_source(steps: Sequence[Row], metric: str) -> dict[str | None, list[Row]]:
    """The steps that have a value, by the measurement that it is (None: there is but one)."""
    source = SOURCES.get(metric)
    out: dict[str | None, list[Row]] = {}
    for step in steps:
        if step[metric] is not None:
            out.setdefault(step[source] if source else None, []).append(step)
    return out


def _summary(steps: Sequence[Row], decimals: int) -> list[list[str]]:
    """The rows count, median, p90 and max; of two measurements in one column only the count."""
    counts, spreads = ["count"], []
    for _, column, kind in STEP_COLUMNS:
        kinds = by_source(steps, column)
        counts.append(str(sum(map(len, kinds.values()))))
        one = next(iter(kinds), None)
        values = [s[column] for s in kinds[one]] if len(kinds) == 1 else []
        spreads.append((spread(values), kind, one))
    out = [counts]
    for row in ("median", "p90", "max"):
        out.append([row, *(_text(getattr(s, row), kind, decimals, source) for s, kind, source in spreads)])
    return out


def _mixed_notes(ranks: dict[tuple[Any, ...], list[Row]]) -> list[str]:
    """A sentence per metric of which the steps hold both measurements."""
    out = []
    steps = [step for of_rank in ranks.values() for step in of_rank]
    for metric in SOURCES:
        kinds = by_source(steps, metric)
        if len(kinds) > 1:
            out.append(
                f"{metric.removesuffix('_ms')}: {plural(len(kinds[RECORD]), 'step')} from records, "
                f"{plural(len(kinds[LINKED]), 'step')} from linked tasks: two measurements, so no median over both."
            )
    return out


def steps_summary(tables: Tables) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and rows of the json's steps_summary: per rank, metric and source (null where a metric has one kind), then
    over all ranks (rank null)."""
    rows, out = tables.dicts("steps"), []
    groups: list[tuple[int | None, list[Row]]] = [(rank, steps) for (rank,), steps in grouped(rows, "rank").items()]
    for rank, steps in [*groups, (None, rows)] if rows else []:
        for metric in METRICS:
            for source, of_source in (by_source(steps, metric) or {None: []}).items():
                s = spread(step[metric] for step in of_source)
                out.append((rank, metric, s.count, s.median, s.p90, s.max, source))
    return ["rank", "metric", "count", "median", "p90", "max", "source"], out
