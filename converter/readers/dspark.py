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
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from converter.readers.dspark_columns import Unusable, columns, integer
from converter.readers.nesting import TOO_DEEP, is_too_deep
from schemas.dspark import SERVER_FACTS, RecordFile
from schemas.errors import InputError
from schemas.timeline import NULL

_SHOW_HOW = 'expected the reply of GET /server_info, its "dspark_info_record", {"records": [...]}, a list, or one of them a line'
MAX_BYTES = 1 << 30  # what `record` takes from a server
MAX_RANKS = 1024  # of one file; the records are put in order rank by rank


@dataclass
class _Payload:
    """Records that belong together, before they become columns. rank: the DP rank where it is stated, else None."""

    records: list[dict[str, Any]]
    head: dict[str, Any] = field(default_factory=dict)
    rank: int | None = None
    bare: bool = False  # records without a payload around them
    last: int = NULL  # the highest forward_ct, while a list is read

    @cached_property
    def numbered(self) -> dict[int, dict[str, Any]]:
        """Records by forward_ct; those without a usable one are left out."""
        return {n: record for record in self.records if (n := integer(record.get("forward_ct"))) != NULL}

    @cached_property
    def lowest(self) -> int:
        return min(self.numbered, default=NULL)

    @cached_property
    def highest(self) -> int:
        return max(self.numbered, default=NULL)


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
    merged = _join_documents(payloads, out)
    unusable = Unusable()
    out.ranks = [
        columns(out.source, index, payload.records, payload.head, unusable) for index, payload in enumerate(merged)
    ]
    out.warnings.extend(unusable.warnings())
    return out


def _documents(path: str | os.PathLike[str], out: RecordFile) -> Iterator[Any]:
    """The JSON texts of a file: one, or one a line (broken lines are counted)."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(path, error.strerror or str(error), todo="check the path given to --dspark") from None
    if len(data) > MAX_BYTES:
        raise InputError(path, f"is larger than {MAX_BYTES >> 20} MiB", todo="save fewer steps in a file")
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
    why = "not JSON"
    parsed = []
    for position, (number, line) in enumerate(lines):
        try:
            parsed.append(_parse(line))
        except ValueError as error:
            broken.append(number)
            if TOO_DEEP in (whole_error, str(error)):
                why = f"not JSON, or {TOO_DEEP},"
            if position == 0:
                shown = line[:40].decode("utf-8", "replace")
                what = f"is not JSON ({whole_error})" if why == "not JSON" else f"is {TOO_DEEP}"
                raise InputError(path, f"{what}; it starts with {shown!r}", todo=_SHOW_HOW) from None
    if broken:
        out.damaged = True
        text = f"{len(broken)} of {len(lines)} lines are {why} and are left out, the first is line {broken[0]}"
        out.warnings.append(text)
        out.damage.append(text)
    yield from parsed


def _parse(data: bytes) -> Any:
    """JSON with NaN and Infinity read as null. Raises ValueError, also where it is nested too deep."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None
    if is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


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
            payload.bare = False
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
        rank = integer(item.get("dp_rank"))
        runs = loose.setdefault(rank if rank != NULL else None, [])
        number = integer(item.get("forward_ct"))
        if not runs or (number != NULL and number <= runs[-1].last):
            runs.append(_Payload([], rank=rank if rank != NULL else None, bare=True))
            out.append(runs[-1])
        runs[-1].records.append(item)
        runs[-1].last = max(runs[-1].last, number)
    return out


def _join_documents(documents: list[list[_Payload]], out: RecordFile) -> list[_Payload]:
    """One payload per DP rank. The lines of a file may be ranks, single records, or later states of one server:
    records that are there twice, equal, come from the same rank.
    """
    if len(documents) > 1 and all(p.bare for d in documents for p in d):
        records = [record for d in documents for p in d for record in p.records]
        documents = [[run] for run in _payloads_of_list(records)]
    ranks: list[_Payload] = []
    for payloads in documents:
        earlier = list(ranks)
        for payload in payloads:
            same = next((r for r in earlier if _is_same_rank(r, payload)), None)
            same = same or next((r for r in ranks[len(earlier) :] if _follows(r, payload)), None)
            if same is None:
                ranks.append(payload)
                if len(ranks) > MAX_RANKS:
                    raise InputError(
                        out.source,
                        f"more than {MAX_RANKS} runs of records with a forward_ct that starts over",
                        todo="the ranks seem to be interleaved: save each rank's records apart",
                    )
            else:
                earlier = [r for r in earlier if r is not same]
                _extend(same, payload, out)
    if all(payload.rank is not None for payload in ranks):
        ranks.sort(key=lambda payload: payload.rank or 0)
    return ranks


def _is_same_rank(one: _Payload, other: _Payload) -> bool:
    """Whether a later text goes on with a rank: by its place, by what comes after it, or by what is there twice."""
    if one.rank is not None and other.rank is not None:
        return one.rank == other.rank
    if _follows(one, other):
        return True
    known, later = one.numbered, other.numbered
    # A list that grows at one end and loses at the other: from the later one's first number to the earlier one's last
    # they hold the same records.
    first = max(other.lowest, 0)
    if not known or one.highest < first or (later and first not in known):
        return False
    end_of_known = {n: r for n, r in known.items() if n >= first}
    return end_of_known == {n: r for n, r in later.items() if n <= one.highest}


def _follows(one: _Payload, other: _Payload) -> bool:
    """Whether the other's counters all come after this one's: the ranks of a server count side by side."""
    if one.rank is not None or other.rank is not None:
        return False
    return bool(one.numbered) and bool(other.numbered) and one.highest < other.lowest


def _extend(rank: _Payload, later: _Payload, out: RecordFile) -> None:
    known = rank.numbered
    added, differ = [], 0
    for record in later.records:
        number = integer(record.get("forward_ct"))
        if number not in known:
            added.append(record)
        elif known[number] != record:
            differ += 1
    if differ:
        out.warnings.append(
            f"{differ} records have the forward_ct of an earlier one of their rank but other numbers (a restarted server?): "
            "the earlier ones are kept"
        )
    rank.records = sorted(rank.records + added, key=lambda record: integer(record.get("forward_ct")))
    rank.head = rank.head or later.head
    for stale in ("numbered", "lowest", "highest"):
        rank.__dict__.pop(stale, None)


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
