"""Templates: where in a packet what goes. A template row, and holes that columns fill, block by block.

Field numbers: perfetto's trace_packet.proto, track_event.proto, debug_annotation.proto.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.write.shapes import Names, Shape, text_iid
from converter.write.varints import Bytes, padded_varints, varint
from schemas.timeline import NO_TEXT, Column, Int64, SliceBatch

TIMESTAMP_BYTES = 9  # up to 2^63
FLOW_BYTES = 8

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


@dataclass
class Field:
    at: int
    size: int
    fill: Callable[[Int64], Bytes]  # rows of the batch -> uint8[m, size]


@dataclass
class Template:
    row: Bytes
    fields: list[Field]

    def __len__(self) -> int:
        return len(self.row)

    def matrix(self, rows: Int64) -> Bytes:
        out = np.empty((len(rows), len(self.row)), np.uint8)
        out[:] = self.row
        for f in self.fields:
            out[:, f.at : f.at + f.size] = f.fill(rows)
        return out


class Builder:
    """Puts a packet together: constant bytes, holes that a column fills, and nested lengths."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.holes: list[tuple[int, int, Callable[[Int64], Bytes]]] = []

    def constant(self, data: bytes) -> None:
        self.out += data

    def hole(self, size: int, fill: Callable[[Int64], Bytes]) -> None:
        self.holes.append((len(self.out), size, fill))
        self.out += bytes(size)

    def nested(self, tag: bytes, inner: Builder) -> None:
        self.out += tag + varint(len(inner.out))
        base = len(self.out)
        self.holes += [(base + at, size, fill) for at, size, fill in inner.holes]
        self.out += inner.out

    def template(self) -> Template:
        row = np.frombuffer(bytes(self.out), np.uint8)
        return Template(row, [Field(at, size, fill) for at, size, fill in self.holes])

    def __add__(self, other: Builder) -> Builder:
        both = Builder()
        both.out = self.out + other.out
        both.holes = self.holes + [(len(self.out) + at, size, fill) for at, size, fill in other.holes]
        return both


@dataclass
class Rows:
    """What the templates of one batch read from, by row of the batch."""

    batch: SliceBatch
    uuid: Int64
    out_start: Int64 | None  # CSR: where the row's flow ids begin
    out_ids: Int64 | None
    in_start: Int64 | None
    in_ids: Int64 | None


def varints(values: npt.NDArray[np.integer[Any]], size: int) -> Callable[[Int64], Bytes]:
    return lambda rows: padded_varints(values[rows], size)


def words(values: npt.NDArray[Any]) -> Callable[[Int64], Bytes]:
    """Eight little-endian bytes of each value."""
    return lambda rows: np.ascontiguousarray(values[rows]).view(np.uint8).reshape(len(rows), 8)


def _flow_ids(ids: Int64, start: Int64, k: int) -> Callable[[Int64], Bytes]:
    return lambda rows: np.ascontiguousarray(ids[start[rows] + k]).view(np.uint8).reshape(len(rows), 8)


def _annotation(column: Column, size: int, key_iid: int) -> Builder:
    """DebugAnnotation (TrackEvent field 4) of one column."""
    inner = Builder()
    inner.constant(b"\x08" + varint(key_iid))  # name_iid = 1
    values = column.values
    match column.kind:
        case "int":
            inner.constant(b"\x20")  # int_value = 4
            inner.hole(size, varints(values, size))
        case "uint":
            inner.constant(b"\x18")  # uint_value = 3
            inner.hole(size, varints(values, size))
        case "bool":
            inner.constant(b"\x10")  # bool_value = 2
            inner.hole(1, lambda rows: values[rows].astype(np.uint8).reshape(-1, 1))
        case "float":
            inner.constant(b"\x29")  # double_value = 5
            inner.hole(8, words(values.astype("<f8", copy=False)))
        case "text":
            inner.constant(b"\x88\x01")  # string_value_iid = 17
            inner.hole(size, lambda rows: padded_varints(text_iid(values[rows]), size))
    out = Builder()
    out.nested(b"\x22", inner)
    return out


def packet(event: Builder, sequence: int, times: Callable[[Int64], Bytes]) -> Builder:
    """Trace.packet around a TrackEvent."""
    inner = Builder()
    inner.constant(b"\x40")  # timestamp = 8
    inner.hole(TIMESTAMP_BYTES, times)
    inner.constant(b"\x50" + varint(sequence))  # trusted_packet_sequence_id = 10
    inner.constant(b"\x68\x02")  # sequence_flags = 13: needs incremental state
    inner.nested(b"\x5a", event)  # track_event = 11
    out = Builder()
    out.nested(b"\x0a", inner)
    return out


def begin(shape: Shape, rows: Rows, names: Names, sequence: int) -> Builder:
    batch = rows.batch
    event = Builder()
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
    event.hole(names.uuid, varints(rows.uuid, names.uuid))
    for k in range(shape.flows_out):
        assert rows.out_ids is not None and rows.out_start is not None
        event.constant(b"\xf9\x02")  # flow_ids = 47
        event.hole(FLOW_BYTES, _flow_ids(rows.out_ids, rows.out_start, k))
    for k in range(shape.flows_in):
        assert rows.in_ids is not None and rows.in_start is not None
        event.constant(b"\x81\x03")  # terminating_flow_ids = 48
        event.hole(FLOW_BYTES, _flow_ids(rows.in_ids, rows.in_start, k))
    ts = batch.ts
    return packet(event, sequence, lambda r: padded_varints(ts[r], TIMESTAMP_BYTES))


def end(rows: Rows, names: Names, sequence: int) -> Builder:
    event = Builder()
    event.constant(b"\x48" + bytes([END]))
    event.constant(b"\x58")
    event.hole(names.uuid, varints(rows.uuid, names.uuid))
    ts, dur = rows.batch.ts, rows.batch.dur
    return packet(event, sequence, lambda r: padded_varints(ts[r] + dur[r], TIMESTAMP_BYTES))
