"""Answers SQL about a trace with the real trace_processor.

    with open_trace("x.pftrace") as tp:
        for row in tp.query("INCLUDE PERFETTO MODULE npu.steps; SELECT forward_ct, dur FROM npu_steps"):
            print(row.forward_ct, row.dur)

The engine is the WebAssembly one of the extra `offline`, or a native trace_processor_shell of the user's
(`engine=PATH` or the variable NPU_PERFETTO_TRACE_PROCESSOR). SQL has no access to files in either.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from converter import manifest
from converter.file_kinds import refuse_capture
from converter.remote import fetched_file
from converter.wasm_engine import WasmEngine, major_version, protos
from schemas import sql_package as npu
from schemas.errors import EngineError, InputError, printable

if TYPE_CHECKING:
    import pandas

ENGINE_VARIABLE = "NPU_PERFETTO_TRACE_PROCESSOR"
CHUNK_BYTES = 4 << 20
TAR_CHUNK_BYTES = 64 << 10  # v52 fails a check of its own where one piece holds the ends of several members

# CellType of perfetto.protos.QueryResult.CellsBatch
_NULL, _VARINT, _FLOAT64, _STRING, _BLOB = 1, 2, 3, 4, 5


class Result:
    """The rows of the last statement of a query. Iterates as objects with one attribute per column, like perfetto's.

    columns: names as the engine gives them (two may be equal); rows: tuples of int, float, str, bytes or None.
    """

    def __init__(self, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        self.columns = list(columns)
        self.rows = rows
        self.warning = ""  # what must be known to read them, or ""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return (SimpleNamespace(**dict(zip(self.columns, row, strict=True))) for row in self.rows)

    def as_pandas_dataframe(self) -> pandas.DataFrame:
        """As perfetto's: columns of objects, integers exact."""
        import pandas

        return pandas.DataFrame(self.rows, columns=self.columns, dtype=object)


def _decode(result: Any) -> Result:
    columns = list(result.column_names)
    if not columns:
        return Result([], [])
    cells: list[Any] = []
    for batch in result.batch:
        texts = batch.string_cells
        if isinstance(texts, bytes):  # not valid UTF-8 somewhere
            texts = texts.decode("utf-8", "replace")
        values: dict[int, Iterator[Any]] = {
            _VARINT: iter(batch.varint_cells),
            _FLOAT64: iter(batch.float64_cells),
            _STRING: iter(texts.split("\0")),
            _BLOB: iter(batch.blob_cells),
        }
        cells.extend(None if kind == _NULL else next(values[kind]) for kind in batch.cells)
    n = len(columns)
    return Result(columns, [tuple(cells[i : i + n]) for i in range(0, len(cells), n)])


def message(error: str) -> str:
    """The engine's error for a terminal: its lines, without control characters. It heads an SQL error with the words of
    a Python traceback, which would look like a crash of ours."""
    lines = [line for line in error.strip().splitlines() if not line.startswith("Traceback (most recent call last)")]
    return "\n".join(printable(line, 400) for line in lines)


