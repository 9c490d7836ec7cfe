"""What is fuzzed: a parser or reader, the inputs made for it, its share of the inputs, and what must hold afterwards.

A target takes the bytes and a file to put them into; it returns True where the input was read and raises one of the
project's typed errors where it was refused. Anything else that it raises is a finding, AssertionError included: where a
second opinion is cheap (Python's Decimal, json, csv), a target asks for it.
"""

from __future__ import annotations

import csv
import decimal
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random

import msgspec
import numpy as np

from converter.capture import Capture
from converter.clock_relations import decimal_of, integer_of
from converter.readers import csv_cells, msprof_tables
from converter.readers.arg_columns import decode_args
from converter.readers.csv_table import careful_rows
from converter.readers.csv_text import is_whole_row, split_line
from converter.readers.dspark import read_records
from converter.readers.exact_time import MAX_NS, NOT_A_NUMBER, OK, OUT_OF_RANGE, read_ns, text_to_ns
from converter.readers.hccl_detail import read_detail
from converter.readers.json_events import EventFile
from converter.readers.json_text import raw_ids, raw_ns, raw_texts
from converter.readers.kernel_csv import read_kernel_rows, read_plain_csv, read_task_time
from converter.readers.memory_csv import read_memory
from converter.readers.side_files import read_side_files
from converter.readers.sqlite_export import read_export
from converter.readers.trace_json import read_trace_json
from converter.window import parse_duration, parse_window
from schemas.errors import InputError, UsageError
from schemas.tally import Tally
from schemas.timeline import StringPool, Timeline
from tests.fuzz import database, inputs
from tests.fuzz.pieces import ODD_TIMES, mutated, odd_json, text, time_text

