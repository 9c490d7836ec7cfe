"""What ran between the verify and the end of the step: accept, TP sync, finalize, out tokens, commit. Track: Eager tail.

Needs steps, segments, links and the role table. On Ascend these are never folded into the verify graph
(DsparkVerifyEpilogue is built on CUDA only), so they are eager kernels after it. A name alone often fits several parts
(Cast, IndexPut): parts come in their order, and a name takes the earliest one that has not been passed.
"""

from __future__ import annotations

import numpy as np

from annotators.annotation import Annotation
from annotators.columns import int_column, texts_column
from annotators.grouping import extents, union_lengths
from annotators.linking import linked_to
from schemas.dspark_tables import PART_NAMES, PARTS, Links, Segments, Steps, Tails
from schemas.roles import Roles
from schemas.timeline import NULL, Bool, Int64, Kind, Layer, Role, Timeline

ACCEPT, FINALIZE, COMMIT, OTHER = (PARTS.index(name) for name in ("accept", "finalize", "commit", "other"))
_CUDA_CALLS = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaGraphLaunch", "cuLaunchKernel", "cuLaunchKernelEx")


def annotate(timeline: Timeline, steps: Steps, segments: Segments, links: Links, roles: Roles) -> Annotation:
    """Track Eager tail; table `tails` (Tails)."""
    if not len(segments):
        return Annotation(skipped="no target_verify segment to follow")
    tails, folded = find_tails(timeline, steps, segments, links, roles)
    out = Annotation(tables={"tails": tails})
    if folded:
        out.warnings.append(
            f"{folded} of {len(steps)} steps have no eager tail: nothing after the verify accepts or commits, that is part "
            "of the verify graph (folded, as on CUDA)"
        )
        out.facts["eager_tail"] = {"folded_steps": folded}
    if len(tails):
        out.layer = _layer(timeline, steps, tails)
    else:
        out.skipped = "no step has an eager tail" + (": folded into the verify graph" if folded else "")
    return out


def find_tails(timeline: Timeline, steps: Steps, segments: Segments, links: Links, roles: Roles) -> tuple[Tails, int]:
    """The parts by step, and how many steps have their tail folded into the verify graph."""
    tasks, strings = timeline.tasks, timeline.strings
    verify_end = np.full(len(steps), NULL, np.int64)
    verify_end[segments.step[segments.is_verify]] = segments.placed_end[segments.is_verify]
    # From just after the verify span: what it holds itself belongs to the segment.
    owner = linked_to(links, steps.verify_end + 1, steps.end, steps.track)
    owner = np.where((owner != NULL) & (verify_end[owner] != NULL), owner, NULL)
    owner[roles.of_tasks("copies", tasks, strings)] = NULL
    rows = np.flatnonzero(owner != NULL)
    part = parts_of_tasks(timeline, rows, owner[rows], roles)
    folded = _folded_steps(timeline, steps, links, roles, rows, owner, part) & (verify_end != NULL)
    keep = ~folded[owner[rows]]
    rows, part = rows[keep], part[keep]
    _, tail_end = extents(owner[rows], tasks.ts[rows], tasks.end[rows], len(steps))
    group, inverse = np.unique(owner[rows] * len(PARTS) + part, return_inverse=True)
    inverse = inverse.reshape(-1)
    first, last = extents(inverse, tasks.ts[rows], tasks.end[rows], len(group))
    count = np.bincount(inverse, minlength=len(group)).astype(np.int64)
    busy = union_lengths(inverse, tasks.ts[rows], tasks.end[rows], len(group))
    tail_ts = np.where(tail_end != NULL, verify_end, NULL)
    return Tails(group // len(PARTS), group % len(PARTS), first, last, count, busy, tail_ts, tail_end), int(
        folded.sum()
    )


