"""A full disk, a target that may not be written, an input that may not be read: one line, and nothing is left."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from converter.convert import convert
from converter.options import Options
from converter.shelf import put
from schemas.errors import OutputError, UsageError
from tests.faults.processes import environment, kernel_csv, left, run

LIMIT_BYTES = 64 << 10


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where it may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={LIMIT_BYTES}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a file system here; the test with RLIMIT_FSIZE says the same")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    kernel_csv(tmp_path / "k.csv", 20_000)
    status, text = run(tmp_path, "convert", "k.csv", "-o", "disk/out.pftrace")
    assert status == 1
    assert text.count("\n") == 1
    assert "disk/out.pftrace: can't be written: No space left on device" in text
    assert left(small_disk) == set()


def test_a_full_disk_keeps_the_old_trace(tmp_path: Path, small_disk: Path) -> None:
    (small_disk / "out.pftrace").write_bytes(b"old")
    kernel_csv(tmp_path / "k.csv", 20_000)
    assert run(tmp_path, "convert", "k.csv", "-o", "disk/out.pftrace")[0] == 1
    assert left(small_disk) == {"out.pftrace"}
    assert (small_disk / "out.pftrace").read_bytes() == b"old"


@pytest.mark.parametrize("layout", ["single", "archive"])
def test_a_full_disk_while_ranks_wait_on_it(tmp_path: Path, small_disk: Path, layout: str) -> None:
    for rank in range(2):
        kernel_csv(tmp_path / "run" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", 20_000)
    ending = "tar" if layout == "archive" else "pftrace"
    status, text = run(tmp_path, "convert", "run", "-o", f"disk/out.{ending}", "--layout", layout, "--jobs", "2")
    assert status == 1
    assert "No space left on device" in text and "Traceback" not in text
    assert left(small_disk) == set()


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv", 20_000)
    done = subprocess.run(
        [sys.executable, "-m", "converter", "convert", "k.csv", "-o", "out.pftrace"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES)),
    )
    assert done.returncode == 1
    assert "out.pftrace: can't be written: File too large" in done.stderr and done.stderr.count("\n") == 1
    assert left(tmp_path) == {"k.csv"}


def test_no_open_files_left(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv", 3)
    code = (
        "import resource, sys; from converter.convert import convert; import pyarrow.csv\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "from schemas.errors import NpuPerfettoError\n"
        "try: convert(['k.csv'], 'out.pftrace')\n"
        "except NpuPerfettoError as error: sys.exit(str(error))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert left(tmp_path) == {"k.csv"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write and read everything")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv", 3)
    (tmp_path / "closed").mkdir(mode=0o500)
    status, text = run(tmp_path, "convert", "k.csv", "-o", "closed/out.pftrace")
    assert status == 2 and "closed: may not be written to" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write and read everything")
def test_an_input_that_may_not_be_read(tmp_path: Path) -> None:
    kernel_csv(tmp_path / "k.csv", 3).chmod(0)
    status, text = run(tmp_path, "convert", "k.csv", "-o", "out.pftrace")
    assert status == 1 and text.count("\n") == 1 and "k.csv" in text


def test_a_folder_where_nothing_can_be_made(tmp_path: Path) -> None:
    # /proc takes no files, whoever asks.
    kernel_csv(tmp_path / "k.csv", 3)
    for args in (("-o", "/proc/out.pftrace"), ("--out-dir", "/proc/traces")):
        status, text = run(tmp_path, "convert", "k.csv", *args)
        assert status in (1, 2) and text.count("\n") == 1 and "/proc/" in text, text


def test_an_input_that_fails_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk or a network share that fails in the middle: EIO names the input, not the target."""
    kernel_csv(tmp_path / "k.csv", 2000)
    real, calls = os.pread, 0

    def pread(handle: int, count: int, at: int) -> bytes:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(handle, count, at)

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(Exception, match="Input/output error") as caught:
        convert([str(tmp_path / "k.csv")], str(tmp_path / "out.pftrace"))
    assert type(caught.value).__name__ == "InputError" and "k.csv" in str(caught.value)
    assert left(tmp_path) == {"k.csv"}


def test_the_folder_goes_away(tmp_path: Path) -> None:
    source = kernel_csv(tmp_path / "k.csv", 3)
    gone = tmp_path / "gone"
    gone.mkdir()

    def progress(text: str) -> None:
        if text.startswith("writing") and gone.exists():
            gone.rmdir()

    with pytest.raises(OutputError, match="can't be written: No such file or directory"):
        convert([str(source)], str(gone / "out.pftrace"), Options(), progress)
    assert left(tmp_path) == {"k.csv"}


def test_a_place_for_a_rank_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't be written"):
        put(object(), str(tmp_path / "no" / "rank0"))  # type: ignore[arg-type]


def test_a_target_that_is_a_device_or_an_input(tmp_path: Path) -> None:
    from converter.target import check_target

    os.mkfifo(tmp_path / "pipe")
    source = kernel_csv(tmp_path / "k.csv", 3)
    (tmp_path / "link").symlink_to(source)
    for target in ("/dev/full", str(tmp_path / "pipe"), str(tmp_path / "link"), str(tmp_path)):
        with pytest.raises(UsageError):
            check_target(target, [str(source)])
