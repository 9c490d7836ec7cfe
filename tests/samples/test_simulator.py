"""The simulator's files against an independent reading of them, and its truth against brute force on those files."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from samples.config import BASE_NS, Config
from samples.generate import simulate, write
from samples.truth import truth
from schemas.errors import UsageError

NONE = 4294967295
VARIANTS = {
    "plain": Config(),
    "start_step": Config(start_step=True),
    "overlapped": Config(overlap_schedule=True, start_step=True),
    "recv_hook": Config(recv_hook=True),
    "eager": Config(graphs=False, overlap_dispatch=False),
    "folded": Config(folded=True),
    "tp": Config(ranks=4, attention_tp=2),
    "compact": Config(mode="compact"),
    "prefill_and_idle": Config(prefill_before=(0, 2), idle_before=(3,)),
    "clocks": Config(offsets_ms=(0, -123.4), drift_ppm=(0, 15), duration_s=1.0),
    "slow": Config(slow_rank=1, delay_us=200, host_delay_us=2000, host_delay_rank=0),
    "own_stream": Config(graph_stream=61, model_execute=False, late_start=(0, 1)),
    "dp_idle": Config(dp_idle=((1, 2),), with_stack=True, sub_ns=False, g_sk_width=False),
    "old": Config(old_span_names=True, detailed_annotations=False, components=("core",), ranks=1, stages=1),
    "causality": Config(device_shift_us=-30, block_num=False),
}


def ns(text: str) -> int:
    value = Decimal(text.strip()) * 1000
    assert value == int(value)
    return int(value)


class Files:
    """One rank's files, read with the csv and json modules."""

    def __init__(self, folder: Path) -> None:
        output = folder / "ASCEND_PROFILER_OUTPUT"
        with (output / "kernel_details.csv").open(newline="", encoding="utf-8") as file:
            self.rows = list(csv.DictReader(file))
        self.spans = [(ns(r["Start Time(us)"]), ns(r["Start Time(us)"]) + ns(r["Duration(us)"])) for r in self.rows]
        self.events: list[dict[str, Any]] = json.loads((output / "trace_view.json").read_text(encoding="utf-8"))
        self.names = {e["pid"]: e["args"]["name"] for e in self.events if e["name"] == "process_name"}
        self.slices = [e for e in self.events if e["ph"] == "X"]
        with (output / "step_trace_time.csv").open(newline="", encoding="utf-8") as file:
            self.vendor = next(iter(csv.DictReader(file)))

    def of(self, process: str) -> list[dict[str, Any]]:
        return [e for e in self.slices if self.names.get(e["pid"]) == process]


def end_of(event: dict[str, Any]) -> int:
    return ns(event["ts"]) + round(event["dur"] * 1000)


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def sample(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], list[Files]]:
    folder = tmp_path_factory.mktemp("samples") / request.param
    write(replace(VARIANTS[request.param], steps=4, records_before=2), folder)
    known = json.loads((folder / "truth.json").read_text())
    return folder, known, [Files(folder / r["folder"]) for r in known["ranks"]]


def test_window_times_and_gaps(sample: Any) -> None:
    for rank, files in zip(sample[1]["ranks"], sample[2], strict=True):
        starts, ends = [a for a, _ in files.spans], [b for _, b in files.spans]
        assert starts == sorted(starts)
        assert rank["times"]["window"] == [min(starts), max(ends)]
        assert rank["times"]["kernel_count"] == len(starts)
        assert rank["times"]["duration_sum_ns"] == sum(b - a for a, b in files.spans)
        # a sweep, where the truth merges sorted intervals
        change: Counter[int] = Counter()
        for a, b in files.spans:
            change[a] += 1
            change[b] -= 1
        depth, before, gaps = 0, min(starts), []
        for at in sorted(change):
            if depth == 0 and at > before:
                gaps.append([before, at - before])
            depth += change[at]
            before = at
        assert gaps == rank["gaps"]
        assert rank["times"]["gap_ns"] + rank["times"]["busy_union_ns"] == rank["times"]["wall_ns"]


def test_every_row_joins_one_slice(sample: Any) -> None:
    for files in sample[2]:
        shown = Counter((e["name"], ns(e["ts"])) for e in files.of("Ascend Hardware"))
        ops = [(e["name"], ns(e["ts"])) for e in files.of("Communication")]
        for row, (start, _) in zip(files.rows, files.spans, strict=True):
            if row["Accelerator Core"] == "COMMUNICATION":
                assert any(n == row["Name"] and abs(t - start) <= 1 for n, t in ops)
                assert row["Stream ID"] == row["Input Shapes"] == "N/A"
            else:
                assert shown[row["Name"], start] >= 1
                assert (row["OP State"] == "dynamic") == (int(row["Model ID"]) == NONE)


