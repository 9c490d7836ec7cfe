"""Memory CSVs: hand-computed counters, and damage that is a warning."""

from __future__ import annotations

from pathlib import Path

from converter.readers.memory_csv import read_memory
from schemas.tally import Tally

HEADER = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type"


def read(path: Path, text: str) -> tuple[dict[tuple[str, str], list[tuple[int, float]]], list[tuple[str, bool]], Tally]:
    path.write_text(text)
    warnings: list[tuple[str, bool]] = []
    tally = Tally()
    counters = read_memory([path], lambda text, damaged: warnings.append((text, damaged)), tally)
    samples = {(c.name, c.unit): list(zip(c.ts.tolist(), c.values.tolist(), strict=True)) for c in counters}
    assert tally.read == sum(map(len, samples.values())) + sum(tally.dropped.values())
    return samples, warnings, tally


def test_counters_by_component_and_key(tmp_path: Path) -> None:
    rows = "APP,1767000000000000.500\t,,10.25,,,NPU:0\nPTA,1767000000000001\t,1,2,N/A,7,NPU:0\nAPP,1767000000000000,,9,,,NPU:0"
    samples, warnings, _ = read(tmp_path / "memory_record.csv", f"{HEADER}\n{rows}\n")
    assert samples == {
        ("APP Total Reserved", "MB"): [(1767000000000000500, 10.25), (1767000000000000000, 9.0)],
        ("PTA Total Allocated", "MB"): [(1767000000000001000, 1.0)],
        ("PTA Total Reserved", "MB"): [(1767000000000001000, 2.0)],
    }
    assert warnings == []


def test_devices_are_named_where_there_are_several(tmp_path: Path) -> None:
    text = "Device_id,Component,Timestamp(us),Total Reserved(KB),Device\n0,APP,5,1,NPU:0\n1,APP,6,2,NPU:1\n"
    samples, _, _ = read(tmp_path / "npu_module_mem.csv", text)
    assert samples == {
        ("APP Total Reserved NPU:0", "KB"): [(5000, 1.0)],
        ("APP Total Reserved NPU:1", "KB"): [(6000, 2.0)],
    }


def test_bad_cells_are_counted(tmp_path: Path) -> None:
    rows = "APP,N/A,1,2,,,d\nAPP,1767000000000000,x,nan,3,,d\nAPP,0,1,,,,d\nAPP,1\nAPP,1767000000000001,4,,,,d"
    samples, warnings, tally = read(tmp_path / "memory_record.csv", f"{HEADER}\n{rows}\n")
    assert samples == {
        ("APP Total Allocated", "MB"): [(1767000000000001000, 4.0)],
        ("APP Total Active", "MB"): [(1767000000000000000, 3.0)],
    }
    assert tally.dropped == {"not a number": 4, "start out of range": 1}
    assert tally.first["not a number"] == "memory_record.csv, line 2"
    assert tally.first["start out of range"] == "memory_record.csv, line 4"
    assert [(text, damaged) for text, damaged in warnings] == [
        ("memory_record.csv: 1 rows have too few or too many cells, left out", True)
    ]


def test_a_file_that_is_none_is_a_warning(tmp_path: Path) -> None:
    for text in ("", "x", HEADER.replace("Timestamp(us)", "Time"), "Component,Timestamp(us),Device\n", "\0\0\0\n"):
        samples, warnings, _ = read(tmp_path / "memory_record.csv", text)
        assert samples == {}
        assert [damaged for _, damaged in warnings] == [True]


def test_without_a_tally_a_warning_says_what_was_dropped(tmp_path: Path) -> None:
    path = tmp_path / "memory_record.csv"
    path.write_text(f"{HEADER}\nAPP,N/A,1,,,,d\n")
    warnings: list[str] = []
    assert read_memory([path, tmp_path / "absent.csv"], lambda text, damaged: warnings.append(text)) == []
    assert any("line 2: 1 memory samples left out: not a number" in text for text in warnings)
    assert any("absent.csv" in text for text in warnings)
