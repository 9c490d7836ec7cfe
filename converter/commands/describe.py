"""`npu-perfetto describe`."""

from __future__ import annotations

from enum import StrEnum

import typer


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def command(
    inputs: list[str] = typer.Argument(..., metavar="INPUT", help="What `convert` takes.", show_default=False),
    prefer: str = typer.Option("text", "--prefer", metavar="text|db", help="As for convert."),
    form: Format = typer.Option(Format.TEXT, "--format", help="text, or json: one object."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print errors only."),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="Say what is being done."),
) -> None:
    """Say what a conversion would make of inputs: files read and not read, which annotators can run and what they lack.

    Nothing is written. Leaves with 1 where an input can't be converted.

    Example: npu-perfetto describe host_4100_ascend_pt
    """
    from converter.describe import describe_inputs
    from converter.request import Request

    raise typer.Exit(describe_inputs(Request(inputs=inputs, prefer=prefer, quiet=quiet, verbose=verbose), form.value))
