"""npu-perfetto compare: options and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

EXAMPLE = """[bold]Examples[/bold]

npu-perfetto compare before.pftrace after.pftrace

npu-perfetto compare before.pftrace after.pftrace --strict --under-test sglang_commit
"""


class Format(StrEnum):
    md = "md"
    csv = "csv"
    json = "json"


def command(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="The trace to compare with.", show_default=False)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The trace after the change.", show_default=False)],
    output_format: Annotated[
        Format, typer.Option("--format", help="md: rounded, for people; csv: the metrics; json: facts and metrics.")
    ] = Format.md,
    strict: Annotated[
        bool, typer.Option("--strict", help="Leave with 3 where the conditions of the two captures differ.")
    ] = False,
    under_test: Annotated[
        list[str] | None,
        typer.Option(
            "--under-test",
            metavar="FACT",
            help="A fact that is meant to differ: listed, but no reason for 3. Repeatable.",
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="PATH", help="Use this native trace_processor_shell.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Say what is being done.")] = False,
) -> None:
    """Compare the steps of two traces: medians, differences and how sure they are; above them, what else differs."""
    import shutil
    import sys

    from converter import compare
    from converter.report_md import WIDTH
    from converter.sql import matching
    from schemas.errors import printable

    before, after = matching([before])[0], matching([after])[0]

    def say(text: str) -> None:
        if verbose and not quiet:
            print(f"npu-perfetto: {printable(text)}", file=sys.stderr)

    found = compare.read(before, after, engine, say)
    names = under_test or []
    compare.check_under_test(found, names)
    if output_format is Format.csv:
        text = compare.to_csv(found)
    elif output_format is Format.json:
        text = compare.to_json(found, names)
    else:
        wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
        text = compare.to_md(found, names, max(60, min(wide, WIDTH)))
    sys.stdout.write(text)
    if not found.rows:
        print("npu-perfetto: the two traces have nothing in common to compare", file=sys.stderr)
        raise typer.Exit(1)
    if strict and found.strict_failure(names):
        raise typer.Exit(3)


command.__doc__ = (command.__doc__ or "") + "\n\n" + EXAMPLE
