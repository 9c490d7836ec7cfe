"""How long did draft and target verify take on the device, and where? Track: Segments.

Needs steps and links. DSpark's segments lie between events on the current stream (SGLang, dspark_observability.py),
which a profile does not show; what it shows are the tasks submitted under the spans. `placed` is first start to last
end of those on the main stream. With a record the slice is as long as the record says and ends where `placed` ends.
A segment is elapsed time of one stream: the sum of kernels and the busy time of other streams stand beside it.
"""

from __future__ import annotations

import numpy as np

from annotators.annotation import Annotation
from annotators.columns import evidence_column, int_column, texts_column
from annotators.grouping import extents, overlap_sums, union_lengths
from annotators.intervals import covered_within, merged
from annotators.linking import linked_to
from schemas.dspark_tables import Links, Segments, Steps
from schemas.timeline import NULL, Bool, FlowBatch, Int64, Kind, Layer, Role, Timeline


def annotate(timeline: Timeline, steps: Steps, links: Links) -> Annotation:
    """Track Segments; table `segments` (Segments); flows `npu.link` from each span to its first linked task."""
    if not len(timeline.tasks):
        return Annotation(skipped="no recorded tasks")
    of_step, of_draft, of_verify, of_draft_span = _owners(steps, links)
    if not (of_verify != NULL).any() and not (of_draft_span != NULL).any():
        why = "nothing ties a task to a step span: no queue events, flows or connection ids (profiler level 0, or no host trace)"
        return Annotation(skipped=why)
    segments = find_segments(timeline, steps, of_step, of_draft, of_verify)
    out = Annotation(_layer(timeline, steps, segments), {"segments": segments})
    for category, into in (("verify", of_verify), ("draft", of_draft_span)):
        slices = steps.verify_slice if category == "verify" else steps.draft_slice
        spans = steps.verify_ts if category == "verify" else steps.draft_ts
        _add_flows(timeline, out, into, slices, spans)
    missing = len(steps) - int(np.unique(segments.step[segments.is_verify]).size)
    if missing:
        out.warnings.append(
            f"{missing} of {len(steps)} verify spans have no linked task in the capture: no segment there"
        )
    return out


def placed_lengths(timeline: Timeline, steps: Steps, links: Links) -> dict[str, Int64]:
    """By name of the record's time: int64[steps], first start to last end of the tasks linked to the segment on its
    stream, NULL where it has none. Needs no record.
    """
    of_step, of_draft, of_verify, _ = _owners(steps, links)
    stream = _streams(timeline)
    main = main_streams(of_step, stream, timeline, len(steps))
    out = {}
    for name, owner in (("target_verify_gpu_ms", of_verify), ("draft_gpu_ms", of_draft)):
        first, last, _ = _placed(timeline, stream, main, owner)
        out[name] = np.where(last != NULL, last - first, NULL)
    return out


def _owners(steps: Steps, links: Links) -> tuple[Int64, Int64, Int64, Int64]:
    """int64[tasks] each: the step whose run_batch, draft and verify span a task is linked to; the row of its draft
    span. NULL where none.
    """
    of_step = linked_to(links, steps.ts, steps.end, steps.track)
    of_verify = linked_to(links, steps.verify_ts, steps.verify_end, steps.track)
    of_draft_span = linked_to(links, steps.draft_ts, steps.draft_end, steps.track[steps.draft_step])
    of_draft = np.full(len(of_step), NULL, np.int64)
    drafted = of_draft_span != NULL
    of_draft[drafted] = steps.draft_step[of_draft_span[drafted]]
    return of_step, of_draft, of_verify, of_draft_span


def _placed(timeline: Timeline, stream: Int64, main: Int64, owner: Int64) -> tuple[Int64, Int64, Int64]:
    """First start, last end and stream of the tasks of each step's segment, int64[steps] each, NULL where none."""
    tasks, count = timeline.tasks, len(main)
    on = main
    used = (owner != NULL) & (stream != NULL)
    held = np.zeros(count, np.bool_)
    held[owner[used & (stream == main[owner])]] = True
    if not held.all():
        # The segment's own stream where it has nothing on the step's: a draft graph on a stream of its own.
        on = np.where(held, main, main_streams(np.where(used, owner, NULL), stream, timeline, count))
    rows = np.flatnonzero(used & (stream == on[owner]))
    first, last = extents(owner[rows], tasks.ts[rows], tasks.end[rows], count)
    return first, last, on


