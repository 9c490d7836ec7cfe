"""DSpark records written by hand, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from schemas.dspark import RECORD_FLOATS, RECORD_INTS, RankRecords


def records(*rows: dict[str, Any], verify_width: int = 8, mode: str = "static") -> RankRecords:
    """RankRecords of the rows; what a row lacks is absent."""
    return RankRecords(
        "by hand",
        0,
        {key: np.array([row.get(key, -1) for row in rows], np.int64) for key in RECORD_INTS},
        {key: np.array([row.get(key, np.nan) for row in rows], np.float64) for key in RECORD_FLOATS},
        [row.get("mode", "") for row in rows],
        [row.get("reqs") for row in rows],
        mode=mode,
        verify_width=verify_width,
    )