def parts_of_tasks(timeline: Timeline, rows: Int64, owner: Int64, roles: Roles) -> Int64:
    """int64[n]: the part of each tail task (index into PARTS). rows: tasks in order of start; owner: their steps."""
    tasks, strings = timeline.tasks, timeline.strings
    fits = np.zeros((len(PARTS) - 1, len(rows)), np.bool_)
    for index, name in enumerate(PARTS[:-1]):
        fits[index] = roles.of_tasks(name, tasks, strings)[rows]
    write = roles.of_tasks("publish", tasks, strings)[rows]
    out = np.full(len(rows), OTHER, np.int64)
    order = np.argsort(owner, kind="stable")
    for of_step in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
        out[of_step] = _in_order(fits[:, of_step], write[of_step])
    return out


def _in_order(fits: Bool, write: Bool) -> list[int]:
    """The part of each task of one tail. fits: bool[parts, n]; write: bool[n], the writes by index."""
    out: list[int] = []
    reached = 0
    for column in fits.T.tolist():
        possible = [part for part, fit in enumerate(column) if fit]
        ahead = [part for part in possible if part >= reached]
        part = ahead[0] if ahead else possible[-1] if possible else OTHER
        out.append(part)
        if part != OTHER:
            reached = max(reached, part)
    commits = [i for i, part in enumerate(out) if part == COMMIT and not write[i]]
    for i in np.flatnonzero(write).tolist():
        # Between other commit kernels a write by index is a KV write; elsewhere it may be a publish or relay write.
        out[i] = COMMIT if commits and commits[0] < i < commits[-1] else OTHER
    return out


def _folded_steps(
    timeline: Timeline, steps: Steps, links: Links, roles: Roles, rows: Int64, owner: Int64, part: Int64
) -> Bool:
    """bool[steps]: accept to commit are part of the verify graph. Nothing after the verify has a name of theirs alone, and
    the verify holds such a name, or the trace is of CUDA, where the epilogue may be built.
    """
    tasks, strings = timeline.tasks, timeline.strings
    accepts = roles.of_tasks("accept", tasks, strings) | roles.of_tasks("finalize", tasks, strings)
    shared = roles.of_tasks("out_tokens", tasks, strings) | roles.of_tasks("publish", tasks, strings)
    telling = np.isin(part, (ACCEPT, FINALIZE)) | ((part == COMMIT) & ~shared[rows])
    named = np.zeros(len(steps), np.bool_)
    named[owner[rows[telling]]] = True
    inside = linked_to(links, steps.verify_ts, steps.verify_end, steps.track)
    holds = np.full(len(steps), _is_cuda(timeline))
    holds[inside[accepts & (inside != NULL)]] = True
    return np.asarray(~named & holds, np.bool_)


def _is_cuda(timeline: Timeline) -> bool:
    return any(timeline.strings.find(name) != NULL for name in _CUDA_CALLS)


def _layer(timeline: Timeline, steps: Steps, tails: Tails) -> Layer:
    layer = Layer(timeline.strings, timeline.slice_count)
    track = layer.track(
        "Eager tail",
        Kind.LANE,
        role=Role.DERIVED,
        order=30,
        description="Kernels after the target verify of a step, by part: linked to the step by submission, to the part by "
        "name and order. `Other`: no role names them; extend the table with --roles.",
    )
    columns = [
        int_column("step", tails.step),
        int_column("forward_ct", steps.forward_ct[tails.step]),
        texts_column("part", layer.strings, [PARTS[p] for p in tails.part.tolist()]),
        int_column("kernel_count", tails.kernel_count),
        int_column("busy_ns", tails.busy_ns),
        int_column("tail_ts", tails.tail_ts[tails.step]),
        int_column("tail_ns", (tails.tail_end - tails.tail_ts)[tails.step]),
        texts_column("evidence", layer.strings, ["inferred"] * len(tails)),
    ]
    layer.add_slices(
        track, tails.ts, tails.end - tails.ts, [PART_NAMES[p] for p in tails.part.tolist()], "npu.tail", columns
    )
    return layer
