from __future__ import annotations

import sqlite3

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.checksum import SQL, slice_checksums

TIMES = st.integers(0, 2**62)


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), TIMES), max_size=20))
def test_numpy_and_sql_agree(slices: list[tuple[int, int]]) -> None:
    ts, dur = (np.array([s[i] for s in slices], np.int64) for i in (0, 1))
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE slice (ts INT, dur INT)")
        db.executemany("INSERT INTO slice VALUES (?, ?)", slices)
        assert [row[0] for row in db.execute(f"SELECT {SQL} FROM slice")] == slice_checksums(ts, dur).tolist()


@given(st.integers(0, 2**40), st.integers(1, 2**20), st.integers(1, 2**20), st.integers(1, 2**20))
def test_two_slices_that_exchange_their_ends_are_seen(start: int, a: int, b: int, c: int) -> None:
    ts = np.array([start, start + a])
    ends = np.array([start + a + b, start + a + b + c])
    right, wrong = slice_checksums(ts, ends - ts), slice_checksums(ts, ends[::-1] - ts)
    assert right.sum() != wrong.sum()
