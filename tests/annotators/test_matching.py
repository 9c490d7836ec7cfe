"""Records to steps: unique or refused. Small cases by eye, and a brute force over every shift."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.matching import Match, match
from schemas.timeline import NULL
from tests.annotators.records import records


def run(
    rows: list[dict[str, Any]],
    bs: list[int],
    start_ms: list[float] | None = None,
    g_sq: list[int] | None = None,
    g_sk: list[int] | None = None,
    first: int | None = None,
    counted: list[int] | None = None,
    **more: Any,
) -> Match:
    n = len(bs)
    empty = [NULL] * n
    gaps = np.full(n, np.nan) if start_ms is None else np.concatenate(([np.nan], np.diff(start_ms)))
    return match(
        records(*rows, **more),
        np.array(bs, np.int64),
        np.array(g_sq or empty, np.int64),
        np.array(g_sk or empty, np.int64),
        gaps,
        np.arange(n, dtype=np.int64) if counted is None else np.array(counted, np.int64),
        first,
    )


def of_bs(*sizes: int, first: int = 10, cpu: list[float] | None = None) -> list[dict[str, Any]]:
    rows = [{"forward_ct": first + i, "bs": bs} for i, bs in enumerate(sizes)]
    for row, ms in zip(rows, cpu or [], strict=False):
        row["step_cpu_ms"] = ms  # type: ignore[assignment]
    return rows


def test_bs_alone_can_be_unique() -> None:
    found = run(of_bs(4, 4, 2, 3, 2, 5, 5), [2, 3, 2])
    assert (found.shift, found.matched, found.unmatched_steps) == (2, 3, 0)
    assert (found.records_before, found.records_after, found.candidates) == (2, 2, 1)
    # 2, 3, 2 among 4 4 2 3 2 5 5: 2/7 x 1/7 x 2/7 at each of five places
    assert "would fit by chance in about 6% of cases" in found.warnings[0]


def test_many_batch_sizes_in_a_row_are_telling() -> None:
    sizes = [1, 5, 2, 4, 3, 6, 2, 7]
    assert not run(of_bs(9, 9, *sizes, 8, 8), sizes).warnings


def test_records_that_end_before_the_capture_does() -> None:
    found = run(of_bs(1, 2, 3), [2, 3, 4])
    assert (found.shift, found.matched, found.unmatched_steps, found.records_before) == (1, 2, 1, 1)


def test_records_that_begin_after_the_capture_did() -> None:
    found = run(of_bs(3, 4, 9), [2, 3, 4])
    assert (found.shift, found.matched, found.unmatched_steps, found.records_after) == (-1, 2, 1, 1)


def test_prefill_leaves_a_hole_in_forward_ct_but_none_in_the_lists() -> None:
    rows = [{"forward_ct": n, "bs": bs} for n, bs in ((5, 2), (6, 3), (9, 4), (10, 3))]
    assert run(rows, [3, 4, 3]).shift == 1


def test_identical_steps_are_refused_and_the_flag_is_named() -> None:
    found = run(of_bs(*[2] * 12), [2] * 5)
    assert found.shift is None
    assert found.candidates == 8
    assert found.unmatched_records == 12
    assert "ambiguous" in found.refused
    assert "--first-forward-ct" in found.refused


def test_the_users_word_decides() -> None:
    found = run(of_bs(*[2] * 12), [2] * 5, first=13)
    assert (found.shift, found.matched) == (3, 5)
    assert not found.warnings


def test_the_users_word_against_bs_is_taken_and_said() -> None:
    found = run(of_bs(1, 2, 3, 4), [1, 2], first=11)
    assert found.shift == 1
    assert "bs differs from the record in 2 of 2 steps" in found.warnings[0]


def test_the_users_word_where_the_first_record_comes_later() -> None:
    found = run(of_bs(7, 8, first=12), [5, 6, 7, 8], first=10)
    assert (found.shift, found.matched, found.unmatched_steps) == (-2, 2, 2)


def test_the_users_word_beyond_the_records_is_refused() -> None:
    found = run(of_bs(2, 2), [2, 2], first=100)
    assert found.shift is None
    assert "go from 10 to 11" in found.refused


def test_step_cpu_ms_decides_where_it_is_three_times_better() -> None:
    cpu = [20.0, 21.0, 25.0, 22.0, 28.0, 20.0]
    found = run(of_bs(*[2] * 6, cpu=cpu), [2] * 3, start_ms=[0.0, 22.1, 50.0])  # 22.1, 27.9
    assert found.shift == 2
    assert found.score_ms == pytest.approx(0.1)
    assert found.runner_up_ms is not None
    assert found.runner_up_ms >= 3 * found.score_ms


def test_step_cpu_ms_that_is_not_clear_enough_is_refused_with_both_scores() -> None:
    found = run(of_bs(*[2] * 4, cpu=[20.0, 20.2, 20.1, 20.0]), [2] * 2, start_ms=[0.0, 20.14])
    assert found.shift is None
    assert found.score_ms == pytest.approx(0.04)
    assert found.runner_up_ms == pytest.approx(0.06)


def test_two_equally_good_shifts_are_refused() -> None:
    assert run(of_bs(2, 2, 2, cpu=[9.0, 20.0, 20.0]), [2, 2], start_ms=[0.0, 20.0]).shift is None


def test_g_sq_and_g_sk_make_a_constant_batch_unique() -> None:
    lengths = [(100 + 4 * n, 200 + 3 * n) for n in range(9)]
    rows = [
        {"forward_ct": n, "bs": 2, "reqs": [{"prefix_len": a}, {"prefix_len": b}]} for n, (a, b) in enumerate(lengths)
    ]
    for added in (0, 16):  # the sum of the lengths as it is, or with bs x verify width
        found = run(rows, [2] * 3, g_sq=[16] * 3, g_sk=[300 + 7 * n + added for n in (4, 5, 6)])
        assert (found.shift, found.candidates) == (4, 1)


def test_g_sk_in_both_forms_at_two_shifts_stays_ambiguous() -> None:
    rows = [{"forward_ct": n, "bs": 1, "reqs": [{"prefix_len": 100 + 8 * n}]} for n in range(9)]
    found = run(rows, [1] * 3, g_sk=[100 + 8 * n for n in (4, 5, 6)])
    assert found.shift is None  # sum(prefix_len) at 4, sum + 8 at 3
    assert found.candidates == 2


def test_g_sk_that_fits_nowhere_is_set_aside_with_a_warning() -> None:
    rows = [{"forward_ct": n, "bs": n, "reqs": [{"prefix_len": 100}]} for n in range(1, 6)]
    found = run(rows, [2, 3], g_sk=[7, 7])
    assert found.shift == 1
    assert "set aside" in found.warnings[0]


def of_lengths(*prefixes: int) -> list[dict[str, Any]]:
    return [
        {"forward_ct": n, "bs": 2, "reqs": [{"prefix_len": p}, {"prefix_len": 100}]} for n, p in enumerate(prefixes)
    ]


def test_lengths_of_another_run_are_refused_and_the_users_word_still_wins() -> None:
    rows = of_lengths(1000, 1005, 1011)
    found = run(rows, [2] * 3, g_sk=[2545, 2552, 2560])
    assert found.shift is None
    assert "sequence lengths contradict the records' in 3 of 3 steps (g_sk 2545, sum(prefix_len) 1100" in found.refused
    assert "another run" in found.refused
    assert "--first-forward-ct" in found.refused
    found = run(rows, [2] * 3, g_sk=[2545, 2552, 2560], first=0)
    assert found.shift == 0
    assert "sequence lengths contradict" in found.warnings[-1]


def test_lengths_in_a_form_that_is_not_known_but_near_are_set_aside() -> None:
    """One step late: each is the sum before the tokens of the step before it."""
    found = run(of_lengths(1000, 1005, 1011), [2] * 3, g_sk=[1095, 1104, 1108])
    assert found.shift == 0
    assert "set aside" in found.warnings[0]


def test_segments_shorter_than_their_work_are_refused() -> None:
    rows = [{**row, "target_verify_gpu_ms": 1.3415} for row in of_bs(2, 3, 4)]
    steps = np.array([2, 3, 4], np.int64), np.full(3, NULL, np.int64)

    def with_work(*placed: int, first: int | None = None) -> Match:
        lengths = {"target_verify_gpu_ms": np.array(placed, np.int64)}
        count = np.arange(3, dtype=np.int64)
        return match(records(*rows), steps[0], steps[1], steps[1], np.full(3, np.nan), count, first, lengths)

    found = with_work(1_460_681, 1_460_681, 1_460_681)
    assert found.shift is None
    assert "shorter than the work it was recorded around in 3 of 3 steps (1.341 ms" in found.refused
    assert with_work(1_460_681, 1_460_681, NULL).shift is None
    assert with_work(1_460_681, 1_300_000, 1_340_000).shift == 0  # one of three: an outlier
    assert with_work(1_345_000, 1_345_000, 1_345_000).shift == 0  # within what events are read to
    found = with_work(1_460_681, 1_460_681, 1_460_681, first=10)
    assert found.shift == 0
    assert "shorter than the work" in found.warnings[-1]


def test_g_sq_is_not_used_in_compact_mode() -> None:
    assert run(of_bs(1, 2, 3), [1, 2, 3], g_sq=[9, 9, 9], mode="compact").shift == 0
    assert run(of_bs(1, 2, 3), [1, 2, 3], g_sq=[9, 9, 9]).shift is None


def test_records_of_another_run_are_refused() -> None:
    found = run(of_bs(64, 64, 64), [2, 3, 2])
    assert found.shift is None
    assert "another run" in found.refused


def test_a_fit_by_bs_that_step_cpu_ms_speaks_against_is_said() -> None:
    found = run(of_bs(2, 3, 4, cpu=[500.0] * 3), [2, 3, 4], start_ms=[0.0, 20.0, 40.0])
    assert found.shift == 0
    assert "another run" in found.warnings[0]


def test_few_steps_at_the_edge_are_said() -> None:
    found = run(of_bs(9, 9, 1), [1, 2, 3, 4])
    assert (found.shift, found.matched) == (2, 1)
    assert "only 1 of 4 steps" in found.warnings[0]


def test_few_steps_at_the_edge_with_a_sign_against_them_are_refused() -> None:
    found = run(of_bs(9, 9, 1, 2, cpu=[500.0] * 4), [1, 2, 3, 4, 5], start_ms=[0.0, 20.0, 40.0, 60.0, 80.0])
    assert found.shift is None
    assert "only 2 of 5 steps" in found.refused
    assert "step_cpu_ms differs" in found.refused
    rows = [{"forward_ct": n, "bs": 1, "reqs": [{"prefix_len": 50}]} for n in range(3)]
    found = run(rows[:1], [1, 2, 3], g_sk=[700, 800, 900])
    assert found.shift is None
    assert "set aside" in found.refused


def test_no_records() -> None:
    assert "no usable record" in run([], [1]).refused


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=9),
    st.lists(st.sampled_from([1, 2, 3, NULL]), min_size=1, max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_against_every_shift_tried_one_by_one(sizes: list[int], bs: list[int]) -> None:
    found = run(of_bs(*sizes), bs)
    overlaps = {}
    for shift in range(-len(bs) + 1, len(sizes)):
        pairs = [(sizes[k + shift], bs[k]) for k in range(len(bs)) if 0 <= k + shift < len(sizes)]
        if all(b in (NULL, r) for r, b in pairs):
            overlaps[shift] = len(pairs)
    best = [s for s, n in overlaps.items() if n == max(overlaps.values())]
    assert found.shift == (best[0] if len(best) == 1 else None)
    assert found.candidates == (len(best) if best else 0)


def test_a_full_ring_of_constant_batches_takes_bounded_time() -> None:
    rows = records(*({"forward_ct": n, "bs": 16, "step_cpu_ms": 20 + (n * 7919) % 1000 / 100} for n in range(200_000)))
    gaps = rows.floats["step_cpu_ms"][150_000:150_300] + 0.001
    gaps[0] = np.nan
    none = np.full(300, NULL, np.int64)
    start = time.monotonic()
    found = match(rows, np.full(300, 16, np.int64), none, none, gaps, np.arange(300, dtype=np.int64))
    assert time.monotonic() - start < 10
    # the pattern of step_cpu_ms repeats every 1000 records: every repetition fits equally well
    assert found.shift is None
    rows.floats["step_cpu_ms"][150_010] += 5
    gaps[10] += 5
    assert match(rows, np.full(300, 16, np.int64), none, none, gaps, np.arange(300, dtype=np.int64)).shift == 150_000
