"""`npu-perfetto check`."""

from __future__ import annotations

import typer

SHOWN = 10


def command(
    trace: str = typer.Argument(..., metavar="TRACE", help="A trace that npu-perfetto wrote."),
    against: list[str] = typer.Option(
        [], "--against", metavar="INPUT", help="An input of the conversion, to be read again; repeatable."
    ),
    more: list[str] = typer.Argument(None, metavar="INPUT", help="More inputs for --against.", show_default=False),
    engine: str | None = typer.Option(
        None, "--engine", metavar="PATH", help="Use this native trace_processor_shell.", show_default=False
    ),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print differences only."),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="List every difference."),
) -> None:
    """Prove that a trace is whole: nothing lost on import, every track holds what was written.

    With --against the inputs are read again and compared, slice names, counts and times.
    Leaves with status 1 and a list of differences otherwise.

    Example: npu-perfetto check run.pftrace --against ./capture_ascend_pt
    """
    import os

    from converter.check import check
    from converter.remote import check_inputs, is_remote
    from schemas.errors import UsageError, printable

    if more and not against:
        raise UsageError("one trace at a time; inputs to compare with come after --against")
    inputs = [*against, *(more or [])]
    check_inputs([trace] if is_remote(trace) else [])
    check_inputs([path for path in inputs if is_remote(path)])
    for path in (trace, *inputs):
        if not (is_remote(path) or os.path.exists(path)):
            raise UsageError(f"{printable(path)}: no such file")
    findings = check(trace, inputs, engine)
    name = printable(trace)
    shown = findings.problems if verbose else findings.problems[:SHOWN]
    for problem in shown:
        print(f"{name}: {problem}")
    if len(shown) < len(findings.problems):
        print(f"{name}: ... and {len(findings.problems) - len(shown):,} more (-v lists them)")
    if not quiet:
        for note in findings.notes:
            print(f"{name}: note: {note}")
    if findings.problems:
        raise typer.Exit(1)
    if not quiet:
        print(f"{name}: {findings.compared}")