def test_streams_of_compute_do_not_overlap(sample: Any) -> None:
    for files in sample[2]:
        by_stream = defaultdict(list)
        for event in files.of("Ascend Hardware"):
            if event["tid"] != 51:  # raw tasks of collectives, which do overlap
                by_stream[event["tid"]].append((ns(event["ts"]), end_of(event)))
        for spans in by_stream.values():
            spans.sort()
            assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_host_threads_nest(sample: Any) -> None:
    for files in sample[2]:
        for process in ("Python", "CANN"):
            threads = defaultdict(list)
            for event in files.of(process):
                threads[event["tid"]].append((ns(event["ts"]), -end_of(event)))
            for spans in threads.values():
                stack: list[int] = []
                for start, end in sorted(spans):
                    while stack and stack[-1] <= start:
                        stack.pop()
                    assert not stack or -end <= stack[-1]
                    stack.append(-end)


def test_flow_points_lie_in_slices(sample: Any) -> None:
    for files in sample[2]:
        places = defaultdict(list)
        for event in files.slices:
            places[event["pid"], event["tid"]].append((ns(event["ts"]), end_of(event), event["name"]))
        for event in files.events:
            if event["ph"] not in "sf":
                continue
            at, here = ns(event["ts"]), places[event["pid"], event["tid"]]
            if event["ph"] == "f":
                assert any(a == at for a, _, _ in here)
            else:
                assert any(a <= at <= b for a, b, _ in here)
            if event["cat"] == "HostToDevice":
                assert isinstance(event["id"], str)


def test_launches_are_linked(sample: Any) -> None:
    """Each eager kernel of the window has its Node@launch by connection id, and a replay's tasks have none."""
    for files in sample[2]:
        calls = Counter(e["args"]["connection_id"] for e in files.of("CANN"))
        assert all(n == 1 for n in calls.values())
        replayed = Counter()
        unlinked = 0
        for event in files.of("Ascend Hardware"):
            args = event["args"]
            if args["Model Id"] == NONE:
                unlinked += args["connection_id"] not in calls
            elif event["name"] != "MODEL_EXECUTE":
                assert args["connection_id"] not in calls
                replayed[args["Model Id"], args["Physic Stream Id"], args["Task Id"]] += 1
        assert unlinked <= 40  # only what was launched before the profile began
        if len(sample[1]["ranks"][0]["replays"]) > 4:
            assert max(replayed.values()) >= 3  # (stream, task id) repeats once per replay


def test_spans_and_records_agree(sample: Any) -> None:
    folder, known, all_files = sample
    config = known["config"]
    states = json.loads((folder / "server_info.json").read_text())["internal_states"]
    assert len(states) == config["dp_size"]
    for rank, files in zip(known["ranks"], all_files, strict=True):
        payload = states[rank["rank"] // config["attention_tp"]]["dspark_info_record"]
        records = {r["forward_ct"]: r for r in payload["records"]}
        stage = "TARGET_VERIFY" if config["old_span_names"] else "VERIFY"
        spans = [
            e["name"]
            for e in sorted(files.of("Python"), key=lambda e: ns(e["ts"]))
            if e["name"].startswith(f"step[{stage} ")
        ]
        if config["old_span_names"]:
            spans = spans[1::2]
        assert len(spans) == len(rank["steps"])
        for name, step in zip(spans, rank["steps"], strict=True):
            found = records[step["forward_ct"]]
            assert f" bs={found['bs']}" in name
            if "reqs" in found:
                prefix = sum(r["prefix_len"] for r in found["reqs"])
                assert f" g_sk={prefix + found['bs'] * config['width'] * config['g_sk_width']} " in name
                assert step["committed_tokens"] == sum(r["acc_len"] for r in found["reqs"])
            if found.get("step_gpu_ms") and step["complete"]:
                parts = found["draft_gpu_ms"] + found["target_verify_gpu_ms"]
                assert 0 < parts < found["step_gpu_ms"]
                placed = step["segments"]["target_verify"]["placed"]
                # the events lie around the tasks: a few us of copies before, nothing after
                assert -20_000 < found["target_verify_gpu_ms"] * 1e6 - (placed[1] - placed[0]) < 300_000


def test_vendor_times_are_the_sums(sample: Any) -> None:
    for files in sample[2]:
        sums: Counter[str] = Counter()
        lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in files.events if e["name"] == "thread_name"}
        for event in files.of("Overlap Analysis"):
            assert event["name"] == lanes[event["pid"], event["tid"]]
            sums[event["name"]] += round(event["dur"] * 1000)
        for name in ("Computing", "Communication", "Communication(Not Overlapped)", "Free"):
            assert round(float(files.vendor[name]) * 1000) == sums[name]


