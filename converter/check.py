"""Does a trace hold what its writer put into it? Loads it in trace_processor and compares with the tallies that the
writer stored in the facts.

Overlapping slices are corrupted by an import without a word in `stats`: each gets the end of the other (the slice stack
of trace_processor, slice_tracker.cc). So every track's count, sum of durations and checksum are compared.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from converter import manifest
from converter.engine import Engine, open_trace
from converter.file_kinds import refuse_capture
from converter.remote import fetched_file
from converter.summary import told
from schemas import checksum
from schemas.errors import InputError, printable

#: Rows of `stats` that mean lost events although their severity is only `info`.
HIDDEN_LOSSES = (
    "track_event_parser_errors",
    "track_event_tokenizer_errors",
    "interned_data_tokenizer_errors",
    "tokenizer_skipped_packets",
    "track_hierarchy_missing_uuid",
    "packet_skipped_seq_needs_incremental_state_invalid",
    "flow_step_without_start",
    "flow_end_without_start",
)

STATS = f"""
SELECT name, severity, sum(value) FROM stats
WHERE value > 0 AND (severity IN ('error', 'data_loss') OR name IN {HIDDEN_LOSSES})
GROUP BY name, severity ORDER BY name
"""

# A thread's own track has no uuid in SQL: NULL here.
ON_TRACKS = f"""
WITH
  slices AS (
    SELECT
      track_id, count(*) AS n, sum({checksum.SQL}) AS checksum, sum(dur < 0) AS open,
      sum(dur >> 32) AS high, sum(dur & 0xFFFFFFFF) AS low -- the sum of durations may exceed an int64
    FROM slice GROUP BY track_id
  ),
  samples AS (SELECT track_id, count(*) AS n FROM counter GROUP BY track_id)
SELECT
  extract_arg(t.source_arg_set_id, 'trace_id') AS uuid,
  coalesce(t.name, th.name, p.name, '') AS name,
  coalesce(s.n, 0) AS slices,
  coalesce(s.high, 0) AS high,
  coalesce(s.low, 0) AS low,
  coalesce(c.n, 0) AS samples,
  coalesce(s.checksum, 0) AS checksum,
  coalesce(s.open, 0) AS open
FROM track AS t
LEFT JOIN thread_track AS tt ON tt.id = t.id
LEFT JOIN thread AS th ON th.utid = tt.utid
LEFT JOIN process_track AS pt ON pt.id = t.id
LEFT JOIN process AS p ON p.upid = pt.upid
LEFT JOIN slices AS s ON s.track_id = t.id
LEFT JOIN samples AS c ON c.track_id = t.id
WHERE s.n > 0 OR c.n > 0
"""

COUNTED_SLICES = """
SELECT
  coalesce(sum(category = 'npu.task' OR category NOT GLOB 'npu.*'), 0),
  coalesce(sum(category GLOB 'npu.*' AND category NOT IN ('npu.task', 'npu.facts')), 0),
  coalesce(sum(category = 'npu.facts'), 0)
FROM (SELECT coalesce(category, '') AS category FROM slice)
"""
COUNTED_SAMPLES = """
INCLUDE PERFETTO MODULE npu._tracks;
SELECT coalesce(sum(NOT coalesce(t.derived, 1)), 0), coalesce(sum(coalesce(t.derived, 1)), 0)
FROM counter AS c LEFT JOIN _npu_tracks AS t USING (track_id)
"""

STORED = """
SELECT s.id, a.key, coalesce(a.int_value, a.string_value) FROM slice AS s JOIN args AS a USING (arg_set_id)
WHERE s.category = 'npu.facts' AND (a.key GLOB 'debug.tallies*' OR a.key = 'debug.flows')
"""

TALLY_KEY = re.compile(r"debug\.tallies\[(\d+)\]\.(uuid|slices|duration_ns|samples|checksum)")


class Held(NamedTuple):
    """What is on one track."""

    slices: int = 0
    duration_ns: int = 0
    samples: int = 0
    checksum: int = 0

    def __str__(self) -> str:
        parts = []
        if self.slices or not self.samples:
            slices = f"{self.slices:,} slice" + "s" * (self.slices != 1)
            parts.append(f"{slices} of {self.duration_ns:,} ns")
        if self.samples:
            parts.append(f"{self.samples:,} samples")
        return " and ".join(parts)


class Counts(NamedTuple):
    """What is in a trace, recorded and derived told apart as `convert` tells them."""

    slices: int = 0
    derived_slices: int = 0
    facts: int = 0
    flows: int = 0
    derived_flows: int = 0
    samples: int = 0
    derived_samples: int = 0
    tracks: int = 0

    def __str__(self) -> str:
        return (
            f"{told(self.slices, self.derived_slices, 'slice')} + {self.facts:,} of facts, "
            f"{told(self.flows, self.derived_flows, 'flow')}, "
            f"{told(self.samples, self.derived_samples, 'counter sample')}, on {self.tracks:,} tracks"
        )


@dataclass
class Findings:
    """problems: one line each; notes: what the conversion already knew to be missing; compared: what was compared, for
    the line that says all is well."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: str = ""


