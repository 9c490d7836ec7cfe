"""What a whole process costs, by the system's own accounting.

The peak memory of a child counts that of the process it was forked from, so a small launcher stands in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_LAUNCHER = """
import json, os, sys, time
begun = time.perf_counter()
process = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(process, 0)
wall = time.perf_counter() - begun
found = [os.waitstatus_to_exitcode(status), wall, used.ru_utime + used.ru_stime, used.ru_maxrss]
os.write(int(sys.argv[1]), json.dumps(found).encode())
"""
_RSS_UNIT = 1024 if sys.platform != "darwin" else 1


@dataclass(frozen=True)
class Process:
    """status: as subprocess has it; wall_s, cpu_s: start-up included; peak_bytes: of resident memory."""

    status: int
    wall_s: float
    cpu_s: float
    peak_bytes: int


def run(
    argv: Sequence[str],
    stderr: IO[bytes],
    env: Mapping[str, str],
    cwd: Path | None = None,
    limit_s: float | None = None,
) -> Process:
    """One fresh process, its stdout thrown away; killed with all it started after `limit_s`."""
    end, start = os.pipe()
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(start), *argv]
    with subprocess.Popen(
        launcher, stdout=subprocess.DEVNULL, stderr=stderr, env=env, cwd=cwd, pass_fds=(start,), start_new_session=True
    ) as process:
        os.close(start)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    with open(end, "rb") as said:
        found = said.read()
    if not found:
        return Process(-signal.SIGKILL, limit_s or 0.0, 0.0, 0)
    status, wall_s, cpu_s, peak = json.loads(found)
    return Process(status, wall_s, cpu_s, peak * _RSS_UNIT)
