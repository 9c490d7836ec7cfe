"""Rows of an SQLite export that are slices: which of them can be used, and where a start is out of range.

The rules are those of every reader (design.md, Bad input): what can't be used is counted under a reason, with the
place of the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from converter.readers.sqlite_tables import NOT_A_NUMBER, Database
from schemas.tally import Tally
from schemas.timeline import Int64
from schemas.trace_keys import EPOCH_FLOOR_NS

_STARTS = (("TASK", "startNs"), ("CANN_API", "startNs"), ("PYTORCH_API", "startNs"), ("COMMUNICATION_OP", "startNs"))


def floor_of(db: Database) -> int:
    """Before which time a start is out of range: 2000-01-01, or 0 where most starts are no epoch times."""
    for table, column in _STARTS:
        for piece in db.pieces(table, {"start": column}, times=("start",)):
            start = piece["start"]
            return EPOCH_FLOOR_NS if int((start >= EPOCH_FLOOR_NS).sum()) * 2 >= len(start) else 0
    return 0


def usable(table: str, rows: dict[str, npt.NDArray[Any]], tally: Tally, floor_ns: int) -> dict[str, npt.NDArray[Any]]:
    """The rows whose `start` and `end` (int64 ns) make a slice, with `dur` for `end`; the others are dropped."""
    ts: Int64 = rows["start"]
    end: Int64 = rows.pop("end")
    tally.read += len(ts)
    bad = (ts == NOT_A_NUMBER) | (end == NOT_A_NUMBER)
    early = ~bad & (ts < max(floor_ns, 0))
    negative = ~bad & ~early & (end < ts)
    for reason, which in (("not a number", bad), ("start out of range", early), ("negative duration", negative)):
        count = int(which.sum())
        if count:
            tally.drop(reason, count, f"{table}, row {int(np.argmax(which)) + 1}")
    keep = ~(bad | early | negative)
    if keep.all():
        rows["dur"] = end - ts
        return rows
    out = {key: values[keep] for key, values in rows.items()}
    out["dur"] = end[keep] - ts[keep]
    return out
