"""Whole conversions of odd captures: what converts must hold what was read, here and in the real engine."""

from __future__ import annotations

import contextlib
import gc
import json
import shutil
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import converter.check
from converter.convert import convert, read
from converter.engine import Engine, _load, _wasm
from converter.find import find_captures
from converter.options import ANNOTATORS, Options
from samples.config import Config
from samples.db_export import write_database
from samples.generate import simulate
from samples.generate import write as write_sample
from schemas import sql_package
from schemas.errors import NpuPerfettoError
from tests.fuzz import database, inputs
from tests.fuzz.campaign import Counts, Finding, _note, random_of
from tests.fuzz.pieces import ODD_IDS, ODD_TEXTS, ODD_TIMES, mutated
from tests.fuzz.replay import decode, recorded

TRACES_PER_ENGINE = 100


class Engines:
    """One engine process for many traces: it is reset between them, and made anew after some."""

    def __init__(self) -> None:
        self._backend: Any = None
        self._used = 0

    @contextlib.contextmanager
    def open(self, trace: str, engine: str | None = None) -> Iterator[Engine]:
        """Stands in for converter.engine.open_trace."""
        if self._backend is None or self._used >= TRACES_PER_ENGINE:
            self.close()
            self._backend, self._used = _wasm(True), 0
        elif self._used:
            self._backend._call("TPM_RESET_TRACE_PROCESSOR")
        self._used += 1
        try:
            _load(self._backend, trace, Path(trace).read_bytes(), iter(()))
            # A reset forgets packages, and those registered before the first bytes of the next trace.
            assert not self._backend.register_sql_package(sql_package.NAME, sql_package.modules()).error
            yield Engine(self._backend)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()
            self._backend = None


def run_conversions(
    seed: int, first: int, count: int, folder: Path, deadline: float = float("inf"), with_engine: bool = True
) -> Counts:
    """Conversions first, first + 1, ... of a seed."""
    counts = Counts()
    engines = Engines()
    begun = time.monotonic()
    original = converter.check.open_trace
    converter.check.open_trace = engines.open  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bases = Bases(folder)
            for number in range(first, first + count):
                if time.monotonic() > deadline:
                    break
                kind, became = _one(seed, number, folder, bases, counts, with_engine)
                counts.by[kind, became] += 1
    finally:
        converter.check.open_trace = original
        engines.close()
    counts.seconds = time.monotonic() - begun
    return counts


def _one(seed: int, number: int, folder: Path, bases: Bases, counts: Counts, with_engine: bool) -> tuple[str, str]:
    rng = random_of(seed, number)
    place = folder / "conversion"
    place.mkdir()
    kind = rng.choices(tuple(KINDS), WEIGHTS)[0]
    try:
        paths = KINDS[kind](rng, place / "in", bases)
        target = place / "out.pftrace"
        try:
            options = _options(rng, place, bases)
            _convert_and_check([str(p) for p in paths], target, options, with_engine)
        except NpuPerfettoError:
            assert not target.exists() or target.stat().st_size, "half a trace"
            left = [p.name for p in place.iterdir() if p.name not in ("in", "records.json") and p != target]
            assert not left, f"left behind: {left}"
            return kind, "refused"
        return kind, "read"
    except Exception:
        where = f"{kind}: --seed {seed} --conversion {number}"
        _note(counts, Finding(where, traceback.format_exc(limit=-6)))
        return kind, "untyped"
    finally:
        gc.collect()
        shutil.rmtree(place, ignore_errors=True)


class Problem(AssertionError):
    """A trace that isn't what was read."""


def _convert_and_check(paths: Sequence[str], target: Path, options: Options, with_engine: bool) -> None:
    summary = convert(paths, str(target), options)
    json.dumps(summary.as_dict(), default=int)
    held = decode(target)
    whole = options.window is None and options.steps is None and not options.drop
    wanted: dict[int, Counter[tuple[str, int, int]]] = {}
    offsets = {r["rank"]: r["clock"]["offset_ns"] for r in summary.as_dict()["ranks"]}  # type: ignore[attr-defined]
    for capture in find_captures(paths):
        timeline = read(capture, options)
        wanted[capture.rank] = recorded(timeline.timeline, offsets[capture.rank])
        tally = timeline.timeline.tally
        assert tally.slices.written == sum(map(len, timeline.timeline.slices)), tally.slices
    for entry in summary.as_dict()["ranks"]:  # type: ignore[attr-defined]
        rank = entry["rank"]
        found = held.slices.get(rank, Counter())
        slices = entry["slices"]
        assert slices["read"] == slices["written"] + sum(slices["dropped"].values()), slices
        if sum(found.values()) != slices["written"]:
            raise Problem(
                f"rank {rank}: {sum(found.values())} recorded slices in the trace, {slices['written']} written"
            )
        if found - wanted[rank]:
            raise Problem(f"rank {rank}: not in the input: {list((found - wanted[rank]).items())[:3]}")
        if whole and wanted[rank] - found:
            raise Problem(f"rank {rank}: not in the trace: {list((wanted[rank] - found).items())[:3]}")
    if with_engine:
        against = list(paths) if not options.drop else []
        try:
            problems = converter.check.check(str(target), against).problems
        except NpuPerfettoError as error:
            raise Problem(f"check: {error}") from error
        if problems:
            raise Problem("; ".join(problems[:3]))


