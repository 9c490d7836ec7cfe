"""Arguments of slices from JSON objects to columns.

Rows with the same keys in the same order are a shape; a shape's columns are filled chunk by chunk. A column whose
values differ in type becomes one column per type, each with the rows that have it. Nested values, and every argument
of rows beyond MAX_SHAPES shapes or MAX_KEYS keys, are encoded per row instead (`SliceBatch.extra`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from msgspec import Raw

from converter.readers.nesting import is_too_deep
from schemas.annotation_bytes import nested_annotation
from schemas.timeline import Bool, Column, ColumnKind, Int32, Int64, StringPool

MAX_SHAPES = 256
MAX_KEYS = 256  # of all shapes, the widest export has 38: a column of a rare key costs as much as that of any other
_BEYOND = 2.0**63
_DTYPES: dict[ColumnKind, type] = {
    "int": np.int64, "uint": np.uint64, "float": np.float64, "text": np.int32, "bool": np.bool_,
}  # fmt: skip


class TextIds(dict[str, int]):
    """Text ids of a StringPool by subscript, which is what `map` can call."""

    def __init__(self, strings: StringPool) -> None:
        super().__init__()
        self._strings = strings

    def __missing__(self, text: str) -> int:
        found = self[text] = self._strings.add(text)
        return found

    def of(self, texts: Sequence[str]) -> Int32:
        """int32[n]"""
        return np.fromiter(map(self.__getitem__, texts), np.int32, len(texts))


@dataclass
class Rows:
    """Slices without their arguments. All arrays are [n]; order is the place in the input, which breaks ties."""

    thread: Int32
    ts: Int64
    dur: Int64
    name: Int32
    category: Int32
    order: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, rows: npt.NDArray[Any]) -> Rows:
        return Rows(*(getattr(self, key)[rows] for key in _ROW_KEYS))

    def slice(self, first: int, last: int) -> Rows:
        return Rows(*(getattr(self, key)[first:last] for key in _ROW_KEYS))

    @staticmethod
    def join(parts: Sequence[Rows]) -> Rows:
        return Rows(*(_join([getattr(part, key) for part in parts]) for key in _ROW_KEYS))


_ROW_KEYS = ("thread", "ts", "dur", "name", "category", "order")


def _join(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass
class Table:
    """A finished shape."""

    rows: Rows
    columns: list[Column]
    extra: dict[int, bytes] = field(default_factory=dict)  # row -> encoded arguments

    def take(self, picked: Bool) -> Table:
        """The picked rows. No copy where all are."""
        if picked.all():
            return self
        at = np.flatnonzero(picked)
        columns = []
        for column in self.columns:
            valid = None if column.valid is None else column.valid[at]
            if valid is None or valid.any():
                columns.append(Column(column.key, column.kind, column.values[at], valid))
        extra = {}
        if self.extra:
            extra = {new: self.extra[old] for new, old in enumerate(at.tolist()) if old in self.extra}
        return Table(self.rows.take(at), columns, extra)


class _Values:
    """One key of a shape: per type the values so far, and the rows they belong to (None: a run of all rows)."""

    def __init__(self) -> None:
        self.parts: dict[ColumnKind, list[tuple[int, npt.NDArray[Any], Int64 | None]]] = {}

    def add(self, kind: ColumnKind, first: int, values: npt.NDArray[Any], rows: Int64 | None = None) -> None:
        self.parts.setdefault(kind, []).append((first, values, rows))

    def columns(self, key: str, count: int) -> Iterable[Column]:
        for kind, parts in self.parts.items():
            if sum(len(values) for _, values, rows in parts if rows is None) == count:
                yield Column(key, kind, _join([values for _, values, _ in parts]))
                continue
            out: npt.NDArray[Any] = np.zeros(count, _DTYPES[kind])
            valid = np.zeros(count, np.bool_)
            for first, values, rows in parts:
                at = slice(first, first + len(values)) if rows is None else first + rows
                out[at], valid[at] = values, True
            yield Column(key, kind, out, valid)


class _Shape:
    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.values = [_Values() for _ in keys]
        self.count = 0
        self.parts: list[Rows] = []
        self.extra: dict[int, bytes] = {}


class _ShapeNumbers(dict[tuple[str, ...], int]):
    """The number of the shape with these keys; _REST where it would be one more than MAX_SHAPES, or its keys than MAX_KEYS."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[_Shape] = []
        self._known: set[str] = set()

    def __missing__(self, keys: tuple[str, ...]) -> int:
        if len(self.shapes) == MAX_SHAPES or len(keys) > MAX_KEYS or len(known := self._known.union(keys)) > MAX_KEYS:
            return _REST
        self._known = known
        number = self[keys] = len(self.shapes)
        self.shapes.append(_Shape(keys))
        return number


