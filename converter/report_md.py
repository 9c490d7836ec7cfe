"""Sections of a report as Markdown that also reads well in a terminal: aligned, at most `width` columns, escaped."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from converter.report_view import Grid, View
from converter.rows import text_width
from schemas.errors import printable

WIDTH = 120
NARROWEST = 10  # of a column with names, where the table does not fit otherwise

#: What Markdown would act on: code, emphasis, links, strike-through, a bar that ends the cell, HTML.
_ACTIVE = re.compile(r"[\\`*~|]|\](?=[(\[:])")
_OPENS, _CLOSES = re.compile(r"(?<!\w)_(?=\w)"), re.compile(r"(?<=\w)_(?!\w)")
_ENTITIES = {"<": "&lt;", ">": "&gt;"}


def escape(text: object, limit: int = 400) -> str:
    """Plain text as Markdown: nothing in it acts, and nothing of it is a control character."""
    out = _ACTIVE.sub(lambda m: "\\" + m[0], printable(text, limit))
    if _CLOSES.search(out):  # an underscore acts in pairs only, and not inside a word
        out = _OPENS.sub(r"\\_", out)
    out = re.sub(r"&(?=#?\w+;)", "&amp;", out).replace("->", "\0")
    out = re.sub("[<>]", lambda m: _ENTITIES[m[0]], out).replace("\0", "->")
    out = re.sub(r"(?<!\w)@(?=\w)", "&#64;", out)  # a mention
    return re.sub(r":(?=//)|(?<=www)\.", lambda m: "\\" + m[0], out)  # a link that is made without being asked


def cut_middle(text: str, width: int) -> str:
    """The text in so many columns; the end of a kernel's name says as much as its start."""
    if text_width(text) <= width:
        return text
    keep = width - 1
    while keep > 1:
        head, tail = (keep + 1) // 2, keep // 2
        out = f"{text[:head]}…{text[-tail:]}"
        if text_width(out) <= width:
            return out
        keep -= 1
    return "…"


def views_to_md(title: str, views: Iterable[View], width: int = WIDTH) -> str:
    """All sections below one title."""
    parts = [f"# {escape(title)}", *(view_to_md(view, width) for view in views)]
    return "\n\n".join(parts) + "\n"


def view_to_md(view: View, width: int = WIDTH) -> str:
    """One section."""
    parts = [f"## {escape(view.title)}"]
    if view.reading and view.grids:
        parts.append(_wrapped(view.reading, width))
    if view.items:
        parts.append("\n".join(_item(label, value, width) for label, value in view.items))
    for grid in view.grids:
        if grid.caption:
            parts.append(_wrapped(grid.caption, width))
        parts.append(grid_to_md(grid, width))
    parts += [_wrapped(note, width) for note in view.notes]
    return "\n\n".join(parts)


def _item(label: str, value: str, width: int) -> str:
    text = f"- {escape(label)}: {escape(value, 2000)}"
    lines = textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> str:
    # A line that starts with what Markdown takes for a list or a heading: only the first can, and our own don't.
    lines = textwrap.wrap(escape(text, 2000), width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(re.sub(r"^([-+#]|\d+[.)])(?=\s)", r"\\\1", line) for line in lines)


def grid_to_md(grid: Grid, width: int = WIDTH) -> str:
    """An aligned table. Columns of names are cut in the middle where it would be wider than `width`."""
    limits = _limits(grid, width)
    table = [[escape(head) for head in grid.heads]]
    table += [[_cell(cell, limits.get(i)) for i, cell in enumerate(row)] for row in grid.rows]
    widths = [max(3, *(text_width(row[i]) for row in table)) for i in range(len(grid.heads))]
    rule = ["-" * w if i in grid.text else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    head, *body = table
    return "\n".join(_line(row, widths, grid) for row in (head, rule, *body))


def _cell(text: str, limit: int | None) -> str:
    """The text escaped, cut so that it takes no more than `limit` columns with its escapes."""
    out = escape(text)
    keep = limit or 0
    while limit is not None and text_width(out) > limit and keep > 1:
        out = escape(cut_middle(printable(text), keep))
        keep -= 1
    return out


def _line(cells: Sequence[str], widths: Sequence[int], grid: Grid) -> str:
    out = []
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        pad = " " * (width - text_width(cell))
        out.append(cell + pad if i in grid.text else pad + cell)
    return "| " + " | ".join(out) + " |"


def _limits(grid: Grid, width: int) -> dict[int, int]:
    """How wide each column of names may be: the widest gives way first."""
    heads = [max(3, text_width(escape(head))) for head in grid.heads]
    full = [max(heads[i], *(text_width(escape(row[i])) for row in grid.rows), 0) for i in range(len(heads))]
    over = sum(full) + 3 * len(full) + 1 - width
    out = {i: full[i] for i in grid.names}
    while over > 0 and out:
        widest = max(out, key=lambda i: out[i] - max(heads[i], NARROWEST))
        if out[widest] <= max(heads[widest], NARROWEST):
            break
        out[widest] -= 1
        over -= 1
    return out
