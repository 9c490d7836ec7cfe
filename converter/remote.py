"""Inputs and targets that are URLs (`s3://bucket/night/a_ascend_pt`, `hdfs://...`, `memory://...`), through fsspec.

An input is fetched into a temporary folder and read there; a trace is written to a temporary file and uploaded when it
is whole. Object stores show an object when all of it is there; elsewhere it is uploaded under another name and renamed.
Which file systems there are, and how each is told its endpoint and credentials (also by variables such as
FSSPEC_S3_ENDPOINT_URL), is fsspec's own documentation.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import IO, Any, cast

from schemas.errors import InputError, OutputError, UsageError, printable

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
#: A put is all or nothing there, and a rename would be a copy.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "obs", "memory"}


def is_remote(path: str) -> bool:
    """`scheme://...`, and no local path of that name."""
    return _URL.match(path) is not None and not os.path.exists(path)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(f"{printable(url)}: remote paths need the extra: pip install 'npu-perfetto[remote]'") from None
    try:
        fs, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{printable(url)}: {printable(error, 200)}") from None
    return fs, path


def _reason(error: BaseException) -> str:
    return printable(str(error) or type(error).__name__, 200)


def check_inputs(urls: Sequence[str]) -> None:
    """Raises UsageError for a URL that isn't there or is given twice."""
    seen = set()
    for url in urls:
        fs, path = _file_system(url)
        if path in seen:
            raise UsageError(f"{printable(url)}: given twice; name it once")
        seen.add(path)
        try:
            there = fs.exists(path)
        except Exception as error:  # each file system has errors of its own
            raise UsageError(f"{printable(url)}: can't be reached: {_reason(error)}") from None
        if not there:
            raise UsageError(f"{printable(url)}: no such file or folder")


@contextlib.contextmanager
def fetched(inputs: Sequence[str], max_bytes: int) -> Iterator[dict[str, str]]:
    """Local path -> input as given, in their order; remote ones in a folder that goes at the end.

    Raises InputError where one can't be read or is larger than max_bytes.
    """
    with contextlib.ExitStack() as stack:
        out: dict[str, str] = {}
        folder = ""
        for number, given in enumerate(inputs):
            if not is_remote(given):
                out[given] = given
                continue
            folder = folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="npu-perfetto-"))
            fs, path = _file_system(given)
            place = os.path.join(folder, str(number), PurePosixPath(path.rstrip("/")).name or "input")
            try:
                _get(fs, path.rstrip("/"), place, given, max_bytes)
            except (InputError, UsageError):
                raise
            except Exception as error:  # each file system has errors of its own
                raise InputError(given, f"can't be fetched: {_reason(error)}") from None
            out[place] = given
        yield out


def _get(fs: Any, path: str, place: str, given: str, max_bytes: int) -> None:
    """File by file: names come from the other side, and none may lead out of the folder."""
    files = fs.find(path, detail=True) if fs.isdir(path) else {path: fs.info(path)}
    if sum(info.get("size") or 0 for info in files.values()) > max_bytes:
        raise InputError(given, f"holds more than {max_bytes} bytes", todo="raise --max-input-bytes")
    for name in sorted(files):
        inside = posixpath.relpath(name, path)
        local = place if inside == "." else os.path.join(place, *PurePosixPath(inside).parts)
        if ".." in PurePosixPath(inside).parts:
            raise InputError(given, f"holds a name that leads out of it ({printable(name)})")
        os.makedirs(os.path.dirname(local), exist_ok=True)
        fs.get_file(name, local)


@contextlib.contextmanager
def uploaded(target: str) -> Iterator[str]:
    """The local path to write; what is there when the block ends well is uploaded to `target` if that is remote."""
    if not is_remote(target):
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="npu-perfetto-") as folder:
        fs, path = _file_system(target)
        local = os.path.join(folder, PurePosixPath(path).name)
        yield local
        try:
            protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
            if protocols & _OBJECT_STORES:
                fs.put_file(local, path)
            else:
                fs.makedirs(posixpath.dirname(path), exist_ok=True)
                fs.put_file(local, f"{path}.part")
                fs.mv(f"{path}.part", path)
        except Exception as error:  # each file system has errors of its own
            raise OutputError(f"{printable(target)}: can't be uploaded: {_reason(error)}") from None


def open_remote(url: str) -> IO[bytes]:
    """The bytes of a remote file. Raises OSError where there is none."""
    fs, path = _file_system(url)
    return cast(IO[bytes], fs.open(path, "rb"))
