"""The Timeline: what a capture of one rank holds, as columns over int64 ns. Every reader fills it, every annotator
reads it, the writer encodes it. No Python object per event: at ten million events that would be a bug.

Times are ns since the epoch (or relative where the input is), int64, exact. Texts are ids into a StringPool.
A slice has a global number within its rank: the batches in order, rows in order (`SliceBatch.first + row`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from schemas.tally import Tallies

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.signedinteger[Any]]
Bool = npt.NDArray[np.bool_]

NULL = -1  #: an absent id, wait or index in an integer column: none of them is ever negative
NO_TEXT = 0  #: the id of the empty text, which also stands for "absent"


class StringPool:
    """Texts by id. Id 0 is the empty text. Ids never change."""

    def __init__(self) -> None:
        self.texts: list[str] = [""]
        self._ids: dict[str, int] = {"": 0}

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, text_id: int) -> str:
        return self.texts[text_id]

    def add(self, text: str) -> int:
        found = self._ids.get(text)
        if found is None:
            found = self._ids[text] = len(self.texts)
            self.texts.append(text)
        return found

    def add_all(self, texts: Iterable[str]) -> Int32:
        """int32[n]: the id of each text. For a dictionary of distinct texts, or a list of any."""
        add = self.add
        return np.fromiter((add(t) for t in texts), np.int32)

    def find(self, text: str) -> int:
        """The id, or NULL where no slice or argument ever had this text."""
        return self._ids.get(text, NULL)


ColumnKind = Literal["int", "uint", "float", "text", "bool"]


@dataclass
class Column:
    """One argument of a batch. values: int64 (int), uint64 (uint), float64, int32 text ids, or bool; shape [n].

    valid: bool[n], or None where every row has it. Rows that are not valid carry no such argument.
    """

    key: str
    kind: ColumnKind
    values: npt.NDArray[Any]
    valid: Bool | None = None


def text_column(key: str, ids: Int32) -> Column:
    """A text argument; the empty text is absent."""
    return Column(key, "text", ids, ids != NO_TEXT)


def id_column(key: str, ids: IntArray) -> Column:
    """An integer argument; NULL is absent."""
    return Column(key, "int", ids, ids != NULL)


class Kind(enum.Enum):
    """What a track is to Perfetto."""

    PROCESS = "process"
    THREAD = "thread"  # an OS thread: pid and tid are real
    GROUP = "group"  # a custom track that only holds others (or few slices)
    LANE = "lane"  # a custom track with slices
    COUNTER = "counter"


class Role(enum.Enum):
    """What a track is to the annotators."""

    NONE = "none"
    STREAM = "stream"  # of a device: `device` and `stream` are set
    COMMUNICATION = "communication"  # collective ops of a group
    PLANE = "plane"  # tasks of a collective
    HOST = "host"  # threads of the framework (Python)
    CANN = "cann"  # threads of the CANN API
    OVERLAP = "overlap"  # the vendor's Overlap Analysis
    DERIVED = "derived"  # ours


@dataclass
class Track:
    """One row of the tree. parent: index into the same list, -1 for a root.

    order: rank among its siblings (lower first), used where the parent has `explicit_order`.
    """

    name: str
    kind: Kind
    parent: int = -1
    role: Role = Role.NONE
    description: str = ""
    order: int | None = None
    explicit_order: bool = False
    pid: int = 0
    tid: int = 0
    device: int = NULL
    stream: int = NULL
    unit: str = ""


@dataclass
class SliceBatch:
    """Slices whose arguments share the same columns. Arrays are [n], row by row.

    track: int32 track index; ts, dur: int64 ns (dur 0 and `instant` for instants); name: int32 text id;
    category: one text id for the batch, or int32[n]; columns: the arguments;
    extra: None, or per row the bytes of further encoded arguments (rare: nested values), b"" for none.
    """

    track: Int32
    ts: Int64
    dur: Int64
    name: Int32
    category: int | Int32 = NO_TEXT
    columns: list[Column] = field(default_factory=list)
    extra: list[bytes] | None = None
    instant: bool = False
    first: int = 0  # the global number of row 0, set by Layer.add

    def __len__(self) -> int:
        return len(self.ts)


@dataclass
class CounterBatch:
    """Samples. track: int32[n] (counter tracks); ts: int64[n]; values: int64[n] or float64[n], as written."""

    track: Int32
    ts: Int64
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.ts)


@dataclass
class FlowBatch:
    """Arrows between slices of one rank, by global slice number.

    category: text id, e.g. "HostToDevice", "async_npu", "async_task_queue".
    out_ts: int64[n], the time of the start point as recorded: it may lie inside the slice.
    """

    category: int
    out: Int64
    into: Int64
    out_ts: Int64


class Layer:
    """Tracks, slices, counters and flows over one StringPool. An annotator returns one; a Timeline is one."""

    def __init__(self, strings: StringPool, first_slice: int = 0) -> None:
        self.strings = strings
        self.tracks: list[Track] = []
        self.slices: list[SliceBatch] = []
        self.counters: list[CounterBatch] = []
        self.flows: list[FlowBatch] = []
        self.slice_count = first_slice  # the next global number

    def track(self, name: str, kind: Kind = Kind.LANE, **fields: Any) -> int:
        """Adds a track; its index."""
        self.tracks.append(Track(name, kind, **fields))
        return len(self.tracks) - 1

    def add(self, batch: SliceBatch) -> SliceBatch:
        """Adds a batch of slices and numbers them."""
        batch.first = self.slice_count
        self.slice_count += len(batch)
        self.slices.append(batch)
        return batch

    def add_slices(
        self,
        track: int,
        ts: Int64,
        dur: Int64,
        names: Sequence[str] | str | Int32,
        category: str,
        columns: Sequence[Column] = (),
        extra: list[bytes] | None = None,
        instant: bool = False,
    ) -> SliceBatch:
        """A batch on one track, for annotators. names: one text for all, a text per row, or text ids."""
        n = len(ts)
        if isinstance(names, str):
            name = np.full(n, self.strings.add(names), np.int32)
        elif isinstance(names, np.ndarray):
            name = names
        else:
            name = self.strings.add_all(names)
        return self.add(
            SliceBatch(
                np.full(n, track, np.int32),
                np.asarray(ts, np.int64),
                np.asarray(dur, np.int64),
                name,
                self.strings.add(category),
                list(columns),
                extra,
                instant,
            )
        )

    def add_samples(self, track: int, ts: Int64, values: npt.NDArray[Any]) -> None:
        """Samples of one counter track, for annotators."""
        self.counters.append(CounterBatch(np.full(len(ts), track, np.int32), np.asarray(ts, np.int64), values))


@dataclass
class Tasks:
    """The recorded tasks of a rank (design.md, Definitions): sorted by start, then longer first, then file order.

    The row is the task's identity: the argument `task` of its slice, `npu_kernels.task` in SQL.
    Integer columns hold NULL, text columns NO_TEXT where absent. All arrays are [n].
    """

    ts: Int64
    dur: Int64
    name: Int32
    track: Int32
    slice: Int64  # global slice number
    device_id: IntArray
    stream_id: IntArray
    task_id: IntArray
    model_id: IntArray  # NULL = eager (4294967295 in the files)
    op_type: Int32
    op_state: Int32
    accelerator_core: Int32
    wait_ns: IntArray  # as recorded
    connection_id: IntArray
    input_shapes: Int32
    communication: Bool  # a collective's row (core HCCL / COMMUNICATION, or an op of the Communication process)

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def end(self) -> Int64:
        return self.ts + self.dur


class Host(enum.IntEnum):
    """Where a host slice comes from."""

    FRAMEWORK = 0  # cpu_op, user annotations (record_function: scheduler.*, step[...])
    PYTHON = 1  # python_function
    ENQUEUE = 2
    DEQUEUE = 3
    CANN = 4
    OTHER = 5  # GC, mstx, anything else on a host process


@dataclass
class HostSlices:
    """Host slices of a rank, sorted by track, then start, longer first. All arrays are [n]."""

    ts: Int64
    dur: Int64
    name: Int32
    track: Int32
    slice: Int64
    source: npt.NDArray[np.int8]  # of Host
    connection_id: IntArray  # CANN slices, else NULL
    correlation_id: IntArray  # Enqueue/Dequeue, else NULL

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def end(self) -> Int64:
        return self.ts + self.dur


@dataclass
class DeviceSlices:
    """Device slices that are not recorded tasks: events, copies, MODEL_EXECUTE, ... Sorted by start. Arrays are [n]."""

    ts: Int64
    dur: Int64
    name: Int32
    track: Int32
    slice: Int64
    stream_id: IntArray
    task_type: Int32
    model_id: IntArray
    connection_id: IntArray

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def end(self) -> Int64:
        return self.ts + self.dur


@dataclass
class Clock:
    """The rank's clock row (`npu_rank_clocks`)."""

    method: str = "none"  # reference | same_host | collective | manual | none
    offset_ns: int = 0
    drift_ppm: float | None = None
    residual_median_ns: int | None = None
    residual_max_ns: int | None = None
    anchor_count: int = 0
    launch_pairs: int = 0
    causality_violations: int = 0
    worst_violation_ns: int = 0


