"""The local server behind `open`: one trace, and for `--ui local` the UI build, to this machine's browser and no other.

* It listens on 127.0.0.1 only. Another user of the machine could still ask it, and any page could name the trace to
  ui.perfetto.dev: the trace's path holds a random token. (The browser's command line shows it to those who may list
  the user's processes; `open --print-url` does not.)
* A web page of another origin must not read the trace: the Host header has to be ours (a foreign name that resolves
  to 127.0.0.1 is refused: DNS rebinding), and so has Origin where there is one, but for the one origin that is let in.
* The page reaches nobody but this server: the UI build would load a script from Google's storage and look for a
  trace_processor on port 9001, which may hold another trace. A content security policy says no to both.
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
#: For the UI's pages and workers. eval: the UI and the engine's glue need it; inline: index.html's own script.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self' {origins} data: blob:; worker-src 'self' blob:; object-src 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
IDLE_TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 20


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
        self.policy = CONTENT_SECURITY_POLICY.format(origins=" ".join(sorted(self.origins)))

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
    path = _trace_path(trace)
    server = TraceServer({**ui_files(build), path: Served(trace, OTHER_TYPE, is_trace=True)}, port)
    return server, server.url(quote(path))


def serve_trace(trace: Path, port: int, origin: str) -> tuple[TraceServer, str]:
    """A server of the trace alone, for a UI at `origin`; the trace's URL."""
    path = _trace_path(trace)
    server = TraceServer({path: Served(trace, OTHER_TYPE, is_trace=True)}, port, origin)
    return server, server.url(quote(path))


def _trace_path(trace: Path) -> str:
    """/<token>/<name>: the UI shows the name as the title. Bytes that are not UTF-8 are replaced, as URLs do."""
    name = os.fsencode(trace.name).decode("utf-8", "replace")
    return f"/{secrets.token_urlsafe(12)}/{name}"


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
        if not origin or origin != self.server.allowed_origin:
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
        served = self.server.files.get(_path(self.path))
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
                self._send(file, size)
                if served.is_trace:
                    self.server.fetched.set()

    def _send(self, file: BinaryIO, size: int) -> None:
        """Exactly the bytes that were announced; a file that shrinks meanwhile ends the connection."""
        while size:
            piece = file.read(min(size, CHUNK_BYTES))
            if not piece:
                raise ConnectionAbortedError("the file became shorter")
            self.wfile.write(piece)
            size -= len(piece)

    def _origin_if_allowed(self) -> str | None:
        """The page's origin ("" where the browser names none); None: the request was refused and answered.

        Ours are 127.0.0.1 and localhost, which differ to a browser.
        """
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        origins = self.headers.get_all("Origin", [])
        if len(origins) > 1:
            self._refuse(HTTPStatus.FORBIDDEN)
            return None
        origin = origins[0] if origins else ""
        if not origin or origin in self.server.origins or origin == self.server.allowed_origin:
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
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")  # for requests that go without CORS
        self.send_header("Content-Security-Policy", self.server.policy)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: stderr is for what the user has to know."""


def _path(target: str) -> str:
    """The path a request asks for, "" for what is none."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return ""
    return "" if parts.scheme or parts.netloc else unquote(parts.path)


def _open(served: Served) -> BinaryIO:
    """The file, if it still is a regular one. A file of the build may not have become a link since the start."""
    nofollow = 0 if served.is_trace else getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(served.path, os.O_RDONLY | nofollow | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{printable(served.path)}: not a file")
    return os.fdopen(descriptor, "rb")