def find_segments(timeline: Timeline, steps: Steps, of_step: Int64, of_draft: Int64, of_verify: Int64) -> Segments:
    """Draft and target_verify of each step, by step. of_*: int64[tasks], the step each task is linked to, or NULL."""
    tasks = timeline.tasks
    stream = _streams(timeline)
    main = main_streams(of_step, stream, timeline, len(steps))
    parts = []
    for is_verify, owner in ((False, of_draft), (True, of_verify)):
        name = "target_verify_gpu_ms" if is_verify else "draft_gpu_ms"
        first, last, on = _placed(timeline, stream, main, owner)
        some = np.flatnonzero(last != NULL)
        ms = steps.floats(name)[some]
        record = np.where(np.isnan(ms), NULL, np.round(np.nan_to_num(ms) * 1e6)).astype(np.int64)
        start = np.where(record != NULL, last[some] - record, first[some])
        parts.append((some, np.full(len(some), is_verify), start, last[some], first[some], record, on[some]))
    step, is_verify_, ts, end, placed_ts, record_ns, on_stream = (np.concatenate(c) for c in zip(*parts, strict=True))
    order = np.lexsort((is_verify_, step))
    step, is_verify_, ts, end, placed_ts, record_ns, on_stream = (
        c[order] for c in (step, is_verify_, ts, end, placed_ts, record_ns, on_stream)
    )
    return Segments(
        step=step,
        is_verify=is_verify_,
        ts=ts,
        end=end,
        placed_ts=placed_ts,
        placed_end=end,
        record_ns=record_ns,
        kernel_sum_ns=overlap_sums(tasks.ts, tasks.end, ts, end),
        busy_union_ns=covered_within(merged(tasks.ts, tasks.end), ts, end),
        other_stream_busy_ns=_other_busy(timeline, stream, on_stream, ts, end),
        main_stream=main,
    )


def _streams(timeline: Timeline) -> Int64:
    """int64[tasks]: device and stream as one number, NULL for communication rows, which have no stream."""
    tasks = timeline.tasks
    key = np.maximum(tasks.device_id, 0).astype(np.int64) * 2**32 + tasks.stream_id
    return np.where(tasks.stream_id == NULL, NULL, key)


def main_streams(owner: Int64, stream: Int64, timeline: Timeline, count: int) -> Int64:
    """int64[count]: the stream with most busy time of the tasks of each owner (ties: the lowest), NULL where none."""
    tasks = timeline.tasks
    rows = np.flatnonzero((owner != NULL) & (stream != NULL))
    out = np.full(count, NULL, np.int64)
    if not len(rows):
        return out
    streams, inverse = np.unique(stream[rows], return_inverse=True)
    group = owner[rows] * len(streams) + inverse.reshape(-1)
    busy = union_lengths(group, tasks.ts[rows], tasks.end[rows], count * len(streams)).reshape(count, len(streams))
    there = np.zeros(count, np.bool_)
    there[owner[rows]] = True
    out[there] = streams[np.argmax(busy[there], axis=1)]
    return out


def _other_busy(timeline: Timeline, stream: Int64, main: Int64, start: Int64, end: Int64) -> Int64:
    """int64[m]: what the streams other than each segment's cover of it, communication rows included."""
    tasks = timeline.tasks
    out = np.zeros(len(start), np.int64)
    for one in np.unique(main).tolist():
        mine, others = main == one, stream != one
        out[mine] = covered_within(merged(tasks.ts[others], tasks.end[others]), start[mine], end[mine])
    return out


def _layer(timeline: Timeline, steps: Steps, s: Segments) -> Layer:
    layer = Layer(timeline.strings, timeline.slice_count)
    track = layer.track(
        "Segments",
        Kind.LANE,
        role=Role.DERIVED,
        order=20,
        description="Draft and Target Verify: elapsed time of the current stream. `inferred`: as long as the DSpark record "
        "says, ending with the last linked task of the main stream; `linked`: from the first to the last linked task.",
    )
    recorded: Bool = s.record_ns != NULL
    placed = s.placed_end - s.placed_ts
    columns = [
        int_column("step", s.step),
        int_column("forward_ct", steps.forward_ct[s.step]),
        texts_column("segment", layer.strings, ["target_verify" if v else "draft" for v in s.is_verify.tolist()]),
        int_column("record_ns", s.record_ns),
        int_column("placed_ns", placed),
        int_column("residual_ns", s.record_ns - placed, recorded),
        int_column("kernel_sum_ns", s.kernel_sum_ns),
        int_column("busy_union_ns", s.busy_union_ns),
        int_column("other_stream_busy_ns", s.other_stream_busy_ns),
        evidence_column(layer.strings, ~recorded, "linked", "inferred"),
    ]
    names = ["Target Verify" if v else "Draft" for v in s.is_verify.tolist()]
    layer.add_slices(track, s.ts, s.end - s.ts, names, "npu.segment", columns)
    return layer


def _add_flows(timeline: Timeline, out: Annotation, owner: Int64, slices: Int64, starts: Int64) -> None:
    """An arrow from each span to the first task linked to it."""
    linked = np.flatnonzero(owner != NULL)
    if not len(linked) or out.layer is None:
        return
    span, at = np.unique(owner[linked], return_index=True)  # tasks are sorted by start: the first of each
    into = timeline.tasks.slice[linked[at]]
    out.layer.flows.append(FlowBatch(timeline.strings.add("npu.link"), slices[span], into, starts[span]))
