"""A small server that answers as an SGLang server with DSpark does, for `record`.

Records come while it "decodes": one step per `step_s`, in memory, cleared only by /set_internal_state. Reading
/server_info while a profile runs is a fault of the caller and is kept in `reads_inside`.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandIn:
    """faults: path -> (status, text) to answer instead, or (0, "") to hang up; times: how often, -1 for ever."""

    def __init__(self, step_s: float = 0.01, recording: bool = True, old: bool = False, blocking: bool = False) -> None:
        self.step_s, self.recording, self.old, self.blocking = step_s, recording, old, blocking
        self.faults: dict[str, list[Any]] = {}
        self.calls: list[tuple[str, Any]] = []
        self.reads_inside = 0
        self.forward_ct = 100
        self.records: list[dict[str, int]] = []
        self.profile_until: int | None = None  # forward_ct, or -1 until stopped
        self.lock = threading.Lock()
        self.began = time.monotonic()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.answer(self, None)

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                stand_in.answer(self, json.loads(self.rfile.read(size) or b"{}"))

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def decode(self) -> None:
        """Catches up with the steps that have passed."""
        due = 100 + int((time.monotonic() - self.began) / self.step_s)
        while self.forward_ct < due:
            self.forward_ct += 1
            self.records.append({"forward_ct": self.forward_ct, "bs": 4})
        if self.profile_until is not None and 0 <= self.profile_until <= self.forward_ct:
            self.profile_until = None

    def answer(self, request: BaseHTTPRequestHandler, body: Any) -> None:
        with self.lock:
            self.decode()
            self.calls.append((request.path, body))
            fault = self.faults.get(request.path)
            if fault and fault[2]:
                fault[2] -= 1
                status, text = fault[0], fault[1]
            else:
                status, text = self.respond(request.path, body)
        if status == 0:
            request.connection.close()
            return
        if self.blocking and request.path == "/start_profile" and "num_steps" in (body or {}):
            while True:
                with self.lock:
                    self.decode()
                    if self.profile_until is None:
                        break
                time.sleep(self.step_s)
        data = text.encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def respond(self, path: str, body: Any) -> tuple[int, str]:
        if path == ("/get_server_info" if self.old else "/server_info"):
            self.reads_inside += self.profile_until is not None
            record = {"mode": "static", "gamma": 3, "components": ["core"], "records": list(self.records)}
            state = {"dspark_info_record": record} if self.recording else {}
            return 200, json.dumps({"tp_size": 1, "internal_states": [state]})
        if path == "/set_internal_state":
            if (body.get("server_args") or {}).get("dspark_clear_info_records"):
                self.records.clear()
            return 200, "[]"
        if path == "/start_profile":
            if self.profile_until is not None:
                return 400, "Profiling is already in progress. Call /stop_profile first."
            self.profile_until = self.forward_ct + body["num_steps"] if "num_steps" in body else -1
            return 200, "Start profiling.\n"
        if path == "/stop_profile":
            if self.profile_until is None:
                return 400, "Profiling is not in progress. Call /start_profile first."
            self.profile_until = None
            return 200, "Stop profiling. This will take some time.\n"
        return 404, '{"detail":"Not Found"}'
