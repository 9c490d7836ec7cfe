"""What exceeds a limit is refused or left out in words that name the limit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from converter.capture import Capture
from converter.readers import dspark
from converter.readers.csv_text import CsvFile
from converter.readers.dspark import read_records
from converter.readers.hccl_detail import read_detail
from converter.readers.side_files import Damaged, read_bytes, read_side_files
from converter.readers.sqlite_tables import open_database
from converter.readers.trace_json import read_trace_json
from converter.record import count_records
from converter.server_calls import Server
from schemas import roles
from schemas.errors import InputError
from schemas.roles import load_roles
from schemas.timeline import Timeline

LEVELS = "nested deeper than 64 levels"
EVENT = '{"ph":"X","name":"k","pid":1,"tid":1,"ts":"1767000000000000.000","dur":5,"args":%s}'
GOOD = EVENT % "{}"
LONG = "x" * (70 << 20)


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def trace(text: str) -> Callable[[Path], str]:
    """What the reading of a trace says."""

    def said(folder: Path) -> str:
        path = folder / "trace_view.json"
        path.write_text(text)
        timeline = Timeline(0, "t")
        read_trace_json([path], timeline)
        assert timeline.tally.slices.written == (timeline.slice_count or 0) > 0
        return "\n".join(timeline.warnings)

    return said


def pair(levels: int) -> str:
    half = '{"ph":"%s","name":"b","pid":1,"tid":2,"ts":"1767000000000001.000","args":%s}'
    return f"[{GOOD},{half % ('B', deep(levels))},{half % ('E', '{}')}]"


def side_file(levels: int) -> Callable[[Path], str]:
    def said(folder: Path) -> str:
        path = folder / "profiler_info_0.json"
        path.write_text(deep(levels))
        capture = Capture(str(folder), str(folder), "c", "torch_npu", profiler_info=str(path))
        return "\n".join(read_side_files(capture).warnings)

    return said


def side_bytes(folder: Path) -> str:
    (folder / "info.json").write_bytes(b"1" * 2048 * 1024)
    with pytest.raises(Damaged) as caught:
        read_bytes(str(folder / "info.json"), 1 << 20)
    return str(caught.value)


def collectives(levels: int) -> Callable[[Path], str]:
    def said(folder: Path) -> str:
        bandwidth = f'{{"HCCS":{{"Transit Size(MB)":1,"x":{deep(levels)}}}}}'
        info = f'{{"Communication Time Info":{{"Elapse Time(ms)":1}},"Communication Bandwidth Info":{bandwidth}}}'
        path = folder / "communication.json"
        path.write_text(f'{{"step":{{"collective":{{"hcom@g":{info}}}}}}}')
        warnings: list[str] = []
        assert not read_detail([str(path)], [], lambda text, damaged: warnings.append(text))
        return "\n".join(warnings)

    return said


def records(text: str) -> Callable[[Path], str]:
    def said(folder: Path) -> str:
        path = folder / "records.json"
        path.write_text(text)
        return "\n".join(read_records(path).warnings)

    return said


def many_records(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dspark, "MAX_BYTES", 1 << 20)
        return records(json.dumps([{"forward_ct": n, "bs": 1} for n in range(40_000)]))(folder)


def role_table(text: str) -> Callable[[Path], str]:
    def said(folder: Path) -> str:
        path = folder / "roles.toml"
        path.write_text(text)
        load_roles(path)
        return ""

    return said


def reply(folder: Path) -> str:
    count_records(Server("http://localhost:1"), deep(100_000).encode())
    return ""


def database(folder: Path) -> str:
    path = folder / "msprof.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()
    with open_database(str(path), 1024):
        return ""


def header(text: str) -> Callable[[Path], str]:
    def said(folder: Path) -> str:
        path = folder / "kernel_details.csv"
        path.write_text(text)
        with CsvFile(path):
            return ""

    return said


CASES: dict[str, tuple[Callable[[Path], str], str]] = {
    "arguments": (trace(f"[{EVENT % deep(66)},{GOOD}]"), f"byte 1: 1 events dropped, their arguments are {LEVELS}"),
    "arguments no parser reads": (trace(f"[{EVENT % deep(100_000)},{GOOD}]"), f"byte 1: an event is {LEVELS}"),
    "arguments of a pair": (trace(pair(70)), f"event 1: 1 events dropped, their arguments are {LEVELS}"),
    "keys before the events": (
        trace(f'{{"h":{deep(100_000)},"traceEvents":[{GOOD}]}}'),
        f"the keys before the events are {LEVELS}",
    ),
    "keys behind the events": (
        trace(f'{{"traceEvents":[{GOOD}],"h":{deep(100_000)}}}'),
        f"the keys behind the events are {LEVELS}",
    ),
    "a large event": (
        trace(f'[{GOOD},{{"ph":"X","name":"{LONG}"}},{GOOD}]'),
        "an event is larger than 64 MiB",
    ),
    "large keys before the events": (
        trace(f'{{"h":"{LONG}","traceEvents":[{GOOD}]}}'),
        "the keys before traceEvents are larger than 64 MiB",
    ),
    "large keys behind the events": (
        trace(f'{{"traceEvents":[{GOOD}],"h":"{LONG}"}}'),
        "the keys behind the events are larger than 64 MiB",
    ),
    "a side file": (side_file(65), LEVELS),
    "a side file no parser reads": (side_file(100_000), LEVELS),
    "a large side file": (side_bytes, "larger than 1 MiB"),
    "collectives": (collectives(61), LEVELS),
    "collectives at the recursion limit": (collectives(990), LEVELS),
    "records": (records(deep(65)), LEVELS),
    "records at the recursion limit": (records(deep(990).replace('"a"', '"dspark_info_record"')), LEVELS),
    "records no parser reads": (records(deep(100_000)), LEVELS),
    "a line of records": (
        records(f'{{"forward_ct":1,"bs":1}}\n{{"forward_ct":2,"bs":1,"reqs":{deep(990)}}}\n'),
        f"1 of 2 lines are not JSON, or {LEVELS}, and are left out, the first is line 2",
    ),
    "a large file of records": (many_records, "larger than 1 MiB"),
    "a role table": (role_table("[commit]\npatterns = " + "[" * 10_000), "nested deeper than any role table"),
    "a pattern": (role_table(f"[commit]\npatterns = ['{'(' * 10_000 + ')' * 10_000}']"), LEVELS),
    "a large role table": (role_table("#" * (roles.MAX_BYTES + 1)), "larger than 1 MiB"),
    "a server's reply": (reply, f"/server_info is {LEVELS}"),
    "a database": (database, "larger than 1,024 bytes; raise --max-input-bytes"),
    "columns": (header("a," * 5000 + "b\n"), "5001 columns, more than 4096"),
    "a line without an end": (header("a" * (1 << 21)), "no line end in the first 1048576 bytes"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_limit_is_named(tmp_path: Path, name: str) -> None:
    read, text = CASES[name]
    try:
        said = read(tmp_path)
    except InputError as error:
        said = str(error)
    assert text in said
