"""From Timelines to documents: align the ranks' clocks, cut to the window, annotate, put the facts on root tracks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from annotators import pmu, vendor_times
from annotators.align import align
from annotators.annotation import Annotation
from annotators.deepep import Peers, add_peers
from annotators.group_condition import group_condition, group_warnings
from annotators.times import rank_times
from converter import annotate, aside, cut
from converter.arrange import set_pid, tell_processes_apart
from converter.options import Options
from converter.rank import Rank
from converter.shelf import Held, put, take
from converter.sketch import Sketch, busy_only, first_time
from converter.summary import Summary
from converter.window import doubts, parse_window
from converter.window_cut import cut_to_window
from converter.write.document import REALTIME, Document, merge_layers
from schemas.errors import InputError, printable
from schemas.roles import Roles
from schemas.timeline import Clock, Kind, Layer, Role, StringPool, Timeline, empty_device, empty_host, empty_tasks

if TYPE_CHECKING:
    from schemas.dspark import RankRecords

MONOTONIC, FIRST_OWN_CLOCK = 3, 64  # BuiltinClock ids; 64 to 127 belong to one sequence

ROOT = "Rank {rank} · DSpark"
ROOT_DESCRIPTION = (
    "What npu-perfetto derives from the recorded events. Each slice says how it is known: recorded, linked (by id, "
    "flow or replay order) or inferred (from names, order or a duration)."
)


@dataclass(frozen=True)
class Plan:
    """What is known of a rank once all ranks were seen. pid: of its process; window: trace time, of --window, and
    origin, what its + counts from; first_forward_ct: the user's word for its first step; shift: False where an archive's manifest holds the offset."""

    held: Held
    place: str | None
    clock: Clock
    pid: int
    window: tuple[int, int] | None
    origin: int
    records: RankRecords | None
    options: Options
    target: str
    roles: Roles | None
    one_host: bool
    alone: bool
    shift: bool = True


@dataclass
class Derived:
    """An annotated rank. rank: the light one, with Annotations that keep only what others need; counts: slices by
    annotator; start: where its first instant stands; shared_readings: clocks that all ranks share; samples, flows: how
    many annotators made."""

    held: Held
    rank: Rank
    counts: dict[str, int]
    start: int
    shared_readings: list[dict[int, int]]
    samples: int = 0
    flows: int = 0


def plans(
    sketches: Sequence[Sketch], places: Sequence[str | None], options: Options, roles: Roles | None, summary: Summary
) -> list[Plan]:
    """A plan per rank: its clock, its part of --window, its process id, its records."""
    clocks, window = align_clocks(sketches, options, roles)
    firsts = [s.first + c.offset_ns for s, c in zip(sketches, clocks, strict=True)]
    if window is not None and options.window is not None:
        last = max(s.last + c.offset_ns for s, c in zip(sketches, clocks, strict=True))
        summary.warnings += doubts(options.window, window, (min(firsts), last))
    records = _records([s.timeline.rank for s in sketches], options, summary)
    one_host = all(c.method in ("reference", "same_host") for c in clocks)
    timelines = [s.timeline for s in sketches]
    pids = tell_processes_apart(timelines)
    return [
        Plan(
            s.held, place, clock, pid, window, min(firsts), records.get(s.timeline.rank), options, summary.output, roles, one_host,
            alone=len(sketches) < 2, shift=options.layout == "single",
        )
        for s, place, clock, pid in zip(sketches, places, clocks, pids, strict=True)
    ]  # fmt: skip


def derive(plan: Plan) -> Derived:
    """Puts a rank on the trace's clock, cuts it, annotates it."""
    rank, options = take(plan.held), plan.options
    timeline = rank.timeline
    if plan.place is None:
        rank.aside = aside.for_rank(timeline, plan.target)
    set_pid(timeline, plan.pid)
    timeline.clock = plan.clock
    offset = plan.clock.offset_ns
    if plan.shift:
        cut.shift(timeline, offset)
    first = options.first_forward_ct.get(timeline.rank, options.first_forward_ct.get(None))
    whole = None
    if plan.window is not None:
        back = 0 if plan.shift else offset
        path = rank.capture.path
        whole = cut_to_window(timeline, plan.window, plan.origin, back, path, plan.records, first, plan.roles)
    if options.steps is not None and plan.roles is not None:
        from converter.steps_window import cut_to_steps

        whole = cut_to_steps(timeline, options.steps, plan.records, first, plan.roles, whole)
    clock = plan.clock
    if clock.causality_violations:
        timeline.warn(
            f"rank {timeline.rank}: {clock.causality_violations} of {clock.launch_pairs} tasks start before the "
            f"call that launched them (at worst {clock.worst_violation_ns:,} ns): host and device clocks agree no "
            "better than that"
        )
    rank.annotations["vendor_times"] = vendor_times.annotate(timeline)
    annotate.rank(rank, options, plan.roles, plan.records, first, whole)
    if options.pmu_counters:
        rank.annotations["pmu"] = pmu.annotate(timeline, options.pmu_counters)
    light = _bare_annotations(rank, plan)
    counts = {name: a.slice_count for name, a in rank.annotations.items()}
    layers = [a.layer for a in rank.annotations.values() if a.layer is not None]
    samples, flows = (sum(len(c) for a in layers for c in a.counters), sum(len(f.out) for a in layers for f in a.flows))
    for a in rank.annotations.values():
        a.tables.clear()  # the light ones keep what is still needed
    start = timeline.window[0] if timeline.window else first_time(timeline)
    shared = _readings(timeline, plan.one_host)[1]
    return Derived(put(rank, plan.place), light, counts, start, shared, samples, flows)


