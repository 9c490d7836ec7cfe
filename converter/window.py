"""Times on the command line: `--window START:END` and durations such as `50us`.

A time is ns since the epoch, or a number with a unit (ns, us, ms, s); a leading `+` counts from the first task.
Decimal text throughout: a float64 can't hold today's epoch in ns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

from schemas.errors import UsageError, printable

UNITS_NS = {"": 1, "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_QUANTITY = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})\s*(ns|us|µs|μs|ms|s)?\s*")
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Edge:
    """One end of a window. relative: ns from the first task, else since the epoch."""

    ns: int
    relative: bool = False


@dataclass(frozen=True)
class Window:
    """A window as the user wrote it: absolute once the first task is known. text: as written."""

    start: Edge
    end: Edge
    text: str = field(default="", compare=False)

    def resolve(self, first_task_ns: int) -> tuple[int, int]:
        """[start, end) in ns. Raises UsageError where a mixed window turns out to end before it starts."""
        start, end = (e.ns + first_task_ns if e.relative else e.ns for e in (self.start, self.end))
        if end <= start:
            raise UsageError(f"--window: its end ({end} ns) is not after its start ({start} ns)")
        return start, end


def _quantity_ns(text: str) -> int | None:
    """ns of a number with or without a unit, half to even below a ns; None where it is no such thing."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    ns = (Decimal(match[1]) * UNITS_NS[match[2] or ""]).to_integral_value(ROUND_HALF_EVEN)
    return int(ns) if ns <= _INT64_MAX else None


def parse_duration(text: str, option: str) -> int:
    """ns of `50us`, `1.5ms`, `2000`. Raises UsageError that names the option: negative, no number, unknown unit."""
    ns = _quantity_ns(text)
    if ns is None:
        raise UsageError(f"{option}: {printable(text, 60)!r} is not a duration; write 50us, 1.5ms or a number of ns")
    return ns


def _edge(text: str, side: str, whole: str) -> Edge:
    relative = text.strip().startswith("+")
    ns = _quantity_ns(text.strip()[1:] if relative else text)
    if ns is None:
        shown = printable(text, 60)
        raise UsageError(
            f"--window: the {side} {shown!r} of {printable(whole, 120)!r} is not a time; write ns since the epoch, "
            "a number with a unit (ns, us, ms, s), or +TIME from the first task"
        )
    return Edge(ns, relative)


def parse_window(text: str) -> Window:
    """START:END. Raises UsageError: not two times, or an end that is not after the start."""
    parts = text.split(":")
    if len(parts) != 2:
        raise UsageError(f"--window: {printable(text, 120)!r} is not START:END; for example +10ms:+20ms")
    window = Window(_edge(parts[0], "start", text), _edge(parts[1], "end", text), text)
    if window.start.relative == window.end.relative and window.end.ns <= window.start.ns:
        raise UsageError(f"--window: the end of {printable(text, 120)!r} is not after its start")
    return window


def span_text(span: tuple[int, int], origin_ns: int) -> str:
    """[start, end) as --window takes it; origin_ns: the first task, which `+` counts from."""
    absolute = f"{span[0]}:{span[1]}"
    if span[0] < origin_ns:
        return absolute
    return f"{absolute}, or " + ":".join(f"+{(ns - origin_ns) / 1e6:.3f}ms" for ns in span)


def doubts(text: str, window: tuple[int, int], span: tuple[int, int]) -> list[str]:
    """Warnings of a window that is hardly meant: an edge lies further outside of what the capture spans than the span
    is long (a `+` or a digit is missing), or it is shorter than a microsecond and has no unit. ns, trace time.
    """
    length = max(span[1] - span[0], 1)
    found = []
    far = [
        name
        for name, ns in zip(("start", "end"), window, strict=True)
        if ns < span[0] - length or ns > span[1] + length
    ]
    if far:
        which = f"its {far[0]} lies" if len(far) == 1 else "both its ends lie"
        found.append(
            f"--window {printable(text, 120)}: {which} far outside of the capture, which spans "
            f"{span_text(span, span[0])} (a time without + is ns since 1970)"
        )
    if window[1] - window[0] < 1_000 and not any(c.isalpha() for c in text):
        found.append(
            f"--window {printable(text, 120)} is {window[1] - window[0]} ns long: a number without a unit is ns; for "
            "milliseconds write +10ms:+50ms"
        )
    return found
