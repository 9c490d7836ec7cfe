"""`--steps A:B`: from forward_ct to time. Needs the steps of the rank; the rest of the conversion sees only the cut.

Under `--window` too, steps and records are matched before the cut: of two or three steps many places fit."""

from __future__ import annotations

import numpy as np

from annotators import steps
from annotators.grouping import extents
from annotators.linking import link, linked_to
from annotators.replay_calls import find_replays
from annotators.steps import Whole
from converter import cut
from schemas.dspark import RankRecords
from schemas.errors import InputError
from schemas.roles import Roles
from schemas.timeline import NULL, Timeline


def match_whole(timeline: Timeline, records: RankRecords | None, first: int | None, roles: Roles) -> Whole | None:
    """Steps and records of the rank as a whole, for after a cut; None where there is nothing to match or number."""
    if records is None and first is None:
        return None
    return steps.whole(timeline, records, first, link(timeline, find_replays(timeline, roles)))


def cut_to_steps(
    timeline: Timeline,
    wanted: tuple[int, int],
    records: RankRecords | None,
    first: int | None,
    roles: Roles,
    before_cut: Whole | None = None,
) -> Whole | None:
    """Cuts the rank to its steps with forward_ct A to B; returns what the whole of it was matched to.

    On the host they run from the first step's start to the last one's end; on the device, which lags behind, to the end
    of the last task that these steps launched. before_cut: where --window cut it already. Raises InputError where no
    step has such a forward_ct.
    """
    links = link(timeline, find_replays(timeline, roles))
    before_cut = before_cut or steps.whole(timeline, records, first, links)
    found = steps.annotate(timeline, records, first, links=links, before_cut=before_cut)
    table = found.tables.get("steps")
    low, high = wanted
    if table is None:
        raise InputError(
            timeline.source,
            f"--steps {low}:{high}: rank {timeline.rank} has no steps ({found.skipped})",
            todo="use --window START:END, for example +10ms:+20ms",
        )
    if (table.forward_ct == NULL).all():
        why = found.refused[0] if found.refused else "its steps have no forward_ct"
        raise InputError(
            timeline.source, f"--steps {low}:{high}: {why}", todo="give --dspark or --first-forward-ct, or use --window"
        )
    rows = np.flatnonzero((table.forward_ct >= low) & (table.forward_ct <= high))
    if not len(rows):
        known = table.forward_ct[table.forward_ct != NULL]
        raise InputError(
            timeline.source,
            f"--steps {low}:{high}: rank {timeline.rank} has none of them",
            todo=f"it has {known.min()} to {known.max()}",
        )
    start, end = int(table.ts[rows[0]]), int(table.end[rows].max())
    owner = linked_to(links, table.ts, table.end, table.track)
    mine = np.flatnonzero(np.isin(owner, rows))
    _, last = extents(np.zeros(len(mine), np.int64), timeline.tasks.ts[mine], timeline.tasks.end[mine], 1)
    cut.to_window(timeline, (start, max(end, int(last[0]))), host_end=end)
    return before_cut
