"""Fuzzes readers and conversions and prints the counts; exit 1 where anything but a typed error came out.

python -m tests.fuzz --inputs 1000000 --conversions 2000 --seed 1 --processes 2
python -m tests.fuzz --seconds 60
python -m tests.fuzz --seed 1 --input 4711        one input again, with its traceback
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import Counts, random_of, target_of
from tests.fuzz.jobs import conversions, inputs, scratch
from tests.fuzz.targets import TARGETS

STEP = 20_000  # inputs that a process takes at a time


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=None, help="inputs over the parsers and readers")
    parser.add_argument("--conversions", type=int, default=None, help="whole conversions, each checked in the engine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input and conversion")
    parser.add_argument("--only", choices=[t.name for t in TARGETS], help="one target")
    parser.add_argument("--input", type=int, default=None, metavar="N", help="run input N of the seed alone")
    parser.add_argument("--conversion", type=int, default=None, metavar="N", help="run conversion N of the seed alone")
    parser.add_argument("--save", type=Path, default=None, metavar="DIR", help="keep the inputs of findings there")
    options = parser.parse_args()
    if options.input is not None:
        return _one_input(options.seed, options.input, options.only)
    if options.conversion is not None:
        return _report(
            "conversion", conversions((options.seed, options.conversion, 1, float("inf"), None)), options.save
        )
    limited = options.seconds is not None
    if options.inputs is None and options.conversions is None:
        options.inputs = options.conversions = sys.maxsize if limited else 0
        if not limited:
            parser.error("give --inputs, --conversions or --seconds")
    status = 0
    begun = time.monotonic()
    shares = {"input": (options.inputs, inputs, STEP, 0.6), "conversion": (options.conversions, conversions, 25, 1.0)}
    for what, (wanted, function, step, share) in shares.items():
        if not wanted:
            continue
        both = options.inputs and options.conversions
        deadline = begun + options.seconds * (share if both else 1.0) if limited else float("inf")
        counts = _all(function, options, wanted, step, deadline)
        status |= _report(what, counts, options.save)
    return status


def _all(function: object, options: argparse.Namespace, wanted: int, step: int, deadline: float) -> Counts:
    counts = Counts()
    begun = time.monotonic()

    def jobs():  # type: ignore[no-untyped-def]
        done = 0
        while done < wanted and time.monotonic() < deadline:
            size = min(step, wanted - done)
            yield (options.seed, options.first + done, size, deadline, options.only)
            done += size

    if options.processes < 2:
        for job in jobs():
            counts.add(function(job))  # type: ignore[operator]
    else:
        # A process does few jobs and leaves: what one leaks does not add up.
        with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=8) as pool:
            waiting = []
            for job in jobs():
                waiting.append(pool.apply_async(function, (job,)))  # type: ignore[arg-type]
                if len(waiting) > options.processes:
                    counts.add(waiting.pop(0).get())
            for result in waiting:
                counts.add(result.get())
    counts.seconds = time.monotonic() - begun
    return counts


def _report(what: str, counts: Counts, save: Path | None) -> int:
    print(counts.table())
    print(f"{counts.total:,} {what}s, untyped exceptions: {counts.untyped:,}, {counts.seconds:.0f} s", flush=True)
    for number, finding in enumerate(counts.findings):
        print(f"\n{finding.where}\n{finding.what}", file=sys.stderr)
        if save is not None and finding.data:
            save.mkdir(parents=True, exist_ok=True)
            (save / f"{what}-{number}").write_bytes(finding.data)
    return 1 if counts.untyped else 0


def _one_input(seed: int, number: int, only: str | None) -> int:
    rng = random_of(seed, number)
    target = target_of(rng, tuple(t for t in TARGETS if only is None or t.name == only))
    data = target.make(rng)
    print(f"{target.name}: {data!r}")
    folder = scratch()
    try:
        target.run(data, folder / "input")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
