"""The host and device timeline of torch_npu (trace_view.json), msprof (msprof*.json) and Kineto (*.trace.json[.gz]).

Format: reference in the Ascend documentation (trace_view.json, msprof_*.json) and Chrome's "Trace Event Format".
`ts` is decimal text in us, `dur` a JSON number in us that may hold digits below a nanosecond (rounded half to even).
Kineto's times are relative to `baseTimeNanoseconds`. Metadata may come after the events; events are not sorted.
Ignored on purpose: process_labels beside the device number, event colours, `bp`, sampling phases (P), object phases.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from converter.readers.arg_columns import ArgColumns, Rows, decode_args
from converter.readers.event_chunk import Chunk, Event
from converter.readers.exact_time import MAX_NS, NOT_A_NUMBER, OK
from converter.readers.json_events import EventFile
from converter.readers.json_text import raw_ns, raw_texts
from converter.readers.nesting import TOO_DEEP
from converter.readers.trace_batches import HostPart, TraceParts, fill_timeline
from converter.readers.trace_counters import Counters
from converter.readers.trace_flows import FINISH, START, STEP, FlowPoints
from converter.readers.trace_pairs import Half, pairs
from converter.readers.trace_tracks import AsyncId, Threads
from schemas.errors import printable
from schemas.timeline import Int64, Timeline

__all__ = ["HostPart", "TraceParts", "read_trace_json"]

_FLOW_KINDS = {"s": START, "t": STEP, "f": FINISH}
DEFAULT_MAX_INPUT_BYTES = 16 << 30


def read_trace_json(
    paths: Sequence[Path], timeline: Timeline, *, max_input_bytes: int = DEFAULT_MAX_INPUT_BYTES
) -> TraceParts:
    """Reads the files of one rank (slices of one export, or one file) into the timeline.

    Adds tracks under the process track `Rank N` (index 0, made where the timeline has none), slices, counters, flows;
    counts them in timeline.tally. Returns what the assembler joins and sorts. Raises InputError where a file can't be
    read, is no trace, or is larger than max_input_bytes.
    """
    reader = _Reader(timeline)
    collecting = gc.isenabled()
    gc.disable()  # millions of short-lived objects without cycles
    try:
        for path in paths:
            reader.read(path, max_input_bytes)
        return reader.finish()
    finally:
        if collecting:
            gc.enable()


@dataclass
class _Reader:
    timeline: Timeline
    threads: Threads = field(default_factory=Threads)
    header: dict[str, Any] = field(default_factory=dict)
    order: int = 0  # events so far, over all files
    halves: list[Half] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)  # unknown ones
    deep: int = 0  # slices whose arguments are nested too deep
    first_deep: str = ""
    unread_metadata: int = 0
    name: str = ""  # of the file being read

    def __post_init__(self) -> None:
        self.slices = ArgColumns(self.timeline.strings)
        self.instants = ArgColumns(self.timeline.strings)
        self.texts = self.slices.texts
        self.flows = FlowPoints(self.timeline.tally.flows)
        self.counters = Counters(self.timeline.tally.counters, self.threads.process)

    def read(self, path: Path, max_input_bytes: int) -> None:
        file = EventFile(path, max_input_bytes)
        self.name = path.name
        for chunk in file:
            if chunk.events:
                self._chunk(chunk)
                self.order += len(chunk.events)
        self.header.update(file.header)
        tally = self.timeline.tally.slices
        tally.read += file.malformed
        tally.drop("malformed event", file.malformed, f"{path.name}, byte {file.first_malformed}")
        for line in file.damage:
            self.timeline.warn(printable(line), damaged=True)
        for line in file.notes:
            self.timeline.warn(printable(line))

    def _chunk(self, chunk: Chunk) -> None:
        phases = [event.ph for event in chunk.events]
        number = {phase: i for i, phase in enumerate(dict.fromkeys(phases))}
        codes = np.fromiter(map(number.__getitem__, phases), np.int32, len(phases))
        by_phase = np.argsort(codes, kind="stable")
        bounds = np.cumsum(np.bincount(codes))[:-1]
        for phase, at in zip(number, np.split(by_phase, bounds), strict=True):
            rows = at.tolist()
            events = chunk.events if len(number) == 1 else [chunk.events[row] for row in rows]
            match phase:
                case "X":
                    self._complete(chunk, rows, events)
                case "M":
                    self._metadata(events)
                case "s" | "f" | "t":
                    self._flow(chunk, rows, events, _FLOW_KINDS[phase])
                case "C":
                    self._counter(chunk, rows, events)
                case "B" | "E" | "b" | "e":
                    self._half(chunk, rows, events, phase)
                case "i" | "I" | "R" | "n":
                    self._instant(chunk, rows, events, phase)
                case _:
                    self.phases[phase] = self.phases.get(phase, 0) + len(rows)
                    self._drop_slices("unknown phase", chunk, rows, len(rows))

    # ---- one phase each -----------------------------------------------------------------------------------------

    def _place(self, chunk: Chunk, row: int) -> str:
        return f"{self.name}, byte {chunk.byte(row)}"

    def _drop_slices(self, reason: str, chunk: Chunk, rows: Sequence[int], read: int = 0) -> None:
        tally = self.timeline.tally.slices
        tally.read += read
        if len(rows):
            tally.drop(reason, len(rows), "" if reason in tally.first else self._place(chunk, int(rows[0])))

    def _starts(self, chunk: Chunk, rows: list[int], events: list[Event]) -> tuple[Int64, npt.NDArray[np.bool_]]:
        """ts as ns, and which are times. The others are dropped as slices."""
        ts, status = raw_ns([event.ts for event in events])
        good = status == OK
        if not good.all():
            at = np.array(rows)
            self._drop_slices("not a number", chunk, at[status == NOT_A_NUMBER])
            self._drop_slices("start out of range", chunk, at[(status != OK) & (status != NOT_A_NUMBER)])
        return ts, good

    def _rows(self, rows: list[int], events: list[Event], ts: Int64, dur: Int64, threads: list[Any]) -> Rows:
        return Rows(
            np.fromiter(map(self.threads.__getitem__, threads), np.int32, len(events)),
            ts,
            dur,
            self.texts.of([event.name for event in events]),
            self.texts.of([event.cat for event in events]),
            np.array(rows, np.uint32) + np.uint32(self.order),
        )

    def _complete(self, chunk: Chunk, rows: list[int], events: list[Event]) -> None:
        self.timeline.tally.slices.read += len(events)
        ts, good = self._starts(chunk, rows, events)
        dur, status = raw_ns([event.dur for event in events])
        bad = good & (status == NOT_A_NUMBER)
        far = good & ~bad & ((status != OK) | (ts > MAX_NS - np.maximum(dur, 0)))  # no int64 holds its end
        negative = good & ~(bad | far) & (dur < 0)
        if bad.any() or far.any() or negative.any():
            at = np.array(rows)
            self._drop_slices("not a number", chunk, at[bad])
            self._drop_slices("start out of range", chunk, at[far])
            self._drop_slices("negative duration", chunk, at[negative])
            good &= ~(bad | far | negative)
        if not good.all():
            kept = np.flatnonzero(good)
            rows, events = [rows[i] for i in kept.tolist()], [events[i] for i in kept.tolist()]
            ts, dur = ts[kept], dur[kept]
        if events:
            self._add(self.slices, chunk, rows, events, ts, dur, _thread_keys(events))

    def _add(
        self,
        into: ArgColumns,
        chunk: Chunk,
        rows: list[int],
        events: list[Event],
        ts: Int64,
        dur: Int64,
        threads: list[Any],
    ) -> None:
        deep = into.add(self._rows(rows, events, ts, dur, threads), [event.args for event in events])
        if deep:
            self._drop_slices("malformed event", chunk, [rows[row] for row in deep])
            self.first_deep = self.first_deep or self._place(chunk, rows[deep[0]])
            self.deep += len(deep)

    def _instant(self, chunk: Chunk, rows: list[int], events: list[Event], phase: str) -> None:
        self.timeline.tally.slices.read += len(events)
        ts, good = self._starts(chunk, rows, events)
        if not good.all():
            kept = np.flatnonzero(good).tolist()
            rows, events, ts = [rows[i] for i in kept], [events[i] for i in kept], ts[kept]
        if events:
            threads = _async_keys(events) if phase == "n" else _thread_keys(events)
            self._add(self.instants, chunk, rows, events, ts, np.zeros(len(ts), np.int64), threads)

    def _half(self, chunk: Chunk, rows: list[int], events: list[Event], phase: str) -> None:
        ts, good = self._starts(chunk, rows, events)
        self.timeline.tally.slices.read += int((~good).sum())
        threads = _thread_keys(events) if phase in "BE" else _async_keys(events)
        tally = self.timeline.tally.slices
        for i, event in enumerate(events):
            if good[i]:
                known = "no end" in tally.first and "no start" in tally.first
                self.halves.append(
                    Half(
                        self.threads[threads[i]],
                        int(ts[i]),
                        self.order + rows[i],
                        phase in "Bb",
                        event.name,
                        event.cat,
                        bytes(event.args),
                        "" if known else f"{self.name}, event {self.order + rows[i]}",
                    )
                )

    def _pairs(self) -> None:
        found = pairs(self.halves, self.timeline.tally.slices)
        self.halves = []
        if not found:
            return
        rows = Rows(
            np.array([w.thread for w in found], np.int32),
            np.array([w.ts for w in found], np.int64),
            np.array([w.dur for w in found], np.int64),
            self.texts.of([w.name for w in found]),
            self.texts.of([w.category for w in found]),
            np.array([w.order for w in found], np.uint32),
        )
        deep = self.slices.add(rows, [w.args for w in found])
        if deep:
            place = f"{self.name}, event {found[deep[0]].order}"
            self.timeline.tally.slices.drop("malformed event", len(deep), place)
            self.first_deep = self.first_deep or place
            self.deep += len(deep)

    def _metadata(self, events: list[Event]) -> None:
        for event in events:
            try:
                args = orjson.loads(bytes(event.args))
            except (orjson.JSONDecodeError, TypeError):
                args = None
            if not isinstance(args, dict):
                self.unread_metadata += bytes(event.args) != b"null"
                continue
            match event.name:
                case "process_name":
                    self.threads.processes[self.threads.process(event.pid)].name = _text(args.get("name"))
                case "process_labels":
                    self.threads.processes[self.threads.process(event.pid)].label = _text(args.get("labels"))
                case "process_sort_index":
                    index = args.get("sort_index")
                    if isinstance(index, int):
                        self.threads.processes[self.threads.process(event.pid)].sort_index = index
                case "thread_name":
                    self.threads.threads[self.threads[event.pid, event.tid]].name = _text(args.get("name"))
                case "thread_sort_index":
                    index = args.get("sort_index")
                    if isinstance(index, int):
                        self.threads.threads[self.threads[event.pid, event.tid]].sort_index = index

    def _flow(self, chunk: Chunk, rows: list[int], events: list[Event], kind: int) -> None:
        tally = self.timeline.tally.flows
        ts, status = raw_ns([event.ts for event in events])
        good = status == OK
        if not good.all():
            left = np.flatnonzero(~good)
            tally.read += len(left)
            tally.drop("not a number", len(left), self._place(chunk, rows[left[0]]))
            kept = np.flatnonzero(good).tolist()
            rows, events, ts = [rows[i] for i in kept], [events[i] for i in kept], ts[kept]
        if not events:
            return
        thread = np.fromiter(map(self.threads.__getitem__, _thread_keys(events)), np.int32, len(events))
        category = self.texts.of([event.cat or event.name for event in events])
        bad = self.flows.add(kind, thread, ts, category, [event.id for event in events])
        if bad:
            tally.read += len(bad)
            tally.drop("malformed event", len(bad), self._place(chunk, rows[bad[0]]))

    def _counter(self, chunk: Chunk, rows: list[int], events: list[Event]) -> None:
        tally = self.timeline.tally.counters
        ts, status = raw_ns([event.ts for event in events])
        good = status == OK
        if not good.all():
            left = np.flatnonzero(~good)
            tally.read += len(left)
            tally.drop("not a number", len(left), self._place(chunk, rows[left[0]]))
            kept = np.flatnonzero(good).tolist()
            rows, events, ts = [rows[i] for i in kept], [events[i] for i in kept], ts[kept]
        if events:
            ids = _id_texts(events)
            args = decode_args([event.args for event in events])
            names = [event.name for event in events]
            pids = [event.pid for event in events]
            self.counters.add(pids, names, ids, ts, args, lambda row: self._place(chunk, rows[row]))

    def finish(self) -> TraceParts:
        self._pairs()
        if self.deep:
            self.timeline.warn(f"{self.first_deep}: {self.deep} events dropped, their arguments are {TOO_DEEP}")
        if self.unread_metadata:
            self.timeline.warn(
                f"{self.name}: {self.unread_metadata} metadata events passed over, their arguments can't be read"
            )
        if self.phases:
            kinds = ", ".join(
                f"{count} x {printable(phase, 20)!r}" for phase, count in sorted(self.phases.items())[:20]
            )
            self.timeline.warn(f"{self.name}: events of an unknown phase were dropped: {kinds}")
        return fill_timeline(
            self.timeline, self.threads, self.slices, self.instants, self.flows, self.counters, self.header, self.name
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _thread_keys(events: list[Event]) -> list[Any]:
    return list(zip([event.pid for event in events], [event.tid for event in events], strict=True))


def _id_texts(events: list[Event]) -> list[str]:
    raws = [event.id for event in events]
    return list(raw_texts(raws).to_pylist()) if b"".join(raws) else [""] * len(raws)


def _async_keys(events: list[Event]) -> list[Any]:
    ids = _id_texts(events)
    return [(e.pid, AsyncId(e.cat, id_, e.name)) for e, id_ in zip(events, ids, strict=True)]
