"""Arguments to columns, row by row against the JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from converter.readers import arg_columns
from converter.readers.arg_columns import ArgColumns, Rows
from schemas.timeline import StringPool

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.floats(allow_nan=False, allow_infinity=False)
)
arguments = st.dictionaries(st.sampled_from(["a", "b", "c"]), scalars | st.lists(scalars, max_size=2), max_size=3)


def rows(count: int, first: int = 0) -> Rows:
    n = np.arange(first, first + count)
    return Rows(n.astype(np.int32), n, n, n.astype(np.int32), n.astype(np.int32), n.astype(np.uint32))


def raws(args: list[Any]) -> list[Raw]:
    return [Raw(json.dumps(a, ensure_ascii=False).encode()) for a in args]


def collected(columns: ArgColumns, strings: StringPool) -> dict[int, dict[str, Any]]:
    """Per input row its arguments as they came out; nested ones as bytes."""
    out: dict[int, dict[str, Any]] = {}
    for table in columns.tables():
        order = table.rows.order.tolist()
        assert table.rows.ts.tolist() == order
        for row in order:
            assert row not in out
            out[row] = {}
        for column in table.columns:
            valid = np.ones(len(order), bool) if column.valid is None else column.valid
            assert len(valid) == len(column.values) == len(order)
            for at in np.flatnonzero(valid).tolist():
                value = column.values[at].item()
                assert column.key not in out[order[at]]
                out[order[at]][column.key] = strings[value] if column.kind == "text" else value
        for at, data in table.extra.items():
            out[order[at]][""] = data
    return out


def same(value: Any) -> Any:
    """What a value of the JSON becomes in a column."""
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return str(value)
    return value


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(arguments, min_size=1, max_size=6), min_size=1, max_size=4))
def test_values(chunks: list[list[dict[str, Any]]]) -> None:
    strings = StringPool()
    columns = ArgColumns(strings)
    first = 0
    for chunk in chunks:
        assert columns.add(rows(len(chunk), first), raws(chunk)) == []
        first += len(chunk)
    found = collected(columns, strings)
    everything = [a for chunk in chunks for a in chunk]
    assert sorted(found) == list(range(len(everything)))
    for row, args in enumerate(everything):
        nested = {k for k, v in args.items() if isinstance(v, list)}
        data = found[row].pop("", b"")
        event = TrackEvent.FromString(data)
        assert {a.name for a in event.debug_annotations} == nested
        assert found[row] == {k: same(v) for k, v in args.items() if v is not None and k not in nested}
        for key, value in found[row].items():
            assert type(value) is type(same(args[key]))


def test_shapes_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arg_columns, "MAX_SHAPES", 3)
    strings = StringPool()
    columns = ArgColumns(strings)
    args = [{f"key{i % 10}": i} for i in range(40)]
    columns.add(rows(40), raws(args))
    found = collected(columns, strings)
    for row, want in enumerate(args):
        (key,) = want
        if key in ("key0", "key1", "key2"):
            assert found[row] == want
        else:
            (annotation,) = TrackEvent.FromString(found[row][""]).debug_annotations
            assert (annotation.name, annotation.int_value) == (key, row)


def test_keys_beyond_the_limit() -> None:
    strings = StringPool()
    columns = ArgColumns(strings)
    wide = {f"wide{i}": i for i in range(arg_columns.MAX_KEYS + 1)}
    args: list[dict[str, int]] = [{"a": 1, "b": 2}, wide, {"b": 3}, {f"key{i}": i for i in range(300)}, {"a": 4}]
    columns.add(rows(5), raws(args))
    found = collected(columns, strings)
    for row, want in enumerate(args):
        if len(want) > 2:
            annotations = TrackEvent.FromString(found[row][""]).debug_annotations
            assert {a.name: a.int_value for a in annotations} == want
        else:
            assert found[row] == want


def nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"n": value}
    return value


def test_depth() -> None:
    strings = StringPool()
    columns = ArgColumns(strings)
    args = [{"x": 1}, nest(64), nest(66), {"x": 2}, nest(3000), nest(1)]
    assert sorted(
        columns.add(rows(6), [*raws(args[:4]), Raw(b'{"n": ' * 3000 + b"1" + b"}" * 3000), *raws(args[5:])])
    ) == [2, 4]
    assert sorted(collected(columns, strings)) == [0, 1, 3, 5]


def test_what_is_no_object() -> None:
    strings = StringPool()
    columns = ArgColumns(strings)
    columns.add(rows(5), [Raw(b"[1]"), Raw(b'"text"'), Raw(b"null"), Raw(b"7"), Raw(b'{"a": 1e400}')])
    found = collected(columns, strings)
    assert [found[row] for row in (1, 2, 3, 4)] == [{"args": "text"}, {}, {"args": 7}, {"a": "1e400"}]
    assert TrackEvent.FromString(found[0][""]).debug_annotations[0].array_values[0].int_value == 1