# ---- captures -------------------------------------------------------------------------------------------------------


class Bases:
    """Small simulated captures to start from, made once."""

    CONFIGS = (
        Config(ranks=1, steps=1, layers=1, stages=1, records_before=1, records_after=1, seed=5),
        Config(ranks=2, steps=2, layers=1, stages=1, records_before=1, records_after=1, seed=6, with_stack=True),
        Config(ranks=1, steps=2, layers=1, stages=1, records_before=1, seed=7, recv_hook=True, graphs=False),
        Config(ranks=2, steps=1, layers=1, stages=1, seed=8, trace=False, offsets_ms=(0.0, 3.0)),
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bases"
        self.files: list[dict[str, bytes]] = []
        for number, config in enumerate(self.CONFIGS):
            place = self.folder / str(number)
            write_sample(config, place)
            self.files.append(
                {
                    str(p.relative_to(place)): p.read_bytes()
                    for p in sorted(place.rglob("*"))
                    if p.is_file() and p.name != "truth.json"
                }
            )
        place = self.folder / "db"
        (capture,) = simulate(self.CONFIGS[0])
        self.database = write_database(capture, place).read_bytes()
        shutil.rmtree(self.folder)


def _put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _odd_file(rng: Random, name: str, data: bytes) -> bytes:
    """A file of a capture with a few cells, values or lines changed, now and then its bytes."""
    if rng.random() < 0.15:
        return mutated(rng, data, 2)
    if name.endswith(".csv"):
        lines = data.split(b"\n")
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(1, max(len(lines), 2)) if len(lines) > 1 else 0
            cells = lines[at].split(b",")
            odd = rng.choice(rng.choice((ODD_TIMES, ODD_IDS, ODD_TEXTS)))
            cells[rng.randrange(len(cells))] = odd.encode("utf-8", "surrogatepass")
            lines[at] = b",".join(cells)
            if rng.random() < 0.3:
                lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(lines))
        return b"\n".join(lines)
    if name.endswith(".json"):
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return mutated(rng, data)
        for _ in range(rng.randint(1, 6)):
            _change(rng, value)
        return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return mutated(rng, data)


def _change(rng: Random, value: Any) -> None:
    """Changes one value somewhere inside."""
    for _ in range(12):
        if isinstance(value, list) and value:
            key: Any = rng.randrange(len(value))
        elif isinstance(value, dict) and value:
            key = rng.choice(list(value))
        else:
            return
        if rng.random() < 0.3 or not isinstance(value[key], (list, dict)):
            kind = rng.randrange(6)
            if kind == 0 and isinstance(value, list):
                value.append(value[key])
            elif kind == 1:
                del value[key]
            else:
                odd = (
                    rng.choice(ODD_TEXTS),
                    rng.choice(ODD_TIMES),
                    rng.choice(ODD_IDS),
                    None,
                    [],
                    {},
                    -1,
                    2**63,
                    1.5,
                    True,
                )
                value[key] = rng.choice(odd)
            return
        value = value[key]


def _simulated(rng: Random, place: Path, bases: Bases) -> list[Path]:
    files = rng.choice(bases.files)
    for name, data in files.items():
        if rng.random() < 0.05:
            continue
        _put(place / name, _odd_file(rng, name, data) if rng.random() < 0.4 else data)
    place.mkdir(exist_ok=True)
    return [place]


