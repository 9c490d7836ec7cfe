"""From Timelines to documents: align the ranks' clocks, cut to the window, annotate, put the facts on root tracks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from annotators import vendor_times
from annotators.align import align
from annotators.annotation import Annotation
from annotators.group_condition import group_condition, group_warnings
from annotators.launch_check import launch_check
from annotators.times import rank_times
from converter import annotate, cut
from converter.options import Options
from converter.rank import Rank
from converter.summary import Summary
from converter.window import parse_window
from converter.write.document import REALTIME, Document, merge_layers
from schemas.errors import InputError
from schemas.roles import Roles, load_roles
from schemas.timeline import Clock, Kind, Layer, Role, StringPool, Timeline

if TYPE_CHECKING:
    from schemas.dspark import RankRecords

Progress = Callable[[str], None]
MONOTONIC, FIRST_OWN_CLOCK = 3, 64  # BuiltinClock ids; 64 to 127 belong to one sequence

ROOT = "Rank {rank} · DSpark"
ROOT_DESCRIPTION = (
    "What npu-perfetto derives from the recorded events. Each slice says how it is known: recorded, linked (by id, "
    "flow or replay order) or inferred (from names, order or a duration)."
)


def documents(ranks: Sequence[Rank], options: Options, summary: Summary, progress: Progress) -> list[Document]:
    """A document per rank, then one for `All ranks`."""
    # Names are needed to annotate, and to find what ranks have in common.
    roles = load_roles(options.roles) if options.annotate or len(ranks) > 1 else None
    refused = align_clocks(ranks, options, roles, summary)
    one_host = _one_host(ranks)
    records = _records(ranks, options, summary)
    for rank in ranks:
        progress(f"annotating rank {rank.timeline.rank}")
        rank.annotations["vendor_times"] = vendor_times.annotate(rank.timeline)
        annotate.rank(rank, options, roles, records.get(rank.timeline.rank))
    across = annotate.across(ranks, options, refused)
    for rank in ranks:
        for name, annotation in rank.annotations.items():
            _count(summary, name, annotation, f"rank {rank.timeline.rank}")
    for name, annotation in across.items():
        _count(summary, name, annotation, "all ranks")
    out = [_document(rank, one_host) for rank in ranks]
    out.append(_all_ranks(ranks, options, across, out))
    return out


def _records(ranks: Sequence[Rank], options: Options, summary: Summary) -> dict[int, RankRecords]:
    """The DSpark records of each rank. A file that fails is said and leaves the trace without it (exit 1)."""
    out: dict[int, RankRecords] = {}
    if not options.dspark or not options.annotate:
        return out
    from converter.readers.dspark import read_records

    numbers = [r.timeline.rank for r in ranks]
    for only, path in options.dspark:
        try:
            found = read_records(path)
            if only is not None and only not in numbers:
                raise InputError(
                    path, f"is for rank {only}, which is not among the inputs", todo="check --dspark RANK="
                )
        except InputError as error:
            summary.failed_side_inputs.append(str(error))
            continue
        summary.warnings += found.warnings
        summary.damaged |= found.damaged
        for number in numbers if only is None else [only]:
            mine = found.for_rank(number) if only is None or len(found.ranks) > 1 else found.ranks[0]
            if mine is not None:
                out[number] = mine
    return out


def align_clocks(ranks: Sequence[Rank], options: Options, roles: Roles | None, summary: Summary) -> str | None:
    """Moves every rank by its offset and cuts it to --window; why figures over ranks are refused, or None.

    The window is resolved first: anchors outside of it say nothing about the clocks inside (a long profile drifts).
    """
    timelines = [r.timeline for r in ranks]

    def clocks_in(window: tuple[int, int] | None) -> list[Clock]:
        return align(
            timelines,
            reference_rank=options.reference_rank,
            assume_aligned=options.assume_aligned,
            host_facts={r.timeline.rank: r.side.host for r in ranks},
            roles=roles,
            window=window,
        )

    clocks, window = clocks_in(None), None
    if options.window is not None:
        firsts = [
            (t.window[0] if t.window else first_time(t)) + c.offset_ns for t, c in zip(timelines, clocks, strict=True)
        ]
        window = parse_window(options.window).resolve(min(firsts))
        clocks = clocks_in(window)
    for timeline, clock in zip(timelines, clocks, strict=True):
        timeline.clock = clock
        clock.launch_pairs, clock.causality_violations, clock.worst_violation_ns = launch_check(timeline)
        cut.shift(timeline, clock.offset_ns)
        if window is not None:
            cut.to_window(timeline, window)
            if not len(timeline.tasks):
                timeline.warn(f"rank {timeline.rank}: no recorded task lies in the window")
        if clock.causality_violations:
            timeline.warn(
                f"rank {timeline.rank}: {clock.causality_violations} of {clock.launch_pairs} tasks start before the "
                f"call that launched them (at worst {clock.worst_violation_ns:,} ns): host and device clocks agree no "
                "better than that"
            )
    if len(ranks) < 2:
        return None
    declared = [r.side.declared_ranks for r in ranks if r.side.declared_ranks]
    together: set[int] | None = set().union(*declared) if declared else None
    moved = [replace(c, offset_ns=0) for c in clocks]  # the timelines are in trace time already
    reason = group_condition(timelines, moved, options.clock_tolerance_ns, together)
    if reason is None:
        summary.warnings += group_warnings(timelines, moved, together)
    return reason


def _one_host(ranks: Sequence[Rank]) -> bool:
    return all(r.timeline.clock.method in ("reference", "same_host") for r in ranks)


def _count(summary: Summary, name: str, annotation: Annotation, who: str) -> None:
    entry = summary.annotators.setdefault(name, {"slices": 0, "skipped": None})
    entry["slices"] += annotation.slice_count
    if annotation.skipped is not None and not entry["slices"]:
        entry["skipped"] = annotation.skipped
    elif annotation.skipped is None:
        entry["skipped"] = None
    if "dspark" in annotation.facts:
        entry.setdefault("matching", {})[who] = annotation.facts["dspark"]
    summary.warnings += annotation.warnings
    for reason in annotation.refused:
        summary.refused.append(f"{who}: {reason}")


def _document(rank: Rank, one_host: bool) -> Document:
    timeline = rank.timeline
    root = timeline.track(
        ROOT.format(rank=timeline.rank),
        Kind.GROUP,
        role=Role.DERIVED,
        explicit_order=True,
        order=1 + timeline.rank,
        description=ROOT_DESCRIPTION,
    )
    layers = [a.layer for a in rank.annotations.values() if a.layer is not None]
    start = timeline.window[0] if timeline.window else first_time(timeline)
    facts: dict[str, Any] = {"source": timeline.source}
    tasks = timeline.tasks
    if len(tasks):
        facts["times"] = rank_times(tasks.ts, tasks.dur, tasks.wait_ns, timeline.window).as_facts()
    facts["clock"] = {k: v for k, v in timeline.clock.__dict__.items() if v is not None}
    facts["capture"] = timeline.facts
    for what in ("slices", "counters", "flows"):
        tally = getattr(timeline.tally, what)
        facts[f"input_{what}"] = {"read": tally.read, "written": tally.written, "dropped": tally.dropped}
    for name, annotation in rank.annotations.items():
        facts.update(annotation.facts)
        if annotation.skipped:
            facts.setdefault("skipped", {})[name] = annotation.skipped
        if annotation.refused:
            facts.setdefault("refused", {})[name] = "; ".join(annotation.refused)
    merged = merge_layers(timeline, layers, root)
    own, shared = _readings(timeline, one_host)
    return Document(merged, _facts_track(merged, root), facts, start, own, shared)


def _facts_track(layer: Layer, root: int) -> int:
    """A child of its own: an instant on the root itself would make the UI show the root as a row, not as a heading."""
    return layer.track(
        "Facts", parent=root, order=1000, description="Capture facts, run facts and tallies: the table npu_facts."
    )


def _readings(timeline: Timeline, one_host: bool) -> tuple[list[dict[int, int]], list[dict[int, int]]]:
    """Clock snapshots: (clocks of the rank's own sequence, MONOTONIC where all ranks share one host)."""
    own: dict[str, int] = {}
    out: list[dict[int, int]] = []
    shared: list[dict[int, int]] = []
    for relation in timeline.clocks:
        clock = relation["clock"]
        if clock == "monotonic" and one_host:
            clock_id = MONOTONIC
        else:
            clock_id = own.setdefault(clock, FIRST_OWN_CLOCK + len(own))
        period = relation.get("period_ns") or 1
        for value, realtime in relation["readings"]:
            reading = {REALTIME: realtime + timeline.clock.offset_ns, clock_id: value * period}
            (shared if clock_id == MONOTONIC else out).append(reading)
    return out, shared


def _all_ranks(
    ranks: Sequence[Rank], options: Options, across: dict[str, Annotation], documents: Sequence[Document]
) -> Document:
    layers = [a.layer for a in across.values() if a.layer is not None]
    run = Layer(layers[0].strings if layers else StringPool())
    root = run.track(
        "All ranks",
        Kind.GROUP,
        role=Role.DERIVED,
        explicit_order=True,
        order=0,
        description="What spans ranks. Figures over ranks are made only where their clocks are known to agree.",
    )
    facts: dict[str, Any] = {
        "tool": {"name": "npu-perfetto", "version": version("npu-perfetto")},
        "ranks": ", ".join(str(r.timeline.rank) for r in ranks),
    }
    if options.facts:
        facts["run"] = dict(options.facts)
    for name, annotation in across.items():
        facts.update(annotation.facts)
        if annotation.refused:
            facts.setdefault("refused", {})[name] = "; ".join(annotation.refused)
    merged = merge_layers(run, layers, root)
    return Document(merged, _facts_track(merged, root), facts, min(d.start for d in documents))


def first_time(timeline: Timeline) -> int:
    """The earliest time of anything recorded; 0 in an empty Timeline."""
    firsts = [int(b.ts.min()) for b in timeline.slices if len(b)]
    firsts += [int(c.ts.min()) for c in timeline.counters if len(c)]
    return min(firsts, default=0)
