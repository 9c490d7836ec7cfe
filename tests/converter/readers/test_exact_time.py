"""Decimal text to ns against Fraction arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.readers.exact_time import MAX_NS, NOT_A_NUMBER, OK, OUT_OF_RANGE, read_ns, text_to_ns, texts_to_ns, to_ns


def brute(text: str, unit_ns: int) -> int:
    """Fraction arithmetic: round() of a Fraction is exact, half to even."""
    return round(Fraction(text.strip()) * unit_ns)


decimals = st.builds(
    lambda sign, whole, part, exponent, space: f"{space}{sign}{whole}{part}{exponent}\t",
    st.sampled_from(["", "-", "+"]),
    st.one_of(st.integers(0, 10**16), st.integers(0, 10**25)).map(str),
    st.one_of(st.just(""), st.from_regex(r"\A\.[0-9]{1,3}\Z"), st.from_regex(r"\A\.[0-9]{1,25}\Z")),
    st.one_of(st.just(""), st.integers(-30, 30).map(lambda e: f"e{e}")),
    st.sampled_from(["", " ", "\u00a0"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(decimals, max_size=12), st.sampled_from([1, 1000, 10**6]))
def test_every_decimal_equals_fraction_arithmetic(texts: list[str], unit_ns: int) -> None:
    ns, status = read_ns(pa.array(texts, pa.string()), unit_ns)
    for text, got, state in zip(texts, ns.tolist(), status.tolist(), strict=True):
        want = brute(text, unit_ns)
        if abs(want) <= MAX_NS:
            assert (got, state) == (want, OK), text
        else:
            assert (got, state) == (0, OUT_OF_RANGE), text
        assert text_to_ns(text, unit_ns) == (got, state)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1736408883704643.212", 1736408883704643212),
        ("1764246877073569.640\t", 1764246877073569640),
        (" 1767000000000000.000\t", 1767000000000000000),
        ("\u00a01.5\u00a0", 1500),
        ("1736408883973810", 1736408883973810000),
        ("1695115378715400.2", 1695115378715400200),
        ("996.9599375", 996960),
        ("772.270000", 772270),
        ("0.0005", 0),  # half to even
        ("0.0015", 2),
        ("0.0025", 2),
        ("0.00250000000000000000000000001", 3),
        ("1.76700000000002E+15", 1767000000000020000),
        ("-1.000", -1000),
        (".5", 500),
        ("5.", 5000),
        ("1e-999999", 0),
        ("1e-99999999999999999999", 0),
        ("0e99999999999999999999", 0),
        ("9223372036854775.807", MAX_NS),
    ],
)
def test_known_cells(text: str, ns: int) -> None:
    assert text_to_ns(text) == (ns, OK)
    assert [a.tolist() for a in read_ns([text])] == [[ns], [OK]]
    assert [a.tolist() for a in read_ns([text, "N/A"])] == [[ns, 0], [OK, NOT_A_NUMBER]]


@pytest.mark.parametrize("text", ["", " ", "N/A", "-", "nan", "NaN", "inf", "-Infinity", "1,767,000.0", "1_000", "0x10",
                                  "١٢", "1.2.3", "e5", ".", "+", "1" * 3000])  # fmt: skip
def test_not_a_number(text: str) -> None:
    assert text_to_ns(text) == (0, NOT_A_NUMBER)
    assert [a.tolist() for a in read_ns([text, "1"])] == [[0, 1000], [NOT_A_NUMBER, OK]]


@pytest.mark.parametrize("text", ["1e400", "9223372036854775807", "99999999999999999999.999", "-1e400",
                                  "9223372036854775.808", "1e99999999999999999999"])  # fmt: skip
def test_out_of_range(text: str) -> None:
    assert text_to_ns(text) == (0, OUT_OF_RANGE)
    assert [a.tolist() for a in read_ns([text, "1"])] == [[0, 1000], [OUT_OF_RANGE, OK]]


def test_shapes_of_input() -> None:
    texts = ["1.5", None, "2", "N/A"]
    want = ([1500, 0, 2000, 0], [True, False, True, False])
    plain = pa.array(texts, pa.string())
    for form in (
        plain,
        pa.chunked_array([plain[:1], plain[1:]]),
        plain.dictionary_encode(),
        plain.cast("large_string"),
    ):
        ns, ok = to_ns(form)
        assert (ns.tolist(), ok.tolist()) == want
    ns, ok = to_ns(pa.array(["x", *texts])[1:])  # an offset into a shared buffer
    assert (ns.tolist(), ok.tolist()) == want
    assert texts_to_ns(["1.5", "2"])[0].tolist() == [1500, 2000]
    assert to_ns([])[0].dtype == np.int64
    assert len(to_ns(pa.chunked_array([], pa.string()))[0]) == 0
    with pytest.raises(TypeError):
        to_ns(pa.array([1, 2]))
    with pytest.raises(ValueError, match="power of ten"):
        to_ns(["1"], 60)


@pytest.mark.parametrize(
    "text",
    ["1736408883704643.212000000000000000002000000000000000000001", "1" + "0" * 150, "5.5" + "0" * 130, "1" + "0" * 40],
)
def test_more_digits_than_a_decimal128_holds(text: str) -> None:
    ns, status = read_ns([text, "12.5"])
    assert (int(ns[0]), int(status[0])) == text_to_ns(text)
    assert (int(ns[1]), int(status[1])) == (12500, OK)


@pytest.mark.parametrize(
    "text", ["1e-12370436", "0E-2147483647", "1e-1000", "123456e-40", "." + "1" * 33 + "e-9", "5e3"]
)
def test_exponents_are_not_for_pyarrow(text: str) -> None:
    """Its cast of the first two ends the process, of the others reads what lies behind its table of powers of ten."""
    ns, status = read_ns([text, "12.5", text])
    assert (ns.tolist(), status.tolist()) == ([text_to_ns(text)[0], 12500, text_to_ns(text)[0]], [OK, OK, OK])
