"""A checksum of the slices on one track, the same in numpy (the writer) and in SQL (`check`).

Counts and sums of durations do not show the commonest damage: where two slices of a track overlap, the importer's stack
gives each the other's end, and the sum stays. Start times duration does change. Modulo a prime, so that sums over
billions of slices stay inside int64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PRIME = 2**31 - 1

#: An SQL expression over `ts` and `dur`; its sum over a track's slices is the checksum.
SQL = f"((ts % {PRIME}) * ((dur + 1) % {PRIME})) % {PRIME}"


def slice_checksums(ts: npt.NDArray[np.int64], dur: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n], one per slice (instants: dur 0); ns. Remainders have the sign of the dividend, as in SQL."""
    out: npt.NDArray[np.int64] = np.fmod(np.fmod(ts, PRIME) * np.fmod(dur + 1, PRIME), PRIME)
    return out
