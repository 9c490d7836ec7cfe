"""The local server behind `open`: one trace, and for `--ui local` the UI build, to this machine's browser and no other.

* It listens on 127.0.0.1 only. Another user of the machine could still ask it: the trace's path holds a random
  token in local mode.
* A web page of another origin must not read the trace: the Host header has to be ours (a foreign name that resolves
  to 127.0.0.1 is refused: DNS rebinding), and so has Origin where there is one, but for the one origin that is let in.
* The files are looked up in a table made at the start, never on disk by the request's path: no `..`, no listing.
"""

from __future__ import annotations

import os
import secrets
import socketserver
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

from schemas.errors import InputError, OutputError, printable

HOST = "127.0.0.1"
#: Not from the `mimetypes` of the machine, which a registry or /etc/mime.types can bend; wasm and js must be right.
MIME_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
OTHER_TYPE = "application/octet-stream"
IDLE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Served:
    """A file that may be asked for."""

    path: Path
    mime_type: str
    is_trace: bool = False


def ui_files(build: Path) -> dict[str, Served]:
    """Every regular file of a UI build (the folder with index.html) by URL path. Links are left out."""
    found: dict[str, Served] = {}
    for folder, folders, names in os.walk(build):  # does not follow links to folders
        folders.sort()
        for name in names:
            path = Path(folder, name)
            if stat.S_ISREG(path.lstat().st_mode):
                url = "/" + path.relative_to(build).as_posix()
                found[url] = Served(path, MIME_TYPES.get(path.suffix, OTHER_TYPE))
    if "/index.html" not in found:
        raise InputError(build, "no index.html: not a build of the Perfetto UI")
    found["/"] = found["/index.html"]
    return found


def trace_url_path(trace: Path, token: str = "") -> str:
    """/<token>/<name>: the name is what the UI shows as the title."""
    return (f"/{token}" if token else "") + "/" + quote(trace.name, safe="")


class TraceServer(ThreadingHTTPServer):
    """Serves `files` on 127.0.0.1:port (0: a free one). `fetched` is set when the whole trace was sent once.

    allowed_origin: the one foreign origin that may read the trace (CORS), or "".
    Raises OutputError where the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere it would let two servers share the port

    def __init__(self, files: Mapping[str, Served], port: int = 0, allowed_origin: str = "") -> None:
        self.files = dict(files)
        self.allowed_origin = allowed_origin
        self.fetched = threading.Event()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise OutputError(f"port {port} of {HOST} can't be used: {error.strerror or error}") from error
        self.port = int(self.server_address[1])
        self.hosts = frozenset({f"{HOST}:{self.port}", f"localhost:{self.port}"})
        self.origins = frozenset(f"http://{host}" for host in self.hosts)

    def server_bind(self) -> None:
        # HTTPServer would look up the machine's name: slow without DNS, and nobody reads it.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle is no news."""

    def url(self, path: str = "/") -> str:
        return f"http://{HOST}:{self.port}{path}"


def serve_ui(build: Path, trace: Path, port: int = 0) -> tuple[TraceServer, str]:
    """A server of the UI build and the trace; the trace's URL."""
    files = ui_files(build)
    path = trace_url_path(trace, secrets.token_urlsafe(12))
    files[unquote(path)] = Served(trace, OTHER_TYPE, is_trace=True)
    server = TraceServer(files, port)
    return server, server.url(path)


def serve_trace(trace: Path, port: int, origin: str) -> tuple[TraceServer, str]:
    """A server of the trace alone, for a UI at `origin`; the trace's URL."""
    path = trace_url_path(trace)
    server = TraceServer({unquote(path): Served(trace, OTHER_TYPE, is_trace=True)}, port, origin)
    return server, server.url(path)


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer
    server_version = "npu-perfetto"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def do_OPTIONS(self) -> None:
        """The preflight of Chrome's private network access: a public page asks before it reaches 127.0.0.1."""
        origin = self._origin_if_allowed()
        if origin is None:
            return
        if not origin:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._cors(origin)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        if self.headers.get("Access-Control-Request-Private-Network") == "true":
            self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def _answer(self, send_body: bool) -> None:
        origin = self._origin_if_allowed()
        if origin is None:
            return
        target = urlsplit(self.path)
        served = self.server.files.get(unquote(target.path)) if not (target.scheme or target.netloc) else None
        if served is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        try:
            file = _open(served)
        except OSError:
            self._refuse(HTTPStatus.GONE)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", served.mime_type)
            self.send_header("Content-Length", str(size))
            self._cors(origin)
            self.end_headers()
            if send_body:
                copyfileobj(file, self.wfile, 1 << 20)
                self.wfile.flush()
                if served.is_trace:
                    self.server.fetched.set()

    def _origin_if_allowed(self) -> str | None:
        """The foreign origin to let in by CORS, "" for a request of our own; None: refused and answered."""
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        origins = self.headers.get_all("Origin", [])
        if len(origins) > 1:
            self._refuse(HTTPStatus.FORBIDDEN)
            return None
        origin = origins[0] if origins else ""
        if not origin or origin in self.server.origins:
            return ""
        if origin == self.server.allowed_origin:
            return origin
        self._refuse(HTTPStatus.FORBIDDEN)
        return None

    def _cors(self, origin: str) -> None:
        if self.server.allowed_origin:
            self.send_header("Vary", "Origin")
        if origin:
            self.send_header("Access-Control-Allow-Origin", origin)

    def _refuse(self, status: HTTPStatus) -> None:
        """A short answer that repeats nothing of the request. The connection ends: a body may be on its way."""
        body = f"{status.value} {status.phrase}\n".encode()
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What BaseHTTPRequestHandler refuses itself: an unknown method, a malformed request."""
        known = HTTPStatus(code)
        unknown_method = known == HTTPStatus.NOT_IMPLEMENTED
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if unknown_method else known)

    def end_headers(self) -> None:
        # The next trace may have this one's name and port: nothing is kept.
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        if not self.server.allowed_origin:
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("X-Frame-Options", "DENY")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: stderr is for what the user has to know."""


def _open(served: Served) -> BinaryIO:
    """The file, if it still is a regular one. A file of the build may not have become a link since the start."""
    nofollow = 0 if served.is_trace else getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(served.path, os.O_RDONLY | nofollow | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{printable(served.path)}: not a file")
    return os.fdopen(descriptor, "rb")
