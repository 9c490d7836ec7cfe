"""What one rank's profile holds."""

from __future__ import annotations

from dataclasses import dataclass

from samples.config import Config
from samples.model import Expert, Rank, Replay, Span, Task
from samples.programs import Step


@dataclass(slots=True)
class Capture:
    """What one rank's profile holds, on the rank's exported clock. Tasks are sorted by start.

    steps: every simulated decode, prefill and idle forward; `inside` are those whose decode lies in the window.
    """

    config: Config
    rank: Rank
    window: tuple[int, int]  # exported host times between which the profiler was on
    steps: list[Step]
    inside: list[Step]
    spans: list[Span]
    tasks: list[Task]
    replays: list[Replay]
    experts: list[Expert]

    @property
    def folder(self) -> str:
        return f"rank{self.rank.rank}_ascend_pt"
