"""Many slices are laid out and encoded in parts, so that what that takes besides the slices themselves stays bounded.

Slices are cut in the order track, start, where nothing is open: at the start of a slice before which all others of the
track have ended. Lanes are empty there (converter/write/lanes.py), so a part gives the lanes that the whole would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from converter.write.lanes import sort_slices
from schemas.timeline import Column, Int32, Int64, SliceBatch

WHOLE_SLICES = 4_000_000  # so many are one part
PART_SLICES = 2_000_000


def split(track: Int32, ts: Int64, dur: Int64, whole: int = WHOLE_SLICES, size: int = PART_SLICES) -> list[Int64]:
    """The slices of each part: global numbers, sorted. Parts hold about `size` slices, one if there are `whole` at most."""
    n = len(ts)
    if n <= whole:
        return [np.arange(n, dtype=np.int64)]
    order = sort_slices(track, ts, dur)
    if n < 1 << 31:
        order = order.astype(np.int32)
    t, s = track[order], ts[order]
    reach = s + dur[order]
    bounds = np.flatnonzero(np.concatenate(([True], t[1:] != t[:-1])))
    for a, b in zip(bounds.tolist(), [*bounds[1:].tolist(), n], strict=True):
        np.maximum.accumulate(reach[a:b], out=reach[a:b])
    free = np.flatnonzero(np.concatenate(([True], (t[1:] != t[:-1]) | (s[1:] >= reach[:-1]))))
    del t, s, reach
    cuts = np.unique(np.append(free[np.searchsorted(free, np.arange(0, free[-1] + 1, size))], n))
    return [np.sort(order[a:b]).astype(np.int64) for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)]


def take(
    batches: Sequence[SliceBatch], ids: Int64, release: Callable[[], None] | None = None, columns: bool = True
) -> list[SliceBatch]:
    """The slices `ids` (global numbers, sorted) as batches of their own.

    release: called after each column, where columns lie in a file; columns: False where only times are needed.
    """
    if len(ids) == sum(map(len, batches)):
        return list(batches)
    out = []
    first = 0
    for b in batches:
        low, high = np.searchsorted(ids, (first, first + len(b)))
        rows = ids[low:high] - first
        first += len(b)
        if not len(rows):
            continue
        own = []
        for c in b.columns if columns else ():
            own.append(Column(c.key, c.kind, c.values[rows], None if c.valid is None else c.valid[rows]))
            if release is not None:
                release()
        category = b.category[rows] if isinstance(b.category, np.ndarray) else b.category
        extra = None if b.extra is None else [b.extra[i] for i in rows.tolist()]
        out.append(SliceBatch(b.track[rows], b.ts[rows], b.dur[rows], b.name[rows], category, own, extra, b.instant))
    return out
