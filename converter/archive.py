"""From derived ranks to bytes: one after the other into one trace, or a trace per rank in a tar (`--layout archive`).

The tar holds `rankN.pftrace`, `all_ranks.pftrace` and a `perfetto_manifest` (perfetto's docs,
reference/perfetto-manifest.md, version 1; read by Perfetto v58 and later). Each rank's trace is on the rank's own clock;
the manifest holds the offsets, so that a better alignment later needs no new encoding. Older engines merge the traces
and ignore the manifest: they show the ranks on the clocks that recorded them.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO

from annotators.deepep import Peers
from converter import derive
from converter.manifest import NAME
from converter.parallel import Workers
from converter.shelf import Held, take
from converter.write.document import Document, clock_header, encode
from schemas.errors import OutputError, printable

RUN = "all_ranks.pftrace"


@dataclass(frozen=True)
class Encoding:
    """A rank to encode. number: its position in the trace; place: a file for the bytes where they can't go straight on."""

    held: Held
    number: int
    one_host: bool
    peers: Peers | None
    place: str | None
    with_header: bool = False


def encoded(encodings: Sequence[Encoding], workers: Workers) -> Iterator[bytes]:
    """The packets of all ranks in order."""
    if workers.alone or len(encodings) < 2:
        for encoding in encodings:
            yield from _blocks(encoding)
        return
    for path in workers.map(_to_file, encodings):
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                yield block
        os.unlink(path)


def _blocks(encoding: Encoding) -> Iterator[bytes]:
    document = derive.document(take(encoding.held), encoding.one_host, encoding.peers)
    if encoding.with_header:
        yield clock_header(document.start, document.shared_readings)
    yield from encode(document, encoding.number)


def _to_file(encoding: Encoding) -> str:
    path = f"{encoding.place}.pftrace"
    try:
        with open(path, "wb") as file:
            for block in _blocks(encoding):
                file.write(block)
    except OSError as error:
        raise OutputError(f"{printable(path)}: can't be written: {error.strerror or error}") from error
    return path


def write_archive(
    file: IO[bytes], derived: Sequence[derive.Derived], encodings: Sequence[Encoding], run: Document, workers: Workers
) -> None:
    """The tar: the manifest first, then the ranks. Times and owners of its members are zero: same input, same bytes."""
    paths = workers.map(_to_file, [replace(e, with_header=True) for e in encodings])
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, NAME, json.dumps(manifest(derived), indent=1).encode())
        _add(tar, RUN, clock_header(run.start) + b"".join(encode(run, len(encodings))))
        for d, path in zip(derived, paths, strict=True):
            with open(path, "rb") as source:
                info = tarfile.TarInfo(member(d))
                info.size = os.path.getsize(path)
                tar.addfile(info, source)
            os.unlink(path)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def member(d: derive.Derived) -> str:
    return f"rank{d.rank.timeline.rank}.pftrace"


def manifest(derived: Sequence[derive.Derived]) -> dict[str, object]:
    """What the engine reads: every file is tied to the reference rank's; a positive offset moves a file later."""
    reference = next((d for d in derived if d.rank.timeline.clock.method == "reference"), derived[0])
    to = {"file": member(reference), "clock": "REALTIME"}
    files: list[dict[str, object]] = []
    for d in derived:
        entry: dict[str, object] = {"path": member(d), "machine": {"name": f"rank{d.rank.timeline.rank}"}}
        if d is not reference:
            offset = d.rank.timeline.clock.offset_ns
            entry["clocks"] = {"clock": "REALTIME", "sync_to": to, "offset_ns": offset}
        files.append(entry)
    files.append({"path": RUN, "clocks": {"clock": "REALTIME", "sync_to": to, "offset_ns": 0}})
    return {"perfetto_manifest": {"version": 1, "trace_time": {"clock": "REALTIME"}, "files": files}}
