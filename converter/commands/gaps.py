"""npu-perfetto gaps: options and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

EXAMPLE = """[bold]Examples[/bold]

npu-perfetto gaps rank0/kernel_details.csv rank1/kernel_details.csv

npu-perfetto gaps kernel_details.csv --window +10ms:+20ms --format json
"""


class Format(StrEnum):
    table = "table"
    json = "json"


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="CSV",
            help="kernel_details*.csv, op_summary*.csv, task_time*.csv, or any CSV with a start and a duration column "
            "that name their unit, such as start_us and duration_us.",
            show_default=False,
        ),
    ],
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar="START:END",
            help="Only this part: ns since the epoch, or with a unit; +10ms counts from the first task of each file.",
        ),
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--format", help="json: one object per file, ns, integers exact.")
    ] = Format.table,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also what was read from each file.")] = False,
) -> None:
    """Account for the recorded time of kernel CSVs: wall, duration sum, busy union, gap. No trace is needed."""
    import sys

    from converter import gaps
    from converter.remote import fetched_file
    from converter.window import parse_window
    from schemas.errors import InputError

    asked = parse_window(window) if window is not None else None
    gaps.check_paths(files)

    def say(text: str, routine: bool) -> None:
        if verbose if routine else not quiet:
            print(f"npu-perfetto: {text}", file=sys.stderr)

    rows, failed = [], False
    for path in files:
        try:
            with fetched_file(path) as local:
                rows.append(gaps.account(path, asked, say, local))
        except InputError as error:
            failed = True
            print(f"npu-perfetto: {error}", file=sys.stderr)
    if output_format is Format.json:
        import json

        print(json.dumps([row.as_dict() for row in rows], indent=1, allow_nan=False))
    elif rows:
        print(gaps.table(rows))
    raise typer.Exit(1 if failed else 0)


command.__doc__ = (command.__doc__ or "") + "\n\n" + EXAMPLE
