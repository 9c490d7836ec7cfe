"""What one file is: by its name, and where the name says nothing, by its first bytes.

Names: ascend_formats.md 1 and 4 (`*` of msprof files is `{timestamp}`, `slice_{n}_{timestamp}` or the older
`{device}_{model}_{iteration}`); a browser adds ` (1)` to a second download. Never the whole file: 8 KiB are looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import zlib
from pathlib import Path
from typing import Literal

from schemas.errors import InputError, UsageError, printable

FileKind = Literal[
    "kernels", "task_time", "trace", "memory", "step_trace", "db", "communication", "communication_matrix", "analysis",
    "iterations", "marks", "communication_statistic",
]  # fmt: skip
#: Files that say more about a capture and hold no slices of their own.
SIDE_KINDS = (
    "memory", "step_trace", "communication", "communication_matrix", "analysis", "iterations", "marks",
    "communication_statistic",
)  # fmt: skip

HEAD_BYTES = 8192
MAX_FOLDERS = 50  # looked into to tell whether a folder holds a capture
GZIP_MAGIC = b"\x1f\x8b"
SQLITE_MAGIC = b"SQLite format 3\x00"

_NAMES: tuple[tuple[re.Pattern[str], FileKind], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)  # type: ignore[misc]
    for pattern, kind in (
        (r"kernel_details.*\.csv", "kernels"),
        (r"op_summary.*\.csv", "kernels"),
        (r"task_time.*\.csv", "task_time"),
        (r"trace_view.*\.json(\.gz)?", "trace"),
        (r"msprof(?!_tx).*\.json(\.gz)?", "trace"),  # msprof_tx holds marks that msprof*.json holds too
        (r".*\.trace\.json(\.gz)?", "trace"),
        (r"memory_record.*\.csv", "memory"),
        (r"step_trace_time.*\.csv", "step_trace"),
        (r"step_trace_.*\.csv", "iterations"),
        (r"msprof_tx.*\.csv", "marks"),
        (r"communication_statistic.*\.csv", "communication_statistic"),
        (r"communication.*matrix.*\.json", "communication_matrix"),
        (r"communication(?!_statistic).*\.json", "communication"),
        (r"analysis\.db", "analysis"),
        (r"ascend_(pytorch|mindspore)_profiler.*\.db", "db"),
        (r"msprof.*\.db", "db"),
    )
)

#: First bytes of what people give by mistake, and what to do then.
_OTHER_FORMATS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"PK\x03\x04", "is a zip archive", "unpack it and give the folder"),
    (257, b"ustar", "is a tar archive", "unpack it and give the folder"),
    (0, b"7z\xbc\xaf\x27\x1c", "is a 7z archive", "unpack it and give the folder"),
    (0, b"\xfd7zXZ", "is an xz archive", "unpack it first"),
    (0, b"BZh", "is a bzip2 archive", "unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "is a zstd archive", "unpack it first"),
    (0, b"\x89PNG", "is an image", ""),
    (0, b"%PDF", "is a PDF", ""),
    (0, b"\x7fELF", "is a program", ""),
)

#: Columns that tell a table, lower case without blanks.
_COLUMNS: tuple[tuple[str, FileKind], ...] = (
    ("task_start(us)", "task_time"),
    ("taskstarttime(us)", "kernels"),
    ("starttime(us)", "kernels"),
    ("computing,communication(notoverlapped)", "step_trace"),
    ("component,timestamp(us)", "memory"),
)

TRACE_SUFFIXES = (".gz", ".json", ".csv", ".db", ".trace")


def kind_by_name(name: str) -> FileKind | None:
    """The kind that a file name tells, or None."""
    for pattern, kind in _NAMES:
        if pattern.fullmatch(name):
            return kind
    return None


def stem(name: str) -> str:
    """The file name without the endings that say only the format: `a-TP-3.trace.json.gz` -> `a-TP-3`."""
    for suffix in TRACE_SUFFIXES:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            name = name[: -len(suffix)]
    return name


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(path, f"can't be read ({error.strerror})") from error


def _unzipped(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""


def _text(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head[: len(head) // 2 * 2].decode("utf-16", "replace")
    return head.decode("utf-8-sig", "replace")


def kind_by_content(path: str) -> FileKind:
    """The kind that the first bytes tell, for a file of an odd name.

    Raises InputError: it can't be read, is empty, or is something else (which is named where it is known).
    """
    head = _head(path)
    if not head:
        raise InputError(path, "is empty", todo="give a profile")
    if head.startswith(SQLITE_MAGIC):
        return "db"
    for offset, magic, what, todo in _OTHER_FORMATS:
        if head[offset : offset + len(magic)] == magic:
            raise InputError(path, f"{what}, not a profile", todo=todo)
    packed = head.startswith(GZIP_MAGIC)
    if packed:
        head = _unzipped(head)
    text = _text(head).lstrip()
    if text.startswith(("[", "{")) and "\x00" not in text:
        return "trace"
    header = re.sub(r"[\s\"]", "", text.lower().replace("\n", "\x01", 1).split("\x01")[0]) if text else ""
    for column, kind in _COLUMNS:
        if column in header and "\x00" not in header:
            if packed:
                raise InputError(path, "is a CSV inside gzip", todo="unpack it with gunzip first")
            return kind
    if head[:1] == b"\x0a" or Path(path).suffix in (".pftrace", ".perfetto-trace"):
        # Field 1 of perfetto.protos.Trace, length-delimited: every trace of Perfetto begins with it.
        raise InputError(
            path,
            "is a Perfetto trace already, or at least no profile",
            todo="open it with `npu-perfetto open`, or give the capture that it was made from",
        )
    raise InputError(
        path,
        "is no profile that is known here",
        todo="expected are kernel_details*.csv, op_summary*.csv, task_time*.csv, trace_view.json, msprof*.json, "
        "*.trace.json[.gz], ascend_pytorch_profiler*.db, msprof*.db, or a folder with them",
    )


def refuse_capture(path: str, shown: str, json_too: bool = False) -> None:
    """Raises InputError where a capture, or a file of one, is given as a trace. path: a local one; shown: as given;
    json_too: also for trace JSON, which trace_processor reads but which holds none of our tables."""
    if os.path.isdir(path):
        name = os.path.basename(os.path.abspath(path))
        found = name.startswith("PROF_") or name.endswith(("_ascend_pt", "_ascend_ms")) or _holds_capture(path)
        what = "is a capture, not a trace" if found else "is a folder, not a trace"
        raise InputError(
            shown, what, todo=f"convert it first: npu-perfetto convert {printable(shown)}" if found else ""
        )
    if not os.path.isfile(path):
        return
    try:
        kind = kind_by_content(path)
    except InputError:
        return  # what it is instead, its reader will tell
    if kind != "trace" or json_too:
        raise InputError(
            shown, "is a capture, not a trace", todo=f"convert it first: npu-perfetto convert {printable(shown)}"
        )


def _holds_capture(path: str) -> bool:
    """Is there a profile in it, or in a folder just below it?"""
    with contextlib.suppress(OSError):
        for looked, (_, folders, files) in enumerate(os.walk(path)):
            if any(kind_by_name(name) or name.endswith(("_ascend_pt", "_ascend_ms")) for name in [*files, *folders]):
                return True
            if looked >= MAX_FOLDERS:
                break
    return False


def refuse_trace(path: str, shown: str) -> None:
    """Raises InputError where a Perfetto trace, or an archive of some, is given as a table."""
    head = _head(path)
    if head.startswith(GZIP_MAGIC):
        head = _unzipped(head)
    archive = head[257:262] == b"ustar" and head.startswith(b"manifest.json\0")
    # Field 1 of perfetto.protos.Trace; the first of ours is the clock of the trace or its id.
    if archive or (head[:1] == b"\x0a" and b"\0" in head[:HEAD_BYTES]):
        raise InputError(shown, "is a trace, not a kernel CSV", todo="ask it with `npu-perfetto report` or `sql`")


def check_database(path: str) -> None:
    """Raises InputError where a file that is named as a database is none."""
    head = _head(path)
    if not head.startswith(SQLITE_MAGIC):
        what = "is empty (0 bytes)" if not head else "is not an SQLite database"
        raise InputError(path, what, todo="export the profile again")


def is_folder(path: str) -> bool:
    """True for a folder, False for a regular file (links are followed).

    Raises UsageError: nothing is there; InputError: it is a device, FIFO or socket, a link that leads to itself, or
    can't be looked at.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            if os.path.islink(path):
                raise InputError(path, "is a link that leads nowhere") from error
            raise UsageError(f"{printable(path) or '(empty path)'}: does not exist; check the path") from error
        raise InputError(path, f"can't be opened ({error.strerror})") from error
    if stat.S_ISDIR(mode):
        return True
    if stat.S_ISREG(mode):
        return False
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    raise InputError(
        path, f"is {kinds.get(stat.S_IFMT(mode), 'no regular file')}", todo="give a regular file or folder"
    )
