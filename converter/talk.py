"""What `convert` says on stderr: a spinner or a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from converter.summary import Summary
from schemas.errors import printable

WARNINGS_SHOWN = 10


class Talk:
    """quiet: only errors and damaged inputs; verbose: each step and every warning."""

    def __init__(self, quiet: bool, verbose: bool) -> None:
        self.quiet, self.verbose = quiet, verbose
        self.terminal = sys.stderr.isatty() and not quiet and not verbose

    @contextlib.contextmanager
    def stage(self) -> Iterator[Callable[[str], None]]:
        """For one trace: a function that takes what is being done."""
        if self.terminal:
            from rich.console import Console

            with Console(stderr=True).status("reading") as status:
                yield lambda text: status.update(printable(text, 70))
        else:
            yield self.step

    def step(self, text: str) -> None:
        if self.verbose:
            print(printable(text), file=sys.stderr)

    @contextlib.contextmanager
    def bar(self, total: int) -> Iterator[Callable[[str], None]]:
        """For many traces: a function to call as each is done, with its name."""
        if not self.terminal:
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[last]}"))
        # Lines printed meanwhile go above the bar; stdout is left alone, it carries results.
        with Progress(*columns, console=Console(stderr=True), redirect_stdout=False, transient=True) as progress:
            task = progress.add_task("", total=total, last="")
            yield lambda name: progress.update(task, advance=1, last=_plain(printable(name, 50)))

    def error(self, text: str) -> None:
        print(f"npu-perfetto: {text}", file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        if not self.quiet:
            print(f"warning: {text}", file=sys.stderr, flush=True)

    def report(self, summary: Summary, name: str = "", strict: bool = False) -> None:
        """Warnings, losses, refusals and the headline of a trace. name: of its input, where there are several; strict:
        losses and refusals end in status 3, so they are said under quiet too."""
        of = f"{printable(name, 80)}: " if name else ""
        if self.quiet:
            for line in summary.damages():
                print(f"warning: {printable(line, 500)}", file=sys.stderr, flush=True)
            if strict:
                self._missing(summary, of)
            return
        if summary.skipped:
            print(f"{printable(summary.output)}: up to date, skipped", file=sys.stderr, flush=True)
            return
        shown = summary.warnings if self.verbose else summary.warnings[:WARNINGS_SHOWN]
        for warning in shown:
            print(f"warning: {of}{printable(warning, 500)}", file=sys.stderr)
        if len(shown) < len(summary.warnings):
            print(f"warning: {of}… and {len(summary.warnings) - len(shown)} more (-v shows all)", file=sys.stderr)
        self._missing(summary, of)
        print(summary.headline(), file=sys.stderr, flush=True)

    def _missing(self, summary: Summary, of: str) -> None:
        for line in summary.losses():
            print(f"{of}{line}", file=sys.stderr)
        for line in summary.refused:
            print(f"refused: {of}{printable(line, 500)}", file=sys.stderr)


def _plain(text: str) -> str:
    """Without rich's markup: a file name is no style."""
    from rich.markup import escape

    return escape(text)
