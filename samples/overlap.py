"""The vendor's Overlap Analysis of a rank, and microseconds as the exporters write them."""

from __future__ import annotations

from samples.capture import Capture
from samples.intervals import Pair, union


def us(ns: int) -> str:
    """Microseconds with three decimals, exact."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def overlap(capture: Capture) -> dict[str, list[Pair]]:
    """The vendor's Overlap Analysis: sections of Computing, Communication, Communication(Not Overlapped), Free.

    Free is what is left of the range of all device tasks that are no kernels, widened by the sections.
    """
    computing = union((t.start, t.end) for t in capture.tasks if t.kind == "kernel")
    communication = union((t.start, t.end) for t in capture.tasks if t.kind == "collective")
    alone = minus(communication, computing)
    edges = [(t.start, t.end) for t in capture.tasks if t.kind == "other"] + computing + communication
    if not edges:
        return {"Computing": [], "Communication": [], "Communication(Not Overlapped)": [], "Free": []}
    whole = (min(a for a, _ in edges), max(b for _, b in edges))
    free = minus([whole], union(computing + communication))
    return {
        "Communication": communication,
        "Communication(Not Overlapped)": alone,
        "Computing": computing,
        "Free": free,
    }


def minus(pairs: list[Pair], remove: list[Pair]) -> list[Pair]:
    out = []
    for start, end in pairs:
        at = start
        for a, b in remove:
            if b <= at or a >= end:
                continue
            if a > at:
                out.append((at, a))
            at = max(at, b)
        if at < end:
            out.append((at, end))
    return out
