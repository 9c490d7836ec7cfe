"""A CSV file as bytes: its encoding, header, delimiter and line ends, and where to cut it into chunks.

The exporters write comma-separated UTF-8, LF or CRLF, sometimes with a BOM. Files that went through a spreadsheet or
an editor come as UTF-16 (decoded here), with semicolons and decimal commas, or with CR alone as line end.
Compressed files are not read: no exporter writes them.
"""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from schemas.errors import InputError

HEADER_LIMIT_BYTES = 1 << 20  # no header is that long: a file without a line end up to here is no CSV
MAX_COLUMNS = 4096  # the widest export has some 130
CUT_LOOKAHEAD_LINES = 256  # lines that a quoted cell may span at a cut


class CsvFile:
    """An open CSV. header: cells of the first line that is not blank; lines are numbered from 1.

    start: offset of the first byte after the header; first_line: the number of the line that begins there.
    decimal_comma: the cells are separated by `;` and numbers may use a comma.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text: bytes | None = None  # the whole file, where it had to be decoded
        try:
            self._file = open(path, "rb")  # noqa: SIM115 (closed by __exit__; threads share it through pread)
        except OSError as error:
            raise InputError(path, f"can't be read: {error.strerror}") from None
        self.size = os.fstat(self._file.fileno()).st_size
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> CsvFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def read(self, start: int, end: int) -> bytes:
        """The bytes of [start, end). Threads may call it at the same time."""
        if self._text is not None:
            return self._text[start:end]
        parts = []
        while start < end:
            try:
                part = os.pread(self._file.fileno(), end - start, start)
            except OSError as error:
                raise InputError(self.path, f"can't be read: {error.strerror}") from None
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_header(self) -> None:
        head = self.read(0, HEADER_LIMIT_BYTES)
        if not head:
            raise InputError(self.path, "the file is empty", todo="export the capture again")
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._text = self.read(0, self.size).decode("utf-16", "replace").encode()
            self.size = len(self._text)
            head = self._text[:HEADER_LIMIT_BYTES]
        elif b"\0" in re.split(rb"[\r\n]", head, maxsplit=1)[0] or head.startswith(
            (b"\x89PNG", b"\x1f\x8b", b"PK\x03\x04", b"SQLite")
        ):
            # A NUL may stand in a damaged name further down, but not in the header.
            raise InputError(self.path, "not a CSV: binary data", todo="give the CSV that the profiler exported")
        start = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
        line_feed = head.find(b"\n", start)
        self.newline = b"\n" if line_feed >= 0 or b"\r" not in head else b"\r"
        self.first_line = 1
        while True:
            end = head.find(self.newline, start)
            self.first_line += 1
            line = head[start : end if end >= 0 else len(head)]
            if line.strip() or end < 0:
                break
            start = end + 1
        if not line.strip():
            raise InputError(self.path, "no header: the file holds only blank lines")
        if end < 0 and self.size > HEADER_LIMIT_BYTES:
            raise InputError(self.path, f"not a CSV: no line end in the first {HEADER_LIMIT_BYTES} bytes")
        self.start = end + 1 if end >= 0 else len(head)
        text = line.decode("utf-8", "replace").strip("\r\n")
        self.delimiter = max(",;\t", key=text.count)  # the first of equals: a comma
        self.decimal_comma = self.delimiter == ";"
        self.header = split_line(text, self.delimiter)
        if len(self.header) > MAX_COLUMNS:
            raise InputError(self.path, f"not a profiler's CSV: {len(self.header)} columns, more than {MAX_COLUMNS}")

    def chunks(self, chunk_bytes: int) -> Iterator[tuple[int, int]]:
        """Cuts [start, size) at row ends into pieces of about `chunk_bytes`."""
        start = self.start
        while start < self.size:
            end = start + chunk_bytes
            end = self.size if end >= self.size else self._row_end(end)
            yield start, end
            start = end

    def _row_end(self, offset: int) -> int:
        """The first line end from `offset` on after which a whole row follows, so that no quoted cell is cut."""
        first = offset = self._line_end(offset)
        for _ in range(CUT_LOOKAHEAD_LINES):
            if offset >= self.size:
                return self.size
            end = self._line_end(offset)
            line = self.read(offset, end).decode("utf-8", "replace")
            if is_whole_row(line, self.delimiter, len(self.header)):
                return offset
            offset = end
        return first

    def _line_end(self, offset: int) -> int:
        """The offset after the next line end at or after `offset`."""
        step = 1 << 12
        while offset < self.size:
            found = self.read(offset, min(offset + step, self.size)).find(self.newline)
            if found >= 0:
                return offset + found + 1
            offset += step
            step = min(step * 4, 1 << 24)
        return self.size


def count_byte(data: bytes, byte: bytes) -> int:
    """How often the byte occurs; five times as fast as bytes.count where it is common."""
    array, step = np.frombuffer(data, np.uint8), 1 << 18  # a step stays in the cache
    return sum(int(np.count_nonzero(array[at : at + step] == byte[0])) for at in range(0, len(array), step))


def split_line(line: str, delimiter: str) -> list[str]:
    """The cells of one line; a quote that does not close ends with the line."""
    csv.field_size_limit(2**31 - 1)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a CR inside the line
        return []


def is_whole_row(line: str, delimiter: str, width: int) -> bool:
    """Whether the line is a row by itself: `width` cells, each without quotes or properly quoted."""
    cell = rf'(?:"(?:[^"]|"")*"|[^"{delimiter}]*)'
    line = line.rstrip("\r\n")
    return bool(re.fullmatch(rf"{cell}(?:{delimiter}{cell})*", line)) and len(split_line(line, delimiter)) == width
