"""Blocks of work keep their order whatever thread makes them, and `--jobs` bounds the threads."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from converter import threads
from converter.parallel import Workers
from tests.converter.test_command_line import kernel_csv, run


def slow(item: int) -> tuple[int, str]:
    time.sleep(random.Random(item).random() / 200)
    return item, threading.current_thread().name


def test_order_is_kept_by_two_threads() -> None:
    done = list(threads.in_order(slow, range(40), ahead=3))
    assert [item for item, _ in done] == list(range(40))
    assert len({name for _, name in done}) == threads.MOST


def test_one_thread_is_this_one() -> None:
    with threads.of_this_process(1):
        done = list(threads.in_order(slow, range(5), ahead=3))
        with threads.of_this_process(8):  # what holds outside is never raised inside
            done += threads.in_order(slow, range(5), ahead=3)
    assert {name for _, name in done} == {threading.current_thread().name}


@pytest.mark.parametrize("count", [1, 2])
def test_no_more_than_asked_is_held_and_errors_keep_their_place(count: int) -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 6:
            raise ValueError("six")
        return item

    taken = []
    with threads.of_this_process(count), pytest.raises(ValueError, match="six"):
        for item in threads.in_order(work, iter(range(100)), ahead=2):
            taken.append(item)
            assert len(begun) <= len(taken) + 2 + 1
    assert taken == list(range(6))


@pytest.mark.parametrize(
    ("jobs", "processes", "each"), [(None, 1, 2), (1, 1, 1), (2, 1, 2), (2, 2, 1), (8, 3, 2), (8, 8, 1), (3, 8, 1)]
)
def test_cores_are_shared_out(jobs: int | None, processes: int, each: int) -> None:
    with threads.of_this_process(Workers(jobs).threads(processes)):
        names = {name for _, name in threads.in_order(slow, range(20), ahead=4)}
    assert len(names) == each


def threads_here(_: int) -> int:
    return len({name for _, name in threads.in_order(slow, range(20), ahead=4)})


def test_processes_side_by_side_have_one_thread_each() -> None:
    assert Workers(jobs=2).map(threads_here, [0, 1, 2]) == [1, 1, 1]
    assert Workers().map(threads_here, [0, 1]) == [2, 2]


def test_jobs_change_no_byte(tmp_path: Path) -> None:
    names = [kernel_csv(tmp_path / f"k{i}.csv", rows=150_000).name for i in range(2)]
    for number, jobs in enumerate([[], ["--jobs", "1"], ["--jobs", "2"]]):
        done = run("convert", *names, "--out-dir", f"out{number}", *jobs, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for name in names:
        made = {(tmp_path / f"out{i}" / name.replace(".csv", ".pftrace")).read_bytes() for i in range(3)}
        assert len(made) == 1
