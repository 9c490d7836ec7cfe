"""HTTP calls to a server: bounded in time, tries and size, each one logged with its times; refusals as one-line errors."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from schemas.errors import InputError, UsageError, printable

TRIES = 3
PAUSE_S = 0.5  # doubles with each try
MAX_BYTES = 1 << 30
INFO_PATHS = ("/server_info", "/get_server_info")


class Server:
    """An SGLang server. calls: what was asked, when (REALTIME ns) and with which answer."""

    def __init__(self, url: str, timeout_s: float = 30.0, api_key: str | None = None) -> None:
        """Raises UsageError where the URL isn't http(s)://HOST[:PORT]."""
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError(f"{printable(url)}: is no URL; give http://HOST:PORT") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{printable(url)}: is no URL of a server; give http://HOST:PORT")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        # A user name and password in the URL are neither shown nor saved.
        self._base = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
        self.shown = printable(self._base)
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self.calls: list[dict[str, Any]] = []

    def info(self) -> bytes:
        """The answer of /server_info, under whichever name the server knows it. Raises InputError."""
        status, body = 404, b""
        for path in INFO_PATHS:
            status, body = self._call(path, None, retry=True)
            if status != 404:
                break
        if status >= 400:
            raise self._refused(INFO_PATHS[0], status, body)
        return body

    def post(self, path: str, body: Mapping[str, Any], retry: bool = False, wait_s: float = 0.0) -> str:
        """retry: only where asking twice does no harm; wait_s: added to the timeout. Raises InputError."""
        status, answer = self._call(path, body, retry, wait_s)
        if status >= 400:
            raise self._refused(path, status, answer)
        return answer.decode("utf-8", "replace")

    def try_post(self, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
        """(status, text) of a call that may be refused. Raises InputError only where nothing answers."""
        status, answer = self._call(path, body, retry=True)
        return status, answer.decode("utf-8", "replace")

    def _call(self, path: str, body: Mapping[str, Any] | None, retry: bool, wait_s: float = 0.0) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": "application/json"} if data is not None else {})
        last: object = ""
        for attempt in range(TRIES if retry else 1):
            if attempt:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            entry: dict[str, Any] = {"path": path, "begin_ns": time.time_ns()}
            self.calls.append(entry)
            request = urllib.request.Request(self._base + path, data, headers)
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s + wait_s) as answer:
                    status, content = answer.status, answer.read(MAX_BYTES + 1)
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read(1 << 16)
            except (OSError, HTTPException) as error:
                reason = getattr(error, "reason", error)
                entry |= {"end_ns": time.time_ns(), "error": str(reason)}
                last = reason
                continue
            entry |= {"end_ns": time.time_ns(), "status": status}
            if len(content) > MAX_BYTES:
                raise InputError(self.shown, f"{path}: the answer is larger than {MAX_BYTES >> 20} MiB")
            if status not in (502, 503, 504) or attempt + 1 == (TRIES if retry else 1):
                return status, content
        timed_out = isinstance(last, TimeoutError) or "timed out" in str(last)
        what = f"no answer within {self._timeout_s + wait_s:g} s" if timed_out else f"can't be reached ({last})"
        raise InputError(self.shown, f"{path}: {what}", todo="is the server up, and is this its URL?")

    def _refused(self, path: str, status: int, body: bytes) -> InputError:
        text = body.decode("utf-8", "replace").strip()
        if status in (401, 403):
            todo = "put its API key into NPU_PERFETTO_API_KEY"
        elif status == 404:
            todo = "give the URL of an SGLang server that knows this call"
        elif "in progress" in text.lower() or "already" in text.lower():
            todo = "someone else is profiling: wait, or POST /stop_profile"
        else:
            todo = "see the server's log"
        return InputError(self.shown, f"{path}: {status} {printable(text, 200)}".rstrip(), todo=todo)
