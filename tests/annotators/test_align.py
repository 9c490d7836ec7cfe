from __future__ import annotations

import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotators.align import HostFacts, align, middle, same_host, theil_sen
from annotators.group_condition import group_condition, group_warnings
from schemas.errors import UsageError
from schemas.timeline import Clock, Timeline
from tests.annotators.timelines import Skewed, run_of, timeline_of

BASE = 1_767_000_000_000_000_000
TOLERANCE = 50_000
COLLECTIVE, DISPATCH = "hcom_allReduce__868_{}_1", "aclnnMoeLowLatencyDispatchV2_MoeLowLatencyDispatchV2"


def collectives(seconds: float, count: int, seed: int = 1) -> list[tuple[str, int]]:
    """Named collectives at irregular times over a window, the first and last at its edges."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, seconds, count))
    times[0], times[-1] = 0, seconds
    return [(COLLECTIVE.format(i), BASE + round(t * 1e9)) for i, t in enumerate(times)]


def noise(count: int, seed: int, spread_ns: int = 2000) -> list[int]:
    return np.random.default_rng(seed).integers(-spread_ns, spread_ns, count).tolist()


OFFSETS_NS = (0, 3_417_000, -8_250_123, 12_000_001)
DRIFTS_PPM = (0.0, 20.0, -20.0, 11.0)


def four_ranks(events: list[tuple[str, int]], drift: bool = True) -> tuple[list[Timeline], list[Skewed]]:
    clocks = [Skewed(o, d if drift else 0.0, BASE) for o, d in zip(OFFSETS_NS, DRIFTS_PPM, strict=True)]
    return [run_of(c, r, events, noise(len(events), r)) for r, c in enumerate(clocks)], clocks


def worst_error(clock: Skewed, reference: Skewed, offset_ns: int, window: tuple[int, int]) -> int:
    """The largest true error of a rank's aligned times at the edges and in the middle of a true window."""
    return max(abs(clock(t) + offset_ns - reference(t)) for t in (window[0], sum(window) // 2, window[1]))


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("count", [8, 40, 1000])
def test_four_ranks_with_offsets_and_drift(seconds: float, count: int) -> None:
    events = collectives(seconds, count)
    timelines, clocks = four_ranks(events)
    found = align(timelines)
    assert [c.method for c in found] == ["reference", *["collective"] * 3]
    for clock, result in zip(clocks[1:], found[1:], strict=True):
        error = worst_error(clock, clocks[0], result.offset_ns, (events[0][1], events[-1][1]))
        assert error < 20_000
        assert result.residual_max_ns is not None
        # The noise of the ends hides at most its own size.
        assert result.residual_max_ns >= error - 4000
        assert result.anchor_count == count
    assert group_condition(timelines, found, TOLERANCE) is None


def test_residual_is_not_smaller_than_the_error_at_the_anchors() -> None:
    events = collectives(0.5, 200)
    clocks = [Skewed(o, d, BASE) for o, d in zip(OFFSETS_NS, DRIFTS_PPM, strict=True)]
    timelines = [run_of(c, r, events, [0] * 200) for r, c in enumerate(clocks)]
    for clock, result in zip(clocks[1:], align(timelines)[1:], strict=True):
        errors = [abs(clock(t) + result.offset_ns - clocks[0](t)) for _, t in events]
        assert result.residual_max_ns == max(errors)
        assert abs(result.residual_median_ns - statistics.median(errors)) <= 1


def test_three_seconds_of_drift_are_reported_and_refused() -> None:
    events = collectives(3.0, 300)
    timelines, _ = four_ranks(events)
    found = align(timelines, reference_rank=1)  # rank 2 drifts by -40 ppm against it
    assert found[1].method == "reference"
    for rank in (0, 2, 3):
        assert found[rank].drift_ppm == pytest.approx(DRIFTS_PPM[rank] - DRIFTS_PPM[1], abs=0.5)
    assert found[2].residual_max_ns > TOLERANCE
    reason = group_condition(timelines, found, TOLERANCE)
    assert reason is not None
    assert "rank 2" in reason
    assert "--window" in reason
    # A shorter window is the answer.
    start = timelines[1].tasks.ts[0] + 2_000_000_000
    found = align(timelines, reference_rank=1, window=(start, start + 500_000_000))
    for timeline, clock in zip(timelines, found, strict=True):
        timeline.window = (int(start) - clock.offset_ns, int(start) + 500_000_000 - clock.offset_ns)
    assert group_condition(timelines, found, TOLERANCE) is None
    assert found[2].residual_max_ns < 15_000
    assert 20 < found[2].anchor_count < 90


def test_drift_is_not_reported_where_noise_could_make_it() -> None:
    timelines, _ = four_ranks(collectives(0.05, 50))  # 20 ppm x 50 ms = 1 us, the noise is 2 us
    assert [c.drift_ppm for c in align(timelines)] == [None] * 4


def test_outliers_move_the_residual_and_not_the_offset() -> None:
    events = collectives(0.3, 60)
    clean = [run_of(Skewed(), 0, events, [0] * 60), run_of(Skewed(5_000_000), 1, events, [0] * 60)]
    late = [900_000 if i % 6 == 0 else 0 for i in range(60)]
    dirty = [clean[0], run_of(Skewed(5_000_000), 1, events, late)]
    assert align(clean)[1].offset_ns == align(dirty)[1].offset_ns == -5_000_000
    assert (align(clean)[1].residual_max_ns, align(dirty)[1].residual_max_ns) == (0, 900_000)
    assert align(dirty)[1].residual_median_ns == 0
    assert "rank 1" in str(group_condition(dirty, align(dirty), TOLERANCE))


def test_durations_and_timelines_stay_as_recorded() -> None:
    timelines, _ = four_ranks(collectives(0.1, 20))
    before = [(t.tasks.ts.copy(), t.tasks.dur.copy()) for t in timelines]
    align(timelines)
    for timeline, (ts, dur) in zip(timelines, before, strict=True):
        assert (timeline.tasks.ts == ts).all()
        assert (timeline.tasks.dur == dur).all()


def test_what_ends_early_on_one_rank_is_no_anchor() -> None:
    events = [
        (f"hcom_{op}__868_{i}_1", BASE + i * 1_234_567)
        for i, op in enumerate(["broadcast", "send", "batchSendRecv"] * 5)
    ]
    timelines = [run_of(Skewed(r * 1000), r, events, [0] * 15) for r in range(2)]
    assert align(timelines)[1] == Clock()


def test_too_few_anchors_say_nothing() -> None:
    events = collectives(0.1, 2)
    timelines = [run_of(Skewed(r * 1000), r, events, [0, 0]) for r in range(2)]
    found = align(timelines)
    assert found[1].method == "none"
    assert "rank 1 is not aligned" in str(group_condition(timelines, found, TOLERANCE))


def test_unrelated_groups_do_not_pair() -> None:
    tp = [[(f"hcom_allReduce__{g}_{i}_1", BASE + g + i * 999_000) for i in range(20)] for g in (111, 222)]
    timelines = [run_of(Skewed(r * 2_000_000), r, tp[r // 2], [0] * 20) for r in range(4)]
    assert [c.method for c in align(timelines)] == ["reference", "collective", "none", "none"]


def test_groups_of_one_name_that_contradict_each_other() -> None:
    """Names are counted per process: two groups of different ranks may share the digits. The world's ends decide."""
    world = collectives(0.2, 10)
    rng = np.random.default_rng(5)
    tp = [
        [(f"hcom_allReduce__097_{i}_1", BASE + int(t)) for i, t in enumerate(np.sort(rng.integers(0, 200_000_000, 40)))]
        for _ in range(2)
    ]
    timelines = [run_of(Skewed(r * 7_000_000), r, world + tp[r], [0] * 50) for r in range(2)]
    found = align(timelines)[1]
    assert (found.method, found.offset_ns, found.anchor_count) == ("collective", -7_000_000, 50)
    assert "rank 1" in str(group_condition(timelines, align(timelines), TOLERANCE))  # what contradicts is not hidden


def test_group_names_of_the_trace_keep_groups_apart() -> None:
    rows = [(f"hcom_allReduce__868_{i}_1", BASE + i * 10**6, BASE + i * 10**6 + 500) for i in range(5)]
    assert (
        align([timeline_of(0, rows, "Group a Communication"), timeline_of(1, rows, "Group b Communication")])[1].method
        == "none"
    )
    for other in ("Group a Communication", "Group 3 Communication", "Communication"):
        found = align([timeline_of(0, rows, "Group a Communication"), timeline_of(1, rows, other)])
        assert (found[1].method, found[1].anchor_count) == ("collective", 5), other


def test_rank_that_is_tied_through_another_one() -> None:
    """Groups {0, 1} and {1, 2}: rank 2 shares nothing with rank 0."""
    one = [(f"hcom_allReduce__111_{i}_1", BASE + i * 1_111_111) for i in range(9)]
    two = [(f"hcom_allReduce__222_{i}_1", BASE + i * 1_222_222) for i in range(9)]
    clocks = [Skewed(0), Skewed(3_000_000), Skewed(-1_000_000)]
    timelines = [
        run_of(clocks[0], 0, one, [0] * 9),
        run_of(clocks[1], 1, one + two, noise(9, 3) + noise(9, 4)),
        run_of(clocks[2], 2, two, [0] * 9),
    ]
    found = align(timelines)
    assert abs(found[2].offset_ns - 1_000_000) < 4000
    assert found[2].residual_max_ns > found[1].residual_max_ns  # the sum along the way


# MoE kernels pair by order -------------------------------------------------------------------------------------------


def expert_events(count: int, jitter_ns: int, seed: int = 2) -> list[tuple[str, int]]:
    steps = 700_000 + np.random.default_rng(seed).integers(-jitter_ns, jitter_ns + 1, count)
    names = [DISPATCH, DISPATCH.replace("Dispatch", "Combine")]
    return [(names[i % 2], BASE + int(t)) for i, t in enumerate(np.cumsum(steps))]


@pytest.mark.parametrize("lost", [0, 1, 2, 37, 300])
def test_lag_of_a_rank_that_lost_its_first_kernels(lost: int) -> None:
    events = expert_events(800, 200_000)
    timelines = [
        run_of(Skewed(), 0, events, noise(800, 1)),
        run_of(Skewed(4_000_000, 20), 1, events[lost:], noise(800 - lost, 2)),
    ]
    found = align(timelines)[1]
    assert (found.method, found.anchor_count) == ("collective", 800 - lost)
    assert abs(found.offset_ns + 4_000_000) < 20_000
    assert found.residual_max_ns < TOLERANCE


def test_a_kernel_lost_on_either_side_in_the_middle_is_told_by_its_name_or_refused() -> None:
    events = expert_events(400, 200_000)
    timelines = [
        run_of(Skewed(), 0, events, [0] * 400),
        run_of(Skewed(10_000), 1, events[:390] + events[391:], [0] * 399),
    ]
    found = align(timelines)[1]
    assert found.offset_ns == -10_000
    assert found.anchor_count == 390


def test_two_lags_that_fit_are_refused() -> None:
    regular = expert_events(200, 0)
    timelines = [run_of(Skewed(r * 1_000_000), r, regular, noise(200, r, 500)) for r in range(2)]
    assert align(timelines)[1] == Clock()


def test_known_clock_tells_the_lag_of_a_regular_sequence() -> None:
    regular = expert_events(200, 0)
    world = collectives(0.1, 5)
    timelines = [run_of(Skewed(r * 1_000_000), r, world + regular[r * 2 :], [0] * (205 - r * 2)) for r in range(2)]
    found = align(timelines)[1]
    assert (found.offset_ns, found.anchor_count, found.residual_max_ns) == (-1_000_000, 203, 0)


def test_unrelated_expert_groups_are_refused() -> None:
    timelines = [run_of(Skewed(), r, expert_events(300, 200_000, seed=r), [0] * 300) for r in range(2)]
    assert align(timelines)[1] == Clock()
    facts = {r: HostFacts("one host") for r in range(2)}
    found = align(timelines, host_facts=facts)
    assert (found[1].method, found[1].residual_max_ns, found[1].anchor_count) == ("same_host", None, 0)


def test_collectives_of_a_replayed_graph_bear_one_name() -> None:
    rng = np.random.default_rng(3)
    ends = np.cumsum(rng.integers(300_000, 900_000, 90)).tolist()
    events = [(COLLECTIVE.format(i % 3), BASE + end) for i, end in enumerate(ends)]
    timelines = [run_of(Skewed(r * 6_000_000), r, events[r * 3 :], noise(90 - r * 3, r)) for r in range(2)]
    found = align(timelines)[1]
    assert found.anchor_count == 87
    assert abs(found.offset_ns + 6_000_000) < 4000


# Methods -------------------------------------------------------------------------------------------------------------


def test_same_host_needs_a_uid_or_both_relations() -> None:
    a = HostFacts(None, 1_736_236_719_758_419_200, 218_394_450_480)
    assert same_host(a, HostFacts(None, 1_736_236_719_758_417_250, 218_394_451_310))
    assert not same_host(a, HostFacts(None, 1_736_236_719_758_417_250, None))
    assert not same_host(a, HostFacts(None, 1_736_236_719_758_417_250, 218_400_000_000))
    assert not same_host(HostFacts(), HostFacts())
    assert same_host(HostFacts("u"), HostFacts("u"))
    assert not same_host(HostFacts("u", 1, 1), HostFacts("v", 1, 1))


def test_same_host_and_manual_measure_and_do_not_move() -> None:
    events = collectives(0.1, 20)
    timelines = [run_of(Skewed(r * 9_000), r, events, [0] * 20) for r in range(2)]
    for method, kwargs in (
        ("same_host", {"host_facts": {0: HostFacts("u"), 1: HostFacts("u")}}),
        ("manual", {"assume_aligned": True}),
    ):
        found = align(timelines, **kwargs)[1]
        assert (found.method, found.offset_ns) == (method, 0)
        assert (found.residual_median_ns, found.residual_max_ns, found.anchor_count) == (9_000, 9_000, 20)
    assert group_condition(timelines, align(timelines, assume_aligned=True), 8_000) is not None


def test_assumption_without_anchors_counts_as_met_with_a_warning() -> None:
    timelines = [timeline_of(r, [("k", BASE, BASE + 1000)]) for r in range(2)]
    found = align(timelines, assume_aligned=True)
    assert found[1] == Clock("manual")
    assert group_condition(timelines, found, TOLERANCE) is None
    assert ["rank 1" in w for w in group_warnings(timelines, found, {0, 1})] == [True]
    assert len(group_warnings(timelines, found)) == 2  # nothing is declared: said too


def test_reference_rank() -> None:
    timelines, clocks = four_ranks(collectives(0.1, 30), drift=False)
    found = align(timelines, reference_rank=2)
    assert found[2] == Clock("reference")
    assert abs(found[0].offset_ns - (clocks[2].offset_ns - clocks[0].offset_ns)) < 4000
    with pytest.raises(UsageError, match="no such rank"):
        align(timelines, reference_rank=9)
    assert align([]) == []
    assert [c.method for c in align(list(reversed(timelines)))] == [*["collective"] * 3, "reference"]


def test_three_years_apart() -> None:
    timelines = [timeline_of(0, [("k", BASE, BASE + 9)]), timeline_of(1, [("k", BASE - 94_608_000 * 10**9, BASE)])]
    timelines[1].window = (BASE - 94_608_000 * 10**9, BASE - 94_608_000 * 10**9 + 100)
    found = align(timelines, assume_aligned=True)
    assert "share 0.000 ms" in str(group_condition(timelines, found, TOLERANCE))


# Condition -----------------------------------------------------------------------------------------------------------


def test_declared_ranks_must_be_there() -> None:
    timelines, _ = four_ranks(collectives(0.1, 30))
    found = align(timelines)
    assert group_condition(timelines, found, TOLERANCE, {0, 1, 2, 3}) is None
    assert "rank 4, 7" in str(group_condition(timelines, found, TOLERANCE, {0, 1, 2, 3, 4, 7}))


@pytest.mark.parametrize(("share", "met"), [(0.899, False), (0.9, True), (1.0, True)])
def test_common_window_of_90_percent_of_the_shortest(share: float, met: bool) -> None:
    shift = round(1_000_000 * (1 - share))
    timelines = [
        timeline_of(0, [("k", BASE, BASE + 1_000_000)]),
        timeline_of(1, [("k", BASE + shift, BASE + 9_000_000)]),
    ]
    assert (group_condition(timelines, align(timelines, assume_aligned=True), TOLERANCE) is None) is met


def test_common_window_is_taken_in_trace_time() -> None:
    timelines, _ = four_ranks(collectives(0.005, 30))  # offsets of more than the window
    assert group_condition(timelines, align(timelines), TOLERANCE) is None


# Figures -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=30))
def test_middle_is_the_exact_median_half_to_even(values: list[int]) -> None:
    ordered = sorted(values)
    n = len(ordered)
    assert middle(np.array(values, np.int64)) == round(Fraction(ordered[(n - 1) // 2] + ordered[n // 2], 2))


@given(
    st.lists(
        st.tuples(st.integers(0, 10**10), st.integers(-(10**6), 10**6)),
        min_size=2,
        max_size=25,
        unique_by=lambda p: p[0],
    )
)
def test_theil_sen_is_the_median_of_all_slopes(points: list[tuple[int, int]]) -> None:
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :]]
    at, difference = (np.array(column, np.int64) for column in zip(*points, strict=True))
    assert theil_sen(at, difference) == pytest.approx(statistics.median(slopes), rel=1e-12, abs=1e-15)


@given(st.integers(-(10**9), 10**9), st.integers(3, 40), st.randoms())
def test_any_constant_offset_is_found_exactly(offset: int, count: int, random: object) -> None:
    events = [(COLLECTIVE.format(i), BASE + random.randrange(10**9)) for i in range(count)]
    timelines = [run_of(Skewed(r * offset), r, events, [0] * count) for r in range(2)]
    found = align(timelines)[1]
    assert (found.offset_ns, found.residual_max_ns) == (-offset, 0)


def test_drift_that_moves_a_rank_further_than_the_tolerance_is_refused() -> None:
    timelines = [Timeline(rank, "x") for rank in (0, 1)]
    for timeline in timelines:
        timeline.window = (BASE, BASE + 3_000_000_000)
    # The middle of 3 s is off by at most 30 us, its ends are 60 us apart.
    clocks = [Clock("reference"), Clock("collective", 0, 20.0, 15_000, 30_000, 60)]
    reason = group_condition(timelines, clocks, TOLERANCE)
    assert reason is not None and "rank 1 drifts by +20.0 ppm, 60.0 us" in reason
    for timeline in timelines:
        timeline.window = (BASE, BASE + 500_000_000)
    assert group_condition(timelines, clocks, TOLERANCE) is None
