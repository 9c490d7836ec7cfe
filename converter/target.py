"""Targets: checked before anything is read, written beside their place and moved there whole, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from converter.remote import refuse
from schemas.errors import OutputError, UsageError, printable

STDOUT = "-"


def check_target(target: str, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Raises UsageError where a trace can't go to `target` (design.md, Targets)."""
    if target == STDOUT:
        return
    shown = printable(target)
    path = Path(target)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror}; choose another target") from None
    if mode is not None:
        if stat.S_ISDIR(mode):
            raise UsageError(f"{shown}: is a folder; name a file with -o, or use --out-dir")
        if not stat.S_ISREG(mode):
            raise UsageError(f"{shown}: is not a regular file; name a file, or `-o -` for stdout")
        for source in inputs:
            with contextlib.suppress(OSError):
                if os.path.samefile(source, target):
                    raise UsageError(f"{shown}: is an input; choose another target")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise UsageError(f"{printable(folder)}: no such folder for {shown}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{printable(folder)}: may not be written to; choose another target")


def make_out_dir(folder: str) -> None:
    """The folder of --out-dir; made where only its last part is missing."""
    shown = printable(folder)
    refuse(folder, "this command writes to a folder of this machine")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror}; --out-dir needs a folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{shown}: may not be written to; choose another --out-dir")


@contextlib.contextmanager
def whole_file(target: str, compress: bool = False, run: str = "") -> Iterator[IO[bytes]]:
    """A binary file that appears under `target` when the block ends well, and leaves nothing when it does not.

    run: marks the temporary file, for `sweep`.
    Raises OutputError where the disk is full, the folder vanished, ... `-` writes the finished file to stdout.
    """
    to_stdout = target == STDOUT
    place = None if to_stdout else os.path.realpath(target)
    temporary: str | None = None
    try:
        try:
            if place is None:
                handle, temporary = tempfile.mkstemp(prefix="npu-perfetto-", suffix=".part")
            else:
                folder, name = os.path.split(place)
                # A name of its own for each writer; short enough where the target's own name is at the limit.
                temporary = os.path.join(folder, f".{name[:100]}.{run or os.getpid()}-{secrets.token_hex(4)}.part")
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
            with os.fdopen(handle, "wb", buffering=1 << 20) as raw:
                if compress:
                    # No name and no time in the header: the same input gives the same bytes.
                    with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                        yield cast(IO[bytes], packed)
                else:
                    yield raw
            if place is None:
                with open(temporary, "rb") as done:
                    shutil.copyfileobj(done, sys.stdout.buffer, 1 << 20)
                    sys.stdout.buffer.flush()
            else:
                os.replace(temporary, place)
                temporary = None
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.filename not in (None, temporary, place):
                raise
            raise OutputError(f"{printable(target)}: can't be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def sweep(target: str, run: str) -> None:
    """Removes what a killed worker of this run left beside the target."""
    folder, name = os.path.split(os.path.realpath(target))
    if target == STDOUT or not run:
        return
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            if entry.startswith(f".{name[:100]}.{run}-"):
                left = os.path.join(folder, entry)
                if os.path.isdir(left):
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    os.unlink(left)
