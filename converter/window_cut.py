"""`--window` applied to one rank: steps and records are matched before the cut, and a cut that leaves nothing is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from converter import cut
from converter.sketch import first_time, last_time
from converter.window import span_text
from schemas.errors import InputError
from schemas.timeline import Timeline

if TYPE_CHECKING:
    from annotators.steps import Whole
    from schemas.dspark import RankRecords
    from schemas.roles import Roles


def cut_to_window(
    timeline: Timeline,
    window: tuple[int, int],
    origin_ns: int,
    back: int,
    path: str,
    records: RankRecords | None,
    first_forward_ct: int | None,
    roles: Roles | None,
) -> Whole | None:
    """Cuts the rank; what its steps and records as a whole were matched to, None where nothing is to be matched.

    window, origin_ns: in trace time, the second is what `+` counts from; back: trace time less the time of the rank's
    slices. Raises InputError, with what the rank spans, where nothing lies in the window.
    """
    whole = None
    if roles is not None:
        from converter.steps_window import match_whole

        whole = match_whole(timeline, records, first_forward_ct, roles)
    spans = timeline.window or (first_time(timeline), last_time(timeline))
    cut.to_window(timeline, (window[0] - back, window[1] - back))
    if not timeline.slice_count:
        raise InputError(
            path,
            f"nothing in it lies in the window ({window[0]} to {window[1]} ns)",
            where="--window",
            todo=f"it spans {span_text((spans[0] + back, spans[1] + back), origin_ns)}; give a part of that",
        )
    if not len(timeline.tasks):
        timeline.warn(f"rank {timeline.rank}: no recorded task lies in the window")
    return whole
