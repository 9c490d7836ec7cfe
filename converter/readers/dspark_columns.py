"""DSpark records, as JSON objects, to columns. What is no number where one belongs is absent, and counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas.dspark import RECORD_FLOATS, RECORD_INTS, RankRecords
from schemas.timeline import NULL

_LARGEST = 2**63 - 1


@dataclass
class Unusable:
    """Values that can't be used, by field."""

    no_number: int = 0
    values: dict[str, int] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        out = []
        if self.no_number:
            out.append(f"{self.no_number} records without a usable forward_ct are left out")
        for key, count in self.values.items():
            out.append(f"`{key}` is not a number in {count} records: read as absent there")
        return out


def columns(
    source: str, index: int, records: list[dict[str, Any]], head: dict[str, Any], unusable: Unusable
) -> RankRecords:
    numbered = [r for r in records if integer(r.get("forward_ct")) != NULL]
    unusable.no_number += len(records) - len(numbered)
    records = numbered
    ints = {key: _int_column(records, key, unusable) for key in RECORD_INTS}
    floats = {key: _float_column(records, key, unusable) for key in RECORD_FLOATS}
    # The reduced form of dspark_sps_profiler: `step_time` in seconds is step_cpu_ms.
    reduced = _float_column(records, "step_time", unusable) * 1000.0
    floats["step_cpu_ms"] = np.where(np.isnan(floats["step_cpu_ms"]), reduced, floats["step_cpu_ms"])
    for key in ("num_running_reqs", "batch_size_per_rank"):
        other = ints.get(key)
        other = _int_column(records, key, unusable) if other is None else other
        ints["bs"] = np.where(ints["bs"] == NULL, other, ints["bs"])
    components = head.get("components")
    mode = head.get("mode")
    return RankRecords(
        source,
        index,
        ints,
        floats,
        [m if isinstance(m := r.get("mode"), str) else "" for r in records],
        [_requests(r.get("reqs")) for r in records],
        mode=mode if isinstance(mode, str) else "",
        gamma=integer(head.get("gamma")),
        verify_width=integer(head.get("verify_num_draft_tokens")),
        simulate_acc_len=_number(head.get("simulate_acc_len")),
        components=tuple(str(c) for c in components) if isinstance(components, list) else (),
    )


def _requests(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list):
        return None
    return [request if isinstance(request, dict) else {} for request in value]


def _int_column(records: list[dict[str, Any]], key: str, unusable: Unusable) -> np.ndarray[Any, np.dtype[np.int64]]:
    values = [integer(record.get(key)) for record in records]
    bad = sum(v == NULL and record.get(key) not in (None, -1) for v, record in zip(values, records, strict=True))
    if bad:
        unusable.values[key] = unusable.values.get(key, 0) + bad
    return np.array(values, np.int64)


def _float_column(records: list[dict[str, Any]], key: str, unusable: Unusable) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = [_number(record.get(key)) for record in records]
    bad = sum(v is None and record.get(key) is not None for v, record in zip(values, records, strict=True))
    if bad:
        unusable.values[key] = unusable.values.get(key, 0) + bad
    return np.array([math.nan if v is None else v for v in values], np.float64)


def integer(value: Any) -> int:
    """A counter or size: a whole number from 0 up; else NULL."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
        return value
    return NULL


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None
