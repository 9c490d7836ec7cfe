"""Nothing is lost in silence: what was read, and what was dropped under which reason, with the first place."""

from __future__ import annotations

from dataclasses import dataclass, field

#: The reasons under which something is dropped (design.md, Bad input). Others are a bug.
REASONS = (
    "not a number",
    "negative duration",
    "start out of range",
    "short row",
    "long row",
    "malformed event",
    "unknown phase",
    "no slice at start",
    "no slice at end",
    "no start",
    "no end",
    "outside window",
    "excluded",
)


@dataclass
class Tally:
    """Counts of one kind (slices, flows, counters) of one rank. `read = written + sum(dropped)` always holds."""

    read: int = 0
    joined: int = 0  # rows that share one slice with an event of the trace: read once, counted here
    dropped: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)  # reason -> place of its first example

    def drop(self, reason: str, count: int = 1, place: str = "") -> None:
        if reason not in REASONS:
            raise ValueError(f"not a reason: {reason}")
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + int(count)
            if place:
                self.first.setdefault(reason, place)

    @property
    def written(self) -> int:
        return self.read - sum(self.dropped.values())

    def as_dict(self) -> dict[str, object]:
        """What `--summary` and the facts hold."""
        out: dict[str, object] = {"read": self.read, "written": self.written, "dropped": dict(self.dropped)}
        if self.first:
            out["first"] = dict(self.first)
        if self.joined:
            out["joined"] = self.joined
        return out


@dataclass
class Tallies:
    slices: Tally = field(default_factory=Tally)
    flows: Tally = field(default_factory=Tally)
    counters: Tally = field(default_factory=Tally)
