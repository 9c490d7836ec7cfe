"""Links in real captures: two independent ways from a kernel to the host, the task queue and the op flow, must agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from annotators.linking import OP_FLOWS, _flow_starts, link
from annotators.replay_calls import find_replays
from converter.convert import read
from converter.find import find_captures
from converter.options import Options
from schemas.roles import load_roles
from schemas.timeline import NULL, Host

CAPTURES = ["train_cann80_level1/rank0_ascend_pt", "train_cann80_level1/rank1_ascend_pt"]


@pytest.mark.parametrize("name", CAPTURES)
def test_the_enqueue_of_a_kernel_lies_in_the_op_of_its_flow(shared: Path, name: str) -> None:
    (capture,) = find_captures([str(shared / "captures" / name)])
    timeline = read(capture, Options()).timeline
    tasks, host = timeline.tasks, timeline.host
    links = link(timeline, find_replays(timeline, load_roles()))
    assert (links.source_ts != NULL).all()
    # Host and device clocks of rank 1 differ by some 20 us: six tasks seem to start before their launch.
    assert (links.source_ts <= tasks.ts + 10_000).all()
    source = {int(s): i for i, s in enumerate(host.slice)}
    rows = np.array([source[s] for s in links.source_slice.tolist()])
    enqueued = host.source[rows] == Host.ENQUEUE
    assert enqueued.mean() > 0.5
    op_slice = _flow_starts(timeline, OP_FLOWS, tasks.slice)
    both = enqueued & (op_slice != NULL)
    assert both.sum() > 50
    op = np.array([source[s] for s in op_slice[both].tolist()])
    inside = (host.ts[op] <= links.source_ts[both]) & (links.source_ts[both] <= host.end[op])
    assert inside.all()
    assert (host.track[op] == links.source_track[both]).all()
