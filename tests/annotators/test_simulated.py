"""Whole captures of the simulator, read by the real readers, against the truth of its model: every step, segment,
tail part, dispatch, combine and replay, to the nanosecond.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotators.annotation import Annotation
from annotators.deepep_peers import find_peers
from converter import annotate
from converter.annotate import DSPARK
from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from converter.readers.dspark import read_records
from samples.config import Config
from samples.generate import write
from schemas.dspark_tables import PARTS
from schemas.roles import load_roles
from schemas.timeline import Timeline
from tests.annotators.builder import arguments

Json = dict[str, Any]


@dataclass
class Found:
    """What the annotators say of a rank, and the truth of it."""

    timeline: Timeline
    truth: Json
    steps: Annotation
    segments: Annotation
    tails: Annotation
    deepep: Annotation
    replays: Annotation

    def table(self, name: str) -> Any:
        return getattr(self, name).tables[name]


def run(folder: Path, config: Config, with_records: bool = True, first: int | None = None) -> list[Found]:
    write(config, folder)
    truth = json.loads((folder / "truth.json").read_text())
    records = read_records(folder / "server_info.json") if with_records else None
    roles = load_roles()
    out = []
    for capture in find_captures([str(folder)]):
        options = Options(annotate=DSPARK)
        rank = read(capture, options)
        timeline = rank.timeline
        annotate.rank(rank, options, roles, records.for_rank(timeline.rank) if records else None, first)
        truth_of_rank = next(x for x in truth["ranks"] if x["rank"] == timeline.rank)
        out.append(Found(timeline, truth_of_rank, *(rank.annotations[name] for name in DSPARK)))
    return out


def null(value: Any) -> int | None:
    return None if value < 0 else int(value)


def forward_ct(found: Found, step: int) -> int | None:
    return None if step < 0 else null(found.table("steps").forward_ct[step])


def seen_steps(found: Found) -> list[Json]:
    s = found.table("steps")
    return [
        {
            "forward_ct": null(s.forward_ct[i]),
            "bs": int(s.bs[i]),
            "ts": int(s.ts[i]),
            "dur": int(s.end[i] - s.ts[i]),
            "cut": bool(s.cut[i]),
            "step_wall_ns": null(s.wall_ns[i]),
        }
        for i in range(len(s))
    ]


def seen_segments(found: Found, step: int) -> Json:
    g = found.table("segments")
    out = {}
    for row in np.flatnonzero(g.step == step):
        name = "target_verify" if g.is_verify[row] else "draft"
        out[name] = {
            "placed": [int(g.placed_ts[row]), int(g.placed_end[row])],
            "record_ns": null(g.record_ns[row]),
            "end": int(g.end[row]),
        }
    return out


def seen_tail(found: Found, step: int) -> list[Json]:
    t = found.table("tails")
    return [
        {
            "part": PARTS[t.part[row]],
            "extent": [int(t.ts[row]), int(t.end[row])],
            "kernel_count": int(t.kernel_count[row]),
            "busy_ns": int(t.busy_ns[row]),
        }
        for row in np.flatnonzero(t.step == step)
    ]


def seen_deepep(found: Found) -> list[Json]:
    d = found.table("deepep")
    return [
        {
            "op": "combine" if d.combine[i] else "dispatch",
            "model": "recv_hook" if d.recv_hook[i] else "in_kernel_wait",
            "forward_ct": forward_ct(found, d.step[i]),
            "issue": int(d.issue_ts[i]),
            "hook": int(d.hook_ts[i]),
            "done": int(d.done_ts[i]),
            "overlapped_ns": null(d.overlapped_ns[i]),
            "exposed_ns": int(d.exposed_ns[i]),
        }
        for i in range(len(d))
    ]


def seen_replays(found: Found) -> list[Json]:
    r = found.table("replays")
    return [
        {
            "model_id": int(r.model_id[i]),
            "forward_ct": forward_ct(found, r.step[i]),
            "launch": null(r.launch_ts[i]),
            "first_task": int(r.first_task_ts[i]),
            "last_task_end": int(r.last_task_end[i]),
            "prepare_ns": null(r.prepare_ns[i]),
            "exposed_gap_ns": null(r.exposed_gap_ns[i]),
            "task_count": int((r.task_replay == i).sum()),
        }
        for i in range(len(r))
    ]


def only(rows: list[Json], keys: list[Json]) -> list[Json]:
    """The truth's rows, with the keys that we tell."""
    return [{key: row[key] for key in seen} for row, seen in zip(rows, keys, strict=True)]


def check(found: Found) -> None:
    truth = found.truth
    seen = seen_steps(found)
    assert seen == only(truth["steps"], seen)
    for i, step in enumerate(truth["steps"]):
        for name, segment in seen_segments(found, i).items():
            assert segment["placed"] == step["segments"][name]["placed"]
            assert segment["record_ns"] == step["segments"][name]["record_ns"]
            assert segment["end"] == segment["placed"][1]
        if step["complete"]:
            assert set(seen_segments(found, i)) == {"draft", "target_verify"}
            assert seen_tail(found, i) == step.get("tail", {}).get("parts_by_rule", [])
    rows = seen_deepep(found)
    inside = {step["forward_ct"] for step in truth["steps"]}
    for row in truth[
        "deepep"
    ]:  # the model knows of steps that were called before the profile began; the capture does not
        row["forward_ct"] = row["forward_ct"] if row["forward_ct"] in inside else None
    assert rows == only(sorted(truth["deepep"], key=lambda d: (d["issue"], d["done"])), rows)
    replayed = seen_replays(found)
    assert replayed == only(truth["replays"], replayed)


