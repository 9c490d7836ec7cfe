"""Every damaged or odd CSV of the shared cases, against the rows and counts that each case states."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from converter.readers.kernel_csv import read_kernel_rows, read_task_time
from schemas.errors import InputError
from schemas.tally import Tally
from schemas.timeline import StringPool

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases"
PATTERNS = ("csv_*", "gaps_*", "task_time_*", "op_summary_*", "side_files_broken", "ranks_join_of_csv_and_trace")
NAMES = sorted(path.name for pattern in PATTERNS for path in CASES.glob(pattern))
_ROWS = re.compile(r"SELECT (name, ts, dur|ts, dur|name, ts) FROM npu_kernels(?: WHERE name IN \((.*?)\))? ORDER BY")


@pytest.mark.parametrize("name", NAMES or ["absent"])
def test_case(name: str, shared: Path, tmp_path: Path) -> None:
    case = shared / "cases" / name
    expect = json.loads((case / "expect.json").read_text("utf-8"))
    folder = case
    if (case / "make.py").exists():
        subprocess.run([sys.executable, str(case / "make.py"), str(tmp_path)], check=True)
        folder = tmp_path
    paths = [p for p in sorted(folder.rglob("*.csv")) if re.match("kernel_details|op_summary|task_time", p.name)]
    strings, tally = StringPool(), Tally()
    warnings: list[str] = []
    read = read_task_time if name.startswith("task_time") else read_kernel_rows
    exits = expect["exit"] if isinstance(expect["exit"], list) else [expect["exit"]]
    try:
        rows = read(paths, strings, tally, lambda text, damaged: warnings.append(text))
    except InputError as error:
        assert 1 in exits, error
        for part in expect.get("stderr_contains", []):
            assert any(word in str(error) for word in ([part] if isinstance(part, str) else part)), (part, error)
        assert len(str(error)) < 1000
        return
    assert set(exits) & {0, 1, 2, 3} != {1}, f"{name}: read, but must be refused"
    assert tally.read == len(rows) + sum(tally.dropped.values())
    got = sorted(zip((strings[i] for i in rows.name.tolist()), rows.ts.tolist(), rows.dur.tolist(), strict=True))
    got.sort(key=lambda row: row[1])
    for check in expect.get("sql", []):
        found = _ROWS.search(check["query"])
        if found:
            picked = [row for row in got if not found[2] or f"'{row[0]}'" in found[2]]
            part = {"name, ts, dur": slice(0, 3), "ts, dur": slice(1, 3), "name, ts": slice(0, 2)}[found[1]]
            assert [list(row[part]) for row in picked] == check["rows"]
        elif "max(ts + dur) - min(ts) < 10000000000" in check["query"]:
            assert max(row[1] + row[2] for row in got) - min(row[1] for row in got) < 10**10
    dropped = sum(tally.dropped.values())
    want = expect.get("dropped_slices", dropped)
    assert dropped == want if isinstance(want, int) else want["min"] <= dropped <= want["max"]
    report = "\n".join(warnings) + json.dumps(tally.as_dict())
    assert len(report) < 4000
    for pattern in expect.get("report_matches", []):
        assert re.search(pattern, report, re.IGNORECASE | re.DOTALL), pattern


def test_two_devices_of_one_stream_stay_apart(shared: Path) -> None:
    path = next((shared / "cases" / "op_summary_two_devices_same_stream").glob("*.csv"))
    rows = read_kernel_rows([path], StringPool(), Tally(), lambda text, damaged: None)
    assert rows.device_id.tolist() == [0, 1]
    assert rows.stream_id.tolist() == [2, 2]
