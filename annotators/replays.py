"""Which graph replays ran, and what came before each? Track: Pre-replay.

Needs replays and links; steps where there are any. `prepare` is host time: from the end of the last submission of the
step that ended before the call (else the step's start) to the call. `exposed_gap` is device time without a recorded
task before the replay's first one. DSV4 replays go without graph.update; it shows only where the capture holds it.
"""

from __future__ import annotations

import numpy as np

from annotators.annotation import Annotation
from annotators.columns import int_column, texts_column
from annotators.linking import submissions, thread_ids
from annotators.replay_host import Piece, host_pieces
from schemas.dspark_tables import Links, Replays, Steps
from schemas.roles import Roles
from schemas.timeline import NULL, Int64, Kind, Layer, Role, Timeline


def annotate(timeline: Timeline, steps: Steps | None, replays: Replays, links: Links, roles: Roles) -> Annotation:
    """Track Pre-replay; table `replays`: the same Replays, with step, prepare_ns and exposed_gap_ns filled in."""
    if not len(replays):
        return Annotation(skipped="no graph replay: no recorded task has a Model ID", tables={"replays": replays})
    called = replays.launch_ts != NULL
    if steps is not None:
        replays.step = np.where(called, steps.at(replays.launch_ts), NULL)
    begin = _prepare_begin(timeline, steps, replays, links)
    replays.prepare_ns = np.where(begin != NULL, replays.launch_ts - begin, NULL)
    replays.exposed_gap_ns = _exposed_gaps(timeline, replays)
    pieces = host_pieces(timeline, replays, begin, thread_ids(timeline), roles)
    out = Annotation(_layer(timeline, steps, replays, pieces), {"replays": replays})
    if replays.unlaunched:
        out.warnings.append(f"{replays.unlaunched} of {len(replays)} replays have no call in the capture")
    if replays.uncalled:
        out.warnings.append(f"{replays.uncalled} replay calls have no recorded task in the capture")
    return out


def _prepare_begin(timeline: Timeline, steps: Steps | None, replays: Replays, links: Links) -> Int64:
    """int64[replays]: where the preparation began, NULL where neither a submission before nor the step is known."""
    ends = _submission_ends(timeline, replays, links)
    at = np.searchsorted(ends, replays.launch_ts, side="right") - 1
    begin = np.where(at >= 0, ends[np.maximum(at, 0)], NULL) if len(ends) else np.full(len(replays), NULL, np.int64)
    if steps is not None and len(steps):
        inside = replays.step != NULL
        begin = np.where(inside, np.maximum(begin, steps.ts[np.maximum(replays.step, 0)]), begin)
    return np.where(replays.launch_ts != NULL, begin, NULL)


def _submission_ends(timeline: Timeline, replays: Replays, links: Links) -> Int64:
    """The ends of all host calls that put something on the device (kernels, copies, events, replays), sorted."""
    device = timeline.device
    eager = device.model_id == NULL  # inside a graph the connection id dates from the capture
    calls = submissions(timeline, device.slice[eager], device.connection_id[eager])
    ends = [
        links.launch_end[links.launch_end != NULL],
        timeline.host.end[calls[calls != NULL]],
        replays.launch_end[replays.launch_end != NULL],
    ]
    return np.unique(np.concatenate(ends))


def _exposed_gaps(timeline: Timeline, replays: Replays) -> Int64:
    """int64[replays]: uncovered time between the last recorded task before and the replay's first; NULL where none."""
    tasks = timeline.tasks
    reach = np.maximum.accumulate(tasks.end)
    at = np.searchsorted(tasks.ts, replays.first_task_ts, side="left") - 1
    return np.where(at >= 0, np.maximum(replays.first_task_ts - reach[np.maximum(at, 0)], 0), NULL)


def _layer(timeline: Timeline, steps: Steps | None, r: Replays, pieces: list[Piece]) -> Layer:
    layer = Layer(timeline.strings, timeline.slice_count)
    track = layer.track(
        "Pre-replay",
        Kind.LANE,
        role=Role.DERIVED,
        order=50,
        description="Host preparation of each graph replay: from the end of the last submission before to the call, "
        "with what the host did in between. A replay without a known call is a mark at its first task.",
    )
    prepared = r.prepare_ns != NULL
    dur = np.where(prepared, r.prepare_ns, 0)
    ts = np.where(prepared, r.launch_ts - dur, np.where(r.launch_ts != NULL, r.launch_ts, r.first_task_ts))
    number = steps.forward_ct[np.maximum(r.step, 0)] if steps is not None and len(steps) else r.step
    evidence = ["recorded" if launch == NULL else "linked" for launch in r.launch_ts.tolist()]
    columns = [
        int_column("step", r.step),
        int_column("forward_ct", np.where(r.step != NULL, number, NULL)),
        int_column("model_id", r.model_id),
        int_column("replay_index", np.arange(len(r), dtype=np.int64)),
        int_column("launch_ts", r.launch_ts),
        int_column("first_task_ts", r.first_task_ts),
        int_column("last_task_end", r.last_task_end),
        int_column("prepare_ns", r.prepare_ns),
        int_column("exposed_gap_ns", r.exposed_gap_ns),
        texts_column("evidence", layer.strings, evidence),
    ]
    names = [f"replay of model {model}" for model in r.model_id.tolist()]
    layer.add_slices(track, ts, dur, names, "npu.replay", columns)
    if pieces:
        layer.add_slices(
            track,
            np.array([p.ts for p in pieces], np.int64),
            np.array([p.end - p.ts for p in pieces], np.int64),
            [p.name for p in pieces],
            "npu.replay_host",
            [
                int_column("replay_index", np.array([p.replay for p in pieces], np.int64)),
                texts_column("kind", layer.strings, [p.kind for p in pieces]),
                texts_column("evidence", layer.strings, ["inferred"] * len(pieces)),
            ],
        )
    return layer
