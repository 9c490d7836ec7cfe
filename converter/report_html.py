"""A report as one HTML page: tables, charts, nothing from the network, no script, everything from the input escaped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from html import escape as escape_html

from converter.report_charts import gaps_and_exposure, step_stack
from converter.report_tables import Tables
from converter.report_view import Grid, View
from schemas.errors import printable

#: The page may style itself and nothing else: no script, no image, no connection, no form, no frame around it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

#: Where a long name may go on in the next line.
_BREAK = re.compile(r"[_:/.](?=\w)")

CSS = """
:root { --ink: #111827; --soft: #4b5563; --line: #e5e7eb; --head: #f3f4f6; --mark: #0072B2; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 84rem; color: var(--ink); background: #fff;
  font: 14px/1.5 system-ui, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; padding-top: .6rem; border-top: 1px solid var(--line); }
p { margin: .4rem 0; max-width: 62rem; overflow-wrap: anywhere; }
p.reading { color: var(--soft); }
nav a { margin-right: .9rem; color: var(--mark); text-decoration: none; white-space: nowrap; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; white-space: nowrap; }
th, td { padding: .18rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; white-space: nowrap; }
th { background: var(--head); position: sticky; top: 0; }
td.text, th.text { text-align: left; }
td.name { font-size: 13px; white-space: normal; overflow-wrap: anywhere; min-width: 8rem; unicode-bidi: isolate; }
tr.sum td { background: #fafafa; font-weight: 600; }
tr:hover td { background: #eff6ff; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; unicode-bidi: isolate; }
summary { cursor: pointer; color: var(--mark); }
code { font: 12px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; background: var(--head); padding: .1rem .3rem;
  border-radius: 3px; user-select: all; unicode-bidi: isolate; }
figure { margin: .5rem 0 1rem; } figure svg { width: 100%; height: auto; }
figcaption { color: var(--soft); }
@media print { th { position: static; } body { max-width: none; padding: 0; } }
"""


def to_html(reports: Sequence[tuple[Tables, Sequence[View]]]) -> str:
    """The page of one or more traces."""
    title = "Report of " + ", ".join(printable(tables.trace) for tables, _ in reports)
    several = len(reports) > 1
    body = [_trace(tables, views, f"t{i}-" if several else "") for i, (tables, views) in enumerate(reports)]
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_text(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_text(title)}</title>\n<style>{CSS}</style>\n</head>\n"
    )
    return f"{head}<body>\n{''.join(body)}</body>\n</html>\n"


def _text(value: object) -> str:
    """Plain text as HTML, inert: no markup, no control characters, nothing that turns a line's direction."""
    return escape_html(printable(value, 2000))


def _trace(tables: Tables, views: Sequence[View], prefix: str) -> str:
    out = [f"<h1>Report of {_text(tables.trace)}</h1>\n"]
    links = (f'<a href="#{prefix}{view.name}">{_text(view.title)}</a>' for view in views)
    out.append(f"<nav>{''.join(links)}</nav>\n")
    for view in views:
        out.append(_view(view, tables, prefix))
        if view.name == "facts":
            out.append(_charts(tables))
    return "".join(out)


def _charts(tables: Tables) -> str:
    out = []
    what = (
        ("Where the time of each step went", step_stack),
        ("Gaps and exposed communication over time", gaps_and_exposure),
    )
    for title, draw in what:
        svg, note = draw(tables)
        if svg:
            label = f'role="img" aria-label="{title}"'
            out.append(f"<h2>{title}</h2>\n<figure {label}>{svg}<figcaption>{_text(note)}</figcaption></figure>\n")
    return "".join(out)


def _view(view: View, tables: Tables, prefix: str) -> str:
    out = [f'<section id="{prefix}{view.name}">\n<h2>{_text(view.title)}</h2>\n']
    if view.reading and view.grids:
        out.append(f'<p class="reading">{_text(view.reading)}</p>\n')
    if view.items:
        out.append(f"<dl>{''.join(f'<dt>{_text(k)}</dt><dd>{_text(v)}</dd>' for k, v in view.items)}</dl>\n")
    if view.name == "steps" and view.grids:
        out.append("<p>A step number unfolds the command that opens the trace at that step.</p>\n")
    out += [_grid(grid, tables.trace) for grid in view.grids]
    out += [f"<p>{_text(note)}</p>\n" for note in view.notes]
    return "".join(out) + "</section>\n"


def _grid(grid: Grid, trace: str) -> str:
    def kind(i: int, head: bool = False) -> str:
        names = " name" if i in grid.names and not head else ""
        return f' class="text{names}"' if i in grid.text else ""

    heads = "".join(f"<th{kind(i, True)}>{_text(head)}</th>" for i, head in enumerate(grid.heads))
    caption = f"<caption>{_text(grid.caption)}</caption>" if grid.caption else ""
    rows = []
    first_summary = len(grid.rows) - grid.summary
    for n, row in enumerate(grid.rows):
        cells = [_text(cell) for cell in row]
        if grid.open and n < len(grid.open) and grid.open[n]:
            command = f"npu-perfetto open {shlex.quote(printable(trace))} {grid.open[n]}"
            cells[0] = f"<details><summary>{cells[0]}</summary><code>{_text(command)}</code></details>"
        cells = [_BREAK.sub(r"\g<0><wbr>", cell) if i in grid.names else cell for i, cell in enumerate(cells)]
        inner = "".join(f"<td{kind(i)}>{cell}</td>" for i, cell in enumerate(cells))
        mark = ' class="sum"' if n >= first_summary else ""
        rows.append(f"<tr{mark}>{inner}</tr>\n")
    return f'<div class="scroll"><table>{caption}<thead><tr>{heads}</tr></thead>\n<tbody>{_join(rows)}</tbody></table></div>\n'


def _join(parts: Iterable[str]) -> str:
    return "".join(parts)