_REST = -1


class ArgColumns:
    """Collects slices by shape."""

    def __init__(self, strings: StringPool) -> None:
        self.texts = TextIds(strings)
        self._numbers = _ShapeNumbers()
        self._rest = _Shape(())  # rows beyond MAX_SHAPES and MAX_KEYS: all their arguments are encoded

    def add(self, rows: Rows, raws: Sequence[Raw]) -> list[int]:
        """Adds a chunk of slices with the JSON text of their arguments; the rows left out because it's too deep."""
        args = decode_args(raws)
        number = np.fromiter(map(self._numbers.__getitem__, map(tuple, args)), np.int16, len(args))
        order = np.argsort(number, kind="stable")
        number = number[order]
        edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(args)]
        origin = order.tolist()
        if len(edges) > 2:
            rows = rows.take(order)
            args = [args[row] for row in origin]
        bad: list[int] = []
        for first, last in pairwise(edges):
            which = int(number[first]) if first < last else _REST
            part, picked = rows.slice(first, last), args[first:last]
            if which == _REST:
                deep = self._encode_all(part, picked)
            else:
                of_part = origin[first:last]
                deep = self._add(self._numbers.shapes[which], part, picked, partial(_raw_of, raws, of_part))
            bad.extend(origin[first + row] for row in deep)
        return bad

    def _add(self, shape: _Shape, rows: Rows, args: Sequence[dict[str, Any]], raw: Callable[[int], bytes]) -> list[int]:
        """raw(row): the JSON of a row's arguments."""
        columns = list(zip(*map(dict.values, args), strict=True)) if shape.keys else []
        kinds = [set(map(type, column)) for column in columns]
        nested: dict[int, bytes] = {}
        if any(of_column & _NESTED for of_column in kinds):
            deep = sorted({row for column in columns for row, value in enumerate(column) if is_too_deep(value)})
            if deep:
                kept = sorted(set(range(len(args))) - set(deep))
                at = np.array(kept, np.int64)
                if not kept:
                    return deep
                self._add(shape, rows.take(at), [args[row] for row in kept], lambda row: raw(kept[row]))
                return deep
            for key, column, of_column in zip(shape.keys, columns, kinds, strict=True):
                if of_column & _NESTED:
                    for row, value in enumerate(column):
                        if type(value) in _NESTED:
                            nested[row] = nested.get(row, b"") + nested_annotation(key, value)
        first = shape.count
        for into, column, of_column, key in zip(shape.values, columns, kinds, shape.keys, strict=True):
            self._add_values(into, first, column, of_column, raw, key)
        for row, data in nested.items():
            shape.extra[first + row] = data
        shape.count += len(rows)
        shape.parts.append(rows)
        return []

    def _add_values(
        self,
        into: _Values,
        first: int,
        column: tuple[Any, ...],
        kinds: set[type],
        raw: Callable[[int], bytes],
        key: str,
    ) -> None:
        if kinds == {str}:
            into.add("text", first, self.texts.of(column))
            return
        if kinds == {int}:
            try:
                into.add("int", first, np.fromiter(column, np.int64, len(column)))
                return
            except OverflowError:
                pass
        elif kinds == {float}:
            values = np.fromiter(column, np.float64, len(column))
            if np.abs(values).max() < _BEYOND:
                into.add("float", first, values)
                return
        elif kinds == {bool}:
            into.add("bool", first, np.fromiter(column, np.bool_, len(column)))
            return
        by_kind: dict[ColumnKind, tuple[list[int], list[Any]]] = {}
        for row, value in enumerate(column):
            kind = _kind(value)
            if kind == "float" and abs(value) >= _BEYOND:
                value = _decode_exactly(raw(row), key)  # an integer beyond 64 bits, or a large float
                kind = _kind(value)
            if kind is None:
                continue
            rows, values_of_kind = by_kind.setdefault(kind, ([], []))
            rows.append(row)
            values_of_kind.append(self.texts[str(value)] if kind == "text" else value)
        for kind, (rows, values_of_kind) in by_kind.items():
            into.add(kind, first, np.array(values_of_kind, _DTYPES[kind]), np.array(rows, np.int64))

    def _encode_all(self, rows: Rows, args: Sequence[dict[str, Any]]) -> list[int]:
        shape = self._rest
        kept: list[int] = []
        deep: list[int] = []
        for row, values in enumerate(args):
            if is_too_deep(values, 0):
                deep.append(row)
                continue
            data = b"".join(nested_annotation(k, v) for k, v in values.items() if v is not None)
            shape.extra[shape.count + len(kept)] = data
            kept.append(row)
        shape.count += len(kept)
        shape.parts.append(rows.take(np.array(kept, np.int64)))
        return deep

    def tables(self) -> Iterable[Table]:
        """The shapes with rows, once all chunks are in. Each can be taken once: its parts are given up."""
        for shape in [*self._numbers.shapes, self._rest]:
            if not shape.count:
                continue
            rows = Rows.join(shape.parts)
            shape.parts = []
            columns: list[Column] = []
            for key, values in zip(shape.keys, shape.values, strict=True):
                columns.extend(values.columns(key, shape.count))
                values.parts = {}
            yield Table(rows, columns, shape.extra)


