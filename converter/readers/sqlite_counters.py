"""Counters in an SQLite export: one track per table, device, instance and value column, values as written.

Times are ns. Units are those of the format: bytes and bytes per second where the text export shows KB, MB or MB/s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from converter.device_tracks import process_track
from converter.readers.sqlite_tables import NOT_A_NUMBER, Database
from converter.readers.sqlite_texts import Texts
from schemas.timeline import CounterBatch, Kind, Timeline


@dataclass(frozen=True)
class CounterTable:
    """group: the track above; label: the name, with {instance} and {kind}; values: (column, name, unit)."""

    table: str
    group: str
    label: str
    values: tuple[tuple[str, str, str], ...]
    instance: str = ""  # column: a number that tells instances apart
    kind: str = ""  # column: a text id, or an id of ENUM_MODULE
    time: str = "timestampNs"


TABLES = (
    CounterTable("AICORE_FREQ", "AI Core Freq", "AI Core Freq", (("freq", "", "MHz"),)),
    CounterTable("HBM", "HBM", "HBM {instance}/{kind}", (("bandwidth", "", "B/s"),), "hbmId", "type"),
    CounterTable(
        "LLC", "LLC", "LLC {instance} {kind}",
        (("throughput", "/Throughput", "B/s"), ("hitRate", "/Hit Rate", "%")), "llcId", "mode",
    ),
    CounterTable("DDR", "DDR", "DDR", (("read", "/Read", "B/s"), ("write", "/Write", "B/s"))),
    CounterTable("NPU_MEM", "NPU MEM", "{kind}", (("ddr", "/DDR", "B"), ("hbm", "/HBM", "B")), kind="type"),
    CounterTable(
        "ACC_PMU", "Acc PMU", "{column} acc_id {instance}",
        (
            ("readBwLevel", "read_bandwidth", ""), ("writeBwLevel", "write_bandwidth", ""),
            ("readOstLevel", "read_ost", ""), ("writeOstLevel", "write_ost", ""),
        ),
        "accId",
    ),
    CounterTable(
        "SOC_BANDWIDTH_LEVEL", "Stars Soc Info", "{column}",
        (("l2BufferBwLevel", "L2 Buffer Bw Level", ""), ("mataBwLevel", "Mata Bw Level", "")),
    ),
    CounterTable(
        "MEMORY_RECORD", "Memory", "{kind}",
        (
            ("totalAllocated", " Total Allocated", "B"), ("totalReserved", " Total Reserved", "B"),
            ("totalActive", " Total Active", "B"),
        ),
        kind="component", time="timestamp",
    ),
    CounterTable(
        "NPU_MODULE_MEM", "NPU Module MEM", "{kind}", (("totalReserved", " Total Reserved", "B"),), kind="moduleId"
    ),
)  # fmt: skip


def read_counters(db: Database, texts: Texts, timeline: Timeline, floor_ns: int) -> None:
    """Adds the counters of every known table to the timeline."""
    for spec in TABLES:
        if db.has(spec.table, spec.time):
            _read(spec, db, texts, timeline, floor_ns)


def _read(spec: CounterTable, db: Database, texts: Texts, timeline: Timeline, floor_ns: int) -> None:
    present = [v for v in spec.values if db.has(spec.table, v[0])]
    integers = {"ts": spec.time, "device": "deviceId", "instance": spec.instance or None, "kind": spec.kind or None}
    rows = db.read(spec.table, integers, {v[0]: v[0] for v in present}, times=("ts",))
    if not len(rows["ts"]) or not present:
        return
    tally = timeline.tally.counters
    group = timeline.track(spec.group, Kind.GROUP, parent=process_track(timeline))
    several = len(np.unique(rows["device"])) > 1
    keys = np.stack([rows[k].astype(np.int64) for k in ("device", "instance", "kind")], axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    modules = texts.enum_names("ENUM_MODULE") if spec.kind == "moduleId" else {}
    for column, name, unit in present:
        tracks = np.empty(len(distinct), np.int32)
        for i, (device, instance, kind) in enumerate(distinct.tolist()):
            text = modules.get(kind, str(kind)) if spec.kind == "moduleId" else texts.text(kind) or str(kind)
            label = spec.label.format(instance=instance, kind=_titled(text), column=name)
            label = label if "{column}" in spec.label else label + name
            tracks[i] = timeline.track(
                f"NPU {device} {label}" if several else label, Kind.COUNTER, parent=group, unit=unit
            )
        values = rows[column]
        bad = (rows["ts"] == NOT_A_NUMBER) | np.isnan(values)
        early = ~bad & (rows["ts"] < floor_ns)
        tally.read += len(values)
        for reason, which in (("not a number", bad), ("start out of range", early)):
            tally.drop(reason, int(which.sum()), f"{spec.table}, row {int(np.argmax(which)) + 1}")
        good = ~(bad | early)
        if good.any():
            timeline.counters.append(CounterBatch(tracks[inverse[good]], rows["ts"][good], values[good]))


def _titled(text: str) -> str:
    """`read` is shown as `Read`, `app` as `APP`: the names that the text export has."""
    return {"read": "Read", "write": "Write", "app": "APP", "device": "Device"}.get(text, text)
