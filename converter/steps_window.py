"""`--steps A:B`: from forward_ct to time. Needs the steps of the rank; the rest of the conversion sees only the cut."""

from __future__ import annotations

import numpy as np

from annotators import steps
from annotators.grouping import extents
from annotators.linking import link, linked_to
from annotators.replay_calls import find_replays
from converter import cut
from schemas.dspark import RankRecords
from schemas.errors import InputError
from schemas.roles import Roles
from schemas.timeline import NULL, Timeline


def cut_to_steps(
    timeline: Timeline, wanted: tuple[int, int], records: RankRecords | None, first: int | None, roles: Roles
) -> int:
    """Cuts the rank to its steps with forward_ct A to B; the forward_ct of the first one that stays.

    On the host they run from the first step's start to the last one's end; on the device, which lags behind, to the end
    of the last task that these steps launched. Raises InputError where no step has such a forward_ct.
    """
    links = link(timeline, find_replays(timeline, roles))
    found = steps.annotate(timeline, records, first, links=links)
    table = found.tables.get("steps")
    low, high = wanted
    if table is None or (table.forward_ct == NULL).all():
        why = found.skipped or (found.refused[0] if found.refused else "its steps have no forward_ct")
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
    return int(table.forward_ct[rows[0]])
