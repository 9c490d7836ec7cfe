"""Inputs, traces and targets that are URLs (`s3://bucket/night/a_ascend_pt`, `hdfs://...`, `memory://...`), through fsspec.

An input is fetched into a temporary folder and read there; a trace is written to a temporary file and uploaded when it
is whole. Object stores show an object when all of it is there; elsewhere it is uploaded under another name and renamed.
Which file systems there are, and how each is told its endpoint and credentials (also by variables such as
FSSPEC_S3_ENDPOINT_URL), is fsspec's own documentation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO, Any, TypeVar, cast

from schemas.errors import InputError, NpuPerfettoError, OutputError, UsageError, printable

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
#: A put is all or nothing there, and a rename would be a copy.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "obs", "memory"}
_PATTERN = re.compile(r"[*?\[]")

Value = TypeVar("Value")


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


def check_scheme(url: str) -> None:
    """Raises UsageError where nothing can be written to such a URL: no extra, no such file system."""
    _file_system(url)


def refuse(path: str, what: str) -> None:
    """Raises UsageError for a URL where only a path of this machine will do. what: why, and what to do."""
    if is_remote(path):
        raise UsageError(f"{printable(path)}: is a URL; {what}")


def matching(url: str) -> list[str]:
    """The URL itself, or for a pattern (`s3://bucket/night/*.pftrace`) the URLs it matches, sorted.

    Raises UsageError where there is none.
    """
    fs, path = _file_system(url)
    if not _PATTERN.search(path):
        check_inputs([url])
        return [url]
    try:
        # A name may hold these characters itself.
        names = [path] if fs.exists(path) else sorted(fs.glob(path))
    except FileNotFoundError:
        names = []
    except Exception as error:  # each file system has errors of its own
        raise UsageError(f"{printable(url)}: can't be reached: {_reason(error)}") from None
    if not names:
        raise UsageError(f"{printable(url)}: matches no file")
    # As typed up to the path: the file system's own form of a URL has no host.
    head = url.removesuffix(path) if url.endswith(path) else None
    return [fs.unstrip_protocol(name) if head is None else f"{head}{name}" for name in names]


@contextlib.contextmanager
def fetched(inputs: Sequence[str], max_bytes: int | None = None) -> Iterator[dict[str, str]]:
    """Local path -> input as given, in their order; remote ones in a folder that goes at the end.

    Raises InputError where one can't be read or is larger than max_bytes. Errors raised in the block name the inputs
    as given.
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
        try:
            yield out
        except NpuPerfettoError as error:
            error.args = as_given(error.args, out)
            vars(error).update(as_given(vars(error), out))
            raise


def as_given(value: Value, given: Mapping[str, str]) -> Value:
    """The value with the local paths of `fetched` replaced by what they were fetched from, in every text inside it.

    Where a file was fetched to is of no use to anybody. Looks into tuples, lists, dicts and dataclasses.
    """
    moved = {}
    for local, name in given.items():
        if local != name:
            moved[local] = printable(name, 4096)
            parent, slash, last = moved[local].rstrip("/").rpartition("/")
            if last == os.path.basename(local):  # a long path may have been cut, so that only its start is there
                moved[os.path.dirname(local) + "/"] = parent + slash
    return cast(Value, _replaced(value, moved)) if moved else value


def _replaced(value: Any, moved: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for local, name in moved.items():
            value = value.replace(local, name)
        return value
    if isinstance(value, list | tuple):
        return type(value)(_replaced(item, moved) for item in value)
    if isinstance(value, dict):
        return {key: _replaced(item, moved) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _replaced(getattr(value, f.name), moved) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


@contextlib.contextmanager
def fetched_file(name: str) -> Iterator[str]:
    """The local path of one file, fetched where it is remote; a folder is refused before it is fetched.

    Raises InputError where it can't be read, UsageError as `check_inputs`.
    """
    if is_remote(name):
        fs, path = _file_system(name)
        try:
            folder = fs.isdir(path)
        except Exception as error:  # each file system has errors of its own
            raise InputError(name, f"can't be reached: {_reason(error)}") from None
        if folder:
            raise InputError(name, "not a file")
    with fetched([name]) as given:
        yield next(iter(given))


def _get(fs: Any, path: str, place: str, given: str, max_bytes: int | None) -> None:
    """File by file: names come from the other side, and none may lead out of the folder."""
    files = fs.find(path, detail=True) if fs.isdir(path) else {path: fs.info(path)}
    if max_bytes is not None and sum(info.get("size") or 0 for info in files.values()) > max_bytes:
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