def check(trace: str, against: Sequence[str] = (), engine: str | None = None) -> Findings:
    """Raises InputError where the file is no trace or not one of ours, EngineError, and with `against` what reading
    those inputs raises.

    An archive is checked member by member: merged, its ranks need not be where they were written.
    """
    with fetched_file(trace) as local:
        if os.path.isfile(local):
            with open(local, "rb") as file:
                members = manifest.offsets(file)
            if members:
                return _check_members(trace, local, members, against, engine)
        findings, counts = _check(trace, local, against, engine)
    findings.compared = f"{counts}: all as the writer stored it; no import errors or losses{findings.compared}"
    return findings


def _check_members(
    trace: str, local: str, members: dict[str, int], against: Sequence[str], engine: str | None
) -> Findings:
    if against and any(members.values()):
        raise InputError(
            trace,
            "is an archive with clock offsets: --against can't compare it as one trace",
            todo="compare a trace of --layout single, or unpack it and compare rankN.pftrace with the capture of rank N",
        )
    out, total, missing = Findings(), Counts(), set(members)
    try:
        with tarfile.open(local, "r:") as tar:
            for member in tar:
                inside = tar.extractfile(member) if member.name != manifest.NAME else None
                if inside is None:
                    continue
                missing.discard(member.name)
                name = printable(member.name)
                try:
                    part, counts = _check(trace, inside.read(), (), engine)
                except InputError as error:
                    out.problems.append(f"{name}: {error.what}")
                    continue
                out.problems += [f"{name}: {text}" for text in part.problems]
                out.notes += part.notes
                total = Counts(*(a + b for a, b in zip(total, counts, strict=True)))
    except tarfile.TarError as error:
        raise InputError(trace, f"the archive is damaged or cut short: {error}", todo="convert again") from error
    out.problems += [f"{printable(name)}: is in the manifest and not in the archive" for name in sorted(missing)]
    out.compared = (
        f"{total}: all as the writer stored it; no import errors or losses; each member of the archive by itself"
    )
    if against:
        with open_trace(local, engine=engine) as tp:
            _compare_inputs(tp, against, out)
    return out


def _check(trace: str, content: str | bytes, against: Sequence[str], engine: str | None) -> tuple[Findings, Counts]:
    """content: a local path, or the bytes of a member; trace: what to call it."""
    with open_trace(content, engine=engine) as tp:
        if tp.unread_offsets:
            raise InputError(trace, tp.unread_offsets, todo="unpack it with gunzip first")
        stored, flows = _stored(trace, tp)
        if not stored:
            if isinstance(content, str):
                refuse_capture(content, trace, json_too=True)
            raise InputError(
                trace,
                "not written by npu-perfetto, or cut short: no facts with tallies in it",
                todo="convert the capture again",
            )
        findings = Findings()
        findings.problems += [f"import: {name} = {value:,} ({severity})" for name, severity, value in tp.rows(STATS)]
        _compare_tracks(tp, stored, findings)
        [(flow_count,)] = tp.rows("SELECT count(*) FROM flow")
        if flow_count != flows:
            findings.problems.append(f"flows: {flow_count:,} in the trace, {flows:,} written")
        findings.notes += _notes(tp)
        counts = _counts(tp, flow_count, len(stored))
        if against:
            _compare_inputs(tp, against, findings)
    return findings, counts


def _compare_inputs(tp: Engine, against: Sequence[str], findings: Findings) -> None:
    from converter.against import compare

    findings.problems += compare(tp, against)
    who = "the input holds" if len(against) == 1 else f"the {len(against):,} inputs hold"
    left_out = _left_out(tp)
    findings.compared += f"; equal to what {who}" + (
        f", except what converting left out: {left_out}" if left_out else ""
    )


