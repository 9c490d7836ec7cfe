"""From Timelines to documents: align the ranks' clocks, annotate, and put the facts on the root tracks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from annotators.times import rank_times
from converter.options import Options
from converter.rank import Rank
from converter.summary import Summary
from converter.write.document import Document, merge_layers
from schemas.timeline import Kind, Layer, Role, StringPool, Timeline

Progress = Callable[[str], None]
MONOTONIC, FIRST_OWN_CLOCK = 3, 64  # BuiltinClock ids; 64 to 127 belong to one sequence


def documents(ranks: Sequence[Rank], options: Options, summary: Summary, progress: Progress) -> list[Document]:
    """A document per rank, and one for `All ranks` where there is something to say of all of them."""
    run = Layer(StringPool())
    run_facts: dict[str, Any] = {"tool": {"name": "npu-perfetto", "version": version("npu-perfetto")}}
    if options.facts:
        run_facts["run"] = dict(options.facts)
    out = [_document(rank) for rank in ranks]
    root = run.track("All ranks", Kind.GROUP, role=Role.DERIVED, explicit_order=True, order=0)
    run_facts["ranks"] = ", ".join(str(r.timeline.rank) for r in ranks)
    out.append(Document(run, root, run_facts, min(d.start for d in out)))
    return out


def _document(rank: Rank) -> Document:
    timeline = rank.timeline
    root = timeline.track(
        f"Rank {timeline.rank} · DSpark",
        Kind.GROUP,
        role=Role.DERIVED,
        explicit_order=True,
        order=1 + timeline.rank,
        description="What npu-perfetto derives from the recorded events. Each slice says how it is known: recorded, "
        "linked (by id, flow or replay order) or inferred (from names, order or a duration).",
    )
    layers = [a.layer for a in rank.annotations.values() if a.layer is not None]
    layer = merge_layers(timeline, layers, root)
    start = timeline.window[0] if timeline.window else first_time(timeline)
    facts: dict[str, Any] = {"rank": timeline.rank, "source": timeline.source}
    tasks = timeline.tasks
    if len(tasks):
        facts["times"] = rank_times(tasks.ts, tasks.dur, tasks.wait_ns, timeline.window).as_dict()
    facts["clock"] = {k: v for k, v in timeline.clock.__dict__.items() if v is not None}
    facts["capture"] = timeline.facts
    for what in ("slices", "counters", "flows"):
        tally = getattr(timeline.tally, what)
        facts[f"input_{what}"] = {"read": tally.read, "written": tally.written, "dropped": tally.dropped}
    for annotation in rank.annotations.values():
        facts.update(annotation.facts)
    return Document(layer, root, facts, start)


def first_time(timeline: Timeline) -> int:
    """The earliest time of anything recorded; 0 in an empty Timeline."""
    firsts = [int(np.min(b.ts)) for b in (*timeline.slices, *timeline.counters) if len(b)]
    return min(firsts, default=0)
