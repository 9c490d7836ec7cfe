"""Does a task start before the call that launched it? Then host and device are not quite on one clock.

The exporters put both on one clock, to a few microseconds; this counts how often the order is impossible, and by how
much. Nothing is moved (design.md, Time).
"""

from __future__ import annotations

import numpy as np

from schemas.timeline import NULL, Host, Timeline


def launch_check(timeline: Timeline) -> tuple[int, int, int]:
    """(launch_pairs, causality_violations, worst_violation_ns) of a rank.

    A pair is a recorded task and the CANN call with its connection id; of nested calls with one id the outermost,
    which starts first. Tasks of a graph are left out: their connection id dates from the capture, not from the replay.
    worst_violation_ns is how long before its call the worst task starts, 0 without a violation.
    """
    host, tasks = timeline.host, timeline.tasks
    calls = np.flatnonzero((host.source == Host.CANN) & (host.connection_id != NULL))
    rows = np.flatnonzero((tasks.connection_id != NULL) & (tasks.model_id == NULL))
    if not len(calls) or not len(rows):
        return 0, 0, 0
    order = np.lexsort((host.ts[calls], host.connection_id[calls]))
    ids, first = np.unique(host.connection_id[calls][order], return_index=True)
    start = host.ts[calls][order][first]
    at = np.minimum(np.searchsorted(ids, tasks.connection_id[rows]), len(ids) - 1)
    paired = ids[at] == tasks.connection_id[rows]
    early = start[at[paired]] - tasks.ts[rows[paired]]
    violations = int(np.count_nonzero(early > 0))
    return int(np.count_nonzero(paired)), violations, int(early.max()) if violations else 0
