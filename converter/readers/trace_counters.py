"""Counter events (ph C) of a trace JSON to counter tracks.

One track per process, event name, event id, argument key and the arguments whose key ends in `id` (`acc_id`). The
unit comes from the key: `Read(MB/s)` is in MB/s, `MHz` and `KB` are units themselves, `value` says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.readers.exact_time import MAX_NS
from schemas.tally import Tally
from schemas.timeline import CounterBatch, Int64, Kind, Timeline

_UNIT = re.compile(r"(.*?)\s*\(([^()]+)\)\s*")
_BARE_UNITS = frozenset({"MHz", "GHz", "Hz", "KB", "MB", "GB", "B", "W", "V", "mV", "C", "us", "ms", "ns", "%"})
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Series:
    process: int
    name: str
    id: str
    key: str
    which: tuple[tuple[str, str], ...]  # the id arguments


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def label_and_unit(series: Series) -> tuple[str, str]:
    """The name of the track, which holds every word of the event's name, id and key that the unit doesn't, and the unit."""
    base, unit = series.key, ""
    found = _UNIT.fullmatch(series.key)
    if found:
        base, unit = found[1], found[2]
    elif series.key in _BARE_UNITS:
        base, unit = "", series.key
    elif series.key == "value":
        base = ""
    label = series.name
    for part in (base, series.id):
        if part and not _words(part) <= _words(label):
            label = f"{label} {part}"
    for key, value in series.which:
        label = f"{label} {key} {value}"
    return label.strip() or series.key, unit


class _Keys(dict[tuple[Any, ...], int]):
    """Numbers of series by (pid, event name, id, values of the id arguments) of one shape and key."""

    def __init__(self, counters: Counters, key: str, id_keys: tuple[str, ...]) -> None:
        super().__init__()
        self._counters, self._key, self._id_keys = counters, key, id_keys

    def __missing__(self, found: tuple[Any, ...]) -> int:
        pid, name, id_, *values = found
        which = tuple(zip(self._id_keys, map(str, values), strict=True))
        series = Series(self._counters.process(pid), name, id_, self._key, which)
        index = self._counters.index
        number = self[found] = index.setdefault(series, len(index))
        return number


@dataclass
class Counters:
    """The samples of all chunks. process: the number of a process by its pid."""

    tally: Tally
    process: Callable[[Any], int]
    index: dict[Series, int] = field(default_factory=dict)
    samples: dict[bool, list[tuple[npt.NDArray[np.int32], Int64, npt.NDArray[Any]]]] = field(default_factory=dict)
    _keys: dict[tuple[tuple[str, ...], str], _Keys] = field(default_factory=dict)

    def add(
        self,
        pids: Sequence[Any],
        names: Sequence[str],
        ids: Sequence[str],
        ts: Int64,
        args: Sequence[dict[str, Any]],
        place: Callable[[int], str],
    ) -> None:
        """Adds events with good times. args: decoded; place(row): where an event is, for the first dropped one."""
        shapes: dict[tuple[str, ...], list[int]] = {}
        for row, keys in enumerate(map(tuple, args)):
            found = shapes.get(keys)
            if found is None:
                shapes[keys] = [row]
            else:
                found.append(row)
        for keys, rows in shapes.items():
            id_keys = tuple(key for key in keys if key.endswith("id")) if len(keys) > 1 else ()
            columns = dict(zip(keys, zip(*(args[row].values() for row in rows), strict=True), strict=True))
            known = [[of[row] for row in rows] for of in (pids, names, ids)]
            which = [
                [str(v) for v in columns[k]] if set(map(type, columns[k])) & _NO_KEY else columns[k] for k in id_keys
            ]
            if len(id_keys) == len(keys):
                self.tally.read += len(rows)
                self._drop("malformed event", place, rows)
                continue
            at = ts[np.array(rows)]
            for key in keys:
                if key in id_keys:
                    continue
                self.tally.read += len(rows)
                of_key = self._keys.get((keys, key))
                if of_key is None:
                    of_key = self._keys[keys, key] = _Keys(self, key, id_keys)
                series = np.fromiter(map(of_key.__getitem__, zip(*known, *which, strict=True)), np.int32, len(rows))
                self._add_values(series, at, columns[key], rows, place)

    def _add_values(
        self,
        series: npt.NDArray[np.int32],
        ts: Int64,
        values: tuple[Any, ...],
        rows: list[int],
        place: Callable[[int], str],
    ) -> None:
        kinds = set(map(type, values))
        if kinds == {float}:
            self.samples.setdefault(True, []).append((series, ts, np.array(values, np.float64)))
            return
        if kinds == {int} and max(values) < 2**63:
            self.samples.setdefault(False, []).append((series, ts, np.array(values, np.int64)))
            return
        numbers = [_number(value) for value in values]
        bad = [row for row, number in zip(rows, numbers, strict=True) if number is None]
        self._drop("not a number", place, bad)
        for is_float in (False, True):
            at = [
                i for i, n in enumerate(numbers) if n is not None and (isinstance(n, float) or n >= 2**63) == is_float
            ]
            if at:
                picked: npt.NDArray[Any] = np.array([numbers[i] for i in at], np.float64 if is_float else np.int64)
                self.samples.setdefault(is_float, []).append((series[at], ts[at], picked))

    def _drop(self, reason: str, place: Callable[[int], str], rows: list[int]) -> None:
        if rows:
            self.tally.drop(reason, len(rows), "" if reason in self.tally.first else place(rows[0]))

    def finish(self, timeline: Timeline, group: Callable[[int], int], base_ns: int, floor_ns: int, name: str) -> None:
        """Makes the tracks and batches; samples before floor_ns are dropped. name: the file, for the place."""
        tracks = np.zeros(len(self.index), np.int32)
        taken: set[tuple[int, str]] = set()
        again: dict[tuple[int, str], int] = {}  # how many series more share a label
        for series, number in self.index.items():
            parent = group(series.process)
            label, unit = label_and_unit(series)
            if (parent, label) in taken:
                label = f"{label} {series.key}"
            shared = label
            while (parent, label) in taken:
                again[parent, shared] = again.get((parent, shared), 1) + 1
                label = f"{shared} · {again[parent, shared]}"
            taken.add((parent, label))
            tracks[number] = timeline.track(label, Kind.COUNTER, parent=parent, unit=unit)
        for parts in self.samples.values():
            series_of = np.concatenate([part[0] for part in parts])
            ts = np.concatenate([part[1] for part in parts])
            values = np.concatenate([part[2] for part in parts])
            good = (ts >= floor_ns - base_ns) & (ts <= MAX_NS - base_ns)
            if not good.all():
                first = int(ts[~good][0]) + base_ns
                self.tally.drop("start out of range", int((~good).sum()), f"{name}, at {first} ns")
                series_of, ts, values = series_of[good], ts[good], values[good]
            timeline.counters.append(CounterBatch(tracks[series_of], ts + base_ns, values))
        self.samples.clear()


_NO_KEY = frozenset({dict, list, bool, float})  # types that can't tell a series apart as they are


def _number(value: Any) -> int | float | None:
    """A number, also one that is written as text. True, NaN, null, lists: None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        try:
            parsed = float(value)
        except ValueError:
            return None
        return parsed if abs(parsed) < float("inf") else None
    return None
