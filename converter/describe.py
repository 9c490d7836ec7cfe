"""What would a conversion make of these inputs? Captures, files, what is left out and why, which annotators can run.

Nothing is written. A capture is read to tell what its annotators would find, unless it is larger than `READ_AT_MOST`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from converter import annotate
from converter.capture import Capture
from converter.convert import Progress, read, without_collector
from converter.file_kinds import kind_by_content, kind_by_name
from converter.find import check_paths, find_captures
from converter.options import ANNOTATORS, Options
from converter.remote import as_given, check_inputs, fetched, is_remote
from converter.request import Request, checked_options, inputs_of
from converter.sources import RAW_FOLDERS, side_file, source_of, why_not_read
from converter.talk import Talk
from schemas.errors import InputError, NpuPerfettoError, printable
from schemas.roles import load_roles

READ_AT_MOST = 2 << 30  # bytes of a capture's own files
MAX_FILES = 200  # shown per capture and list


@dataclass
class File:
    path: str
    bytes: int
    what: str  # what is read from it, or why it is not


@dataclass
class Found:
    """What one annotator would do: slices, or why it would not run; needs: what it lacks, "" where nothing."""

    runs: bool
    slices: int = 0
    needs: str = ""


@dataclass
class Described:
    """One capture. held: counts of what it holds; lacks: what was not recorded."""

    path: str
    rank: int
    rank_source: str
    kind: str
    read: list[File] = field(default_factory=list)
    not_read: list[File] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    annotators: dict[str, Found] = field(default_factory=dict)
    lacks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problem: str = ""  # why it can't be converted


@dataclass
class Description:
    captures: list[Described]
    problems: list[str]  # inputs that hold nothing to convert

    @property
    def usable(self) -> bool:
        return bool(self.captures) and not self.problems and not any(c.problem for c in self.captures)

    def as_dict(self) -> dict[str, Any]:
        return {"captures": [asdict(c) for c in self.captures], "problems": self.problems}


def describe_inputs(request: Request, form: str = "text") -> int:
    """Prints the description of what a request names; exit status. Raises UsageError as `convert` does."""
    inputs, options = inputs_of(request), checked_options(request)
    check_paths([path for path in inputs if not is_remote(path)])
    check_inputs([path for path in inputs if is_remote(path)])
    roles = [options.roles] if options.roles else []
    with (
        Talk(request.quiet, request.verbose).stage() as progress,
        fetched(inputs, options.max_input_bytes) as given,
        fetched(roles) as table,
    ):
        found = as_given(describe(list(given), replace(options, roles=next(iter(table), None)), progress), given)
    sys.stdout.write(as_text(found) if form == "text" else json.dumps(found.as_dict()) + "\n")
    return 0 if found.usable else 1


def describe(inputs: Sequence[str], options: Options = Options(), progress: Progress = lambda _: None) -> Description:
    """Raises UsageError for a path that isn't there or is given twice."""
    failures: list[InputError] = []
    try:
        captures = find_captures(inputs, failures)
    except InputError as error:  # two captures of one rank: nothing can be said of either
        return Description([], [str(e) for e in (*failures, error)])
    return Description([_capture(c, options, progress) for c in captures], [str(e) for e in failures])


def _capture(capture: Capture, options: Options, progress: Progress) -> Described:
    out = Described(capture.path, capture.rank, capture.rank_source, capture.kind)
    from_db = bool(capture.dbs) and (options.prefer == "db" or not capture.texts)
    used, unused = _chosen(capture, from_db)
    for path in used:
        kind = kind_by_name(os.path.basename(path)) or kind_by_content(path)
        out.read.append(File(path, _size(path), source_of(kind).gives))
    for path in _side_files(capture):
        out.read.append(File(path, _size(path), side_file(os.path.basename(path)) or "clock relations"))
    out.not_read = [File(path, _size(path), why) for path, why in unused]
    known = {os.path.realpath(f.path) for f in (*out.read, *out.not_read)}
    for path, why in _others(capture):
        if os.path.realpath(path) not in known:
            out.not_read.append(File(path, _size(path), why))
    size = sum(_size(path) for path in used)
    if size > READ_AT_MOST:
        out.warnings = list(capture.notes)
        out.lacks.append(f"not looked into: {size:,} bytes; convert it to see what it holds")
        return out
    try:
        _look_into(capture, options, progress, out)
    except NpuPerfettoError as error:
        out.problem = str(error)
    return out


