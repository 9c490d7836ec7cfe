"""A report never shows a part as a whole, nor two measurements as one."""

from __future__ import annotations

import csv
import io
import json
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest

from converter import report
from converter.commands.report import command
from converter.engine import Result, open_trace
from converter.report_tables import Tables
from tests.converter.report_trace import cells, invoke, report_trace, section


def run(*arguments: str) -> SimpleNamespace:
    return invoke(command, *arguments)


def test_cut_steps_are_marked_and_out_of_the_medians_of_whole_steps(tmp_path: Path) -> None:
    path = report_trace((0,), steps=4, cut={0: "span", 3: "window"}).write(tmp_path / "x.pftrace")
    lines = section(run(path, "--table", "steps").stdout, "Steps")
    table = [line for line in lines if line.startswith("|")]
    heads = cells(table[0])
    rows = {(row := dict(zip(heads, cells(line), strict=True)))["step"]: row for line in table[2:]}
    assert [rows["100 cut"][k] for k in ("wall", "draft", "tail", "exposed", "gaps", "TPOT", "tok/s")] == [
        "-", "0.200", "0.100", "-", "-", "-", "-",
    ]  # fmt: skip
    assert [rows["103 cut"][k] for k in ("draft", "tail", "exposed", "gaps")] == ["0.200", "-", "-", "-"]
    assert (rows["count"]["gaps"], rows["count"]["wall"], rows["count"]["draft"]) == ("2", "2", "4")
    assert rows["median"]["gaps"] == f"{(0.051 + 0.052) / 2:.3f}"
    assert "cut: an edge of the trace or of --window" in " ".join(lines)
    found = csv.DictReader(io.StringIO(run(path, "--table", "steps", "--format", "csv").stdout))
    assert [(row["cut"], row["gap_ms"] == "") for row in found] == [
        ("span", True),
        ("", False),
        ("", False),
        ("window", True),
    ]
    tails = run(path, "--table", "tails").stdout
    assert cells(section(tails, "Eager tail")[-3])[2] == "3" and "Steps that the window cuts are left out" in tails
    assert cells(section(tails, "Eager tail")[-3])[-1] == "inferred"
    assert "cut" not in " ".join(section(run(report_trace((0,), 2).write(tmp_path / "y.pftrace")).stdout, "Steps"))


def test_two_measurements_are_marked_and_never_in_one_median(tmp_path: Path) -> None:
    path = report_trace(steps=4, unrecorded=(1,)).write(tmp_path / "x.pftrace")
    lines = section(run(path, "--table", "steps").stdout, "Steps")
    table = [line for line in lines if line.startswith("|")]
    heads = cells(table[0])
    rows = {(row := dict(zip(heads, cells(line), strict=True)))["step"]: row for line in table[2:10]}
    assert [rows[str(n)]["draft"] for n in range(100, 104)] == ["0.200", "0.200t", "0.200", "0.200"]
    assert (rows["count"]["draft"], rows["median"]["draft"], rows["max"]["verify"]) == ("4", "-", "-")
    text = " ".join(lines)
    assert "t: no record, first start to last end of the linked tasks" in text
    assert "draft: 6 steps from records, 2 steps from linked tasks: two measurements" in text
    summary = json.loads(run(path, "--format", "json").stdout)["steps_summary"]
    assert [(r["count"], r["source"]) for r in summary if r["rank"] == 0 and r["metric"] == "draft_ms"] == [
        (3, "record"),
        (1, "linked_tasks"),
    ]
    segments = [
        cells(line)
        for line in section(run(path, "--table", "segments").stdout, "Segments")
        if line.startswith("|    0")
    ]
    assert sorted((row[1], row[2], row[-1]) for row in segments) == [
        ("draft", "1", "linked"), ("draft", "3", "inferred"), ("target_verify", "1", "linked"),
        ("target_verify", "3", "inferred"),
    ]  # fmt: skip
    with open_trace(path) as tp:
        text = (files("schemas") / "summaries" / "npu_step_medians.textproto").read_text()
        medians = tp.trace_summary([text]).metric_bundles[0]
    names = [spec.value for spec in medians.specs]
    for row in medians.row:
        values = dict(zip(names, row.values, strict=True))
        assert values["draft_ms"].HasField("null_value") and values["tail_ms"].double_value == pytest.approx(0.1)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    trace = report_trace(steps=10).write(tmp_path_factory.mktemp("report") / "run.pftrace")
    return report.read([trace], None, "md", report.MD_LIMITS).tables[0]


def md(tables: Tables, table: str | None = None) -> str:
    return report.to_md([tables], table, report.MD_LIMITS)


def test_vendor_times_say_whether_free_and_gap_differ(tables: Tables) -> None:
    assert "Free and gap differ" in " ".join(section(md(tables, "vendor"), "Vendor times and ours"))
    gap = tables.dicts("ranks")[0]["gap_ns"]
    columns_, rows = tables["vendor"].columns, tables["vendor"].rows
    alike = [tuple(gap if c == "free_ns" else v for c, v in zip(columns_, row, strict=True)) for row in rows]
    same = Tables("x", {**tables.results, "vendor": Result(columns_, alike)})
    facts = tables["facts"]
    cut = Tables("x", {**same.results, "facts": Result(facts.columns, [*facts.rows, (0, "cut", "window")])})
    text = " ".join(section(md(same, "vendor"), "Vendor times and ours"))
    assert "agree here" in text and "differ" not in text and "cut" not in text
    assert "The trace was cut (rank 0)" in " ".join(section(md(cut, "vendor"), "Vendor times and ours"))
    assert "cut by --window" in md(cut, "vendor")


def test_a_rank_without_recorded_waits_has_none_in_the_sum(tables: Tables) -> None:
    columns_, rows = tables["ranks"].columns, tables["ranks"].rows
    none = [tuple(None if c == "duration_wait_sum_ns" else v for c, v in zip(columns_, r, strict=True)) for r in rows]
    bare = Tables("x", {**tables.results, "ranks": Result(columns_, none)})
    line = next(line for line in section(md(bare), "Ranks") if line.startswith("|    1"))
    assert cells(line)[4] == "-"
    assert "292 years" not in md(bare)
