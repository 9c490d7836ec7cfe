"""CSV rows as typed columns: fast where the file is what the exporters write, careful where it is not.

A file is cut into chunks at row ends; two threads parse them. For each chunk, in this order:
1. pyarrow parses it straight into decimal128, int64 and dictionary-encoded text. It holds if every line made one
   row; rows with too few or too many cells are counted.
2. Where a cell has another type, its column is parsed as text, here and in the chunks behind.
3. Where lines and rows do not agree (quotes that do not close, quoted line ends), the lines are read with the csv
   module, which knows where each row began.

Ignored on purpose: blank lines, lines of spaces, and a header that is repeated among the rows (counted).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from converter import threads
from converter.readers import arrow_arrays
from converter.readers.csv_cells import AsText
from converter.readers.csv_text import CUT_LOOKAHEAD_LINES, CsvFile, count_byte, is_whole_row, split_line
from schemas.columns import ABSENT_CELLS, ColumnSpec
from schemas.errors import InputError
from schemas.timeline import Int64

CHUNK_BYTES = 8 << 20

_TEXT = pa.dictionary(pa.int32(), pa.string())
_COLUMN_OF_ERROR = re.compile(r"In CSV column #(\d+)")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$")


@dataclass
class Chunk:
    """The rows of one chunk. cells: by column index, decimal128, int64, float64 or dictionary arrays;
    plain strings where a column has cells of another type.

    lines: how many lines the chunk holds. row_lines: the line of each row, from 0, or None where line = row.
    broken: (reason, line) of rows that have too few or too many cells; unclosed: lines whose quote never closes;
    bad_utf8: the first line with bytes that are not UTF-8, or -1; repeated_headers: lines that are the header again.
    """

    cells: dict[int, pa.Array]
    rows: int
    lines: int
    row_lines: Int64 | None = None
    broken: list[tuple[str, int]] = field(default_factory=list)
    unclosed: list[int] = field(default_factory=list)
    bad_utf8: int = -1
    repeated_headers: list[int] = field(default_factory=list)

    def line_of(self, row: int) -> int:
        return int(row if self.row_lines is None else self.row_lines[row])


def _arrow_type(spec: ColumnSpec) -> pa.DataType:
    if spec.kind == "time":
        return pa.decimal128(20, len(str(spec.unit_ns)) - 1)  # the unscaled value is the ns count
    return {"int": pa.int64(), "float": pa.float64(), "text": _TEXT}[spec.kind]


class TableReader:
    """Parses chunks of one file. specs: the columns to read."""

    def __init__(self, file: CsvFile, specs: Sequence[ColumnSpec]) -> None:
        self.file = file
        self.specs = list(specs)
        self.width = len(file.header)
        self.names = [f"c{i}" for i in range(self.width)]
        self.header = [cell.strip() for cell in file.header]
        self._types = {self.names[s.index]: _arrow_type(s) for s in self.specs}

    def as_text(self, index: int) -> None:
        """From here on the column is read as text: a cell of another type rarely comes alone."""
        self._types[self.names[index]] = pa.string()

    def chunk(self, start: int, end: int) -> Chunk:
        """Reads and parses [start, end)."""
        data = self.file.read(start, end)
        bad_utf8 = -1
        if not data.isascii():
            # Ahead of pyarrow: where a row has too few or too many cells, it prints a traceback for such bytes.
            bad_utf8 = _first_bad_line(data, self.file.newline)
            if bad_utf8 >= 0:
                data = data.decode("utf-8", "replace").encode()
        if _MANY_ZEROS in data or _has_small_exponent(data):
            # pyarrow takes decimals of more than 38 digits modulo 2^128, and an exponent such as e-12370436 ends the
            # process (exact_time.not_for_decimals): as text they are read digit by digit.
            for name, kind in list(self._types.items()):
                if pa.types.is_decimal(kind):
                    self._types[name] = pa.string()
        chunk = self._fast(data)
        if chunk is None:
            chunk = self._careful(data)
        chunk.bad_utf8 = bad_utf8
        return chunk

    def _fast(self, data: bytes) -> Chunk | None:
        """The first two ways; None where lines and rows do not agree. data: UTF-8."""
        while True:
            try:
                table, broken = self._parse(data)
                break
            except pa.ArrowInvalid as error:
                found = _COLUMN_OF_ERROR.search(str(error))
                if found is None or self._types.get(self.names[int(found[1])]) in (None, pa.string()):
                    return None
                self.as_text(int(found[1]))
        newline = self.file.newline
        lines = count_byte(data, newline) + (not data.endswith(newline))
        chunk = Chunk({}, table.num_rows, lines)
        if table.num_rows != lines:
            # Each line that is not empty must have made one row, usable or broken.
            row_lines = np.array([i for i, line in enumerate(data.split(newline)) if line.strip(b"\r\n")], np.int64)
            if table.num_rows + len(broken) != len(row_lines):
                return None
            for row in broken:
                if row.text.strip():
                    reason = "short row" if row.actual_columns < row.expected_columns else "long row"
                    chunk.broken.append((reason, int(row_lines[row.number - 1])))
            chunk.row_lines = np.delete(row_lines, [row.number - 1 for row in broken])
        for spec in self.specs:
            column = table.column(self.names[spec.index])
            chunk.cells[spec.index] = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        self._leave_out_headers(chunk)
        return chunk

    def _parse(self, data: bytes) -> tuple[pa.Table, list[pa_csv.InvalidRow]]:
        """The table, and the rows with too few or too many cells (their numbers count from 1, empty lines excluded)."""
        broken = []

        def skip(row: pa_csv.InvalidRow) -> str:
            broken.append(row)
            return "skip"

        table = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self.names),
            pa_csv.ParseOptions(delimiter=self.file.delimiter, newlines_in_values=False, invalid_row_handler=skip),
            pa_csv.ConvertOptions(
                column_types=dict(self._types),
                include_columns=[self.names[s.index] for s in self.specs],
                null_values=list(ABSENT_CELLS),
                decimal_point="," if self.file.decimal_comma else ".",
            ),
        )
        return table, broken

    def _leave_out_headers(self, chunk: Chunk) -> None:
        """A header among the rows (files joined by cat) is not a row: every cell repeats the header's."""
        strings = [spec for spec in self.specs if pa.types.is_string(chunk.cells[spec.index].type)]
        if not any(spec.kind != "text" for spec in strings):
            return  # the header of a time or id column is no number: it would have been read as text
        import pyarrow.compute as pc

        same = np.ones(chunk.rows, np.bool_)
        for spec in sorted(self.specs, key=lambda spec: spec.kind == "text"):
            cells = chunk.cells[spec.index]
            if pa.types.is_dictionary(cells.type):
                cells = cells.dictionary_decode()
            if not pa.types.is_string(cells.type):
                return
            header = arrow_arrays.strings([spec.header]).cast(pa.string())
            same &= arrow_arrays.booleans(pc.is_in(cells, value_set=header))
            if not same.any():
                return
        row_lines = np.arange(chunk.rows, dtype=np.int64) if chunk.row_lines is None else chunk.row_lines
        chunk.repeated_headers = row_lines[same].tolist()
        keep = arrow_arrays.mask(~same)
        chunk.cells = {i: cells.filter(keep) for i, cells in chunk.cells.items()}
        chunk.rows, chunk.row_lines = int((~same).sum()), row_lines[~same]

    def _careful(self, data: bytes) -> Chunk:
        """The third way."""
        lines = _LINE.findall(data.decode("utf-8", "replace"))
        rows: list[list[str]] = []
        row_lines: list[int] = []
        chunk = Chunk({}, 0, len(lines))
        for line, cells, closed in careful_rows(lines, self.file.delimiter, self.width):
            if len(cells) <= 1 and not "".join(cells).strip():
                continue
            if not closed:
                chunk.unclosed.append(line)
            if len(cells) != self.width:
                chunk.broken.append(("short row" if len(cells) < self.width else "long row", line))
            elif [cell.strip() for cell in cells] == self.header:
                chunk.repeated_headers.append(line)
            else:
                rows.append(cells)
                row_lines.append(line)
        chunk.rows, chunk.row_lines = len(rows), np.array(row_lines, np.int64)
        for spec in self.specs:
            chunk.cells[spec.index] = arrow_arrays.strings([cells[spec.index] for cells in rows])
        return chunk


