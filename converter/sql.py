"""Runs one query over several traces and puts the rows together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from converter.engine import open_trace
from schemas.errors import EngineError, InputError, NpuPerfettoError, UsageError, printable


@dataclass
class Answer:
    """Rows of all traces; with several traces the first column is `trace`. failures: one error per trace that failed."""

    columns: list[str] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    failures: list[NpuPerfettoError] = field(default_factory=list)
    answered: int = 0


def split_arguments(arguments: Sequence[str], query_file: str | None) -> tuple[list[str], str]:
    """TRACE... and the query: the last argument, unless there is a query file (`-`: stdin). UsageError otherwise."""
    if query_file is None:
        if len(arguments) < 2:
            raise UsageError("a query is missing: npu-perfetto sql TRACE... QUERY, or -f FILE")
        traces, query = list(arguments[:-1]), arguments[-1]
    else:
        traces, query = list(arguments), _read_query(query_file)
    for trace in traces:
        if not os.path.exists(trace):
            raise UsageError(f"{printable(trace)}: no such file")
    if not query.strip():
        raise UsageError("the query is empty")
    return traces, query


def _read_query(name: str) -> str:
    try:
        with open(0 if name == "-" else name, encoding="utf-8", closefd=name != "-") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{printable(name)}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{printable(name)}: not UTF-8 text") from error


def run(
    traces: Sequence[str], query: str, engine: str | None = None, progress: Callable[[str], None] | None = None
) -> Answer:
    """Asks every trace in turn; the others still answer where one fails. One trace is in memory at a time."""
    answer = Answer()
    several = len(traces) > 1
    for trace in traces:
        try:
            if progress:
                progress(f"{printable(trace)}: loading")
            with open_trace(trace, engine=engine) as tp:
                result = tp.query(query)
            # One query has the same columns everywhere.
            answer.columns = ["trace", *result.columns] if several else result.columns
            answer.rows.extend((trace, *row) if several else row for row in result.rows)
            answer.answered += 1
            if progress:
                progress(f"{printable(trace)}: {len(result.rows)} rows")
        except InputError as error:
            answer.failures.append(error)
        except EngineError as error:
            answer.failures.append(EngineError(f"{printable(trace)}: {error}"))
    return answer
