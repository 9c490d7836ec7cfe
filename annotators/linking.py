"""Where on the host was each recorded task submitted? (design.md, Linked tasks)

Source of a task = the Enqueue of the task-queue chain (Enqueue -> Dequeue -> launch), else the op of its `async_npu`
flow, else its submission event by connection id or HostToDevice flow. A task of a replay has the replay's call.
"""

from __future__ import annotations

import numpy as np

from schemas.dspark_tables import Links, Replays
from schemas.timeline import NULL, Bool, Host, Int64, IntArray, Role, Timeline, Track

SUBMISSION_FLOWS = ("HostToDevice", "ac2g")  # Ascend; CUDA (kineto)
OP_FLOWS = ("async_npu",)
QUEUE_FLOWS = ("async_task_queue",)


def link(timeline: Timeline, replays: Replays) -> Links:
    """The source of every recorded task, as columns; NULL where nothing in the capture ties the task to the host."""
    tasks, host = timeline.tasks, timeline.host
    row_of = _rows_by_slice(timeline)
    launch = submissions(timeline, tasks.slice, tasks.connection_id)
    launch[tasks.model_id != NULL] = NULL  # the connection id dates from the capture
    op = _looked_up(row_of, _flow_starts(timeline, OP_FLOWS, tasks.slice))
    op[tasks.model_id != NULL] = NULL
    enqueue = _enqueue_of(timeline, launch)
    source = np.where(enqueue != NULL, enqueue, np.where(op != NULL, op, launch))
    known, launched = source != NULL, launch != NULL
    out = Links(
        source_ts=_nulls(len(tasks)),
        source_track=_nulls(len(tasks)),
        source_slice=_nulls(len(tasks)),
        launch_ts=_nulls(len(tasks)),
        launch_end=_nulls(len(tasks)),
        launch_slice=_nulls(len(tasks)),
        replay=replays.task_replay,
    )
    out.source_ts[known] = host.ts[source[known]]
    out.source_slice[known] = host.slice[source[known]]
    on_thread = known & ((enqueue != NULL) | (op != NULL))
    out.source_track[on_thread] = host.track[source[on_thread]]
    out.launch_ts[launched] = host.ts[launch[launched]]
    out.launch_end[launched] = host.end[launch[launched]]
    out.launch_slice[launched] = host.slice[launch[launched]]
    inner = replays.task_replay != NULL
    of = replays.task_replay[inner]
    out.source_ts[inner] = out.launch_ts[inner] = replays.launch_ts[of]
    out.launch_end[inner] = replays.launch_end[of]
    out.source_slice[inner] = out.launch_slice[inner] = replays.launch_slice[of]
    return out


def linked_to(links: Links, start: Int64, end: Int64, track: Int64) -> Int64:
    """int64[tasks]: the interval [start, end] of the host that holds each task's source, NULL where none does.

    Intervals: int64[k], disjoint, sorted by start; track: the host thread of each. A source that is known by its
    submission event only may lie on any thread.
    """
    if not len(start):
        return np.full(len(links.source_ts), NULL, np.int64)
    row = np.searchsorted(start, links.source_ts, side="right") - 1
    at = np.maximum(row, 0)
    same = (links.source_track == NULL) | (links.source_track == track[at])
    inside = (row >= 0) & (links.source_ts != NULL) & (links.source_ts <= end[at]) & same
    return np.where(inside, row, NULL)


def submissions(timeline: Timeline, slices: Int64, connection_id: Int64) -> Int64:
    """int64[n]: the row in `host` of each device slice's submission event, NULL where there is none."""
    host = timeline.host
    out = _looked_up(_rows_by_slice(timeline), _flow_starts(timeline, SUBMISSION_FLOWS, slices))
    calls = np.flatnonzero((host.source == Host.CANN) & (host.connection_id != NULL))
    calls = calls[np.argsort(host.connection_id[calls], kind="stable")]
    ids = host.connection_id[calls]
    if len(calls):
        at = np.minimum(np.searchsorted(ids, connection_id), len(ids) - 1)
        found = (ids[at] == connection_id) & (connection_id != NULL)
        out = np.where(found, calls[at], out)
    return out


