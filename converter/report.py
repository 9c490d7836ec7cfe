"""`npu-perfetto report`: what a trace says, for people (md, html) and for programs (csv, json)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from converter import report_capture, report_step_table, report_steps
from converter.engine import open_trace
from converter.parallel import Workers
from converter.report_facts import facts_view
from converter.report_md import WIDTH, views_to_md
from converter.report_tables import JSON_TABLES, NEEDS, TABLES, Tables, load
from converter.report_view import Limits, View
from converter.rows import json_value
from converter.rows import to_csv as rows_to_csv
from schemas.errors import EngineError, InputError, NpuPerfettoError, printable

SECTIONS: dict[str, Callable[[Tables, Limits], View]] = {
    "ranks": report_capture.ranks_view,
    "vendor": report_capture.vendor_view,
    "clocks": report_capture.clocks_view,
    "gaps": report_capture.gaps_view,
    "patterns": report_capture.patterns_view,
    "steps": report_step_table.steps_view,
    "segments": report_steps.segments_view,
    "tails": report_steps.tails_view,
    "deepep": report_steps.deepep_view,
    "replays": report_steps.replays_view,
}

MD_LIMITS = Limits(gaps=10, patterns=10, steps=40)
HTML_LIMITS = Limits(gaps=20, patterns=20, steps=500)


@dataclass
class Reports:
    """The tables of every trace that could be read, and one error per trace that could not."""

    tables: list[Tables] = field(default_factory=list)
    failures: list[NpuPerfettoError] = field(default_factory=list)


def limits_of(form: str, top: int | None) -> Limits:
    """How many rows a format shows; `top` (--top) for all kinds of rows."""
    if top is not None:
        return Limits(top, top, top)
    return HTML_LIMITS if form == "html" else MD_LIMITS


def wanted(table: str | None, form: str) -> list[str]:
    """The tables to read for a report in this format."""
    if form in ("csv", "json"):
        return list(JSON_TABLES) if table is None else [table]
    names = [name for section in ([table] if table else SECTIONS) for name in NEEDS[section]]
    return [*names, "steps", "step_times", "gap_times", "ranks"] if form == "html" else names


def read(
    traces: Sequence[str],
    table: str | None,
    form: str,
    limits: Limits,
    engine: str | None = None,
    progress: Callable[[str], None] | None = None,
    jobs: int = 1,
) -> Reports:
    """Reads the traces; the others are still read where one fails. jobs: how many at once, each in an engine."""
    reports = Reports()
    few = {"gaps": limits.gaps} if form in ("md", "html") else None
    one = partial(_read_one, names=wanted(table, form), few=few, engine=engine)
    results = {}
    for position, result in Workers(jobs).as_done(one, traces):
        results[position] = result
        if progress:
            progress(f"{printable(traces[position])}: read")
    for position in sorted(results):
        result = results[position]
        if isinstance(result, Tables):
            reports.tables.append(result)
        else:
            where = "" if isinstance(result, InputError) else f"{printable(traces[position])}: "
            reports.failures.append(type(result)(where + str(result)) if where else result)
    return reports


def _read_one(
    trace: str, names: Sequence[str], few: dict[str, int] | None, engine: str | None
) -> Tables | NpuPerfettoError:
    try:
        with open_trace(trace, engine=engine) as tp:
            return load(tp, trace, names, few)
    except (InputError, EngineError) as error:
        return error


def views(tables: Tables, table: str | None, limits: Limits) -> list[View]:
    """The facts, always first, and one section or all; of all, those without rows are named in one at the end."""
    sections = [SECTIONS[name](tables, limits) for name in ([table] if table else SECTIONS)]
    full = [view for view in sections if view.grids or table]
    empty = [(view.title, " ".join(view.notes)) for view in sections if view not in full]
    out = [facts_view(tables), *full]
    return [*out, View("empty", "Not in this trace", "", empty)] if empty else out


def to_md(reports: Iterable[Tables], table: str | None, limits: Limits, width: int = WIDTH) -> str:
    """A part per trace."""
    return "\n".join(views_to_md(f"Report of {t.trace}", views(t, table, limits), width) for t in reports)


def to_csv(reports: Sequence[Tables], table: str, escape: bool = False) -> str:
    """One table, exact; with several traces the first column is `trace`. escape: for a terminal."""
    several = len(reports) > 1
    columns = reports[0][table].columns
    rows = [(t.trace, *row) if several else row for t in reports for row in t[table].rows]
    return rows_to_csv(["trace", *columns] if several else columns, rows, escape)


def to_json(reports: Sequence[Tables], table: str | None) -> str:
    """One table as a list of objects, or all of them as an object; integers exact, `trace` where there are several."""
    if table:
        return _rows_json([(t, t[table].columns, t[table].rows) for t in reports]) + "\n"
    parts = {name: [(t, t[name].columns, t[name].rows) for t in reports] for name in JSON_TABLES}
    parts["steps_summary"] = [(t, *report_step_table.steps_summary(t)) for t in reports]
    body = ",\n".join(f"{json.dumps(name)}: {_rows_json(rows)}" for name, rows in parts.items())
    return f"{{{body}}}\n"


def _rows_json(parts: Sequence[tuple[Tables, Sequence[str], Sequence[tuple[Any, ...]]]]) -> str:
    lines = []
    for tables, names, rows in parts:
        mark = {"trace": tables.trace} if len(parts) > 1 else {}
        for row in rows:
            lines.append(json.dumps(mark | {n: json_value(v) for n, v in zip(names, row, strict=True)}))
    return "[" + ",\n ".join(lines) + "]"


assert list(SECTIONS) == list(TABLES) == list(NEEDS)