def _bare_annotations(rank: Rank, plan: Plan) -> Rank:
    """The light rank, in trace time."""
    timeline = rank.timeline if plan.alone else busy_only(rank.timeline)
    back = 0 if plan.shift or plan.alone else plan.clock.offset_ns
    cut.shift(timeline, back)
    light = Rank(timeline, rank.capture, rank.side)
    for name, a in rank.annotations.items():
        tables = {k: v.moved(back) for k, v in a.tables.items() if k == "deepep"}
        light.annotations[name] = replace(a, layer=None, tables=tables)
    return light


def across(derived: Sequence[Derived], options: Options, summary: Summary) -> dict[str, Annotation]:
    """What spans ranks; and what the annotators of all ranks have to say, in the order of the ranks."""
    ranks = [d.rank for d in derived]
    refused = _not_comparable(ranks, options, summary)
    for d in derived:
        for name, annotation in d.rank.annotations.items():
            _count(summary, name, d.counts[name], annotation, f"rank {d.rank.timeline.rank}")
    summary.warnings += annotate.doubtful_records(ranks, options)
    found = annotate.across(ranks, options, refused)
    for name, annotation in found.items():
        _count(summary, name, annotation.slice_count, annotation, "all ranks")
    if summary.server:
        found["server"] = Annotation(facts={"server": summary.server})
    return found


def _records(numbers: Sequence[int], options: Options, summary: Summary) -> dict[int, RankRecords]:
    """The DSpark records of each rank. A file that fails is said and leaves the trace without it (exit 1)."""
    out: dict[int, RankRecords] = {}
    if not options.dspark or not options.annotate:
        return out
    from converter.readers.dspark import read_records

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
        summary.warnings += [f"{printable(os.path.basename(path))}: {text}" for text in found.warnings]
        summary.damaged |= found.damaged
        if found.damage:
            summary.damage.append((path, found.damage))
        summary.server.update(found.server)
        for number in numbers if only is None else [only]:
            mine = found.for_rank(number) if only is None or len(found.ranks) > 1 else found.ranks[0]
            if mine is not None:
                out[number] = mine
    return out


