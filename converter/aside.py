"""The arguments of very many slices, put aside in a file until they are encoded: annotators need the times, names and
ids of tasks, which are in the views, and hardly ever the other columns. They come back column by column.

The files have no names: they go with the process, however that ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.target import STDOUT
from schemas.errors import OutputError, printable
from schemas.timeline import Layer, Timeline

MANY_SLICES = 4_000_000


class Aside:
    """What is put aside of one rank, beside the target of the conversion."""

    def __init__(self, target: str) -> None:
        self.folder = tempfile.gettempdir() if target == STDOUT else os.path.dirname(os.path.realpath(target))
        self._regions: list[mmap.mmap] = []

    def put(self, layer: Layer) -> None:
        """Moves the columns of a layer to a file; they can be read as before, and not written. Raises OutputError."""
        columns = [c for b in layer.slices for c in b.columns if c.key != "task"]
        arrays = [(c, name) for c in columns for name in ("values", "valid") if getattr(c, name) is not None]
        size = sum(_padded(getattr(c, name)) for c, name in arrays)
        if not size:
            return
        try:
            with tempfile.TemporaryFile(dir=self.folder, buffering=1 << 20) as file:
                for c, name in arrays:
                    values = getattr(c, name)
                    file.write(np.ascontiguousarray(values).view(np.uint8).data)
                    file.write(bytes(_padded(values) - values.nbytes))
                file.flush()
                region = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except OSError as error:
            where = printable(self.folder)
            raise OutputError(f"{where}: no room to put columns aside: {error.strerror or error}") from error
        self._regions.append(region)
        moved: dict[int, npt.NDArray[Any]] = {}
        at = 0
        for c, name in arrays:
            values = getattr(c, name)
            moved[id(values)] = np.frombuffer(region, values.dtype, len(values), at)
            at += _padded(values)
        if isinstance(layer, Timeline):  # the view shares arrays with the batches
            tasks = layer.tasks
            for field in fields(tasks):
                own = getattr(tasks, field.name)
                setattr(tasks, field.name, moved.get(id(own), own))
        for c, name in arrays:
            setattr(c, name, moved[id(getattr(c, name))])

    def release(self) -> None:
        """Gives back the memory of what was read."""
        for region in self._regions:
            region.madvise(mmap.MADV_DONTNEED)


def _padded(values: npt.NDArray[Any]) -> int:
    """Bytes in the file: the next array begins where any number may."""
    return values.nbytes + -values.nbytes % 8


def for_rank(timeline: Timeline, target: str) -> Aside | None:
    """None where a rank has no more slices than memory is there for; else its columns are put aside already."""
    if timeline.slice_count < MANY_SLICES:
        return None
    aside = Aside(target)
    aside.put(timeline)
    return aside
