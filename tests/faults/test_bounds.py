"""Inputs that try to use up time or memory, in a small size; the full ones: python -m tests.faults.bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from converter.readers.csv_text import MAX_COLUMNS
from converter.readers.dspark import MAX_RANKS, read_records
from converter.readers.kernel_csv import read_kernel_rows
from converter.readers.trace_json import read_trace_json
from schemas.errors import InputError
from schemas.tally import Tally
from schemas.timeline import StringPool, Timeline
from tests.faults.bounds import BOUNDS, columns, convert, gz_bomb, records

REFUSED = {"gz_bomb", "columns", "one_long_text", "deep_document", "open_begins"}  # nothing in them is usable
WITHOUT = {"records"}  # the trace is written without its records


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_it_ends_soon_and_in_little_memory(tmp_path: Path, name: str) -> None:
    bound = BOUNDS[name]
    cost = convert(tmp_path, bound.make(tmp_path, bound.small))
    assert cost.status == (1 if name in REFUSED | WITHOUT else 0), cost
    assert (tmp_path / "out.pftrace").exists() is (name not in REFUSED)
    assert cost.seconds < 60 and cost.peak_mb < 600, cost


def test_the_limit_is_named(tmp_path: Path) -> None:
    bomb = gz_bomb(tmp_path, 8)
    with pytest.raises(InputError, match="more than 1048576 bytes once unpacked; raise --max-input-bytes"):
        read_trace_json([bomb], Timeline(0, "t"), max_input_bytes=1 << 20)
    with pytest.raises(InputError, match=f"columns, more than {MAX_COLUMNS}"):
        read_kernel_rows([columns(tmp_path, MAX_COLUMNS)], StringPool(), Tally(), lambda *_: None)
    records(tmp_path, MAX_RANKS + 2)
    with pytest.raises(InputError, match=f"more than {MAX_RANKS} runs of records"):
        read_records(tmp_path / "records.jsonl")
