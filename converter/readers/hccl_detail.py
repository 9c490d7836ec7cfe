"""What the exporters measured inside each collective: communication.json, communication_matrix.json, and the same in
analysis.db (CommAnalyzerTime, CommAnalyzerBandwidth, CommAnalyzerMatrix).

Format: {step: {p2p|collective: {"<op>@<group>": {"Communication Time Info": {...}, "Communication Bandwidth Info":
{transport: {...}}}}}}; the matrix has {"<kind>-top1@<group>": {"<src>-<dst>": {..., "Op Name": <op>}}}. An op is told
by its name, never by its start, which is a float64 of microseconds here and so rounded. Values and keys are as written,
units in the key. Ignored on purpose: sums over ops ("Total Op Info", entries of the matrix without an op), the start,
transports that carried nothing. These are side files: damage is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.readers.side_files import MAX_BYTES, Damaged, parse_json
from converter.readers.sqlite_tables import Database, open_database
from schemas.annotation_bytes import nested_annotation
from schemas.errors import InputError, printable
from schemas.timeline import Column, ColumnKind, SliceBatch, Timeline

_START = "Start Timestamp(us)"
_SIZE = "Transit Size(MB)"
_MAX_JSON_BYTES = 16 * MAX_BYTES  # one entry per collective: larger than the other side files
_DTYPES: dict[ColumnKind, type] = {"int": np.int64, "float": np.float64, "text": np.int32, "bool": np.bool_}
#: Columns of analysis.db under the keys of the JSON.
_TIMES = {
    "elapse_time": "Elapse Time(ms)", "transit_time": "Transit Time(ms)", "wait_time": "Wait Time(ms)",
    "synchronization_time": "Synchronization Time(ms)", "idle_time": "Idle Time(ms)",
}  # fmt: skip
_BANDWIDTH = {"transit_size": _SIZE, "transit_time": "Transit Time(ms)", "bandwidth": "Bandwidth(GB/s)"}


@dataclass
class Detail:
    """Of one collective. flat: arguments; transports, links: nested ones."""

    flat: dict[str, Any] = field(default_factory=dict)
    transports: dict[str, Any] = field(default_factory=dict)
    links: dict[str, Any] = field(default_factory=dict)


Details = dict[str, Detail]  # by the op's name


def read_detail(jsons: Sequence[str], databases: Sequence[str], warn: Any) -> Details:
    """Everything the files say, by the name of the op. warn(text, damaged) is told about files that can't be used."""
    out: Details = {}
    for path in jsons:
        try:
            for step, kinds in parse_json(path, _MAX_JSON_BYTES).items():
                for ops in _dict(kinds).values():
                    for name, info in _dict(ops).items():
                        _add_op(out, step, name, _dict(info))
        except Damaged as error:
            warn(f"{printable(path)}: {printable(error)}; collectives are shown without their detail", True)
    for path in databases:
        try:
            with open_database(path, _MAX_JSON_BYTES, todo="") as db:
                _read_database(out, db)
        except InputError as error:
            warn(f"{error}; collectives are shown without their detail", True)
    return out


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _add_op(out: Details, step: str, name: str, info: Mapping[str, Any]) -> None:
    times = _dict(info.get("Communication Time Info"))
    if times:
        detail = out.setdefault(name.partition("@")[0], Detail())
        detail.flat |= {"step": step, **{k: v for k, v in times.items() if k != _START}}
        for transport, values in _dict(info.get("Communication Bandwidth Info")).items():
            if _dict(values).get(_SIZE):
                detail.transports[transport] = values
        return
    for link, values in info.items():  # a matrix: each link names the op that it stands for
        op = _dict(values).get("Op Name")
        if isinstance(op, str):
            kind = name.partition("@")[0]
            rest = {k: v for k, v in _dict(values).items() if k != "Op Name"}
            out.setdefault(op, Detail()).links[f"{link} {kind}"] = rest


