"""How did the hardware counters of kernels go over time? PMU columns as counter tracks, where a user asks for them.

A kernel has one value per column, for its whole run. The sample stands at its start and holds until the next kernel
that has one: on a device whose streams overlap it is the kernel that started last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from annotators.annotation import Annotation
from schemas.timeline import Column, Kind, Layer, Role, SliceBatch, Timeline

MAX_SHOWN = 20  # columns that a refusal names
ORDER = 100  # below all other derived tracks
_UNIT = re.compile(r"(.*)\(([^()]*)\)")


def annotate(timeline: Timeline, wanted: Sequence[str]) -> Annotation:
    """A counter track per wanted column, such as `aic_mac_ratio` or `aicore_time(us)`: headers as in the input.

    Refuses, with a reason, columns that no recorded task has.
    """
    layer = Layer(timeline.strings, timeline.slice_count)
    out = Annotation(layer)
    for place, key in enumerate(wanted):
        parts = [(b, c) for b in timeline.slices for c in b.columns if c.key == key and c.kind in ("float", "int")]
        samples = [_samples(batch, column) for batch, column in parts]
        ts = np.concatenate([s[0] for s in samples]) if samples else np.empty(0, np.int64)
        if not len(ts):
            out.refused.append(f"PMU counter {key}: no recorded task has such a column; {_known(timeline)}")
            continue
        values = np.concatenate([s[1] for s in samples])
        found = _UNIT.fullmatch(key)
        name, unit = (found[1], found[2]) if found else (key, "")
        track = layer.track(
            name,
            Kind.COUNTER,
            role=Role.DERIVED,
            order=ORDER + place,
            unit=unit,
            description=f"`{key}` of each kernel, at its start; it holds until the next kernel that has one.",
        )
        order = np.argsort(ts, kind="stable")
        layer.add_samples(track, ts[order], values[order])
    return out


def _core_first(key: str) -> tuple[bool, str]:
    return not key.lower().startswith("ai"), key  # aic_*, aiv_*, aicore_*: counters of the cores


def _known(timeline: Timeline) -> str:
    """The columns that could be counters: the ones with real numbers, those of the cores first."""
    keys = sorted({c.key for b in timeline.slices for c in b.columns if c.kind == "float"}, key=_core_first)
    more = f" and {len(keys) - MAX_SHOWN} more" if len(keys) > MAX_SHOWN else ""
    return f"there are {', '.join(keys[:MAX_SHOWN])}{more}" if keys else "there are none"


def _samples(batch: SliceBatch, column: Column) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    have = np.ones(len(batch), np.bool_) if column.valid is None else column.valid
    return batch.ts[have], column.values[have].astype(np.float64)
