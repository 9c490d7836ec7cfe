"""Side files of a capture: what they say about how it was recorded, about clocks and about its group of ranks.

* profiler_info[_{rank}].json, profiler_metadata.json (torch_npu, MindSpore): ascend_formats.md 1.4
* host/ and device_{id}/ of PROF_*: start_info, end_info, info.json, host_start.log, dev_start.log: 4.1
* step_trace_time.csv: 1.3 (the vendor's own sums per step, to compare with)

Ignored on purpose: sample.json (the profiler's options again), communication*.json (see hccl_detail.py),
operator_details.csv (no times), the sqlite and data folders of PROF_* (raw).
A damaged side file is a warning that names the file, never a failure: the times of the tasks don't depend on it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import PurePath
from typing import Any

import orjson

from annotators.align import HostFacts
from converter.capture import Capture
from converter.clock_relations import (
    Relation,
    decimal_of,
    from_msprof,
    from_profiler_info,
    host_relations_of_profiler_info,
    within_int64,
)
from converter.readers.nesting import TOO_DEEP, is_too_deep
from schemas.errors import printable

MAX_BYTES = 64 << 20  # a side file has a few KiB: what is larger is none
MAX_RANKS = 2**20


@dataclass
class StepTime:
    """One row of step_trace_time.csv, in ns (rounded half to even: the file has float noise).

    step, device: as written, "" where empty or absent; times None where the cell is empty or no number.
    """

    device: str
    step: str
    computing_ns: int | None
    communication_not_overlapped_ns: int | None
    communication_ns: int | None
    free_ns: int | None


@dataclass
class Group:
    """A communication group of profiler_metadata.json: label is tp, dp, default_group, ..."""

    label: str
    ranks: tuple[int, ...]


@dataclass
class SideFiles:
    """facts: key -> text, int or bool; warnings: one line each, about damage to a file that it names."""

    facts: dict[str, Any] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    host: HostFacts = field(default_factory=HostFacts)
    declared_ranks: set[int] | None = None  # the whole set of ranks that belong together, where it is stated
    groups: dict[str, Group] = field(default_factory=dict)  # by the communication library's name of the group
    step_times: list[StepTime] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Damaged(Exception):
    """A side file that can't be used; the text says why."""


def read_bytes(path: str, limit: int = MAX_BYTES) -> bytes:
    """A whole small file. Raises Damaged where it can't be read, is empty or larger than the limit."""
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise Damaged(f"can't be read ({error.strerror})") from error
    if len(data) > limit:
        raise Damaged(f"is larger than {limit >> 20} MiB")
    if not data.strip(b"\x00 \r\n\t"):
        raise Damaged("is empty")
    return data


def read_json(path: str) -> dict[str, Any]:
    """The JSON object of a small file. Raises Damaged."""
    return parse_json(path, MAX_BYTES)


def parse_json(path: str, limit: int) -> dict[str, Any]:
    """The JSON object of a file of at most `limit` bytes. Raises Damaged."""
    data = read_bytes(path, limit)
    try:
        value = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise Damaged(f"is {TOO_DEEP}" if "depth limit" in str(error) else f"is no whole JSON ({error})") from error
    if is_too_deep(value):
        raise Damaged(f"is {TOO_DEEP}")
    if not isinstance(value, dict):
        raise Damaged("is no JSON object")
    return value


def read_log(path: str) -> dict[str, str]:
    """The `key: value` lines of host_start.log or dev_start.log; a `[section]` line is optional. Raises Damaged."""
    text = read_bytes(path).decode("utf-8", "replace")
    pairs = {m[1]: m[2] for m in re.finditer(r"^\s*(\w+)\s*[:=]\s*(\S+)\s*$", text, re.MULTILINE)}
    for key in ("clock_monotonic_raw", "cntvct"):
        if decimal_of(pairs.get(key)) is None:
            raise Damaged(f"has no number for {key}")
    return pairs


