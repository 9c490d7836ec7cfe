"""The arguments of very many slices, put aside in a file while the rank is annotated: annotators need the times, names
and ids of tasks, which are in the views, and hardly ever the other columns. They come back column by column as they are
encoded.

The file has no name: it goes with the process, however that ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import fields

import numpy as np

from converter.target import STDOUT
from schemas.errors import OutputError, printable
from schemas.timeline import Timeline

MANY_SLICES = 4_000_000


def put_aside(timeline: Timeline, target: str) -> Callable[[], None] | None:
    """Moves the columns of a rank with very many slices to a file beside the target; they can be read as before.

    Returns what gives back the memory of columns that were read, None where nothing was moved. Raises OutputError.
    """
    if timeline.slice_count < MANY_SLICES:
        return None
    folder = tempfile.gettempdir() if target == STDOUT else os.path.dirname(os.path.realpath(target))
    columns = [c for b in timeline.slices for c in b.columns if c.key != "task"]
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            size = 0
            for c in columns:
                for values in (c.values, c.valid):
                    if values is not None:
                        size += -size % 8
                        file.seek(size)
                        file.write(np.ascontiguousarray(values).view(np.uint8).data)
                        size += values.nbytes
            region = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise OutputError(f"{printable(folder)}: no room to put columns aside: {error.strerror or error}") from error
    at = 0
    moved = {}
    for c in columns:
        for name in ("values", "valid"):
            values = getattr(c, name)
            if values is not None:
                at += -at % 8
                there = np.frombuffer(region, values.dtype, len(values), at)
                setattr(c, name, there)
                moved[id(values)] = there
                at += values.nbytes
    # The view shares arrays with the batches.
    for field in fields(timeline.tasks):
        setattr(timeline.tasks, field.name, moved.get(id(own := getattr(timeline.tasks, field.name)), own))
    return lambda: region.madvise(mmap.MADV_DONTNEED)