def align_clocks(
    sketches: Sequence[Sketch], options: Options, roles: Roles | None
) -> tuple[list[Clock], tuple[int, int] | None]:
    """The clock of every rank, and --window in trace time.

    The window is resolved first: anchors outside of it say nothing about the clocks inside (a long profile drifts).
    """
    timelines = [s.timeline for s in sketches]

    def clocks_in(window: tuple[int, int] | None) -> list[Clock]:
        return align(
            timelines,
            reference_rank=options.reference_rank,
            assume_aligned=options.assume_aligned,
            host_facts={s.timeline.rank: s.host for s in sketches},
            roles=roles,
            window=window,
        )

    clocks, window = clocks_in(None), None
    if options.window is not None:
        first = min(s.first + c.offset_ns for s, c in zip(sketches, clocks, strict=True))
        window = parse_window(options.window).resolve(first)
        clocks = clocks_in(window)
    for sketch, clock in zip(sketches, clocks, strict=True):
        clock.launch_pairs, clock.causality_violations, clock.worst_violation_ns = sketch.launch
    return clocks, window


def _not_comparable(ranks: Sequence[Rank], options: Options, summary: Summary) -> str | None:
    """Why figures over ranks are refused, or None."""
    if len(ranks) < 2:
        return None
    declared = [r.side.declared_ranks for r in ranks if r.side.declared_ranks]
    together: set[int] | None = set().union(*declared) if declared else None
    timelines = [r.timeline for r in ranks]
    clocks = [replace(t.clock, offset_ns=0) for t in timelines]  # the light ones are in trace time already
    reason = group_condition(timelines, clocks, options.clock_tolerance_ns, together)
    if reason is None:
        summary.warnings += group_warnings(timelines, clocks, together)
    return reason


def _count(summary: Summary, name: str, count: int, annotation: Annotation, who: str) -> None:
    entry = summary.annotators.setdefault(name, {"slices": 0, "skipped": None})
    entry["slices"] += count
    if annotation.skipped is not None and not entry["slices"]:
        entry["skipped"] = annotation.skipped
    elif annotation.skipped is None:
        entry["skipped"] = None
    if "dspark" in annotation.facts:
        entry.setdefault("matching", {})[who] = annotation.facts["dspark"]
    summary.warnings += annotation.warnings
    for reason in annotation.refused:
        summary.refused.append(f"{who}: {reason}")


def document(rank: Rank, one_host: bool, peers: Peers | None = None) -> Document:
    """A rank's part of the trace. peers: what is known of its dispatches and combines once all ranks are."""
    timeline = rank.timeline
    if peers is not None:
        add_peers(rank.annotations["deepep"], peers)
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
    timeline.tasks, timeline.host, timeline.device = empty_tasks(), empty_host(), empty_device()  # not needed any more
    merged = merge_layers(timeline, layers, root)
    own, shared = _readings(timeline, one_host)
    return Document(
        merged, _facts_track(merged, root), facts, start, own, shared, rank.aside.release if rank.aside else None
    )


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
            if reading[REALTIME] >= 0:  # a snapshot has no times before the epoch
                (shared if clock_id == MONOTONIC else out).append(reading)
    return out, shared


def all_ranks(numbers: Sequence[int], options: Options, across: dict[str, Annotation], start: int) -> Document:
    """The part of the trace that spans ranks, and the facts of the run."""
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
        "ranks": ", ".join(map(str, numbers)),
    }
    if options.fingerprint:
        facts["fingerprint"] = options.fingerprint
    if options.facts:
        facts["run"] = dict(options.facts)
    for name, annotation in across.items():
        facts.update(annotation.facts)
        if annotation.refused:
            facts.setdefault("refused", {})[name] = "; ".join(annotation.refused)
    merged = merge_layers(run, layers, root)
    return Document(merged, _facts_track(merged, root), facts, start)


def one_host(derived: Sequence[Derived]) -> bool:
    """Do all ranks of the trace share one host, and so MONOTONIC?"""
    return all(d.rank.timeline.clock.method in ("reference", "same_host") for d in derived)
