"""How long did MoE dispatch and combine take, and how much of it was exposed? Track: DeepEP.

Needs tasks, links and the role table; steps where there are any. Two models (design.md, DeepEP interval):
* `in_kernel_wait`: on public Ascend builds the receive hook does nothing (sgl-kernel-npu, deep_ep.cpp) and the kernel
  itself waits for its peers. Overlapped is what other streams of the device compute meanwhile; exposed is the rest.
* `recv_hook`: where the host marks issue and hook (`dispatch_a`/`dispatch_b`), or a receive task stands apart.
Total communication is not exposed communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from annotators.annotation import Annotation
from annotators.columns import int_column, one_of_two
from annotators.hooks import Hooks, find_hooks
from annotators.intervals import Spans, covered_within, merged
from annotators.linking import linked_to
from schemas.dspark_tables import DeepEp, Links, Steps
from schemas.roles import Roles
from schemas.timeline import NULL, Bool, Int64, Kind, Layer, Role, Timeline, text_column

_NOTE = {
    True: "`recv_hook`: issue and hook are host marks (or a receive task); exposed is the time from the hook to the end.",
    False: "`in_kernel_wait`: the kernel itself waits for its peers, the hook does nothing; wait_ns is the kernel's whole "
    "length, its own work included (how much of it is waiting is not recorded); exposed is the part of the kernel during "
    "which no other stream of the device computes. evidence is that of the interval; waited_ns, where ranks are on one "
    "clock, is how much later than this rank's kernel the last one's started.",
}


def annotate(timeline: Timeline, steps: Steps | None, links: Links, roles: Roles) -> Annotation:
    """Track DeepEP; table `deepep` (DeepEp)."""
    tasks = timeline.tasks
    fused = int(roles.of_tasks("fused_exchange", tasks, timeline.strings).sum()) if len(tasks) else 0
    found = find_deepep(timeline, steps, links, roles)
    out = Annotation(tables={"deepep": found})
    if fused:
        out.warnings.append(f"{fused} kernels hold dispatch, experts and combine in one: they have no DeepEP rows")
    if not len(found):
        out.skipped = "no dispatch or combine kernel, and no dispatch_a/dispatch_b marks"
        return out
    out.layer = _layer(timeline, steps, found)
    return out


def find_deepep(timeline: Timeline, steps: Steps | None, links: Links, roles: Roles) -> DeepEp:
    """All dispatches and combines of a rank, by issue."""
    hooks = find_hooks(timeline, links, roles)
    kernels = _kernels(timeline, links, roles, hooks)
    rows = [kernels, _of_hooks(hooks)]
    columns = [np.concatenate([getattr(r, name) for r in rows]) for name in DeepEp.__dataclass_fields__]
    order = np.lexsort((columns[5], columns[3]))
    out = DeepEp(*(c[order] for c in columns))
    if steps is not None and len(steps):
        of_task = linked_to(links, steps.ts, steps.end, steps.track)
        inside = of_task[np.maximum(out.task, 0)] if len(of_task) else np.full(len(out), NULL, np.int64)
        out.step = np.where(out.task != NULL, inside, steps.at(out.issue_ts))
    return out


def _kernels(timeline: Timeline, links: Links, roles: Roles, hooks: Hooks) -> DeepEp:
    """The rows of the model `in_kernel_wait`."""
    tasks, strings = timeline.tasks, timeline.strings
    dispatch, combine = (roles.of_tasks(role, tasks, strings) for role in ("dispatch", "combine"))
    exchange = dispatch | combine | roles.of_tasks("fused_exchange", tasks, strings)
    if not exchange.any():
        dispatch, combine = _by_all_to_all(timeline, roles)
    receive = roles.of_tasks("receive", tasks, strings)
    own = (dispatch | combine) & ~receive
    own[hooks.tasks] = False
    rows = np.flatnonzero(own)
    start, end = tasks.ts[rows], tasks.end[rows]
    # In a replay there is no launch of the kernel; a launch that seems to come later is a clock's error, not a delay.
    eager = (tasks.model_id[rows] == NULL) & (links.launch_ts[rows] != NULL)
    issue = np.where(eager, np.minimum(links.launch_ts[rows], start), start)
    computing = ~(tasks.communication | exchange | receive | dispatch | combine)
    computing &= ~roles.of_tasks("collective", tasks, strings)
    overlapped = _computed_elsewhere(timeline, rows, computing)
    return DeepEp(
        step=np.full(len(rows), NULL, np.int64),
        combine=combine[rows],
        recv_hook=np.zeros(len(rows), np.bool_),
        issue_ts=issue,
        hook_ts=start,
        done_ts=end,
        overlapped_ns=overlapped,
        exposed_ns=end - start - overlapped,
        task=rows.astype(np.int64),
        linked=eager,
    )


def _computed_elsewhere(timeline: Timeline, rows: Int64, computing: Bool) -> Int64:
    """int64[n]: the part of each task during which another stream of its device computes.

    That is when any stream computes, less when its own alone does: one sweep over all streams, not one for each.
    """
    tasks = timeline.tasks
    out = np.zeros(len(rows), np.int64)
    for device in np.unique(tasks.device_id[rows]).tolist():
        here = np.flatnonzero(computing & (tasks.device_id == device))
        here = here[np.argsort(tasks.stream_id[here], kind="stable")]
        bounds = np.flatnonzero(np.diff(tasks.stream_id[here], prepend=-2, append=-2)).tolist()
        sets = [merged(tasks.ts[here[a:b]], tasks.end[here[a:b]]) for a, b in pairwise(bounds)]
        streams = [int(tasks.stream_id[here[a]]) for a in bounds[:-1]]
        any_one, alone = _any_and_alone(sets)
        mine = np.flatnonzero(tasks.device_id[rows] == device)
        start, end = tasks.ts[rows[mine]], tasks.end[rows[mine]]
        out[mine] = covered_within(any_one, start, end)
        for stream, spans in zip(streams, alone, strict=True):
            own = tasks.stream_id[rows[mine]] == stream
            out[mine[own]] -= covered_within(spans, start[own], end[own])
    return out


def _any_and_alone(sets: list[Spans]) -> tuple[Spans, list[Spans]]:
    """When any of the busy sets is busy, and for each one when it alone is."""
    if not sets:
        return (np.empty(0, np.int64), np.empty(0, np.int64)), []
    lengths = [len(s) for s, _ in sets]
    ts = np.concatenate([s for s, _ in sets] + [e for _, e in sets])
    # How many are busy and the sum of their numbers, in one integer: where one is, the sum is its number.
    code = np.repeat((1 << 32) + np.arange(len(sets), dtype=np.int64), lengths)
    order = np.argsort(ts, kind="stable")
    code = np.concatenate((code, -code))
    # There may be tens of millions: what is done with goes at once.
    code = np.cumsum(code[order])
    ts = ts[order]
    del order
    some = np.append(ts[1:] > ts[:-1], False)
    end = ts[1:][some[:-1]]
    begin, code = ts[some], code[some]
    del ts, some
    single = np.flatnonzero(code >> 32 == 1)
    number = (code[single] & 0xFFFFFFFF).astype(np.int32)
    single = single[np.argsort(number, kind="stable")]
    bounds = np.cumsum(np.append(0, np.bincount(number, minlength=len(sets)))).tolist()
    alone = [(begin[single[a:b]], end[single[a:b]]) for a, b in pairwise(bounds)]
    busy = code > 0
    return (begin[busy], end[busy]), alone


def _by_all_to_all(timeline: Timeline, roles: Roles) -> tuple[Bool, Bool]:
    """Strategy "alltoall": collectives between the routing and the experts dispatch, between the experts and the end of
    the routing they combine. (bool[tasks], bool[tasks])
    """
    tasks, strings = timeline.tasks, timeline.strings
    exchange = roles.of_tasks("all_to_all", tasks, strings)
    last = {}
    for role in ("routing", "experts", "unrouting"):
        at = tasks.ts[roles.of_tasks(role, tasks, strings)]
        index = np.searchsorted(at, tasks.ts, side="right") - 1
        last[role] = np.where(index >= 0, at[np.maximum(index, 0)], NULL) if len(at) else np.full(len(tasks), NULL)
    routed = exchange & (last["routing"] != NULL) & (last["routing"] > last["unrouting"])
    computed = last["experts"] > last["routing"]
    return routed & ~computed, routed & computed


def _of_hooks(h: Hooks) -> DeepEp:
    return DeepEp(
        step=np.full(len(h), NULL, np.int64),
        combine=h.combine,
        recv_hook=np.ones(len(h), np.bool_),
        issue_ts=h.issue_ts,
        hook_ts=h.hook_ts,
        done_ts=h.done_ts,
        overlapped_ns=np.full(len(h), NULL, np.int64),
        exposed_ns=h.done_ts - h.hook_ts,
        task=h.task,
        linked=h.linked,
    )


def _layer(timeline: Timeline, steps: Steps | None, d: DeepEp) -> Layer:
    layer = Layer(timeline.strings, timeline.slice_count)
    models = " ".join(_NOTE[hook] for hook in (True, False) if (d.recv_hook == hook).any())
    track = layer.track("DeepEP", Kind.LANE, role=Role.DERIVED, order=40, description=models)
    number = steps.forward_ct[np.maximum(d.step, 0)] if steps is not None and len(steps) else d.step
    # A kernel's interval is in the input; tied to its launch it is linked. Marks are paired by order.
    evidence = one_of_two(layer.strings, d.linked, "linked", "recorded")
    evidence[d.recv_hook & ~d.linked] = layer.strings.add("inferred")
    op = one_of_two(layer.strings, d.combine, "combine", "dispatch")
    columns = [
        int_column("step", d.step),
        int_column("forward_ct", np.where(d.step != NULL, number, NULL)),
        text_column("op", op),
        text_column("model", one_of_two(layer.strings, d.recv_hook, "recv_hook", "in_kernel_wait")),
        int_column("issue_ts", d.issue_ts),
        int_column("hook_ts", d.hook_ts),
        int_column("done_ts", d.done_ts),
        int_column("in_flight_ns", d.hook_ts - d.issue_ts),
        int_column("wait_ns", d.done_ts - d.hook_ts),
        int_column("overlapped_ns", d.overlapped_ns),
        int_column("exposed_ns", d.exposed_ns),
        int_column("task", d.task),
        text_column("evidence", evidence),
    ]
    layer.add_slices(track, d.issue_ts, d.done_ts - d.issue_ts, op, "npu.deepep", columns)
    return layer


@dataclass
class Peers:
    """Who waited for whom, by row of a rank's DeepEp; NULL where the call was not matched on all ranks of its group."""

    group_index: Int64
    last_rank: Int64
    waited_ns: Int64


def add_peers(annotation: Annotation, peers: Peers) -> None:
    """Puts the columns of `peers` on the DeepEP slices of a rank's annotation."""
    if annotation.layer is not None:
        annotation.layer.slices[0].columns += [
            int_column("group_index", peers.group_index),
            int_column("last_rank", peers.last_rank),
            int_column("waited_ns", peers.waited_ns),
        ]
