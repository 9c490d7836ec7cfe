"""Ranks that wait between two passes: on disk, one file each, so that one rank is in memory and not all of them.

The files lie in a hidden folder beside the target, are pickles of our own making, and go when the conversion ends.
Few small captures stay in memory.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence

from converter.capture import Capture
from converter.rank import Rank
from converter.target import STDOUT
from schemas.errors import OutputError, printable

#: Captures of several ranks whose files are no larger than this together stay in memory.
IN_MEMORY_BYTES = 256 << 20

Held = Rank | str  # a rank, or the file that it waits in


def fits_in_memory(captures: Sequence[Capture]) -> bool:
    """Whether these may be held at once. One capture always is."""
    files = [f for c in captures for f in c.data_files]
    return len(captures) < 2 or sum(os.path.getsize(f) for f in files if os.path.exists(f)) <= IN_MEMORY_BYTES


@contextlib.contextmanager
def side_folder(target: str, run: str) -> Iterator[str]:
    """A new folder beside the target (for stdout: in the folder for temporary files), removed at the end."""
    above, name = os.path.split(os.path.realpath(target)) if target != STDOUT else (tempfile.gettempdir(), "stdout")
    folder = os.path.join(above, f".{name[:100]}.{run or os.getpid()}-{secrets.token_hex(4)}.parts")
    try:
        os.mkdir(folder, 0o700)  # pickles are read back from it: nobody else may write there
    except OSError as error:
        raise OutputError(f"{printable(folder)}: can't be made: {error.strerror}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(rank: Rank, place: str | None) -> Held:
    """The rank itself where there is no place for it; else the file that it was written to."""
    if place is None:
        return rank
    try:
        with open(place, "wb") as file:
            pickle.dump(rank, file, protocol=5)
    except OSError as error:
        raise OutputError(f"{printable(place)}: can't be written: {error.strerror or error}") from error
    return place


def take(held: Held) -> Rank:
    """The rank; its file is gone then."""
    if isinstance(held, Rank):
        return held
    with open(held, "rb") as file:
        rank = pickle.load(file)
    os.unlink(held)
    assert isinstance(rank, Rank)
    return rank
