"""Did an input change while it was read? A profiler that still writes, a copy that still runs: the trace would hold a
part of it and nothing would say so."""

from __future__ import annotations

import os
from collections.abc import Iterable

from schemas.errors import printable

Stamps = dict[str, tuple[int, int, int, int] | None]


def stamps(paths: Iterable[str]) -> Stamps:
    """Device, inode, size and time of the last change (ns) of each file; None where it isn't there."""
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def changes(before: Stamps) -> list[str]:
    """A line for each file that is another one now."""
    return [
        f"{printable(path)}: changed while it was read; convert it again when nothing writes to it"
        for path, stamp in before.items()
        if _stamp(path) != stamp
    ]
