"""The page of `report --format html` in a real browser: inert whatever the names are, and it needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from converter.commands.report import command
from tests.converter.report_trace import HOSTILE, invoke, report_trace

#: What would prove that a name got through: a script that ran, a handler, a frame, an image that asks for a server.
ATTACKS = (
    HOSTILE,
    "<img src=http://127.0.0.1:9/x onerror=\"document.title='owned'\">",
    "</style></table></svg><script>document.title='owned'</script>",
    "\"><svg onload=document.title='owned'><iframe src=//127.0.0.1:9/>",
)


@pytest.mark.parametrize("name", ATTACKS)
def test_names_do_nothing(chromium: Any, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    trace = report_trace(ranks=(0,), steps=4, name=name, run={"note": name}, capture={"cann_version": name})
    html = tmp_path / "report.html"
    html.write_text(invoke(command, trace.write(tmp_path / "x.pftrace"), "--format", "html").stdout, "utf-8")
    page = chromium.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(html.as_uri())
    assert page.title().startswith("Report of ")
    assert page.evaluate("document.querySelectorAll('script, img, iframe, [onload], [onerror]').length") == 0
    assert page.evaluate("document.querySelectorAll('svg').length") == 2
    assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 100)")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    # The name is there to be read, as it was written but for its control characters.
    assert name.split("\x1b", maxsplit=1)[0] in page.inner_text("body")
    page.locator("summary").first.click()
    assert "--step 100 --rank 0" in page.inner_text("details[open] code")
    assert (requests, complaints) == ([html.as_uri()], [])
    page.close()