class Timeline(Layer):
    """One rank. `tasks`, `host` and `device` are views over the batches for annotators."""

    def __init__(self, rank: int, source: str) -> None:
        super().__init__(StringPool())
        self.rank = rank
        self.source = source  # the input as the user named it
        self.tally = Tallies()
        self.warnings: list[str] = []  # one line each
        self.damage: list[str] = []  # the warnings about the bytes of an input: exit 3 under --strict
        self.facts: dict[str, Any] = {}  # capture facts: profiler level, shapes, versions, ...
        self.clocks: list[dict[str, Any]] = []  # clock relations that the input states
        self.clock = Clock()
        self.window: tuple[int, int] | None = None  # [start, end) of the recorded tasks, or --window
        self.cut = ""  # by what it was cut to a part of the capture: "window", "steps", or not at all
        self.tasks: Tasks = empty_tasks()
        self.host: HostSlices = empty_host()
        self.device: DeviceSlices = empty_device()

    def warn(self, text: str, damaged: bool = False) -> None:
        self.warnings.append(text)
        if damaged:
            self.damage.append(text)

    @property
    def damaged(self) -> bool:
        return bool(self.damage)


def empty_tasks() -> Tasks:
    i8, i4, b = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.bool_)
    return Tasks(i8, i8, i4, i4, i8, i8, i8, i8, i8, i4, i4, i4, i8, i8, i4, b)


def empty_host() -> HostSlices:
    i8, i4 = np.empty(0, np.int64), np.empty(0, np.int32)
    return HostSlices(i8, i8, i4, i4, i8, np.empty(0, np.int8), i8, i8)


def empty_device() -> DeviceSlices:
    i8, i4 = np.empty(0, np.int64), np.empty(0, np.int32)
    return DeviceSlices(i8, i8, i4, i4, i8, i8, i4, i8, i8)
