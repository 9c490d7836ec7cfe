"""`npu-perfetto compare`: two traces side by side, metric by metric, with what differs between them above the numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from converter.bootstrap import DRAWS, LEVEL, MIN_STEPS, Float64, Interval, difference_of_medians
from converter.compare_facts import Difference, conditions, differences, known, label, work
from converter.engine import open_trace
from converter.report_facts import by_rank, perturbation
from converter.report_md import WIDTH, views_to_md
from converter.report_step_table import LINKED, RECORD, by_source
from converter.report_tables import Tables, load
from converter.report_view import Grid, View, columns, number, percent
from schemas.errors import UsageError, printable

#: The metrics of article 000's table, in its order: column of npu_step_report, name, decimals.
METRICS = (
    ("draft_ms", "draft ms", 3),
    ("verify_ms", "verify ms", 3),
    ("unattributed_ms", "outside ms", 3),
    ("tail_ms", "tail ms", 3),
    ("exposed_comm_ms", "exposed comm. ms", 3),
    ("pre_replay_gap_ms", "pre-replay gap ms", 3),
    ("gap_ms", "gaps ms", 3),
    ("step_wall_ms", "step wall ms", 3),
    ("avg_commit_len", "commit length", 2),
    ("effective_tpot_ms", "TPOT ms", 3),
    ("tokens_per_s", "tokens/s per rank", 0),
)

#: What is compared where a trace has no steps: column of npu_rank_times in ns, metric, name.
RANK_METRICS = (
    ("wall_ns", "wall_ms", "wall ms"),
    ("busy_union_ns", "busy_union_ms", "union ms"),
    ("gap_ns", "gap_ms", "gap ms"),
)

SOURCE_WORDS = {RECORD: "from records", LINKED: "from linked tasks"}

#: A change below this part of the value is not marked, however sure it is: clocks and rounding are no finer.
SMALLEST_CHANGE = 0.002


@dataclass(frozen=True)
class Row:
    """One metric of one rank (None: the run). Medians; steps: how many have a value. low, high: the bootstrap interval
    of the difference, None where there are too few steps. changed: the interval is off zero and the change not tiny.
    refused: why there is no difference although both sides are known. Without steps: the rank's own times, steps 0.
    """

    rank: int | None
    metric: str
    steps_before: int
    steps_after: int
    before: float | None
    after: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    changed: bool | None = None
    refused: str | None = None


@dataclass
class Comparison:
    """facts: what differs. by_step: False where a trace has no steps and the rows are of npu_rank_times."""

    before: Tables
    after: Tables
    facts: list[Difference]
    rows: list[Row]
    notes: list[str]
    by_step: bool = True

    def strict_failure(self, under_test: Sequence[str] = ()) -> bool:
        """Something that matters differs, apart from the facts that are under test."""
        return any(d.matters and not _is_under_test(d.key, under_test) for d in self.facts)


def _is_under_test(key: str, under_test: Sequence[str]) -> bool:
    return any(key == name or label(key) == name or key.endswith(f".{name}") for name in under_test)


def check_under_test(c: Comparison, under_test: Sequence[str]) -> None:
    """Raises UsageError for a name that is no fact of either trace."""
    keys = known(c.before, c.after)
    for name in under_test:
        if not any(_is_under_test(key, [name]) for key in keys):
            shown = ", ".join(dict.fromkeys(map(printable, keys)))
            raise UsageError(f"--under-test: {printable(name, 60)!r} is no fact of these traces; known are: {shown}")


def read(
    before: str, after: str, engine: str | None = None, progress: Callable[[str], None] | None = None
) -> Comparison:
    """Loads both traces, one after the other. Raises InputError, EngineError."""
    tables = []
    for trace in (before, after):
        if progress:
            progress(f"{trace}: loading")
        with open_trace(trace, engine=engine) as tp:
            tables.append(load(tp, trace, ("steps", "ranks")))
    return compare(*tables)


def compare(before: Tables, after: Tables) -> Comparison:
    """The comparison of two traces' step reports; of their ranks' times where one of them has no steps."""
    rows: list[Row] = []
    steps = [t.dicts("steps") for t in (before, after)]
    if not all(steps):
        rows, notes = _by_rank_times(before, after)
        return Comparison(before, after, differences(before, after), rows, notes, by_step=False)
    ranks = [sorted({s["rank"] for s in side}) for side in steps]
    both = [rank for rank in ranks[0] if rank in ranks[1]]
    groups: list[int | None] = [*both, None] if len(both) > 1 or ranks[0] != ranks[1] else [*both]
    for rank in groups:
        for metric, _, _ in METRICS:
            of_ranks = [ranks[i] if rank is None else [rank] for i in range(2)]
            kinds = [
                set(by_source([s for s in side if s["rank"] in chosen], metric))
                for side, chosen in zip(steps, of_ranks, strict=True)
            ]
            sides = [_matrix(side, metric, chosen) for side, chosen in zip(steps, of_ranks, strict=True)]
            rows.append(
                _row(rank, metric, *sides) if len(kinds[0] | kinds[1]) < 2 else _refused(rank, metric, sides, kinds)
            )
    return Comparison(before, after, differences(before, after), rows, _notes(steps, ranks, rows))


def _matrix(steps: Sequence[dict[str, Any]], metric: str, ranks: Sequence[int]) -> Float64:
    """float64[steps, ranks]: one row per step number, NaN where a rank has no value."""
    cells: dict[Any, dict[int, float]] = {}
    index = dict.fromkeys(ranks, 0)
    for step in steps:
        rank = step["rank"]
        if rank not in index:
            continue
        key = ("at", index[rank]) if step["forward_ct"] is None else step["forward_ct"]
        index[rank] += 1
        if step[metric] is not None:
            cells.setdefault(key, {})[rank] = step[metric]
    return np.array([[row.get(r, np.nan) for r in ranks] for row in cells.values()], np.float64).reshape(
        len(cells), len(ranks)
    )


def _row(rank: int | None, metric: str, before: Float64, after: Float64) -> Row:
    low, high = (float(np.nanmedian(side)) if side.size else None for side in (before, after))
    counts = [int(np.count_nonzero(~np.isnan(side))) for side in (before, after)]
    row = Row(rank, metric, counts[0], counts[1], low, high)
    if low is None or high is None:
        return row
    row = replace(row, difference=high - low)
    interval = difference_of_medians(before, after)
    if interval is None:
        return row
    changed = _changed(interval, high - low, max(abs(low), abs(high)))
    return replace(row, low=interval.low, high=interval.high, changed=changed)


def _refused(rank: int | None, metric: str, sides: Sequence[Float64], kinds: Sequence[set[str | None]]) -> Row:
    """A metric whose values are two measurements: no difference between them, no median over both."""
    counts = [int(np.count_nonzero(~np.isnan(side))) for side in sides]
    medians = [float(np.nanmedian(s)) if len(k) == 1 else None for s, k in zip(sides, kinds, strict=True)]
    what = ["both kinds" if len(k) > 1 else SOURCE_WORDS.get(next(iter(k), None) or "", "none") for k in kinds]
    why = f"two measurements: before {what[0]}, after {what[1]}"
    return Row(rank, metric, counts[0], counts[1], medians[0], medians[1], refused=why)


def _by_rank_times(before: Tables, after: Tables) -> tuple[list[Row], list[str]]:
    """wall, union and gap of the ranks that both traces have. One value each: no interval, nothing is marked."""
    sides = [{row["rank"]: row for row in tables.dicts("ranks")} for tables in (before, after)]
    rows = []
    for rank in sorted(set(sides[0]) & set(sides[1])):
        for column, metric, _ in RANK_METRICS:
            ours, theirs = (None if (ns := side[rank][column]) is None else ns / 1e6 for side in sides)
            difference = None if ours is None or theirs is None else theirs - ours
            rows.append(Row(rank, metric, 0, 0, ours, theirs, difference))
    without = [t.trace for t in (before, after) if not t.dicts("steps")]
    notes = [f"{trace} has no steps." for trace in without]
    if not rows:
        return rows, [*notes, "No rank has recorded tasks in both traces: there is nothing to compare."]
    notes.append(
        "Compared are wall, union and gap of each rank, over the window of its trace: they are of use only where both "
        "windows hold the same work. One value each, so nothing says how sure a difference is."
    )
    missing = sorted(set(sides[0]) ^ set(sides[1]))
    return rows, [*notes, f"Only in one of the traces: rank {', '.join(map(str, missing))}."] if missing else notes


def _changed(interval: Interval, difference: float, size: float) -> bool:
    return not interval.low <= 0 <= interval.high and abs(difference) > SMALLEST_CHANGE * size


def _notes(steps: Sequence[Sequence[Any]], ranks: Sequence[list[int]], rows: Sequence[Row]) -> list[str]:
    notes = []
    missing = sorted(set(ranks[0]) ^ set(ranks[1]))
    if missing:
        notes.append(f"Only in one of the traces: rank {', '.join(map(str, missing))}.")
    few = min((sum(s["rank"] == r for s in side) for side, rs in zip(steps, ranks, strict=True) for r in rs), default=0)
    if few < MIN_STEPS:
        notes.append(f"Too few steps for an interval: a rank has {few}, at least {MIN_STEPS} are needed.")
    for text in dict.fromkeys(f"{_name(row.metric)}: {row.refused}; no difference." for row in rows if row.refused):
        notes.append(text)
    return notes


def _name(metric: str) -> str:
    return next(name for key, name, _ in METRICS if key == metric)


def to_views(c: Comparison, under_test: Sequence[str] = ()) -> list[View]:
    """What differs, then a table per rank and one over the run."""
    return [_facts_view(c, under_test), _table_view(c)]


def _facts_view(c: Comparison, under_test: Sequence[str]) -> View:
    view = View(
        "facts",
        "What differs",
        "Figures of two traces compare only under the same conditions.",
        items=[
            ("before", c.before.trace),
            ("after", c.after.trace),
            ("steps before", work(c.before)),
            ("steps after", work(c.after)),
        ],
    )
    same = conditions(c.before, c.after)
    view.items.append(("the same in both", "; ".join(f"{name} {value}" for name, value in same) or "nothing is stated"))
    rows = []
    for d in c.facts:
        weight = "under test" if _is_under_test(d.key, under_test) else "yes" if d.matters else "no"
        rows.append([label(d.key), d.before, d.after, weight])
    if rows:
        heads = ("fact", "before", "after", "condition")
        view.grids.append(Grid(heads, rows, names=columns(1, 2), text=columns(0, 1, 2, 3)))
    failing = [label(d.key) for d in c.facts if d.matters and not _is_under_test(d.key, under_test)]
    if failing:
        view.notes.append(
            f"Conditions differ ({', '.join(failing)}): the differences below are not of the change alone."
        )
    else:
        view.notes.append(
            "No other condition that the traces state differs." if rows else "No stated condition differs."
        )
    perturbed = [perturbation(by_rank(t), t.ranks()) for t in (c.before, c.after)]
    if perturbed[0] == perturbed[1]:
        view.notes.append(perturbed[0])
    else:
        view.notes += [f"{when}: {text}" for when, text in zip(("Before", "After"), perturbed, strict=True)]
    return view


def _table_view(c: Comparison) -> View:
    if not c.by_step:
        return _ranks_view(c)
    view = View(
        "metrics",
        "Medians",
        f"Medians over the steps of single ranks, tokens/s too: none is a figure of the run. interval: {LEVEL:.0%} bootstrap interval of the difference, {DRAWS:,} draws of whole "
        "steps, the same every time. Steps follow from each other, so it is rather too narrow; of 20 metrics that did "
        "not change about one is marked by chance. changed: the interval leaves out zero and the difference is above "
        f"{SMALLEST_CHANGE:.1%}. Total communication is not exposed communication; a longer commit is not a lower TPOT.",
        notes=list(c.notes),
    )
    heads = ("metric", "before", "after", "difference", "%", "interval", "changed", "steps")
    for rank in dict.fromkeys(row.rank for row in c.rows):
        rows = [_cells(row) for row in c.rows if row.rank == rank]
        caption = "All ranks: medians of single ranks" if rank is None else f"Rank {rank}"
        view.grids.append(Grid(heads, rows, caption, text=columns(0, 6)))
    return view


def _ranks_view(c: Comparison) -> View:
    view = View("metrics", "Times of the ranks", "", notes=list(c.notes))
    heads = ("rank", "time", "before", "after", "difference", "%")
    names = {metric: name for _, metric, name in RANK_METRICS}
    cells = [[str(row.rank), names[row.metric], *_figures(row, 3)] for row in c.rows]
    if cells:
        view.grids.append(Grid(heads, cells, text=columns(1)))
    return view


def _cells(row: Row) -> list[str]:
    name, decimals = next((n, d) for m, n, d in METRICS if m == row.metric)
    interval = "-" if row.low is None else f"{number(row.low, decimals)} to {number(row.high, decimals)}"
    if row.low is None and row.difference is not None:
        interval = f"under {MIN_STEPS} steps"
    if row.refused:
        interval = "two measurements"
    mark = {True: "yes", False: "no", None: "-"}[row.changed]
    steps = f"{row.steps_before} / {row.steps_after}"
    return [name, *_figures(row, decimals), interval, mark, steps]


def _figures(row: Row, decimals: int) -> list[str]:
    """before, after, difference, percent."""
    share = None if not row.before or row.difference is None else row.difference / row.before
    change, percents = _signed(number(row.difference, decimals)), _signed(percent(share, 1))
    return [number(row.before, decimals), number(row.after, decimals), change, percents]


def _signed(text: str) -> str:
    return text if text[0] == "-" or not any(c in "123456789" for c in text) else f"+{text}"


def to_md(c: Comparison, under_test: Sequence[str] = (), width: int = WIDTH) -> str:
    """For people."""
    return views_to_md("Comparison", to_views(c, under_test), width)


FIELDS = tuple(Row.__dataclass_fields__)


def to_csv(c: Comparison) -> str:
    """The rows, exact; NULL is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in c.rows:
        values = asdict(row)
        cells = [{True: "true", False: "false"}.get(v, v) if isinstance(v, bool) else v for v in values.values()]
        writer.writerow(["" if v is None else v for v in cells])
    return out.getvalue()


def to_json(c: Comparison, under_test: Sequence[str] = ()) -> str:
    """Facts, rows and notes as one object."""
    value = {
        "before": c.before.trace,
        "after": c.after.trace,
        "comparable": not c.strict_failure(under_test),
        "facts": [asdict(d) | {"under_test": _is_under_test(d.key, under_test)} for d in c.facts],
        "metrics": [asdict(row) for row in c.rows],
        "notes": c.notes,
    }
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
