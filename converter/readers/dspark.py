"""DSpark step records: JSON that someone saved from SGLang's `GET /server_info`.

Format: `internal_states[i]["dspark_info_record"]` = {mode, gamma, verify_num_draft_tokens, components, records: [...]},
one per DP rank (SGLang 0.5.23, `dspark_observability.py`). People save it whole, as the bare payload, as
`{"dspark_info_record": ...}`, merged as `{"sampling": ..., "records": [...]}`, as a bare list, or as one JSON text a
line of any of these. `dspark_sps_profiler` writes a reduced form, one step a line, with `step_time` in seconds.
Fields equal to their default are absent; unknown keys and components are passed over; NaN counts as absent.
Ignored on purpose: everything else of `/server_info` except the server arguments of `schemas.dspark.SERVER_FACTS`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from schemas.dspark import RECORD_FLOATS, RECORD_INTS, SERVER_FACTS, RankRecords, RecordFile
from schemas.errors import InputError
from schemas.timeline import NULL

_SHOW_HOW = 'expected the reply of GET /server_info, its "dspark_info_record", {"records": [...]}, a list, or one of them a line'
_LARGEST = 2**63 - 1
_MANY_RANKS = 1024


@dataclass
class _Payload:
    """Records that belong together, before they become columns. rank: the DP rank where it is stated, else None."""

    records: list[dict[str, Any]]
    head: dict[str, Any] = field(default_factory=dict)
    rank: int | None = None


def read_records(path: str | os.PathLike[str]) -> RecordFile:
    """The records of a file, by DP rank.

    Raises InputError where the file can't be read, is not JSON, or holds nothing that looks like DSpark records.
    Records without a usable `forward_ct` are left out, counted in a warning.
    """
    out = RecordFile(os.fspath(path), [])
    documents = list(_documents(path, out))
    payloads: list[list[_Payload]] = []
    for document in documents:
        _take_server_facts(document, out.server)
        payloads.append(_payloads(document))
    if not any(payloads):
        raise InputError(path, "holds no DSpark records", todo=_what_to_do(documents))
    merged = _join_documents(payloads)
    if len(merged) > _MANY_RANKS:
        out.warnings.append(
            f"{len(merged)} runs of records with a forward_ct that starts over: the ranks seem to be interleaved; "
            "save each rank's records apart"
        )
    unusable = _Unusable()
    out.ranks = [_columns(payload, index, out.source, unusable) for index, payload in enumerate(merged)]
    out.warnings.extend(unusable.warnings())
    return out


def _documents(path: str | os.PathLike[str], out: RecordFile) -> Iterator[Any]:
    """The JSON texts of a file: one, or one a line (broken lines are counted)."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(path, error.strerror or str(error), todo="check the path given to --dspark") from None
    encoding = json.detect_encoding(data)
    if encoding not in ("utf-8", "utf-8-sig"):
        data = data.decode(encoding, "replace").encode()
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise InputError(path, "is empty", todo="save the reply of GET /server_info")
    try:
        yield _parse(data)
        return
    except ValueError as error:
        whole_error = str(error)
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    broken: list[int] = []
    parsed = []
    for position, (number, line) in enumerate(lines):
        try:
            parsed.append(_parse(line))
        except ValueError:
            broken.append(number)
            if position == 0:
                shown = line[:40].decode("utf-8", "replace")
                raise InputError(
                    path, f"is not JSON ({whole_error}); it starts with {shown!r}", todo=_SHOW_HOW
                ) from None
    if broken:
        out.damaged = True
        out.warnings.append(
            f"{len(broken)} of {len(lines)} lines are not JSON and are left out, the first is line {broken[0]}"
        )
    yield from parsed


