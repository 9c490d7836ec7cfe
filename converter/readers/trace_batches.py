"""The collected slices of a trace JSON to batches of the Timeline, by the part of the trace they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.readers.arg_columns import ArgColumns, Rows, Table
from converter.readers.exact_time import MAX_NS
from converter.readers.trace_counters import Counters
from converter.readers.trace_flows import FlowPoints, Slices, no_slices
from converter.readers.trace_tracks import Placement, Threads, Where, group_track, place, process_track
from schemas import trace_keys as keys
from schemas.errors import printable
from schemas.timeline import NO_TEXT, NULL, Column, Host, Int64, SliceBatch, StringPool, Timeline


@dataclass
class HostPart:
    """A batch of host slices and what annotators ask of them. Arrays are [n], aligned to the batch.

    source: int8 of Host; connection_id: of CANN and CUDA API calls; correlation_id: of Enqueue and Dequeue; else NULL.
    """

    batch: SliceBatch
    source: npt.NDArray[np.int8]
    connection_id: Int64
    correlation_id: Int64


@dataclass
class TraceParts:
    """What a trace JSON holds, for the assembler. All batches are in the Timeline already.

    hardware: all slices on streams, in file order, under canonical keys; device_id, stream_id: int64[n] aligned to it.
    communication: the collectives (not their tasks). relative: the times are no epoch times.
    pid: of the process named Python. header: the keys beside traceEvents.
    recorded: which hardware slices are recorded tasks, where the source says so itself; None: their task type tells.
    """

    hardware: SliceBatch | None = None
    device_id: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    stream_id: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    recorded: npt.NDArray[np.bool_] | None = None
    communication: SliceBatch | None = None
    planes: list[SliceBatch] = field(default_factory=list)
    overlap: list[SliceBatch] = field(default_factory=list)
    host: list[HostPart] = field(default_factory=list)
    pid: int | None = None
    relative: bool = False
    is_kineto: bool = False
    header: dict[str, Any] = field(default_factory=dict)


def fill_timeline(
    timeline: Timeline,
    threads: Threads,
    slices: ArgColumns,
    instants: ArgColumns,
    flows: FlowPoints,
    counters: Counters,
    header: dict[str, Any],
    name: str,
) -> TraceParts:
    """Makes tracks, batches, counters and flows once everything is read. name: the file, for places."""
    base_ns = _base_ns(header, timeline, name)
    tables, marks = list(slices.tables()), list(instants.tables())
    if base_ns:
        tables = list(_from_base(tables, base_ns, timeline, name))
        marks = list(_from_base(marks, base_ns, timeline, name))
    relative, floor_ns = _floor(tables or marks)
    tables = list(_from_floor(tables, floor_ns, timeline, name))
    marks = list(_from_floor(marks, floor_ns, timeline, name))
    process_track(timeline)
    gpu, host = _threads_by_category(tables, timeline.strings)
    used = _threads_of((*tables, *marks))
    placement = place(timeline, threads, used, gpu, host)
    parts = TraceParts(pid=placement.pid, relative=relative, header=header)
    parts.is_kineto = bool(gpu) or (
        bool(keys.KINETO_KEYS & header.keys()) and not any(p.name == keys.HARDWARE for p in threads.processes)
    )
    bound = _add_batches(timeline, threads, tables, placement, parts)
    for table in marks:
        _add_host(timeline, threads, table, placement, parts, instant=True)
    _count_raw(timeline, parts, name)
    counters.finish(timeline, lambda p: group_track(timeline, threads, placement, p), base_ns, floor_ns, name)
    flows.resolve(timeline, bound, base_ns)
    return parts


def _count_raw(timeline: Timeline, parts: TraceParts, name: str) -> None:
    counts: dict[str, int] = {}
    for batch in (parts.hardware, parts.communication, *parts.planes):
        for column in batch.columns if batch is not None else ():
            if column.key.removesuffix("_raw") in keys.KEY_KINDS and column.key.endswith("_raw"):
                count = len(column.values) if column.valid is None else int(column.valid.sum())
                counts[column.key] = counts.get(column.key, 0) + count
    for key, count in counts.items():
        timeline.warn(f"{name}: {count} {key.removesuffix('_raw')} of another type, kept as {key}")


def _base_ns(header: dict[str, Any], timeline: Timeline, name: str) -> int:
    base = header.get("baseTimeNanoseconds", 0)
    if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < 2**62:
        return base
    timeline.warn(f"{name}: baseTimeNanoseconds is no time: {printable(base, 40)}; times are relative", damaged=True)
    return 0


def _from_base(tables: Iterable[Table], base_ns: int, timeline: Timeline, name: str) -> Iterable[Table]:
    """The tables in absolute time. A slice whose end no int64 holds is dropped."""
    for table in tables:
        good = table.rows.ts <= MAX_NS - base_ns - table.rows.dur
        if not good.all():
            place_ = f"{name}, event {table.rows.order[~good][0]} at {base_ns} + {table.rows.ts[~good][0]} ns"
            timeline.tally.slices.drop("start out of range", int((~good).sum()), place_)
            table = table.take(good)
        table.rows.ts = table.rows.ts + base_ns
        yield table


def _floor(tables: list[Table]) -> tuple[bool, int]:
    """Whether the times are relative, and before which time a start is out of range. Most starts decide."""
    total = sum(len(table.rows) for table in tables)
    epoch = sum(int((table.rows.ts >= keys.EPOCH_FLOOR_NS).sum()) for table in tables)
    relative = total > 0 and epoch * 2 < total
    return relative, 0 if relative else keys.EPOCH_FLOOR_NS if total else 0


def _from_floor(tables: Iterable[Table], floor_ns: int, timeline: Timeline, name: str) -> Iterable[Table]:
    for table in tables:
        good = table.rows.ts >= floor_ns
        if not good.all():
            first = table.rows.ts[~good][0]
            event = table.rows.order[~good][0]
            place_ = f"{name}, event {event} at {first} ns"
            timeline.tally.slices.drop("start out of range", int((~good).sum()), place_)
            table = table.take(good)
        if len(table.rows):
            yield table


def _threads_of(tables: Iterable[Table]) -> list[int]:
    found: set[int] = set()
    for table in tables:
        found.update(np.unique(table.rows.thread).tolist())
    return sorted(found)


def _threads_by_category(tables: list[Table], strings: StringPool) -> tuple[frozenset[int], frozenset[int]]:
    """The threads with GPU events, and those with events of the framework."""
    gpu_ids = [strings.find(text) for text in keys.GPU_CATEGORIES]
    host_ids = [strings.find(text) for text in keys.HOST_SOURCES]
    gpu: set[int] = set()
    host: set[int] = set()
    for table in tables:
        of_gpu = np.isin(table.rows.category, gpu_ids)
        if of_gpu.any():
            gpu.update(np.unique(table.rows.thread[of_gpu]).tolist())
        of_host = np.isin(table.rows.category, host_ids)
        if of_host.any():
            host.update(np.unique(table.rows.thread[of_host]).tolist())
    return frozenset(gpu), frozenset(host)


def _add_batches(
    timeline: Timeline, threads: Threads, tables: list[Table], placement: Placement, parts: TraceParts
) -> Slices:
    """All slices; and what arrows bind to."""
    bound: list[Slices] = []

    def bind_to(batch: SliceBatch, rows: Rows) -> None:
        bound.append(Slices(rows.thread, batch.ts, batch.dur, batch.first + np.arange(len(batch))))

    united: dict[Where, list[Table]] = {Where.HARDWARE: [], Where.COMMUNICATION: []}
    tables.reverse()
    while tables:  # each is given up once it is a batch
        table = tables.pop()
        where = placement.where[table.rows.thread]
        for part in np.unique(where).tolist():
            picked = table.take(where == part)
            if part in united:
                united[Where(part)].append(picked)
            elif part == Where.HOST:
                batch = _add_host(timeline, threads, picked, placement, parts)
                bind_to(batch, picked.rows)
            else:
                columns = picked.columns
                if part == Where.PLANE:
                    columns = one_kind(canonical(columns, keys.COMMUNICATION_KEYS), keys.PLANE_FLOATS)
                batch = timeline.add(_batch(picked, columns, placement))
                (parts.planes if part == Where.PLANE else parts.overlap).append(batch)
                bind_to(batch, picked.rows)
    for part, of_part in united.items():
        if not of_part:
            continue
        table = unite(of_part, keys.HARDWARE_KEYS if part == Where.HARDWARE else keys.COMMUNICATION_KEYS)
        of_part.clear()
        if part == Where.HARDWARE:
            parts.device_id = placement.device[table.rows.thread].astype(np.int64)
            streams = np.array([track.stream for track in timeline.tracks], np.int64)
            parts.stream_id = streams[placement.track[table.rows.thread]]
            table.columns = _without_place(table, parts, timeline.strings)
            batch = parts.hardware = timeline.add(_batch(table, table.columns, placement))
        else:
            batch = parts.communication = timeline.add(_batch(table, table.columns, placement))
        bind_to(batch, table.rows)
    if not bound:
        return no_slices()
    return Slices(
        np.concatenate([s.thread for s in bound]),
        np.concatenate([s.ts for s in bound]),
        np.concatenate([s.dur for s in bound]),
        np.concatenate([s.number for s in bound]),
    )


def _batch(table: Table, columns: list[Column], placement: Placement, instant: bool = False) -> SliceBatch:
    rows = table.rows
    category: Any = rows.category
    if len(category) and (category == category[0]).all():
        category = int(category[0])
    extra = None
    if table.extra:
        extra = [b""] * len(rows)
        for row, data in table.extra.items():
            extra[row] = data
    for column in columns:
        if column.kind == "text" and not column.values.all():
            present = column.values != NO_TEXT
            column.valid = present if column.valid is None else column.valid & present
    return SliceBatch(placement.track[rows.thread], rows.ts, rows.dur, rows.name, category, columns, extra, instant)


def _add_host(
    timeline: Timeline,
    threads: Threads,
    table: Table,
    placement: Placement,
    parts: TraceParts,
    instant: bool = False,
) -> SliceBatch:
    batch = timeline.add(_batch(table, table.columns, placement, instant))
    if instant:
        return batch
    strings = timeline.strings
    categories, inverse = np.unique(table.rows.category, return_inverse=True)
    of_category = [keys.HOST_SOURCES.get(strings[c], Host.OTHER) for c in categories.tolist()]
    source = np.array(of_category, np.int8)[inverse]
    fixed = {keys.CANN: Host.CANN, keys.PYTHON_GC: Host.OTHER}
    of_thread = np.array([fixed.get(threads.processes[t.process].name, NULL) for t in threads.threads], np.int8)
    of_process = of_thread[table.rows.thread]
    source = np.where(of_process != NULL, of_process, source)
    connection = _integers(table, keys.CONNECTION_KEYS)
    correlation = _integers(table, keys.CORRELATION_KEYS)
    parts.host.append(HostPart(batch, source, connection, correlation))
    return batch


def _integers(table: Table, names: tuple[str, ...]) -> Int64:
    out = np.full(len(table.rows), NULL, np.int64)
    for column in table.columns:
        if column.key in names and column.kind == "int":
            present = column.values >= 0
            if column.valid is not None:
                present &= column.valid
            out[present] = column.values[present]
    return out


# ---- one set of keys ------------------------------------------------------------------------------------------------


def canonical(columns: list[Column], names: dict[str, str]) -> list[Column]:
    """Columns under their canonical keys: "none" is absent, a value of another type goes under `<key>_raw`."""
    out = []
    for column in columns:
        key = names.get(column.key, column.key)
        kind = keys.KEY_KINDS.get(key) if key != column.key or key in names.values() else None
        if kind is None:
            out.append(column)
            continue
        if kind != column.kind:
            out.append(Column(f"{key}_raw", column.kind, column.values, column.valid))
            continue
        valid = column.valid
        if kind == "int":
            present = column.values >= 0
            if key in keys.NONE_ID_KEYS:
                present &= column.values != keys.NONE_ID
            if not present.all():
                valid = present if valid is None else valid & present
        if valid is None or valid.any():
            out.append(Column(key, kind, column.values, valid))
    return out


def one_kind(columns: list[Column], floats: frozenset[str]) -> list[Column]:
    """Integer columns of the keys in `floats` become float columns, joined with the one that is there."""
    out: list[Column] = []
    for column in columns:
        if column.key not in floats or column.kind not in ("int", "float"):
            out.append(column)
            continue
        values = column.values.astype(np.float64)
        same = next((c for c in out if c.key == column.key and c.kind == "float"), None)
        if same is None:
            out.append(Column(column.key, "float", values, column.valid))
        elif same.valid is not None and column.valid is not None:
            same.values = np.where(column.valid, values, same.values)
            same.valid = same.valid | column.valid
    return out


def unite(tables: list[Table], names: dict[str, str]) -> Table:
    """Tables of different shapes as one, in file order, under canonical keys."""
    if len(tables) == 1:
        only = tables[0]
        only.columns = canonical(only.columns, names)
        return only
    rows = Rows.join([table.rows for table in tables])
    total = len(rows)
    merged: dict[tuple[str, str], Column] = {}
    extra: dict[int, bytes] = {}
    first = 0
    for table in tables:
        last = first + len(table.rows)
        for column in canonical(table.columns, names):
            into = merged.get((column.key, column.kind))
            if into is None:
                into = Column(column.key, column.kind, np.zeros(total, column.values.dtype), np.zeros(total, np.bool_))
                merged[column.key, column.kind] = into
            assert into.valid is not None
            if column.valid is None:
                into.values[first:last], into.valid[first:last] = column.values, True
            else:
                into.values[first:last][column.valid] = column.values[column.valid]
                into.valid[first:last] |= column.valid
        extra.update((first + row, data) for row, data in table.extra.items())
        first = last
        table.columns = []
    order = np.argsort(rows.order, kind="stable")
    columns = []
    for column in merged.values():
        assert column.valid is not None
        valid = column.valid[order]
        columns.append(Column(column.key, column.kind, column.values[order], None if valid.all() else valid))
    if extra:
        new_row = np.empty(total, np.int64)
        new_row[order] = np.arange(total)
        extra = {int(new_row[row]): data for row, data in extra.items()}
    return Table(rows.take(order), columns, extra)


def _without_place(table: Table, parts: TraceParts, strings: StringPool) -> list[Column]:
    """The columns without device and stream, where the track tells the same."""
    out = []
    for column in table.columns:
        told = None
        if column.key in keys.STREAM_KEYS:
            told = parts.stream_id
        elif column.key in keys.DEVICE_KEYS:
            told = parts.device_id
        if told is not None and column.kind == "int":
            differs = column.values != told
            if column.valid is not None:
                differs &= column.valid
            if not differs.any():
                continue
            column = Column(column.key, "int", column.values, differs)
        out.append(column)
    categories = np.unique(table.rows.category)
    if categories.any() and not any(column.key == "task_type" for column in out):  # Kineto: the category is the type
        out.append(Column("task_type", "text", table.rows.category.copy(), table.rows.category != NO_TEXT))
    return out
