"""Shapes: which arguments a row has. Rows of one shape have packets of one length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.write.varints import varint_size
from schemas.timeline import Column, Int32, Int64, SliceBatch

NEGATIVE_BYTES = 10  # a negative int64 is always ten bytes
ABSENT, PRESENT, NEGATIVE = 0, 1, 2


@dataclass
class Shape:
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


def text_iid(text_ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
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


class Shapes:
    """Numbers the shapes of all batches; per row, which shape it has."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.shapes: list[Shape] = []

    def of(self, number: int, batch: SliceBatch, flows_out: Int64 | None, flows_in: Int64 | None) -> Int32:
        """int32[n]: the shape of each row of a batch."""
        n = len(batch)
        code = np.zeros(n, np.int64)
        bound = 1
        parts: list[tuple[str, Column | None, npt.NDArray[Any]]] = []
        sizes: dict[int, int] = {}
        for column in batch.columns:
            sizes[id(column)] = _value_bytes(column, self.names)
            parts.append(("column", column, _presence(column)))
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
            shape = Shape(number, [])
            for what, argument, state in parts:
                value = int(state[row])
                if what == "column" and argument is not None and value != ABSENT:
                    negative = value == NEGATIVE
                    shape.columns.append((argument, NEGATIVE_BYTES if negative else sizes[id(argument)], negative))
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