def read_side_files(capture: Capture) -> SideFiles:
    """Everything that the side files of a capture say. Never raises for what they hold."""
    side = SideFiles()
    if capture.profiler_info and (info := _read(capture.profiler_info, side)) is not None:
        _profiler_info(info, capture.profiler_info, side)
    if capture.profiler_metadata and (metadata := _read(capture.profiler_metadata, side)) is not None:
        _profiler_metadata(metadata, side)
    _msprof(capture, side)
    for path in capture.step_trace_csvs:
        side.step_times += _step_times(path, side)
    for relation in [r for r in side.relations if not within_int64(r)]:
        side.relations.remove(relation)
        beyond = f"its clock {relation['clock']} reads more ns than an int64 holds"
        side.warnings.append(_warning(relation["source"], beyond))
    if not side.relations:
        _not_recorded(side, "clock relations")
    if isinstance(side.facts.get("not_recorded"), list):
        side.facts["not_recorded"] = ", ".join(side.facts["not_recorded"])
    return side


def _read(path: str, side: SideFiles) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except Damaged as error:
        side.warnings.append(_warning(path, error))
        return None


def _warning(path: str, error: object) -> str:
    return f"{printable(path)}: {printable(error)}; left out, times of tasks don't depend on it"


def _not_recorded(side: SideFiles, what: str) -> None:
    side.facts.setdefault("not_recorded", []).append(what)


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _plain(value: object) -> str | int | bool | None:
    """A value as a fact: texts, whole numbers and booleans as they are, lists joined; None for the rest."""
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return str(value)
    if isinstance(value, list):
        return ",".join(str(v) for v in value if isinstance(v, str | int | float))
    return None


#: fact <- key of config.common_config or config.experimental_config
_COMMON = {
    "record_shapes": "record_shapes",
    "with_stack": "with_stack",
    "with_modules": "with_modules",
    "profile_memory": "profile_memory",
    "activities": "activities",
}
_EXPERIMENTAL = {
    "profiler_level": "_profiler_level",
    "aic_metrics": "_aic_metrics",
    "l2_cache": "_l2_cache",
    "export_type": "_export_type",
    "data_simplification": "_data_simplification",
    "record_op_args": "record_op_args",
    "msprof_tx": "_msprof_tx",
    "mstx": "_mstx",
}


def _profiler_info(info: Mapping[str, Any], path: str, side: SideFiles) -> None:
    config = _dict(info.get("config"))
    for table, section in ((_COMMON, "common_config"), (_EXPERIMENTAL, "experimental_config")):
        values = _dict(config.get(section))
        for fact, key in table.items():
            if (value := _plain(values.get(key))) is not None:
                side.facts[fact] = value
    schedule = _dict(_dict(config.get("common_config")).get("schedule"))
    if schedule:
        side.facts["schedule"] = ",".join(f"{k}={v}" for k, v in schedule.items() if isinstance(v, int))
    for key in ("torch_npu_version", "ms_version", "mindspore_version", "cann_version", "hostname"):
        if isinstance(value := info.get(key), str) and value:
            side.facts[key] = value
    side.host = HostFacts(_host_uid(info), *host_relations_of_profiler_info(info))
    side.relations += from_profiler_info(info, PurePath(path).name)
    frequency = decimal_of(_dict(info.get("start_info")).get("freq"))
    if frequency:
        side.facts["syscnt_mhz"] = str(frequency)
    if "profiler_level" in side.facts and str(side.facts["profiler_level"]).endswith(("Level0", "Level_none")):
        _not_recorded(side, "task ids and CANN calls (profiler level)")
    if side.facts.get("record_shapes") is False:
        _not_recorded(side, "input shapes of host operators")
    if side.facts.get("with_stack") is False:
        _not_recorded(side, "Python stacks")
    if side.facts.get("profile_memory") is False:
        _not_recorded(side, "memory")
    if str(side.facts.get("aic_metrics", "")).endswith("NONE"):
        _not_recorded(side, "AI Core metrics")


def _host_uid(values: Mapping[str, Any]) -> str | None:
    uid = values.get("hostUid")
    return str(uid) if isinstance(uid, str | int) and not isinstance(uid, bool) and str(uid).strip() else None


