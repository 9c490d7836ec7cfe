from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.rows import to_csv, to_json, to_table, unique_names

VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.text()
)


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a_2", "a_3"]),
        (["a", "a", "a_2"], ["a", "a_3", "a_2"]),
        (["a_2", "a", "a"], ["a_2", "a", "a_3"]),
        ([], []),
    ],
)
def test_unique_names(names: list[str], want: list[str]) -> None:
    assert unique_names(names) == want


@given(st.lists(st.sampled_from(["a", "a_2", "a_2_2", "a_3", "b"]), max_size=8))
def test_unique_names_are_unique(names: list[str]) -> None:
    out = unique_names(names)
    assert len(set(out)) == len(out) == len(names)
    assert all(new.startswith(old) for old, new in zip(names, out, strict=True))


@given(st.lists(st.tuples(VALUES, VALUES), max_size=5))
def test_json_gives_the_rows_back(rows: list[tuple[Any, ...]]) -> None:
    for ascii_only in (False, True):
        text = to_json(["a", "a"], rows, ascii_only)
        assert json.loads(text) == [{"a": a, "a_2": b} for a, b in rows]
        assert text.isascii() or not ascii_only


def test_json_of_what_json_lacks() -> None:
    assert json.loads(to_json(["x"], [(math.inf,), (b"\x00\xff",)])) == [{"x": "inf"}, {"x": "00ff"}]


def test_csv() -> None:
    rows = [(1, None, 'a"b,\n', 0.1), (-(2**63), "", "ü", 1e300)]
    text = to_csv(["i", "n", "t", "f"], rows)
    assert list(csv.reader(io.StringIO(text))) == [
        ["i", "n", "t", "f"],
        ["1", "", 'a"b,\n', "0.1"],
        ["-9223372036854775808", "", "ü", "1e+300"],
    ]
    assert "\x1b" not in to_csv(["x"], [("\x1b[31m",)], escape=True)


def test_table() -> None:
    assert to_table(["name", "n"], [("a", 1), ("矩阵", None), ("\x1b[2J\u202e", 100)]).splitlines() == [
        "name              n",
        "-------------  ----",
        "a                 1",
        "矩阵           NULL",
        "\\x1b[2J\\u202e   100",
    ]


def test_table_fits_a_terminal() -> None:
    text = to_table(["name", "other", "n"], [("x" * 100, "y" * 30, 5)], width=40)
    assert max(map(len, text.splitlines())) == 40
    assert "…" in text


def test_empty_tables() -> None:
    assert to_table([], []) == "\n\n"
    assert to_table(["a"], []) == "a\n-\n"
    assert to_json(["a"], []) == "[]\n"
    assert to_csv(["a"], []) == "a\n"