MAX_INPUT_BYTES = 1 << 24
_EXACT = decimal.Context(prec=4000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


@dataclass(frozen=True)
class Target:
    """share: of all inputs; make: the input; run: reads it."""

    name: str
    share: float
    make: Callable[[Random], bytes]
    run: Callable[[bytes, Path], bool]


# ---- texts of one cell ----------------------------------------------------------------------------------------------


def _times(rng: Random) -> bytes:
    cells = [rng.choice(ODD_TIMES) if rng.random() < 0.4 else time_text(rng, 0) for _ in range(rng.randint(1, 3))]
    data = "\n".join(cells).encode("utf-8", "surrogatepass")
    return mutated(rng, data, 2) if rng.random() < 0.6 else data


def expected_ns(cell: str, unit_ns: int = 1000) -> tuple[int, int]:
    """What Decimal says about a cell: the rule of exact_time.text_to_ns in other words."""
    cell = cell.strip()
    if not cell.isascii() or "_" in cell or len(cell) > 1000:
        return 0, NOT_A_NUMBER
    try:
        value = _EXACT.create_decimal(cell)
    except decimal.InvalidOperation:
        return 0, NOT_A_NUMBER
    if not value.is_finite():
        return 0, NOT_A_NUMBER
    if value and value.adjusted() > 30:
        return 0, OUT_OF_RANGE
    if value.adjusted() < -30:
        return 0, OK
    ns = int(_EXACT.multiply(value, Decimal(unit_ns)).to_integral_value(decimal.ROUND_HALF_EVEN, _EXACT))
    return (ns, OK) if abs(ns) <= MAX_NS else (0, OUT_OF_RANGE)


def _run_times(data: bytes, path: Path) -> bool:
    for cell in data.decode("utf-8", "replace").split("\n"):
        got = text_to_ns(cell)
        if "e" not in cell.lower() and len(cell) <= 1000:
            assert got == expected_ns(cell), (cell, got, expected_ns(cell))
    return True


def _run_time_columns(data: bytes, path: Path) -> bool:
    cells = data.decode("utf-8", "replace").split("\n")
    ns, status = read_ns(cells)
    assert list(zip(ns.tolist(), status.tolist(), strict=True)) == [text_to_ns(cell.strip()) for cell in cells], cells
    return True


def _options(rng: Random) -> bytes:
    parts = (
        "+",
        "-",
        "10ms",
        "1.5us",
        ":",
        "0",
        "3s",
        "5ns",
        " ",
        "1e3",
        "1736408883704643.212us",
        "9" * 30,
        "ms",
        "",
        "/",
        "∞",
        "\0",
    )
    return "".join(rng.choice(parts) for _ in range(rng.randint(1, 5))).encode()


def _run_options(data: bytes, path: Path) -> bool:
    made = data.decode("utf-8", "replace")
    decimal_of(made)
    integer_of(made)
    refused = 0
    for parse in (parse_window, lambda value: parse_duration(value, "--clock-tolerance")):
        try:
            parse(made)
        except UsageError:
            refused += 1
    if refused == 2:
        raise UsageError("neither")
    return True


# ---- bytes of JSON scalars and arguments ----------------------------------------------------------------------------


def _scalars(rng: Random) -> bytes:
    made = [json.dumps(time_text(rng)) if rng.random() < 0.5 else odd_json(rng, 2) for _ in range(rng.randint(1, 4))]
    return ("[" + ",".join(made) + "]").encode("utf-8", "surrogatepass")


def _run_scalars(data: bytes, path: Path) -> bool:
    try:
        raws = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InputError(path, "not JSON") from None
    ns, status = raw_ns(raws)
    texts = raw_texts(raws).to_pylist()
    ids, valid = raw_ids(raws)
    assert len(ns) == len(status) == len(texts) == len(ids) == len(valid) == len(raws)
    for value, became, said in zip(ns.tolist(), status.tolist(), texts, strict=True):
        assert (value, became) == text_to_ns(said.strip()), said
    return True


def _arguments(rng: Random) -> bytes:
    made = [
        odd_json(rng) if rng.random() < 0.3 else f'{{"{text(rng, 0)}":{odd_json(rng)}}}'
        for _ in range(rng.randint(1, 3))
    ]
    return ("[" + ",".join(made) + "]").encode("utf-8", "surrogatepass")


def _run_arguments(data: bytes, path: Path) -> bool:
    try:
        raws = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InputError(path, "not JSON") from None
    assert len(decode_args(raws)) == len(raws)
    return True


# ---- bytes of CSV lines ---------------------------------------------------------------------------------------------


def _lines(rng: Random) -> bytes:
    made = "\n".join(",".join(text(rng, 0.4) for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(1, 4)))
    data = made.encode("utf-8", "surrogatepass")
    return mutated(rng, data, 2) if rng.random() < 0.5 else data


def _run_lines(data: bytes, path: Path) -> bool:
    content = data.decode("utf-8", "replace").replace("\r", "")
    lines = content.splitlines(keepends=True) if "\n" in content else [content]
    for line in lines:
        cells = split_line(line, ",")
        if is_whole_row(line, ",", len(cells)):
            assert cells == next(csv.reader(io.StringIO(line)), [])
    found = list(careful_rows(lines, ",", 3))
    at = [line for line, _, _ in found]
    assert at == sorted(set(at)) and all(0 <= line < len(lines) for line in at)
    return True


# ---- files ----------------------------------------------------------------------------------------------------------


def _run_kernel(data: bytes, path: Path) -> bool:
    path.write_bytes(data)
    tally = Tally()
    rows = read_kernel_rows([path], StringPool(), tally, _warn, pmu=True)
    assert tally.written == len(rows.ts), (tally, len(rows.ts))
    _sane(rows.ts, rows.dur)
    return True


def _run_task_time(data: bytes, path: Path) -> bool:
    path.write_bytes(data)
    tally = Tally()
    rows = read_task_time([path], StringPool(), tally, _warn)
    assert tally.written == len(rows.ts)
    _sane(rows.ts, rows.dur)
    return True


def _run_plain(data: bytes, path: Path) -> bool:
    path.write_bytes(data)
    tally = Tally()
    rows = read_plain_csv(path, tally, _warn)
    assert tally.written == len(rows.ts)
    _sane(rows.ts, rows.dur)
    return True


def _run_memory(data: bytes, path: Path) -> bool:
    path.write_bytes(data)
    tally = Tally()
    counters = read_memory([path], _warn, tally)
    assert tally.written == sum(len(c.ts) for c in counters)
    return True


def _warn(line: str, damaged: bool = False) -> None:
    assert line.isprintable() or "\t" in line, line


def _sane(ts: csv_cells.Int64, dur: csv_cells.Int64) -> None:
    assert len(ts) == len(dur) and (dur >= 0).all() and (ts + dur >= ts).all()


def _events(rng: Random) -> bytes:
    return inputs.trace_json(rng, zipped=False)


def _run_events(data: bytes, path: Path) -> bool:
    path.write_bytes(data)
    file = EventFile(path, MAX_INPUT_BYTES)
    count = sum(len(chunk.events) for chunk in file)
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        return True
    events = whole if isinstance(whole, list) else whole["traceEvents"]
    objects = sum(isinstance(event, dict) for event in events)
    if not _doubled(data):
        assert count == objects, (count, objects)
    return True


def _doubled(data: bytes) -> bool:
    """Several lists of events in one object: json takes the last one, the reader the first."""
    return data.count(b'"traceEvents"') > 1


def _run_trace(data: bytes, path: Path) -> bool:
    path.write_bytes(data)
    timeline = Timeline(0, "fuzz")
    read_trace_json([path], timeline, max_input_bytes=MAX_INPUT_BYTES)
    _check_timeline(timeline)
    return True


def _check_timeline(timeline: Timeline) -> None:
    """read = written + dropped, and every slice and sample stands on a track that is there."""
    tally = timeline.tally
    assert tally.slices.written == sum(map(len, timeline.slices)), tally.slices
    assert tally.flows.written == sum(len(f.out) for f in timeline.flows), tally.flows
    assert tally.counters.written == sum(map(len, timeline.counters)), tally.counters
    for batch in timeline.slices:
        _sane(batch.ts, batch.dur)
        assert ((batch.track >= 0) & (batch.track < len(timeline.tracks))).all()
        for column in batch.columns:
            assert len(column.values) == len(batch)
    for sample in timeline.counters:
        assert len(sample.ts) == len(sample.values) and (sample.track < len(timeline.tracks)).all()
    for flow in timeline.flows:
        assert (np.minimum(flow.out, flow.into) >= 0).all() and (flow.out < timeline.slice_count).all()
    for line in timeline.warnings:
        _warn(line)


def _run_dspark(data: bytes, path: Path) -> bool:
    path.write_bytes(data)
    found = read_records(path)
    for line in found.warnings:
        _warn(line)
    return True


_CLOCK_FILES = (
    "profiler_info_0.json", "profiler_metadata.json", "info.json", "start_info", "host_start.log", "dev_start.log",
    "step_trace_time.csv", "communication.json",
)  # fmt: skip


def _side_file(rng: Random) -> bytes:
    name = rng.choice(_CLOCK_FILES)
    data = inputs.step_time_csv(rng) if name.endswith(".csv") else inputs.clock_file(rng, name)
    return name.encode() + b"\n" + data


def _run_side_file(data: bytes, path: Path) -> bool:
    name, _, rest = data.partition(b"\n")
    path.write_bytes(rest)
    capture = Capture("fuzz", "fuzz", "fuzz", "torch_npu")
    place = str(path)
    match name:
        case b"profiler_info_0.json":
            capture.profiler_info = place
        case b"profiler_metadata.json":
            capture.profiler_metadata = place
        case b"info.json":
            capture.info_jsons = [place]
        case b"start_info":
            capture.start_infos = [place]
        case b"host_start.log":
            capture.host_start_logs = [place]
        case b"dev_start.log":
            capture.dev_start_logs = [place]
        case b"step_trace_time.csv":
            capture.step_trace_csvs = [place]
        case _:
            read_detail([place], [], _warn)
    for line in read_side_files(capture).warnings:
        _warn(line)
    return True


def _run_database(data: bytes, path: Path) -> bool:
    database.write(path, data)
    timeline = Timeline(0, "fuzz")
    read_export(str(path), timeline, max_input_bytes=MAX_INPUT_BYTES)
    _check_timeline(timeline)
    return True


def _msprof_table(rng: Random) -> bytes:
    name = rng.choice(("step_trace", "msprof_tx", "communication_statistic"))
    return name.encode() + b"\n" + inputs.msprof_table(rng, name)


def _run_msprof_table(data: bytes, path: Path) -> bool:
    name, _, rest = data.partition(b"\n")
    path.write_bytes(rest)
    timeline = Timeline(0, "fuzz")
    match name:
        case b"step_trace":
            msprof_tables.read_iterations([str(path)], timeline)
        case b"msprof_tx":
            msprof_tables.read_marks([str(path)], timeline)
        case _:
            msprof_tables.communication_statistic([str(path)], timeline)
    _check_timeline(timeline)
    return True


TARGETS = (
    Target("exact_time.text", 0.25, _times, _run_times),
    Target("exact_time.columns", 0.10, _times, _run_time_columns),
    Target("options", 0.05, _options, _run_options),
    Target("json_text", 0.10, _scalars, _run_scalars),
    Target("arguments", 0.10, _arguments, _run_arguments),
    Target("csv_lines", 0.10, _lines, _run_lines),
    Target("json_events", 0.10, _events, _run_events),
    Target("dspark", 0.07, inputs.dspark, _run_dspark),
    Target("side_files", 0.05, _side_file, _run_side_file),
    Target("msprof_tables", 0.02, _msprof_table, _run_msprof_table),
    Target("kernel_csv", 0.03, inputs.kernel_csv, _run_kernel),
    Target("task_time_csv", 0.01, inputs.task_time_csv, _run_task_time),
    Target("plain_csv", 0.01, inputs.plain_csv, _run_plain),
    Target("memory_csv", 0.01, inputs.memory_csv, _run_memory),
    Target("trace_json", 0.018, inputs.trace_json, _run_trace),
    Target("sqlite", 0.002, database.database, _run_database),
)
