"""`describe`, and the table of sources: both say what the readers do."""

from __future__ import annotations

import json
import pkgutil
import re
from pathlib import Path
from typing import get_args

import pytest

import converter.readers
from converter.capture_files import add_file
from converter.describe import as_text, describe, describe_inputs
from converter.file_kinds import SIDE_KINDS, FileKind, kind_by_name
from converter.options import ANNOTATORS, Options
from converter.readers.sqlite_export import READ_TABLES
from converter.request import Request
from converter.sources import NOT_READ, SIDE_FILES, SOURCES, as_markdown, side_file, source_of, why_not_read
from samples.config import Config
from samples.db_export import write_database
from samples.exporters import write_capture
from samples.generate import simulate
from schemas.errors import UsageError
from tests.conftest import ROOT

#: Readers of no file of a capture: exact numbers and blocks of any file, and the records beside a capture.
SHARED = {"exact_time", "input_blocks", "nesting", "dspark", "dspark_columns"}


def test_the_page_is_the_table_of_the_readers() -> None:
    page = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    assert as_markdown() in page
    for pattern, what in (*SIDE_FILES, *NOT_READ):
        assert what in page and pattern.replace("|", r"\|") in page
    tables = re.search(r"Tables that are read: (.*); names", page)
    assert tables is not None and set(re.findall(r"`(\w+)`", tables[1])) == READ_TABLES


def test_every_reader_is_in_the_table_and_every_kind_has_a_row() -> None:
    modules = {m.name for m in pkgutil.iter_modules(converter.readers.__path__)}
    assert {reader for s in SOURCES for reader in s.readers} | SHARED == modules
    assert [s.kind for s in SOURCES if s.kind not in get_args(FileKind)] == []
    assert {s.kind for s in SOURCES} == set(get_args(FileKind))
    for source in SOURCES:
        assert source_of(source.kind) is source
        assert {kind_by_name(name) for name in source.names} == {source.kind}


def test_files_of_each_kind_are_taken_up() -> None:
    from converter.capture import Capture

    for source in SOURCES:
        capture = Capture("x", "x", "x", "file")
        add_file(capture, source.kind, source.names[0])
        assert source.kind in SIDE_KINDS or capture.data_files == [source.names[0]]


def test_names_that_are_not_read() -> None:
    assert why_not_read("op_statistic_20260101000005.csv") == "sums of what the slices show"
    assert why_not_read("holiday.jpg") == "not a file that is known here"
    assert side_file("start_info.0") == "clock relations of msprof" and side_file("x.json") is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    capture = simulate(Config(ranks=1, steps=2))[0]
    write_capture(capture, tmp_path / capture.folder)
    write_database(capture, tmp_path / capture.folder)
    (tmp_path / capture.folder / "ASCEND_PROFILER_OUTPUT" / "operator_details.csv").write_text("Name\n")
    (tmp_path / capture.folder / "ASCEND_PROFILER_OUTPUT" / "notes\x1b[2J.txt").write_text("x")
    return tmp_path


def test_a_capture_is_told(folder: Path) -> None:
    found = describe([str(folder)])
    (capture,) = found.captures
    assert found.usable and (capture.rank, capture.rank_source, capture.kind) == (0, "profiler_info", "torch_npu")
    names = [Path(f.path).name for f in capture.read]
    assert names[:2] == ["kernel_details.csv", "trace_view.json"] and "profiler_info_0.json" in names
    why = {Path(f.path).name: f.what for f in capture.not_read}
    assert "--prefer db" in why["ascend_pytorch_profiler_0.db"] and "no times" in why["operator_details.csv"]
    assert list(capture.annotators) == list(ANNOTATORS) and all(a.runs for a in capture.annotators.values())
    assert capture.annotators["steps"].slices == 2 and capture.held["recorded tasks"] > 100
    assert any("--dspark" in text for text in capture.lacks)
    text = as_text(found)
    assert "steps: 2 slices" in text and "\x1b" not in text and r"notes\x1b[2J.txt" in text


def test_prefer_db(folder: Path) -> None:
    (capture,) = describe([str(folder)], Options(prefer="db")).captures
    assert [Path(f.path).suffix for f in capture.read][:1] == [".db"]
    assert {Path(f.path).name for f in capture.not_read} >= {"kernel_details.csv", "trace_view.json"}
    assert capture.annotators["replays"].runs


def test_what_cannot_run_says_what_it_lacks(shared: Path) -> None:
    (capture,) = describe([str(shared / "captures" / "train_cann83_level2")]).captures
    assert capture.annotators["gaps"].runs and not capture.annotators["steps"].runs
    assert capture.annotators["steps"].needs and any("host events" in text for text in capture.lacks)


def test_what_cannot_be_converted_is_told_and_leaves_1(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"SQLite format 3\x00" + b"x" * 5000)
    assert describe_inputs(Request(inputs=[str(folder / "rank0_ascend_pt")], quiet=True)) == 0
    capsys.readouterr()
    assert describe_inputs(Request(inputs=[str(bad)], quiet=True), "json") == 1
    (capture,) = json.loads(capsys.readouterr().out)["captures"]
    assert "bad.db" in capture["problem"]
    with pytest.raises(UsageError):
        describe_inputs(Request(inputs=[str(tmp_path / "absent")]))


def test_nothing_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(folder.rglob("*"))
    monkeypatch.chdir(folder)
    describe_inputs(Request(inputs=["rank0_ascend_pt"], quiet=True))
    assert sorted(folder.rglob("*")) == before
