"""Typed errors. Each becomes one line on stderr: which file, where in it, what is wrong, what to do."""

from __future__ import annotations

import os
from typing import Any


def printable(text: object, limit: int = 200) -> str:
    """The text without control characters (shown as escapes) and without what flips a line's direction."""
    out = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
    return out if len(out) <= limit else out[: limit - 1] + "…"


class NpuPerfettoError(Exception):
    """Base of every error that the project raises on purpose. `exit_status` is what the command leaves with."""

    exit_status = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is: from a worker's process it comes with its text and its attributes, whatever its constructor takes.
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[NpuPerfettoError], args: tuple[Any, ...], state: dict[str, Any]) -> NpuPerfettoError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InputError(NpuPerfettoError):
    """What an input holds can't be used (exit 1).

    path: the file or folder; where: row, byte or key in it, or ""; what: what is wrong; todo: what to do, or "".
    """

    def __init__(self, path: str | os.PathLike[str], what: str, *, where: str = "", todo: str = "") -> None:
        self.path, self.where, self.what, self.todo = os.fspath(path), where, what, todo
        place = printable(self.path) + (f", {where}" if where else "")
        super().__init__(f"{place}: {printable(what, 400)}" + (f"; {todo}" if todo else ""))


class UsageError(NpuPerfettoError):
    """Wrong before anything is read: paths, targets, options (exit 2)."""

    exit_status = 2


class OutputError(NpuPerfettoError):
    """The target can't be written (exit 1)."""


class WorkerError(NpuPerfettoError):
    """A worker process died (exit 1)."""


class EngineError(NpuPerfettoError):
    """The trace_processor is missing, died or refused (exit 1)."""
