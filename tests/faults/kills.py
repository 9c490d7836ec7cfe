"""Kills conversions at random moments and looks at the target: it must be absent, or whole."""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults.processes import kernel_csv, left, run, start

ARGUMENTS = ("convert", "k.csv", "-o", "out.pftrace")


@dataclass
class Kills:
    """good: runs after which the target was absent or whole; moments: what the signal met, and how often."""

    runs: int = 0
    good: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def kill_at_random(folder: Path, runs: int, number: signal.Signals, seed: int = 1, rows: int = 30_000) -> Kills:
    """Half of the moments are anywhere in a run, half are shortly after the temporary file appeared."""
    rng = Random(seed)
    kernel_csv(folder / "k.csv", rows)
    begun = time.monotonic()
    assert run(folder, *ARGUMENTS)[0] == 0
    whole_s = time.monotonic() - begun
    target = folder / "out.pftrace"
    whole = target.read_bytes()
    kills = Kills()
    for turn in range(runs):
        for name in left(folder) - {"k.csv"}:
            (folder / name).unlink()
        process = start(folder, *ARGUMENTS)
        if turn % 2:
            deadline = time.monotonic() + 60
            while process.poll() is None and len(left(folder)) == 1 and time.monotonic() < deadline:
                time.sleep(0.0005)
            time.sleep(rng.random() * 0.03)
        else:
            time.sleep(rng.random() * whole_s * 1.1)
        process.send_signal(number)
        _, text = process.communicate(timeout=60)
        _judge(kills, folder, whole, process.returncode, text, number)
    return kills


def _judge(kills: Kills, folder: Path, whole: bytes, status: int, text: str, number: signal.Signals) -> None:
    kills.runs += 1
    target = folder / "out.pftrace"
    there, temporary = target.exists(), left(folder) - {"k.csv", "out.pftrace"}
    faults = []
    if there and target.read_bytes() != whole:
        faults.append(f"a part of the trace under the target name ({target.stat().st_size:,} of {len(whole):,} bytes)")
    if "Traceback" in text:
        faults.append("a traceback")
    if status == 0 and not there:
        faults.append("status 0 and no trace")
    if number != signal.SIGKILL:
        if temporary:
            faults.append(f"left behind: {', '.join(sorted(temporary))}")
        # -number: the signal came before our first line or after our last, where the interpreter is on its own.
        if status not in (0, 128 + number, -number):
            faults.append(f"exit status {status}")
    moment = "after the end" if status == 0 else "while writing" if temporary or there else "before writing"
    kills.moments[moment] += 1
    kills.good += not faults
    kills.faults += faults