def _folder(rng: Random, place: Path, bases: Bases) -> list[Path]:
    out = []
    for rank in range(rng.choice((1, 1, 2))):
        capture = place / f"host{rank}_ascend_pt"
        output = capture / "ASCEND_PROFILER_OUTPUT"
        if rng.random() < 0.8:
            _put(output / "kernel_details.csv", inputs.kernel_csv(rng))
        if rng.random() < 0.8:
            _put(output / "trace_view.json", inputs.trace_json(rng, zipped=False))
        if rng.random() < 0.3:
            _put(output / "memory_record.csv", inputs.memory_csv(rng))
        if rng.random() < 0.3:
            _put(output / "step_trace_time.csv", inputs.step_time_csv(rng))
        if rng.random() < 0.3:
            _put(output / "communication.json", inputs.clock_file(rng, "communication.json"))
        for name in (f"profiler_info_{rank}.json", "profiler_metadata.json"):
            if rng.random() < 0.5:
                _put(capture / name, inputs.clock_file(rng, name))
        if rng.random() < 0.1:
            _put(output / f"ascend_pytorch_profiler_{rank}.db", database.database(rng))
        capture.mkdir(parents=True, exist_ok=True)
        out.append(capture)
    return out


def _msprof(rng: Random, place: Path, bases: Bases) -> list[Path]:
    capture = place / "PROF_000001_20250109_ABC"
    output = capture / "mindstudio_profiler_output"
    _put(
        output / f"{rng.choice(('op_summary', 'task_time'))}_20250109.csv",
        rng.choice((inputs.kernel_csv, inputs.task_time_csv))(rng),
    )
    if rng.random() < 0.6:
        _put(output / "msprof_20250109.json", inputs.trace_json(rng, zipped=False))
    for table in ("step_trace", "msprof_tx", "communication_statistic"):
        if rng.random() < 0.3:
            _put(output / f"{table}_20250109.csv", inputs.msprof_table(rng, table))
    for folder in ("host", "device_0"):
        for name in ("info.json", "start_info", "host_start.log", "dev_start.log"):
            if rng.random() < 0.5:
                suffix = "" if folder == "host" else ".0"
                _put(
                    capture / folder / (name + suffix if name in ("start_info", "info.json") else name),
                    inputs.clock_file(rng, name),
                )
    return [capture]


def _csv(rng: Random, place: Path, bases: Bases) -> list[Path]:
    name, make = rng.choice(
        (
            ("kernel_details.csv", inputs.kernel_csv),
            ("op_summary_1.csv", inputs.kernel_csv),
            ("task_time_1.csv", inputs.task_time_csv),
        )
    )
    return [_put(place / name, make(rng))]


def _trace(rng: Random, place: Path, bases: Bases) -> list[Path]:
    name = rng.choice(("trace_view.json", "msprof_1.json", "a-TP-0.trace.json.gz", "b.trace.json"))
    return [_put(place / name, inputs.trace_json(rng))]


def _database(rng: Random, place: Path, bases: Bases) -> list[Path]:
    data = database.database(rng) if rng.random() < 0.6 else mutated(rng, bases.database, 3)
    return [_put(place / "ascend_pytorch_profiler_0.db", data)]


KINDS = {
    "simulated": _simulated,
    "folder": _folder,
    "msprof": _msprof,
    "csv": _csv,
    "trace": _trace,
    "database": _database,
}
WEIGHTS = (3, 3, 2, 2, 2, 1)


def _options(rng: Random, place: Path, bases: Bases) -> Options:
    fields: dict[str, Any] = {}
    if rng.random() < 0.3:
        data = inputs.dspark(rng) if rng.random() < 0.5 else rng.choice(bases.files)["server_info.json"]
        data = _odd_file(rng, "x.json", data) if rng.random() < 0.4 else data
        fields["dspark"] = ((rng.choice((None, None, 0, 1)), str(_put(place / "records.json", data))),)
    if rng.random() < 0.15:
        fields["annotate"] = tuple(rng.sample(ANNOTATORS, rng.randint(0, 3)))
    if rng.random() < 0.1:
        fields["window"] = rng.choice(("+0:+10us", "+5us:+2ms", "0:1", "1736408883704643.212us:1736408883704653us"))
    if rng.random() < 0.05:
        fields["steps"] = (1200, rng.choice((1200, 1203)))
    if rng.random() < 0.05:
        fields["drop"] = (rng.choice(("python_function", "cpu_op", "nope")),)
    if rng.random() < 0.1:
        fields["assume_aligned"] = True
    if rng.random() < 0.1:
        fields["pmu"] = True
    if rng.random() < 0.1:
        fields["with_token_ids"] = fields["with_request_ids"] = True
    if rng.random() < 0.1:
        fields["facts"] = {rng.choice(ODD_TEXTS): rng.choice(ODD_TEXTS)}
    return Options(**fields)