_MANY_ZEROS = b"0" * 24
_SMALL_EXPONENT = re.compile(rb"[0-9.][eE]-[0-9]")


def _has_small_exponent(data: bytes) -> bool:
    # From fast to slow: most exports hold no minus at all.
    return b"-" in data and (b"e-" in data or b"E-" in data) and _SMALL_EXPONENT.search(data) is not None


def careful_rows(lines: Sequence[str], delimiter: str, width: int) -> Iterator[tuple[int, list[str], bool]]:
    """(line, cells, whether its quotes close) of each row. lines: with their line ends.

    A quoted cell may span lines, if the row then has `width` cells and the line after its first is no row by itself;
    else its quote never closed and the first line stands alone, so that it does not swallow the rows behind it.
    """
    csv.field_size_limit(2**31 - 1)
    at = 0
    position = 0

    def feed() -> Iterator[str]:
        nonlocal position
        while position < min(at + CUT_LOOKAHEAD_LINES, len(lines)):
            position += 1
            yield lines[position - 1]

    while at < len(lines):
        position = at
        for cells in csv.reader(feed(), delimiter=delimiter):
            if position == at + 1 or (len(cells) == width and not is_whole_row(lines[at + 1], delimiter, width)):
                yield at, cells, True
            else:
                yield at, split_line(lines[at].rstrip("\r\n"), delimiter), False
                at += 1
                break
            at = position


def _first_bad_line(data: bytes, newline: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return data.count(newline, 0, error.start)
    return -1


T = TypeVar("T")


def read_chunks(reader: TableReader, convert: Callable[[Chunk], T]) -> Iterator[T]:
    """convert(chunk) of every chunk of the file, in file order. `convert` runs in the threads that parse.

    At most three chunks are held at a time.
    """
    file = reader.file

    def work(bounds: tuple[int, int]) -> T:
        start, end = bounds
        try:
            while True:
                try:
                    return convert(reader.chunk(start, end))
                except AsText as odd:
                    reader.as_text(odd.column)
        except (pa.ArrowException, csv.Error) as error:
            what = f"the rows at byte {start} can't be read: {error}"
            raise InputError(file.path, what, todo="export the capture again") from None

    yield from threads.in_order(work, file.chunks(CHUNK_BYTES), ahead=2)
