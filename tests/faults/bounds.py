"""Inputs that try to use up time or memory, and what a conversion of each costs: python -m tests.faults.bounds

Each must end: converted, or refused with a line that names the limit.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests import costs
from tests.faults.processes import EPOCH_US, HEADER, environment

MILLION = 1_000_000
LIMIT_S = 120


class Cost(NamedTuple):
    status: int
    seconds: float
    peak_mb: int
    trace_mb: float
    said: str  # the last line on stderr


def _events(path: Path, events: Iterator[str]) -> Path:
    with path.open("w") as file:
        file.write("[")
        for number, event in enumerate(events):
            file.write((",\n" if number else "") + event)
        file.write("]")
    return path


def _moment(number: int) -> str:
    return f"{EPOCH_US + 10 * number}.000"


def _x(number: int, name: str = "k", pid: int = 1, tid: int = 1, args: str = "{}") -> str:
    return f'{{"ph":"X","name":"{name}","pid":{pid},"tid":{tid},"ts":"{_moment(number)}","dur":5,"args":{args}}}'


def gz_bomb(folder: Path, size: int) -> Path:
    """A gzip of one long list of spaces: a thousand times smaller than what it unpacks to."""
    path = folder / "bomb.trace.json.gz"
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with path.open("wb") as file:
        file.write(packer.compress(b"["))
        block = b" " * (1 << 20)
        for _ in range(size):
            file.write(packer.compress(block))
        file.write(packer.compress(b"]") + packer.flush())
    return path


def gz_bomb_of_events(folder: Path, size: int) -> Path:
    path = folder / "events.trace.json.gz"
    event = _x(0).encode() + b",\n"
    with gzip.open(path, "wb", 9) as file:
        file.write(b"[")
        for _ in range(size):
            file.write(event)
        file.write(_x(1).encode() + b"]")
    return path


def one_long_text(folder: Path, size: int) -> Path:
    path = folder / "text.trace.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b'[{"ph":"X","name":"')
        block = b"a" * (1 << 20)
        for _ in range(size):
            file.write(block)
        file.write(b'"}]')
    return path


def deep_arguments(folder: Path, size: int) -> Path:
    nested = "[" * size + "]" * size
    return _events(folder / "trace_view.json", iter((_x(0, args=f'{{"a":{nested}}}'), _x(1))))


def deep_document(folder: Path, size: int) -> Path:
    path = folder / "trace_view.json"
    path.write_text("[" * size)
    return path


def deep_slices(folder: Path, size: int) -> Path:
    """Each slice lies in the one before: the engine nests 512 deep."""
    path = folder / "kernel_details.csv"
    rows = (f"0,{i},1,k,Add,AI_CORE,{EPOCH_US + i}.000,{3 * size - 2 * i}.000,0" for i in range(size))
    path.write_text("\n".join((HEADER, *rows)) + "\n")
    return path


def overlapping_slices(folder: Path, size: int) -> Path:
    """Each slice crosses all others: a lane each."""
    path = folder / "kernel_details.csv"
    rows = (f"0,{i},1,k,Add,AI_CORE,{EPOCH_US + i}.000,{2 * size}.000,0" for i in range(size))
    path.write_text("\n".join((HEADER, *rows)) + "\n")
    return path


def threads(folder: Path, size: int) -> Path:
    return _events(folder / "trace_view.json", (_x(i, tid=i + 1) for i in range(size)))


def processes(folder: Path, size: int) -> Path:
    return _events(folder / "trace_view.json", (_x(i, pid=i + 1) for i in range(size)))


def names(folder: Path, size: int) -> Path:
    path = folder / "kernel_details.csv"
    with path.open("w") as file:
        file.write(HEADER + "\n")
        for i in range(size):
            file.write(f"0,{i},1,kernel_of_its_own_{i},type_{i},AI_CORE,{EPOCH_US + 10 * i}.000,5,0\n")
    return path


def long_cell(folder: Path, size: int) -> Path:
    path = folder / "kernel_details.csv"
    path.write_text(f"{HEADER}\n0,1,1,{'n' * size},Add,AI_CORE,{EPOCH_US}.000,5,0\n")
    return path


def argument_keys(folder: Path, size: int) -> Path:
    return _events(folder / "trace_view.json", (_x(i, args=f'{{"key{i}":{i}}}') for i in range(size)))


def keys_of_one_event(folder: Path, size: int) -> Path:
    keys = ",".join(f'"key{i}":{i}' for i in range(size))
    return _events(folder / "trace_view.json", iter((_x(0, args=f"{{{keys}}}"),)))


def keys_of_tasks(folder: Path, size: int) -> Path:
    """Hardware slices are one table: a column for each key that any of them has."""

    def events() -> Iterator[str]:
        yield '{"ph":"M","name":"process_name","pid":1,"args":{"name":"Ascend Hardware"}}'
        for i in range(size):
            keys = ",".join(f'"key{i * 100 + k}":1' for k in range(100)) if i < 2000 else ""
            yield _x(i, args=f"{{{keys}}}")

    return _events(folder / "trace_view.json", events())


def counters_of_one_label(folder: Path, size: int) -> Path:
    """Ids that differ in what is no word."""
    marks = "!#$%&()*+,-./:;<=>?@[]^{|}~"

    def mark(number: int) -> str:
        return "" if not number else mark(number // len(marks)) + marks[number % len(marks)]

    series = (
        f'{{"ph":"C","name":"c","id":"c{mark(i + 1)}","pid":1,"ts":"{_moment(i)}","args":{{"c":1}}}}'
        for i in range(size)
    )
    return _events(folder / "trace_view.json", series)


def counter_series(folder: Path, size: int) -> Path:
    series = (f'{{"ph":"C","name":"c{i}","pid":1,"ts":"{_moment(i)}","args":{{"v":1}}}}' for i in range(size))
    return _events(folder / "trace_view.json", series)


def async_ids(folder: Path, size: int) -> Path:
    def events() -> Iterator[str]:
        for i in range(size):
            for phase in "be":
                yield f'{{"ph":"{phase}","name":"a","cat":"c","id":"{i}","pid":1,"ts":"{_moment(2 * i + (phase == "e"))}"}}'

    return _events(folder / "trace_view.json", events())


def open_begins(folder: Path, size: int) -> Path:
    return _events(
        folder / "trace_view.json",
        (f'{{"ph":"B","name":"b","pid":1,"tid":1,"ts":"{_moment(i)}"}}' for i in range(size)),
    )


def flows_to_one_slice(folder: Path, size: int) -> Path:
    def events() -> Iterator[str]:
        yield f'{{"ph":"X","name":"all","pid":1,"tid":1,"ts":"{EPOCH_US}.000","dur":{20 * size}}}'
        for i in range(size):
            for phase in "sf":
                yield f'{{"ph":"{phase}","name":"f","cat":"f","id":"{i}","pid":1,"tid":1,"ts":"{_moment(i)}"}}'

    return _events(folder / "trace_view.json", events())


def broken_stretches(folder: Path, size: int) -> Path:
    return _events(folder / "trace_view.json", (_x(i) if i % 2 else '{"ph":"X",' for i in range(size)))


def unbalanced_quotes(folder: Path, size: int) -> Path:
    path = folder / "kernel_details.csv"
    rows = (f'0,{i},1,"k,Add,AI_CORE,{EPOCH_US + 10 * i}.000,5,0' for i in range(size))
    path.write_text("\n".join((HEADER, *rows)) + "\n")
    return path


def columns(folder: Path, size: int) -> Path:
    path = folder / "kernel_details.csv"
    more = ",".join(f"x{i}" for i in range(size))
    path.write_text(f"{HEADER},{more}\n0,1,1,k,Add,AI_CORE,{EPOCH_US}.000,5,0,{','.join('1' * size)}\n")
    return path


def long_number(folder: Path, size: int) -> Path:
    path = folder / "kernel_details.csv"
    path.write_text(f"{HEADER}\n0,1,1,k,Add,AI_CORE,{'1' * size},5,0\n0,1,1,k,Add,AI_CORE,{EPOCH_US},5,0\n")
    return path


def records(folder: Path, size: int) -> Path:
    """Runs of records that start over: each would be a rank."""
    path = names(folder, 10)
    rows = (f'{{"forward_ct":{size - i},"bs":1}}' for i in range(size))
    (folder / "records.jsonl").write_text("\n".join(rows))
    return path


class Bound(NamedTuple):
    """make(folder, size): the input. size: the full one; small: that of the quick test."""

    make: Callable[[Path, int], Path]
    size: int
    small: int


BOUNDS = {
    bound.make.__name__: bound
    for bound in (
        Bound(gz_bomb, 2000, 40),
        Bound(gz_bomb_of_events, 2 * MILLION, 10_000),
        Bound(one_long_text, 200, 70),
        Bound(deep_arguments, MILLION, 20_000),
        Bound(deep_document, 10 * MILLION, 100_000),
        Bound(deep_slices, 20_000, 1000),
        Bound(overlapping_slices, 5_000, 600),
        Bound(threads, 100_000, 2000),
        Bound(processes, 100_000, 2000),
        Bound(names, MILLION, 10_000),
        Bound(long_cell, MILLION, MILLION),
        Bound(argument_keys, MILLION, 5000),
        Bound(keys_of_one_event, MILLION, 5000),
        Bound(keys_of_tasks, 200_000, 2000),
        Bound(counter_series, MILLION, 5000),
        Bound(counters_of_one_label, 100_000, 3000),
        Bound(async_ids, 200_000, 2000),
        Bound(open_begins, MILLION, 5000),
        Bound(flows_to_one_slice, 200_000, 2000),
        Bound(broken_stretches, 200_000, 2000),
        Bound(unbalanced_quotes, 100_000, 2000),
        Bound(columns, 100_000, 5000),
        Bound(long_number, 10 * MILLION, MILLION),
        Bound(records, 100_000, 3000),
    )
}


def convert(folder: Path, source: Path, *more: str) -> Cost:
    """One conversion in a process of its own."""
    extra = ["--dspark", "records.jsonl"] if (folder / "records.jsonl").exists() else []
    argv = [sys.executable, "-m", "converter", "convert", source.name, "-o", "out.pftrace", *extra, *more]
    with (folder / "stderr").open("w+b") as log:
        used = costs.run(argv, log, environment(), folder, LIMIT_S)
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
    target = folder / "out.pftrace"
    trace = target.stat().st_size / 1e6 if target.exists() else 0.0
    return Cost(used.status, used.wall_s, used.peak_bytes >> 20, trace, lines[-1] if lines else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*BOUNDS, []])
    parser.add_argument("--small", action="store_true", help="the sizes of the quick tests")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(f"{'input':<22} {'size':>10} {'MB in':>7} {'exit':>4} {'s':>6} {'MB peak':>8} {'MB out':>7}  said")
    bad = 0
    for name in options.names or BOUNDS:
        bound = BOUNDS[name]
        size = bound.small if options.small else bound.size
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            source = bound.make(folder, size)
            given = source.stat().st_size / 1e6
            cost = convert(folder, source)
        bad += cost.status not in (0, 1) or "internal error" in cost.said
        row = f"{name:<22} {size:>10,} {given:>7.1f} {cost.status:>4} {cost.seconds:>6.1f} {cost.peak_mb:>8,} {cost.trace_mb:>7.1f}"
        print(f"{row}  {json.dumps(cost.said[:150])}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
