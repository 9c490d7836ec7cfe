"""Times whole processes: start-up included, the system's own accounting, several runs in turn."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from tests import costs

#: Bytecode is kept, as pip keeps it for an installed package: else every start would compile the sources again.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Run:
    wall_s: float
    cpu_s: float
    rss_mb: float


def once(argv: Sequence[str]) -> Run:
    """One fresh process; raises where it fails."""
    with tempfile.TemporaryFile() as log:
        used = costs.run(argv, log, ENVIRONMENT)
        if used.status:
            log.seek(0)
            raise SystemExit(f"{' '.join(argv)} failed:\n{log.read().decode(errors='replace')}")
    return Run(used.wall_s, used.cpu_s, used.peak_bytes / 1024**2)


def in_turn(ours: Sequence[str], theirs: Sequence[str], runs: int) -> tuple[Run, Run, float]:
    """Medians of both, and the median of the wall ratio pair by pair: A B A B, so that a drifting machine hits both."""
    once(theirs), once(ours)
    pairs = [(once(ours), once(theirs)) for _ in range(runs)]
    ratio = statistics.median(a.wall_s / b.wall_s for a, b in pairs)
    return _median([a for a, _ in pairs]), _median([b for _, b in pairs]), ratio


def median_of(argv: Sequence[str], runs: int) -> Run:
    return _median([once(argv) for _ in range(runs)])


def _median(runs: list[Run]) -> Run:
    return Run(*(statistics.median(getattr(r, k) for r in runs) for k in ("wall_s", "cpu_s", "rss_mb")))


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", code, *args]
