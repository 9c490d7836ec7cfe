"""What a conversion says of itself: the `--summary` JSON and the lines on stderr. Contract: design.md, Commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from schemas.errors import printable
from schemas.timeline import Timeline


def told(recorded: int, derived: int, what: str) -> str:
    """`2,782 slices + 657 derived`: what the input recorded, and what was derived from it."""
    text = f"{recorded:,} {what}" + "s" * (recorded != 1)
    return f"{text} + {derived:,} derived" if derived else text


def of_rank(text: str, rank: int, several: bool) -> str:
    """A warning with its rank in front, where there are several and it does not begin with one."""
    return f"rank {rank}: {text}" if several and not text.startswith("rank ") else text


@dataclass
class Summary:
    """One trace. annotators: name -> {"slices": count, "skipped": reason or None}."""

    output: str
    bytes: int = 0
    ranks: list[dict[str, Any]] = field(default_factory=list)
    annotators: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lost: bool = False  # something was dropped or unplaced
    damaged: bool = False  # an input was
    server: dict[str, Any] = field(default_factory=dict)  # server arguments that the records state: facts of the run
    failed_side_inputs: list[str] = field(
        default_factory=list
    )  # --dspark files that failed: exit 1, the trace is there
    damage: list[tuple[str, list[str]]] = field(default_factory=list)  # damaged input, what is wrong with it
    derived_flows: int = 0
    derived_samples: int = 0
    skipped: bool = False  # under --skip-existing: the trace that is there is of these inputs

    @property
    def strict_failure(self) -> bool:
        return self.lost or self.damaged or bool(self.refused)

    def add_rank(self, timeline: Timeline, damage: list[str], several: bool) -> None:
        """damage: what is wrong with the bytes of its input; several: there are more ranks, so warnings name theirs."""
        tally = timeline.tally
        window = timeline.window
        self.ranks.append(
            {
                "rank": timeline.rank,
                "source": timeline.source,
                "slices": tally.slices.as_dict(),
                "flows": tally.flows.as_dict(),
                "counters": tally.counters.as_dict(),
                "window_ns": list(window) if window else None,
                "clock": dict(timeline.clock.__dict__),
            }
        )
        self.warnings += [of_rank(text, timeline.rank, several) for text in timeline.warnings]
        self.damaged |= timeline.damaged
        if damage:
            self.damage.append((timeline.source, [of_rank(text, timeline.rank, several) for text in damage]))
        for what in ("slices", "flows", "counters"):
            if getattr(tally, what).dropped:
                self.lost = True

    def as_dict(self) -> dict[str, Any]:
        skipped = {"skipped": True} if self.skipped else {}
        return skipped | {
            "output": self.output,
            "bytes": self.bytes,
            "ranks": self.ranks,
            "annotators": self.annotators,
            "warnings": self.warnings,
            "damage": [{"input": source, "what": what} for source, what in self.damage],
            "refused": self.refused,
        }

    def damages(self) -> list[str]:
        """A line per damaged input: what is wrong with it first."""
        return [
            f"{printable(source)}: is damaged: {what[0]}" + (f" (and {len(what) - 1} more)" if len(what) > 1 else "")
            for source, what in self.damage
        ]

    def losses(self) -> list[str]:
        """A line per rank, kind and reason: how many, and where the first one is."""
        lines = []
        for rank in self.ranks:
            for what in ("slices", "flows", "counters"):
                tally = rank[what]
                for reason, count in tally["dropped"].items():
                    place = tally.get("first", {}).get(reason)
                    where = f" (first: {printable(place)})" if place else ""
                    kind = what[:-1] if count == 1 else what
                    lines.append(f"rank {rank['rank']}: {count:,} {kind} dropped: {reason}{where}")
        return lines

    def headline(self) -> str:
        """One line: what was written, and whether anything is missing."""

        def total(what: str) -> int:
            return sum(r[what]["written"] for r in self.ranks)

        ranks = "1 rank" if len(self.ranks) == 1 else f"{len(self.ranks)} ranks"
        derived = sum(a["slices"] for a in self.annotators.values())
        return (
            f"{printable(self.output)}: {ranks}, {told(total('slices'), derived, 'slice')}, "
            f"{told(total('flows'), self.derived_flows, 'flow')}, "
            f"{told(total('counters'), self.derived_samples, 'counter sample')}; {self.bytes / 1e6:,.1f} MB"
        )
