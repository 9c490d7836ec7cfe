"""Kernel CSVs against Python's csv module and hand-computed rows."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.readers import csv_table
from converter.readers.kernel_csv import read_kernel_rows, read_plain_csv, read_task_time
from schemas.errors import InputError
from schemas.kernel_rows import KernelRows, empty_kernel_rows
from schemas.tally import Tally
from schemas.timeline import StringPool

HEADER = (
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,"
    "Start Time(us),Duration(us),Wait Time(us),Block Dim,Input Shapes,aic_mac_ratio"
)
START = 1767000000000000


def row(name: str = "k", start: str | None = None, dur: str = "10", **cells: str) -> str:
    values = {
        "step": "50",
        "device": "0",
        "model": "4294967295",
        "task": "7",
        "stream": "2",
        "type": "Add",
        "state": "dynamic",
        "core": "AI_CORE",
        "wait": "0",
        "block": "8",
        "shapes": '"""16,16"""',
        "pmu": "0.5",
    } | cells
    start = f"{START}.000\t" if start is None else start
    return (
        "{step},{device},{model},{task},{stream},{name},{type},{state},{core},{start},{dur},{wait},{block},{shapes},{pmu}"
    ).format(name=name, start=start, dur=dur, **values)


class Read:
    """One reading of a text: the rows, with the texts back in place of ids."""

    def __init__(self, path: Path, text: str | bytes, **options: bool) -> None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        self.strings, self.tally = StringPool(), Tally()
        self.warnings: list[tuple[str, bool]] = []
        self.rows = read_kernel_rows(
            [path], self.strings, self.tally, lambda text, damaged: self.warnings.append((text, damaged)), **options
        )
        assert self.tally.read == len(self.rows) + sum(self.tally.dropped.values())

    def argument(self, key: str) -> list[object]:
        """The values of an argument, None where absent."""
        for column in self.rows.columns:
            if column.key == key:
                valid = np.ones(len(self.rows), bool) if column.valid is None else column.valid
                values = [self.strings[v] if column.kind == "text" else v for v in column.values.tolist()]
                return [v if ok else None for v, ok in zip(values, valid.tolist(), strict=True)]
        return [None] * len(self.rows)

    @property
    def names(self) -> list[str]:
        return [self.strings[i] for i in self.rows.name.tolist()]


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(*lines: str, **options: bool) -> Read:
        return Read(tmp_path / "kernel_details.csv", "\n".join([HEADER, *lines]) + "\n", **options)

    return run


def test_one_row_and_a_collective(read) -> None:  # type: ignore[no-untyped-def]
    got = read(
        row("aclnnAdd", model="3", wait="1.250000"),
        row("hcom_allReduce__868_0_1", f"{START}.0105", "0.0015", core="HCCL", task="N/A", stream="N/A", state="N/A",
            shapes="N/A", wait="N/A", step=""),
    )  # fmt: skip
    rows: KernelRows = got.rows
    assert rows.ts.tolist() == [START * 1000, START * 1000 + 10]  # .0105 us is 10.5 ns: half to even
    assert rows.dur.tolist() == [10_000, 2]
    assert got.names == ["aclnnAdd", "hcom_allReduce__868_0_1"]
    assert rows.communication.tolist() == [False, True]
    assert rows.model_id.tolist() == [3, -1]
    assert rows.stream_id.tolist() == [2, -1]
    assert rows.wait_ns.tolist() == [1250, -1]
    assert (rows.ts.dtype, rows.task_id.dtype, rows.name.dtype) == (np.int64, np.int32, np.int32)
    assert got.argument("input_shapes") == ['"16,16"', None]
    assert got.argument("step_id") == [50, None]
    assert got.argument("block_dim") == [8, 8]
    assert got.argument("accelerator_core") == ["AI_CORE", "HCCL"]
    keys = {c.key for c in rows.columns}
    assert not keys & {"name", "start", "duration", "device_id", "stream_id", "aic_mac_ratio"}
    assert got.warnings == []


def test_pmu_columns_only_when_asked(read) -> None:  # type: ignore[no-untyped-def]
    got = read(row(pmu="0.25"), row(pmu="N/A"), row(pmu="?"), pmu=True)
    assert got.argument("aic_mac_ratio") == [0.25, None, None]
    assert got.argument("aic_mac_ratio_raw") == [None, None, "?"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row(start="N/A"), "not a number"),
        (row(start="nan"), "not a number"),
        (row(dur=""), "not a number"),
        (row(dur="inf"), "not a number"),
        (row(dur="-0.001"), "negative duration"),
        (row(start="1e400"), "start out of range"),
        (row(start="-5"), "start out of range"),
        (row(start="0.000"), "start out of range"),
        (row(dur="9223372036854775.0"), "start out of range"),
        ("1,2,3", "short row"),
        (row(name="a,b"), "long row"),
    ],
)
def test_unusable_rows_are_counted_with_their_line(read, line: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    got = read(row("a"), "", "  ", line, row("b"), line)
    assert got.names == ["a", "b"]
    assert got.tally.dropped == {reason: 2}
    assert got.tally.first == {reason: "kernel_details.csv, line 5"}


def test_small_starts_alone_are_relative(read) -> None:  # type: ignore[no-untyped-def]
    got = read(row(start="0"), row(start="12.5"))
    assert got.rows.ts.tolist() == [0, 12_500]
    assert got.tally.dropped == {}


def test_cells_of_another_type_are_kept_as_text(read) -> None:  # type: ignore[no-untyped-def]
    got = read(row(task="7"), row(task="seven", wait="-3"), row(task="-1"), row(task=" 9 "), row(task=str(2**70)),
               row(task=str(2**40)), row(start="x", task="gone"), row(task="8"))  # fmt: skip
    assert got.argument("task_id") == [7, None, None, 9, None, 2**40, 8]
    assert got.argument("task_id_raw") == [None, "seven", "-1", None, str(2**70), None, None]
    assert got.argument("wait_ns") == [0, None, 0, 0, 0, 0, 0]
    assert got.argument("wait_ns_raw") == [None, "-3", None, None, None, None, None]
    assert got.rows.task_id.dtype == np.int64
    assert any("3 cells" in text and "task_id" in text and "line 3" in text for text, _ in got.warnings)


def test_a_negative_id_alone_is_raw(read) -> None:  # type: ignore[no-untyped-def]
    got = read(row(task="-4"), row(task="5"))
    assert got.argument("task_id") == [None, 5]
    assert got.argument("task_id_raw") == ["-4", None]


def test_duplicates_are_kept_and_counted(read) -> None:  # type: ignore[no-untyped-def]
    got = read(row("a"), row("b"), row("a"), row("a"), row("c", f"{START}.001"), row("a", task="8"))
    assert len(got.rows) == 6
    assert [(text.split()[0], damaged) for text, damaged in got.warnings] == [("2", False)]


def test_a_quote_that_never_closes_costs_one_row(read) -> None:  # type: ignore[no-untyped-def]
    bad = row('"open', shapes="8")
    got = read(row("a"), bad, row("b", shapes="8"), row("c", shapes='"""1"""'))
    assert got.names == ["a", "b", "c"]
    assert got.tally.first == {"short row": "kernel_details.csv, line 3"}
    assert any("line 3: a quote is not closed" in text and damaged for text, damaged in got.warnings)


def test_two_open_quotes_do_not_swallow_the_rows_between(read) -> None:  # type: ignore[no-untyped-def]
    bad = row('"open', shapes="8")
    got = read(bad, row("a", shapes="8"), bad, row("b", shapes="8"))
    assert got.names == ["a", "b"]
    assert got.tally.dropped == {"short row": 2}


def test_a_quoted_cell_may_span_lines(read) -> None:  # type: ignore[no-untyped-def]
    got = read(row("a"), row('"two\nlines"'), row(start="N/A"), row("b"))
    assert got.names == ["a", "two\nlines", "b"]
    assert got.tally.first == {"not a number": "kernel_details.csv, line 5"}


def test_header_among_the_rows(read) -> None:  # type: ignore[no-untyped-def]
    got = read(row("a"), HEADER, row("b"), row(start="N/A"), HEADER)
    assert got.names == ["a", "b"]
    assert got.tally.first == {"not a number": "kernel_details.csv, line 5"}
    assert any("line 3" in text and "2 in all" in text and not damaged for text, damaged in got.warnings)


def test_name_falls_back(tmp_path: Path) -> None:
    got = Read(tmp_path / "a.csv", f"{HEADER}\n{row('N/A')}\n{row('', type='N/A')}\n{row('', type='', core='')}\n")
    assert got.names == ["Add", "AI_CORE", "N/A"]


def test_slices_are_joined_and_columns_of_one_are_absent_in_the_other(tmp_path: Path) -> None:
    one, two = tmp_path / "a_slice_0.csv", tmp_path / "a_slice_1.csv"
    one.write_text(f"Name,Start Time(us),Duration(us),Task ID\na,{START},1,5\n")
    two.write_text(f"Odd,Op Name,Task Start Time(us),Task Duration(us)\nx,b,{START + 1},2\n")
    strings, tally = StringPool(), Tally()
    rows = read_kernel_rows([one, two], strings, tally, lambda text, damaged: None)
    assert [strings[i] for i in rows.name.tolist()] == ["a", "b"]
    assert rows.task_id.tolist() == [5, -1]
    by_key = {c.key: c for c in rows.columns}
    assert by_key["Odd"].valid is not None
    assert by_key["Odd"].valid.tolist() == [False, True]
    assert tally.read == 2


def test_task_time_takes_stop_minus_start(tmp_path: Path) -> None:
    path = tmp_path / "task_time_1.csv"
    path.write_text(
        "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n"
        f"0,N/A,EVENT_WAIT,49,3,0.020,{START}.000\t,{START}.021\t\n"
        f"0,sym,KERNEL_AICORE,2,4,-1,{START}.005\t,{START}.004\t\n"
        f"0,late,KERNEL_AICORE,2,4,1.5,{START}.005\t,N/A\n"
    )
    strings, tally = StringPool(), Tally()
    rows = read_task_time([path], strings, tally, lambda text, damaged: None)
    assert [strings[i] for i in rows.name.tolist()] == ["EVENT_WAIT", "late"]
    assert rows.dur.tolist() == [21, 1500]
    assert tally.dropped == {"negative duration": 1}


@pytest.mark.parametrize(
    ("header", "rows", "want"),
    [
        ("ts(ns),dur(ns)", "5,7\n9,1", ([5, 9], [7, 1])),
        ("name;start_us;end_us", "a;1,5;2,25\nb;3;4", ([1500, 3000], [750, 1000])),
        ("Start [ms],Duration [ms],x", "1.5,0.000001,?\n2,0,?", ([1_500_000, 2_000_000], [1, 0])),
        (HEADER, row() + "\n" + row(), ([START * 1000] * 2, [10_000] * 2)),
    ],
)
def test_plain_csv(tmp_path: Path, header: str, rows: str, want: tuple[list[int], list[int]]) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\n{rows}\n")
    got = read_plain_csv(path, Tally(), lambda text, damaged: None)
    assert (got.ts.tolist(), got.dur.tolist()) == want


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"\n \n\n", "blank lines"),
        (b"a,b\n1,2\n", "Start Time(us)"),
        (HEADER.replace("Duration(us)", "Elapsed").encode(), "Duration(us)"),
        (HEADER.replace("Name", "Label").encode(), "`Name`"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not a CSV"),
        (b"\x0a\x05\x12\x03\0\0abc", "Start Time(us)"),
        (b"\x1f\x8b\x08\x00\x00", "not a CSV"),
        (b"x" * (3 << 20), "no line end"),
        (b'{"traceEvents": [\n', "Start Time(us)"),
    ],
)
def test_what_is_no_kernel_csv_is_refused_in_one_line(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_kernel_rows([path], StringPool(), Tally(), lambda text, damaged: None)
    message = str(error.value)
    assert "kernel_details.csv" in message
    assert what in message
    assert "\n" not in message
    assert len(message) < 1000


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        read_kernel_rows([tmp_path / "no.csv"], StringPool(), Tally(), lambda text, damaged: None)


def test_header_only(tmp_path: Path) -> None:
    got = Read(tmp_path / "a.csv", HEADER)
    assert len(got.rows) == 0
    assert len(empty_kernel_rows()) == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(tmp_path: Path, encoding: str, end: str) -> None:
    text = end.join([HEADER, row("乘"), row("b", start="N/A"), row("é")])
    got = Read(tmp_path / "a.csv", text.encode(encoding))
    assert got.names == ["乘", "é"]
    assert got.tally.first == {"not a number": "a.csv, line 3"}


def test_bad_utf8_is_replaced_and_said(tmp_path: Path) -> None:
    got = Read(tmp_path / "a.csv", f"{HEADER}\n{row('a')}\n".encode() + row("é").encode("latin1") + b"\n")
    assert got.names == ["a", "\ufffd"]
    assert [(text.split(":")[0], damaged) for text, damaged in got.warnings] == [("a.csv, line 3", True)]


def test_last_row_cut(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    got = Read(tmp_path / "a.csv", f"{HEADER}\n{row('a')}\n{row('b')[:30]}")
    assert got.names == ["a"]
    assert got.tally.first == {"short row": "a.csv, line 3"}
    assert any("line 3: the file ends inside this row" in text and damaged for text, damaged in got.warnings)


@pytest.mark.parametrize("chunk_bytes", [1, 150, 400, 2000])
def test_chunks_change_nothing(read, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    lines = [
        row("a", task="1"), row("b", f"{START}.5", task=str(2**40)), "", row("c", task="x"), "1,2", row("d", start="N/A"),
        row("e", f"{START + 1}.0005"), row('"two\nlines"', task="-3"), HEADER, row("f", wait="-1"), row("g", "0"),
        row("h", model="5", core="HCCL"), row("a", task="1"),
    ]  # fmt: skip
    whole = read(*lines)
    monkeypatch.setattr(csv_table, "CHUNK_BYTES", chunk_bytes)
    pieces = read(*lines)
    assert whole.names == pieces.names == ["a", "b", "c", "e", "two\nlines", "f", "h", "a"]
    assert whole.rows.ts.tolist() == pieces.rows.ts.tolist()
    assert {c.key for c in whole.rows.columns} == {c.key for c in pieces.rows.columns}
    for column in whole.rows.columns:
        assert whole.argument(column.key) == pieces.argument(column.key)
    assert whole.argument("task_id_raw") == [None, None, "x", None, "-3", None, None, None]
    assert whole.argument("wait_ns_raw")[5] == "-1"
    assert whole.tally.as_dict() == pieces.tally.as_dict()
    assert sorted(whole.warnings) == sorted(pieces.warnings)
    assert whole.tally.first == {
        "short row": "kernel_details.csv, line 6",
        "not a number": "kernel_details.csv, line 7",
        "start out of range": "kernel_details.csv, line 13",
    }


cell = st.text(st.sampled_from('ab ,"\n;é\t'), max_size=6)
start_cell = st.one_of(st.integers(0, 10**6).map(lambda i: f"{START + i}.{i % 1000:03d}"), st.sampled_from(["N/A", ""]))


def test_reading_does_not_import_pandas(tmp_path: Path) -> None:
    """It takes longer to import than a hundred megabytes take to read."""
    path = tmp_path / "kernel_details.csv"
    path.write_text("\n".join([HEADER, row("a"), row("b", task="x"), row("c", start="N/A")]))
    code = (
        "import sys; from pathlib import Path\n"
        "from converter.readers.kernel_csv import read_kernel_rows\n"
        "from schemas.tally import Tally; from schemas.timeline import StringPool\n"
        "rows = read_kernel_rows([Path(sys.argv[1])], StringPool(), Tally(), lambda text, damaged: None)\n"
        "assert len(rows) == 2; assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


@settings(max_examples=100, deadline=None)
@given(
    table=st.lists(st.tuples(cell, start_cell, st.integers(0, 10**6), cell), max_size=30),
    chunk_bytes=st.integers(1, 400),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_table_equals_the_csv_module(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str, int, str]], chunk_bytes: int, end: str
) -> None:
    """Written by csv.writer, read in chunks of any size: names, starts and extra cells come back as they were."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=end)
    writer.writerow(["Name", "Start Time(us)", "Duration(us)", "Extra"])
    # A quoted cell whose second line looks like a row of its own can't be told from a quote that never closes.
    table = [r for r in table if r[0].count(",") + r[3].count(",") < 2 or "\n" not in r[0] + r[3]]
    writer.writerows(table)
    folder = tmp_path_factory.mktemp("table")
    before = csv_table.CHUNK_BYTES
    csv_table.CHUNK_BYTES = chunk_bytes
    try:
        got = Read(folder / "a.csv", out.getvalue().encode())
    finally:
        csv_table.CHUNK_BYTES = before
    usable = [r for r in table if r[1] not in ("N/A", "")]
    assert got.names == [r[0] or "N/A" for r in usable] or any(not r[0].strip() for r in usable)
    assert got.rows.ts.tolist() == [int(r[1].replace(".", "")) for r in usable]
    assert got.rows.dur.tolist() == [r[2] * 1000 for r in usable]
    assert [v or "" for v in got.argument("Extra")] == [r[3] if r[3].strip() else "" for r in usable]
    assert got.tally.read == len(table)


def test_a_duration_of_more_digits_than_a_decimal128_holds(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(f"Name,Start Time(us),Duration(us)\na,1767000000000000.000,5.5{'0' * 130}\n")
    rows = read_kernel_rows([path], StringPool(), Tally(), lambda text, damaged: None)
    assert rows.dur.tolist() == [5500]
