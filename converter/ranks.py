"""Which rank a capture is: profiler_info, else profiler_metadata, else a name, else the position of the input.

Where the profiler's own word and a name disagree, the profiler's word counts and the difference is said: folders are
copied and renamed by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from converter.capture import Capture
from schemas.errors import InputError, printable

MAX_RANK = 2**20  # beyond any cluster: a larger number is damage

# rank3, rank_3, dp0_pp0_tp0_rank0; but not dp_rank0 or local_rank3, which count inside a group.
_RANK = re.compile(r"(?<![a-z])(?:global[_-])?rank[_-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_PART_OF_GROUP = re.compile(r"(?:tp|dp|pp|ep|cp|sp|local|node)[_-]$", re.IGNORECASE)
# SGLang names its host traces `{time}-TP-{n}[-DP-{n}][-PP-{n}]...`: the TP rank spans the data parallel ranks too.
_TP = re.compile(r"(?<![a-z])TP-(\d{1,7})(?!\d)", re.IGNORECASE)
_LATER_PP = re.compile(r"(?<![a-z])PP-0*[1-9]", re.IGNORECASE)
_DB_NAME = re.compile(r"ascend_(?:pytorch|mindspore)_profiler_(\d{1,7})\.db", re.IGNORECASE)
_INFO_NAME = re.compile(r"profiler_info_(\d{1,7})\.json")


def rank_in_name(name: str) -> int | None:
    """The rank that a file or folder name tells, or None."""
    for match in _RANK.finditer(name):
        if not _PART_OF_GROUP.search(name[: match.start()]):
            return int(match[1])
    if match_db := _DB_NAME.fullmatch(name):
        return int(match_db[1])
    match_tp = _TP.search(name)
    if match_tp and not _LATER_PP.search(name):
        return int(match_tp[1])
    return None


def rank_of_value(value: object) -> int | None:
    """`rank_id` as an int or as text; -1 and whatever is no rank give None."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,7}\s*", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_RANK:
        return value
    return None


def find_rank(
    capture: Capture, info: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None, above: Sequence[str] = ()
) -> None:
    """Sets rank, rank_source and notes of a capture; rank stays -1 where only the position can tell.

    info, metadata: the parsed side files, or None where absent or damaged; above: names of the folders between the
    input and the capture, nearest first.
    """
    distributed = (metadata or {}).get("distributed_args")
    from_info = rank_of_value((info or {}).get("rank_id"))
    from_metadata = rank_of_value(distributed.get("rank")) if isinstance(distributed, dict) else None
    name = PurePath(capture.path).name or capture.name
    from_folder = next((r for n in (name, *above) if (r := rank_in_name(n)) is not None), None)
    from_file = None
    if capture.profiler_info and (match := _INFO_NAME.fullmatch(PurePath(capture.profiler_info).name)):
        from_file = int(match[1])
    if from_file is None:
        of_dbs = (_DB_NAME.fullmatch(PurePath(path).name) for path in capture.dbs)
        from_file = next((int(match[1]) for match in of_dbs if match), None)

    if from_info is not None:
        capture.rank, capture.rank_source = from_info, "profiler_info" if capture.profiler_info else "info.json"
    elif from_metadata is not None:
        capture.rank, capture.rank_source = from_metadata, "metadata"
    elif from_file is not None:
        capture.rank, capture.rank_source = from_file, "file name"
    elif from_folder is not None:
        capture.rank, capture.rank_source = from_folder, "file name" if capture.kind == "file" else "folder name"
    others = {
        "profiler_metadata.json": from_metadata,
        "the name of a file in it": from_file,
        "the name": from_folder,
    }
    for who, rank in others.items():
        if rank is not None and rank != capture.rank:
            capture.notes.append(
                f"{printable(capture.path)}: {who} says rank {rank}, {capture.rank_source} says {capture.rank}; "
                f"taken as rank {capture.rank}"
            )


def number_the_rest(captures: Sequence[Capture]) -> None:
    """Gives every capture without a rank its position, or the lowest free rank where that position is taken.

    Raises InputError where two captures say the same rank; both are named.
    """
    taken: dict[int, Capture] = {}
    for capture in captures:
        if capture.rank >= 0:
            first = taken.setdefault(capture.rank, capture)
            if first is not capture:
                raise InputError(
                    capture.path,
                    f"is rank {capture.rank} (by {capture.rank_source}), and so is {first.path} "
                    f"(by {first.rank_source})",
                    todo="give one of them, or convert them into a trace each with --out-dir",
                )
    for position, capture in enumerate(captures):
        if capture.rank < 0:
            free = (r for r in range(len(captures) + 1) if r not in taken)
            capture.rank = position if position not in taken else next(free)
            capture.rank_source = "order"
            taken[capture.rank] = capture
            if capture.rank != position:
                capture.notes.append(
                    f"{printable(capture.path)}: no rank in it, and another capture is rank {position}; "
                    f"taken as rank {capture.rank}"
                )
