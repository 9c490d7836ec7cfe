"""Blocks of work in order, made by the threads of this process.

One conversion by itself reads and encodes with two threads: pyarrow and numpy work on a block without holding the
interpreter, so a second thread pays and a third doesn't. Where several processes share the cores (`--jobs`), or one
core is all that was asked for (`--jobs 1`), each process keeps to one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

MOST = 2

Item = TypeVar("Item")
Result = TypeVar("Result")

_count: ContextVar[int] = ContextVar("threads", default=MOST)


@contextmanager
def of_this_process(count: int) -> Iterator[None]:
    """At most this many threads inside the block, and never more than outside."""
    token = _count.set(min(count, _count.get()))
    try:
        yield
    finally:
        _count.reset(token)


def in_order(function: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """function(item) of each item, in their order; at most `ahead` + 1 results are held at a time.

    Raises what `function` raises, at its place in the order.
    """
    count = _count.get()
    if count < 2:
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(count) as threads:
        try:
            for item in items:
                waiting.append(threads.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
