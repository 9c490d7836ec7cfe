"""Stands in for trace_processor_shell where none can be had: its HTTP interface and flags, over the wasm engine."""

from __future__ import annotations

import argparse
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from google.protobuf.message import Message

from converter.wasm_engine import WasmEngine, protos


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-D", action="store_true")
    parser.add_argument("--http-port", type=int, required=True)
    parser.add_argument("--no-ftrace-raw", action="store_true")
    parser.add_argument("--add-sql-package", action="append", default=[])
    options = parser.parse_args()
    engine = WasmEngine()
    for package in options.add_sql_package:
        folder, _, name = package.rpartition("@")
        modules = {f"{name}.{p.stem}": p.read_text("utf-8") for p in Path(folder).glob("*.sql")}
        assert not engine.register_sql_package(name, modules).error

    class Handler(BaseHTTPRequestHandler):
        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path == "/notify_eof":
                engine.notify_eof()
            self.answer(b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            reply: Message
            if self.path == "/parse":
                reply = engine.parse(body)
            else:
                sql = type(protos().TraceProcessorRpc().query_args).FromString(body).sql_query
                if "die" in sql:
                    engine.close()
                    os._exit(1)
                reply = engine.execute_query(sql)
            self.answer(reply.SerializeToString())

        def log_message(self, format: str, *args: object) -> None:
            pass

    HTTPServer(("localhost", options.http_port), Handler).serve_forever()


main()
