"""`check --against` on inputs that were changed after the conversion: each kind of difference is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from converter.check import check
from converter.convert import convert
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
