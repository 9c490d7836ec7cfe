"""Coverage-guided fuzzing of the byte parsers with atheris: python -m tests.fuzz.guided --seconds 60

Each parser runs in a process of its own for its share of the time, from a few well-formed inputs. Where atheris is not
installed (extra `fuzz`; it has wheels for Linux and some Pythons only) it says so and leaves with 0.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.fuzz.jobs import scratch
from tests.fuzz.targets import TARGETS

#: The parsers that see bytes as they are in a file.
PARSERS = (
    "json_events",
    "dspark",
    "kernel_csv",
    "trace_json",
    "side_files",
    "json_text",
    "exact_time.text",
    "csv_lines",
)
MAX_BYTES = 4096
SEEDS = 60


def fuzz_one(name: str, corpus: Path, seconds: int) -> None:
    """Does not return: libFuzzer leaves the process."""
    import atheris

    with atheris.instrument_imports(include=["converter", "schemas"]):
        for module in [m for m in sys.modules if m.startswith(("converter", "tests.fuzz.targets"))]:
            del sys.modules[module]
        targets = importlib.import_module("tests.fuzz.targets")
    target = next(t for t in targets.TARGETS if t.name == name)
    from schemas import errors

    path = scratch() / "input"

    def one(data: bytes) -> None:
        with contextlib.suppress(errors.NpuPerfettoError):
            target.run(data, path)

    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-max_len={MAX_BYTES}",
            "-timeout=20",
            "-print_final_stats=1",
            f"-artifact_prefix={corpus.parent}/",
            str(corpus),
        ],
        one,
    )
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for all parsers together")
    parser.add_argument("--only", choices=PARSERS)
    parser.add_argument("--corpus", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed (pip install 'npu-perfetto[fuzz]'; Linux, Python 3.11): no guided fuzzing")
        return 0
    if options.corpus is not None:
        fuzz_one(options.only, options.corpus, options.seconds)
    names = [options.only] if options.only else PARSERS
    status = 0
    for name in names:
        status |= _run(name, max(1, options.seconds // len(names)))
    return status


def _run(name: str, seconds: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="guided-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    target = next(t for t in TARGETS if t.name == name)
    for number in range(SEEDS):
        (corpus / str(number)).write_bytes(target.make(Random(number))[:MAX_BYTES])
    argv = [
        sys.executable,
        "-m",
        "tests.fuzz.guided",
        "--only",
        name,
        "--corpus",
        str(corpus),
        "--seconds",
        str(seconds),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    runs = [
        line.split(":")[-1].strip() for line in done.stderr.splitlines() if "stat::number_of_executed_units" in line
    ]
    print(
        f"{name}: {int(runs[0]) if runs else 0:,} inputs, {'no finding' if done.returncode == 0 else 'a finding'}",
        flush=True,
    )
    if done.returncode:
        print(done.stderr[-4000:], file=sys.stderr)
        print(f"kept in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
