"""Runs targets over seeded inputs and counts. Input number n of a seed is always the same bytes, whoever runs it."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from schemas.errors import NpuPerfettoError
from tests.fuzz.targets import TARGETS, Target

MAX_FINDINGS = 20


@dataclass
class Finding:
    """An input that ended in anything but a typed error. where: what to run to see it again; what: the last frames."""

    where: str
    what: str
    data: bytes = b""


@dataclass
class Counts:
    """Of inputs, by (target, became): became is `read`, `refused` or `untyped`."""

    by: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Counts) -> None:
        self.by.update(other.by)
        self.findings += other.findings[: MAX_FINDINGS - len(self.findings)]
        self.seconds = max(self.seconds, other.seconds)

    @property
    def total(self) -> int:
        return sum(self.by.values())

    @property
    def untyped(self) -> int:
        return sum(n for (_, became), n in self.by.items() if became == "untyped")

    def table(self) -> str:
        names = list(dict.fromkeys(name for name, _ in self.by))
        rows = [("target", "inputs", "read", "refused", "untyped")]
        for name in sorted(names):
            cells = [self.by[name, became] for became in ("read", "refused", "untyped")]
            rows.append((name, *(f"{n:,}" for n in (sum(cells), *cells))))
        sums = [sum(self.by[name, became] for name in names) for became in ("read", "refused", "untyped")]
        rows.append(("all", *(f"{n:,}" for n in (sum(sums), *sums))))
        width = max(len(row[0]) for row in rows)
        return "\n".join(f"{row[0]:<{width}} " + " ".join(f"{cell:>10}" for cell in row[1:]) for row in rows)


def random_of(seed: int, number: int) -> Random:
    return Random((seed << 40) + number)


def target_of(rng: Random, targets: tuple[Target, ...]) -> Target:
    return rng.choices(targets, [t.share for t in targets])[0]


def run_inputs(
    seed: int, first: int, count: int, folder: Path, deadline: float = float("inf"), only: str | None = None
) -> Counts:
    """Inputs first, first + 1, ... of a seed. Stops at the deadline (time.monotonic)."""
    counts = Counts()
    targets = tuple(t for t in TARGETS if only is None or t.name == only)
    path = folder / "input"
    begun = time.monotonic()
    with warnings.catch_warnings(), _unraisable(counts):
        warnings.simplefilter("error")  # a silent overflow of numpy is a finding too
        for number in range(first, first + count):
            if number % 64 == 0 and time.monotonic() > deadline:
                break
            rng = random_of(seed, number)
            target = target_of(rng, targets)
            data = target.make(rng)
            counts.by[target.name, _one(target, data, path, counts, f"--seed {seed} --input {number}")] += 1
    counts.seconds = time.monotonic() - begun
    return counts


@contextlib.contextmanager
def _unraisable(counts: Counts) -> Iterator[None]:
    """An exception that a library drops and prints would stand on a user's terminal as a traceback."""

    def hook(dropped: Any) -> None:
        counts.by["(dropped by a library)", "untyped"] += 1
        _note(
            counts, Finding("dropped by a library", f"{dropped.err_msg}: {dropped.exc_value!r} in {dropped.object!r}")
        )

    before = sys.unraisablehook
    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _one(target: Target, data: bytes, path: Path, counts: Counts, where: str) -> str:
    try:
        target.run(data, path)
    except NpuPerfettoError as error:
        if str(error).isprintable():
            return "refused"
        _note(counts, Finding(f"{target.name}: {where}", f"an error that isn't printable: {error!r}", data))
    except Exception:
        _note(counts, Finding(f"{target.name}: {where}", traceback.format_exc(limit=-4), data))
    else:
        return "read"
    return "untyped"


def _note(counts: Counts, finding: Finding) -> None:
    """Keeps the first of each kind: findings that end in the same lines of code are one."""
    lines = [line for line in finding.what.splitlines() if line.lstrip().startswith("File ")] or [finding.what]
    known = {line for kept in counts.findings for line in kept.what.splitlines()}
    if len(counts.findings) < MAX_FINDINGS and lines[-1] not in known:
        counts.findings.append(finding)
