"""A conversion, top to bottom: find captures, read, align, annotate, write.

find captures -> read each source -> Timeline per rank -> align clocks -> annotate -> lay out lanes -> encode
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from converter import cut, derive, threads
from converter.archive import Encoding, encoded, write_archive
from converter.arrange import arrange
from converter.assemble import assemble
from converter.capture import Capture
from converter.changes import changes, stamps
from converter.device_tracks import process_track
from converter.find import find_captures
from converter.fingerprint import uuid_packet
from converter.group_labels import label_groups
from converter.options import Options
from converter.parallel import Workers
from converter.rank import Rank
from converter.readers.side_files import read_side_files
from converter.shelf import fits_in_memory, put, side_folder
from converter.sketch import Sketch, sketch
from converter.summary import Summary, of_rank
from converter.target import whole_file
from converter.write.document import clock_header, encode
from schemas.errors import InputError, printable
from schemas.roles import Roles, load_roles
from schemas.timeline import Kind, Timeline

if TYPE_CHECKING:
    from converter.readers.memory_csv import MemoryCounter

Progress = Callable[[str], None]

MAX_DAMAGE_FACTS = 100


def convert(
    inputs: Sequence[str],
    output: str,
    options: Options = Options(),
    progress: Progress = lambda _: None,
    workers: Workers = Workers(),
) -> Summary:
    """Converts captures into one trace under `output`, a process group per rank; returns what was done.

    workers: where ranks are read, annotated and encoded. Raises UsageError, InputError (nothing is written), WorkerError
    or OutputError (nothing remains under the target).
    """
    captures = find_captures(inputs)
    return write(captures, output, options, progress, workers)


def write(
    captures: Sequence[Capture], output: str, options: Options, progress: Progress, workers: Workers = Workers()
) -> Summary:
    """The same for captures already found. Three passes over the ranks; between them a rank waits on disk, unless there
    is but one or all are small."""
    summary = Summary(output)
    captures = sorted(captures, key=lambda c: c.rank)
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_collector())
        stack.enter_context(threads.of_this_process(workers.threads()))
        places: list[str | None] = [None] * len(captures)
        if options.layout == "archive" or (not (workers.alone and fits_in_memory(captures)) and len(captures) > 1):
            folder = stack.enter_context(side_folder(output, options.run))
            places = [os.path.join(folder, f"rank{c.rank}") for c in captures]
        # Names are needed to annotate, to find steps, and to find what ranks have in common.
        needs_roles = options.annotate or options.steps or len(captures) > 1
        roles = load_roles(options.roles) if needs_roles else None
        say = progress if workers.alone else None
        if say is None:
            progress(f"reading {len(captures)} ranks")
        sketches = workers.map(_read, [_Reading(c, options, roles, p, len(captures) > 1, say) for c, p in zip(captures, places, strict=True)])  # fmt: skip
        progress("annotating")
        plans = derive.plans(sketches, places, options, roles, summary)
        records_damage = list(summary.damage)  # of the files of --dspark; those of the ranks are theirs
        derived = workers.map(derive.derive, plans)
        several = len(derived) > 1
        for d in derived:
            for annotation in d.rank.annotations.values():
                annotation.warnings = [of_rank(text, d.rank.timeline.rank, several) for text in annotation.warnings]
        found = derive.across(derived, options, summary)
        for d in derived:
            summary.add_rank(d.rank.timeline, d.rank.side.facts.get("damage", []), several)
        layers = [a.layer for a in found.values() if a.layer is not None]
        summary.derived_samples = sum(d.samples for d in derived) + sum(len(c) for a in layers for c in a.counters)
        summary.derived_flows = sum(d.flows for d in derived) + sum(len(f.out) for a in layers for f in a.flows)
        start = min(d.start for d in derived)
        last = derive.all_ranks([c.rank for c in captures], options, found, start)
        if summary.damaged:
            # --skip-existing would leave it, and say nothing: a damaged input is named each time.
            last.facts.pop("fingerprint", None)
        if facts := option_facts(options):
            last.facts["option"] = facts
        if records := [f"{os.path.basename(file)}: {text}" for file, texts in records_damage for text in texts]:
            last.facts["damage"] = damage_facts(records, "")
        peers = found["deepep_peers"].tables.get("peers", {}) if "deepep_peers" in found else {}
        progress(f"writing {output}")
        encodings = [
            Encoding(d.held, number, derive.one_host(derived), peers.get(d.rank.timeline.rank), place)
            for number, (d, place) in enumerate(zip(derived, places, strict=True))
        ]
        with whole_file(output, compress=output.endswith(".gz"), run=options.run) as file:
            if options.fingerprint and not summary.damaged:
                file.write(uuid_packet(options.fingerprint))
            if options.layout == "archive":
                write_archive(file, derived, encodings, last, workers)
            else:
                file.write(clock_header(start, [reading for d in derived for reading in d.shared_readings]))
                for block in encoded(encodings, workers):
                    file.write(block)
                for block in encode(last, len(encodings)):
                    file.write(block)
        summary.bytes = os.path.getsize(output) if output != "-" else 0
    return summary


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Millions of small tuples and dicts come and go while JSON is read; the collector would scan them for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True)
class _Reading:
    capture: Capture
    options: Options
    roles: Roles | None
    place: str | None
    several: bool
    progress: Progress | None


def _read(job: _Reading) -> Sketch:
    with without_collector():
        rank = read(job.capture, job.options, job.progress or (lambda _: None))
        if job.options.drop:
            cut.drop_categories(rank.timeline, job.options.drop)
        return sketch(rank, put(rank, job.place), job.roles if job.several else None)


def read(capture: Capture, options: Options, progress: Progress = lambda _: None) -> Rank:
    """The Timeline of one capture and its side files, as recorded: no clock is moved.

    Raises InputError where nothing in it is usable.
    """
    # The readers bring pyarrow and msgspec: each is imported when there is something to read.
    # In a C locale a name has surrogates for its bytes; in the trace it is the name.
    timeline = Timeline(capture.rank, os.fsencode(capture.input).decode("utf-8", "replace"))
    timeline.warnings += capture.notes
    before = stamps(capture.data_files)
    process_track(timeline)
    rows = parts = None
    of_task_time = False
    db_facts: dict[str, str | int] = {}
    host_uid = None
    from_db = bool(capture.dbs) and (options.prefer == "db" or not capture.texts)
    if capture.dbs and capture.texts:
        said = "the database is read" if from_db else "the text is read (--prefer db reads the database)"
        timeline.warn(f"{printable(capture.path)}: holds a text export and a database; {said}")
    if from_db:
        progress(f"reading {os.path.basename(capture.dbs[0])}")
        from converter.readers import sqlite_export

        export = sqlite_export.read_export(
            capture.dbs[0], timeline, pmu=options.pmu, max_input_bytes=options.max_input_bytes
        )
        parts, db_facts, host_uid = export.parts, export.facts, export.host_uid
    elif capture.trace_jsons:
        progress(f"reading {', '.join(map(os.path.basename, capture.trace_jsons))}")
        from converter.readers import trace_json

        parts = trace_json.read_trace_json(
            [Path(p) for p in capture.trace_jsons], timeline, max_input_bytes=options.max_input_bytes
        )
    if not from_db and (capture.kernel_csvs or (capture.task_time_csvs and parts is None)):
        from converter.readers import kernel_csv
    if capture.kernel_csvs and not from_db:
        progress(f"reading {', '.join(map(os.path.basename, capture.kernel_csvs))}")
        rows = kernel_csv.read_kernel_rows(
            [Path(p) for p in capture.kernel_csvs],
            timeline.strings,
            timeline.tally.slices,
            timeline.warn,
            pmu=options.pmu,
        )
    elif capture.task_time_csvs and parts is None:
        of_task_time = True
        rows = kernel_csv.read_task_time(
            [Path(p) for p in capture.task_time_csvs], timeline.strings, timeline.tally.slices, timeline.warn
        )
    if rows is None and parts is None:
        raise InputError(capture.path, "holds nothing that can be read", todo="give a kernel_details.csv or a trace")
    if rows is None and not from_db and capture.kind in ("torch_npu", "mindspore"):
        timeline.warn("no kernel_details.csv: the tasks are the hardware slices of the trace")
    if capture.iteration_csvs or (capture.mark_csvs and parts is None):
        from converter.readers import msprof_tables

        msprof_tables.read_iterations(capture.iteration_csvs, timeline)
        if parts is None:
            msprof_tables.read_marks(capture.mark_csvs, timeline)
    assemble(timeline, rows, parts, compute_only=of_task_time)
    if not sum(map(len, timeline.slices)) and not sum(map(len, timeline.counters)):
        first = next(iter(timeline.tally.slices.first.values()), "")
        raise InputError(
            (capture.data_files or [capture.path])[0],
            "nothing in it is usable" + (f" (first: {first})" if first else ""),
            todo="see the counts of what was dropped" if timeline.tally.slices.dropped else "",
        )
    if capture.memory_csvs and not from_db:
        from converter.readers import memory_csv

        counted = timeline.tally.counters
        for counter in memory_csv.read_memory([Path(p) for p in capture.memory_csvs], timeline.warn, counted):
            _add_memory(timeline, counter)
    arrange(timeline)
    side = read_side_files(capture)
    label_groups(timeline, side.groups)
    if capture.statistic_csvs:
        from converter.readers import msprof_tables

        side.facts |= msprof_tables.communication_statistic(capture.statistic_csvs, timeline)
    if capture.communication_jsons or capture.analysis_dbs:
        from converter.readers import hccl_detail

        analysis = capture.analysis_dbs if from_db or not capture.communication_jsons else []
        jsons = [] if analysis else capture.communication_jsons
        hccl_detail.attach(timeline, hccl_detail.read_detail(jsons, analysis, timeline.warn))
    side.facts |= db_facts
    side.host.host_uid = side.host.host_uid or host_uid
    for change in changes(before):
        timeline.warn(change, damaged=True)
    timeline.facts = side.facts
    timeline.clocks = side.relations
    for warning in side.warnings:
        timeline.warn(warning, damaged=True)
    if timeline.damage:
        timeline.facts["damage"] = damage_facts(timeline.damage, capture.path)
    return Rank(timeline, capture, side)


def damage_facts(warnings: Sequence[str], path: str) -> list[str]:
    """Warnings about the bytes of a capture as the facts `capture.damage[0]`, ... Files are named from its folder on: a
    trace does not depend on where its input was copied or fetched to."""
    folders = {f"{folder.rstrip('/')}/" for folder in (path, os.path.dirname(path)) if folder}
    out = []
    for text in warnings[:MAX_DAMAGE_FACTS]:
        for folder in sorted(folders, key=len, reverse=True):
            text = text.replace(folder, "")
        out.append(printable(text, 500))
    if len(warnings) > MAX_DAMAGE_FACTS:
        out.append(f"and {len(warnings) - MAX_DAMAGE_FACTS:,} more")
    return out


def option_facts(options: Options) -> dict[str, str]:
    """What was left out on request, as typed: the facts `option.window`, `option.steps`, `option.drop`."""
    out = {}
    if options.window is not None:
        out["window"] = options.window
    if options.steps is not None:
        out["steps"] = f"{options.steps[0]}:{options.steps[1]}"
    if options.drop:
        out["drop"] = ",".join(options.drop)
    return out


def _add_memory(timeline: Timeline, counter: MemoryCounter) -> None:
    group = next((i for i, t in enumerate(timeline.tracks) if t.kind is Kind.GROUP and t.name == "Memory"), None)
    if group is None:
        group = timeline.track(
            "Memory", Kind.GROUP, parent=process_track(timeline), description="memory_record.csv, values as written."
        )
    track = timeline.track(counter.name, Kind.COUNTER, parent=group, unit=counter.unit)
    timeline.add_samples(track, counter.ts, counter.values)