def _nulls(count: int) -> Int64:
    return np.full(count, NULL, np.int64)


def _flow_starts(timeline: Timeline, categories: tuple[str, ...], slices: Int64) -> Int64:
    """int64[n]: the slice at the start of the flow into each slice, NULL where there is none."""
    ids = [timeline.strings.find(category) for category in categories]
    flows = [f for f in timeline.flows if f.category in ids]
    start_of = _nulls(timeline.slice_count)
    for flow in reversed(flows):
        start_of[flow.into[::-1]] = flow.out[::-1]  # where several end at one slice, the first counts
    return _looked_up(start_of, slices)


def _rows_by_slice(timeline: Timeline) -> Int64:
    """int64[slices]: the row in `host` of each slice, NULL for those that are none."""
    slices = timeline.host.slice
    out = _nulls(max(timeline.slice_count, int(slices.max(initial=-1)) + 1))
    out[slices] = np.arange(len(timeline.host))
    return out


def _looked_up(table: Int64, keys: Int64) -> Int64:
    """int64[n]: table[key], NULL where the key is NULL."""
    if not len(table):
        return _nulls(len(keys))
    return np.where(keys != NULL, table[keys], NULL)


def _enqueue_of(timeline: Timeline, launch: Int64) -> Int64:
    """int64[tasks]: the Enqueue whose Dequeue holds the launch on its thread. launch: rows in `host` or NULL."""
    host = timeline.host
    out = _nulls(len(launch))
    dequeues = np.flatnonzero(host.source == Host.DEQUEUE)
    launched = np.flatnonzero(launch != NULL)
    if not len(dequeues) or not len(launched):
        return out
    enqueues = _enqueue_by_dequeue(timeline, dequeues)
    thread = thread_ids(timeline)
    rows = launch[launched]
    for track in np.unique(host.track[dequeues]).tolist():
        mine = host.track[dequeues] == track
        own, partner = dequeues[mine], enqueues[mine]
        order = np.argsort(host.ts[own], kind="stable")
        own, partner = own[order], partner[order]
        at = np.searchsorted(host.ts[own], host.ts[rows], side="right") - 1
        inside = (at >= 0) & (host.ts[rows] < host.end[own[np.maximum(at, 0)]])
        inside &= _same_thread(thread, host.track[rows], track)
        out[launched[inside]] = partner[at[inside]]
    return out


def thread_ids(timeline: Timeline) -> Int64:
    """int64[tracks]: the thread id of each track, 0 where unknown."""
    return np.array([_thread_of(track) for track in timeline.tracks], np.int64)


def _thread_of(track: Track) -> int:
    """The thread id of a host track; 0 where unknown. CANN tracks are no thread tracks: their names hold it."""
    digits = track.name.rsplit(" ", 1)[-1]
    return track.tid or (int(digits) if track.role is Role.CANN and digits.isdecimal() and len(digits) < 19 else 0)


def _same_thread(thread: Int64, tracks: IntArray, track: int) -> Bool:
    """bool[n]: the tracks are of the thread of `track`, or it is not known of which thread they are (0)."""
    return np.asarray((thread[tracks] == thread[track]) | (thread[tracks] == 0), np.bool_)


def _enqueue_by_dequeue(timeline: Timeline, dequeues: Int64) -> Int64:
    """int64[n]: the Enqueue of each Dequeue by correlation id, else by flow; NULL where unknown."""
    host = timeline.host
    enqueues = np.flatnonzero((host.source == Host.ENQUEUE) & (host.correlation_id != NULL))
    flows = _flow_starts(timeline, QUEUE_FLOWS, host.slice[dequeues])
    out = _looked_up(_rows_by_slice(timeline), flows)
    if len(enqueues):
        enqueues = enqueues[np.argsort(host.correlation_id[enqueues], kind="stable")]
        ids = host.correlation_id[enqueues]
        wanted = host.correlation_id[dequeues]
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        out = np.where((ids[at] == wanted) & (wanted != NULL), enqueues[at], out)
    return out