def test_ends_meet_across_ranks(sample: Any) -> None:
    known = sample[1]
    limit = known["config"]["jitter_ns"] + 2 + 20_000 * bool(known["config"]["drift_ppm"])
    for meeting in known["experts"]:
        if not known["config"]["recv_hook"]:  # a receive task ends when its own rank asks for it
            assert max(meeting["ends"]) - min(meeting["ends"]) <= limit
    if known["config"]["attention_tp"] == 1 and len(sample[2]) > 1:
        ends = [
            {r["Name"]: span[1] for r, span in zip(f.rows, f.spans, strict=True) if r["Name"].startswith("hcom_")}
            for f in sample[2]
        ]
        shared = set(ends[0]) & set(ends[1])
        assert shared
        offset = known["ranks"][1]["clock"]["expected_offset_ns"]
        assert all(abs(ends[0][n] - ends[1][n] - offset) <= limit for n in shared)


def test_tail_is_named_and_after_the_verify(sample: Any) -> None:
    for rank, files in zip(sample[1]["ranks"], sample[2], strict=True):
        for step in rank["steps"]:
            if "tail" not in step:
                assert sample[1]["config"]["folded"] or not step["complete"]
                continue
            begin, end = step["tail"]["extent"]
            inside = [r["Name"] for r, (a, b) in zip(files.rows, files.spans, strict=True) if begin <= a and b <= end]
            if step["complete"]:
                assert len(inside) == sum(p["kernel_count"] for p in step["tail"]["parts"])
                assert "_finalize_accept_lens_kernel" in inside


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    def content(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

    config = Config(steps=2)
    for name in ("a", "b"):
        write(config, tmp_path / name)
    write(replace(config, seed=2), tmp_path / "c")
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert content(tmp_path / "a") != content(tmp_path / "c")


def test_a_slow_rank_makes_the_others_wait() -> None:
    known = truth(simulate(Config(ranks=3, slow_rank=2, delay_us=300)))
    for meeting in known["experts"]:
        if meeting["op"] == "dispatch":
            assert meeting["last_rank"] == 2
            assert meeting["waited_ns"][2] == 0
            assert min(meeting["waited_ns"][:2]) > 200_000


def test_commit_and_host_delay_show_where_they_belong() -> None:
    base, more = (truth(simulate(Config(commit_us=us)))["ranks"][0] for us in (0, 900))
    for before, after in zip(base["steps"], more["steps"], strict=True):
        grown = [next(p["busy_ns"] for p in s["tail"]["parts"] if p["part"] == "commit") for s in (before, after)]
        assert 800_000 < grown[1] - grown[0] < 1_000_000
        verify = [s["segments"]["target_verify"]["placed"] for s in (before, after)]
        assert abs((verify[0][1] - verify[0][0]) - (verify[1][1] - verify[1][0])) < 300_000
    late = truth(simulate(Config(host_delay_us=3000)))["ranks"][0]["replays"]
    assert all(2_700_000 < r["prepare_ns"] < 3_400_000 for r in late if r["model_id"] == 47)
    assert all(r["exposed_gap_ns"] > 2_000_000 for r in late if r["model_id"] == 47)


def test_clock_of_a_rank() -> None:
    config = Config(offsets_ms=(0, 5.0), drift_ppm=(0, 10))
    assert config.exported(1, BASE_NS) == BASE_NS + 5_000_000
    assert config.exported(1, BASE_NS + 10**9) == BASE_NS + 10**9 + 5_000_000 + 10_000
    assert not config.one_host


@pytest.mark.parametrize(
    "config",
    [
        Config(ranks=0),
        Config(ranks=3, attention_tp=2),
        Config(mode="x"),
        Config(folded=True, recv_hook=True),
        Config(components=("cor",)),
    ],
    ids=str,
)
def test_options_that_contradict(config: Config) -> None:
    with pytest.raises(UsageError):
        simulate(config)


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError):
        write(Config(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_level0_and_csv_only(tmp_path: Path) -> None:
    write(Config(steps=1, level0=True), tmp_path / "level0")
    folder = tmp_path / "level0/rank0_ascend_pt"
    files = Files(folder)
    assert "CANN" not in files.names.values()
    assert "Task ID" not in files.rows[0]
    assert {r["Type"] for r in files.rows} == {"N/A"}
    write(Config(steps=1, trace=False), tmp_path / "csv")
    assert not list((tmp_path / "csv").rglob("trace_view.json"))