class Engine:
    """A loaded trace. Use it with `with`, or close() it.

    unread_offsets: where the trace is an archive whose manifest moves ranks, and this engine does not read it: what
    follows from that, for people; else "".
    """

    def __init__(self, backend: Any, moved: Mapping[str, int] | None = None) -> None:
        self._backend = backend
        self.unread_offsets = self._unread(moved) if moved else ""

    def _unread(self, moved: Mapping[str, int]) -> str:
        version = self._backend.version()
        if version is not None and version >= manifest.FIRST_VERSION:
            return ""
        who = f"this engine (v{version})" if version is not None else "this engine"
        ranks = ", ".join(printable(path.removesuffix(".pftrace"), 20) for path in list(moved)[:4])
        more = f" and {len(moved) - 4} more" if len(moved) > 4 else ""
        return (
            f"{who} does not read the archive's manifest, which moves {ranks}{more}: "
            "each rank is on its own clock here, so times of different ranks do not compare"
        )

    def query(self, sql: str) -> Result:
        """Runs all statements; the result of the last one. EngineError with the engine's message otherwise."""
        result = self._backend.execute_query(sql)
        if result.error:
            raise EngineError(message(result.error))
        return _decode(result)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of `query` as tuples."""
        return self.query(sql).rows

    def trace_summary(self, specs: list[str | bytes], metric_ids: list[str] | None = None) -> Any:
        """A perfetto.protos.TraceSummary. specs: TraceSummarySpec as textproto or bytes; metric_ids: None for all."""
        result = self._backend.trace_summary(specs, metric_ids)
        if result.error:
            raise EngineError(message(result.error))
        return protos().TraceSummary.FromString(result.proto_summary)

    def close(self) -> None:
        self._backend.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_trace(trace: str | os.PathLike[str] | bytes, *, engine: str | None = None, sql_package: bool = True) -> Engine:
    """Loads a trace (a path, a URL or its bytes, gzip or not) of any format that trace_processor reads.

    engine: path of a native trace_processor_shell; None: NPU_PERFETTO_TRACE_PROCESSOR if set, else the extra `offline`.
    sql_package: makes the `npu` modules known.
    Raises InputError where the trace can't be read or is none, EngineError where the engine is missing or dies, UsageError
    for a URL without the extra `remote` or of an unknown file system.
    """
    name = "<bytes>" if isinstance(trace, bytes) else os.fspath(trace)
    moved: dict[str, int] = {}
    with contextlib.closing(_chunks(name, trace if isinstance(trace, bytes) else name, moved)) as chunks:
        first = next(chunks, b"")  # before the engine starts: a missing file needs no engine
        if not first:
            raise InputError(name, "the file is empty")
        engine = engine or os.environ.get(ENGINE_VARIABLE) or None
        backend: Any = _NativeEngine(engine, sql_package) if engine else _wasm(sql_package)
        try:
            _load(backend, name, first, chunks)
        except BaseException:
            backend.close()
            raise
    return Engine(backend, moved)


def _load(backend: Any, name: str, first: bytes, rest: Iterator[bytes]) -> None:
    chunk: bytes | None = first
    while chunk:
        error = backend.parse(chunk).error
        if error:
            raise InputError(name, f"trace_processor can't read this file: {message(error)}")
        chunk = next(rest, None)
    error = getattr(backend.notify_eof(), "error", "")  # the native server answers with plain bytes
    if error:
        raise InputError(name, f"trace_processor can't read this file: {message(error)}")


def _chunks(name: str, trace: str | bytes, moved: dict[str, int]) -> Generator[bytes, None, None]:
    """The trace without gzip, piece by piece. InputError with what is wrong. moved: takes the members that a manifest moves."""
    try:
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(io.BytesIO(trace) if isinstance(trace, bytes) else _open(trace, stack))
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
            chunk = file.read(TAR_CHUNK_BYTES)
            size = CHUNK_BYTES
            if chunk[257:262] == b"ustar":
                size = TAR_CHUNK_BYTES
                file.seek(0)
                moved.update((path, ns) for path, ns in manifest.offsets(file).items() if ns)
                file.seek(len(chunk))
            yield chunk
            while chunk := file.read(size):
                yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(name, f"the gzip data is damaged or cut short: {error}") from error
    except OSError as error:
        raise InputError(name, error.strerror or str(error)) from error


def _open(name: str, stack: contextlib.ExitStack) -> BinaryIO:
    """The open file; a remote one is fetched, and goes with the stack."""
    path = stack.enter_context(fetched_file(name))
    refuse_capture(path, name)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise InputError(name, "not a file")
    return open(path, "rb")


def _wasm(sql_package: bool) -> WasmEngine:
    backend = WasmEngine()
    if sql_package:
        error = backend.register_sql_package(npu.NAME, npu.modules()).error
        if error:
            backend.close()
            raise EngineError(f"the SQL package was refused: {message(error)}")
    return backend


class _NativeEngine:
    """A user's trace_processor_shell, through perfetto's own TraceProcessor, which starts it and talks HTTP to it."""

    def __init__(self, program: str, sql_package: bool) -> None:
        if not (Path(program).is_file() and os.access(program, os.X_OK)):
            raise EngineError(f"{printable(program)}: not a program; give the path of trace_processor_shell")
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
        from perfetto.trace_processor.api import SqlPackage

        packages = [SqlPackage(str(npu.folder()), package=npu.NAME)] if sql_package else None
        self._program = program
        try:
            self._perfetto = TraceProcessor(config=TraceProcessorConfig(bin_path=program, add_sql_packages=packages))
        except Exception as error:  # perfetto raises bare Exceptions
            what = " ".join(printable(line, 400) for line in str(error).split("\n"))
            raise EngineError(f"{printable(program)} did not start: {what}") from error

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._perfetto.http, method)(*arguments)
        except (OSError, HTTPException) as error:
            raise EngineError(f"{printable(self._program)} stopped: {printable(error)}") from error

    def parse(self, chunk: bytes) -> Any:
        return self._call("parse", chunk)

    def notify_eof(self) -> Any:
        return self._call("notify_eof")

    def version(self) -> int | None:
        return major_version(self._call("status"))

    def execute_query(self, query: str) -> Any:
        return self._call("execute_query", query)

    def trace_summary(self, specs: list[str | bytes], metric_ids: list[str] | None = None) -> Any:
        return self._call("trace_summary", specs, metric_ids)

    def close(self) -> None:
        self._perfetto.close()
