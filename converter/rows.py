"""Rows as text: an aligned table, CSV or JSON. Names in a trace come from an input, so what a terminal shows is escaped."""

from __future__ import annotations

import csv
import io
import json
import math
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.errors import printable

Rows = Sequence[tuple[Any, ...]]

FORMATS = ("table", "csv", "json")
CELL_WIDTH = 200
NARROWEST = 8


def unique_names(columns: Sequence[str]) -> list[str]:
    """Two columns of one name become `name`, `name_2`; a name that is taken is passed over."""
    taken, out = set(columns), []
    seen: set[str] = set()
    for name in columns:
        unique, n = name, 1
        while unique in seen or (n > 1 and unique in taken):
            n += 1
            unique = f"{name}_{n}"
        seen.add(unique)
        out.append(unique)
    return out


def to_text(columns: Sequence[str], rows: Rows, form: str, width: int | None = None) -> str:
    """The rows in one of FORMATS, ended by a newline. width: columns of the terminal, None where stdout is none.

    On a terminal CSV and JSON are escaped too. NULL is `NULL` in a table, empty in CSV, null in JSON.
    """
    if form == "json":
        return to_json(columns, rows, ascii_only=width is not None)
    if form == "csv":
        return to_csv(columns, rows, escape=width is not None)
    return to_table(columns, rows, width)


def to_json(columns: Sequence[str], rows: Rows, ascii_only: bool = False) -> str:
    """A list of objects, one per line; integers exact. Infinity and NaN, which JSON lacks, become text."""
    names = unique_names(columns)
    lines = (
        json.dumps({n: json_value(v) for n, v in zip(names, row, strict=True)}, ensure_ascii=ascii_only) for row in rows
    )
    body = ",\n ".join(lines)
    return f"[{body}]\n"


def json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def to_csv(columns: Sequence[str], rows: Rows, escape: bool = False) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(unique_names(columns))
    for row in rows:
        cells = ["" if v is None else v.hex() if isinstance(v, bytes) else v for v in row]
        writer.writerow([printable(c, 10**9) if escape and isinstance(c, str) else c for c in cells])
    return out.getvalue()


def to_table(columns: Sequence[str], rows: Rows, width: int | None = None) -> str:
    """Aligned columns; numbers to the right. Where a terminal is too narrow the widest columns are cut."""
    header = [printable(name, CELL_WIDTH) for name in unique_names(columns)]
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        bool(rows) and all(row[i] is None or isinstance(row[i], int | float) for row in rows)
        for i in range(len(header))
    ]
    widths = [max(map(text_width, column)) for column in zip(header, *cells, strict=True)] if header else []
    while width is not None and sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    lines = [header, ["-" * w for w in widths], *cells]
    return "".join(_line(line, widths, right) for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return printable(value.hex() if isinstance(value, bytes) else value, CELL_WIDTH)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    out = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        cell = _cut(cell, width)
        pad = " " * (width - text_width(cell))
        out.append(pad + cell if to_right else cell + pad)
    return "  ".join(out).rstrip() + "\n"


def _char_widths(text: str) -> Iterator[int]:
    for char in text:
        if unicodedata.combining(char):
            yield 0
        else:
            yield 2 if unicodedata.east_asian_width(char) in "WF" else 1


def text_width(text: str) -> int:
    """Columns of a terminal: Chinese characters take two."""
    return len(text) if text.isascii() else sum(_char_widths(text))


def _cut(text: str, width: int) -> str:
    if text_width(text) <= width:
        return text
    used = 1  # the ellipsis
    for at, size in enumerate(_char_widths(text)):
        used += size
        if used > width:
            return text[:at] + "…"
    return text
