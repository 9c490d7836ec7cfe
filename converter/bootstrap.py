"""How far a difference of medians can be trusted: a percentile bootstrap, deterministic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

SEED = 20261129
DRAWS = 2000
LEVEL = 0.95
MIN_STEPS = 8  # fewer draws of a median give the same few values again and again
CHUNK_CELLS = 4_000_000  # draws are made in pieces of 32 MB


@dataclass(frozen=True)
class Interval:
    """The middle LEVEL of the bootstrapped differences."""

    low: float
    high: float


def difference_of_medians(before: Float64, after: Float64, seed: int = SEED, draws: int = DRAWS) -> Interval | None:
    """Interval of median(after) - median(before); None where either has fewer than MIN_STEPS steps.

    before, after: float64[steps, ranks], NaN where a rank has no value. A step is drawn as a whole: its ranks wait for
    each other and are not independent. Steps are drawn as if they were, so the interval is the narrowest that can be
    defended. The same input gives the same interval.
    """
    before, after = (values[~np.isnan(values).all(axis=1)] for values in (before, after))
    if min(len(before), len(after)) < MIN_STEPS:
        return None
    rng = np.random.default_rng(seed)
    differences = _medians(after, rng, draws) - _medians(before, rng, draws)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _medians(values: Float64, rng: np.random.Generator, draws: int) -> Float64:
    """float64[draws]: medians of steps drawn with replacement."""
    out = np.empty(draws)
    size = max(1, CHUNK_CELLS // values.size)
    for start in range(0, draws, size):
        count = min(size, draws - start)
        rows = rng.integers(0, len(values), (count, len(values)))
        out[start : start + count] = np.nanmedian(values[rows].reshape(count, -1), axis=1)
    return out
