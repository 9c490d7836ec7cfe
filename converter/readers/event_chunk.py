"""A trace event as decoded, and a run of them with their places in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

_ABSENT = Raw(b"")


class Event(msgspec.Struct, gc=False):
    """One event. ts, dur, id are JSON text as written (b"" where absent): a float would not be exact."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: Raw = _ABSENT
    dur: Raw = _ABSENT
    id: Raw = _ABSENT
    args: Raw = Raw(b"{}")


@dataclass
class Chunk:
    """Events in file order, and where they were."""

    events: list[Event]
    region: memoryview | None = None  # the JSON list they were decoded from
    start: int = 0  # the byte of the file that `region` begins at
    offsets: list[int] = field(default_factory=list)  # or: the byte of each event

    def append(self, event: Event, byte: int) -> None:
        self.events.append(event)
        self.offsets.append(byte)

    def byte(self, index: int) -> int:
        """The byte of the (decompressed) file at which event `index` starts. Slow: for the first of its kind."""
        if self.region is None:
            return self.offsets[index]
        raws = msgspec.json.decode(self.region, type=list[Raw])
        return self.start + address(raws[index]) - address(self.region)


def address(buffer: Any) -> int:
    """Where a buffer lies in memory: a Raw lies inside what it was decoded from."""
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])