def _ranks(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(v for v in value if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < MAX_RANKS)


def _profiler_metadata(metadata: Mapping[str, Any], side: SideFiles) -> None:
    for key, value in _dict(metadata.get("parallel_group_info")).items():
        group = _dict(value)
        label, ranks = group.get("group_name"), _ranks(group.get("global_ranks"))
        if isinstance(label, str):
            side.groups[key] = Group(label, ranks)
            if label == "default_group" and ranks:
                side.declared_ranks = set(ranks)
    distributed = _dict(metadata.get("distributed_args"))
    for key, value in distributed.items():
        if isinstance(value, int | str) and key != "rank":
            side.facts[f"distributed.{key}"] = value
    world = distributed.get("world_size")
    if side.declared_ranks is None and isinstance(world, int) and not isinstance(world, bool) and 0 < world < MAX_RANKS:
        side.declared_ranks = set(range(world))
    if side.host.host_uid is None:
        side.host.host_uid = _host_uid(metadata)


def _msprof(capture: Capture, side: SideFiles) -> None:
    """Clock files of PROF_*, folder by folder: host, then each device.

    A relation of one folder is enough per clock; the folders of one PROF differ by a few us, and each relation that
    the input states is kept as one more reading.
    """
    infos, starts = _by_folder(capture.info_jsons), _by_folder(capture.start_infos)
    host_logs, dev_logs = _by_folder(capture.host_start_logs), _by_folder(capture.dev_start_logs)
    for folder in dict.fromkeys([*infos, *starts, *host_logs, *dev_logs]):
        info = (_read(infos[folder], side) if folder in infos else None) or {}
        _info_json(info, folder, side)
        start = (_read(starts[folder], side) if folder in starts else None) or {}
        logs: dict[str, dict[str, str]] = {}
        for name, paths in (("host", host_logs), ("dev", dev_logs)):
            if folder in paths:
                try:
                    logs[name] = read_log(paths[folder])
                except Damaged as error:
                    side.warnings.append(_warning(paths[folder], error))
        processors = info.get("CPU")
        cpu = _dict(processors[0]) if isinstance(processors, list) and processors else {}
        source = f"{PurePath(folder).name}/start_info"
        relations = from_msprof(start, logs.get("host", {}), cpu.get("Frequency"), source)
        side.relations += relations
        if starts.get(folder) and start and not relations:
            side.warnings.append(_warning(starts[folder], "has no number for clockMonotonicRaw or collectionTimeBegin"))


def _by_folder(paths: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for path in paths:
        out.setdefault(str(PurePath(path).parent), path)
    return out


def _info_json(info: Mapping[str, Any], folder: str, side: SideFiles) -> None:
    for fact, key in (("hostname", "hostname"), ("os", "OS"), ("platform_version", "platform_version")):
        if isinstance(value := info.get(key), str) and value:
            side.facts.setdefault(fact, value)
    if side.host.host_uid is None:
        side.host.host_uid = _host_uid(info)
    devices = info.get("DeviceInfo")
    for device in devices if isinstance(devices, list) else []:
        frequency = decimal_of(_dict(device).get("hwts_frequency"))
        if frequency:
            # No relation of its own: most periods (49.999001 MHz) are no whole number of ns.
            name = PurePath(folder).name
            side.facts[f"{name}.counter_mhz"] = str(frequency)


def _step_times(path: str, side: SideFiles) -> Iterator[StepTime]:
    """The rows of step_trace_time.csv; a cell that is no number is None, with one warning for the file."""
    try:
        text = read_bytes(path).decode("utf-8-sig", "replace")
        rows = list(csv.DictReader(io.StringIO(text)))
    except (Damaged, csv.Error) as error:
        side.warnings.append(_warning(path, error))
        return
    bad = 0
    for row in rows:
        cells = {str(k).strip(): (v.strip() if isinstance(v, str) else "") for k, v in row.items()}

        def time_ns(key: str, cells: dict[str, str] = cells) -> int | None:
            number = decimal_of(cells.get(key, ""))
            return None if number is None else int((number * Decimal(1000)).to_integral_value(ROUND_HALF_EVEN))

        step = StepTime(
            cells.get("Device_id", ""),
            cells.get("Step", ""),
            time_ns("Computing"),
            time_ns("Communication(Not Overlapped)"),
            time_ns("Communication"),
            time_ns("Free"),
        )
        if None in (step.computing_ns, step.communication_ns, step.free_ns, step.communication_not_overlapped_ns):
            bad += 1
        yield step
    if bad:
        side.warnings.append(_warning(path, f"{bad} of {len(rows)} rows lack a number"))
