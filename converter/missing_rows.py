"""Does the trace show kernels that have no row in the kernel CSV? A file cut exactly at a line's end looks whole.

In whole captures (CANN 8.0 to 8.3, levels 0 to 2, op_summary too) every hardware slice of a compute task type has a row;
events, copies, notify and SDMA tasks, placeholders and the profiler's marks never have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from converter.places import TASK_TYPES, text_of
from schemas.errors import printable
from schemas.timeline import NULL, Int64, Timeline

if TYPE_CHECKING:
    from converter.readers.trace_json import TraceParts

LARGE_SHARE = 0.1  # of the kernels on streams that have rows


def warn_of_missing_rows(timeline: Timeline, parts: TraceParts, joined: Int64, rows_ts: Int64) -> None:
    """One warning where kernels start after the last row, or where a large share of them has no row.

    joined: int64[m], the hardware slices that have a row; rows_ts: int64[n], starts of the rows of kernels.
    """
    h = parts.hardware
    if h is None or (len(rows_ts) and not len(joined)):
        return  # nothing joins: names or times are of another form, which says nothing about a cut
    ids = [i for i in map(timeline.strings.find, TASK_TYPES) if i != NULL]
    is_kernel = np.isin(text_of(h, "task_type"), ids)
    has_row = np.zeros(len(h), np.bool_)
    has_row[joined] = True
    if parts.recorded is not None:
        is_kernel &= parts.recorded
    if len(joined):
        stream = parts.device_id.astype(np.int64) * 2**32 + parts.stream_id
        is_kernel &= np.isin(stream, np.unique(stream[has_row]))
    without = is_kernel & ~has_row
    count, late = int(without.sum()), int((without & (h.ts > rows_ts.max(initial=0))).sum())
    if not late and count <= LARGE_SHARE * int(is_kernel.sum()):
        return
    at = np.flatnonzero(without)
    first = int(at[np.argmin(h.ts[at])])
    name = printable(timeline.strings[int(h.name[first])], 60)
    where = "" if not late or not len(rows_ts) else f", {'all' if late == count else late} of them after its last row"
    timeline.warn(
        f"{count} of {int(is_kernel.sum())} kernels of the trace have no row in the kernel CSV{where}; the first, "
        f"{name}, starts at {int(h.ts[first])} ns: was the CSV cut short?",
        damaged=True,
    )
