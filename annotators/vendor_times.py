"""The vendor's four times per step: Computing, Communication, Communication(Not Overlapped), Free.

Source of the rule: the Overlap Analysis of the exporter, and how torch_npu sums it into step_trace_time.csv. Computing
is the union of compute tasks, Communication the union of collective ops, Not Overlapped is Communication without
Computing, Free is the rest of the range. A trace that was cut has no whole vendor step: the slices are clipped to the
window, and there is one row without a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from annotators import intervals
from annotators.annotation import Annotation
from schemas.timeline import NULL, Bool, Host, Int64, Role, Timeline

WHY_THEY_DIFFER = (
    "Free and gap differ: the vendor's range (of a step: from its first task to the later of its last task's end and the "
    "end of its host span) is not our window, and helper kernels of collectives (AicpuKernel, AivKernel) are no computing "
    "there but recorded tasks here."
)

OVERLAP_ANALYSIS, KERNEL_ROWS = "overlap_analysis", "kernel_rows"

#: Names of the Overlap Analysis threads: the exporters number them differently.
THREADS = {
    "Computing": "computing_ns",
    "Communication": "communication_ns",
    "Communication(Not Overlapped)": "communication_not_overlapped_ns",
    "Free": "free_ns",
}

#: Helpers of a collective that run as compute tasks: the vendor leaves them out of Computing.
COLLECTIVE_HELPERS = ("AicpuKernel", "AivKernel")

_PROFILER_STEP = re.compile(r"ProfilerStep#(\S+)")


@dataclass
class VendorTimes:
    """A row of `npu_vendor_times` without its rank. ns, exact. step: as the vendor numbers it, None without steps."""

    step: str | None
    source: str
    computing_ns: int
    communication_ns: int
    communication_not_overlapped_ns: int
    free_ns: int
    device_id: int = NULL


@dataclass
class _StepRange:
    step: str
    start: int
    end: int


@dataclass
class _TaskSteps:
    """Which step the row of each task names. code: int64[tasks] index into names (by number), NULL where none."""

    names: list[str]
    code: Int64

    def rows(self) -> list[Int64]:
        """The tasks of each step."""
        order = np.argsort(self.code, kind="stable")
        edges = np.searchsorted(self.code[order], np.arange(len(self.names) + 1))
        return [order[a:b] for a, b in pairwise(edges)]


def npu_vendor_times(timeline: Timeline) -> list[VendorTimes]:
    """Rows by device and step: from the Overlap Analysis slices, else from the recorded tasks. Empty without either.

    Where the Timeline was cut, the intervals are clipped to the window and there is one row per device, without a step:
    the steps' ranges are known of whole captures only.
    """
    return list(_from_overlap(timeline)) or list(_from_tasks(timeline))


def annotate(timeline: Timeline) -> Annotation:
    """The fact `vendor_times` (`npu_vendor_times`); no track. Table: `vendor_times`, a list of VendorTimes."""
    rows = npu_vendor_times(timeline)
    if not rows:
        return Annotation(skipped="no recorded task and no Overlap Analysis")
    shown = [{k: v for k, v in asdict(row).items() if v is not None and v != NULL} for row in rows]
    facts = {"vendor_times": shown} | ({"cut": timeline.cut} if timeline.cut else {})
    return Annotation(tables={"vendor_times": rows}, facts=facts)


def _from_overlap(timeline: Timeline) -> Iterator[VendorTimes]:
    """Sums of the slices by the step that holds their start, as the vendor does. Outside of all steps: left out."""
    devices = _overlap_slices(timeline)
    steps = _step_ranges(timeline) if devices and not timeline.cut else []
    for device, (key, ts, dur) in sorted(devices.items()):
        order = np.argsort(ts, kind="stable")
        key, ts, dur = key[order], ts[order], dur[order]
        if timeline.cut and timeline.window is not None:
            low, high = timeline.window
            dur = np.maximum(np.minimum(ts + dur, high) - np.maximum(ts, low), 0)
        # The first step that holds a start takes it: steps may overlap on the device.
        step = np.full(len(ts), NULL if steps else 0, np.int64)
        for i in reversed(range(len(steps))):
            low, high = np.searchsorted(ts, (steps[i].start, steps[i].end))
            step[low:high] = i
        sums = np.zeros((len(steps) or 1, len(THREADS)), np.int64)
        inside = step != NULL
        np.add.at(sums, (step[inside], key[inside]), dur[inside])
        for i in np.unique(step[inside]).tolist():
            named = dict(zip(THREADS.values(), sums[i].tolist(), strict=True))
            yield VendorTimes(steps[i].step if steps else None, OVERLAP_ANALYSIS, **named, device_id=device)


def _overlap_slices(timeline: Timeline) -> dict[int, tuple[Int64, Int64, Int64]]:
    """device -> (index into THREADS, ts, dur) of its Overlap Analysis slices."""
    threads = list(THREADS)
    kind = np.full(len(timeline.tracks), NULL, np.int64)
    device = np.full(len(timeline.tracks), NULL, np.int64)
    for i, track in enumerate(timeline.tracks):
        if track.role is Role.OVERLAP and track.name in THREADS:
            kind[i], device[i] = threads.index(track.name), _device(timeline, i)
    found: list[tuple[Int64, Int64, Int64, Int64]] = []
    for batch in timeline.slices:
        rows = np.flatnonzero(kind[batch.track] != NULL) if len(kind) else np.empty(0, np.int64)
        if len(rows):
            track_of = batch.track[rows]
            found.append((device[track_of], kind[track_of], batch.ts[rows], batch.dur[rows]))
    if not found:
        return {}
    of, key, ts, dur = (np.concatenate(part) for part in zip(*found, strict=True))
    return {d: (key[of == d], ts[of == d], dur[of == d]) for d in np.unique(of).tolist()}


def _device(timeline: Timeline, track: int) -> int:
    while track >= 0:
        if timeline.tracks[track].device != NULL:
            return timeline.tracks[track].device
        track = timeline.tracks[track].parent
    return NULL


def _step_ranges(timeline: Timeline) -> list[_StepRange]:
    """The device range of each ProfilerStep span: from the first task that it launched to the later of its own end
    and its last task's end. The tasks are those whose row names the step, else those whose submission lies in it."""
    host, tasks = timeline.host, timeline.tasks
    names = {i: m[1] for i, text in enumerate(timeline.strings.texts) if (m := _PROFILER_STEP.fullmatch(text))}
    if not names:
        return []
    rows = np.flatnonzero(np.isin(host.name, list(names)) & (host.source == Host.FRAMEWORK))
    rows = rows[np.argsort(host.ts[rows], kind="stable")]
    labels = _task_steps(timeline)
    named = dict(zip(labels.names, labels.rows(), strict=True)) if labels else {}
    submitted = None if labels else _by_submission(timeline)
    out = []
    for row in rows.tolist():
        step, start, end = names[int(host.name[row])], int(host.ts[row]), int(host.end[row])
        mine = named.get(step, np.empty(0, np.int64))
        if submitted is not None:
            low, high = np.searchsorted(submitted[0], (start, end))
            mine = submitted[1][low:high]
        if len(mine):
            start, end = int(tasks.ts[mine].min()), max(end, int(tasks.end[mine].max()))
        out.append(_StepRange(step, start, end))
    return out


