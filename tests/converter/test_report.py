"""`npu-perfetto report`: exact figures for programs, rounded and escaped ones for people."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from annotators.times import IDEALISATION, NOT_RECOVERABLE
from converter import report
from converter.commands.report import command
from converter.report_md import cut_middle, escape, grid_to_md
from converter.report_tables import TABLES, Tables
from converter.report_view import Grid, columns, number, spread
from converter.rows import text_width
from tests.converter.report_trace import BASE, HOSTILE, cells, invoke, report_trace, section

STEPS = 10
FORBIDDEN = re.compile(r"\b(idle time|idle|wasted?|recoverable|caused|the cause|culprit)\b", re.IGNORECASE)


def run(*arguments: str) -> SimpleNamespace:
    return invoke(command, *arguments)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report_trace(steps=STEPS).write(tmp_path_factory.mktemp("report") / "run.pftrace")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    t = report_trace(ranks=(0,), steps=3, name=HOSTILE, run={"note": HOSTILE}, capture={"cann_version": HOSTILE})
    return t.write(tmp_path_factory.mktemp("report") / "hostile.pftrace")


@pytest.fixture(scope="module")
def tables(trace: str) -> Tables:
    return report.read([trace], None, "html", report.MD_LIMITS).tables[0]


def md(tables: Tables, table: str | None = None) -> str:
    return report.to_md([tables], table, report.MD_LIMITS)


def test_whole_report_fits_and_starts_with_its_scope(tables: Tables) -> None:
    text = md(tables)
    assert max(map(text_width, text.splitlines())) <= 120
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles[:3] == ["Capture facts", "Ranks", "Vendor times and ours"]
    assert titles[-1] == "Not in this trace"
    facts = "\n".join(section(text, "Capture facts"))
    for line in ("- ranks: 0, 1; the whole set is not declared", "- profiler level: Level1", "- on: shapes", "- off: stack",
                 "- CANN: 8.3.RC1", "- not recorded: Python stacks"):  # fmt: skip
        assert line in facts
    assert "Collection perturbs the timeline: record_shapes on" in facts
    assert "no pair of runs" in facts.replace("\n", " ")
    assert "Refused, all ranks, group gaps: rank 1 is not aligned" in facts
    assert "- Graph replays: no graph replay (ranks 0, 1)." in text


def test_every_table_has_its_scope_too(tables: Tables) -> None:
    for name in TABLES:
        assert "## Capture facts" in md(tables, name)


def test_words(tables: Tables) -> None:
    text = md(tables).replace("\n", " ").replace(NOT_RECOVERABLE, "").replace("not recoverable", "")
    assert not FORBIDDEN.search(text)
    assert NOT_RECOVERABLE in " ".join(section(md(tables), "Ranks"))
    assert "bore" in text
    ranks = " ".join(section(md(tables), "Ranks"))
    assert "more throughput" in ranks and IDEALISATION in ranks and "not a forecast" in ranks


def test_the_four_times_by_hand(tables: Tables) -> None:
    wall = STEPS * 1_000_000 + 10_000 * sum(range(STEPS))
    gap = STEPS * 50_000 + 1_000 * sum(range(STEPS))
    line = next(line for line in section(md(tables), "Ranks") if line.startswith("|    1"))
    assert cells(line) == [
        "1", "20", f"{wall / 1e6:.3f}", f"{(wall + 7) / 1e6:.3f}", f"{(wall + 9) / 1e6:.3f}", f"{(wall - gap) / 1e6:.3f}",
        f"{gap / 1e6:.3f}", f"{100 * gap / wall:.2f}",
    ]  # fmt: skip


def test_gaps_longest_first_with_what_bore_the_wait(tables: Tables) -> None:
    lines = section(md(tables), "Gaps")
    first = cells(next(line for line in lines if line.startswith("|    0")))
    at = 9 * 1_000_000 + 10_000 * sum(range(9)) + 300_000
    assert first == ["0", f"{at / 1e6:.3f}", "59.0", "k", "k2", "59.0", "10.0", "aten::to 50 %"]
    assert "The 10 longest of 20 gaps" in lines
    assert any("refused, rank 1 is not aligned" in line for line in lines)


def test_step_table_and_summary_by_hand(tables: Tables) -> None:
    lines = section(md(tables), "Steps")
    rank0 = lines[lines.index("Rank 0, 10 steps") + 2 :]
    heads = cells(rank0[0])
    walls = [1.0 + 0.01 * i for i in range(STEPS - 1)]
    row = dict(zip(heads, cells(rank0[2]), strict=True))
    commit = 2.0
    assert row == {
        "step": "100", "bs": "4", "tok": "16", "wall": "1.000", "draft": "0.200", "verify": "0.400", "outside": "0.200",
        "tail": "0.100", "exposed": "0.020", "replay": "-", "gaps": "0.050", "commit": f"{commit:.2f}",
        "TPOT": f"{1.0 / commit:.3f}", "tok/s": "8,000",
    }  # fmt: skip
    last = dict(zip(heads, cells(rank0[1 + STEPS]), strict=True))
    assert (last["step"], last["wall"], last["TPOT"]) == ("109", "-", "-")
    count, median, p90, top = (dict(zip(heads, cells(line), strict=True)) for line in rank0[2 + STEPS : 6 + STEPS])
    assert (count["step"], count["wall"], count["gaps"], count["replay"]) == ("count", "9", "10", "0")
    assert median["wall"] == f"{statistics.median(walls):.3f}"
    assert p90["wall"] == f"{statistics.quantiles(walls, n=10, method='inclusive')[8]:.3f}"
    assert top["wall"] == f"{max(walls):.3f}"


def test_spread_against_the_standard_library() -> None:
    values = [3.0, None, 1.0, 2.5, 9.0, 4.0, None, 7.0]
    known = [v for v in values if v is not None]
    got = spread(values)
    assert (got.count, got.median, got.max) == (6, statistics.median(known), 9.0)
    assert got.p90 == pytest.approx(statistics.quantiles(known, n=10, method="inclusive")[8])
    assert spread([None]).median is None


def test_csv_is_the_sql_table(trace: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run(trace, "--table", "ranks", "--format", "csv").stdout)))
    assert [row["rank"] for row in rows] == ["0", "1"]
    assert rows[0]["window_ts"] == str(BASE) and rows[0]["kernel_count"] == "20"
    steps = list(csv.DictReader(io.StringIO(run(trace, "--table", "steps", "--format", "csv").stdout)))
    assert len(steps) == 2 * STEPS and steps[STEPS - 1]["step_wall_ms"] == ""


def test_json_holds_every_table_exact(trace: str) -> None:
    done = run(trace, "--format", "json")
    found = json.loads(done.stdout)
    assert set(TABLES) <= set(found) and {"facts", "steps_summary", "group_gaps", "deepep_peers"} <= set(found)
    assert found["ranks"][1]["window_ts"] == BASE
    assert found["replays"] == []
    assert len(found["gaps"]) == 2 * STEPS
    summary = {(r["rank"], r["metric"]): r for r in found["steps_summary"]}
    assert summary[(None, "step_wall_ms")]["count"] == 2 * (STEPS - 1)
    assert summary[(0, "avg_commit_len")]["median"] == pytest.approx((8 + 4.5) / 4)
    assert json.loads(run(trace, "--table", "vendor", "--format", "json").stdout) == found["vendor"]


def test_several_traces_have_a_trace_column_and_a_section_each(trace: str, hostile: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run(trace, hostile, "--table", "clocks", "--format", "csv").stdout)))
    assert [(row["trace"], row["rank"]) for row in rows] == [(trace, "0"), (trace, "1"), (hostile, "0")]
    assert run(trace, hostile).stdout.count("# Report of ") == 2


def test_steps_without_a_forward_ct_are_counted(tmp_path: Path) -> None:
    path = report_trace(ranks=(0,), steps=3, numbered=False).write(tmp_path / "x.pftrace")
    text = run(path, "--table", "steps").stdout
    assert "forward_ct is not known, steps are counted from 0" in text
    assert [cells(line)[0] for line in section(text, "Steps") if re.match(r"\|\s+\d", line)] == ["0", "1", "2"]


def test_many_steps_show_the_longest(tmp_path: Path) -> None:
    path = report_trace(ranks=(0,), steps=60).write(tmp_path / "x.pftrace")
    text = run(path, "--table", "steps", "--top", "5").stdout
    shown = [cells(line)[0] for line in section(text, "Steps") if re.match(r"\|\s+\d", line)]
    assert shown == ["154", "155", "156", "157", "158"]
    assert "Rank 0, 60 steps, the 5 longest shown" in text


def test_hostile_names_are_inert_in_markdown(hostile: str) -> None:
    text = run(hostile).stdout
    for active in ("<script", "\x1b", "\u202e", "](javascript", "@you"):
        assert active not in text.replace(r"\]", "").replace("&#64;", "")
    assert "&lt;script" in text
    for line in text.splitlines():
        if line.startswith("|"):  # every bar that is no border is escaped
            assert len(re.findall(r"(?<!\\)\|", line)) == len(re.findall(r"(?<!\\)\|", line.replace("\\|", "")))
    heads = [line for line in text.splitlines() if line.startswith("| rank | task before")]
    body = text.splitlines()[text.splitlines().index(heads[0]) + 2]
    assert len(re.findall(r"(?<!\\)\|", body)) == len(re.findall(r"(?<!\\)\|", heads[0]))


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for key, value in attrs:
            if key in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
                self.links.append(value or "")
            if key.startswith("on"):
                self.handlers.append(key)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("which", ["trace", "hostile"])
def test_html_is_one_inert_page(which: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("matplotlib")
    done = run(request.getfixturevalue(which), "--format", "html")
    assert (done.returncode, done.stderr) == (0, "")
    page = Elements()
    page.feed(done.stdout)
    assert not {"script", "img", "iframe", "object", "embed", "form", "base", "link", "image", "foreignobject"} & set(
        page.tags
    )
    assert page.handlers == []
    assert all(link.startswith("#") for link in page.links)
    assert "url(http" not in done.stdout and "@import" not in done.stdout
    assert "default-src 'none'" in done.stdout.replace("&#x27;", "'")
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", done.stdout)
    assert page.tags.count("svg") == 2
    ids = re.findall(r'\sid="([^"]*)"', done.stdout)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in page.links} <= set(ids)
    assert "--step 100 --rank 0" in "".join(page.text)


def test_html_is_the_same_every_time(trace: str) -> None:
    pytest.importorskip("matplotlib")
    assert run(trace, "--format", "html").stdout == run(trace, "--format", "html").stdout


def test_gap_share_of_the_chart_against_brute_force(tables: Tables) -> None:
    np = pytest.importorskip("numpy")
    charts = pytest.importorskip("converter.report_charts", reason="matplotlib is not installed")
    gaps = [(ts - BASE, dur) for rank, ts, dur in tables["gap_times"].rows if rank == 0]
    wall = tables.dicts("ranks")[0]["wall_ns"]
    edges = np.linspace(0, wall * 1.1, 51)
    got = charts._gap_share(tables, 0, edges, 0, wall, BASE)
    for low, high, share in zip(edges[:-1], edges[1:], got, strict=True):
        inside = min(high, wall) - low
        covered = sum(max(0, min(high, ts + dur) - max(low, ts)) for ts, dur in gaps)
        assert np.isnan(share) if inside <= 0 else share == pytest.approx(covered / inside, abs=1e-6)


def test_a_foreign_trace_is_refused_and_the_others_reported(trace: str, tmp_path: Path) -> None:
    from tests.trace_builder import TraceBuilder

    t = TraceBuilder()
    t.slice(t.track("t"), 5, 5, "x", "y")
    foreign = t.write(tmp_path / "foreign.pftrace")
    done = run(foreign, trace, "--table", "clocks", "--format", "json")
    assert done.returncode == 1 and len(json.loads(done.stdout)) == 2
    assert f"{foreign}: holds nothing that npu-perfetto wrote; convert the capture" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["absent.pftrace"], "absent.pftrace: no such file"),
        ([__file__, "--format", "csv"], "csv holds one table"),
        ([__file__, "--format", "json", "--top", "3"], "--top is for md and html"),
    ],
)
def test_usage(arguments: list[str], what: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a_b_c", "a_b_c"),
        ("_finalize_accept_kernel", "_finalize_accept_kernel"),
        ("_em_ x", r"\_em_ x"),
        ("a|b*c`d", r"a\|b\*c\`d"),
        ("x->y", "x->y"),
        ("&lt;b>", "&amp;lt;b&gt;"),
        ("AscendCL@aclrt @user", "AscendCL@aclrt &#64;user"),
        ("http://x.y www.z", r"http\://x.y www\.z"),
    ],
)
def test_escape(text: str, want: str) -> None:
    assert escape(text) == want


def test_names_are_cut_in_the_middle_and_rows_stay_aligned() -> None:
    assert cut_middle("aclnnMatmul_MatMulV3Common_MatMulV3", 11) == "aclnn…MulV3"
    assert text_width(cut_middle("模型模型模型模型", 7)) <= 7
    grid = Grid(("rank", "name"), [["1", "模型" * 40], ["20", "<>" * 60]], names=columns(1), text=columns(1))
    lines = grid_to_md(grid, 60).splitlines()
    assert {text_width(line) for line in lines} == {60} or max(map(text_width, lines)) <= 60
    assert len({text_width(line) for line in lines}) == 1


def test_numbers_have_no_negative_zero() -> None:
    assert [number(-0.0004, 3), number(-1234.5, 1), number(None)] == ["0.000", "-1,234.5", "-"]


def test_summaries_of_the_engine_give_the_same_medians(trace: str, tables: Tables) -> None:
    from importlib.resources import files

    from converter.engine import open_trace

    folder = files("schemas") / "summaries"
    with open_trace(trace) as tp:
        medians = tp.trace_summary([(folder / "npu_step_medians.textproto").read_text()]).metric_bundles[0]
        ranks = tp.trace_summary([(folder / "npu_ranks.textproto").read_text()]).metric_bundles[0]
        steps = tp.trace_summary([(folder / "npu_steps.textproto").read_text()]).metric_bundles[0]
    names = [spec.value for spec in medians.specs]
    for row in medians.row:
        mine = [s for s in tables.dicts("steps") if s["rank"] == row.dimension[0].int64_value]
        for name, value in zip(names, row.values, strict=True):
            known = [s[name] for s in mine if s[name] is not None]
            if known:
                assert value.double_value == pytest.approx(statistics.median(known))
            else:
                assert value.HasField("null_value")
    assert [row.values[0].double_value for row in ranks.row] == [r["wall_ns"] for r in tables.dicts("ranks")]
    assert len(steps.row) == 2 * STEPS
