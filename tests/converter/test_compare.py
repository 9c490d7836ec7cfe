"""`npu-perfetto compare`: known changes are found where they are and nowhere else; conditions come first."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from converter.bootstrap import MIN_STEPS, difference_of_medians
from converter.commands.compare import command
from converter.compare import METRICS, compare, to_md
from converter.compare_facts import differences
from converter.engine import Result
from converter.report_tables import Tables
from converter.rows import text_width
from tests.converter.report_trace import CAPTURE, HOSTILE, invoke, report_trace


def run(*arguments: str) -> SimpleNamespace:
    return invoke(command, *arguments)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report_trace(steps=12).write(tmp_path_factory.mktemp("compare") / "before.pftrace")


def changed(found: dict[str, Any], rank: int | None) -> set[str]:
    return {row["metric"] for row in found["metrics"] if row["rank"] == rank and row["changed"]}


def test_a_trace_against_itself(before: str) -> None:
    done = run(before, before, "--strict", "--format", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["comparable"] and found["facts"] == []
    assert {row["difference"] for row in found["metrics"]} <= {0.0, None}
    assert not any(row["changed"] for row in found["metrics"])
    assert [row["metric"] for row in found["metrics"] if row["rank"] is None] == [m for m, _, _ in METRICS]


def test_a_longer_tail_is_found_in_its_columns_and_only_there(before: str, tmp_path: Path) -> None:
    after = report_trace(steps=12, tail_us=160).write(tmp_path / "after.pftrace")
    found = json.loads(run(before, after, "--strict", "--format", "json").stdout)
    for rank in (0, 1, None):
        assert changed(found, rank) == {"tail_ms", "unattributed_ms"}
    row = next(r for r in found["metrics"] if r["metric"] == "tail_ms" and r["rank"] is None)
    assert (row["before"], row["after"]) == (0.1, 0.16)
    assert row["difference"] == pytest.approx(0.06)
    assert row["low"] <= row["difference"] <= row["high"]
    assert (row["steps_before"], row["steps_after"]) == (24, 24)


def test_a_wider_verify_is_another_condition(before: str, tmp_path: Path) -> None:
    after = report_trace(steps=12, width=6).write(tmp_path / "after.pftrace")
    done = run(before, after, "--strict")
    assert done.returncode == 3
    differs = done.stdout.split("## Medians")[0]
    assert "| verify width of the steps | 4      | 6     | yes       |" in differs
    assert "Conditions differ (verify width of the steps)" in differs
    assert run(before, after).returncode == 0
    allowed = run(before, after, "--strict", "--under-test", "verify width of the steps")
    assert allowed.returncode == 0 and "under test" in allowed.stdout


def test_batch_sizes_that_differ_a_little_are_no_other_condition(before: str, tmp_path: Path) -> None:
    more = report_trace(steps=12, bs=5).write(tmp_path / "more.pftrace")
    assert run(before, more, "--strict").returncode == 3
    rows = [{"rank": 0, "forward_ct": i, "bs": 40, "num_verify_tokens": 160} for i in range(20)]
    other = [dict(row, bs=41, num_verify_tokens=164) if row["forward_ct"] < 5 else row for row in rows]
    found = differences(_tables(rows), _tables(other))
    assert [(d.key, d.matters) for d in found] == [("batch sizes", False)]


def _tables(rows: list[dict[str, Any]]) -> Tables:
    columns = list(rows[0])
    steps = Result(columns, [tuple(row[c] for c in columns) for row in rows])
    return Tables("x", {"steps": steps, "facts": Result(["rank", "key", "value"], [(0, "capture.a", "1")])})


@pytest.mark.parametrize(
    ("change", "what", "status"),
    [
        ({"capture": {**CAPTURE, "profiler_level": "Level2"}}, "profiler level", 3),
        ({"capture": {**CAPTURE, "with_stack": True}}, "stack", 3),
        ({"capture": {**CAPTURE, "cann_version": "8.5"}}, "CANN", 3),
        ({"capture": {**CAPTURE, "hostname": "other"}}, "hostname", 0),
        ({"run": {"sglang_commit": "abc"}}, "run sglang_commit", 3),
        ({"ranks": (0,)}, "ranks", 3),
    ],
)
def test_what_differs_is_above_the_numbers(
    before: str, tmp_path: Path, change: dict[str, Any], what: str, status: int
) -> None:
    after = report_trace(steps=12, **change).write(tmp_path / "after.pftrace")
    done = run(before, after, "--strict")
    assert done.returncode == status
    row = next(line for line in done.stdout.split("## Medians")[0].splitlines() if line.startswith(f"| {what}"))
    assert row.rstrip("| ").endswith("yes" if status else "no")


def test_a_fact_under_test_is_named_in_full_or_by_its_last_part(before: str, tmp_path: Path) -> None:
    after = report_trace(steps=12, run={"sglang_commit": "abc"}).write(tmp_path / "after.pftrace")
    for name in ("sglang_commit", "run.sglang_commit", "run sglang_commit"):
        assert run(before, after, "--strict", "--under-test", name).returncode == 0


def test_too_few_steps_are_said(before: str, tmp_path: Path) -> None:
    after = report_trace(steps=5).write(tmp_path / "after.pftrace")
    text = run(before, after).stdout
    assert f"a rank has 5, at least {MIN_STEPS} are needed" in text
    assert f"under {MIN_STEPS} steps" in text
    found = json.loads(run(before, after, "--format", "json").stdout)
    assert {row["changed"] for row in found["metrics"]} == {None}


def test_a_trace_without_steps(before: str, tmp_path: Path) -> None:
    after = report_trace(steps=0).write(tmp_path / "after.pftrace")
    done = run(before, after, "--strict")
    assert done.returncode == 3
    text = " ".join(done.stdout.split())
    assert "after.pftrace has no steps" in text and "the same work" in text
    # Its ranks have times of their own: an empty window here.
    assert "| 0 | wall ms |" in text and "| 1 | gap ms |" in text


def test_ranks_are_compared_where_no_trace_has_steps() -> None:
    def tables(name: str, **ns: int) -> Tables:
        row = {"rank": 3, "wall_ns": 10_000_000, "busy_union_ns": 9_000_000, "gap_ns": 1_000_000} | ns
        facts = Result(["rank", "key", "value"], [(3, "a", "1")])
        return Tables(name, {"ranks": Result(list(row), [tuple(row.values())]), "facts": facts})

    c = compare(tables("x"), tables("y", busy_union_ns=8_500_000, gap_ns=1_500_000))
    assert [(r.rank, r.metric, r.before, r.after, r.difference) for r in c.rows] == [
        (3, "wall_ms", 10.0, 10.0, 0.0),
        (3, "busy_union_ms", 9.0, 8.5, -0.5),
        (3, "gap_ms", 1.0, 1.5, 0.5),
    ]
    assert "Times of the ranks" in to_md(c) and not c.strict_failure()
    assert compare(tables("x"), tables("y", rank=4)).rows == []


def test_nothing_in_common_leaves_with_1(tmp_path: Path) -> None:
    paths = [report_trace((r,), steps=0).write(tmp_path / f"{r}.pftrace") for r in (0, 1)]
    done = run(*paths)
    assert done.returncode == 1 and "nothing in common to compare" in done.stderr
    assert "there is nothing to compare" in " ".join(done.stdout.split())


def test_two_measurements_have_no_difference(before: str, tmp_path: Path) -> None:
    """draft and verify from records on one side and from linked tasks on the other, or on one side both."""
    without = report_trace(steps=12, unrecorded=tuple(range(12))).write(tmp_path / "without.pftrace")
    mixed = report_trace(steps=12, unrecorded=(3,)).write(tmp_path / "mixed.pftrace")
    for after, words in ((without, "before from records, after from linked tasks"), (mixed, "after both kinds")):
        found = json.loads(run(before, after, "--format", "json").stdout)
        for row in found["metrics"]:
            if row["metric"] in ("draft_ms", "verify_ms"):
                assert (row["difference"], row["low"], row["changed"]) == (None, None, None)
                assert words in row["refused"]
                assert (row["before"] is None, row["after"] is None) == (False, after == mixed)
            else:
                assert row["refused"] is None
        text = run(before, after).stdout
        assert "two measurements" in next(line for line in text.splitlines() if line.startswith("| draft ms"))
    assert all(r["refused"] is None for r in json.loads(run(without, without, "--format", "json").stdout)["metrics"])


@pytest.mark.parametrize("name", ["export_type", "db_schema_version", "db_tables_not_read"])
def test_how_it_was_exported_is_no_condition(before: str, tmp_path: Path, name: str) -> None:
    after = report_trace(steps=12, capture={**CAPTURE, name: "other"}).write(tmp_path / "after.pftrace")
    assert run(before, after, "--strict").returncode == 0


def test_csv_has_the_run_with_an_empty_rank(before: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run(before, before, "--format", "csv").stdout)))
    assert [r["rank"] for r in rows if r["metric"] == "tail_ms"] == ["0", "1", ""]
    assert {r["changed"] for r in rows if r["metric"] != "pre_replay_gap_ms"} == {"false"}


def test_it_fits_and_is_inert(before: str, tmp_path: Path) -> None:
    after = report_trace(steps=12, run={"note": HOSTILE * 3}).write(tmp_path / "after.pftrace")
    text = run(before, after).stdout
    assert max(map(text_width, text.splitlines())) <= 120
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text


def test_steps_of_ranks_are_paired_by_number() -> None:
    def tables(shift: float) -> Tables:
        names = [m for m, _, _ in METRICS]
        columns = ["rank", "forward_ct", "bs", "num_verify_tokens", "draft_source", "verify_source", *names]
        rows = [(r, i, 1, 4, "record", "record", *[i + shift] * len(names)) for r in (0, 1) for i in range(r, 20)]
        return Tables("x", {"steps": Result(columns, rows), "facts": Result(["rank", "key", "value"], [(0, "a", "1")])})

    c = compare(tables(0), tables(100))
    run_row = next(r for r in c.rows if r.rank is None)
    assert (run_row.steps_before, run_row.difference, run_row.changed) == (39, 100, True)
    assert "All ranks: medians of single ranks" in to_md(c)  # not figures of the run: tokens/s is of one rank


def test_missing_file(tmp_path: Path) -> None:
    assert run(str(tmp_path / "absent"), __file__).returncode == 2


def test_bootstrap_is_deterministic_and_holds_constants() -> None:
    same = np.full((10, 1), 3.0)
    found = difference_of_medians(same, same + 1)
    assert found is not None and (found.low, found.high) == (1.0, 1.0)
    noise = np.random.default_rng(1).normal(size=(40, 2))
    assert difference_of_medians(noise, noise + 1) == difference_of_medians(noise, noise + 1)
    assert difference_of_medians(noise[: MIN_STEPS - 1], noise) is None
    holes = np.vstack([noise[: MIN_STEPS - 1], np.full((5, 2), np.nan)])
    assert difference_of_medians(holes, noise) is None


def test_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(150):
        found = difference_of_medians(rng.normal(size=(40, 1)), rng.normal(0.5, size=(40, 1)), draws=400)
        assert found is not None
        hits += found.low <= 0.5 <= found.high
    assert 0.88 <= hits / 150 <= 1.0


def test_ranks_that_move_together_do_not_make_it_surer() -> None:
    one = np.random.default_rng(3).normal(size=(60, 1))
    two = np.random.default_rng(4).normal(size=(60, 1))
    alone = difference_of_medians(one, two)
    together = difference_of_medians(np.repeat(one, 8, axis=1), np.repeat(two, 8, axis=1))
    assert alone is not None and together is not None
    assert together.high - together.low == pytest.approx(alone.high - alone.low, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "must", "may"),
    [
        (["--commit-us", "60"], {"tail_ms", "unattributed_ms"}, {"step_wall_ms", "effective_tpot_ms", "tokens_per_s"}),
        (
            ["--host-delay-us", "900"],
            {"pre_replay_gap_ms", "gap_ms"},
            # The delay lies between the events of target_verify, so the recorded segment is longer too.
            {"verify_ms", "step_wall_ms", "unattributed_ms", "effective_tpot_ms", "tokens_per_s"},
        ),
        (["--gamma", "5"], {"verify width of the steps"}, {"avg_commit_len", "effective_tpot_ms", "tokens_per_s"}),
    ],
)
def test_simulated_changes_are_told_apart(tmp_path: Path, options: list[str], must: set[str], may: set[str]) -> None:
    traces = []
    for name, extra in (("before", []), ("after", options)):
        folder = tmp_path / name
        _tool("sample", str(folder), "--ranks", "2", "--steps", "20", *extra)
        traces.append(str(tmp_path / f"{name}.pftrace"))
        _tool("convert", str(folder), "--dspark", str(folder / "server_info.json"), "-o", traces[-1], "-q")
    found = json.loads(run(*traces, "--format", "json").stdout)
    marked = changed(found, None) | {d["key"] for d in found["facts"] if d["matters"]}
    assert must <= marked
    facts = {d["key"] for d in found["facts"]}
    assert changed(found, None) - must <= may
    if "--gamma" in options:
        assert {"dspark.gamma", "dspark.verify_num_draft_tokens"} <= facts


def _tool(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "converter", *arguments], check=True, capture_output=True)
