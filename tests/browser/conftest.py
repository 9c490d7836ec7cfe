"""A headless Chromium with the local UI in it. Skips where Chromium, Playwright or the UI build is missing."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from converter.open_ui import ui_build, view_of
from converter.ui_link import View, deep_link
from converter.ui_server import serve_ui

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
#: What the UI build itself says in every page, whatever the trace: a directive that Chromium no longer knows, the
#: probes that our content security policy stops, the reload channel of its developers.
OF_THE_UI_ITSELF = (
    "Unrecognized Content-Security-Policy directive 'navigate-to'",
    "is_internal_user.js",
    "http://127.0.0.1:9001/status",
    "/live_reload",
    "LiveReload SSE error",
)
LOADED = "() => self.app?.trace && !self.app.isLoadingTrace && self.app.trace.workspace.flatTracks.length > 0"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium here: apt-get install chromium, or name one in $CHROMIUM")
    if ui_build() is None:
        pytest.skip("no UI build here: pip install 'npu-perfetto[offline]'")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Opened:
    """A trace in the UI. page: Playwright's; complaints: console errors and exceptions; requests: URLs that left."""

    page: Any
    view: View
    server_url: str
    complaints: list[str] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)

    def rows(self, sql: str) -> list[list[Any]]:
        """What the page's own engine answers; every value as text, as integers may exceed 2^53."""
        return self.page.evaluate(
            """async (sql) => {
              const result = await self.app.trace.engine.query(sql);
              const columns = result.columns();
              const rows = [];
              for (const it = result.iter({}); it.valid(); it.next())
                rows.push(columns.map((c) => { const v = it.get(c); return v === null ? null : String(v); }));
              return rows;
            }""",
            sql,
        )

    def workspace(self) -> dict[str, Any]:
        """The current workspace: its title, pinned names, and the paths of its tracks in order."""
        return self.page.evaluate(
            """() => { const w = self.app.trace.workspace; return {
              title: w.title, pinned: w.pinnedTracks.map((t) => t.name),
              paths: w.flatTracksOrdered.map((t) => t.fullPath.join(' > ')),
              expanded: w.flatTracksOrdered.filter((t) => t.expanded).map((t) => t.fullPath.join(' > ')),
              all: self.app.trace.workspaces.all.map((w) => w.title) }; }"""
        )

    def visible(self) -> tuple[int, int]:
        """Start and end of the viewport, ns."""
        start, end = self.page.evaluate(
            """() => { const s = self.app.trace.timeline.visibleWindow.toTimeSpan(); return [String(s.start), String(s.end)]; }"""
        )
        return int(start), int(end)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def open_page(chromium: Any) -> Iterator[Open]:
    """open_page(trace, step=..., ranks=...): the trace as `open` shows it. Tests that ask for the same share the page."""
    with ExitStack() as stack:

        @cache
        def opened(trace: Path, step: int | None = None, ranks: tuple[int, ...] = ()) -> Opened:
            build = ui_build()
            assert build is not None
            view = view_of(trace, step, ranks, lambda text: None)
            server, trace_url = serve_ui(build, trace)
            stack.enter_context(server)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            stack.callback(server.shutdown)
            context = chromium.new_context(viewport={"width": 1600, "height": 1000})
            stack.callback(context.close)
            page = context.new_page()
            out = Opened(page, view, server.url())
            page.on("pageerror", lambda error: out.complaints.append(str(error)))
            page.on("console", lambda message: _heard(message, out))
            page.on("requestfinished", lambda request: out.reached.append(request.url))
            page.goto(deep_link(server.url(), trace_url, view))
            page.wait_for_function(LOADED, timeout=120_000)
            if view.commands:  # the last of them opens the tab
                page.get_by_text("Query result").wait_for(timeout=120_000)
            return out

        yield opened


def _heard(message: Any, out: Opened) -> None:
    text = f"{message.text} {message.location.get('url', '')}"
    if message.type == "error" and not any(known in text for known in OF_THE_UI_ITSELF):
        out.complaints.append(text)
    if "Startup command" in text and "failed" in text:
        out.complaints.append(text)