def _notes(tp: Engine) -> list[str]:
    """Damage to the input, and what was dropped, as the conversion stored it."""
    rows = tp.rows(
        "INCLUDE PERFETTO MODULE npu.facts; SELECT rank, value FROM npu_facts "
        "WHERE key GLOB 'capture.damage[[]*' OR (rank IS NULL AND key GLOB 'damage[[]*') ORDER BY rank, key"
    )
    notes = [
        f"the input was damaged: {'' if rank is None else f'rank {rank}: '}{printable(text, 500)}"
        for rank, text in rows
    ]
    left_out = _left_out(tp)
    return [*notes, f"converting left out: {left_out}"] if left_out else notes


def _counts(tp: Engine, flows: int, tracks: int) -> Counts:
    [(recorded, derived, facts)] = tp.rows(COUNTED_SLICES)
    [(samples, derived_samples)] = tp.rows(COUNTED_SAMPLES)
    [(read_flows,)] = tp.rows(
        "INCLUDE PERFETTO MODULE npu.facts; SELECT coalesce(sum(CAST(value AS INT)), 0) FROM npu_facts "
        "WHERE key = 'input_flows.written'"
    )
    return Counts(recorded, derived, facts, read_flows, flows - read_flows, samples, derived_samples, tracks)


def _left_out(tp: Engine) -> str:
    """What the conversion itself counted as dropped, by kind and reason."""
    rows = tp.rows(
        "INCLUDE PERFETTO MODULE npu.facts; SELECT key, sum(CAST(value AS INT)) FROM npu_facts "
        "WHERE key GLOB 'input_*.dropped.*' GROUP BY key ORDER BY key"
    )
    parts = []
    for key, count in rows:
        what, _, reason = key.removeprefix("input_").partition(".dropped.")
        parts.append(f"{count:,} {what[:-1] if count == 1 else what} ({printable(reason)})")
    return ", ".join(parts)


def _stored(trace: str, tp: Engine) -> tuple[dict[int, Held], int]:
    """uuid -> what the writer put on that track; and the number of flows. Raises InputError where checksums lack."""
    cells: dict[tuple[int, str], dict[str, int]] = {}
    flows = 0
    for slice_id, key, value in tp.rows(STORED):
        if key == "debug.flows":
            flows += int(value or 0)
        elif found := TALLY_KEY.fullmatch(key):
            cells.setdefault((slice_id, found[1]), {})[found[2]] = int(value or 0)
    stored: dict[int, Held] = {}
    for cell in cells.values():
        if "slices" in cell and "checksum" not in cell:
            raise InputError(
                trace,
                "made by an earlier version: its facts hold no checksums to compare with",
                todo="convert the capture again",
            )
        uuid = cell.pop("uuid", 0)
        a, b = stored.get(uuid, Held()), Held(**cell)
        stored[uuid] = Held(*(x + y for x, y in zip(a, b, strict=True)))
    return stored, flows


def _compare_tracks(tp: Engine, stored: dict[int, Held], findings: Findings) -> None:
    loaded: dict[int, tuple[str, Held]] = {}
    threads: list[tuple[str, Held]] = []
    for uuid, name, slices, high, low, samples, check_sum, unclosed in tp.rows(ON_TRACKS):
        held = Held(slices, (high << 32) + low, samples, check_sum)
        if unclosed:
            slices_ = "slice" if unclosed == 1 else "slices"
            findings.problems.append(f"track {_shown(name)}: {unclosed:,} {slices_} without an end")
        if uuid is None:
            threads.append((name, held))
        else:
            loaded[uuid] = (name, held)
    for uuid, (name, held) in loaded.items():
        want = stored.get(uuid, Held())
        if held._replace(checksum=want.checksum) != want:
            findings.problems.append(f"track {_shown(name)}: {held} in the trace, {want} written")
        elif held != want:
            findings.problems.append(
                f"track {_shown(name)}: {held} as written, but not at the same times (checksum): they overlap or moved"
            )
    _compare_threads(threads, [held for uuid, held in stored.items() if uuid not in loaded], findings)


def _compare_threads(threads: list[tuple[str, Held]], stored: list[Held], findings: Findings) -> None:
    """The tracks of threads have no uuid to tell them by, so what is on them is compared as a multiset."""
    left: Counter[Any] = Counter(stored)
    for name, held in threads:
        if left[held]:
            left[held] -= 1
        else:
            findings.problems.append(f"thread {_shown(name)}: {held} (checksum {held.checksum}): not as written")
    for held, count in left.items():
        if count and held != Held():
            what = f"{held} (checksum {held.checksum})" + f" on each of {count} tracks" * (count > 1)
            findings.problems.append(f"{what} written, but on no track of the trace")


def _shown(name: str) -> str:
    return repr(printable(name, 80))
