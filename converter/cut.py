"""Leaves parts of a Timeline out: what lies outside `--window`, what `--drop` names. All of it is counted.

A slice that the window's edge crosses is kept whole: its recorded interval stays exact. Figures clip it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.errors import InputError, printable
from schemas.timeline import NO_TEXT, NULL, Bool, Column, CounterBatch, FlowBatch, Role, SliceBatch, Timeline

INT64_MAX = 2**63 - 1
MAX_SHOWN = 20  # categories that a warning names
_ON_HOST = (Role.HOST, Role.CANN)


def to_window(timeline: Timeline, window: tuple[int, int], host_end: int | None = None) -> None:
    """Keeps what shares time with [start, end) ns; a slice of no length where it starts inside. Sets the window.

    host_end: where the window ends earlier for what runs on the host, which is ahead of the device.
    """
    start, end = window
    masks = []
    ends = np.array([end if host_end is None or t.role not in _ON_HOST else host_end for t in timeline.tracks])
    for b in timeline.slices:
        last = b.ts if b.instant else b.ts + b.dur
        until = end if host_end is None else ends[b.track]
        masks.append((b.ts < until) & ((last > start) | ((last == b.ts) & (b.ts >= start))))
    samples = [(c.ts >= start) & (c.ts < end) for c in timeline.counters]
    _keep(timeline, masks, samples, "outside window")
    timeline.window = window
    timeline.cut = "window" if host_end is None else "steps"


def drop_categories(timeline: Timeline, categories: Sequence[str]) -> None:
    """Leaves out slices of these categories, such as `python_function`. Warns of one that no slice has."""
    there = _categories(timeline)
    for category in categories:
        if category not in there:
            shown = ", ".join(printable(name, 40) for name in there[:MAX_SHOWN])
            more = f" and {len(there) - MAX_SHOWN} more" if len(there) > MAX_SHOWN else ""
            timeline.warn(
                f"rank {timeline.rank}: --drop {printable(category, 60)}: no slice has this category; "
                f"there are {shown or 'none'}{more}"
            )
    ids = [i for i in map(timeline.strings.find, categories) if i != NULL]
    masks = [~np.isin(np.broadcast_to(b.category, len(b)), ids) for b in timeline.slices]
    _keep(timeline, masks, [np.ones(len(c), np.bool_) for c in timeline.counters], "excluded")


def _categories(timeline: Timeline) -> list[str]:
    """The categories that slices have, those of most slices first."""
    count = np.zeros(len(timeline.strings), np.int64)
    for b in timeline.slices:
        if isinstance(b.category, np.ndarray):
            count += np.bincount(b.category, minlength=len(count))
        else:
            count[b.category] += len(b)
    count[NO_TEXT] = 0
    order = np.argsort(-count, kind="stable")
    return [timeline.strings[i] for i in order[: np.count_nonzero(count)].tolist()]


def _keep(timeline: Timeline, masks: list[Bool], samples: list[Bool], reason: str) -> None:
    kept = np.concatenate(masks) if masks else np.empty(0, np.bool_)
    number = np.where(kept, np.cumsum(kept) - 1, NULL)  # old global number -> new, or NULL
    timeline.tally.slices.drop(reason, int((~kept).sum()))

    tasks = timeline.tasks
    task_stays = number[tasks.slice] != NULL if len(tasks) else np.empty(0, np.bool_)
    new_task = np.where(task_stays, np.cumsum(task_stays) - 1, NULL)

    old = timeline.slices
    timeline.slices, timeline.slice_count = [], 0
    for batch, mask in zip(old, masks, strict=True):
        timeline.add(_rows(batch, mask, new_task))
    for view in ("tasks", "host", "device"):
        table = getattr(timeline, view)
        stays = number[table.slice] != NULL if len(table) else np.empty(0, np.bool_)
        made = replace(table, **{f.name: getattr(table, f.name)[stays] for f in fields(table)})
        made.slice = number[made.slice]
        setattr(timeline, view, made)

    flows = []
    for f in timeline.flows:
        out, into = number[f.out], number[f.into]
        both = (out != NULL) & (into != NULL)
        timeline.tally.flows.drop(reason, int((~both).sum()))
        flows.append(FlowBatch(f.category, out[both], into[both], f.out_ts[both]))
    timeline.flows = flows

    counters = []
    for c, mask in zip(timeline.counters, samples, strict=True):
        timeline.tally.counters.drop(reason, int((~mask).sum()))
        counters.append(CounterBatch(c.track[mask], c.ts[mask], c.values[mask]))
    timeline.counters = counters


def _rows(b: SliceBatch, mask: Bool, new_task: npt.NDArray[Any]) -> SliceBatch:
    columns = []
    for c in b.columns:
        values, valid = c.values[mask], None if c.valid is None else c.valid[mask]
        if c.key == "task" and c.kind == "int":
            values = np.where(True if valid is None else valid, new_task[values], values)
        columns.append(Column(c.key, c.kind, values, valid))
    return SliceBatch(
        b.track[mask],
        b.ts[mask],
        b.dur[mask],
        b.name[mask],
        b.category[mask] if isinstance(b.category, np.ndarray) else b.category,
        columns,
        None if b.extra is None else [e for e, m in zip(b.extra, mask.tolist(), strict=True) if m],
        b.instant,
    )


def shift(timeline: Timeline, offset_ns: int) -> None:
    """Moves everything of a rank by one constant: trace time = recorded time + offset_ns. Durations stay.

    Raises InputError where a slice would end after the last time an int64 holds.
    """
    if not offset_ns:
        return
    for batch in timeline.slices:
        if len(batch) and int((batch.ts + batch.dur).max()) + offset_ns > INT64_MAX:
            name = timeline.strings[int(batch.name[(batch.ts + batch.dur).argmax()])]
            raise InputError(
                timeline.source,
                f"rank {timeline.rank}: {name} ends after 2262-04-11 on the clock of the trace (offset {offset_ns} ns)",
                todo="convert this rank by itself, or give --assume-aligned",
            )
    for batch in timeline.slices:
        batch.ts = batch.ts + offset_ns
    for counter in timeline.counters:
        counter.ts = counter.ts + offset_ns
    for table in (timeline.tasks, timeline.host, timeline.device):
        table.ts = table.ts + offset_ns
    for f in timeline.flows:
        f.out_ts = f.out_ts + offset_ns
    if timeline.window:
        timeline.window = (timeline.window[0] + offset_ns, timeline.window[1] + offset_ns)
