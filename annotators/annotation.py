"""What an annotator returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from schemas.timeline import Layer


@dataclass
class Annotation:
    """layer: the tracks it adds, or None; tables: columns that later annotators use, by name;
    skipped: why it did not run (a table it needs is absent), or None; facts: key -> value for the facts slice;
    refused: figures that it refused, each with its reason (exit 3 under --strict); warnings: one line each.
    """

    layer: Layer | None = None
    tables: dict[str, Any] = field(default_factory=dict)
    skipped: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def slice_count(self) -> int:
        return sum(len(batch) for batch in self.layer.slices) if self.layer else 0
