"""PMU columns as counters, on three kernels."""

from __future__ import annotations

import numpy as np

from annotators import pmu
from schemas.timeline import Column, SliceBatch, Timeline


def test_a_sample_at_the_start_of_each_kernel_that_has_a_value() -> None:
    timeline = Timeline(0, "x")
    stream = timeline.track("Stream 1")
    ratio = Column("aic_mac_ratio", "float", np.array([0.5, 0.0, 0.25]), np.array([True, False, True]))
    busy = Column("aicore_time(us)", "float", np.array([3.0, 2.0, 1.0]))
    timeline.add(
        SliceBatch(
            np.full(3, stream, np.int32), np.array([30, 20, 10]), np.full(3, 5), np.zeros(3, np.int32), 0, [ratio, busy]
        )
    )
    made = pmu.annotate(timeline, ["aic_mac_ratio", "aicore_time(us)", "nothing"])
    assert made.layer is not None
    assert [(t.name, t.unit) for t in made.layer.tracks] == [("aic_mac_ratio", ""), ("aicore_time", "us")]
    assert [(c.ts.tolist(), c.values.tolist()) for c in made.layer.counters] == [
        ([10, 30], [0.25, 0.5]),
        ([10, 20, 30], [1.0, 2.0, 3.0]),
    ]
    assert made.refused == [
        "PMU counter nothing: no recorded task has such a column; there are aic_mac_ratio, aicore_time(us)"
    ]
