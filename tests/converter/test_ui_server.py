"""The local server, spoken to over raw sockets and http.client: what it gives, and all it refuses."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from converter.ui_server import TraceServer, serve_trace, serve_ui, ui_files
from schemas.errors import InputError, OutputError

UI_ORIGIN = "https://ui.example"
TRACE = bytes(range(256)) * 5000


def started(server: TraceServer) -> TraceServer:
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "build"
    (folder / "v1" / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "v1" / "engine.wasm").write_bytes(b"\0asm")
    (folder / "v1" / "frontend.js").write_text("1")
    (folder / "v1" / "assets" / "a.woff2").write_bytes(b"x")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "out").symlink_to(tmp_path)
    return folder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run 1.pftrace"
    path.write_bytes(TRACE)
    return path


@pytest.fixture
def local(build: Path, trace: Path) -> Iterator[tuple[TraceServer, str]]:
    server, url = serve_ui(build, trace)
    with started(server):
        yield server, url.removeprefix(server.url(""))
        server.shutdown()


@pytest.fixture
def hosted(trace: Path) -> Iterator[tuple[TraceServer, str]]:
    server, url = serve_trace(trace, 0, UI_ORIGIN)
    with started(server):
        yield server, url.removeprefix(server.url(""))
        server.shutdown()


def ask(server: TraceServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply.status, {k.lower(): v for k, v in reply.getheaders()}, body


def raw(server: TraceServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_page_its_files_and_the_trace(local: tuple[TraceServer, str]) -> None:
    server, path = local
    for url, mime in (
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/v1/engine.wasm", "application/wasm"),
        ("/v1/frontend.js?v=1", "text/javascript; charset=utf-8"),
        ("/v1/assets/a.woff2", "font/woff2"),
    ):
        status, headers, _ = ask(server, url)
        assert (status, headers["content-type"]) == (200, mime)
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
    assert not server.fetched.is_set()
    status, headers, body = ask(server, path)
    assert (status, body) == (200, TRACE)
    assert "access-control-allow-origin" not in headers
    assert server.fetched.wait(5)


def test_only_this_machine_can_connect(local: tuple[TraceServer, str]) -> None:
    assert local[0].socket.getsockname()[0] == "127.0.0.1"


def test_head_sends_no_body_and_is_no_fetch(local: tuple[TraceServer, str]) -> None:
    server, path = local
    status, headers, body = ask(server, path, "HEAD")
    assert (status, headers["content-length"], body) == (200, str(len(TRACE)), b"")
    assert not server.fetched.is_set()


@pytest.mark.parametrize(
    "path",
    [
        "/v1", "/v1/", "/out/", "/out/secret.txt", "/link.txt", "/../secret.txt", "/v1/../../secret.txt",
        "/%2e%2e/secret.txt", "/v1/%2e%2e/index.html", "/..%2fsecret.txt", "/v1\\frontend.js", "//v1/frontend.js/",
        "/index.html/", "/index.html%00", "/run%201.pftrace", "/etc/passwd", "//[/index.html", "*",
    ],
)  # fmt: skip
def test_nothing_else_is_there(local: tuple[TraceServer, str], path: str) -> None:
    status, _, body = ask(local[0], path)
    assert status == 404
    assert body == b"404 Not Found\n"


def test_a_target_that_is_no_url(local: tuple[TraceServer, str]) -> None:
    server, _ = local
    for target in ("http://[", "http://evil.example/", f"http://127.0.0.1:{server.port}/"):
        request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
        assert raw(server, request.encode()).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "OPTIONS", "PROPFIND"])
def test_only_get_and_head(local: tuple[TraceServer, str], method: str) -> None:
    status, headers, _ = ask(local[0], "/", method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", "0.0.0.0:{port}", "", "[::1]:{port}"])  # fmt: skip
@pytest.mark.parametrize("which", ["local", "hosted"])
def test_a_foreign_host_is_refused(which: str, host: str, request: pytest.FixtureRequest) -> None:
    server, path = request.getfixturevalue(which)
    status, _, body = ask(server, path, Host=host.format(port=server.port))
    assert status == 421
    assert TRACE[:100] not in body
    assert not server.fetched.is_set()


def test_two_hosts_or_none_are_refused(local: tuple[TraceServer, str]) -> None:
    server, path = local
    good = f"Host: 127.0.0.1:{server.port}\r\n"
    for hosts in ("", good + "Host: evil.example\r\n", good + good):
        reply = raw(server, f"GET {path} HTTP/1.1\r\n{hosts}\r\n".encode())
        assert reply.startswith(b"HTTP/1.1 421 ")
    assert raw(server, f"GET {path}\r\n\r\n".encode()).find(TRACE[:100]) == -1  # HTTP/0.9 names no host


def test_localhost_is_ours_too(local: tuple[TraceServer, str]) -> None:
    server, path = local
    assert ask(server, path, Host=f"localhost:{server.port}")[0] == 200
    # The page was opened as localhost and its trace's URL says 127.0.0.1.
    origin = f"http://localhost:{server.port}"
    assert ask(server, path, Origin=origin)[1]["access-control-allow-origin"] == origin


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1", "https://ui.perfetto.dev", "http://127.0.0.1:{port}.evil.example"])  # fmt: skip
def test_a_foreign_origin_is_refused(local: tuple[TraceServer, str], origin: str) -> None:
    server, path = local
    for url in ("/", path):
        status, headers, _ = ask(server, url, Origin=origin.format(port=server.port))
        assert status == 403
        assert "access-control-allow-origin" not in headers
    assert not server.fetched.is_set()


def test_the_hosted_page_alone_may_read(hosted: tuple[TraceServer, str]) -> None:
    server, path = hosted
    for origin in (UI_ORIGIN + ".evil.example", "http://ui.example", UI_ORIGIN + ":444"):
        assert ask(server, path, Origin=origin)[0] == 403
    assert ask(server, "/index.html", Origin=UI_ORIGIN)[0] == 404
    assert ask(server, "/run%201.pftrace", Origin=UI_ORIGIN)[0] == 404  # without the token
    assert not server.fetched.is_set()
    status, headers, body = ask(server, path, Origin=UI_ORIGIN)
    assert (status, body) == (200, TRACE)
    assert (headers["access-control-allow-origin"], headers["vary"]) == (UI_ORIGIN, "Origin")
    assert server.fetched.wait(5)


def test_the_preflight_of_private_network_access(hosted: tuple[TraceServer, str]) -> None:
    server, path = hosted
    asked = {"Access_Control_Request_Method": "GET", "Access_Control_Request_Private_Network": "true"}
    status, headers, _ = ask(server, path, "OPTIONS", Origin=UI_ORIGIN, **asked)
    assert status == 204
    assert headers["access-control-allow-origin"] == UI_ORIGIN
    assert headers["access-control-allow-private-network"] == "true"
    assert ask(server, path, "OPTIONS", Origin="https://evil.example", **asked)[0] == 403
    assert ask(server, path, "OPTIONS", **asked)[0] == 405


@pytest.mark.parametrize(
    "request_line",
    [b"GET", b"GET / HTTP/9.9", b"\xff\xfe\0", b"GET / HTTP/1.1 more", b"GET /" + b"a" * 70_000 + b" HTTP/1.1"],
)
def test_a_malformed_request_gets_a_short_answer(local: tuple[TraceServer, str], request_line: bytes) -> None:
    server, _ = local
    reply = raw(server, request_line + b"\r\n\r\n")
    assert b"a" * 100 not in reply and b"<html" not in reply.lower()
    assert ask(server, "/")[0] == 200


def test_refused_bytes_are_not_taken_for_a_request(local: tuple[TraceServer, str]) -> None:
    """The body of a POST must not be answered as if it were the next request."""
    server, path = local
    inner = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
    head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {len(inner)}\r\n\r\n"
    assert TRACE[:100] not in raw(server, (head + inner).encode())


def test_a_file_of_the_build_that_became_a_link_is_gone(
    local: tuple[TraceServer, str], build: Path, tmp_path: Path
) -> None:
    (build / "v1" / "frontend.js").unlink()
    (build / "v1" / "frontend.js").symlink_to(tmp_path / "secret.txt")
    assert ask(local[0], "/v1/frontend.js")[0] == 410
    os.unlink(build / "index.html")
    assert ask(local[0], "/")[0] == 410


def test_several_requests_at_once(local: tuple[TraceServer, str]) -> None:
    server, path = local
    with socket.create_connection(("127.0.0.1", server.port), timeout=5):  # one that says nothing holds nobody up
        assert ask(server, path)[2] == TRACE


def test_names_that_are_no_text(tmp_path: Path) -> None:
    trace = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a%2f\xff ?#.pftrace"))
    trace.write_bytes(TRACE)
    server, url = serve_trace(trace, 0, UI_ORIGIN)
    with started(server):
        assert ask(server, url.removeprefix(server.url("")))[2] == TRACE
        server.shutdown()


def test_the_ui_may_reach_this_server_only(local: tuple[TraceServer, str]) -> None:
    policy = ask(local[0], "/")[1]["content-security-policy"]
    directives = dict(d.strip().split(" ", 1) for d in policy.split(";"))
    port = local[0].port
    assert directives["connect-src"].split() == [
        "'self'",
        f"http://127.0.0.1:{port}",
        f"http://localhost:{port}",
        "data:",
        "blob:",
    ]
    assert directives["default-src"] == "'self'"


def test_a_folder_without_a_page_is_no_build(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no index\.html"):
        ui_files(tmp_path)


def test_a_taken_port_is_said(trace: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OutputError, match="can't be used"):
            serve_trace(trace, taken.getsockname()[1], UI_ORIGIN)
