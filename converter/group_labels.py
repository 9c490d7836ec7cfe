"""Communication groups by what they are for: profiler_metadata.json names each group and its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from schemas.timeline import Role, Timeline

if TYPE_CHECKING:
    from converter.readers.side_files import Group

_NAME = re.compile(r"Group (.+) Communication")
MAX_RANKS_SHOWN = 32


def label_groups(timeline: Timeline, groups: Mapping[str, Group]) -> None:
    """Describes the track of each known group, e.g. `dp_cp: ranks 0, 1`. Names of tracks stay as in the input."""
    for track in timeline.tracks:
        match = _NAME.fullmatch(track.name) if track.role is Role.COMMUNICATION else None
        group = groups.get(match[1]) if match else None
        if group is None:
            continue
        shown = ", ".join(map(str, group.ranks[:MAX_RANKS_SHOWN]))
        more = f", … ({len(group.ranks)} ranks)" if len(group.ranks) > MAX_RANKS_SHOWN else ""
        track.description = f"{group.label}: ranks {shown}{more}" if shown else group.label
