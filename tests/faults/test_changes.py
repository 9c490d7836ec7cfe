"""Others at work: two writers of one target, inputs that change while they are read, a clock that goes back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from converter.convert import convert
from converter.readers import csv_text, input_blocks
from schemas.errors import InputError
from tests.faults.processes import kernel_csv, left, start

CHANGED = "changed while it was read"


def test_several_writers_of_one_target(tmp_path: Path) -> None:
    source = kernel_csv(tmp_path / "k.csv", 20_000)
    convert([str(source)], str(tmp_path / "want.pftrace"))
    writers = [start(tmp_path, "convert", "k.csv", "-o", "out.pftrace") for _ in range(3)]
    assert [(w.communicate(timeout=120)[1].count("Traceback"), w.returncode) for w in writers] == [(0, 0)] * 3
    want = (tmp_path / "want.pftrace").read_bytes()
    # The tracks are named after the file, so both are of the same bytes.
    assert (tmp_path / "out.pftrace").stat().st_size in range(len(want) - 200, len(want) + 200)
    assert left(tmp_path) == {"k.csv", "want.pftrace", "out.pftrace"}


def test_what_killed_runs_left_behind_disturbs_nobody(tmp_path: Path) -> None:
    source = kernel_csv(tmp_path / "k.csv", 30)
    (tmp_path / ".out.pftrace.123-aaaa.part").write_bytes(b"part")
    convert([str(source)], str(tmp_path / "out.pftrace"))
    assert (tmp_path / ".out.pftrace.123-aaaa.part").read_bytes() == b"part"  # another run may be writing it
    assert len(left(tmp_path)) == 3


def _change_at(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, call: int, change: Callable[[], None]
) -> None:
    """Runs `change` before the n-th call of a function that reads."""
    real, calls = getattr(owner, name), 0

    def changed(*args: object, **fields: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            change()
        return real(*args, **fields)

    monkeypatch.setattr(owner, name, changed)


@pytest.mark.parametrize("kept_bytes", [0, 1000, 40_000])
@pytest.mark.parametrize("call", [2, 3])
def test_a_csv_is_cut_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int, call: int
) -> None:
    source = kernel_csv(tmp_path / "k.csv", 2000)
    _change_at(monkeypatch, csv_text.CsvFile, "read", call, lambda: os.truncate(source, kept_bytes))
    try:
        summary = convert([str(source)], str(tmp_path / "out.pftrace"))
    except InputError as error:
        assert "k.csv" in str(error)
        assert left(tmp_path) == {"k.csv"}
    else:
        assert CHANGED in json.dumps(summary.as_dict(), default=int)


def test_a_csv_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = kernel_csv(tmp_path / "k.csv", 2000)
    other = kernel_csv(tmp_path / "other.csv", 10)
    _change_at(monkeypatch, csv_text.CsvFile, "read", 2, lambda: os.replace(other, source))
    summary = convert([str(source)], str(tmp_path / "out.pftrace"))
    # The file that was opened is read to its end; that another one has its name now is said.
    assert summary.as_dict()["ranks"][0]["slices"]["written"] == 2000  # type: ignore[index]
    assert CHANGED in json.dumps(summary.as_dict(), default=int)


def test_a_trace_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":"1736408883704643.212","dur":1}'
    source = tmp_path / "trace_view.json"
    source.write_text(f"[{event}")

    def grow() -> None:
        with source.open("a") as file:
            file.write(f",{event}]")

    monkeypatch.setattr(input_blocks, "BLOCK_BYTES", 16)
    _change_at(monkeypatch, input_blocks.Path, "open", 1, grow)
    summary = convert([str(source)], str(tmp_path / "out.pftrace"))
    assert summary.as_dict()["ranks"][0]["slices"]["written"] == 2  # type: ignore[index]
    assert CHANGED in json.dumps(summary.as_dict(), default=int)


def test_an_unchanged_input_is_not_accused(tmp_path: Path) -> None:
    source = kernel_csv(tmp_path / "k.csv", 20)
    summary = convert([str(source)], str(tmp_path / "out.pftrace"))
    assert CHANGED not in json.dumps(summary.as_dict(), default=int)


def test_a_clock_that_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = kernel_csv(tmp_path / "k.csv", 200)
    convert([str(source)], str(tmp_path / "out.pftrace"))
    want = (tmp_path / "out.pftrace").read_bytes()
    os.utime(source, (4e9, 4e9))  # written in the future
    moments = iter(range(2_000_000_000, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    monkeypatch.setattr(time, "time_ns", lambda: next(moments) * 10**9)
    convert([str(source)], str(tmp_path / "out.pftrace"))
    assert (tmp_path / "out.pftrace").read_bytes() == want
