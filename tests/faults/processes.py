"""Conversions in processes of their own, and what they left in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = "Device_id,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)"
EPOCH_US = 1_767_000_000_000_000


def kernel_csv(path: Path, rows: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"0,{i},{i % 4},k{i % 7},Add,AI_CORE,{EPOCH_US + 20 * i}.{i % 1000:03d}\t,5.500,0" for i in range(rows))
    path.write_text("\n".join((HEADER, *lines)) + "\n")
    return path


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    """`npu-perfetto ARGS` in a folder, its stderr to be read."""
    return subprocess.Popen(
        [sys.executable, "-m", "converter", *args],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def run(folder: Path, *args: str) -> tuple[int, str]:
    """(exit status, stderr)."""
    process = start(folder, *args)
    _, text = process.communicate(timeout=120)
    return process.returncode, text


def left(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}