def _read_database(out: Details, db: Database) -> None:
    for row in db.records("CommAnalyzerTime", ("hccl_op_name", "step", *_TIMES)):
        if isinstance(row["hccl_op_name"], str):
            flat = {key: row[column] for column, key in _TIMES.items()}
            out.setdefault(row["hccl_op_name"], Detail()).flat |= {"step": row["step"], **flat}
    for row in db.records("CommAnalyzerBandwidth", ("hccl_op_name", "transport_type", *_BANDWIDTH)):
        if isinstance(row["hccl_op_name"], str) and row["transit_size"]:
            values = {key: row[column] for column, key in _BANDWIDTH.items()}
            out.setdefault(row["hccl_op_name"], Detail()).transports[str(row["transport_type"])] = values
    ends = ("src_rank", "dst_rank", "transport_type", "hccl_op_name", "op_name")
    for row in db.records("CommAnalyzerMatrix", (*ends, *_BANDWIDTH)):
        if isinstance(row["op_name"], str) and row["op_name"]:
            link = f"{row['src_rank']}-{row['dst_rank']} {row['hccl_op_name']}"
            values = {key: row[column] for column, key in _BANDWIDTH.items()}
            out.setdefault(row["op_name"], Detail()).links[link] = {"Transport Type": row["transport_type"], **values}


def attach(timeline: Timeline, details: Details) -> None:
    """Adds the arguments to the collectives of that name. A name that several slices have is said and left out."""
    places: dict[int, list[tuple[SliceBatch, int]]] = {}
    wanted = {timeline.strings.find(name): name for name in details} if details else {}
    for batch in _with_collectives(timeline):
        for row in np.flatnonzero(np.isin(batch.name, list(wanted))).tolist():
            places.setdefault(int(batch.name[row]), []).append((batch, row))
    several = [name for id_, name in wanted.items() if len(places.get(id_, ())) > 1]
    if several:
        timeline.warn(
            f"{len(several)} collectives of communication.json fit several slices by name (first: "
            f"{printable(several[0])}); their detail is left out"
        )
    of_batch: dict[int, tuple[SliceBatch, dict[int, Detail]]] = {}
    for id_, found in places.items():
        if len(found) == 1:
            batch, row = found[0]
            of_batch.setdefault(batch.first, (batch, {}))[1][row] = details[wanted[id_]]
    for batch, rows in of_batch.values():
        _attach_to(timeline, batch, rows)


def _with_collectives(timeline: Timeline) -> Iterator[SliceBatch]:
    numbers = np.sort(timeline.tasks.slice[timeline.tasks.communication])
    for batch in timeline.slices:
        low, high = np.searchsorted(numbers, (batch.first, batch.first + len(batch)))
        if low < high:
            yield batch


def _attach_to(timeline: Timeline, batch: SliceBatch, rows: Mapping[int, Detail]) -> None:
    taken = {column.key for column in batch.columns}
    columns: dict[tuple[str, ColumnKind], Column] = {}
    extra = batch.extra or [b""] * len(batch)
    for row, detail in rows.items():
        for key, value in detail.flat.items():
            kind: ColumnKind
            if isinstance(value, bool) or not isinstance(value, int | float | str) or key in taken:
                continue
            if isinstance(value, str):
                kind, value = "text", timeline.strings.add(value)
            else:  # times are fractions of a ms: a whole one is a number of the same kind
                kind, value = "float", float(value)
            column = columns.get((key, kind))
            if column is None:
                values: npt.NDArray[Any] = np.zeros(len(batch), _DTYPES[kind])
                column = columns[key, kind] = Column(key, kind, values, np.zeros(len(batch), np.bool_))
            assert column.valid is not None
            column.values[row], column.valid[row] = value, True
        for key, nested in (("transports", detail.transports), ("links", detail.links)):
            if nested:
                extra[row] += nested_annotation(key, nested)
    batch.columns += columns.values()
    batch.extra = extra
