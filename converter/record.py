"""DSpark records and server facts around a profile of a running SGLang server.

In this order, because reading `/server_info` makes the scheduler wait for the device and so changes what is profiled:
look (is it a server that records?), clear the records, start the profile, wait, stop the profile, read. Nothing is asked
between start and stop. The records carry no time; with only the window's records in the file, matching is easier.

Endpoints: SGLang's `/server_info` (older: `/get_server_info`), `/set_internal_state`, `/start_profile`, `/stop_profile`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from converter.readers.nesting import TOO_DEEP
from converter.server_calls import Server
from schemas.errors import InputError, printable

Progress = Callable[[str], None]

ENABLE = "start it with SGLANG_DSPARK_DEBUG_DUMP=all (or a list of components)"
NOT_RUNNING = "not in progress"  # what /stop_profile says where num_steps have ended the profile already


@dataclass(frozen=True)
class Wishes:
    """What to profile. seconds: how long to wait; steps: num_steps, after which the server stops by itself (or None);
    profile_dir: output_dir on the server's machine, None for its own default."""

    seconds: float = 5.0
    steps: int | None = None
    profile_dir: str | None = None
    activities: tuple[str, ...] = ("CPU", "GPU")
    annotations: bool = True
    with_stack: bool = False
    record_shapes: bool = True
    clear: bool = True

    def body(self) -> dict[str, Any]:
        """ProfileReq of /start_profile."""
        body: dict[str, Any] = {
            "activities": list(self.activities),
            "with_stack": self.with_stack,
            "record_shapes": self.record_shapes,
            "detailed_annotations": self.annotations,
        }
        if self.steps is not None:
            body["num_steps"] = self.steps
        if self.profile_dir is not None:
            body["output_dir"] = self.profile_dir
        return body


@dataclass
class Recording:
    """server_info: the payload as the server sent it; log: what was done, for record.json; warnings: one line each."""

    server_info: bytes
    log: dict[str, Any]
    records: int = 0
    warnings: list[str] = field(default_factory=list)


def record(server: Server, wishes: Wishes, progress: Progress = lambda _: None) -> Recording:
    """Raises InputError that says which call the server refused, and why; the profile is stopped then."""
    warnings: list[str] = []
    progress("looking at the server")
    before = count_records(server, server.info())
    if before is None:
        warnings.append(f"{server.shown}: the server keeps no DSpark records; {ENABLE}")
    if wishes.clear and before is not None:
        progress("clearing the records")
        server.post("/set_internal_state", {"server_args": {"dspark_clear_info_records": True}}, retry=True)
    progress(f"profiling for {wishes.seconds:g} s")
    began_ns = time.time_ns()
    deadline = time.monotonic() + wishes.seconds
    try:
        # With num_steps some versions answer at once and others when the steps are done.
        server.post("/start_profile", wishes.body(), wait_s=wishes.seconds)
        time.sleep(max(0.0, deadline - time.monotonic()))
    except InputError:
        if "status" not in server.calls[-1]:  # no answer: it may have started all the same
            _stop(server)
        raise  # refused: what runs is someone else's
    except BaseException:
        _stop(server)
        raise
    stopped_by = _stop(server)
    ended_ns = time.time_ns()
    if wishes.steps is not None and stopped_by == "record":
        warnings.append(
            f"{wishes.steps} steps had not passed after {wishes.seconds:g} s; the profile was stopped, so it may hold fewer"
        )
    progress("reading the records")
    payload = server.info()
    after = count_records(server, payload)
    if after == 0:
        warnings.append("no decode step was recorded in the window: was there load on the server?")
    log = {
        "url": server.shown,
        "options": {**wishes.body(), "seconds": wishes.seconds, "clear": wishes.clear},
        "window_ns": [began_ns, ended_ns],
        "stopped_by": stopped_by,
        "records_before": before,
        "records": after,
        "calls": server.calls,
        "warnings": warnings,
    }
    return Recording(payload, log, after or 0, warnings)


def _stop(server: Server) -> str:
    """Ends the window in any case: whatever comes after may read. `record`, or `steps` where it had ended by itself."""
    status, text = server.try_post("/stop_profile", {})
    if NOT_RUNNING in text.lower():
        return "steps"
    if status >= 400:
        raise InputError(
            server.shown,
            f"/stop_profile: {status} {printable(text, 200)}",
            todo="see the server's log; it may still run",
        )
    return "record"


def count_records(server: Server, payload: bytes) -> int | None:
    """How many DSpark records a /server_info holds; None where the server keeps none. InputError: it is something else."""
    try:
        info = json.loads(payload)
    except RecursionError:
        raise InputError(server.shown, f"/server_info is {TOO_DEEP}", todo="give the URL of an SGLang server") from None
    except ValueError:
        info = None
    if not isinstance(info, dict):
        raise InputError(server.shown, "/server_info is no JSON object", todo="give the URL of an SGLang server")
    states = info.get("internal_states")
    if not isinstance(states, list):
        raise InputError(
            server.shown,
            "/server_info has no internal_states",
            todo="give the URL of an SGLang server, not of a router",
        )
    found = [s.get("dspark_info_record") for s in states if isinstance(s, dict)]
    lists = [r["records"] for r in found if isinstance(r, dict) and isinstance(r.get("records"), list)]
    return sum(map(len, lists)) if lists else None
