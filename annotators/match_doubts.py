"""Does a place for the records contradict what the capture itself measured? Then the records are of another run.

Two numbers tell. `g_sk` of the spans is a sum of sequence lengths, and so is sum(prefix_len) of a record: forms of it
that are not known here (one step late, another width) still lie within a few tokens per request. And a record's segment
is elapsed time around the work of that segment, so it can't be shorter than that work took on the device.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from schemas.dspark import Float64, RankRecords
from schemas.timeline import NULL, Bool, Int64

ANOTHER_RUN = "another run?"  # ends every refusal and warning that speaks of it
SHORTER_NS = 10_000  # events are read to a microsecond or so
SHORTER_SHARE = 0.01
CHANCE = 0.01  # above it, batch sizes alone don't tell a run from another
MANY_STEPS = 8  # with as many compared by step_cpu_ms, a clear winner among several places is no chance
NEAR_WIDTHS = 2  # verify widths per request: one step's lag and one width added


def rows_at(shift: int, steps: int, n: int) -> tuple[Bool, Int64]:
    """(bool[steps]: has a record, int64[steps]: its row, 0 where it has none)."""
    row = np.arange(steps, dtype=np.int64) + shift
    has = (row >= 0) & (row < n)
    return has, np.where(has, row, 0)


def prefix_sums(records: RankRecords) -> Int64:
    """sum(prefix_len) per record, NULL where a request lacks it."""
    out = np.full(len(records), NULL, np.int64)
    for row, requests in enumerate(records.reqs):
        if requests:
            lengths = [request.get("prefix_len") for request in requests]
            if all(isinstance(length, int) for length in lengths):
                out[row] = sum(length for length in lengths if isinstance(length, int))
    return out


def contradiction(records: RankRecords, shift: int, g_sk: Int64, placed_ns: Mapping[str, Int64]) -> str:
    """What speaks against step k having record k + shift; "" where nothing does.

    g_sk: int64[steps] of the spans, NULL where unknown; placed_ns: by name of a record's time (`draft_gpu_ms`), how
    long the linked tasks of that segment took on their stream, int64[steps], NULL where unknown.
    """
    return _lengths(records, shift, g_sk) or _segments(records, shift, placed_ns)


def _lengths(records: RankRecords, shift: int, g_sk: Int64) -> str:
    has, row = rows_at(shift, len(g_sk), len(records))
    bs, width = records.ints["bs"][row], max(records.verify_width, 1)
    # A sum that doesn't even hold the tokens of the step itself is no sum of lengths: it says nothing.
    open_steps = has & (bs != NULL) & (g_sk != NULL) & (g_sk >= bs * width)
    if not open_steps.any():
        return ""
    prefix = prefix_sums(records)[row]
    compared = open_steps & (prefix != NULL)
    far = compared & (np.abs(g_sk - prefix) > NEAR_WIDTHS * width * bs)
    if 2 * int(far.sum()) <= int(compared.sum()):
        return ""
    step = int(np.argmax(far))
    return (
        f"the spans' sequence lengths contradict the records' in {int(far.sum())} of {int(compared.sum())} steps "
        f"(g_sk {g_sk[step]}, sum(prefix_len) {prefix[step]} in the first)"
    )


def _segments(records: RankRecords, shift: int, placed_ns: Mapping[str, Int64]) -> str:
    for name, placed in placed_ns.items():
        has, row = rows_at(shift, len(placed), len(records))
        ms: Float64 = records.floats[name][row]
        compared = has & (placed != NULL) & ~np.isnan(ms)
        record_ns = np.nan_to_num(ms) * 1e6
        allowed = np.maximum(SHORTER_NS, SHORTER_SHARE * placed)
        short = compared & (record_ns < placed - allowed)
        if 2 * int(short.sum()) > int(compared.sum()):
            step = int(np.argmax(short))
            return (
                f"{name} is shorter than the work it was recorded around in {int(short.sum())} of "
                f"{int(compared.sum())} steps ({ms[step]:.3f} ms, its linked tasks {placed[step] / 1e6:.3f} ms in the "
                "first)"
            )
    return ""


def weak(records: RankRecords, shift: int, bs: Int64, g_sk: Int64) -> str:
    """Would records of another run fit here by chance? "" where sequence lengths agree, or batch sizes are telling.

    The chance is that of these batch sizes in a row, drawn from those of the records, at any place of the list.
    """
    has, row = rows_at(shift, len(bs), len(records))
    sizes = records.ints["bs"]
    prefix, of_row = prefix_sums(records)[row], sizes[row]
    if (has & (g_sk != NULL) & (prefix != NULL) & (of_row != NULL)).any():
        return ""  # compared: they agree, or they were set aside, which is said
    told = bs[has & (bs != NULL) & (of_row != NULL)]
    distinct, count = np.unique(sizes, return_counts=True)
    at = np.minimum(np.searchsorted(distinct, told), len(distinct) - 1)
    share = np.where(distinct[at] == told, count[at], 1) / len(sizes)  # the user's word may hold other sizes
    chance = min(1.0, float(np.prod(share)) * max(len(records) - len(told) + 1, 1))
    if chance < CHANCE:
        return ""
    return (
        f"only the batch sizes of {len(told)} steps tie the records to the capture; those of another run would fit by "
        f"chance in about {chance:.0%} of cases. Make sure that they are of this run, or record `reqs` and detailed "
        "annotations, whose sequence lengths tell"
    )