SCENARIOS = {
    "plain": Config(steps=4),
    "older span names": Config(steps=4, old_span_names=True),
    "start_step": Config(steps=4, start_step=True),
    "start_step, older span names": Config(steps=4, start_step=True, old_span_names=True),
    "no detailed annotations": Config(steps=4, detailed_annotations=False),
    "constant batch": Config(bs=4, steps=8),
    "attention TP": Config(steps=4, ranks=4, attention_tp=2),
    "prefill and idle between": Config(steps=8, prefill_before=(2, 5), idle_before=(4,)),
    "compact": Config(steps=4, mode="compact"),
    "overlap schedule": Config(steps=4, overlap_schedule=True),
    "host delay": Config(steps=4, host_delay_us=900.0),
    "verify without graphs": Config(steps=4, graphs=False),
    "no MODEL_EXECUTE": Config(steps=4, model_execute=False),
    "receive hooks": Config(steps=4, recv_hook=True),
    "folded": Config(steps=4, folded=True),
    "no side stream": Config(steps=4, overlap_dispatch=False),
    "graph on its own stream": Config(steps=4, graph_stream=90, side_stream=91),
    "no plan collective": Config(steps=4, plan_collective=False),
    "slow rank": Config(steps=4, ranks=3, slow_rank=1, delay_us=400.0),
    "device clock behind": Config(steps=4, device_shift_us=-12.0),
    "late start": Config(late_start=(0, 2), steps=8),
    "K3 header": Config(steps=4, block_num=False),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_everything_is_as_the_model_made_it(tmp_path: Path, name: str) -> None:
    for found in run(tmp_path / "run", SCENARIOS[name]):
        assert not found.steps.refused
        check(found)


def test_identical_steps_are_refused_and_the_users_word_decides(tmp_path: Path) -> None:
    config = Config(bs=4, components=("core",), detailed_annotations=False)
    for found in run(tmp_path / "refused", config):
        assert "ambiguous" in found.steps.refused[0]
        assert "--first-forward-ct" in found.steps.refused[0]
        assert [s["forward_ct"] for s in seen_steps(found)] == [None] * 6
    first = found.truth["steps"][0]["forward_ct"]
    for found in run(tmp_path / "decided", config, first=first):
        assert [s["forward_ct"] for s in seen_steps(found)] == [s["forward_ct"] for s in found.truth["steps"]]


def test_without_records_the_spans_still_give_steps_and_segments(tmp_path: Path) -> None:
    for found in run(tmp_path / "run", Config(), with_records=False):
        assert [s["ts"] for s in seen_steps(found)] == [s["ts"] for s in found.truth["steps"]]
        for i, step in enumerate(found.truth["steps"]):
            seen = seen_segments(found, i)
            assert [seen[n]["placed"] for n in ("draft", "target_verify")] == [
                step["segments"][n]["placed"] for n in ("draft", "target_verify")
            ]
            assert seen["draft"]["record_ns"] is None


def test_without_spans_there_are_no_steps_and_the_records_are_refused(tmp_path: Path) -> None:
    for found in run(tmp_path / "run", Config(spans=False)):
        assert found.steps.skipped
        assert "can't be placed" in found.steps.refused[0]
        assert [r["model_id"] for r in seen_replays(found)] == [r["model_id"] for r in found.truth["replays"]]
        assert [r["launch"] for r in seen_replays(found)] == [r["launch"] for r in found.truth["replays"]]


@pytest.mark.parametrize("delay_us", [100.0, 700.0])
def test_peers_wait_for_the_slow_rank(tmp_path: Path, delay_us: float) -> None:
    ranks = run(tmp_path / "run", Config(ranks=3, slow_rank=1, delay_us=delay_us))
    truth = json.loads((tmp_path / "run" / "truth.json").read_text())["experts"]
    peers, warnings = find_peers([(f.timeline.rank, f.table("deepep")) for f in ranks], 50_000)
    assert not warnings
    for rank, own in enumerate(peers):
        assert own.group_index.tolist() == list(range(len(truth)))
        assert own.waited_ns.tolist() == [e["waited_ns"][rank] for e in truth]
        assert own.last_rank.tolist() == [e["last_rank"] for e in truth]
    dispatches = [i for i, e in enumerate(truth) if e["op"] == "dispatch"]
    assert min(int(peers[0].waited_ns[i]) for i in dispatches) > delay_us * 1000 / 2


def test_what_the_host_did_before_a_replay(tmp_path: Path) -> None:
    """The simulated host waits in aten::item before each verify replay."""
    config = Config(steps=3, ranks=1, host_delay_us=900.0)
    (found,) = run(tmp_path / "run", config)
    assert found.replays.layer is not None
    pieces = arguments(found.replays.layer, "npu.replay_host")
    waits = {p["replay_index"]: p["dur"] for p in pieces if p["name"] == "aten::item" and p["kind"] == "sync point"}
    models = found.table("replays").model_id.tolist()
    assert set(waits) == {i for i, model in enumerate(models) if model == config.verify_model_id}
    assert min(waits.values()) > 800_000
    prepared = {r["replay_index"]: r["dur"] for r in arguments(found.replays.layer, "npu.replay")}
    for index, dur in prepared.items():
        assert sum(p["dur"] for p in pieces if p["replay_index"] == index) == dur
