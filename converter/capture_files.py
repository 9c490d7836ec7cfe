"""The files of one capture folder: which of them are read, in which order, and which are set aside."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from converter.capture import Capture
from converter.file_kinds import FileKind, kind_by_name
from schemas.errors import printable

OUTPUT_NAMES = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")

#: The slices of one table are written one after the other: what is older than this belongs to an earlier export.
_ONE_EXPORT_SECONDS = 600

_SLICE = re.compile(r"_slice_(\d{1,6})")
_STAMP = re.compile(r"_(\d{14})\d*(?=\D|$)")


def entries(folder: str) -> dict[str, bool]:
    """Name -> is it a folder (links followed), sorted by name with numbers by value; hidden names left out.

    Raises OSError.
    """
    with os.scandir(folder) as found:
        names = {entry.name: _is_dir(entry) for entry in found if not entry.name.startswith(".")}
    return dict(sorted(names.items(), key=lambda item: natural(item[0])))


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key: rank2 before rank10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def add_file(capture: Capture, kind: FileKind, path: str) -> None:
    """Adds one file to the list of its kind."""
    {
        "kernels": capture.kernel_csvs,
        "task_time": capture.task_time_csvs,
        "trace": capture.trace_jsons,
        "memory": capture.memory_csvs,
        "step_trace": capture.step_trace_csvs,
        "communication": capture.communication_jsons,
        "communication_matrix": capture.communication_jsons,
        "analysis": capture.analysis_dbs,
        "iterations": capture.iteration_csvs,
        "marks": capture.mark_csvs,
        "communication_statistic": capture.statistic_csvs,
        "db": capture.dbs,
    }[kind].append(path)


def add_output(capture: Capture, root: str, output: str | None = None, only: Collection[str] | None = None) -> None:
    """Adds the tables and traces of a capture.

    root: the capture folder; output: its output folder where the user named that one; only: of these names.
    A PROF_* inside a torch_npu capture is part of it; its own export counts only where the capture has no other.
    """
    if output is not None:
        _add_folder(capture, output, only)
        return
    for name in OUTPUT_NAMES:
        if os.path.isdir(os.path.join(root, name)):
            _add_folder(capture, os.path.join(root, name))
    if not capture.data_files:
        _add_folder(capture, root)
    if not capture.data_files:
        for prof in _folders(root, "PROF_"):
            inner = os.path.join(prof, "mindstudio_profiler_output")
            if os.path.isdir(inner):
                _add_folder(capture, inner)
        if capture.data_files and capture.kind != "msprof":
            capture.notes.append(
                f"{printable(capture.path)}: no ASCEND_PROFILER_OUTPUT with tables; the export of its PROF_* is used"
            )
    if not capture.data_files:  # CANN before 7: device_0/summary and device_0/timeline
        for device in _folders(root, "device_"):
            for inner in ("summary", "timeline"):
                if os.path.isdir(os.path.join(device, inner)):
                    _add_folder(capture, os.path.join(device, inner))


def _folders(root: str, prefix: str) -> list[str]:
    try:
        names = entries(root)
    except OSError:
        return []
    return [os.path.join(root, name) for name, is_dir in names.items() if is_dir and name.startswith(prefix)]


def _add_folder(capture: Capture, folder: str, only: Collection[str] | None = None) -> None:
    try:
        names = entries(folder)
    except OSError as error:
        capture.notes.append(f"{printable(folder)}: can't be read ({error.strerror}); left out")
        return
    kinds: dict[FileKind, list[str]] = {}
    chosen: list[str]
    left: list[str]
    for name, is_dir in names.items():
        kind = kind_by_name(name)
        if kind is None or is_dir or (only is not None and name not in only):
            continue
        if not os.path.isfile(os.path.join(folder, name)):
            capture.notes.append(f"{printable(os.path.join(folder, name))}: no regular file; left out")
            continue
        kinds.setdefault(kind, []).append(name)
    for kind, found in kinds.items():
        chosen, left = choose_database(found) if kind == "db" else choose(found)
        for name in chosen:
            add_file(capture, kind, os.path.join(folder, name))
        if left:
            capture.notes.append(
                f"{printable(folder)}: {printable(', '.join(chosen))} read; not read: {printable(', '.join(left))}"
            )


def choose(names: list[str]) -> tuple[list[str], list[str]]:
    """(the files of one kind to read, in order; the ones set aside).

    Of msprof files with timestamps, the newest export: slices of one table join in order of their numbers, slice 0 may
    lack the word. Of others: the one with the plain name (`kernel_details.csv` rather than `kernel_details (1).csv`),
    or all parts where they are parts (`op_summary_{device}_{model}_{iteration}.csv`).
    """
    own = [name for name in names if name.lower().startswith(("kernel_details", "trace_view"))]
    if own and len(own) < len(names):  # torch_npu's own table holds what msprof's holds, and the step ids
        chosen, left = choose(own)
        return chosen, [*left, *(name for name in names if name not in own)]
    stamped = {name: int(match[1]) for name in names if (match := _STAMP.search(name))}
    if not stamped:
        return _without_stamp(names)
    newest = max(stamped.values())
    by_slice: dict[int, str] = {}
    for name in sorted(stamped, key=lambda n: (-stamped[n], len(n), n)):
        match = _SLICE.search(name)
        number = int(match[1]) if match else 0
        same_export = _seconds(newest) - _seconds(stamped[name]) <= _ONE_EXPORT_SECONDS
        if not by_slice or (number not in by_slice and same_export and (match or 0 not in by_slice)):
            by_slice[number] = name
    chosen = [by_slice[number] for number in sorted(by_slice)]
    return chosen, [name for name in names if name not in chosen]


def choose_database(names: list[str]) -> tuple[list[str], list[str]]:
    """([the database to read], the others). The framework's holds what msprof's holds, and the framework's calls."""
    own = [name for name in names if name.lower().startswith("ascend_")] or names
    chosen = max(own, key=lambda name: (_stamp(name), -len(name)))
    return [chosen], [name for name in names if name != chosen]


