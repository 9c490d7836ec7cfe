"""A rank of the synthetic run: a host thread, the ACL thread that launches for it, and the device's streams.

Everything is a true time in int64 ns. A program (`samples/programs.py`) drives a Rank: it advances the host clock, and
every launch becomes the host and device events that the profiler would show. Where ranks meet (gloo, dispatch, combine,
collectives) the program yields a `Meeting` with its arrival and is resumed with the time of release (`run_together`).
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from samples.config import BASE_NS, Config
from samples.kernels import K, Kernel

EAGER = 4294967295  # "no model" in the files


@dataclass(slots=True)
class Span:
    """A slice on a host thread. cat: cpu_op, enqueue, dequeue, or cann. parent: the innermost cpu_op around it."""

    thread: str  # main | acl
    name: str
    start: int
    end: int = 0
    cat: str = "cpu_op"
    id: int = 0  # correlation_id or connection_id
    item: str = ""
    parent: Span | None = None


@dataclass(slots=True)
class Task:
    """A device slice. kind: kernel (compute), collective, or other (copies, events: no recorded task)."""

    start: int
    end: int
    name: str
    stream: int
    task_id: int
    kind: str
    task_type: str
    connection_id: int
    model_id: int = EAGER
    kernel: Kernel | None = None
    tokens: int = 0
    bs: int = 0
    size: int = 0
    group: str = ""
    op: Span | None = None  # start of its async_npu flow
    call: Span | None = None  # CANN call that submitted it, with a HostToDevice flow
    # what the model knows of it
    forward_ct: int = -1
    phase: str = ""  # prelude | draft | sample | plan | prepare | verify | tail | other
    part: str = ""  # of the tail
    replay: int = -1

    @property
    def recorded(self) -> bool:
        return self.kind != "other"


@dataclass(slots=True)
class Replay:
    model_id: int
    forward_ct: int
    call: Span
    tasks: list[Task] = field(default_factory=list)


@dataclass(slots=True)
class Expert:
    """A dispatch or combine: what DeepEP did, with its place in the order of the group."""

    op: str
    forward_ct: int
    index: int
    task: Task
    issue: int
    hook: int
    model: str


@dataclass(slots=True)
class Meeting:
    """Ranks meet: `arrival` is when this one is there; released `transit` ns after the last."""

    key: str
    arrival: int
    transit: int


Program = Generator[Meeting, int, None]


class Rank:
    """State and recorded events of one rank."""

    def __init__(self, config: Config, rank: int) -> None:
        self.config, self.rank = config, rank
        self.random = random.Random(f"{config.seed} rank {rank}")
        self.t = BASE_NS + self.random.randrange(200_000)
        self.acl_free = 0
        self.free: dict[int, int] = {}
        self.spans: list[Span] = []
        self.tasks: list[Task] = []
        self.replays: list[Replay] = []
        self.experts: list[Expert] = []
        self.queue: list[tuple[Span, Span]] = []  # Enqueue, Dequeue
        self.stack: list[Span] = []
        self.correlation, self.connection = 8000 + 100 * rank, 500_000 + 1000 * rank
        self.next_task: dict[int, int] = {}
        self.collectives: dict[str, int] = {}
        self.pid = 41_000 + 97 * rank
        # what launches are marked with
        self.forward_ct, self.phase, self.part = -1, "other", ""
        self.tokens = self.bs = 0
        self.replay: Replay | None = None

    # -- the host ------------------------------------------------------------------------------------------------
    def ns(self, us: float, spread: float = 0.08) -> int:
        """About this many us, in ns."""
        return max(round(us * 1000 * (1 + self.random.uniform(-spread, spread))), 20)

    def work(self, us: float) -> None:
        self.t += self.ns(us)

    @contextmanager
    def span(self, name: str, cat: str = "cpu_op") -> Iterator[Span]:
        """A range on the main thread: record_function, a torch op, or a Python frame (which launches nothing)."""
        span = Span("main", name, self.t, cat=cat, parent=self.stack[-1] if self.stack else None)
        self.spans.append(span)
        if cat == "cpu_op":
            self.stack.append(span)
        self.t += self.ns(1.2)
        yield span
        self.t += self.ns(0.8)
        span.end = self.t
        if cat == "cpu_op":
            self.stack.pop()

    def cann(self, thread: str, name: str, start: int, end: int, item: str = "0") -> Span:
        self.connection += 1
        span = Span(thread, name, start, end, "cann", self.connection, item)
        self.spans.append(span)
        return span

    def through_queue(self, label: str, call: str, item: str = "0") -> Span:
        """Enqueue on the main thread, Dequeue and the CANN call on the ACL thread. The call."""
        self.correlation += 1
        enqueue = Span("main", "Enqueue", self.t, self.t + self.ns(2.6), "enqueue", self.correlation)
        enqueue.parent = self.stack[-1] if self.stack else None
        self.t = enqueue.end
        start = max(enqueue.end + self.ns(2.0), self.acl_free)
        inner = start + self.ns(2.2)
        cann = self.cann("acl", call, inner, inner + self.ns(5.5), item)
        dequeue = Span("acl", f"Dequeue@{label}", start, cann.end + self.ns(1.1), "dequeue", self.correlation)
        self.acl_free = dequeue.end + self.ns(0.6)
        self.spans += [enqueue, dequeue]
        self.queue.append((enqueue, dequeue))
        return cann

    def drain_queue(self) -> None:
        """A replay or a synchronize waits until the ACL thread has launched everything."""
        self.t = max(self.t, self.acl_free)

    # -- the device ----------------------------------------------------------------------------------------------
    def at(self, stream: int, ready: int = 0) -> int:
        """When the stream could start a task."""
        return max(ready, self.free.get(stream, 0) + self.ns(0.9, 0.3))

    def run(self, task: Task) -> Task:
        """Puts a task on its stream, with the marks of this moment."""
        task.forward_ct, task.phase, task.part = self.forward_ct, self.phase, self.part
        task.tokens, task.bs = self.tokens, self.bs
        task.replay = len(self.replays) - 1 if self.replay is not None else -1
        if self.replay is not None and task.recorded:
            self.replay.tasks.append(task)
        self.free[task.stream] = max(self.free.get(task.stream, 0), task.end)
        self.tasks.append(task)
        return task

    def task_id(self, stream: int) -> int:
        """The next task id of a stream: 16 bits. In a replay they are those of the capture, each time the same."""
        key = stream if self.replay is None else -self.replay.model_id * 1000 - stream
        value = self.next_task.get(key, 21_900 if self.replay is None else 100)
        self.next_task[key] = value + 1
        return value % 65_536

    def kernel(self, name: str, stream: int = 0, ready: int = 0, us: float = 0.0, call: Span | None = None) -> Task:
        """A kernel on the device, launched by `call` or by the replay that runs."""
        k, config = K[name], self.config
        stream = stream or (config.eager_stream if self.replay is None else config.graph_stream)
        start = self.at(stream, ready)
        us = (us or k.us) * (config.scale if self.replay is not None or self.phase == "verify" else 1.0)
        return self.run(self.make_kernel(k, stream, start, start + self.ns(us), call))

    def make_kernel(self, k: Kernel, stream: int, start: int, end: int, call: Span | None) -> Task:
        task_id, model_id = self.task_id(stream), EAGER
        connection = call.id if call else 0
        if self.replay is not None:
            model_id = self.replay.model_id
            connection = 3000 + 40 * model_id + task_id  # of the capture
        op = self.stack[-1] if self.stack and call else None
        return Task(start, end, k.name, stream, task_id, "kernel", k.core, connection, model_id, k, op=op, call=call)

    def launch(self, name: str, us: float = 0.0, stream: int = 0, ready: int = 0) -> Task:
        """An eager kernel: torch op, Enqueue, Dequeue, Node@launch, task. A Triton kernel has no op of its own."""
        if self.replay is not None:
            return self.kernel(name, stream, ready, us)
        k = K[name]
        if not k.op:
            self.work(5)
            call = self.through_queue(k.name, "Node@launch", k.name)
            return self.kernel(name, stream, max(ready, call.end + self.ns(4)), us, call)
        with self.span(k.op):
            self.work(4)
            call = self.through_queue(k.name.split("_")[0], "Node@launch", k.name)
            task = self.kernel(name, stream, max(ready, call.end + self.ns(4)), us, call)
        self.work(2.5)
        return task

    def other(
        self, call: Span | None, name: str, task_type: str, stream: int, us: float, size: int = 0, ready: int = 0
    ) -> Task:
        """A device slice that is no recorded task: a copy or an event."""
        start = self.at(stream, max(ready, call.end + self.ns(3) if call else 0))
        connection = call.id if call else 3000 + stream
        task = Task(start, start + self.ns(us), name, stream, self.task_id(stream), "other", task_type, connection)
        if self.replay is not None:
            task.model_id = self.replay.model_id
        task.size, task.call, task.op = size, call, self.stack[-1] if self.stack and call else None
        return self.run(task)

    def copy(self, size: int, host_us: float = 12.0, stream: int = 0, to_host: bool = False) -> Task:
        """A small copy between host and device: aten::to > _to_copy > copy_ > the queue > MEMCPY_ASYNC."""
        with self.span("aten::to"), self.span("aten::_to_copy"), self.span("aten::copy_"):
            self.work(host_us)
            label = "acl_memcpy_device_to_host" if to_host else "acl_memcpy_host_to_device"
            call = self.through_queue(label, "AscendCL@aclrtMemcpyAsync")
            return self.other(call, "MEMCPY_ASYNC", "PCIE_DMA_SQE", stream or self.config.eager_stream, 2.3, size)

    def event(self) -> int:
        """A timing event on the current stream; when it was reached."""
        call = self.through_queue("record_event", "AscendCL@aclrtRecordEvent")
        return self.other(call, "EVENT_RECORD", "EVENT_RECORD_SQE", self.config.eager_stream, 0.02).end

    def meet_on_device(
        self, name: str, us: float, call: Span | None, key: str, ready: int = 0
    ) -> Generator[Meeting, int, Task]:
        """A kernel that waits for its peers: it ends at the release."""
        config = self.config
        stream = config.eager_stream if self.replay is None else config.graph_stream
        start = self.at(stream, max(ready, call.end + self.ns(4) if call else 0))
        end = yield Meeting(key, start + self.ns(us), 1500)
        return self.run(self.make_kernel(K[name], stream, start, end, call))

    def collective(self, op: str, hash3: str, group: str, us: float) -> Generator[Meeting, int, Task]:
        """An eager collective of all ranks of the group."""
        index = self.collectives.get(hash3, 0)
        self.collectives[hash3] = index + 1
        name = f"{op}_{hash3}_{index}_1"
        with self.span(f"c10d::{op.removeprefix('hcom_').rstrip('_')}_"):
            self.work(6)
            call = self.through_queue(op, "Communication@" + op, name)
            start = self.at(self.config.eager_stream, call.end + self.ns(6))
            end = yield Meeting(f"{group} {op}{index}", start + self.ns(us), 3000)
            task = Task(start, end, name, -1, -1, "collective", "COMMUNICATION", call.id, op=self.stack[-1], call=call)
            task.group = hash3
            task.kernel = Kernel(name, op, "COMMUNICATION")
            self.run(task)
        self.free[self.config.eager_stream] = max(self.free.get(self.config.eager_stream, 0), end)
        return task


def run_together(ranks: Sequence[Rank], programs: Sequence[Program], config: Config) -> None:
    """Runs the programs of all ranks, which meet in the same order. Keys that begin with `tp` are met per TP group."""
    jitter = random.Random(f"{config.seed} meetings")
    waiting: list[Meeting | None] = [next(p, None) for p in programs]
    while any(waiting):
        meetings = [m for m in waiting if m is not None]
        if len({m.key for m in meetings}) != 1 or len(meetings) != len(ranks):
            raise AssertionError(f"ranks do not meet: {[m.key for m in meetings]}")
        size = config.attention_tp if meetings[0].key.startswith("tp ") else len(ranks)
        for first in range(0, len(ranks), size):
            group = meetings[first : first + size]
            release = max(m.arrival for m in group) + group[0].transit
            for i in range(first, first + len(group)):
                at = release + jitter.randint(0, config.jitter_ns)
                try:
                    waiting[i] = programs[i].send(at)
                except StopIteration:
                    waiting[i] = None
