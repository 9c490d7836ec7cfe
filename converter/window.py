"""Times on the command line: `--window START:END` and durations such as `50us`.

A time is ns since the epoch, or a number with a unit (ns, us, ms, s); a leading `+` counts from the first task.
Decimal text throughout: a float64 can't hold today's epoch in ns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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
    """A window as the user wrote it: absolute once the first task is known."""

    start: Edge
    end: Edge

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
    window = Window(_edge(parts[0], "start", text), _edge(parts[1], "end", text))
    if window.start.relative == window.end.relative and window.end.ns <= window.start.ns:
        raise UsageError(f"--window: the end of {printable(text, 120)!r} is not after its start")
    return window