def _stamp(name: str) -> int:
    match = _STAMP.search(name)
    return int(match[1]) if match else 0


def _seconds(stamp: int) -> int:
    """yyyymmddHHMMSS as a count of seconds that is right for differences within a month."""
    text = f"{stamp:014d}"
    day, hour, minute, second = (int(text[i : i + 2]) for i in (6, 8, 10, 12))
    return ((int(text[:6]) * 31 + day) * 24 + hour) * 3600 + minute * 60 + second


def _without_stamp(names: list[str]) -> tuple[list[str], list[str]]:
    parts = [name for name in names if _SLICE.search(name) or re.search(r"_\d+_\d+(_\d+)?\.\w+$", name)]
    if parts:
        chosen = sorted(parts, key=natural)
        return chosen, [name for name in names if name not in parts]
    # The shortest is the plain one; of two alike the first by name.
    plain = min(names, key=lambda name: (len(name), name))
    return [plain], [name for name in names if name != plain]


def add_clock_files(capture: Capture, root: str) -> None:
    """Adds profiler_info, profiler_metadata and the clock logs, of the capture folder and of the PROF_* in it."""
    try:
        names = entries(root)
    except OSError:
        return
    infos = [n for n in names if re.fullmatch(r"profiler_info(_\d{1,7})?\.json", n) and not names[n]]
    if infos:
        chosen = max(infos, key=len)  # with the rank in its name
        capture.profiler_info = os.path.join(root, chosen)
        if len(infos) > 1:
            capture.notes.append(f"{printable(root)}: {len(infos)} profiler_info files; {chosen} is used")
    if names.get("profiler_metadata.json") is False:
        capture.profiler_metadata = os.path.join(root, "profiler_metadata.json")
    for prof in [root, *_folders(root, "PROF_")]:
        for folder in [*_folders(prof, "host"), *_folders(prof, "device_")]:
            for path in sorted(os.path.join(folder, name) for name in _files(folder)):
                _add_clock_file(capture, path)


def _files(folder: str) -> list[str]:
    try:
        return [n for n, is_dir in entries(folder).items() if not is_dir and os.path.isfile(os.path.join(folder, n))]
    except OSError:
        return []


def _add_clock_file(capture: Capture, path: str) -> None:
    lists = {
        "start_info": capture.start_infos,
        "end_info": capture.end_infos,
        "host_start.log": capture.host_start_logs,
        "dev_start.log": capture.dev_start_logs,
        "info.json": capture.info_jsons,
    }
    found = lists.get(re.sub(r"\.\d+$", "", os.path.basename(path)))
    if found is not None:
        found.append(path)
