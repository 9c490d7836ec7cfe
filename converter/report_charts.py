"""The charts of a report as static SVG, made with matplotlib (extra `report`).

Only numbers and our own words are drawn: no text of the input gets into a chart.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.report_tables import Tables
from schemas.errors import NpuPerfettoError

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError as error:
    raise NpuPerfettoError("--format html needs matplotlib; pip install 'npu-perfetto[report]'") from error

#: Colours that stay apart for colour-blind eyes (Okabe and Ito), and the words of the legend.
PARTS = (
    ("draft_ms", "draft", "#0072B2"),
    ("verify_ms", "target verify", "#56B4E9"),
    ("tail_ms", "eager tail", "#E69F00"),
    ("other", "other", "#D5D8DC"),
)
RANK_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B", "#B8A300")

MAX_RANKS = 8  # panels or lines that a reader can still tell apart
MAX_BARS = 240
BINS = 200

_STYLE = {
    "svg.fonttype": "none",  # text stays text, in the page's font
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#6b7280",
    "axes.labelcolor": "#374151",
    "xtick.color": "#374151",
    "ytick.color": "#374151",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e5e7eb",
    "legend.frameon": False,
}


def step_stack(tables: Tables) -> tuple[str, str]:
    """(SVG, sentence below it): per rank a bar per step from draft, verify, tail and the rest of its wall time."""
    rows = tables.dicts("steps")
    ranks = sorted({r["rank"] for r in rows if r["step_wall_ms"] is not None})
    if not ranks:
        return "", ""
    shown = ranks[:MAX_RANKS]
    notes = ["Other is the rest of the time from one step's start to the next one's."]
    if len(shown) < len(ranks):
        notes.append(f"The first {MAX_RANKS} of {len(ranks)} ranks.")
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10.5, 0.7 + 1.75 * len(shown)), layout="constrained")
        panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for panel, rank in zip(panels, shown, strict=True):
            notes += _stack_panel(panel, [r for r in rows if r["rank"] == rank], rank)
        panels[-1].set_xlabel("step (forward_ct)" if rows[0]["forward_ct"] is not None else "step")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(PARTS))
        return _svg(figure, "stack"), " ".join(dict.fromkeys(notes))


def _stack_panel(panel: Any, steps: Sequence[dict[str, Any]], rank: int) -> list[str]:
    known = [(i, s) for i, s in enumerate(steps) if s["step_wall_ms"] is not None]
    x = np.array([i if s["forward_ct"] is None else s["forward_ct"] for i, s in known], np.float64)
    parts = {key: _column([s for _, s in known], key) for key, _, _ in PARTS if key != "other"}
    wall = _column([s for _, s in known], "step_wall_ms")
    rest = wall - sum(parts.values())
    parts["other"] = np.maximum(rest, 0)
    notes = []
    if len({s[source] for _, s in known for source in ("draft_source", "verify_source")} - {None}) > 1:
        notes.append(
            "Draft and verify are two measurements here: from records, and of linked tasks where there is none."
        )
    if len(known) < len(steps):
        notes.append("A step whose wall time is not known has no bar.")
    if (rest < -0.001).any():
        notes.append("In some steps the parts are longer than start to start: the device was behind the host.")
    if len(x) > MAX_BARS:
        size = -(-len(x) // MAX_BARS)
        x, parts = _means(x, size), {key: _means(values, size) for key, values in parts.items()}
        notes.append(f"A bar is the mean of {size} steps.")
    gap = float(np.min(np.diff(x))) if len(x) > 1 else 1.0
    base = np.zeros(len(x))
    for key, label, colour in PARTS:
        panel.bar(x, parts[key], width=0.85 * gap, bottom=base, color=colour, label=label)
        base += parts[key]
    panel.set_ylabel(f"rank {rank}\nms")
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.ticklabel_format(axis="x", useOffset=False, style="plain")
    panel.margins(x=0.01)
    return notes


def gaps_and_exposure(tables: Tables) -> tuple[str, str]:
    """(SVG, sentence): share of time without a recorded task, and exposed communication per step, over the window."""
    windows = {r["rank"]: (r["window_ts"], r["wall_ns"]) for r in tables.dicts("ranks") if r["wall_ns"]}
    if not windows:
        return "", ""
    origin = min(start for start, _ in windows.values())
    length = max(start + wall for start, wall in windows.values()) - origin
    edges = np.linspace(0, length, BINS + 1)
    shown = sorted(windows)[:MAX_RANKS]
    exposed = {rank: _exposure(tables, rank, origin) for rank in shown}
    two = any(len(x) for x, _ in exposed.values())
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10.5, 4.4 if two else 2.6), layout="constrained")
        panels = figure.subplots(2 if two else 1, 1, sharex=True, squeeze=False)[:, 0]
        for i, rank in enumerate(shown):
            colour = RANK_COLOURS[i % len(RANK_COLOURS)]
            start, wall = windows[rank]
            share = 100 * _gap_share(tables, rank, edges, start - origin, wall, origin)
            panels[0].stairs(share, edges / 1e6, color=colour, label=f"rank {rank}", baseline=None)
            if two:
                x, y = exposed[rank]
                panels[1].plot(x, y, color=colour, marker=".", markersize=4, linewidth=0.8)
        panels[0].set_ylabel("gap share, %")
        panels[0].set_ylim(0, 100)
        if two:
            panels[1].set_ylabel("exposed comm.\nper step, ms")
            panels[1].set_ylim(bottom=0)
        panels[-1].set_xlabel("ms from the start of the window")
        panels[-1].margins(x=0.01)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=min(len(shown), 8))
        more = f" The first {MAX_RANKS} of {len(windows)} ranks." if len(shown) < len(windows) else ""
        return _svg(figure, "gaps"), f"A point of the upper line is {length / BINS / 1e6:.3g} ms long.{more}"


def _gap_share(
    tables: Tables, rank: int, edges: npt.NDArray[np.float64], start: int, wall: int, origin: int
) -> npt.NDArray[np.float64]:
    """float64[bins]: the part of each bin that gaps of the rank cover; NaN where its window does not reach."""
    rows = [(ts - origin, dur) for r, ts, dur in tables["gap_times"].rows if r == rank]
    begin = np.array([ts for ts, _ in rows], np.float64)
    lengths = np.array([dur for _, dur in rows], np.float64)
    # Gaps of a rank are disjoint and in order: the gap time before t is a broken line through their ends.
    points = np.concatenate([[0.0], np.stack([begin, begin + lengths], axis=1).ravel()])
    before = np.concatenate([[0.0], np.repeat(np.cumsum(lengths), 2)])
    before[1::2] -= lengths
    inside = np.clip(np.minimum(edges[1:], start + wall) - np.maximum(edges[:-1], start), 0, None)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(inside > 0, np.diff(np.interp(edges, points, before)) / inside, np.nan)


def _exposure(tables: Tables, rank: int, origin: int) -> tuple[list[float], list[float]]:
    """Start of each step in ms from the origin, and its exposed communication in ms."""
    times = [ts for r, ts, _, _ in tables["step_times"].rows if r == rank]
    values = [s["exposed_comm_ms"] for s in tables.dicts("steps") if s["rank"] == rank]
    pairs = [((t - origin) / 1e6, v) for t, v in zip(times, values, strict=False) if v is not None]
    return [t for t, _ in pairs], [v for _, v in pairs]


def _column(steps: Sequence[dict[str, Any]], key: str) -> npt.NDArray[np.float64]:
    return np.array([s[key] or 0.0 for s in steps], np.float64)


def _means(values: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    starts = np.arange(0, len(values), size)
    return np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))


def _svg(figure: Figure, salt: str) -> str:
    """The figure as an <svg> element: without date, without metadata, ids of its own."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(
            out, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = out.getvalue()
    text = text[text.index("<svg ") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{salt}-", text)  # two figures on a page share no id
    # The page scales it: a width of its own would overflow a small window.
    return re.sub(
        r'^<svg ([^>]*?)width="[^"]*" ?', r"<svg \1", re.sub(r'^(<svg [^>]*?)height="[^"]*" ?', r"\1", text), count=1
    )
