"""Interval sums on small lists of (start, end) pairs, written plainly: the truth must not share the converter's code."""

from __future__ import annotations

from collections.abc import Iterable

Pair = tuple[int, int]


def union(pairs: Iterable[Pair]) -> list[Pair]:
    """Disjoint, sorted; empty intervals cover nothing, touching ones join."""
    out: list[Pair] = []
    for start, end in sorted(p for p in pairs if p[1] > p[0]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def clip(pairs: Iterable[Pair], window: Pair) -> list[Pair]:
    return [(max(a, window[0]), min(b, window[1])) for a, b in pairs if min(b, window[1]) > max(a, window[0])]


def length(pairs: Iterable[Pair]) -> int:
    """The sum of the lengths."""
    return sum(b - a for a, b in pairs)


def holes(pairs: Iterable[Pair], window: Pair) -> list[Pair]:
    """The parts of the window that no interval covers."""
    out, at = [], window[0]
    for start, end in union(clip(pairs, window)):
        if start > at:
            out.append((at, start))
        at = end
    if window[1] > at:
        out.append((at, window[1]))
    return out


def common(left: list[Pair], right: list[Pair]) -> list[Pair]:
    """The intersection of two disjoint lists."""
    return [(max(a, c), min(b, d)) for a, b in left for c, d in right if min(b, d) > max(a, c)]