def _by_submission(timeline: Timeline) -> tuple[Int64, Int64]:
    """(time, task) of every submission known by connection id, by time."""
    host, tasks = timeline.host, timeline.tasks
    known = np.flatnonzero(host.connection_id != NULL)
    known = known[np.argsort(host.connection_id[known], kind="stable")]
    ids = host.connection_id[known]
    row = np.searchsorted(ids, tasks.connection_id)
    task = np.flatnonzero(row < len(ids))
    task = task[ids[row[task]] == tasks.connection_id[task]]
    time = host.ts[known[row[task]]]
    order = np.argsort(time, kind="stable")
    return time[order], task[order]


def _task_steps(timeline: Timeline) -> _TaskSteps | None:
    """The argument `step_id` of each task, or None where no row has one."""
    tasks = timeline.tasks
    codes: dict[str, int] = {}
    code = np.full(len(tasks), NULL, np.int64)
    for batch in timeline.slices:
        column = next((c for c in batch.columns if c.key == "step_id"), None)
        if column is None:
            continue
        row = tasks.slice - batch.first
        mine = np.flatnonzero((row >= 0) & (row < len(batch)))
        if column.valid is not None:
            mine = mine[column.valid[row[mine]]]
        values, which = np.unique(column.values[row[mine]], return_inverse=True)
        texts = [timeline.strings[v] if column.kind == "text" else str(v) for v in values.tolist()]
        mapped = np.array([codes.setdefault(t, len(codes)) if t else NULL for t in texts], np.int64)
        code[mine] = mapped[which] if texts else NULL
    if not codes:
        return None
    names = sorted(codes, key=lambda step: (len(step), step))
    place = np.array([names.index(step) for step in codes], np.int64)
    return _TaskSteps(names, np.where(code == NULL, NULL, place[code]))


def _from_tasks(timeline: Timeline) -> Iterator[VendorTimes]:
    """The same four from the recorded tasks, by device and step label."""
    tasks, texts = timeline.tasks, timeline.strings
    window = timeline.window if timeline.cut else None
    labels = None if window else _task_steps(timeline)
    groups: list[tuple[str | None, Int64]] = [(None, np.arange(len(tasks)))]
    if labels:
        groups = list(zip(labels.names, labels.rows(), strict=True))
    helpers = [i for i in np.unique(tasks.name).tolist() if texts[i].endswith(COLLECTIVE_HELPERS)]
    computes = ~tasks.communication & ~np.isin(tasks.name, helpers)
    for device in np.unique(tasks.device_id).tolist():
        for step, mine in groups:
            rows = mine[tasks.device_id[mine] == device]
            if not len(rows):
                continue
            ts, end = tasks.ts[rows], tasks.end[rows]
            if window:
                ts, end = np.clip(ts, *window), np.clip(end, *window)
            extent = window or (int(ts.min()), int(end.max()))
            yield _of_tasks(step, device, ts, end, extent, computes[rows], tasks.communication[rows])


def _of_tasks(
    step: str | None, device: int, ts: Int64, end: Int64, extent: tuple[int, int], computes: Bool, communication: Bool
) -> VendorTimes:
    computing = intervals.merged(ts[computes], end[computes])
    communicating = intervals.merged(ts[communication], end[communication])
    both = computes | communication
    busy = intervals.union_length(ts[both], end[both])
    return VendorTimes(
        step=step,
        source=KERNEL_ROWS,
        computing_ns=intervals.length(computing),
        communication_ns=intervals.length(communicating),
        communication_not_overlapped_ns=busy - intervals.length(computing),
        free_ns=extent[1] - extent[0] - busy,
        device_id=device,
    )
