"""What `open` shows, asked of the UI itself in a headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from converter.engine import open_trace
from converter.ui_queries import longest_gaps, step_report
from tests.browser.conftest import Open, Opened
from tests.browser.small_trace import PERIOD_NS, START_NS, STEP_NS, small_trace

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "dspark_two_ranks"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("open") / "small <b>run<i>.pftrace"
    path.write_bytes(small_trace())
    return path


def converted(inputs: list[str], folder: Path) -> Path:
    from converter.batch import run
    from converter.request import Request

    out = folder / "out.pftrace"
    records = SAMPLE / "server_info.json"
    dspark = [str(records)] if str(SAMPLE) in inputs else []
    assert run(Request(inputs=inputs, output=str(out), dspark=dspark, quiet=True)) == 0
    return out


def check_loaded(shown: Opened, trace: Path) -> None:
    """The page holds what the trace holds, complained of nothing and reached no other server."""
    with open_trace(trace) as tp:
        for sql in (
            "SELECT count(*), sum(dur), min(ts) FROM slice",
            "SELECT count(*) FROM counter",
            "SELECT count(*) FROM flow",
            "SELECT category, count(*) FROM slice GROUP BY 1 ORDER BY 1",
        ):
            assert shown.rows(sql) == [[None if v is None else str(v) for v in row] for row in tp.rows(sql)]
    assert shown.complaints == []
    assert [url for url in shown.reached if not url.startswith((shown.server_url, "blob:", "data:"))] == []
    start, end = shown.view.visible or (0, 0)
    a, b = shown.visible()
    assert abs(a - start) <= 1000 and abs(b - end) <= 1000  # the UI rounds to its pixels' fractions


def test_both_ranks_with_the_slowest_step(open_page: Open, small: Path) -> None:
    shown = open_page(small)
    check_loaded(shown, small)
    slowest = START_NS + PERIOD_NS
    assert shown.visible()[0] < slowest < slowest + STEP_NS[1] < shown.visible()[1]
    workspace = shown.workspace()
    assert workspace["title"] == "Default Workspace"
    assert workspace["pinned"] == ["Steps", "Segments", "Steps", "Segments"]
    assert {"Rank 0 · DSpark", "Rank 1 · DSpark", "Rank 0 1000", "Rank 0 1000 > NPU 0"} <= set(workspace["expanded"])
    assert "DSpark" in workspace["all"]


def test_one_step_of_one_rank(open_page: Open, small: Path) -> None:
    shown = open_page(small, step=102, ranks=(1,))
    check_loaded(shown, small)
    a, b = shown.visible()
    assert START_NS + PERIOD_NS < a < START_NS + 2 * PERIOD_NS + 100 < b < START_NS + 3 * PERIOD_NS + STEP_NS[3]
    workspace = shown.workspace()
    assert workspace["title"] == "Rank 1"
    assert workspace["pinned"] == ["Steps", "Segments", "Eager tail", "Gaps"]
    assert {path.split(" > ")[0] for path in workspace["paths"]} == {"Rank 1 · DSpark", "Rank 1 1001"}
    assert "Rank 1 1001 > NPU 0 > Stream 2" in workspace["paths"]
    assert workspace["all"] == ["Default Workspace", "DSpark", "Rank 1"]


def test_the_annotations_have_a_workspace(open_page: Open, small: Path) -> None:
    shown = open_page(small)
    shown.page.evaluate(
        """() => { const w = self.app.trace.workspaces;
        w.switchWorkspace(w.all.find((x) => x.title === 'DSpark')); }"""
    )
    paths = shown.workspace()["paths"]
    assert {path.split(" > ")[0] for path in paths} == {"Rank 0 · DSpark", "Rank 1 · DSpark"}
    assert "Rank 0 · DSpark > Eager tail" in paths


@pytest.mark.slow
def test_without_steps_the_gaps(open_page: Open, tmp_path: Path) -> None:
    trace = tmp_path / "gaps.pftrace"
    trace.write_bytes(small_trace(ranks=1, steps=False))
    shown = open_page(trace)
    assert shown.workspace()["pinned"] == ["Gaps"]
    assert shown.page.get_by_text("gap_us").first.is_visible()
    assert shown.complaints == []


@pytest.mark.slow
def test_of_twelve_ranks_those_asked_for(open_page: Open, tmp_path: Path) -> None:
    """Rank 1 must not bring ranks 10 and 11 with it."""
    trace = tmp_path / "twelve.pftrace"
    trace.write_bytes(small_trace(ranks=12))
    workspace = open_page(trace, ranks=(1, 2)).workspace()
    assert workspace["title"] == "Ranks 1 to 2"
    roots = {path.split(" > ")[0] for path in workspace["paths"]}
    assert roots == {"Rank 1 · DSpark", "Rank 2 · DSpark", "Rank 1 1001", "Rank 2 1002"}


def test_a_name_of_the_trace_is_text(open_page: Open, small: Path) -> None:
    assert open_page(small).page.evaluate("() => document.querySelectorAll('b, i.pftrace').length") == 0


@pytest.mark.slow
def test_the_shipped_sample(open_page: Open, tmp_path: Path) -> None:
    trace = converted([str(SAMPLE)], tmp_path)
    assert same_report(trace) > 0
    shown = open_page(trace)
    check_loaded(shown, trace)
    names = {name.rsplit(" > ", 1)[-1] for name in shown.workspace()["paths"] if name.startswith("Rank 0 · DSpark > ")}
    expected = [name for name in ("Steps", "Segments") if name in names] or ["Gaps"]
    assert shown.workspace()["pinned"] == expected * 2


@pytest.mark.slow
def test_a_real_capture(open_page: Open, shared: Path, tmp_path: Path) -> None:
    trace = converted([str(shared / "captures" / "train_cann83_level2" / "rank_0_ascend_pt")], tmp_path)
    shown = open_page(trace)
    check_loaded(shown, trace)
    assert shown.workspace()["pinned"] == ["Gaps"]


def same_report(trace: Path) -> int:
    """The SQL in the link against the package's own; the number of rows."""
    with open_trace(trace) as tp:
        short = tp.rows(step_report())
        long = tp.rows(
            "INCLUDE PERFETTO MODULE npu.report; SELECT rank, forward_ct, bs, step_wall_ms, step_gpu_ms, draft_ms, "
            "verify_ms, unattributed_ms, tail_ms, exposed_comm_ms, pre_replay_gap_ms, gap_ms, avg_commit_len, "
            "effective_tpot_ms, tokens_per_s FROM npu_step_report"
        )
    for got, want in zip(short, long, strict=True):
        assert got[:-3] == pytest.approx(want[:-1], abs=0.0006)
        assert got[-3] == pytest.approx(want[-1], abs=0.06)
    return len(long)


def test_the_tables_are_those_of_the_package(small: Path) -> None:
    assert same_report(small) == 8
    with open_trace(small) as tp:
        assert {row[0] for row in tp.rows(step_report([1]))} == {1}
        gaps = tp.query(longest_gaps())
        assert dict(zip(gaps.columns, gaps.rows[0], strict=True))["prev_name"] == "MatMul"
        assert {row[0] for row in gaps.rows} == {0, 1}
        assert {row[0] for row in tp.rows(longest_gaps([1]))} == {1}
