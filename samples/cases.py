"""Small captures made by hand for one question each. Every function writes folders that `convert` can read."""

from __future__ import annotations

import json
from pathlib import Path

from samples.capture import Capture
from samples.config import BASE_NS, Config
from samples.exporters import write_capture
from samples.intervals import Pair
from samples.kernels import K
from samples.model import EAGER, Rank, Task
from samples.truth import truth


def from_intervals(folder: Path, ranks: list[list[Pair]], config: Config | None = None) -> list[Capture]:
    """A capture per rank with one kernel per (start, end) pair, in ns after BASE_NS, on stream 43.

    Writes the rank folders and truth.json (clocks as `config` says, one host without it).
    """
    config = config or Config(ranks=len(ranks), trace=False)
    captures = []
    for number, pairs in enumerate(ranks):
        tasks = []
        for task_id, (start, end) in enumerate(sorted(pairs)):
            begin, stop = (config.exported(number, BASE_NS + t) for t in (start, end))
            kernel = K["add"]
            tasks.append(
                Task(begin, stop, kernel.name, 43, task_id, "kernel", kernel.core, task_id, EAGER, kernel, 8, 2)
            )
        window = (tasks[0].start, max(t.end for t in tasks))
        captures.append(Capture(config, Rank(config, number), window, [], [], [], tasks, [], []))
        write_capture(captures[-1], folder / captures[-1].folder)
    (folder / "truth.json").write_text(json.dumps(truth(captures)) + "\n", encoding="utf-8")
    return captures


def alternating_gaps(folder: Path, periods: int = 10) -> list[Capture]:
    """Two ranks over the same window: each has 20 % gaps, and the gaps never coincide (article on NPU gaps, part 5).

    Every 1 ms rank 0 has a gap from 0.2 to 0.4 ms and rank 1 one from 0.6 to 0.8 ms.
    """
    ms = 1_000_000
    ranks = []
    for gap in (200_000, 600_000):
        edges = [0, *(k * ms + gap + d for k in range(periods) for d in (0, 200_000)), periods * ms]
        ranks.append(list(zip(edges[::2], edges[1::2], strict=True)))
    return from_intervals(folder, ranks)
