"""What a worker process does. Not in __main__.py: a spawned process could not find it there."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests.fuzz.campaign import Counts, run_inputs

MEMORY = "/dev/shm"


def scratch() -> Path:
    """A new folder, in memory where there is such a place."""
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))


def inputs(job: tuple[int, int, int, float, str | None]) -> Counts:
    seed, first, count, deadline, only = job
    folder = scratch()
    try:
        return run_inputs(seed, first, count, folder, deadline, only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def conversions(job: tuple[int, int, int, float, str | None]) -> Counts:
    from tests.fuzz.conversions import run_conversions

    seed, first, count, deadline, _ = job
    folder = scratch()
    try:
        return run_conversions(seed, first, count, folder, deadline)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
