"""Which tasks belong to which graph replay, and which host call started it?

A replayed graph's kernels carry a Model ID and the same (stream, task id) each time; `aclmdlRIExecuteAsync` is called
once per replay. `MODEL_EXECUTE` on the launch stream, where it is exported, carries the call's connection id. Inner
kernels carry the connection id of the capture: it says nothing about the replay. (reference: torch_npu, CANN runtime.)
"""

from __future__ import annotations

import numpy as np

from schemas.dspark_tables import Replays
from schemas.roles import Roles
from schemas.timeline import NULL, Host, Int64, Tasks, Timeline

EARLY_NS = 10_000  # a replay that starts this long before the next call was called before the profile began
_OFFSETS = 8  # how many places for the first boundary are tried


def find_replays(timeline: Timeline, roles: Roles) -> Replays:
    """The replays of a rank in order of their first task, each with its call where it is known.

    steps, prepare and exposed gap are not filled here.
    """
    tasks = timeline.tasks
    owner = np.full(len(tasks), NULL, np.int64)
    models: list[int] = []
    for model in np.unique(tasks.model_id[tasks.model_id != NULL]).tolist():
        rows = np.flatnonzero(tasks.model_id == model)
        first = split_replays(_keys(tasks, rows), tasks.ts[rows], tasks.end[rows])
        owner[rows] = np.cumsum(first) - 1 + len(models)
        models += [model] * int(first.sum())
    count = len(models)
    begin, end = np.full(count, NULL, np.int64), np.full(count, NULL, np.int64)
    inside = np.flatnonzero(owner != NULL)
    if count:
        _, at = np.unique(owner[inside], return_index=True)
        begin = tasks.ts[inside][at]  # tasks are sorted by start
        np.maximum.at(end, owner[inside], tasks.end[inside])
    order = np.argsort(begin, kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    owner[inside] = place[owner[inside]]
    null = np.full(count, NULL, np.int64)
    out = Replays(
        model_id=np.array(models, np.int64)[order] if count else null,
        first_task_ts=begin[order],
        last_task_end=end[order],
        launch_ts=null.copy(),
        launch_end=null.copy(),
        launch_track=null.copy(),
        launch_slice=null.copy(),
        task_replay=owner,
        step=null,
        prepare_ns=null,
        exposed_gap_ns=null,
    )
    _pair_with_calls(timeline, roles, out)
    return out


def _keys(tasks: Tasks, rows: Int64) -> Int64:
    """int64[n]: a number per (device, stream, task id), below 0 and different for each task without these ids."""
    device, stream, task = tasks.device_id[rows], tasks.stream_id[rows], tasks.task_id[rows]
    places, place = np.unique(device.astype(np.int64) << 32 | stream, return_inverse=True)
    tasks_at_most = int(task.max()) + 1
    unknown = -1 - np.arange(len(rows))
    if tasks_at_most > 2**62 // len(places):  # no such task id exists: ids are counted up
        return unknown
    return np.where((task != NULL) & (stream != NULL), place * tasks_at_most + task, unknown)


def split_replays(key: Int64, start: Int64, end: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """bool[n]: the first task of each replay of one graph, tasks in order of start. A key that repeats starts the next.

    The first replay may lack its first tasks (the profile began inside it): then the boundaries lie where the graph
    pauses, not where the recording began. Of the places for the first boundary that are tried, the one is taken whose
    boundaries have the longest pauses before them.
    """
    n = len(key)
    first = np.zeros(n, np.bool_)
    if not n:
        return first
    previous = _previous_equal(key)
    reach = np.maximum.accumulate(end)
    pause = np.append(0, start[1:] - reach[:-1])  # against everything before in this graph
    whole = _boundaries(previous, 0)
    second = whole[1] if len(whole) > 1 else n
    inside = np.arange(1, second)
    tried = inside[np.argsort(-pause[inside], kind="stable")[:_OFFSETS]].tolist() if len(whole) > 1 else []
    best, best_pause = whole, _mean_pause(pause, whole)
    for offset in tried:
        other = _boundaries(previous, offset)
        found = _mean_pause(pause, other)
        # Twice as long on the mean: pauses inside a graph recur too, but only between replays does the rest of a step run.
        if found > 2 * max(best_pause, 1):
            best, best_pause = [0, *other], found
    first[best] = True
    return first


def _previous_equal(key: Int64) -> Int64:
    """int64[n]: the row before with the same key, NULL where there is none."""
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    out = np.full(len(key), NULL, np.int64)
    out[order[1:][same]] = order[:-1][same]
    return out


def _boundaries(previous: Int64, start: int) -> list[int]:
    """Rows at which a key repeats since the last boundary, from `start` on."""
    out = [start]
    n = len(previous)
    while True:
        at, size = out[-1] + 1, 256
        found = NULL
        while at < n:
            repeats = previous[at : at + size] >= out[-1]
            if repeats.any():
                found = at + int(np.argmax(repeats))
                break
            at, size = at + size, size * 2
        if found == NULL:
            return out
        out.append(found)


def _mean_pause(pause: Int64, boundaries: list[int]) -> float:
    inner = [b for b in boundaries if b > 0]
    return float(np.mean(pause[inner])) if inner else 0.0


def _pair_with_calls(timeline: Timeline, roles: Roles, replays: Replays) -> None:
    host = timeline.host
    calls = np.flatnonzero((host.source == Host.CANN) & roles.mask("replay_call", host.name, timeline.strings))
    calls = calls[np.argsort(host.ts[calls], kind="stable")]
    if not len(replays):
        replays.uncalled = len(calls)
        return
    of_replay = _by_connection(timeline, calls, replays)
    if of_replay is None:
        of_replay = _in_order(host.ts[calls], replays.first_task_ts)
    known = of_replay != NULL
    row = calls[of_replay[known]]
    replays.launch_ts[known] = host.ts[row]
    replays.launch_end[known] = host.end[row]
    replays.launch_track[known] = host.track[row]
    replays.launch_slice[known] = host.slice[row]
    replays.unlaunched = int((~known).sum())
    replays.uncalled = len(calls) - int(known.sum())


def _by_connection(timeline: Timeline, calls: Int64, replays: Replays) -> Int64 | None:
    """int64[replays]: position in `calls` by the connection id of MODEL_EXECUTE; None where it is not exported.

    A replay belongs to the last MODEL_EXECUTE (of its model, where the id is given) that starts no later than it does.
    """
    device, host, strings = timeline.device, timeline.host, timeline.strings
    names = {strings.find("MODEL_EXECUTE"), strings.find("MODEL EXECUTE")} - {NULL}
    wanted = np.array(sorted(names), np.int64)
    marks = np.flatnonzero(np.isin(device.name, wanted) | np.isin(device.task_type, wanted))
    by_id = {c: i for i, c in enumerate(host.connection_id[calls].tolist()) if c != NULL}
    marks = marks[np.isin(device.connection_id[marks], np.fromiter(by_id, np.int64, len(by_id)))]
    if not len(marks):
        return None
    marks = marks[np.argsort(device.ts[marks], kind="stable")]
    out = np.full(len(replays), NULL, np.int64)
    has_model = bool((device.model_id[marks] != NULL).all())
    for model in np.unique(replays.model_id) if has_model else [NULL]:
        mine = np.flatnonzero(replays.model_id == model) if has_model else np.arange(len(replays))
        own = marks[device.model_id[marks] == model] if has_model else marks
        at = np.searchsorted(device.ts[own], replays.first_task_ts[mine], side="right") - 1
        fresh = np.append(True, at[1:] != at[:-1])  # one replay per MODEL_EXECUTE
        good = (at >= 0) & fresh
        out[mine[good]] = [by_id[c] for c in device.connection_id[own[at[good]]].tolist()]
    return out


def _in_order(call_ts: Int64, first_task_ts: Int64) -> Int64:
    """int64[replays]: the calls in order, without the leading replays that were called before the profile began."""
    out = np.full(len(first_task_ts), NULL, np.int64)
    if not len(call_ts):
        return out
    skipped = (
        int(np.argmax(first_task_ts >= call_ts[0] - EARLY_NS))
        if (first_task_ts >= call_ts[0] - EARLY_NS).any()
        else len(out)
    )
    count = min(len(call_ts), len(out) - skipped)
    out[skipped : skipped + count] = np.arange(count)
    return out
