"""Prints how fast and how small, as ratios. `make bench`, or `python -m tests.bench --rows 1000000 --json-mb 200`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.bench import batches
from tests.bench.timing import Run, in_turn, median_of, python

READ_CSV = """
import sys, pyarrow as pa, pyarrow.csv as csv, pyarrow.compute as pc
header = open(sys.argv[1]).readline().strip().split(',')
text = [h for h in header if h in ('Start Time(us)', 'Duration(us)', 'Wait Time(us)')]
table = csv.read_csv(sys.argv[1], convert_options=csv.ConvertOptions(column_types={h: pa.string() for h in text}))
for h in text:
    us = pc.cast(pc.utf8_trim_whitespace(table[h]), pa.decimal128(20, 3))
    ns = pc.cast(pc.multiply(us, pa.scalar(1000, pa.int16())), pa.int64())
"""

READ_JSON = """
import sys, msgspec
class Event(msgspec.Struct, gc=False):
    ph: str
    name: str = ''
    pid: object = None
    tid: object = None
    ts: object = None
    dur: object = None
    cat: str = ''
    id: object = None
    args: msgspec.Raw = msgspec.Raw(b'')
msgspec.json.decode(open(sys.argv[1], 'rb').read(), type=list[Event])
"""

BARE_TYPER = """
import typer
app = typer.Typer()
@app.command()
def one(): "A command."
@app.command()
def two(): "Another."
app()
"""


FIGURES = ("help", "writer", "csv", "slope", "json", "load", "jobs", "ranks")


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "converter", *args]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="kernel rows of the big CSV")
    parser.add_argument("--json-mb", type=int, default=200, help="size of the big trace_view.json")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--most-rows", type=int, default=4_000_000, help="kernel rows of the largest CSV of `slope`")
    parser.add_argument(
        "--only", default=",".join(FIGURES), help="which figures, such as csv,jobs; also: rows, bigjson"
    )
    parser.add_argument("--folder", help="keep the generated inputs here and use them again")
    options = parser.parse_args()
    only = options.only.split(",")
    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if "help" in only:
            ours, theirs, ratio = in_turn(command("--help"), python(BARE_TYPER, "--help"), max(options.runs, 5))
            figure("--help against a bare typer app", ratio, 1.3, f"{ours.wall_s:.2f} s / {theirs.wall_s:.2f} s")
        if "writer" in only:
            writer()
        if "csv" in only:
            csv_figures(folder, options.rows, options.runs)
        if "slope" in only:
            batches.slope_figure(folder, options.most_rows, command, figure)
        if "json" in only:
            json_figures(folder, options.json_mb, options.runs)
        if "load" in only:
            batches.load_figures(folder, options.json_mb, command)
        if "jobs" in only:
            batches.jobs_figure(batches.big_csv(folder, options.rows), folder, command, figure, options.runs)
        if "ranks" in only:
            batches.ranks_figure(folder, command, figure)
        if "rows" in only:
            batches.memory_figure(batches.big_csv(folder, options.rows), options.rows, folder, command, figure)
        if "bigjson" in only:
            batches.big_json_figure(batches.big_json(folder, options.json_mb), folder, command, figure)


def figure(what: str, value: float, limit: float, detail: str, at_least: bool = False) -> None:
    holds = value >= limit if at_least else value <= limit
    bound = "at least" if at_least else "at most"
    print(f"{what}: {value:.2f} ({bound} {limit:g}: {'holds' if holds else 'MISSED'}; {detail})", flush=True)


def csv_figures(folder: Path, rows: int, runs: int) -> None:
    path = batches.big_csv(folder, rows)
    size = path.stat().st_size
    out = str(folder / "out.pftrace")
    ours, theirs, ratio = in_turn(
        command("convert", str(path), "--annotate", "none", "-q", "-o", out), python(READ_CSV, str(path)), runs
    )
    what = f"convert --annotate none of {rows:,} rows ({size / 1e6:.0f} MB) against reading it with pyarrow"
    figure(what, ratio, 2, f"{_speed(ours, rows, size)}; {_speed(theirs, rows, size)}")
    figure("its peak memory in sizes of the CSV", ours.rss_mb * 1024**2 / size, 3.5, f"{ours.rss_mb:.0f} MB")
    bare = ours.wall_s
    annotated = median_of(command("convert", str(path), "-q", "-o", out), runs)
    extra = (annotated.wall_s - bare) / bare
    figure("annotating against converting", extra, 1, f"{annotated.wall_s - bare:.2f} s / {bare:.2f} s")


def _speed(run: Run, rows: int, size: int) -> str:
    return f"{run.wall_s:.2f} s, {rows / run.wall_s / 1e6:.2f} M rows/s, {size / run.wall_s / 1e6:.0f} MB/s"


def json_figures(folder: Path, megabytes: int, runs: int) -> None:
    path = batches.big_json(folder, megabytes)
    size = path.stat().st_size
    out = folder / "out.pftrace"
    ours, theirs, ratio = in_turn(
        command("convert", str(path), "--annotate", "none", "-q", "-o", str(out)), python(READ_JSON, str(path)), runs
    )
    what = f"convert --annotate none of a {size / 1e6:.0f} MB trace_view.json against msgspec's decode"
    figure(what, ratio, 8, f"{ours.wall_s:.2f} s / {theirs.wall_s:.2f} s")
    figure("its peak memory in GB", ours.rss_mb / 1000, 1.2, f"{ours.rss_mb:.0f} MB")
    figure("the trace in sizes of the JSON", out.stat().st_size / size, 1 / 3, f"{out.stat().st_size / 1e6:.1f} MB")


def writer(count: int = 100_000) -> None:
    """The columnar encoder against the documented builder loop, both from columns in memory, four arguments."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    from converter.write.document import Document, encode
    from schemas.timeline import Column, Kind, Layer, SliceBatch, StringPool, text_column

    rng = np.random.default_rng(1)
    layer = Layer(StringPool())
    root = layer.track("Rank 0", Kind.PROCESS, pid=4194304)
    stream = layer.track("Stream 1", parent=root)
    ts = 1_767_000_000_000_000_000 + np.arange(count, dtype=np.int64) * 3000
    dur = rng.integers(0, 3000, count)
    kernel = layer.strings.add_all([f"aclnnKernel_{i}_SomeKernelName_of_usual_length" for i in range(200)])
    shape = layer.strings.add_all([f'"{i},{4 * i}"' for i in range(1, 301)])
    name, shapes = kernel[rng.integers(0, 200, count)], shape[rng.integers(0, 300, count)]
    task, wait = rng.integers(0, 65536, count), rng.integers(0, 1_000_000, count)
    columns = [
        Column("task_id", "int", task), Column("wait_ns", "int", wait),
        text_column("op_type", name), text_column("input_shapes", shapes),
    ]  # fmt: skip
    layer.add(SliceBatch(np.full(count, stream, np.int32), ts, dur, name, 0, columns))

    def ours() -> int:
        return sum(len(block) for block in encode(Document(layer, start=int(ts[0])), 0))

    def theirs() -> int:
        with open(os.devnull, "wb") as file:
            builder = StreamingTraceProtoBuilder(file)
            texts = layer.strings.texts
            for i in range(count):
                packet = builder.create_packet()
                packet.timestamp = int(ts[i])
                packet.trusted_packet_sequence_id = 1
                event = packet.track_event
                event.type, event.track_uuid, event.name = TrackEvent.TYPE_SLICE_BEGIN, 7, texts[name[i]]
                event.debug_annotations.add(name="task_id", int_value=int(task[i]))
                event.debug_annotations.add(name="wait_ns", int_value=int(wait[i]))
                event.debug_annotations.add(name="op_type", string_value=texts[name[i]])
                event.debug_annotations.add(name="input_shapes", string_value=texts[shapes[i]])
                builder.write_packet(packet)
                packet = builder.create_packet()
                packet.timestamp = int(ts[i] + dur[i])
                packet.trusted_packet_sequence_id = 1
                packet.track_event.type, packet.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, 7
                builder.write_packet(packet)
        return count

    def best(f, runs: int) -> float:  # type: ignore[no-untyped-def]
        times = []
        for _ in range(runs):
            began = time.perf_counter()
            f()
            times.append(time.perf_counter() - began)
        return min(times)

    ours()
    a, b = best(ours, 5), best(theirs, 2)
    figure(
        "the writer against the StreamingTraceProtoBuilder loop",
        b / a,
        15,
        f"{count / a / 1e6:.2f} M slices/s / {count / b / 1e6:.3f} M slices/s",
        at_least=True,
    )


if __name__ == "__main__":
    main()
