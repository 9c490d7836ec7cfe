"""A number whose exponent ends pyarrow's process must not end ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.processes import EPOCH_US, HEADER, run


@pytest.mark.parametrize(
    ("text", "written"),
    [("1e-300000000", 2), ("5E-1000", 2), ("1.5e3", 2), ("1e300000000", 1), ("1E+2147483647", 1), (f"1e{'9' * 20}", 1)],
)
@pytest.mark.parametrize("kind", ["kernel_details.csv", "trace_view.json"])
def test_a_time_with_an_exponent(tmp_path: Path, kind: str, text: str, written: int) -> None:
    good = f"{EPOCH_US}.250"
    if kind.endswith("csv"):
        rows = (f"0,{i},1,k,Add,AI_CORE,{good},{dur},0" for i, dur in enumerate((text, "2")))
        (tmp_path / kind).write_text("\n".join((HEADER, *rows)) + "\n")
    else:
        x = '{"ph":"X","name":"k","pid":1,"tid":%d,"ts":"%s","dur":%s}'
        (tmp_path / kind).write_text(f"[{x % (1, good, text)},{x % (2, good, 2)}]")
    status, said = run(tmp_path, "convert", kind, "-o", "t.pftrace", "--summary", "s.json")
    assert status == 0, said
    (rank,) = json.loads((tmp_path / "s.json").read_text())["ranks"]
    assert (rank["slices"]["read"], rank["slices"]["written"]) == (2, written)
