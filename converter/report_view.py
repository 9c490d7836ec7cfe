"""What a section of a report looks like for people, whatever the format: heads, cells as text, sentences around them.

Cells and sentences are plain text and may hold names of the input: who writes them out escapes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

UNKNOWN = "-"

Row = dict[str, Any]


@dataclass
class Grid:
    """A table. names: the columns that hold names of the input, which may be cut; text: those aligned to the left.

    summary: how many of the last rows summarise those above. open: per row the arguments that open the trace there.
    """

    heads: Sequence[str]
    rows: list[list[str]]
    caption: str = ""
    names: frozenset[int] = frozenset()
    text: frozenset[int] = frozenset()
    summary: int = 0
    open: list[str] | None = None


@dataclass
class View:
    """A section. reading: how its figures are to be read, above them; items: labelled values, never cut; notes: what
    else is to be said, below."""

    name: str
    title: str
    reading: str
    items: list[tuple[str, str]] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Limits:
    """How many rows a section shows: gaps and patterns by length, steps of a rank."""

    gaps: int
    patterns: int
    steps: int


@dataclass(frozen=True)
class Spread:
    """count of the known values, their median, 90th percentile (linear between neighbours) and maximum."""

    count: int
    median: float | None
    p90: float | None
    max: float | None


def spread(values: Iterable[float | int | None]) -> Spread:
    """The spread of the values that are known."""
    known = np.array([v for v in values if v is not None], np.float64)
    if not len(known):
        return Spread(0, None, None, None)
    median, p90 = np.percentile(known, [50, 90])
    return Spread(len(known), float(median), float(p90), float(known.max()))


def median(values: Iterable[float | int | None]) -> float | None:
    """The median of the values that are known, or None."""
    return spread(values).median


def number(value: float | int | None, decimals: int = 0, scale: float = 1.0) -> str:
    """value / scale with thousands separators; UNKNOWN for None."""
    if value is None:
        return UNKNOWN
    text = f"{value / scale:,.{decimals}f}"
    return text.removeprefix("-") if not float(text.replace(",", "")) else text


def ms(value_ns: float | int | None) -> str:
    """ns as ms with three decimals."""
    return number(value_ns, 3, 1e6)


def us(value_ns: float | int | None) -> str:
    """ns as us with one decimal."""
    return number(value_ns, 1, 1e3)


def percent(ratio: float | None, decimals: int = 2) -> str:
    """A ratio as percent, without the sign."""
    return number(ratio, decimals, 0.01)


def name(value: object) -> str:
    """A text of the input, or UNKNOWN."""
    return UNKNOWN if value is None or value == "" else str(value)


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 gap`, `2 gaps`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def grouped(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by the values of these columns, in order of first appearance."""
    out: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        out[tuple(row[key] for key in keys)].append(row)
    return dict(out)


def columns(*indexes: int) -> frozenset[int]:
    return frozenset(indexes)
