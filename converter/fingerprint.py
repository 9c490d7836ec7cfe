"""Is a trace up to date? The fingerprint of its inputs stands in the trace, and `--skip-existing` compares it.

It is a SHA-256 over what decides the trace's bytes: the version of this tool, the options, and of every file that is
read its name and its content. Times of files don't count: a copy is the same input, and the same input gives the same
bytes. Reading the content costs a read, so a fingerprint is only made under `--skip-existing`; a trace without one is
made anew. It is the trace's UUID (its first 128 bits, in the first packet, so that asking costs a few bytes) and the
fact `fingerprint`.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from converter.capture import Capture
from converter.options import Options
from converter.remote import is_remote, open_remote
from schemas.errors import InputError

PIECE_BYTES = 1 << 20
#: Options that change no byte of the trace.
_WITHOUT_EFFECT = ("strict", "max_input_bytes", "fingerprint", "run", "dspark", "roles")


def fingerprint(captures: Sequence[Capture], options: Options) -> str:
    """64 hex digits. Raises InputError where a file can't be read."""
    total = hashlib.sha256(version("npu-perfetto").encode())
    for field in dataclasses.fields(options):
        if field.name not in _WITHOUT_EFFECT:
            total.update(f"\0{field.name}={getattr(options, field.name)!r}".encode("utf-8", "surrogatepass"))
    for capture in captures:
        total.update(b"\0rank\0%d\0" % capture.rank + os.fsencode(capture.input))
        for path in files_of(capture):
            _add(total, os.path.relpath(path, capture.path), path)
    for rank, path in options.dspark:
        _add(total, f"dspark {rank}", path)
    if options.roles is not None:
        _add(total, "roles", options.roles)
    return total.hexdigest()


def files_of(capture: Capture) -> Iterator[str]:
    """Every file that the conversion of a capture reads."""
    for field in dataclasses.fields(capture):
        value = getattr(capture, field.name)
        if field.name in ("profiler_info", "profiler_metadata"):
            yield from [value] if value else []
        elif isinstance(value, list) and field.name != "notes":
            yield from value
            if field.name in ("dbs", "analysis_dbs"):  # rows that are not in the database yet are read too
                beside = (f"{path}{end}" for path in value for end in ("-wal", "-journal"))
                yield from (path for path in beside if os.path.exists(path))


def _add(total: hashlib._Hash, name: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise InputError(path, f"can't be read ({error.strerror})") from None
    total.update(b"\0file\0" + os.fsencode(name) + b"\0" + content)


def uuid_packet(fingerprint: str) -> bytes:
    """The packet that makes the fingerprint the trace's UUID."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    uuid = trace.packet.add().trace_uuid
    uuid.msb, uuid.lsb = _halves(fingerprint)
    data: bytes = trace.SerializeToString()
    return data


def _halves(fingerprint: str) -> tuple[int, int]:
    value = bytes.fromhex(fingerprint[:32])
    return int.from_bytes(value[:8], "big", signed=True), int.from_bytes(value[8:16], "big", signed=True)


def is_of(path: str, fingerprint: str) -> bool:
    """Is there a finished trace under `path` that bears this fingerprint?"""
    expected = uuid_packet(fingerprint)
    try:
        with open_remote(path) if is_remote(path) else open(path, "rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw
            return file.read(len(expected)) == expected
    except (OSError, EOFError, zlib.error):
        return False
