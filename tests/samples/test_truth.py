"""What the annotators find in the simulator's files against the truth of its model, on every kind of run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotators import deepep, linking, replay_calls, replays, segments, steps, tails
from annotators.annotation import Annotation
from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from converter.readers.dspark import read_records
from samples.config import Config
from samples.generate import write
from schemas.dspark_tables import PARTS, DeepEp, Replays, Segments, Steps, Tails
from schemas.roles import load_roles
from schemas.timeline import NULL, Timeline

VARIANTS = {
    "plain": Config(),
    "start_step": Config(start_step=True, seed=5),
    "overlapped": Config(overlap_schedule=True, start_step=True),
    "recv_hook": Config(recv_hook=True),
    "slow": Config(slow_rank=1, delay_us=150, graph_stream=61),
    "eager": Config(graphs=False, overlap_dispatch=False),
    "tp": Config(ranks=4, attention_tp=2),
    "compact": Config(mode="compact"),
    "prefill_and_idle": Config(prefill_before=(0, 2), idle_before=(3,)),
    "clocks": Config(offsets_ms=(0, -123.4), drift_ppm=(0, 15), duration_s=0.5),
    "host_delay": Config(host_delay_us=2000, commit_us=300),
    "one_stage": Config(stages=1, layers=1),
    "no_model_execute": Config(model_execute=False, late_start=(0, 1)),
    "dp_idle": Config(dp_idle=((1, 2),), with_stack=True, g_sk_width=False),
    "old_names": Config(old_span_names=True, detailed_annotations=False),
    "only_gpu_times": Config(components=("core", "step_gpu_time", "draft_gpu_time", "target_verify_gpu_time")),
}


class Found:
    """The annotators' tables of one rank."""

    def __init__(self, timeline: Timeline, records: Any) -> None:
        self.timeline = timeline
        self.step_annotation: Annotation = steps.annotate(timeline, records)
        self.steps: Steps = self.step_annotation.tables["steps"]
        roles = load_roles()
        self.replays: Replays = replay_calls.find_replays(timeline, roles)
        links = linking.link(timeline, self.replays)
        replays.annotate(timeline, self.steps, self.replays, links, roles)
        self.segments: Segments = segments.annotate(timeline, self.steps, links).tables["segments"]
        self.deepep: DeepEp = deepep.annotate(timeline, self.steps, links, roles).tables["deepep"]
        self.tails: Tails = tails.annotate(timeline, self.steps, self.segments, links, roles).tables["tails"]


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def sample(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Found, dict[str, Any]]]:
    folder: Path = tmp_path_factory.mktemp("truth") / request.param
    write(replace(VARIANTS[request.param], steps=4, records_before=2), folder)
    known = json.loads((folder / "truth.json").read_text())
    records = read_records(folder / "server_info.json")
    size = known["config"]["attention_tp"]
    ranks = [read(capture, Options()).timeline for capture in find_captures([str(folder)])]
    return [
        (Found(timeline, records.ranks[rank["rank"] // size]), rank)
        for timeline, rank in zip(ranks, known["ranks"], strict=True)
    ]


def complete(rank: dict[str, Any]) -> list[int]:
    return [n for n, step in enumerate(rank["steps"]) if step["complete"]]


def test_steps_and_records(sample: Any) -> None:
    for found, rank in sample:
        known = rank["steps"]
        assert found.steps.ts.tolist() == [s["ts"] for s in known]
        assert (found.steps.end - found.steps.ts).tolist() == [s["dur"] for s in known]
        assert found.steps.cut.tolist() == [s["cut"] for s in known]
        assert found.step_annotation.refused == []
        assert found.steps.forward_ct.tolist() == [s["forward_ct"] for s in known]
        assert found.steps.record.tolist() == [s["record_index"] for s in known]
        assert found.steps.wall_ns.tolist() == [NULL if s["step_wall_ns"] is None else s["step_wall_ns"] for s in known]


def test_replays(sample: Any) -> None:
    for found, rank in sample:
        known = rank["replays"]
        assert found.replays.model_id.tolist() == [r["model_id"] for r in known]
        assert found.replays.first_task_ts.tolist() == [r["first_task"] for r in known]
        assert found.replays.last_task_end.tolist() == [r["last_task_end"] for r in known]
        assert found.replays.launch_ts.tolist() == [NULL if r["launch"] is None else r["launch"] for r in known]
        counts = np.bincount(found.replays.task_replay[found.replays.task_replay != NULL], minlength=len(known))
        assert counts.tolist() == [r["task_count"] for r in known]
        for key, values in (("prepare_ns", found.replays.prepare_ns), ("exposed_gap_ns", found.replays.exposed_gap_ns)):
            assert values.tolist() == [NULL if r[key] is None else r[key] for r in known]


def test_segments(sample: Any) -> None:
    for found, rank in sample:
        s = found.segments
        for name, is_verify in (("draft", False), ("target_verify", True)):
            for n in complete(rank):
                row = np.flatnonzero((s.step == n) & (s.is_verify == is_verify))
                assert len(row) == 1
                known = rank["steps"][n]["segments"][name]
                assert [s.placed_ts[row[0]], s.placed_end[row[0]]] == known["placed"]
                if known["record_ns"] is not None:
                    assert s.record_ns[row[0]] == known["record_ns"]


def test_tails(sample: Any) -> None:
    for found, rank in sample:
        t = found.tails
        for n in complete(rank):
            known = rank["steps"][n]["tail"]
            assert [t.tail_ts[n], t.tail_end[n]] == known["extent"]
            rows = np.flatnonzero(t.step == n)
            parts = {
                PARTS[t.part[r]]: ([int(t.ts[r]), int(t.end[r])], int(t.kernel_count[r]), int(t.busy_ns[r]))
                for r in rows
            }
            assert parts == {p["part"]: (p["extent"], p["kernel_count"], p["busy_ns"]) for p in known["parts_by_rule"]}


def test_deepep(sample: Any) -> None:
    for found, rank in sample:
        d, known = found.deepep, rank["deepep"]
        assert [("dispatch", "combine")[c] for c in d.combine.tolist()] == [e["op"] for e in known]
        assert [("in_kernel_wait", "recv_hook")[h] for h in d.recv_hook.tolist()] == [e["model"] for e in known]
        for values, key in (
            (d.issue_ts, "issue"),
            (d.hook_ts, "hook"),
            (d.done_ts, "done"),
            (d.exposed_ns, "exposed_ns"),
        ):
            assert values.tolist() == [e[key] for e in known]
        assert d.overlapped_ns.tolist() == [NULL if e["overlapped_ns"] is None else e["overlapped_ns"] for e in known]
        numbers = [s["forward_ct"] for s in rank["steps"]]
        places = [numbers.index(e["forward_ct"]) if e["forward_ct"] in numbers else NULL for e in known]
        assert d.step.tolist() == places
