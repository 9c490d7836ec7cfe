"""`check --against` on inputs that were changed after the conversion: each kind of difference is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from converter.check import check
from converter.convert import convert
from converter.options import Options
from tests.converter.test_command_line import kernel_csv

MEMORY = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type\n"


def capture(folder: Path) -> tuple[Path, Path]:
    rows = kernel_csv(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", rows=5)
    memory = rows.with_name("memory_record.csv")
    memory.write_text(MEMORY + "APP,1767000000000000.100\t,,10.5,,,NPU:0\nAPP,1767000000000020.100\t,,11.5,,,NPU:0\n")
    return rows, memory


def edit(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("which", "change", "words"),
    [
        (0, edit("k2", "k9"), ["k2", "k9"]),
        (0, edit("5.500", "5.501"), ["durations"]),
        (0, edit("0000040.002", "0000040.003"), ["starts and lengths"]),
        (1, edit("11.5", "11.75"), ["counter", "values"]),
        (1, edit("0000020.100", "0000020.101"), ["counter", "times"]),
        (1, lambda text: text.rsplit("APP", 1)[0], ["counter", "samples"]),
    ],
)
def test_a_changed_input_is_found(tmp_path: Path, which: int, change: Callable[[str], str], words: list[str]) -> None:
    folder, trace = tmp_path / "run_ascend_pt", str(tmp_path / "o.pftrace")
    files = capture(folder)
    convert([str(folder)], trace)
    assert check(trace, [str(folder)]).problems == []
    text = files[which].read_text()
    files[which].write_text(change(text))
    assert files[which].read_text() != text
    problems = "\n".join(check(trace, [str(folder)]).problems)
    assert all(word in problems for word in words), problems


def test_counters_that_a_window_left_out_are_no_difference(tmp_path: Path) -> None:
    folder, trace = tmp_path / "run_ascend_pt", str(tmp_path / "o.pftrace")
    _, memory = capture(folder)
    late = "APP,1767000000900000.100\t,,12.5,,,NPU:0\n"
    memory.write_text(memory.read_text() + late)
    convert([str(folder)], trace, Options(window="+0ms:+10ms"))  # all slices, and all samples but that one
    assert check(trace, [str(folder)]).problems == []
    memory.write_text(memory.read_text() + late)
    assert "samples" in "\n".join(check(trace, [str(folder)]).problems)


def test_a_counter_whose_name_holds_a_zero(tmp_path: Path) -> None:
    counter = {"ph": "C", "name": "ab\0cd", "pid": 1, "ts": "1767000000000000.1", "args": {"x": 5}}
    work = {"ph": "X", "name": "k", "pid": 1, "tid": 1, "ts": "1767000000000000.1", "dur": 2}
    source, trace = tmp_path / "trace_view.json", str(tmp_path / "o.pftrace")
    source.write_text(json.dumps([counter, work]))
    convert([str(source)], trace)
    assert check(trace, [str(source)]).problems == []
