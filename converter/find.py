"""From what the user names to captures: one per rank, each with its files, none of them read but for its rank.

A path is recognised by what is in it. A capture folder is `*_ascend_pt`, `*_ascend_ms`, `PROF_*`, the output folder of
one of them, or any folder that holds files of a profiler; a folder above them holds captures, each of them a rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from converter.capture import Capture, CaptureKind
from converter.capture_files import OUTPUT_NAMES, add_clock_files, add_file, add_output, entries
from converter.file_kinds import SIDE_KINDS, check_database, is_folder, kind_by_content, kind_by_name, stem
from converter.ranks import find_rank, number_the_rest, rank_in_name, rank_of_value
from converter.readers.side_files import Damaged, read_json
from schemas.errors import InputError, UsageError, printable

__all__ = ["Capture", "check_paths", "find_captures", "input_name", "output_names"]

MAX_DEPTH = 8  # folders below an input; a job's output has 2 to 4

_TODO_TORCH = (
    "run `python -c \"from torch_npu.profiler.profiler import analyse; analyse('FOLDER')\"` where torch_npu is "
    "installed, then convert again"
)
_TODO_MINDSPORE = (
    "run `python -c \"from mindspore.profiler.profiler import analyse; analyse('FOLDER')\"` where MindSpore is "
    "installed, then convert again"
)
_TODO_MSPROF = "run `msprof --export=on --output=FOLDER` where CANN is installed, then convert again"
_LOOKED_FOR = "looked for *_ascend_pt, *_ascend_ms, PROF_* and files such as kernel_details.csv and trace_view.json"


def check_paths(inputs: Sequence[str]) -> None:
    """Raises UsageError for a path that isn't there or an input that is named twice (links are followed)."""
    seen: dict[str, str] = {}
    for path in inputs:
        try:
            is_folder(path)
        except InputError:
            continue  # what is there but can't be used is said when its turn comes
        real = os.path.realpath(path)
        if real in seen:
            raise UsageError(f"{printable(path)}: given twice (also as {printable(seen[real])}); name it once")
        seen[real] = path


def input_name(path: str) -> str:
    """The name of an input's trace, without ending: its folder's, or its file's without the format's endings."""
    pure = PurePath(os.path.abspath(path))
    if pure.name in OUTPUT_NAMES and pure.parent.name:
        return pure.parent.name
    return pure.name if os.path.isdir(path) else stem(pure.name)


def output_names(inputs: Sequence[str]) -> list[str]:
    """A name per input for --out-dir, with the parent's name in front where two would collide.

    Names that differ only by case collide too: some file systems don't tell them apart.
    Raises UsageError where they still collide.
    """
    names = [input_name(path) for path in inputs]
    folded = [name.casefold() for name in names]
    out = []
    for path, name in zip(inputs, names, strict=True):
        if folded.count(name.casefold()) > 1:
            full = PurePath(os.path.abspath(path))
            parent = full.parent.parent if full.name in OUTPUT_NAMES else full.parent
            name = f"{parent.name}_{name}" if parent.name else name
        out.append(name)
    seen: dict[str, str] = {}
    for path, name in zip(inputs, out, strict=True):
        if name.casefold() in seen:
            raise UsageError(
                f"{printable(path)} and {printable(seen[name.casefold()])} would both be written as "
                f"{printable(name)}.pftrace; convert them one by one with -o"
            )
        seen[name.casefold()] = path
    return out


def find_captures(inputs: Sequence[str], failures: list[InputError] | None = None) -> list[Capture]:
    """All captures of the inputs, in the order of the inputs, inside a folder by name; each has a rank.

    failures: where given, an input that can't be used is added to it and the others are returned; where None, the
    first one is raised.
    Raises UsageError: a path isn't there, an input is named twice, or lies inside another one.
    Raises InputError: as above, and always where two captures are one rank.
    """
    check_paths(inputs)
    captures: list[Capture] = []
    for path in inputs:
        problems: list[InputError] = []
        found = _captures_of(path, problems)
        if problems and failures is None:
            raise problems[0]
        if failures is not None:
            failures += problems
        captures += found
    _refuse_twice(captures)
    number_the_rest(captures)
    return captures


