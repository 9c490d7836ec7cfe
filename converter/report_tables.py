"""The tables of a report, straight from the `npu` package: what csv and json hold, exact and whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from converter.engine import Engine, Result
from schemas.errors import InputError


@dataclass(frozen=True)
class Source:
    """One table: the module that makes it and the query that reads it."""

    module: str
    sql: str


#: The tables that --table names, in the order of a report.
TABLES = {
    "ranks": Source("npu.ranks", "SELECT * FROM npu_rank_times"),
    "vendor": Source("npu.ranks", "SELECT * FROM npu_vendor_times"),
    "clocks": Source("npu.ranks", "SELECT * FROM npu_rank_clocks"),
    "gaps": Source("npu.gaps", "SELECT * FROM npu_gaps ORDER BY dur DESC, rank, ts"),
    "patterns": Source("npu.gaps", "SELECT * FROM npu_gap_patterns ORDER BY total_ns DESC, rank, prev_name, next_name"),
    "steps": Source("npu.report", "SELECT * FROM npu_step_report"),
    "segments": Source("npu.segments", "SELECT * FROM npu_segments ORDER BY rank, ts"),
    "tails": Source("npu.segments", "SELECT * FROM npu_tails ORDER BY rank, ts"),
    "deepep": Source("npu.deepep", "SELECT * FROM npu_deepep ORDER BY rank, ts"),
    "replays": Source("npu.replays", "SELECT * FROM npu_replays ORDER BY rank, replay_index"),
}

#: What the sections need besides. All of it is in the json of a whole report too, but for what is marked there.
MORE = {
    "facts": Source("npu.facts", "SELECT * FROM npu_facts"),
    "gap_classes": Source(
        "npu.gaps",
        "SELECT rank, endpoint_class, count(*) AS gap_count, sum(dur) AS total_ns, max(dur) AS max_ns FROM npu_gaps "
        "GROUP BY rank, endpoint_class ORDER BY rank, total_ns DESC, endpoint_class",
    ),
    "group_gaps": Source("npu.gaps", "SELECT * FROM npu_group_gaps ORDER BY ts"),
    "deepep_peers": Source("npu.deepep", "SELECT * FROM npu_deepep_peers ORDER BY rank, group_index"),
    "replay_host": Source("npu.replays", "SELECT * FROM npu_replay_host ORDER BY rank, ts"),
    "step_times": Source("npu.steps", "SELECT rank, ts, forward_ct, dur FROM npu_steps ORDER BY rank, ts"),
    "cut_slices": Source(
        "npu.report",
        "SELECT m.id FROM _npu_slice_steps AS m JOIN _npu_step_slices AS s ON s.id = m.step_id WHERE s.cut = 'window'",
    ),
    "gap_times": Source("npu.gaps", "SELECT rank, ts, dur FROM npu_gaps ORDER BY rank, ts"),
}

#: Section -> the tables it is made from.
NEEDS = {
    "ranks": ("ranks",),
    "vendor": ("vendor", "ranks"),
    "clocks": ("clocks",),
    "gaps": ("gaps", "ranks", "gap_classes", "group_gaps"),
    "patterns": ("patterns",),
    "steps": ("steps",),
    "segments": ("segments", "steps", "cut_slices"),
    "tails": ("tails", "cut_slices"),
    "deepep": ("deepep", "deepep_peers"),
    "replays": ("replays", "replay_host"),
}

#: The tables of a whole json: those that repeat another one in other words are not in it.
JSON_TABLES = ("facts", *TABLES, "group_gaps", "deepep_peers", "replay_host")


@dataclass
class Tables:
    """The tables of one trace, by name. trace: its path as given."""

    trace: str
    results: dict[str, Result] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Result:
        found = self.results.get(name)
        return Result([], []) if found is None else found  # one without rows still has its columns

    def dicts(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table as column -> value."""
        result = self[name]
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    def ranks(self) -> list[int]:
        """The ranks that the facts speak of."""
        return sorted({row["rank"] for row in self.dicts("facts") if row["rank"] is not None})


def load(engine: Engine, trace: str, names: Iterable[str], limits: dict[str, int] | None = None) -> Tables:
    """Reads the named tables and the facts of a loaded trace. limits: table -> how many of its first rows are enough.

    Raises EngineError, and InputError where the trace is none of ours or was cut (run-wide facts stand at its end), or where it
    is an archive whose clock offsets the engine does not read.
    """
    if engine.unread_offsets:
        raise InputError(
            trace,
            engine.unread_offsets,
            todo="give --engine a Perfetto of v58 or later, or convert with --layout single",
        )
    tables = Tables(trace)
    for name in dict.fromkeys(("facts", *names)):
        source = TABLES.get(name) or MORE[name]
        limit = f" LIMIT {limits[name]}" if limits and name in limits else ""
        tables.results[name] = engine.query(f"INCLUDE PERFETTO MODULE {source.module}; {source.sql}{limit}")
        if name == "facts":
            facts = tables.results[name].rows
            if not facts:
                raise InputError(
                    trace,
                    "holds nothing that npu-perfetto wrote",
                    todo="convert the capture with `npu-perfetto convert`",
                )
            if not any(rank is None for rank, *_ in facts):
                raise InputError(trace, "is cut short: the end is missing", todo="convert the capture again")
    return tables
