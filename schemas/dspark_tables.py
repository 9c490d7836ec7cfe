"""The tables that the DSpark annotators hand to each other, as columns: one dataclass per question.

Arrays are [n], times int64 ns on the rank's clock, NULL (-1) where an integer is absent, NaN where a float is.
`step` is the row in Steps, `task` the row in Timeline.tasks, `slice` a global slice number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from schemas.dspark import Float64, RankRecords
from schemas.timeline import Bool, Int64


@dataclass
class Spans:
    """The `step[...]` and `scheduler.*` ranges of the host trace, sorted by start.

    row: in Timeline.host; kind: of annotators.spans.Span; bs, g_sq, g_sk: NULL where the name does not hold them.
    """

    row: Int64
    kind: Int64
    ts: Int64
    end: Int64
    track: Int64
    slice: Int64
    bs: Int64
    g_sq: Int64
    g_sk: Int64

    def __len__(self) -> int:
        return len(self.ts)

    def select(self, mask: Bool | Int64) -> Spans:
        return Spans(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


@dataclass
class Steps:
    """Decode steps of a rank in order. ts, end: the step; cut: its scheduler.run_batch span was not recorded whole.

    verify_*: the verify span; draft_step, draft_ts, draft_end, draft_slice: the draft spans [d] with their step;
    record: row in `records`, NULL where unmatched; wall_ns: to the next step's start, NULL where not consecutive.
    """

    ts: Int64
    end: Int64
    cut: Bool
    track: Int64
    bs: Int64
    g_sq: Int64
    g_sk: Int64
    verify_ts: Int64
    verify_end: Int64
    verify_slice: Int64
    draft_step: Int64
    draft_ts: Int64
    draft_end: Int64
    draft_slice: Int64
    forward_ct: Int64
    wall_ns: Int64
    record: Int64
    records: RankRecords | None = None

    def __len__(self) -> int:
        return len(self.ts)

    def floats(self, name: str) -> Float64:
        """A float column of the records by step; NaN where there is none."""
        return self._of_records(name, np.full(len(self), np.nan))

    def ints(self, name: str) -> Int64:
        """An integer column of the records by step; NULL where there is none."""
        return self._of_records(name, np.full(len(self), -1, np.int64))

    def _of_records(self, name: str, out: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        if self.records is not None:
            columns = self.records.floats if out.dtype.kind == "f" else self.records.ints
            known = self.record >= 0
            out[known] = columns[name][self.record[known]]
        return out

    def at(self, times: Int64) -> Int64:
        """The step that holds each time (start inclusive, end exclusive), else NULL. int64, like `times`."""
        if not len(self):
            return np.full(len(times), -1, np.int64)
        row = np.searchsorted(self.ts, times, side="right") - 1
        inside = (row >= 0) & (times < self.end[np.maximum(row, 0)])
        return np.where(inside, row, -1)


@dataclass
class Links:
    """Where each recorded task was submitted. Arrays are [tasks].

    source_ts: the start of its source (Enqueue, else op, else submission event), or of the replay's call; NULL = unknown;
    source_track: the host track of that; source_slice: its global slice number;
    launch_ts, launch_end, launch_slice: the submission event itself (the call, for a replay's task);
    replay: row in Replays, NULL for eager tasks.
    """

    source_ts: Int64
    source_track: Int64
    source_slice: Int64
    launch_ts: Int64
    launch_end: Int64
    launch_slice: Int64
    replay: Int64


@dataclass
class Replays:
    """Graph replays of a rank in order of their first task. launch_*: the aclmdlRIExecuteAsync call, NULL = unknown.

    task_replay: int64[tasks], the replay of each task, NULL = eager. prepare_ns, exposed_gap_ns, step: NULL = unknown.
    """

    model_id: Int64
    first_task_ts: Int64
    last_task_end: Int64
    launch_ts: Int64
    launch_end: Int64
    launch_track: Int64
    launch_slice: Int64
    task_replay: Int64
    step: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    prepare_ns: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    exposed_gap_ns: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    unlaunched: int = 0  # replays whose call was before the profile began
    uncalled: int = 0  # calls without a recorded replay

    def __len__(self) -> int:
        return len(self.model_id)


@dataclass
class Segments:
    """Draft and target_verify segments. is_verify: bool; placed: first start to last end of the linked main-stream
    tasks; record_ns NULL without a record; ts, end: the slice.
    """

    step: Int64
    is_verify: Bool
    ts: Int64
    end: Int64
    placed_ts: Int64
    placed_end: Int64
    record_ns: Int64
    kernel_sum_ns: Int64
    busy_union_ns: Int64
    other_stream_busy_ns: Int64
    main_stream: Int64  # int64[steps]: device * 2**32 + stream of the main stream, NULL = unknown

    def __len__(self) -> int:
        return len(self.step)


@dataclass
class Tails:
    """Parts of eager tails. part: index into PARTS; tail_ts, tail_end: int64[steps], the tail as a whole, NULL = none."""

    step: Int64
    part: Int64
    ts: Int64
    end: Int64
    kernel_count: Int64
    busy_ns: Int64
    tail_ts: Int64
    tail_end: Int64

    def __len__(self) -> int:
        return len(self.step)


#: Parts of an eager tail in their order, and the names of their slices.
PARTS = ("accept", "tp_sync", "finalize", "out_tokens", "commit", "other")
PART_NAMES = ("Accept", "TP sync", "Finalize", "Out tokens", "Commit", "Other")


@dataclass
class DeepEp:
    """Dispatch and combine intervals. combine, recv_hook: bool; task: the kernel of `in_kernel_wait`, NULL for hooks;
    overlapped_ns NULL for hooks; linked: bool, the evidence.
    """

    step: Int64
    combine: Bool
    recv_hook: Bool
    issue_ts: Int64
    hook_ts: Int64
    done_ts: Int64
    overlapped_ns: Int64
    exposed_ns: Int64
    task: Int64
    linked: Bool

    def __len__(self) -> int:
        return len(self.step)

    def moved(self, offset_ns: int) -> DeepEp:
        """The same, later by so much."""
        if not offset_ns:
            return self
        times = {name: getattr(self, name) for name in ("issue_ts", "hook_ts", "done_ts")}
        return replace(self, **{name: np.where(ts == -1, ts, ts + offset_ns) for name, ts in times.items()})