def _refuse_twice(captures: Sequence[Capture]) -> None:
    seen: dict[str, Capture] = {}
    for capture in captures:
        for file in capture.data_files:
            first = seen.setdefault(os.path.realpath(file), capture)
            if first is not capture:
                raise UsageError(
                    f"{printable(file)}: given twice, by {printable(first.input)} and by {printable(capture.input)}; "
                    "name it once"
                )


def _captures_of(path: str, problems: list[InputError]) -> list[Capture]:
    """The captures of one input; what can't be used goes to problems."""
    search = _Search(path, problems)
    found: list[Capture] = []
    before = len(problems)
    try:
        if is_folder(path):
            found += _search(search, path)
        else:
            found.append(_file(path))
    except InputError as error:
        problems.append(error)
    if not found and len(problems) == before:
        problems.append(InputError(path, "no profile in this folder", todo=f"{_LOOKED_FOR}, {MAX_DEPTH} folders deep"))
    if found:
        found[0].notes += search.notes
    return found


def _file(path: str) -> Capture:
    """One file given alone. Its capture's side files, where it lies in one, still tell the rank and the clocks."""
    name = PurePath(path).name
    kind = kind_by_name(name) or kind_by_content(path)
    capture = Capture(path, path, stem(name), "file")
    if kind in SIDE_KINDS:
        raise InputError(path, "holds no tasks", todo="give the folder that it lies in")
    if kind == "db":
        check_database(path)
    add_file(capture, kind, path)
    folder = os.path.dirname(path) or "."
    own = PurePath(os.path.abspath(folder)).name
    if own in OUTPUT_NAMES:
        add_clock_files(capture, os.path.join(folder, ".."))
        _set_rank(capture, (input_name(folder),))
    else:
        if own.endswith(("_ascend_pt", "_ascend_ms")) or own.startswith("PROF_"):
            add_clock_files(capture, folder)
        _set_rank(capture, ())
    return capture


@dataclass
class _Search:
    """One input that is searched: what was seen, what can't be used, what is to be said."""

    given: str
    problems: list[InputError]
    notes: list[str] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)


def _search(search: _Search, folder: str, above: tuple[str, ...] = ()) -> Iterator[Capture]:
    """Captures in and under a folder. above: names of the folders from the input down to here, nearest first."""
    try:
        status = os.stat(folder)
        # Links may lead back up, or to a folder that was searched already.
        if (status.st_dev, status.st_ino) in search.seen:
            return
        search.seen.add((status.st_dev, status.st_ino))
        names = entries(folder)
    except OSError as error:
        search.problems.append(InputError(folder, f"can't be read ({error.strerror})"))
        return
    kind = _folder_kind(folder, names)
    if kind is not None:
        try:
            yield _capture_folder(search.given, folder, kind, names, above)
        except InputError as error:
            search.problems.append(error)
        return
    try:
        yield from _loose_files(search.given, folder, names, above)
    except InputError as error:
        search.problems.append(error)
    if len(above) == MAX_DEPTH:
        if any(names.values()):
            search.notes.append(f"{printable(folder)}: folders below it were not searched (more than {MAX_DEPTH} deep)")
        return
    here = PurePath(os.path.abspath(folder)).name
    for name, is_dir in names.items():
        path = os.path.join(folder, name)
        if is_dir:
            yield from _search(search, path, (here, *above))
        elif os.path.islink(path) and not os.path.exists(path):
            search.notes.append(f"{printable(path)}: a link that leads nowhere; left out")


def _folder_kind(folder: str, names: Mapping[str, bool]) -> CaptureKind | None:
    """What made a folder, or None where it is no capture itself."""
    own = PurePath(os.path.abspath(folder)).name
    if own.endswith("_ascend_ms"):
        return "mindspore"
    if own.endswith("_ascend_pt") or own == "ASCEND_PROFILER_OUTPUT" or names.get("ASCEND_PROFILER_OUTPUT"):
        return "torch_npu"
    if own.startswith("PROF_") or own == "mindstudio_profiler_output" or names.get("mindstudio_profiler_output"):
        return "msprof"
    if names.get("FRAMEWORK") and any(name.startswith("PROF_") for name in names):
        return "torch_npu"
    if names.get("host") and any(is_dir and name.startswith("device_") for name, is_dir in names.items()):
        return "msprof"
    return None


