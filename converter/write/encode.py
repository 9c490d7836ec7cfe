"""Columns to TrackEvent packets, without an object per event.

Every field that varies has a fixed number of varint bytes (protobuf allows padded varints), so that packets of one
shape (the set of arguments present) have one length, and a block of them is a matrix of bytes: a template row, plus a
few columns written over it. Blocks follow the file order that `lanes` gives; rows of different shapes are scattered
into one buffer. Field numbers: perfetto's trace_packet.proto, track_event.proto, debug_annotation.proto
(reference/perfetto.md, sections 1 and 6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from converter.write.lanes import Layout
from schemas.timeline import NO_TEXT, Column, CounterBatch, Int32, Int64, SliceBatch

Bytes = npt.NDArray[np.uint8]
BLOCK = 32768  # rows per block: large enough that two threads rarely wait for the interpreter

TIMESTAMP_BYTES = 9  # up to 2^63
NEGATIVE_BYTES = 10  # a negative int64 is always ten bytes
FLOW_BYTES = 8

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def varint(value: int) -> bytes:
    """The shortest varint of a value >= 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    return max(1, -(-int(value).bit_length() // 7))


def padded_varints(values: npt.NDArray[np.integer], size: int) -> Bytes:
    """uint8[n, size]: every value as a varint of exactly `size` bytes. Values are taken as 64-bit two's complement."""
    v = values.astype(np.int64, copy=False).view(np.uint64) if values.dtype != np.uint64 else values
    if size <= 8:
        # Spread the 7-bit groups over the bytes of one word, then cut the word to size.
        word = np.zeros(len(v), np.uint64)
        for k in range(size):
            group = (v >> np.uint64(7 * k)) & np.uint64(0x7F)
            if k < size - 1:
                group |= np.uint64(0x80)
            word |= group << np.uint64(8 * k)
        return word.astype("<u8", copy=False).view(np.uint8).reshape(len(v), 8)[:, :size]
    out = np.empty((len(v), size), np.uint8)
    for k in range(size):
        out[:, k] = (v >> np.uint64(7 * k)).astype(np.uint8) & 0x7F if k < 9 else (v >> np.uint64(63)).astype(np.uint8)
        if k < size - 1:
            out[:, k] |= 0x80
    return out


# ---- shapes: which arguments a row has --------------------------------------------------------------------------

ABSENT, PRESENT, NEGATIVE = 0, 1, 2


@dataclass
class _Shape:
    """Rows of one batch with the same arguments: the columns present, whether negative, flows and extra bytes."""

    batch: int
    columns: list[tuple[Column, int, bool]]  # column, bytes of its value, negative
    flows_out: int = 0
    flows_in: int = 0
    extra_bytes: int = 0


@dataclass(frozen=True)
class Names:
    """How many bytes the interned ids and track uuids of this sequence take."""

    name: int
    category: int
    text: int
    uuid: int
    key_iids: dict[str, int]  # argument key -> iid


def text_iid(text_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """iids start at 1; text ids at 0."""
    return text_ids + 1


def _value_bytes(column: Column, names: Names) -> int:
    match column.kind:
        case "text":
            return names.text
        case "bool":
            return 1
        case "float":
            return 8
        case "uint":
            return varint_size(int(column.values.max(initial=0)))
        case "int":
            return varint_size(max(0, int(column.values.max(initial=0))))


class _Shapes:
    """Numbers the shapes of all batches; per row, which shape it has."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.shapes: list[_Shape] = []

    def of(self, number: int, batch: SliceBatch, flows_out: Int64 | None, flows_in: Int64 | None) -> Int32:
        """int32[n]: the shape of each row of a batch."""
        n = len(batch)
        code = np.zeros(n, np.int64)
        bound = 1
        parts: list[tuple[str, Column | None, npt.NDArray[np.int8] | Int64]] = []
        sizes: dict[int, int] = {}
        for column in batch.columns:
            sizes[id(column)] = _value_bytes(column, self.names)
            state = _presence(column)
            parts.append(("column", column, state))
        for what, counts in (("out", flows_out), ("in", flows_in)):
            if counts is not None and counts.any():
                parts.append((what, None, counts))
        if batch.extra is not None:
            parts.append(("extra", None, np.fromiter(map(len, batch.extra), np.int64, n)))
        varying = []
        for part in parts:
            state = part[2]
            top = int(state.max(initial=0)) + 1
            if n and int(state.min()) == top - 1:
                continue  # the same for all rows: read from the first row below
            if bound > (1 << 62) // top:
                code = np.unique(code, return_inverse=True)[1].astype(np.int64)
                bound = int(code.max(initial=0)) + 1
            code = code * top + state
            bound *= top
            varying.append(part)
        if not varying:
            first, shape_of = np.zeros(min(n, 1), np.int64), np.zeros(n, np.int32)
        elif bound <= 1 << 16:
            used = np.flatnonzero(np.bincount(code, minlength=bound))
            table = np.zeros(bound, np.int32)
            table[used] = np.arange(len(used), dtype=np.int32)
            shape_of = table[code]
            first = np.zeros(len(used), np.int64)
            first[shape_of[::-1]] = np.arange(n - 1, -1, -1)
        else:
            _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
            shape_of = inverse.astype(np.int32)
        base = len(self.shapes)
        for row in first.tolist():
            shape = _Shape(number, [])
            for what, column, state in parts:
                value = int(state[row])
                if what == "column" and column is not None and value != ABSENT:
                    negative = value == NEGATIVE
                    shape.columns.append((column, NEGATIVE_BYTES if negative else sizes[id(column)], negative))
                elif what == "out":
                    shape.flows_out = value
                elif what == "in":
                    shape.flows_in = value
                elif what == "extra":
                    shape.extra_bytes = value
            self.shapes.append(shape)
        return shape_of + np.int32(base)


def _presence(column: Column) -> npt.NDArray[np.int8]:
    state = np.ones(len(column.values), np.int8) if column.valid is None else column.valid.astype(np.int8)
    if column.kind == "int":
        negative = column.values < 0
        if negative.any():
            state[negative & (state == PRESENT)] = NEGATIVE
    return state


# ---- templates: where in a row what goes ------------------------------------------------------------------------


@dataclass
class _Field:
    at: int
    size: int
    fill: Callable[[Int64], Bytes]  # rows of the batch -> uint8[m, size]


@dataclass
class _Template:
    row: Bytes
    fields: list[_Field]

    def __len__(self) -> int:
        return len(self.row)

    def matrix(self, rows: Int64) -> Bytes:
        out = np.empty((len(rows), len(self.row)), np.uint8)
        out[:] = self.row
        for f in self.fields:
            out[:, f.at : f.at + f.size] = f.fill(rows)
        return out


class _Builder:
    """Puts a packet together: constant bytes, holes that a column fills, and nested lengths."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.holes: list[tuple[int, int, Callable[[Int64], Bytes]]] = []

    def constant(self, data: bytes) -> None:
        self.out += data

    def hole(self, size: int, fill: Callable[[Int64], Bytes]) -> None:
        self.holes.append((len(self.out), size, fill))
        self.out += bytes(size)

    def nested(self, tag: bytes, inner: _Builder) -> None:
        self.out += tag + varint(len(inner.out))
        base = len(self.out)
        self.holes += [(base + at, size, fill) for at, size, fill in inner.holes]
        self.out += inner.out

    def template(self) -> _Template:
        row = np.frombuffer(bytes(self.out), np.uint8)
        return _Template(row, [_Field(at, size, fill) for at, size, fill in self.holes])

    def __add__(self, other: _Builder) -> _Builder:
        both = _Builder()
        both.out = self.out + other.out
        both.holes = self.holes + [(len(self.out) + at, size, fill) for at, size, fill in other.holes]
        return both


@dataclass
class _Rows:
    """What the templates of one batch read from, by row of the batch."""

    batch: SliceBatch
    uuid: Int64
    out_start: Int64 | None  # CSR: where the row's flow ids begin
    out_ids: Int64 | None
    in_start: Int64 | None
    in_ids: Int64 | None


def _varints(values: npt.NDArray[np.integer], size: int) -> Callable[[Int64], Bytes]:
    return lambda rows: padded_varints(values[rows], size)


def _words(values: npt.NDArray[np.generic]) -> Callable[[Int64], Bytes]:
    """Eight little-endian bytes of each value."""
    return lambda rows: np.ascontiguousarray(values[rows]).view(np.uint8).reshape(len(rows), 8)


def _flow_ids(ids: Int64, start: Int64, k: int) -> Callable[[Int64], Bytes]:
    return lambda rows: np.ascontiguousarray(ids[start[rows] + k]).view(np.uint8).reshape(len(rows), 8)


def _annotation(column: Column, size: int, key_iid: int) -> _Builder:
    """DebugAnnotation (TrackEvent field 4) of one column."""
    inner = _Builder()
    inner.constant(b"\x08" + varint(key_iid))  # name_iid = 1
    values = column.values
    match column.kind:
        case "int":
            inner.constant(b"\x20")  # int_value = 4
            inner.hole(size, _varints(values, size))
        case "uint":
            inner.constant(b"\x18")  # uint_value = 3
            inner.hole(size, _varints(values, size))
        case "bool":
            inner.constant(b"\x10")  # bool_value = 2
            inner.hole(1, lambda rows: values[rows].astype(np.uint8).reshape(-1, 1))
        case "float":
            inner.constant(b"\x29")  # double_value = 5
            inner.hole(8, _words(values.astype("<f8", copy=False)))
        case "text":
            inner.constant(b"\x88\x01")  # string_value_iid = 17
            inner.hole(size, lambda rows: padded_varints(text_iid(values[rows]), size))
    out = _Builder()
    out.nested(b"\x22", inner)
    return out


def _packet(event: _Builder, sequence: int, times: Callable[[Int64], Bytes]) -> _Builder:
    """Trace.packet around a TrackEvent."""
    inner = _Builder()
    inner.constant(b"\x40")  # timestamp = 8
    inner.hole(TIMESTAMP_BYTES, times)
    inner.constant(b"\x50" + varint(sequence))  # trusted_packet_sequence_id = 10
    inner.constant(b"\x68\x02")  # sequence_flags = 13: needs incremental state
    inner.nested(b"\x5a", event)  # track_event = 11
    out = _Builder()
    out.nested(b"\x0a", inner)
    return out


def _begin(shape: _Shape, rows: _Rows, names: Names, sequence: int) -> _Builder:
    batch = rows.batch
    event = _Builder()
    category = batch.category
    if isinstance(category, np.ndarray):
        event.constant(b"\x18")  # category_iids = 3
        event.hole(names.category, lambda r: padded_varints(text_iid(category[r]), names.category))
    elif category != NO_TEXT:
        event.constant(b"\x18" + varint(category + 1))
    for column, size, _ in shape.columns:
        event = event + _annotation(column, size, names.key_iids[column.key])
    if shape.extra_bytes and batch.extra is not None:
        extra, size = batch.extra, shape.extra_bytes
        event.hole(size, lambda r: np.frombuffer(b"".join(extra[i] for i in r.tolist()), np.uint8).reshape(-1, size))
    event.constant(b"\x48" + bytes([INSTANT if batch.instant else BEGIN]))  # type = 9
    event.constant(b"\x50")  # name_iid = 10
    event.hole(names.name, lambda r: padded_varints(text_iid(batch.name[r]), names.name))
    event.constant(b"\x58")  # track_uuid = 11
    event.hole(names.uuid, _varints(rows.uuid, names.uuid))
    for k in range(shape.flows_out):
        assert rows.out_ids is not None and rows.out_start is not None
        event.constant(b"\xf9\x02")  # flow_ids = 47
        event.hole(FLOW_BYTES, _flow_ids(rows.out_ids, rows.out_start, k))
    for k in range(shape.flows_in):
        assert rows.in_ids is not None and rows.in_start is not None
        event.constant(b"\x81\x03")  # terminating_flow_ids = 48
        event.hole(FLOW_BYTES, _flow_ids(rows.in_ids, rows.in_start, k))
    ts = batch.ts
    return _packet(event, sequence, lambda r: padded_varints(ts[r], TIMESTAMP_BYTES))


def _end(rows: _Rows, names: Names, sequence: int) -> _Builder:
    event = _Builder()
    event.constant(b"\x48" + bytes([END]))
    event.constant(b"\x58")
    event.hole(names.uuid, _varints(rows.uuid, names.uuid))
    ts, dur = rows.batch.ts, rows.batch.dur
    return _packet(event, sequence, lambda r: padded_varints(ts[r] + dur[r], TIMESTAMP_BYTES))


# ---- file order -------------------------------------------------------------------------------------------------

WHOLE, OPEN, CLOSE = 0, 1, 2  # a leaf's begin and end together; a begin; an end


@dataclass
class Items:
    """What stands in the file, in order. what: int8[m] of WHOLE, OPEN, CLOSE; slice: int64[m], global slice index."""

    what: npt.NDArray[np.int8]
    slice: Int64


def file_order(layout: Layout) -> Items:
    """Depth-first order of begins and ends, vectorised: where a begin stands is its rank, plus the ends before it."""
    n = len(layout.order)
    inner = ~layout.leaf
    before = np.cumsum(inner) - inner  # slices with children among those that begin earlier
    place = np.arange(n) + before - layout.depth  # all of these have ended, except the open ancestors
    total = n + int(inner.sum())
    what = np.full(total, CLOSE, np.int8)
    which = np.empty(total, np.int64)
    what[place] = np.where(inner, OPEN, WHOLE)
    which[place] = layout.order
    parents = np.flatnonzero(inner)
    follow = parents + 1 + layout.descendants[parents]  # the first slice after the subtree
    next_place = np.append(place, total)[follow]
    next_depth = np.append(layout.depth, 0)[follow]
    which[next_place - 1 - (layout.depth[parents] - next_depth)] = layout.order[parents]
    return Items(what, which)


def encode_slices(
    batches: list[SliceBatch],
    layout: Layout,
    uuid: Int64,
    names: Names,
    sequence: int,
    flows: tuple[Int64, Int64, Int64] | None,
) -> Iterator[bytes]:
    """The packets of all slices of a rank, in blocks.

    batches: numbered without holes; uuid: int64[n] by global slice index, the lane's track;
    flows: (slice with the flow_ids, slice with the terminating_flow_ids, id), int64[f] each, or None.
    """
    total = sum(len(b) for b in batches)
    shape_of = np.empty(total, np.int32)
    row_of = np.empty(total, np.int64)
    out_start = out_ids = in_start = in_ids = out_count = in_count = None
    if flows is not None and len(flows[2]):
        out_count, out_start, out_ids = _by_slice(flows[0], flows[2], total)
        in_count, in_start, in_ids = _by_slice(flows[1], flows[2], total)
    shapes = _Shapes(names)
    sources: list[_Rows] = []
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
            _Rows(
                batch,
                uuid[part],
                None if out_start is None else out_start[part],
                out_ids,
                None if in_start is None else in_start[part],
                in_ids,
            )
        )
        first += len(batch)

    templates: dict[int, _Template] = {}

    def template(key: int) -> _Template:
        found = templates.get(key)
        if found is None:
            shape, what = shapes.shapes[key // 3], key % 3
            rows = sources[shape.batch]
            begin = None if what == CLOSE else _begin(shape, rows, names, sequence)
            if what == CLOSE:
                made = _end(rows, names, sequence)
            elif what == OPEN or rows.batch.instant:
                assert begin is not None
                made = begin
            else:
                assert begin is not None
                made = begin + _end(rows, names, sequence)
            found = templates[key] = made.template()
        return found

    items = file_order(layout)

    def block(at: int) -> bytes:
        slices = items.slice[at : at + BLOCK]
        keys = shape_of[slices] * np.int64(3) + items.what[at : at + BLOCK]
        return _block(keys, row_of[slices], template)

    yield from _in_order(block, range(0, len(items.what), BLOCK))


def _in_order(block: Callable[[int], bytes], starts: range) -> Iterator[bytes]:
    """The blocks one after the other, made by two threads: numpy works on a block without holding the interpreter."""
    if len(starts) < 8:
        yield from map(block, starts)
        return
    ahead: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for start in starts:
            ahead.append(pool.submit(block, start))
            if len(ahead) > 4:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _block(keys: Int64, rows: Int64, template: Callable[[int], _Template]) -> bytes:
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
        event = _Builder()
        event.constant(b"\x48" + bytes([COUNTER]))
        event.constant(b"\x58")
        track_uuid = uuids[batch.track]
        event.hole(names.uuid, _varints(track_uuid, names.uuid))
        if whole:
            negative = len(batch) > 0 and int(batch.values.min()) < 0
            size = NEGATIVE_BYTES if negative else varint_size(int(batch.values.max(initial=0)))
            event.constant(b"\xf0\x01")  # counter_value = 30
            event.hole(size, _varints(batch.values, size))
        else:
            event.constant(b"\xe1\x02")  # double_counter_value = 44
            event.hole(8, _words(batch.values.astype("<f8", copy=False)))
        ts = batch.ts
        made = _packet(event, sequence, lambda r, ts=ts: padded_varints(ts[r], TIMESTAMP_BYTES)).template()  # type: ignore[misc]
        for at in range(0, len(batch), BLOCK):
            yield made.matrix(np.arange(at, min(at + BLOCK, len(batch)), dtype=np.int64)).tobytes()
