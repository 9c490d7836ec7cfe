"""Columns to TrackEvent packets, without an object per event.

Every field that varies has a fixed number of varint bytes (protobuf allows padded varints), so that packets of one
shape (the set of arguments present) have one length, and a block of them is a matrix of bytes: a template row, plus a
few columns written over it. Blocks follow the file order that `lanes` gives; rows of different shapes are scattered
into one buffer. Field numbers: perfetto's trace_packet.proto, track_event.proto, debug_annotation.proto
(reference/perfetto.md, sections 1 and 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from converter import threads
from converter.write import templates
from converter.write.lanes import CLOSE, OPEN, Items, Layout, file_order
from converter.write.shapes import NEGATIVE_BYTES, Names, Shapes
from converter.write.templates import COUNTER, TIMESTAMP_BYTES, Builder, Rows, Template, varints, words
from converter.write.varints import padded_varints, varint_size
from schemas.timeline import Bool, CounterBatch, Int64, SliceBatch

BLOCK = 32768  # rows per block: large enough that two threads rarely wait for the interpreter


@dataclass
class Flows:
    """Arrows of n slices. out, into: (slice, id) int64[f] each of their flow_ids and terminating_flow_ids; together:
    bool[n], slices that begin at the time at which another one of their arrow begins."""

    out: tuple[Int64, Int64]
    into: tuple[Int64, Int64]
    together: Bool


def encode_slices(
    batches: list[SliceBatch],
    layout: Layout,
    uuid: Int64,
    names: Names,
    sequence: int,
    flows: Flows | None,
) -> Iterator[bytes]:
    """The packets of slices, in blocks.

    batches: numbered without holes; uuid: int64[n] by slice, the lane's track.
    """
    total = sum(len(b) for b in batches)
    shape_of = np.empty(total, np.int32)
    row_of = np.empty(total, np.int64)
    out_start = out_ids = in_start = in_ids = out_count = in_count = None
    if flows is not None:
        out_count, out_start, out_ids = _by_slice(*flows.out, total)
        in_count, in_start, in_ids = _by_slice(*flows.into, total)
    shapes = Shapes(names)
    sources: list[Rows] = []
    first = 0
    for number, batch in enumerate(batches):
        part = slice(first, first + len(batch))
        shape_of[part] = shapes.of(
            number,
            batch,
            None if out_count is None else out_count[part],
            None if in_count is None else in_count[part],
        )
        row_of[part] = np.arange(len(batch))
        sources.append(
            Rows(
                batch,
                uuid[part],
                None if out_start is None else out_start[part],
                out_ids,
                None if in_start is None else in_start[part],
                in_ids,
            )
        )
        first += len(batch)

    made_so_far: dict[int, Template] = {}

    def template(key: int) -> Template:
        found = made_so_far.get(key)
        if found is None:
            shape, what = shapes.shapes[key // 3], key % 3
            rows = sources[shape.batch]
            begin = None if what == CLOSE else templates.begin(shape, rows, names, sequence)
            if what == CLOSE:
                made = templates.end(rows, names, sequence)
            elif what == OPEN or rows.batch.instant:
                assert begin is not None
                made = begin
            else:
                assert begin is not None
                made = begin + templates.end(rows, names, sequence)
            found = made_so_far[key] = made.template()
        return found

    items = file_order(layout)

    tied = _tied(items, batches, uuid, flows)

    def block(at: int) -> bytes:
        part = slice(at, at + BLOCK)
        slices = items.slice[part]
        keys = shape_of[slices] * np.int64(3) + items.what[part]
        return _block(keys, row_of[slices], tied[part], template)

    yield from threads.in_order(block, range(0, len(items.what), BLOCK), ahead=4)


def _tied(items: Items, batches: list[SliceBatch], uuid: Int64, flows: Flows | None) -> Bool:
    """bool[items]: where the place in the file matters, because another event of the track has the same timestamp, or
    because an arrow joins two slices that begin together. Everything else may stand anywhere: the engine sorts it."""
    ts = np.concatenate([b.ts for b in batches]) if batches else np.empty(0, np.int64)
    end = ts + np.concatenate([b.dur for b in batches]) if batches else ts
    first = np.where(items.what == CLOSE, end[items.slice], ts[items.slice])
    last = np.where(items.what == OPEN, ts[items.slice], end[items.slice])
    track = uuid[items.slice]
    touch = (last[:-1] == first[1:]) & (track[:-1] == track[1:])
    tied = np.zeros(len(items.what), np.bool_)
    tied[1:] |= touch
    tied[:-1] |= touch
    if flows is not None:
        tied |= flows.together[items.slice]
    return tied


def _block(keys: Int64, rows: Int64, tied: Bool, template: Callable[[int], Template]) -> bytes:
    """Rows that may stand anywhere by shape, so that each shape is one matrix; then the tied ones in their order."""
    free = np.flatnonzero(~tied)
    free = free[np.argsort(keys[free], kind="stable")]
    parts = []
    shapes, first = np.unique(keys[free], return_index=True)
    bounds = np.append(first, len(free)).tolist()
    for key, a, b in zip(shapes.tolist(), bounds, bounds[1:], strict=False):
        parts.append(template(key).matrix(rows[free[a:b]]).tobytes())
    if len(free) < len(keys):
        parts.append(_in_place(keys[tied], rows[tied], template))
    return b"".join(parts)


def _in_place(keys: Int64, rows: Int64, template: Callable[[int], Template]) -> bytes:
    low, high = int(keys.min()), int(keys.max())
    if low == high:
        return template(low).matrix(rows).tobytes()
    kinds, inverse = np.unique(keys, return_inverse=True)
    sizes = np.array([len(template(int(k))) for k in kinds], np.int64)
    lengths = sizes[inverse]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    out = np.empty(int(ends[-1]), np.uint8)
    for number, key in enumerate(kinds.tolist()):
        mine = np.flatnonzero(inverse == number)
        matrix = template(key).matrix(rows[mine])
        out[starts[mine][:, None] + np.arange(matrix.shape[1])] = matrix
    return out.tobytes()


def _by_slice(slices: Int64, ids: Int64, total: int) -> tuple[Int64, Int64, Int64]:
    """Flow ids grouped by slice: count and first index per slice, and the ids in that order."""
    order = np.argsort(slices, kind="stable")
    count = np.bincount(slices, minlength=total)
    return count, np.cumsum(count) - count, ids[order].astype("<i8")


def encode_counters(batches: list[CounterBatch], uuids: Int64, names: Names, sequence: int) -> Iterator[bytes]:
    """The packets of all samples. uuids: int64, by track index."""
    for batch in batches:
        whole = np.issubdtype(batch.values.dtype, np.integer)
        event = Builder()
        event.constant(b"\x48" + bytes([COUNTER]))
        event.constant(b"\x58")
        track_uuid = uuids[batch.track]
        event.hole(names.uuid, varints(track_uuid, names.uuid))
        if whole:
            negative = len(batch) > 0 and int(batch.values.min()) < 0
            size = NEGATIVE_BYTES if negative else varint_size(int(batch.values.max(initial=0)))
            event.constant(b"\xf0\x01")  # counter_value = 30
            event.hole(size, varints(batch.values, size))
        else:
            event.constant(b"\xe1\x02")  # double_counter_value = 44
            event.hole(8, words(batch.values.astype("<f8", copy=False)))
        ts = batch.ts
        made = templates.packet(event, sequence, lambda r, ts=ts: padded_varints(ts[r], TIMESTAMP_BYTES)).template()  # type: ignore[misc]
        for at in range(0, len(batch), BLOCK):
            yield made.matrix(np.arange(at, min(at + BLOCK, len(batch)), dtype=np.int64)).tobytes()
