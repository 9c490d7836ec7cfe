"""Events that make a slice out of two: B/E of a thread, b/e of an asynchronous id. Rare, so event by event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from msgspec import Raw

from converter.readers.exact_time import MAX_NS
from schemas.tally import Tally


class Half(NamedTuple):
    """One of the two. Sorted by thread, then time, then place in the file."""

    thread: int
    ts: int
    order: int
    is_start: bool
    name: str
    category: str
    args: bytes
    place: str


class Whole(NamedTuple):
    thread: int
    ts: int
    dur: int
    order: int
    name: str
    category: str
    args: Raw


def pairs(halves: list[Half], tally: Tally) -> list[Whole]:
    """The slices: an end closes the latest open start of its thread. What stays open or closes nothing is dropped."""
    found: list[Whole] = []
    halves.sort(key=lambda half: half[:3])
    stack: list[Half] = []

    def leave() -> None:
        for half in stack:
            tally.read += 1
            tally.drop("no end", 1, half.place)
        stack.clear()

    for half in halves:
        if stack and stack[0].thread != half.thread:
            leave()
        if half.is_start:
            stack.append(half)
            continue
        tally.read += 1
        if not stack:
            tally.drop("no start", 1, half.place)
            continue
        start = stack.pop()
        if half.ts - start.ts > MAX_NS:
            tally.drop("start out of range", 1, start.place or half.place)
            continue
        args = start.args if half.args in (b"{}", b"null", b"") else _merged(start.args, half.args)
        found.append(
            Whole(start.thread, start.ts, half.ts - start.ts, start.order, start.name, start.category, Raw(args))
        )
    leave()
    return found


def _merged(first: bytes, second: bytes) -> bytes:
    decode: Callable[[bytes], Any] = orjson.loads
    try:
        a, b = decode(first), decode(second)
        return orjson.dumps({**a, **b}) if isinstance(a, dict) and isinstance(b, dict) else first
    except (orjson.JSONDecodeError, TypeError, orjson.JSONEncodeError):
        return first
