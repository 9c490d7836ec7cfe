"""Durations that a broken exporter made near 2^63: an end that no int64 holds, and sums that none holds."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from converter import cut, report
from converter.check import check
from converter.engine import open_trace
from converter.readers.trace_json import read_trace_json
from converter.write.tracks import assign
from schemas.errors import InputError
from schemas.timeline import Kind, SliceBatch, Timeline
from tests.faults.processes import EPOCH_US, ROOT, run

MAX_NS = 2**63 - 1
EPOCH_NS = EPOCH_US * 1000
LONG = MAX_NS - EPOCH_NS - 10**9
HEADER = "Device_id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)"
#: start, duration, stream. The first five are usable; the ends of the others lie one and many ns beyond int64.
TASKS = [
    *((EPOCH_NS + i * 1000, LONG, i) for i in range(3)),
    (EPOCH_NS + 5000, MAX_NS - EPOCH_NS - 5000, 3),
    (EPOCH_NS + 9000, 2000, 4),
    (EPOCH_NS + 5000, MAX_NS - EPOCH_NS - 4999, 5),
    (EPOCH_NS + 6000, MAX_NS, 6),
]


def us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def kernel_details(folder: Path) -> None:
    rows = (f"0,4294967295,{i},{s},k{s},Add,AI_CORE,{us(t)},{us(d)},0" for i, (t, d, s) in enumerate(TASKS))
    (folder / "kernel_details.csv").write_text("\n".join((HEADER, *rows)) + "\n")


def trace_view(folder: Path) -> None:
    events = ['{"ph":"M","name":"process_name","pid":1,"args":{"name":"Ascend Hardware"}}']
    for i, (ts, dur, stream) in enumerate(TASKS):
        args = f'{{"Task Type":"AI_CORE","Task Id":{i},"Stream Id":{stream},"Model Id":4294967295}}'
        where = f'"pid":1,"tid":{stream},"ts":"{us(ts)}","dur":{us(dur)}'
        events.append(f'{{"ph":"X","name":"k{stream}",{where},"args":{args}}}')
    (folder / "trace_view.json").write_text(f"[{','.join(events)}]")


@pytest.mark.parametrize("files", [(kernel_details,), (trace_view,), (kernel_details, trace_view)])
def test_a_whole_run(tmp_path: Path, files: tuple[object, ...]) -> None:
    folder = tmp_path / "r0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    for write in files:
        write(folder)  # type: ignore[operator]
    status, said = run(tmp_path, "convert", "r0_ascend_pt", "-o", "t.pftrace", "--summary", "s.json")
    assert status == 0
    dropped = 2 * len(files)  # of either file: what is not usable is not joined
    assert f"{dropped} slices dropped: start out of range" in said
    (rank,) = json.loads((tmp_path / "s.json").read_text())["ranks"]
    assert rank["slices"]["written"] == rank["slices"]["read"] - dropped == 5
    trace = str(tmp_path / "t.pftrace")

    found = check(trace, [str(tmp_path / "r0_ascend_pt")])
    assert found.problems == []
    with open_trace(trace) as tp:
        assert tp.rows("SELECT ts, dur FROM slice WHERE category = 'npu.task' ORDER BY ts") == [
            (ts, dur) for ts, dur, _ in sorted(TASKS[:5])
        ]
        [times] = tp.rows(
            "INCLUDE PERFETTO MODULE npu.ranks; SELECT wall_ns, busy_union_ns, gap_ns, duration_sum_ns, kernel_count "
            "FROM npu_rank_times"
        )
        assert times == (MAX_NS - EPOCH_NS, MAX_NS - EPOCH_NS, 0, None, 5)
        for module, table in (("kernels", "npu_kernels"), ("ranks", "npu_vendor_times"), ("report", "npu_step_report")):
            for row in tp.rows(f"INCLUDE PERFETTO MODULE npu.{module}; SELECT * FROM {table}"):
                assert not [v for v in row if isinstance(v, int | float) and v < 0]

    limits = report.limits_of("md", None)
    text = report.to_md(report.read([trace], None, "md", limits, None, None, 1).tables, None, limits)
    assert "the sum exceeds what 64 bits of nanoseconds hold" in text
    assert not re.search(r"[|\s]-\d", text)


def test_the_sums_that_are_stored_are_exact() -> None:
    timeline = Timeline(0, "t")
    track = timeline.track("Stream 1", Kind.LANE)
    lanes = assign(timeline.tracks, np.ones(1, np.bool_), np.empty(0, np.int64), np.zeros(1, np.int64), 0, set())
    dur = np.array([MAX_NS, 5, MAX_NS - 2, 0], np.int64)
    lanes.count(np.full(4, track, np.int32), np.zeros(4, np.int32), np.zeros(4, np.int64), dur)
    lanes.count(np.full(1, track, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int64), dur[:1])
    assert [held[:2] for held in lanes.slices.values()] == [(5, sum(map(int, dur)) + MAX_NS)]


def test_a_base_time_that_takes_ends_beyond(tmp_path: Path) -> None:
    def x(ts: int, dur: int, tid: int) -> str:
        return f'{{"ph":"X","name":"k","cat":"kernel","pid":1,"tid":{tid},"ts":"{us(ts)}","dur":{us(dur)}}}'

    def point(phase: str, ts: int, more: str) -> str:
        return f'{{"ph":"{phase}","name":"c","pid":1,"tid":1,"ts":{us(ts)},{more}}}'

    path = tmp_path / "r.trace.json"
    events = [
        x(0, 7, 1), x(5, MAX_NS - EPOCH_NS - 5, 2), x(5, MAX_NS - EPOCH_NS - 4, 3), x(0, MAX_NS, 4), x(MAX_NS - 5, 5, 5),
        point("C", 1, '"args":{"v":1}'), point("C", MAX_NS - EPOCH_NS + 1, '"args":{"v":1}'),
        point("s", MAX_NS, '"id":1'), point("f", 1, '"id":1'),
    ]  # fmt: skip
    path.write_text(f'{{"baseTimeNanoseconds":{EPOCH_NS},"traceEvents":[{",".join(events)}]}}')
    timeline = Timeline(0, "t")
    read_trace_json([path], timeline)
    held = [(int(t), int(d)) for b in timeline.slices for t, d in zip(b.ts, b.dur, strict=True)]
    assert sorted(held) == [(EPOCH_NS, 7), (EPOCH_NS + 5, MAX_NS - EPOCH_NS - 5)]
    assert timeline.tally.slices.dropped == {"start out of range": 3}
    assert timeline.tally.counters.dropped == {"start out of range": 1}
    assert timeline.tally.counters.first["start out of range"].endswith(f"at {MAX_NS + 1} ns")
    assert timeline.tally.flows.dropped == {"no slice at start": 1}


def test_a_pair_longer_than_int64(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    half = '{"ph":"%s","name":"b","pid":1,"tid":%d,"ts":"%d"}'
    ends = [("B", 1, -9 * 10**15), ("E", 1, 9 * 10**15), ("B", 2, 1), ("E", 2, 3)]
    path.write_text(f"[{','.join(half % end for end in ends)}]")
    timeline = Timeline(0, "t")
    read_trace_json([path], timeline)
    assert [b.dur.tolist() for b in timeline.slices] == [[2000]]
    assert timeline.tally.slices.dropped == {"start out of range": 1}


def test_an_offset_that_takes_an_end_beyond() -> None:
    timeline = Timeline(3, "rank3")
    track = timeline.track("Stream 1", Kind.LANE)
    name = timeline.strings.add("kernel")
    one = np.ones(1, np.int64)
    timeline.add(SliceBatch(np.full(1, track, np.int32), one, one * (MAX_NS - 10), np.full(1, name, np.int32)))
    cut.shift(timeline, 9)
    with pytest.raises(InputError, match=r"rank3: rank 3: kernel ends after 2262-04-11 .*--assume-aligned"):
        cut.shift(timeline, 1)


def test_exposed_communication_of_a_step_beyond_int64(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "samples" / "dspark_two_ranks", tmp_path / "s")
    path = tmp_path / "s" / "rank1_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    name, duration = header.index("Name"), header.index("Duration(us)")
    for row in rows:
        if "ispatch" in row[name] or "ombine" in row[name]:
            row[duration] = "7000000000000000.000"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    assert run(tmp_path, "convert", "s/rank1_ascend_pt", "-o", "t.pftrace")[0] == 0
    with open_trace(tmp_path / "t.pftrace") as tp:
        found = tp.rows("INCLUDE PERFETTO MODULE npu.report; SELECT exposed_comm_ms FROM npu_step_report")
        exposed = tp.rows(
            "SELECT exposed_ns, s.cut FROM npu_deepep JOIN _npu_slice_steps USING (id) JOIN _npu_step_slices AS s ON s.id = step_id"
        )
    assert sum(ns for ns, _ in exposed) > 2 * MAX_NS
    assert [ms for (ms,) in found].count(None) == 1  # the first step is cut: its communication may not be all
    whole = sum(ns for ns, cut in exposed if cut is None)
    assert sum(ms for (ms,) in found if ms is not None) == pytest.approx(whole / 1e6)
