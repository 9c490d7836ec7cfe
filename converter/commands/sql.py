"""`npu-perfetto sql`."""

from __future__ import annotations

from enum import StrEnum

import typer


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def command(
    arguments: list[str] = typer.Argument(
        ..., metavar="TRACE|QUERY", help="Traces, then the query (unless -f is given)."
    ),
    query_file: str | None = typer.Option(
        None, "-f", "--file", metavar="FILE", help="Read the query from FILE (- for stdin)."
    ),
    form: Format = typer.Option(Format.TABLE, "--format", help="table, csv, or json: a list of objects."),
    engine: str | None = typer.Option(
        None, "--engine", metavar="PATH", help="Use this native trace_processor_shell.", show_default=False
    ),
    jobs: int = typer.Option(1, "--jobs", "-j", metavar="N", min=1, help="How many traces to ask at once."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print errors only."),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="Say what is being done."),
) -> None:
    """Ask traces a question in SQL.

    The modules of the package `npu` can be included. Of several statements the result of the last one is printed.
    With several traces the first column, `trace`, says which one a row is from.

    Example: npu-perfetto sql run.pftrace "INCLUDE PERFETTO MODULE npu.steps; SELECT forward_ct, dur FROM npu_steps"
    """
    import shutil
    import sys

    from converter.rows import to_text
    from converter.sql import run, split_arguments

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    traces, query = split_arguments(arguments, query_file)
    answer = run(traces, query, engine, say if verbose and not quiet else None, jobs)
    for warning in answer.warnings if not quiet else ():
        say(f"warning: {warning}")
    for failure in answer.failures:
        say(f"npu-perfetto: {failure}")
    # Of a statement without a result, such as INCLUDE alone, the engine makes the column `0` without rows.
    no_result = not answer.rows and answer.columns[-1:] in ([], ["0"])
    if answer.answered and not (no_result and form is not Format.JSON):
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(to_text(answer.columns, answer.rows, form.value, width))
    if answer.failures:
        raise typer.Exit(1)
