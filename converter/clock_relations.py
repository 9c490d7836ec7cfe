"""What the side files say about clocks, as relations to REALTIME that the writer stores as ClockSnapshots.

A relation is a dict: `clock` ("monotonic", "monotonic_raw" or "syscnt"), `readings` (list of (value of the clock,
REALTIME ns since the epoch), both int), `period_ns` (ns per tick of `value`; None where it counts ns), `source` (the
file). REALTIME is the clock of the exported files: the wall clock, read once at the start or end of the profile.
A counter whose period is no whole number of ns (49.999001 MHz) gives a fact and no relation.

Formulas: ascend_formats.md 1.4 (profiler_info) and 4.1 (start_info, host_start.log, dev_start.log).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

Relation = dict[str, Any]

INT64_MAX = 2**63 - 1
_NUMBER = re.compile(r"[0-9]{1,19}(\.[0-9]{1,12})?")


def decimal_of(value: object) -> Decimal | None:
    """A number >= 0 written as JSON number or text, exactly; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | str):
        text = str(value).strip()
        if _NUMBER.fullmatch(text):
            return Decimal(text)
    return None


def integer_of(value: object) -> int | None:
    """A whole number from 0 to 2^63-1 written as JSON number or text; None for anything else, "" included."""
    number = decimal_of(value)
    if number is None or number != int(number) or number > INT64_MAX:
        return None
    return int(number)


def _section(info: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = info.get(key)
    return section if isinstance(section, dict) else {}


def whole_period_ns(frequency_mhz: object) -> int | None:
    """ns per tick, or None where the frequency is unknown or the period is no whole number."""
    frequency = decimal_of(frequency_mhz)
    if not frequency or 1000 % frequency:
        return None
    return int(1000 / frequency)


def host_relations_of_profiler_info(info: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """(REALTIME - MONOTONIC, counter - MONOTONIC) in ns, each None where it isn't stated.

    The first is collectionTimeEnd - MonotonicTimeEnd; the second is start_cnt * 1000 / freq - start_monotonic, which
    tells the boot of the host and doesn't depend on the wall clock. Together they tell one host from another.
    """
    end, start = _section(info, "end_info"), _section(info, "start_info")
    realtime, monotonic = integer_of(end.get("collectionTimeEnd")), integer_of(end.get("MonotonicTimeEnd"))
    epoch = realtime - monotonic if realtime and monotonic else None
    count, begin = integer_of(start.get("start_cnt")), integer_of(start.get("start_monotonic"))
    frequency = decimal_of(start.get("freq"))
    counter = None
    if count and begin and frequency:
        counter = int((count * Decimal(1000) / frequency).to_integral_value(ROUND_HALF_EVEN)) - begin
    return epoch, counter


def from_profiler_info(info: Mapping[str, Any], source: str) -> list[Relation]:
    """MONOTONIC at the end of the collection, and the host counter at its start (torch_npu's own rule for events)."""
    epoch, _ = host_relations_of_profiler_info(info)
    if epoch is None:
        return []
    monotonic = integer_of(_section(info, "end_info").get("MonotonicTimeEnd"))
    relations: list[Relation] = []
    if monotonic is not None:
        relations.append(_relation("monotonic", monotonic, monotonic + epoch, None, source))
    start = _section(info, "start_info")
    count, begin = integer_of(start.get("start_cnt")), integer_of(start.get("start_monotonic"))
    period = whole_period_ns(start.get("freq"))
    if count and begin and period and start.get("syscnt_enable") is not False:
        relations.append(_relation("syscnt", count, begin + epoch, period, source))
    return relations


def _relation(clock: str, value: int, realtime: int, period_ns: int | None, source: str) -> Relation:
    return {"clock": clock, "readings": [(value, realtime)], "period_ns": period_ns, "source": source}


def within_int64(relation: Relation) -> bool:
    """Whether all readings are times from 0 to 2^63-1 ns."""
    period = relation["period_ns"] or 1
    return all(0 <= value * period <= INT64_MAX and 0 <= real <= INT64_MAX for value, real in relation["readings"])


def epoch_of_start_info(start_info: Mapping[str, Any]) -> tuple[int, int] | None:
    """(MONOTONIC_RAW ns, REALTIME ns) at the start of an msprof collection, or None.

    clockMonotonicRaw is in ns and collectionTimeBegin in us; both are texts.
    """
    raw, begin_us = integer_of(start_info.get("clockMonotonicRaw")), decimal_of(start_info.get("collectionTimeBegin"))
    if not raw or not begin_us:
        return None
    realtime = int((begin_us * 1000).to_integral_value(ROUND_HALF_EVEN))
    return (raw, realtime) if realtime <= INT64_MAX else None


def from_msprof(
    start_info: Mapping[str, Any], host_start: Mapping[str, str], cpu_frequency_mhz: object, source: str
) -> list[Relation]:
    """MONOTONIC_RAW by start_info, and the host counter by host_start.log, of one host or device folder.

    start_info: the parsed file; host_start: the keys of host_start.log; cpu_frequency_mhz: CPU[0].Frequency of
    info.json ("" means that times are monotonic already, so there is no counter).
    """
    epoch = epoch_of_start_info(start_info)
    if epoch is None:
        return []
    raw, realtime = epoch
    relations = [_relation("monotonic_raw", raw, realtime, None, source)]
    period = whole_period_ns(cpu_frequency_mhz)
    count, count_raw = integer_of(host_start.get("cntvct")), integer_of(host_start.get("clock_monotonic_raw"))
    if period and count and count_raw:
        relations.append(_relation("syscnt", count, count_raw + realtime - raw, period, source))
    return relations