def _capture_folder(
    given: str, folder: str, kind: CaptureKind, names: Mapping[str, bool], above: tuple[str, ...]
) -> Capture:
    """One capture folder, or the output folder of one. Raises InputError where it holds nothing to convert."""
    own = PurePath(os.path.abspath(folder)).name
    root, output = folder, None
    if own in OUTPUT_NAMES:
        root, output = os.path.join(folder, ".."), folder
        if own == "ASCEND_PROFILER_OUTPUT" and input_name(folder).endswith("_ascend_ms"):
            kind = "mindspore"
    capture = Capture(given, folder, input_name(folder), kind)
    add_clock_files(capture, root)
    add_output(capture, root, output)
    if not capture.data_files:
        raise _nothing(folder, kind, names)
    if not capture.texts:
        check_database(capture.dbs[0])
    _set_rank(capture, (input_name(folder), *above) if output else above)
    return capture


def _nothing(folder: str, kind: CaptureKind, names: Mapping[str, bool]) -> InputError:
    """Why a capture folder has nothing to convert: raw data that nobody parsed, or nothing at all."""
    raw = False
    for name, is_dir in names.items():
        if is_dir and (name in ("FRAMEWORK", "host", "data") or name.startswith(("PROF_", "device_"))):
            raw = raw or any(files for _, _, files in os.walk(os.path.join(folder, name)))
    todo = {"mindspore": _TODO_MINDSPORE, "msprof": _TODO_MSPROF}.get(kind, _TODO_TORCH)
    if raw:
        return InputError(folder, "holds raw data that is not parsed yet", todo=todo)
    return InputError(
        folder, "is an empty capture: no tables, no trace and no raw data", todo="copy it whole, or profile again"
    )


def _loose_files(given: str, folder: str, names: Mapping[str, bool], above: tuple[str, ...]) -> Iterator[Capture]:
    """Files of a profiler in a folder that is none of its own: one capture per rank that the names tell.

    Every `*.trace.json[.gz]` is a capture of its own (SGLang writes one per rank, side by side).
    """
    groups: dict[object, list[tuple[str, str]]] = {}
    for name, is_dir in names.items():
        file_kind = None if is_dir else kind_by_name(name)
        if file_kind is None or not os.path.isfile(os.path.join(folder, name)):
            continue
        own = ".trace.json" in name.lower()
        groups.setdefault(name if own else rank_in_name(name), []).append((name, file_kind))
    ranked = [kind for key, members in groups.items() if key is not None for _, kind in members]
    if len(groups) == 2 and None in groups and set(ranked) == {"db"}:  # its name has the rank, those of the texts don't
        groups = {None: [member for members in groups.values() for member in members]}
    for members in groups.values():
        if all(file_kind in SIDE_KINDS for _, file_kind in members):
            continue
        single = len(groups) > 1 or len(members) == 1
        path = os.path.join(folder, members[0][0]) if single else folder
        capture = Capture(given, path, input_name(path), "file")
        add_output(capture, folder, folder, {name for name, _ in members})
        if not capture.texts:
            check_database(capture.dbs[0])
        if len(groups) == 1:
            add_clock_files(capture, folder)
        _set_rank(capture, (PurePath(os.path.abspath(folder)).name, *above))
        yield capture


def _set_rank(capture: Capture, above: tuple[str, ...]) -> None:
    def parsed(path: str | None) -> dict[str, Any] | None:
        try:
            return read_json(path) if path else None
        except Damaged:
            return None  # said by read_side_files

    info = parsed(capture.profiler_info)
    if info is None:  # msprof has its rank_id, mostly -1, in info.json
        found = (parsed(path) or {} for path in capture.info_jsons)
        info = next((i for i in found if rank_of_value(i.get("rank_id")) is not None), None)
    find_rank(capture, info, parsed(capture.profiler_metadata), above)
