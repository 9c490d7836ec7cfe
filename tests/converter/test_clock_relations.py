from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.clock_relations import (
    decimal_of,
    from_msprof,
    from_profiler_info,
    host_relations_of_profiler_info,
    integer_of,
    whole_period_ns,
)
from converter.convert import convert, read
from converter.engine import open_trace
from converter.find import find_captures
from converter.options import Options
from converter.write.document import REALTIME, Document, clock_header, encode
from schemas.timeline import Kind, Layer, StringPool
from tests.converter.test_command_line import kernel_csv

INFO = {  # a 100 MHz counter that was 1 s old when MONOTONIC was 3 s
    "start_info": {"syscnt_enable": True, "freq": 100, "start_cnt": 100_000_000, "start_monotonic": 3_000_000_000},
    "end_info": {"collectionTimeEnd": 1_767_000_000_000_000_007, "MonotonicTimeEnd": 5_000_000_001},
}


def test_profiler_info() -> None:
    monotonic, counter = from_profiler_info(INFO, "profiler_info_0.json")
    assert monotonic["readings"] == [(5_000_000_001, 1_767_000_000_000_000_007)]
    assert (monotonic["clock"], monotonic["period_ns"]) == ("monotonic", None)
    # MONOTONIC 3 s is 2.000000001 s before the end.
    assert counter["readings"] == [(100_000_000, 1_766_999_998_000_000_006)]
    assert (counter["clock"], counter["period_ns"]) == ("syscnt", 10)
    assert host_relations_of_profiler_info(INFO) == (1_766_999_995_000_000_006, -2_000_000_000)


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"end_info": None, "start_info": 5},
        {"end_info": {"collectionTimeEnd": "soon", "MonotonicTimeEnd": 5}},
        {"end_info": {"collectionTimeEnd": 1.5e18, "MonotonicTimeEnd": 5}},
        {"end_info": {"collectionTimeEnd": True, "MonotonicTimeEnd": 5}},
        {"start_info": INFO["start_info"]},
    ],
)
def test_profiler_info_without_an_end(info: dict[str, object]) -> None:
    assert from_profiler_info(info, "x") == []
    assert host_relations_of_profiler_info(info)[0] is None


@pytest.mark.parametrize(
    ("frequency", "period"),
    [(100, 10), ("100.000000", 10), (1000, 1), ("50", 20), ("49.999001", None), (0, None), ("", None), (None, None)],
)
def test_whole_periods(frequency: object, period: int | None) -> None:
    assert whole_period_ns(frequency) == period


START_INFO = {"clockMonotonicRaw": "886787993558020", "collectionTimeBegin": "1787504006796782"}
HOST_START = {"clock_monotonic_raw": "886787998142270", "cntvct": "88701331965580"}


def test_msprof() -> None:
    raw, counter = from_msprof(START_INFO, HOST_START, "100.000000", "host/start_info")
    assert raw["readings"] == [(886787993558020, 1787504006796782000)]
    assert counter["readings"] == [(88701331965580, 1787504006796782000 + 886787998142270 - 886787993558020)]
    assert [r["clock"] for r in from_msprof(START_INFO, HOST_START, "", "x")] == ["monotonic_raw"]
    assert [r["clock"] for r in from_msprof(START_INFO, {"cntvct": "many"}, 100, "x")] == ["monotonic_raw"]
    assert from_msprof({"clockMonotonicRaw": "", "collectionTimeBegin": ""}, HOST_START, 100, "x") == []


@given(st.integers(0, 2**63 - 1))
def test_integers_are_exact_as_number_and_as_text(value: int) -> None:
    assert integer_of(value) == integer_of(str(value)) == value


@pytest.mark.parametrize("value", [-1, "-1", 1.5, "1.5", "1e5", "", None, True, [], 2**63, "٣", "9" * 30])
def test_what_is_no_integer(value: object) -> None:
    assert integer_of(value) is None


def test_decimals_are_exact() -> None:
    assert decimal_of("49.999001") == Decimal("49.999001")
    assert decimal_of(" 100 ") == 100


@pytest.mark.parametrize("count", [2**62, 2**63 - 1])
def test_a_counter_that_reads_beyond_an_int64_is_left_out(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "run_ascend_pt"
    kernel_csv(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    info = {**INFO, "start_info": {**INFO["start_info"], "start_cnt": count}}
    (folder / "profiler_info_0.json").write_text(json.dumps(info))
    convert([str(folder)], str(tmp_path / "o.pftrace"))
    facts = read(find_captures([str(folder)])[0], Options()).timeline
    assert [r["clock"] for r in facts.clocks] == ["monotonic"]
    assert any("syscnt reads more ns than an int64 holds" in text for text in facts.warnings)


@pytest.mark.parametrize(
    "readings",
    [
        [{REALTIME: 6000, 64: 60}, {REALTIME: 1000, 64: 10}],  # of a host and a device, the later one first
        [{REALTIME: 1000, 64: 60}, {REALTIME: 6000, 64: 10}],  # one of them is wrong
        [{REALTIME: 1000, 64: 60}, {REALTIME: 6000, 64: 60}, {REALTIME: 6000, 65: 1}, {REALTIME: 500, 65: 9}],
    ],
)
def test_clock_snapshots_that_go_back_are_no_error_of_the_trace(readings: list[dict[int, int]]) -> None:
    layer = Layer(StringPool())
    layer.add_slices(layer.track("Rank 0", Kind.PROCESS, pid=1), np.array([7000]), np.array([10]), "k", "npu.task")
    packets = b"".join([clock_header(5), *encode(Document(layer, readings=readings, start=5), 0)])
    with open_trace(packets) as trace:
        assert trace.rows("SELECT name, value FROM stats WHERE severity = 'error' AND value > 0") == []
        assert trace.rows("SELECT ts, dur FROM slice") == [(7000, 10)]
