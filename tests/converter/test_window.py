"""Times on the command line."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.window import UNITS_NS, Edge, Window, doubts, parse_duration, parse_window, span_text
from schemas.errors import UsageError


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("1736408883704643212:1736408883704643300", Edge(1736408883704643212), Edge(1736408883704643300)),
        ("1736408883704643.212us:1736408883704644us", Edge(1736408883704643212), Edge(1736408883704644000)),
        ("+10ms:+20ms", Edge(10_000_000, True), Edge(20_000_000, True)),
        ("+0:+1.5s", Edge(0, True), Edge(1_500_000_000, True)),
        (" + .5us : +1 µs ", Edge(500, True), Edge(1_000, True)),
        ("1767000000s:+20ms", Edge(1767000000 * 10**9), Edge(20_000_000, True)),
    ],
)
def test_windows(text, start, end):
    assert parse_window(text) == Window(start, end)


def test_relative_to_the_first_task():
    assert parse_window("+10us:+20us").resolve(1_000) == (11_000, 21_000)
    assert parse_window("500:+1us").resolve(1_000) == (500, 2_000)
    assert parse_window("5:9").resolve(1_000) == (5, 9)
    with pytest.raises(UsageError, match=r"--window.*not after"):
        parse_window("5000:+1us").resolve(1_000)


@pytest.mark.parametrize(
    "text",
    ["", ":", "abc:def", "20:10", "+20:+10", "5:5", "1:2:3", "1", "-5:10", "+-5:10", "1e3:2e3", "nan:inf", "1:10min",
     "1_0:20", "٣:٤", "0x1:0x2", "1:99999999999999999999", "1.2.3:4", ":5", "5:", "1\x1b[31m:2"],
)  # fmt: skip
def test_nonsense_names_the_option(text):
    with pytest.raises(UsageError, match="--window") as error:
        parse_window(text)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("text", "ns"),
    [("50us", 50_000), ("2000", 2_000), ("1.5ms", 1_500_000), ("0", 0), ("0.5", 0), ("1.5", 2), ("2.5ns", 2)],
)
def test_durations(text, ns):
    assert parse_duration(text, "--clock-tolerance") == ns


@pytest.mark.parametrize("text", ["-5", "", "us", "5 minutes", "+5us", "1e400"])
def test_durations_that_are_none(text):
    with pytest.raises(UsageError, match="--clock-tolerance"):
        parse_duration(text, "--clock-tolerance")


@given(
    st.integers(0, 2**62),
    st.integers(0, 12),
    st.sampled_from(sorted(UNITS_NS)),
    st.sampled_from(["0", "5", "50", "499", "501"]),
)
def test_half_to_even_below_a_nanosecond(whole, zeros, unit, tail):
    text = f"{whole}.{'0' * zeros}{tail}"
    exact = Fraction(text) * UNITS_NS[unit]
    if exact < 2**62:
        assert parse_duration(text + unit, "--x") == round(exact)  # Fraction rounds half to even


SPAN = (1_000_000_000_000_000, 1_000_000_020_000_000)  # 20 ms


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10ms:+15ms", "its start lies far outside"),  # a forgotten +
        ("+0ms:+50s", "its end lies far outside"),
        ("+90ms:+95ms", "both its ends lie far outside"),
        ("+10:+50", "is 40 ns long: a number without a unit is ns"),
        ("+10ns:+50ns", None),
        ("+2ms:+4ms", None),
        ("+0ms:+30ms", None),
        ("1000000000000000:1000000001000000", None),
    ],
)
def test_windows_that_are_hardly_meant(text, said):
    found = doubts(text, parse_window(text).resolve(SPAN[0]), SPAN)
    assert len(found) == (said is not None)
    if said:
        assert said in found[0]
        if "far" in said:
            assert "spans 1000000000000000:1000000020000000, or +0.000ms:+20.000ms" in found[0]


def test_a_span_is_told_in_forms_that_window_takes():
    for form in span_text(SPAN, SPAN[0] - 500_000).split(", or "):
        assert parse_window(form).resolve(SPAN[0] - 500_000) == SPAN
    assert span_text(SPAN, SPAN[0] + 1) == "1000000000000000:1000000020000000"
