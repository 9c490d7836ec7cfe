"""One rank on its way through a conversion."""

from __future__ import annotations

from dataclasses import dataclass, field

from annotators.annotation import Annotation
from converter.aside import Aside
from converter.capture import Capture
from converter.readers.side_files import SideFiles
from schemas.timeline import Timeline


@dataclass
class Rank:
    """annotations: what the annotators made of it so far, by name, in the order in which they ran; aside: where the
    columns of a very large rank lie meanwhile."""

    timeline: Timeline
    capture: Capture
    side: SideFiles
    annotations: dict[str, Annotation] = field(default_factory=dict)
    aside: Aside | None = None
