"""Steps out of host spans, by eye."""

from __future__ import annotations

from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from annotators.linking import link
from annotators.replay_calls import find_replays
from annotators.spans import Span, read_name
from annotators.steps import annotate
from schemas.roles import load_roles
from tests.annotators.builder import Builder, arguments, ns
from tests.annotators.records import records


def step(t: Builder, start: float, bs: int = 2, old: bool = False, batch: bool = True) -> None:
    """A step as SGLang writes it: run_batch [0, 90), draft [10, 30), verify [40, 70), copy_result_to_cpu [75, 80)."""
    main = t.thread()
    if batch:
        t.host(main, "scheduler.run_batch", start, start + 90)
    names = ("TARGET_VERIFY", "TARGET_VERIFY") if old else ("DRAFT", "VERIFY")
    t.host(main, f"step[{names[0]} bs={bs}]", start + 10, start + 30)
    t.host(main, f"step[{names[1]} bs={bs}]", start + 40, start + 70)
    t.host(main, "copy_result_to_cpu", start + 75, start + 80)


def rows(t: Builder, *args: Any, **more: Any) -> list[dict[str, Any]]:
    out = annotate(t.build(), *args, **more)
    assert out.layer is not None
    found = arguments(out.layer, "npu.step")
    assert [row.pop("step") for row in found] == list(range(len(found)))
    return found


def test_names() -> None:
    assert read_name("step[VERIFY bs=3]") == (Span.VERIFY, 3, -1, -1)
    assert read_name("step[VERIFY bs=3 g_sq=24 g_sqsq=192 g_sqsk=9 g_sk=70 forward_id=5]") == (Span.VERIFY, 3, 24, 70)
    assert read_name("step[DRAFT bs=3 new=1.5x]") == (Span.DRAFT, 3, -1, -1)
    assert read_name("step[EXTEND bs=1 toks=99]") == (Span.OTHER_STEP, 1, -1, -1)
    assert read_name("step[TARGET_VERIFY bs=2]") == (Span.VERIFY_OR_DRAFT, 2, -1, -1)
    assert read_name("step[QUANTUM_V9 bs=2 toks=3]") == (Span.OTHER_STEP, 2, -1, -1)
    assert read_name("scheduler.run_batch") == (Span.RUN_BATCH, -1, -1, -1)
    assert read_name("step_thing") is None


def test_whole_steps_from_spans_alone() -> None:
    t = Builder()
    step(t, 0, bs=2)
    step(t, 100, bs=3)
    assert rows(t) == [
        {
            "name": "step",
            "track": "Steps",
            "ts": ns(0),
            "dur": 90_000,
            "bs": 2,
            "step_wall_ns": 100_000,
            "evidence": "recorded",
        },
        {"name": "step", "track": "Steps", "ts": ns(100), "dur": 90_000, "bs": 3, "evidence": "recorded"},
    ]


def test_older_names_first_is_draft_second_is_verify() -> None:
    t = Builder()
    step(t, 0, old=True)
    step(t, 100, old=True)
    steps = annotate(t.build()).tables["steps"]
    assert steps.verify_ts.tolist() == [ns(40), ns(140)]
    assert steps.draft_ts.tolist() == [ns(10), ns(110)]


def test_cut_first_step_runs_from_draft_to_the_copy() -> None:
    for old in (False, True):
        t = Builder()
        step(t, 0, batch=False, old=old)
        step(t, 100, old=old)
        step(t, 200, old=old)
        out = rows(t)
        assert [(r["ts"], r["dur"], r["evidence"]) for r in out] == [
            (ns(10), 70_000, "inferred"),
            (ns(100), 90_000, "recorded"),
            (ns(200), 90_000, "recorded"),
        ]
        assert [r.get("step_wall_ns") for r in out] == [None, 100_000, None]


def test_cut_step_without_a_copy_ends_with_its_verify() -> None:
    t = Builder()
    main = t.thread()
    t.host(main, "step[VERIFY bs=2]", 40, 70)
    step(t, 100)
    assert [(r["ts"], r["dur"]) for r in rows(t)] == [(ns(40), 30_000), (ns(100), 90_000)]


def test_prefill_and_idle_batches_are_no_steps_and_break_the_wall() -> None:
    t = Builder()
    main = t.thread()
    step(t, 0)
    t.host(main, "scheduler.run_batch", 100, 150)
    t.host(main, "step[EXTEND bs=1 toks=50]", 110, 140)
    step(t, 200)
    t.host(main, "scheduler.run_batch", 300, 350)
    t.host(main, "step[IDLE bs=0]", 310, 340)
    out = rows(t)
    assert [r["ts"] for r in out] == [ns(0), ns(200)]
    assert "step_wall_ns" not in out[0]
    assert [r["name"] for r in rows(t, first_forward_ct=7)] == ["step 7", "step 9"]


def test_a_range_written_twice_counts_once() -> None:
    t = Builder()
    step(t, 0)
    step(t, 0)
    assert len(rows(t)) == 1


def test_cut_first_step_counts_as_one_forward() -> None:
    t = Builder()
    step(t, 0, batch=False)
    step(t, 100)
    step(t, 200)
    out = rows(t, first_forward_ct=50)
    assert [r["forward_ct"] for r in out] == [50, 51, 52]


REQUEST = {
    "prefix_len": 10,
    "verify_len": 8,
    "acc_len": 3,
    "correct_drafts": 2,
    "rid": "r-1",
    "bonus_token": 7,
    "draft_tokens": [1, 2],
}


