"""What did the calling thread do while it prepared a replay? The innermost named host event at each moment; `unnamed`
where there is none. Being there at that time is all that is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from annotators.host_cover import innermost_container
from schemas.dspark_tables import Replays
from schemas.roles import Roles
from schemas.timeline import NULL, Host, HostSlices, Int64, Timeline

UNNAMED = "unnamed"

#: Roles that sort host events by article 000's list, the more telling first, with what the argument `kind` says.
_KINDS = {
    "prepare_update": "graph update",
    "prepare_sync": "sync point",
    "prepare_metadata": "metadata",
    "prepare_bucket": "bucket selection",
    "prepare_batch": "batch preparation",
    "prepare_buffers": "buffer refresh",
    "prepare_launch": "launch",
}


@dataclass(slots=True)
class Piece:
    """A stretch of the preparation of a replay. kind: "" where the role table does not know the name."""

    replay: int
    ts: int
    end: int
    name: str
    kind: str


def host_pieces(timeline: Timeline, replays: Replays, begin: Int64, thread: Int64, roles: Roles) -> list[Piece]:
    """The pieces of each preparation [begin, call), in order; they cover it without overlap.

    begin: int64[replays], NULL where unknown; thread: int64[tracks], the thread id of each host track.
    """
    host, strings = timeline.host, timeline.strings
    if not len(host):
        return []
    left_out = roles.mask("wrapper", host.name, strings) | (host.source == Host.PYTHON)
    out: list[Piece] = []
    known = np.flatnonzero(begin != NULL)
    for tid in np.unique(thread[replays.launch_track[known]]).tolist():
        # Where thread ids are unknown, only the track of the call itself is sure to be its thread.
        mine = thread[host.track] == tid if tid else np.isin(host.track, np.unique(replays.launch_track[known]))
        stack = _Stack(host, np.flatnonzero(mine & ~left_out))
        for replay in known[thread[replays.launch_track[known]] == tid].tolist():
            start, call = int(begin[replay]), int(replays.launch_ts[replay])
            for ts, end, row in stack.innermost(start, call):
                name = UNNAMED if row == NULL else strings[int(host.name[row])]
                out.append(Piece(replay, ts, end, name, "" if row == NULL else _kind(roles, name)))
    return sorted(out, key=lambda p: (p.replay, p.ts))


def _kind(roles: Roles, name: str) -> str:
    return next((kind for role, kind in _KINDS.items() if roles.fits(role, name)), "")


class _Stack:
    """The slices of one thread, as they nest."""

    def __init__(self, host: HostSlices, rows: Int64) -> None:
        rows = rows[np.lexsort((host.slice[rows], -host.dur[rows], host.ts[rows]))]
        self.rows, self.ts, self.end = rows, host.ts[rows], host.end[rows]
        self.parent = innermost_container(self.end, np.zeros(len(rows), np.int64))

    def innermost(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(from, to, row of host or NULL) pieces that cover [start, end) in order."""
        out: list[tuple[int, int, int]] = []
        first = int(np.searchsorted(self.ts, start, side="right"))
        last = int(np.searchsorted(self.ts, end, side="left"))
        edges = {start, end, *self.ts[first:last].tolist(), *self.end[first:last].tolist()}
        running = first - 1
        while running != NULL:  # what began before and is still there
            edges.add(int(self.end[running]))
            running = int(self.parent[running])
        at = sorted(edge for edge in edges if start <= edge <= end)
        for low, high in pairwise(at):
            row = self._at(low)
            if out and out[-1][2] == row:
                out[-1] = (out[-1][0], high, row)
            else:
                out.append((low, high, row))
        return out

    def _at(self, time: int) -> int:
        """The innermost slice that covers a moment, as a row of host; NULL where none does."""
        row = int(np.searchsorted(self.ts, time, side="right")) - 1
        while row != NULL and self.end[row] <= time:
            row = int(self.parent[row])
        return int(self.rows[row]) if row != NULL else NULL
