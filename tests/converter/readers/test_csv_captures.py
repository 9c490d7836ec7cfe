"""Real captures: every row and cell against the csv module and Decimal."""

from __future__ import annotations

import csv
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from pathlib import Path

import pytest

from converter.readers.kernel_csv import read_kernel_rows, read_plain_csv, read_task_time
from converter.readers.memory_csv import read_memory
from schemas.columns import NO_ID, column_specs
from schemas.tally import Tally
from schemas.timeline import StringPool


def note(warnings: list[tuple[str, bool]], text: str, damaged: bool) -> None:
    warnings.append((text, damaged))


def ns(cell: str) -> int:
    return int((Decimal(cell.strip()) * 1000).quantize(Decimal(1), ROUND_HALF_EVEN))


def cells_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def captures(shared: Path, pattern: str) -> list[Path]:
    found = sorted((shared / "captures").rglob(pattern))
    assert found
    return found


def test_every_kernel_row_and_argument(shared: Path) -> None:
    for path in captures(shared, "kernel_details*.csv") + captures(shared, "op_summary*.csv"):
        expected = cells_of(path)
        strings, tally = StringPool(), Tally()
        warnings: list[tuple[str, bool]] = []
        rows = read_kernel_rows([path], strings, tally, partial(note, warnings), pmu=True)
        assert (len(rows), tally.read, tally.dropped, warnings) == (len(expected), len(expected), {}, [])
        specs = {spec.key: spec for spec in column_specs(list(expected[0]), pmu=True)}
        start, dur = specs["start"].header, specs["duration"].header
        assert rows.ts.tolist() == [ns(r[start]) for r in expected]
        assert rows.dur.tolist() == [ns(r[dur]) for r in expected]
        assert [strings[i] for i in rows.name.tolist()] == [r[specs["name"].header] for r in expected]
        for key, ids in (("stream_id", rows.stream_id), ("device_id", rows.device_id), ("model_id", rows.model_id)):
            header = specs[key].header if key in specs else None
            cells = [r[header] if header else "N/A" for r in expected]
            none = NO_ID if key == "model_id" else -1
            assert ids.tolist() == [-1 if c == "N/A" or int(c) == none else int(c) for c in cells]
        core = specs["accelerator_core"].header
        assert rows.communication.tolist() == [r[core] in ("HCCL", "COMMUNICATION") for r in expected]
        arguments = {column.key: column for column in rows.columns}
        for key, spec in specs.items():
            if key in ("name", "start", "duration", "stream_id", "device_id"):
                continue
            cells = [r[spec.header] for r in expected]
            absent = [c in ("", "N/A") or (key == "model_id" and c == str(NO_ID)) for c in cells]
            if all(absent):
                assert key not in arguments
                continue
            column = arguments[key]
            valid = [True] * len(cells) if column.valid is None else column.valid.tolist()
            assert valid == [not a for a in absent], key
            read = {"text": lambda c: c, "int": int, "float": float, "time": ns}[spec.kind]
            for value, cell, ok in zip(column.values.tolist(), cells, valid, strict=True):
                if ok:
                    assert (strings[value] if spec.kind == "text" else value) == read(cell)


def test_every_task_time_row(shared: Path) -> None:
    for path in captures(shared, "task_time*.csv"):
        expected = cells_of(path)
        strings = StringPool()
        rows = read_task_time([path], strings, Tally(), lambda text, damaged: None)
        assert rows.ts.tolist() == [ns(r["task_start(us)"]) for r in expected]
        assert (rows.ts + rows.dur).tolist() == [ns(r["task_stop(us)"]) for r in expected]
        names = [r["kernel_type"] if r["kernel_name"] == "N/A" else r["kernel_name"] for r in expected]
        assert [strings[i] for i in rows.name.tolist()] == names


def test_plain_reading_gives_the_same_times(shared: Path) -> None:
    for path in captures(shared, "kernel_details*.csv"):
        rows = read_kernel_rows([path], StringPool(), Tally(), lambda text, damaged: None)
        plain = read_plain_csv(path, Tally(), lambda text, damaged: None)
        for one, other in ((rows.ts, plain.ts), (rows.dur, plain.dur), (rows.wait_ns, plain.wait_ns)):
            assert one.tolist() == other.tolist()


def test_every_memory_sample(shared: Path) -> None:
    for path in captures(shared, "memory_record.csv"):
        expected: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for row in cells_of(path):
            for header, cell in row.items():
                if header.endswith("(MB)") and cell:
                    key = (f"{row['Component']} {header[:-4]}", "MB")
                    expected.setdefault(key, []).append((ns(row["Timestamp(us)"]), float(cell)))
        warnings: list[tuple[str, bool]] = []
        tally = Tally()
        counters = read_memory([path], partial(note, warnings), tally)
        got = {(c.name, c.unit): list(zip(c.ts.tolist(), c.values.tolist(), strict=True)) for c in counters}
        assert got == expected
        assert (tally.read, tally.dropped, warnings) == (sum(map(len, expected.values())), {}, [])


@pytest.mark.parametrize("chunk_bytes", [200, 5000])
def test_chunks_change_nothing(shared: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = captures(shared, "kernel_details*.csv")[1]
    whole = read_kernel_rows([path], StringPool(), Tally(), lambda text, damaged: None)
    monkeypatch.setattr("converter.readers.csv_table.CHUNK_BYTES", chunk_bytes)
    pieces = read_kernel_rows([path], StringPool(), Tally(), lambda text, damaged: None)
    assert whole.ts.tolist() == pieces.ts.tolist()
    assert [c.key for c in whole.columns] == [c.key for c in pieces.columns]
    assert whole.task_id.tolist() == pieces.task_id.tolist()