def test_the_records_numbers_are_arguments_of_the_step() -> None:
    t = Builder()
    step(t, 0, bs=2)
    step(t, 100, bs=3)
    record = {
        "forward_ct": 41,
        "bs": 2,
        "num_verify_tokens": 16,
        "step_gpu_ms": 12.0,
        "draft_gpu_ms": 2.5,
        "target_verify_gpu_ms": 8.0,
        "reqs": [REQUEST, {**REQUEST, "acc_len": 4}],
    }
    out = annotate(t.build(), records(record, {"forward_ct": 42, "bs": 3}))
    assert out.layer is not None
    first, second = arguments(out.layer, "npu.step")
    assert first["name"] == "step 41"
    assert (first["mode"], first["num_verify_tokens"], first["unattributed_ms"]) == ("static", 16, 1.5)
    assert (first["committed_tokens"], first["avg_commit_len"]) == (7, 3.5)
    assert "committed_tokens" not in second
    assert second["forward_ct"] == 42
    counters = {
        out.layer.tracks[c.track[0]].name: list(zip(c.ts.tolist(), c.values.tolist(), strict=True))
        for c in out.layer.counters
    }
    assert counters == {
        "Unattributed step time": [(ns(0), 1500.0)],
        "Committed tokens": [(ns(0), 7)],
        "Average commit length": [(ns(0), 3.5)],
        "Verify tokens": [(ns(0), 16)],
    }
    assert out.facts["dspark"]["matched_steps"] == 2


def test_token_and_request_ids_only_where_asked_for() -> None:
    t = Builder()
    step(t, 0, bs=1)

    def keys(**more: Any) -> dict[str, Any]:
        out = annotate(t.build(), records({"forward_ct": 1, "bs": 1, "reqs": [REQUEST]}), **more)
        assert out.layer is not None
        (extra,) = out.layer.slices[0].extra or []
        event = TrackEvent.FromString(extra)
        (requests,) = event.debug_annotations
        assert requests.name == "requests"
        return {entry.name: entry for entry in requests.array_values[0].dict_entries}

    plain = keys()
    assert set(plain) == {"req_index", "prefix_len", "verify_len", "acc_len", "correct_drafts"}
    assert plain["acc_len"].int_value == 3
    assert set(keys(with_token_ids=True)) - set(plain) == {"bonus_token", "draft_tokens"}
    assert set(keys(with_request_ids=True)) - set(plain) == {"rid"}


def test_refused_records_leave_the_steps() -> None:
    t = Builder()
    step(t, 0)
    step(t, 100)
    out = annotate(t.build(), records({"forward_ct": 1, "bs": 64}))
    assert out.layer is not None
    assert [r["name"] for r in arguments(out.layer, "npu.step")] == ["step", "step"]
    assert "another run" in out.refused[0]


def test_records_without_spans_are_refused_and_a_capture_without_either_is_skipped() -> None:
    t = Builder()
    t.task("MatMul", 0, 5)
    assert annotate(t.build()).skipped == "no step[VERIFY ...] span in the host trace"
    out = annotate(t.build(), records({"forward_ct": 1, "bs": 64}))
    assert out.refused == ["1 DSpark records can't be placed: no step[VERIFY ...] span in the host trace"]


def test_forward_ct_that_disagrees_with_the_run_batch_spans_is_said() -> None:
    t = Builder()
    step(t, 0, bs=2)
    step(t, 100, bs=3)
    out = annotate(t.build(), records({"forward_ct": 1, "bs": 2}, {"forward_ct": 9, "bs": 3}))
    assert "disagree on 1 of 1" in out.warnings[-1]


def test_a_threads_own_spans_stay_apart() -> None:
    t = Builder()
    step(t, 0)
    other = t.thread("other", tid=2)
    t.host(other, "scheduler.run_batch", 0, 90)
    t.host(other, "step[VERIFY bs=9]", 5, 80)
    assert sorted(r["bs"] for r in rows(t)) == [2, 9]


def _cut(window: tuple[float, float] | None, how: str = "window") -> list[str | None]:
    """`cut` of two steps whose tasks run 50 us after their spans begin; the window as given, in us."""
    t = Builder()
    for number, start in enumerate((0, 100)):
        step(t, start)
        t.launch(10 * number, start + 15, start + 16)
        t.launch(10 * number + 1, start + 85, start + 86)
    for connection, start in ((0, 50), (1, 130), (10, 150), (11, 230)):
        t.task("k", start, start + 10, connection=connection)
    timeline = t.build()
    if window is not None:
        from converter import cut

        bounds = ns(window[0]), ns(window[1])
        cut.to_window(timeline, bounds, host_end=bounds[1] if how == "steps" else None)
        assert timeline.cut == how
    links = link(timeline, find_replays(timeline, load_roles()))
    out = annotate(timeline, links=links)
    assert out.layer is not None
    return [row.get("cut") for row in arguments(out.layer, "npu.step")]


def test_a_window_cuts_the_steps_that_it_does_not_hold_whole() -> None:
    assert _cut(None) == [None, None]
    # Nothing was submitted after the last step: whether its tasks end in the window can't be told.
    assert _cut((-10, 300)) == [None, "window"]
    assert _cut((-10, 300), "steps") == [None, None]
    assert _cut((5, 300), "steps") == ["window", None]  # its span begins before
    assert _cut((-10, 235), "steps") == [None, "window"]  # its last task ends after
    assert _cut((-10, 145)) == ["window", "window"]  # no task that was submitted later starts in the window
    assert _cut((-10, 155)) == [None, "window"]
