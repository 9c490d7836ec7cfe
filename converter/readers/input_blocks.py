"""A file as blocks of bytes, gunzipped where it is gzip: told by content, never by name. Bounded in memory and size.

gzip: RFC 1952. Several members are one stream; bytes behind the last one, a cut or a broken stream are damage, and
what could be unpacked is kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from schemas.errors import InputError

BLOCK_BYTES = 4 << 20
_PACKED_BYTES = 1 << 18
_GZIP = b"\x1f\x8b"
_EITHER_HEADER = 32 + zlib.MAX_WBITS


def blocks(path: Path, max_input_bytes: int, damage: list[str]) -> Iterator[bytes]:
    """Blocks of up to BLOCK_BYTES. damage: gets a line for a gzip stream that is cut, broken or followed by bytes.

    Raises InputError where the file can't be read or holds more than max_input_bytes.
    """
    total = 0
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            for block in _unpacked(file, path, damage) if packed else iter(lambda: file.read(BLOCK_BYTES), b""):
                total += len(block)
                if total > max_input_bytes:
                    raise InputError(
                        path,
                        f"more than {max_input_bytes} bytes{' once unpacked' if packed else ''}",
                        todo="raise --max-input-bytes if it is meant to be that large",
                    )
                yield block
    except OSError as error:
        raise InputError(path, error.strerror or str(error)) from error


def _unpacked(file: BinaryIO, path: Path, damage: list[str]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_EITHER_HEADER)
    parts: list[bytes] = []
    size = 0
    data = b""
    while True:
        at = file.tell() - len(data)
        if unpacker.eof:
            data = data or file.read(_PACKED_BYTES)
            while data and not data.strip(b"\0"):  # padding, as tape and block devices leave it
                data = file.read(_PACKED_BYTES)
            if not data:
                break
            if not data.startswith(_GZIP):
                damage.append(f"{path.name}, byte {at}: bytes after the end of the gzip stream are not read")
                break
            unpacker = zlib.decompressobj(_EITHER_HEADER)
        data = data or file.read(_PACKED_BYTES)
        if not data:
            damage.append(f"{path.name}, byte {at}: the gzip stream is cut short")
            break
        try:
            out = unpacker.decompress(data, BLOCK_BYTES - size)
        except zlib.error:
            damage.append(f"{path.name}, byte {at}: the gzip stream is broken, the rest is not read")
            break
        data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        if out:
            parts.append(out)
            size += len(out)
        if size >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)
