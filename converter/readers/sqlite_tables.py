"""An SQLite export, opened without leaving anything beside it, and its tables as columns.

Format: SQLite 3, the profiler's tables (`ascend_pytorch_profiler_{rank}.db`, `ascend_mindspore_profiler_{rank}.db`,
`msprof_*.db`, `analysis.db`). Schemas differ by version, so tables and columns are found by name and may be absent.
Rows are read in large pieces into numpy arrays. Numbers may be INTEGER, REAL or TEXT (PYTORCH_API writes its times as
TEXT): text is never taken for a float, so no nanosecond is lost.

A database with a non-empty `-wal` or `-journal` is copied with it to a temporary folder and read there; any other is opened
read-only as immutable, so that no lock, journal or shared memory file appears. Only ordinary tables are read: views,
virtual tables and triggers of the input are never run.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.errors import InputError
from schemas.timeline import Int64

_BESIDE = ("-wal", "-journal")  # what is not in the database yet, and what must be taken out of it again
PIECE_ROWS = 1 << 16
#: What a cell that is no number becomes where a number is needed (a time). No time of a profile is this.
NOT_A_NUMBER = -(2**63)
_BEYOND = 9.2e18
_TODO = "copy the file again, or export the profile again"


@contextmanager
def open_database(path: str, max_input_bytes: int, todo: str = "raise --max-input-bytes") -> Iterator[Database]:
    """Opens an export for reading. Raises InputError where it is no database, cut short, encrypted or too large.

    todo: what to do where it is too large.
    """
    try:
        size = os.path.getsize(path)
        beside = [path + end for end in _BESIDE if os.path.exists(path + end) and os.path.getsize(path + end)]
        size += sum(map(os.path.getsize, beside))
    except OSError as error:
        raise InputError(path, f"can't be read ({error.strerror})") from error
    if size > max_input_bytes:
        raise InputError(path, f"is larger than {max_input_bytes:,} bytes", todo=todo)
    with tempfile.TemporaryDirectory(prefix="npu-perfetto-") if beside else _nothing() as folder:
        options = "?mode=ro&immutable=1"
        opened = Path(path).absolute()
        if folder is not None:
            opened = Path(folder) / "copy.db"
            try:
                shutil.copyfile(path, opened)
                for file in beside:
                    shutil.copyfile(file, f"{opened}{file[len(path) :]}")
            except OSError as error:
                raise InputError(path, f"can't be copied with the files beside it ({error.strerror})") from error
            options = "?mode=rw"
        try:
            connection = sqlite3.connect(opened.as_uri() + options, uri=True)
        except sqlite3.Error as error:
            raise InputError(path, f"can't be opened as SQLite database ({error})", todo=_TODO) from error
        try:
            yield Database(path, connection)
        finally:
            connection.close()


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


class Database:
    """The tables of one export. path: as the user named it. Raises InputError where the schema can't be read."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._tables: dict[str, tuple[str, frozenset[str]]] = {}
        connection.text_factory = bytes  # decoded where texts are wanted: times may be text too
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            found = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            ).fetchall()
            for name in (_text(row[0]) for row in found):
                quoted = '"' + name.replace('"', '""') + '"'
                columns = {_text(row[1]).lower() for row in connection.execute(f"PRAGMA table_info({quoted})")}
                self._tables[name.upper()] = (quoted, frozenset(columns))
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged column type is decoded by sqlite3 itself
            raise InputError(path, f"can't be read as SQLite database ({error})", todo=_TODO) from error

    @property
    def tables(self) -> list[str]:
        """Names in upper case, sorted."""
        return sorted(self._tables)

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there, with all these columns."""
        _, present = self._tables.get(table, ("", frozenset()))
        return table in self._tables and all(column.lower() in present for column in columns)

    def first(self, table: str, *columns: str) -> str | None:
        """The first of some names of a column that the table has (they differ by version)."""
        return next((column for column in columns if self.has(table, column)), None)

    def require(self, table: str, *columns: str) -> None:
        """Raises InputError where the table lacks one of the columns."""
        lacking = [column for column in columns if not self.has(table, column)]
        if lacking:
            raise InputError(
                self.path,
                f"has no column {', '.join(lacking)}",
                where=f"table {table}",
                todo="export the profile again",
            )

    def read(
        self,
        table: str,
        integers: Mapping[str, str | None],
        reals: Mapping[str, str | None] = {},
        *,
        missing: int = -1,
        times: Sequence[str] = (),
        order: str = "rowid",
    ) -> dict[str, npt.NDArray[Any]]:
        """The columns of a table, rows in file order. Empty arrays where the table is absent.

        integers: key -> column, int64[n] (int32 where all values fit); a column that is absent or None, and a cell
        that is NULL or no number, give `missing`, in `times` NOT_A_NUMBER. reals: the same as float64[n] with NaN.
        Raises InputError, naming the file and the table, where it can't be read.
        """
        keys = [*integers, *reals]
        parts: dict[str, list[npt.NDArray[Any]]] = {key: [] for key in keys}
        for piece in self.pieces(table, integers, reals, missing=missing, times=times, order=order):
            for key, values in piece.items():
                parts[key].append(values if key in times else _narrow(values))
        empty = {key: np.empty(0, np.float64 if key in reals else np.int64) for key in keys}
        return {key: np.concatenate(of_key) if of_key else empty[key] for key, of_key in parts.items()}

    def pieces(
        self,
        table: str,
        integers: Mapping[str, str | None],
        reals: Mapping[str, str | None] = {},
        *,
        missing: int = -1,
        times: Sequence[str] = (),
        order: str = "rowid",
    ) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The same in pieces of PIECE_ROWS rows."""
        if table not in self._tables:
            return
        quoted, _ = self._tables[table]
        wanted = {key: c for key, c in (*integers.items(), *reals.items()) if c and self.has(table, c)}
        selected = list(dict.fromkeys(f'"{c}"' for c in wanted.values())) or ["1"]
        sql = f"SELECT {', '.join(selected)} FROM {quoted}"
        for rows in self._rows(table, sql, order):
            columns = dict(zip(selected, zip(*rows, strict=True), strict=True))
            piece: dict[str, npt.NDArray[Any]] = {}
            for key in integers:
                none = NOT_A_NUMBER if key in times else missing
                cells = columns[f'"{wanted[key]}"'] if key in wanted else None
                piece[key] = np.full(len(rows), none, np.int64) if cells is None else _integers(cells, none)
            for key in reals:
                cells = columns[f'"{wanted[key]}"'] if key in wanted else None
                piece[key] = np.full(len(rows), np.nan) if cells is None else _reals(cells)
            yield piece

    def texts(self, table: str, id_column: str, text_column: str) -> Iterator[tuple[int, str]]:
        """(id, text) of every row with an integer id and a text."""
        if not self.has(table, id_column, text_column):
            return
        quoted, _ = self._tables[table]
        sql = (
            f'SELECT "{id_column}", CAST("{text_column}" AS TEXT) FROM {quoted} '
            f'WHERE typeof("{id_column}") = \'integer\' AND "{text_column}" IS NOT NULL'
        )
        for rows in self._rows(table, sql, ""):
            yield from ((id_, _text(text)) for id_, text in rows)

    def records(self, table: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The rows of a small table as they are. Nothing where the table or a column is absent."""
        if not self.has(table.upper(), *columns):
            return
        quoted, _ = self._tables[table.upper()]
        names = ", ".join(f'"{column}"' for column in columns)
        for rows in self._rows(table, f"SELECT {names} FROM {quoted}", ""):
            for row in rows:
                yield {c: _text(v) if isinstance(v, bytes) else v for c, v in zip(columns, row, strict=True)}

    def pairs(self, table: str, key_column: str, value_column: str) -> list[tuple[str, str]]:
        """All rows of a small table of two texts."""
        if not self.has(table, key_column, value_column):
            return []
        quoted, _ = self._tables[table]
        sql = f'SELECT CAST("{key_column}" AS TEXT), CAST("{value_column}" AS TEXT) FROM {quoted} LIMIT 1000'
        return [(_text(k or b""), _text(v or b"")) for rows in self._rows(table, sql, "") for k, v in rows]

    def _rows(self, table: str, sql: str, order: str) -> Iterator[list[tuple[Any, ...]]]:
        try:
            try:
                cursor = self._connection.execute(f"{sql} ORDER BY {order}" if order else sql)
            except sqlite3.OperationalError as error:
                if order != "rowid" or "rowid" not in str(error):
                    raise
                cursor = self._connection.execute(sql)
            while rows := cursor.fetchmany(PIECE_ROWS):
                yield rows
        except sqlite3.Error as error:
            raise InputError(self.path, f"can't be read ({error})", where=f"table {table}", todo=_TODO) from error


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _integers(cells: Sequence[Any], missing: int) -> Int64:
    """int64[n]: cells as SQLite stores them, `missing` where one is no number. Text of digits is read as such."""
    kinds = set(map(type, cells))
    if kinds == {int}:
        return np.fromiter(cells, np.int64, len(cells))
    if kinds == {bytes} and all(cells) and max(map(len, cells)) <= 19 and b"".join(cells).isdigit():
        with suppress(OverflowError):
            return np.fromiter(map(int, cells), np.int64, len(cells))
    if kinds <= {int, type(None)}:
        return np.fromiter((missing if v is None else v for v in cells), np.int64, len(cells))
    return np.fromiter((_integer(v, missing) for v in cells), np.int64, len(cells))


def _integer(cell: Any, missing: int) -> int:
    if isinstance(cell, int):
        return cell
    if isinstance(cell, float):
        return int(cell) if abs(cell) < _BEYOND else missing  # NaN is stored as NULL
    if isinstance(cell, bytes):
        text = cell.strip(b" \t\r\n")
        if text.isdigit() and len(text) <= 19 and int(text) < 2**63:
            return int(text)
    return missing


def _reals(cells: Sequence[Any]) -> npt.NDArray[Any]:
    """float64[n], NaN where a cell is no number."""
    if set(map(type, cells)) <= {int, float}:
        return np.array(cells, np.float64)
    return np.array([float(v) if isinstance(v, int | float) else np.nan for v in cells], np.float64)


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """int32 where all values fit: a capture of ten million tasks has a dozen columns."""
    if values.dtype != np.int64 or not len(values):
        return values
    return values.astype(np.int32) if values.min() >= -(2**31) and values.max() < 2**31 else values


def lookup(keys: Int64, wanted: npt.NDArray[Any]) -> Int64:
    """int64[len(wanted)]: the row of the first equal key, -1 where none is. keys need not be sorted."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    at = np.minimum(np.searchsorted(ordered, wanted), len(keys) - 1)
    found: Int64 = np.where(ordered[at] == wanted, order[at], -1)
    return found
