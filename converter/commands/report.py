"""npu-perfetto report: options and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

EXAMPLE = """[bold]Examples[/bold]

npu-perfetto report run.pftrace                                   every table, to paste into a review

npu-perfetto report run.pftrace --table steps --format csv        one table, exact

npu-perfetto report run.pftrace --format html > run.html          one page with charts, no network needed
"""


class Table(StrEnum):
    steps = "steps"
    ranks = "ranks"
    gaps = "gaps"
    patterns = "patterns"
    segments = "segments"
    tails = "tails"
    deepep = "deepep"
    replays = "replays"
    clocks = "clocks"
    vendor = "vendor"


class Format(StrEnum):
    md = "md"
    csv = "csv"
    json = "json"
    html = "html"


def command(
    traces: Annotated[
        list[str], typer.Argument(metavar="TRACE", help="Traces that `convert` wrote.", show_default=False)
    ],
    table: Annotated[
        Table | None, typer.Option("--table", help="Only this table. csv holds one table and needs it.")
    ] = None,
    output_format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="md and html: rounded, with summaries; csv and json: the rows of the SQL tables, exact and whole.",
        ),
    ] = Format.md,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", min=1, help="How many gaps, patterns and steps md and html show."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="PATH", help="Use this native trace_processor_shell.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", min=1, help="How many traces to read at once.")] = 1,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Say what is being done.")] = False,
) -> None:
    """Report what traces say: capture facts first, then ranks, vendor times, clocks, gaps, patterns and the steps."""
    import shutil
    import sys

    from converter import report
    from converter.report_md import WIDTH
    from converter.sql import matching
    from schemas.errors import UsageError

    form, name = output_format.value, None if table is None else table.value
    if form == "csv" and name is None:
        raise UsageError("csv holds one table: give --table, or use --format json for all of them")
    if top is not None and form in ("csv", "json"):
        raise UsageError("--top is for md and html; csv and json hold every row")
    traces = matching(traces)

    def say(text: str) -> None:
        print(f"npu-perfetto: {text}", file=sys.stderr)

    limits = report.limits_of(form, top)
    reports = report.read(traces, name, form, limits, engine, say if verbose and not quiet else None, jobs)
    for failure in reports.failures:
        say(str(failure))
    if reports.tables:
        if form == "csv":
            assert name is not None
            text = report.to_csv(reports.tables, name, escape=sys.stdout.isatty())
        elif form == "json":
            text = report.to_json(reports.tables, name)
        elif form == "html":
            from converter.report_html import to_html

            text = to_html([(t, report.views(t, name, limits)) for t in reports.tables])
        else:
            wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
            text = report.to_md(reports.tables, name, limits, max(60, min(wide, WIDTH)))
        sys.stdout.write(text)
    if reports.failures:
        raise typer.Exit(1)


command.__doc__ = (command.__doc__ or "") + "\n\n" + EXAMPLE
