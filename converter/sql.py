"""Runs one query over several traces and puts the rows together."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from converter.engine import Result, open_trace
from converter.parallel import Workers
from converter.remote import is_remote
from converter.remote import matching as remote_matching
from schemas.errors import EngineError, InputError, NpuPerfettoError, UsageError, printable


@dataclass
class Answer:
    """Rows of all traces; with several traces the first column is `trace`. failures: one error per trace that failed;
    warnings: one line each, about rows that are there."""

    columns: list[str] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    failures: list[NpuPerfettoError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    answered: int = 0


def split_arguments(arguments: Sequence[str], query_file: str | None) -> tuple[list[str], str]:
    """TRACE... and the query: the last argument, unless there is a query file (`-`: stdin). UsageError otherwise."""
    if query_file is None:
        if len(arguments) < 2:
            raise UsageError("a query is missing: npu-perfetto sql TRACE... QUERY, or -f FILE")
        traces, query = list(arguments[:-1]), arguments[-1]
    else:
        traces, query = list(arguments), _read_query(query_file)
    traces = matching(traces)
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
    traces: Sequence[str],
    query: str,
    engine: str | None = None,
    progress: Callable[[str], None] | None = None,
    jobs: int = 1,
) -> Answer:
    """Asks every trace; the others still answer where one fails. Rows stand in the order of the traces.

    jobs: how many engines run side by side; each has one trace in memory.
    """
    answer = Answer()
    several = len(traces) > 1
    results: dict[int, Result | NpuPerfettoError] = {}
    for position, result in Workers(jobs).as_done(partial(ask, query=query, engine=engine), traces):
        results[position] = result
        if progress:
            rows = "failed" if isinstance(result, NpuPerfettoError) else f"{len(result.rows)} rows"
            progress(f"{printable(traces[position])}: {rows}")
    for position, trace in enumerate(traces):
        found = results[position]
        if isinstance(found, NpuPerfettoError):
            answer.failures.append(
                found if isinstance(found, InputError) else type(found)(f"{printable(trace)}: {found}")
            )
            continue
        # One query has the same columns everywhere.
        answer.columns = ["trace", *found.columns] if several else found.columns
        answer.rows.extend((trace, *row) if several else row for row in found.rows)
        answer.answered += 1
        if found.warning:
            answer.warnings.append(f"{printable(trace)}: {found.warning}")
    return answer


def ask(trace: str, query: str, engine: str | None) -> Result | NpuPerfettoError:
    """The rows of one trace, or why there are none."""
    try:
        with open_trace(trace, engine=engine) as tp:
            found = tp.query(query)
            found.warning = tp.unread_offsets
            return found
    except InputError as error:
        return error
    except EngineError as error:
        return EngineError(f"{error}{_hint(str(error))}")


def _hint(message: str) -> str:
    """Which module has the table that a query forgot to include, or which modules there are."""
    from schemas import sql_package

    modules = sql_package.modules()
    if found := re.search(r"no such table: (npu_\w+)", message):
        for name, text in modules.items():
            if re.search(rf"TABLE {found[1]}\b", text):
                return f"; it is in a module: put `INCLUDE PERFETTO MODULE {name};` in front"
    if "unknown module 'npu" in message:
        public = (name for name in modules if not name.rpartition(".")[2].startswith("_"))
        return f"; the modules are {', '.join(sorted(public))} (`npu.*` is all of them)"
    return ""


def matching(traces: Sequence[str]) -> list[str]:
    """The traces, with patterns (`'night/*.pftrace'`) that the shell left alone, as it does those of URLs, replaced by
    what they match.

    Raises UsageError for a path that isn't there and a pattern that matches nothing.
    """
    out: list[str] = []
    for trace in traces:
        if is_remote(trace):
            out += remote_matching(trace)
            continue
        found = [trace] if os.path.exists(trace) else sorted(glob.glob(trace))
        if not found:
            raise UsageError(f"{printable(trace)}: no such file")
        out += found
    return list(dict.fromkeys(out))