_NESTED = frozenset({dict, list})


def _raw_of(raws: Sequence[Raw], origin: Sequence[int], row: int) -> bytes:
    return bytes(raws[origin[row]])


def _kind(value: Any) -> ColumnKind | None:
    """The column for a value; None for null and nested ones."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return "int"
        return "uint" if 0 <= value < 2**64 else "text"
    return "float" if isinstance(value, float) else None


def decode_args(raws: Sequence[Raw]) -> list[dict[str, Any]]:
    """The arguments of each row as a dict. What is no object stands under the key `args`; null is nothing."""
    try:
        values = orjson.loads(b"[" + b",".join(raws) + b"]")
    except orjson.JSONDecodeError:
        values = [_decode_one(bytes(raw)) for raw in raws]
    if set(map(type, values)) - {dict}:
        values = [v if isinstance(v, dict) else {} if v is None else {"args": v} for v in values]
    return values  # type: ignore[no-any-return]


def _decode_exactly(data: bytes, key: str) -> Any:
    """One argument with Python's json: integers of any size. Arguments that are no object are one value."""
    args = json.loads(data.decode("utf-8", "replace"), parse_float=_float_or_text, strict=False)
    return args[key] if isinstance(args, dict) else args


def _decode_one(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        # Numbers beyond float64 stay text; orjson refuses them.
        return json.loads(data.decode("utf-8", "replace"), parse_float=_float_or_text, strict=False)
    except RecursionError:
        return {"args": _nest()}
    except ValueError:
        return {"args": data.decode("utf-8", "replace")}


def _float_or_text(text: str) -> float | str:
    value = float(text)
    return value if abs(value) != float("inf") else text


def _nest() -> Any:
    """A value that counts as too deep."""
    value: Any = None
    for _ in range(100):
        value = [value]
    return value