def _parse(data: bytes) -> Any:
    """JSON with NaN and Infinity read as null. Raises ValueError."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _payloads(document: Any) -> list[_Payload]:
    """The payloads of one JSON text, in order."""
    if isinstance(document, list):
        return _payloads_of_list(document)
    if not isinstance(document, dict):
        return []
    if "internal_states" in document:
        states = document["internal_states"]
        states = states if isinstance(states, list) else [states]
        by_state = [_payloads(state) if isinstance(state, dict) else [] for state in states]
        if not any(by_state):
            return []
        # The position is the DP rank, so a state without records keeps its place.
        out = [payload for one in by_state for payload in (one or [_Payload([])])]
        if len(out) == len(states):
            for rank, payload in enumerate(out):
                payload.rank = rank
        return out
    if "dspark_info_record" in document:
        return _payloads(document["dspark_info_record"])
    if isinstance(document.get("records"), list):
        found = _payloads_of_list(document["records"]) or [_Payload([])]
        for payload in found:
            payload.head = {key: document.get(key) for key in document if key != "records"}
        return found
    if "forward_ct" in document or "bs" in document:
        return _payloads_of_list([document])
    return []


def _payloads_of_list(items: list[Any]) -> list[_Payload]:
    """A list of records, or of payloads. A forward_ct that does not grow starts the records of another rank."""
    out: list[_Payload] = []
    loose: dict[int | None, list[_Payload]] = {}
    for item in items:
        if not isinstance(item, dict):
            continue
        if not ("forward_ct" in item or "bs" in item) or "records" in item or "dspark_info_record" in item:
            out.extend(_payloads(item))
            continue
        rank = _integer(item.get("dp_rank"))
        runs = loose.setdefault(rank if rank != NULL else None, [])
        number = _integer(item.get("forward_ct"))
        last = _integer(runs[-1].records[-1].get("forward_ct")) if runs else NULL
        if not runs or (NULL not in (number, last) and number <= last):
            runs.append(_Payload([], rank=rank if rank != NULL else None))
            out.append(runs[-1])
        runs[-1].records.append(item)
    return out


def _join_documents(documents: list[list[_Payload]]) -> list[_Payload]:
    """One payload per DP rank. The lines of a file may be ranks, single records, or later states of one server:
    records that are there twice, equal, come from the same rank.
    """
    if (
        all(len(d) <= 1 and all(len(p.records) == 1 and not p.head for p in d) for d in documents)
        and len(documents) > 1
    ):
        documents = [_payloads_of_list([record for d in documents for p in d for record in p.records])]
    ranks: list[_Payload] = []
    for payloads in documents:
        before = len(ranks)
        for payload in payloads:
            same = next((r for r in ranks[:before] if _is_same_rank(r, payload)), None)
            if same is None:
                ranks.append(payload)
            else:
                have = {record.get("forward_ct") for record in same.records}
                same.records += [r for r in payload.records if r.get("forward_ct") not in have]
                same.records.sort(key=lambda record: _integer(record.get("forward_ct")))
                same.head = same.head or payload.head
    if all(payload.rank is not None for payload in ranks):
        ranks.sort(key=lambda payload: payload.rank or 0)
    return ranks


def _is_same_rank(one: _Payload, other: _Payload) -> bool:
    if one.rank is not None and other.rank is not None:
        return one.rank == other.rank
    known = {number: record for record in one.records if isinstance(number := record.get("forward_ct"), int)}
    shared = [(known[n], r) for r in other.records if isinstance(n := r.get("forward_ct"), int) and n in known]
    return bool(shared) and all(a == b for a, b in shared)


@dataclass
class _Unusable:
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


def _columns(payload: _Payload, index: int, source: str, unusable: _Unusable) -> RankRecords:
    records = [r for r in payload.records if _integer(r.get("forward_ct")) != NULL]
    unusable.no_number += len(payload.records) - len(records)
    ints = {key: _int_column(records, key, unusable) for key in RECORD_INTS}
    floats = {key: _float_column(records, key, unusable) for key in RECORD_FLOATS}
    # The reduced form of dspark_sps_profiler: `step_time` in seconds is step_cpu_ms.
    reduced = _float_column(records, "step_time", unusable) * 1000.0
    floats["step_cpu_ms"] = np.where(np.isnan(floats["step_cpu_ms"]), reduced, floats["step_cpu_ms"])
    for key in ("num_running_reqs", "batch_size_per_rank"):
        other = ints.get(key)
        other = _int_column(records, key, unusable) if other is None else other
        ints["bs"] = np.where(ints["bs"] == NULL, other, ints["bs"])
    head = payload.head
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
        gamma=_integer(head.get("gamma")),
        verify_width=_integer(head.get("verify_num_draft_tokens")),
        simulate_acc_len=_number(head.get("simulate_acc_len")),
        components=tuple(str(c) for c in components) if isinstance(components, list) else (),
    )


def _requests(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list):
        return None
    return [request if isinstance(request, dict) else {} for request in value]


def _int_column(records: list[dict[str, Any]], key: str, unusable: _Unusable) -> np.ndarray[Any, np.dtype[np.int64]]:
    values = [_integer(record.get(key)) for record in records]
    bad = sum(v == NULL and record.get(key) not in (None, -1) for v, record in zip(values, records, strict=True))
    if bad:
        unusable.values[key] = unusable.values.get(key, 0) + bad
    return np.array(values, np.int64)


def _float_column(
    records: list[dict[str, Any]], key: str, unusable: _Unusable
) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = [_number(record.get(key)) for record in records]
    bad = sum(v is None and record.get(key) is not None for v, record in zip(values, records, strict=True))
    if bad:
        unusable.values[key] = unusable.values.get(key, 0) + bad
    return np.array([math.nan if v is None else v for v in values], np.float64)


def _integer(value: Any) -> int:
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


def _take_server_facts(document: Any, facts: dict[str, Any]) -> None:
    if isinstance(document, dict) and "internal_states" in document:
        for key in SERVER_FACTS:
            value = document.get(key)
            if isinstance(value, (str, int, float, bool)):
                facts.setdefault(key, value)
            elif isinstance(value, list):
                facts.setdefault(key, json.dumps(value))


def _what_to_do(documents: list[Any]) -> str:
    if any(isinstance(d, dict) and "internal_states" in d for d in documents):
        return "the server keeps records only where SGLANG_DSPARK_DEBUG_DUMP was set when it started"
    return _SHOW_HOW
