"""Timelines written by hand, for tests: a line per event, times in microseconds.

t = Builder()
main = t.thread("main")
t.host(main, "step[VERIFY bs=2]", 10, 20)
t.task("MatMul", 12, 15, stream=2, connection=7)
timeline = t.build()
"""

from __future__ import annotations

from typing import Any

import numpy as np

from schemas.timeline import (
    NULL,
    DeviceSlices,
    FlowBatch,
    Host,
    HostSlices,
    Kind,
    Role,
    SliceBatch,
    Tasks,
    Timeline,
)

BASE_NS = 1_700_000_000_000_000_000


def ns(us: float) -> int:
    """The ns of a time of the builder."""
    return BASE_NS + round(us * 1000)


class Builder:
    """Collects events; build() makes the Timeline with its views. Starts and ends in us from a common base."""

    def __init__(self, rank: int = 0) -> None:
        self.timeline = Timeline(rank, "by hand")
        self.events: list[dict[str, Any]] = []
        self.flow_list: list[tuple[str, int, int]] = []
        self.tracks: dict[tuple[str, int], int] = {}

    def thread(self, name: str = "main", tid: int = 1) -> int:
        return self._track(
            "thread", tid, lambda: self.timeline.track(name, Kind.THREAD, role=Role.HOST, tid=tid, pid=1)
        )

    def cann(self, tid: int = 1) -> int:
        return self._track("cann", tid, lambda: self.timeline.track(f"Thread {tid}", role=Role.CANN))

    def stream(self, stream: int) -> int:
        return self._track(
            "stream",
            stream,
            lambda: self.timeline.track(f"Stream {stream}", role=Role.STREAM, device=0, stream=stream),
        )

    def _track(self, kind: str, number: int, make: Any) -> int:
        if (kind, number) not in self.tracks:
            self.tracks[kind, number] = make()
        return self.tracks[kind, number]

    def _add(self, view: str, track: int, name: str, start: float, end: float, **fields: Any) -> int:
        self.events.append(
            {"view": view, "track": track, "name": name, "ts": ns(start), "dur": ns(end) - ns(start), **fields}
        )
        return len(self.events) - 1

    def host(self, track: int, name: str, start: float, end: float, **fields: Any) -> int:
        """A framework range or op. source, connection_id, correlation_id as fields. Its slice number."""
        return self._add("host", track, name, start, end, **{"source": Host.FRAMEWORK, **fields})

    def launch(self, connection: int, start: float, end: float, name: str = "Node@launch", tid: int = 1) -> int:
        return self.host(self.cann(tid), name, start, end, source=Host.CANN, connection_id=connection)

    def queued(self, correlation: int, start: float, end: float, name: str = "Enqueue", tid: int = 1) -> int:
        """An Enqueue or Dequeue."""
        source = Host.ENQUEUE if name == "Enqueue" else Host.DEQUEUE
        return self.host(self.thread(tid=tid), name, start, end, source=source, correlation_id=correlation)

    def task(self, name: str, start: float, end: float, stream: int = 2, connection: int = NULL, **fields: Any) -> int:
        """A recorded task. task_id, model_id, communication, op_type, accelerator_core as fields."""
        more = {"stream_id": stream, "connection_id": connection, **fields}
        return self._add("task", self.stream(stream), name, start, end, **more)

    def device(self, name: str, start: float, end: float, stream: int = 2, **fields: Any) -> int:
        """A device slice that is no recorded task. task_type, model_id, connection_id as fields."""
        return self._add("device", self.stream(stream), name, start, end, **{"stream_id": stream, **fields})

    def flow(self, category: str, out: int, into: int) -> None:
        self.flow_list.append((category, out, into))

    def build(self) -> Timeline:
        t, events = self.timeline, self.events
        text = t.strings.add
        if events:
            t.add(
                SliceBatch(
                    np.array([e["track"] for e in events], np.int32),
                    np.array([e["ts"] for e in events], np.int64),
                    np.array([e["dur"] for e in events], np.int64),
                    np.array([text(e["name"]) for e in events], np.int32),
                )
            )
        for category in dict.fromkeys(c for c, _, _ in self.flow_list):
            pairs = [(o, i) for c, o, i in self.flow_list if c == category]
            out, into = (np.array([p[k] for p in pairs], np.int64) for k in (0, 1))
            starts = np.array([events[o]["ts"] for o, _ in pairs], np.int64)
            t.flows.append(FlowBatch(text(category), out, into, starts))

        def rows(view: str, key: Any) -> list[int]:
            return sorted((i for i, e in enumerate(events) if e["view"] == view), key=lambda i: key(events[i]))

        def column(order: list[int], key: str, missing: Any = NULL, dtype: Any = np.int64) -> Any:
            return np.array([events[i].get(key, missing) for i in order], dtype)

        def texts(order: list[int], key: str) -> Any:
            return np.array([text(events[i].get(key, "")) for i in order], np.int32)

        o = rows("task", lambda e: (e["ts"], -e["dur"]))
        t.tasks = Tasks(
            ts=column(o, "ts"),
            dur=column(o, "dur"),
            name=texts(o, "name"),
            track=column(o, "track", dtype=np.int32),
            slice=np.array(o, np.int64),
            device_id=np.zeros(len(o), np.int64),
            stream_id=column(o, "stream_id"),
            task_id=column(o, "task_id"),
            model_id=column(o, "model_id"),
            op_type=texts(o, "op_type"),
            op_state=texts(o, "op_state"),
            accelerator_core=texts(o, "accelerator_core"),
            wait_ns=column(o, "wait_ns"),
            connection_id=column(o, "connection_id"),
            input_shapes=texts(o, "input_shapes"),
            communication=column(o, "communication", False, np.bool_),
        )
        o = rows("host", lambda e: (e["track"], e["ts"], -e["dur"]))
        t.host = HostSlices(
            ts=column(o, "ts"),
            dur=column(o, "dur"),
            name=texts(o, "name"),
            track=column(o, "track", dtype=np.int32),
            slice=np.array(o, np.int64),
            source=column(o, "source", dtype=np.int8),
            connection_id=column(o, "connection_id"),
            correlation_id=column(o, "correlation_id"),
        )
        o = rows("device", lambda e: e["ts"])
        t.device = DeviceSlices(
            ts=column(o, "ts"),
            dur=column(o, "dur"),
            name=texts(o, "name"),
            track=column(o, "track", dtype=np.int32),
            slice=np.array(o, np.int64),
            stream_id=column(o, "stream_id"),
            task_type=texts(o, "task_type"),
            model_id=column(o, "model_id"),
            connection_id=column(o, "connection_id"),
        )
        if len(t.tasks):
            t.window = (int(t.tasks.ts.min()), int(t.tasks.end.max()))
        return t


def arguments(layer: Any, category: str) -> list[dict[str, Any]]:
    """The derived slices of a category as dictionaries: name, ts and dur (ns), and every argument that is there."""
    out: list[dict[str, Any]] = []
    for batch in layer.slices:
        if layer.strings[batch.category] != category:
            continue
        for row in range(len(batch)):
            slice_: dict[str, Any] = {
                "name": layer.strings[int(batch.name[row])],
                "ts": int(batch.ts[row]),
                "dur": int(batch.dur[row]),
                "track": layer.tracks[batch.track[row]].name,
            }
            for c in batch.columns:
                if c.valid is None or c.valid[row]:
                    value = c.values[row]
                    slice_[c.key] = layer.strings[int(value)] if c.kind == "text" else value.item()
            out.append(slice_)
    return out