def _look_into(capture: Capture, options: Options, progress: Progress, out: Described) -> None:
    """Reads the capture and runs its annotators, as a conversion would."""
    with without_collector():
        rank = read(capture, options, progress)
        timeline = rank.timeline
        progress(f"annotating rank {timeline.rank}")
        roles = load_roles(options.roles) if options.annotate else None
        annotate.rank(rank, options, roles, None)
    out.held = {
        "recorded tasks": len(timeline.tasks),
        "other device slices": len(timeline.device),
        "host slices": len(timeline.host),
        "flows": sum(len(f.out) for f in timeline.flows),
        "counter samples": sum(len(c) for c in timeline.counters),
        "dropped": sum(timeline.tally.slices.dropped.values()),
    }
    for name in ANNOTATORS:
        if (annotation := rank.annotations.get(name)) is not None:
            lacking = annotation.skipped or "; ".join(annotation.refused)
            out.annotators[name] = Found(not annotation.skipped, annotation.slice_count, lacking)
    if not len(timeline.host):
        out.lacks.append("host events: no launches, no host cover of gaps, no steps")
    if not len(timeline.tasks):
        out.lacks.append("recorded tasks: no gaps, no window")
    if not options.dspark:
        out.lacks.append("DSpark records (--dspark FILE): steps have no forward_ct, no record times")
    if isinstance(recorded := timeline.facts.get("not_recorded"), str) and recorded:
        out.lacks.append(f"not recorded by the profiler: {recorded}")
    out.warnings = timeline.warnings


def _chosen(capture: Capture, from_db: bool) -> tuple[list[str], list[tuple[str, str]]]:
    """(files that are read, (files of known kinds that are not, why))."""
    used: list[str] = []
    unused: list[tuple[str, str]] = []

    def put(paths: Sequence[str], is_read: bool, why: str) -> None:
        if is_read:
            used.extend(paths)
        else:
            unused.extend((path, why) for path in paths)

    instead = "the database is read instead" if from_db else ""
    put(capture.kernel_csvs, not from_db, instead)
    put(capture.trace_jsons, not from_db, instead)
    whole = bool(capture.kernel_csvs or capture.trace_jsons) or from_db
    put(capture.task_time_csvs, not whole, "the tasks are read from elsewhere")
    put(capture.dbs[:1], from_db, "the text export is read (--prefer db reads the database)")
    put(capture.memory_csvs, not from_db, instead)
    put(capture.step_trace_csvs, True, "")
    analysis = bool(capture.analysis_dbs) and (from_db or not capture.communication_jsons)
    put(capture.communication_jsons, not analysis, "analysis.db is read instead")
    put(capture.analysis_dbs, analysis, "communication.json is read instead")
    put(capture.iteration_csvs, True, "")
    put(capture.mark_csvs, not (capture.trace_jsons or from_db), "the trace holds the same marks")
    put(capture.statistic_csvs, True, "")
    return used, unused


def _side_files(capture: Capture) -> list[str]:
    one = [p for p in (capture.profiler_info, capture.profiler_metadata) if p]
    logs = (capture.start_infos, capture.end_infos, capture.host_start_logs, capture.dev_start_logs, capture.info_jsons)
    return [*one, *(path for paths in logs for path in paths)]


def _others(capture: Capture) -> Iterator[tuple[str, str]]:
    """Whatever else lies in the capture's folder, and why it is not read. Raw data is one line per folder."""
    if not os.path.isdir(capture.path):
        return
    count = 0
    for folder, folders, files in os.walk(capture.path):
        for name in sorted(folders):
            if name in RAW_FOLDERS:
                yield os.path.join(folder, name), "raw data, which the vendor's tools parse"
        folders[:] = sorted(name for name in folders if name not in RAW_FOLDERS)
        for name in sorted(files):
            count += 1
            if count > MAX_FILES:
                return
            path = os.path.join(folder, name)
            kind = kind_by_name(name)
            yield path, why_not_read(name) if kind is None else "another file of its kind is read (newest or whole)"


def _size(path: str) -> int:
    try:
        return 0 if os.path.isdir(path) else os.path.getsize(path)
    except OSError:
        return 0


def as_text(found: Description) -> str:
    """For people; every text of an input is escaped."""
    lines: list[str] = []
    for c in found.captures:
        lines.append(f"{printable(c.path)}: rank {c.rank} (by {c.rank_source}), {c.kind}")
        _files(lines, "read", c.read, c.path)
        _files(lines, "not read", c.not_read, c.path)
        if c.held:
            lines.append("  holds: " + ", ".join(f"{count:,} {what}" for what, count in c.held.items() if count))
        if c.annotators:
            lines.append("  annotators:")
        for name, a in c.annotators.items():
            said = f"{a.slices:,} slices" if a.runs else f"can't run: {printable(a.needs)}"
            lines.append(f"    {name}: {said}" + (f" ({printable(a.needs)})" if a.runs and a.needs else ""))
        lines += [f"  lacks: {printable(text, 300)}" for text in c.lacks]
        lines += [f"  warning: {printable(text, 300)}" for text in c.warnings]
        if c.problem:
            lines.append(f"  can't be converted: {printable(c.problem, 400)}")
    lines += [f"can't be converted: {printable(text, 400)}" for text in found.problems]
    return "\n".join(lines) + "\n"


def _files(lines: list[str], title: str, files: Sequence[File], root: str) -> None:
    if not files:
        return
    lines.append(f"  {title}:")
    for file in files[:MAX_FILES]:
        name = os.path.relpath(file.path, root) if file.path.startswith(f"{root.rstrip('/')}/") else file.path
        size = f" ({file.bytes:,} bytes)" if file.bytes else ""
        lines.append(f"    {printable(name)}{size}: {file.what}")
    if len(files) > MAX_FILES:
        lines.append(f"    … and {len(files) - MAX_FILES} more")
