"""The command line: `npu-perfetto`. Registers the commands and turns errors into one line and an exit status."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup


class _PlainFlags:
    """Flags have no type in the help: typer 0.29 shows `<bool>` behind each."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in params:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return params


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


app = typer.Typer(
    cls=_Group,
    name="npu-perfetto",
    help="Turn Ascend NPU profiles and DSpark step records into one exact Perfetto trace, and ask it questions.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = ("convert", "check", "sql", "report", "compare", "gaps", "open", "describe", "record", "sample")


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(version("npu-perfetto"))
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and leave.", callback=_version, is_eager=True
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    if debug:
        os.environ["NPU_PERFETTO_DEBUG"] = "1"


def _register() -> None:
    for name in COMMANDS:
        module = importlib.import_module(f"converter.commands.{name}")
        app.command(name, cls=_Command)(module.command)


def _on_signal(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # unwinds, so that temporary files go


def _take_debug(argv: list[str]) -> None:
    """--debug counts behind the command too: who sees an error adds it at the end of the line."""
    end = argv.index("--") if "--" in argv else len(argv)
    if "--debug" in argv[2:end]:
        argv.remove("--debug")
        os.environ["NPU_PERFETTO_DEBUG"] = "1"


def run() -> NoReturn:
    """Runs the command line and leaves. Never shows a traceback unless --debug."""
    for stream in (sys.stdout, sys.stderr):
        # A name in an input may hold what the terminal's encoding can't show: never a reason to stop.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    _register()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    _take_debug(sys.argv)
    status = 0
    stdout = sys.stdout
    try:
        try:
            status = app(standalone_mode=True)  # typer leaves by SystemExit
        except SystemExit as leaving:
            if isinstance(leaving.__context__, BrokenPipeError):  # typer and rich leave with 1 for a closed pipe
                raise BrokenPipeError from None
            raise
    except BrokenPipeError:
        # The reader of stdout went away (| head): not an error, and the flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        status = 128 + signal.SIGPIPE
    except Exception as error:
        from schemas.errors import NpuPerfettoError, printable

        if os.environ.get("NPU_PERFETTO_DEBUG"):
            raise
        if isinstance(error, NpuPerfettoError):
            print(f"npu-perfetto: {error}", file=sys.stderr)
            status = error.exit_status
        else:
            name = type(error).__name__
            print(
                f"npu-perfetto: internal error: {name}: {printable(error)}; this is a bug: run again with "
                "`npu-perfetto --debug …` and report it",
                file=sys.stderr,
            )
            status = 1
    sys.exit(status)
