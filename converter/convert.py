"""A conversion, top to bottom: find captures, read, align, annotate, write.

find captures -> read each source -> Timeline per rank -> align clocks -> annotate -> lay out lanes -> encode
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from converter import derive
from converter.arrange import arrange, tell_processes_apart
from converter.assemble import assemble
from converter.capture import Capture
from converter.device_tracks import process_track
from converter.find import find_captures
from converter.options import Options
from converter.rank import Rank
from converter.readers.side_files import read_side_files
from converter.summary import Summary
from converter.target import whole_file
from converter.write.document import clock_header, encode
from schemas.errors import InputError
from schemas.timeline import Kind, Timeline

if TYPE_CHECKING:
    from converter.readers.memory_csv import MemoryCounter

Progress = Callable[[str], None]


def convert(
    inputs: Sequence[str],
    output: str,
    options: Options = Options(),
    progress: Progress = lambda _: None,
) -> Summary:
    """Converts captures into one trace under `output`, a process group per rank; returns what was done.

    Raises UsageError, InputError (nothing is written) or OutputError (nothing remains under the target).
    """
    captures = find_captures(inputs)
    return write(captures, output, options, progress)


def write(captures: Sequence[Capture], output: str, options: Options, progress: Progress) -> Summary:
    """The same for captures already found."""
    summary = Summary(output)
    # Millions of small tuples and dicts come and go while JSON is read; the collector would scan them for nothing.
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        ranks = [read(capture, options, progress) for capture in sorted(captures, key=lambda c: c.rank)]
        tell_processes_apart([rank.timeline for rank in ranks])
        documents = derive.documents(ranks, options, summary, progress)
        for rank in ranks:
            summary.add_rank(rank.timeline)
        progress(f"writing {output}")
        with whole_file(output, compress=output.endswith(".gz")) as file:
            shared = [reading for d in documents for reading in d.shared_readings]
            file.write(clock_header(min(d.start for d in documents), shared))
            for number, document in enumerate(documents):
                for block in encode(document, number):
                    file.write(block)
        summary.bytes = os.path.getsize(output) if output != "-" else 0
    finally:
        if gc_was_on:
            gc.enable()
    return summary


def read(capture: Capture, options: Options, progress: Progress = lambda _: None) -> Rank:
    """The Timeline of one capture and its side files, as recorded: no clock is moved.

    Raises InputError where nothing in it is usable.
    """
    # The readers bring pyarrow and msgspec: each is imported when there is something to read.
    # In a C locale a name has surrogates for its bytes; in the trace it is the name.
    timeline = Timeline(capture.rank, os.fsencode(capture.input).decode("utf-8", "replace"))
    timeline.warnings += capture.notes
    process_track(timeline)
    rows = parts = None
    of_task_time = False
    if capture.trace_jsons:
        progress(f"reading {', '.join(map(os.path.basename, capture.trace_jsons))}")
        from converter.readers import trace_json

        parts = trace_json.read_trace_json(
            [Path(p) for p in capture.trace_jsons], timeline, max_input_bytes=options.max_input_bytes
        )
    if capture.kernel_csvs or (capture.task_time_csvs and parts is None):
        from converter.readers import kernel_csv
    if capture.kernel_csvs:
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
        if capture.dbs:
            raise InputError(
                capture.path,
                "holds only a SQLite export, which is not read yet",
                todo="export it as text (export_type text) and convert that",
            )
        raise InputError(capture.path, "holds nothing that can be read", todo="give a kernel_details.csv or a trace")
    if rows is None and capture.kind in ("torch_npu", "mindspore"):
        timeline.warn("no kernel_details.csv: the tasks are the hardware slices of the trace")
    assemble(timeline, rows, parts, compute_only=of_task_time)
    if not sum(map(len, timeline.slices)) and not sum(map(len, timeline.counters)):
        first = next(iter(timeline.tally.slices.first.values()), "")
        raise InputError(
            (capture.data_files or [capture.path])[0],
            "nothing in it is usable" + (f" (first: {first})" if first else ""),
            todo="see the counts of what was dropped" if timeline.tally.slices.dropped else "",
        )
    if capture.memory_csvs:
        from converter.readers import memory_csv

        counted = timeline.tally.counters
        for counter in memory_csv.read_memory([Path(p) for p in capture.memory_csvs], timeline.warn, counted):
            _add_memory(timeline, counter)
    arrange(timeline)
    side = read_side_files(capture)
    timeline.facts = side.facts
    timeline.clocks = side.relations
    for warning in side.warnings:
        timeline.warn(warning, damaged=True)
    return Rank(timeline, capture, side)


def _add_memory(timeline: Timeline, counter: MemoryCounter) -> None:
    group = next((i for i, t in enumerate(timeline.tracks) if t.kind is Kind.GROUP and t.name == "Memory"), None)
    if group is None:
        group = timeline.track(
            "Memory", Kind.GROUP, parent=process_track(timeline), description="memory_record.csv, values as written."
        )
    track = timeline.track(counter.name, Kind.COUNTER, parent=group, unit=counter.unit)
    timeline.add_samples(track, counter.ts, counter.values)
