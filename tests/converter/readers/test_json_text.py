"""JSON scalars to ns and ids, against Python's Decimal."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from converter.readers.exact_time import NOT_A_NUMBER, OK, OUT_OF_RANGE
from converter.readers.json_text import raw_ids, raw_ns, raw_texts


def exact(text: str) -> int:
    return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_EVEN))


decimals = st.decimals(min_value=-(10**13), max_value=10**15, allow_nan=False, allow_infinity=False, places=None)
three = st.integers(0, 9 * 10**18).map(lambda n: f'"{n // 1000:016d}.{n % 1000:03d}"')


@given(st.lists(three, min_size=1))
def test_fixed_width(texts: list[str]) -> None:
    ns, status = raw_ns([Raw(t.encode()) for t in texts])
    assert ns.tolist() == [exact(t.strip('"')) for t in texts]
    assert (status == OK).all()


@given(st.lists(st.tuples(st.decimals(0, 10**14, allow_nan=False), st.booleans()), min_size=1))
def test_any_decimals(values: list[tuple[Decimal, bool]]) -> None:
    texts = [f'"{value}"' if quoted else str(value) for value, quoted in values]
    ns, status = raw_ns([Raw(t.encode()) for t in texts])
    assert (status == OK).all()
    assert ns.tolist() == [exact(t.strip('"')) for t in texts]


@pytest.mark.parametrize(
    ("text", "ns", "status"),
    [
        ("996.9599375", 996960, OK),
        ("0.0005", 0, OK),  # half to even
        ("0.0015", 2, OK),
        ('" 12.5\\t"', 12500, OK),
        ('"1736408883973810"', 1736408883973810000, OK),
        ('"173640888397381x.000"', 0, NOT_A_NUMBER),
        ('"9999999999999999.999"', 0, OUT_OF_RANGE),
        ('"9223372036854775.807"', 2**63 - 1, OK),
        ('"9223372036854775.808"', 0, OUT_OF_RANGE),
        ("true", 0, NOT_A_NUMBER),
        ("null", 0, NOT_A_NUMBER),
        ("", 0, NOT_A_NUMBER),
        ('"N/A"', 0, NOT_A_NUMBER),
        ("[1,\n2]", 0, NOT_A_NUMBER),
        ('{"a":\n1}', 0, NOT_A_NUMBER),
        ('"1e400"', 0, OUT_OF_RANGE),
        ('"-5.000"', -5000, OK),
    ],
)
def test_one_value_alone_and_among_others(text: str, ns: int, status: int) -> None:
    for before in ([], ['"1736408883704643.212"'], ["2.5"]):
        found, states = raw_ns([Raw(t.encode()) for t in [*before, text]])
        assert (int(found[-1]), int(states[-1])) == (ns, status)
        assert states[:-1].tolist() == [OK] * len(before)


@given(st.lists(st.one_of(st.text(), st.integers(), st.lists(st.integers())), min_size=1))
def test_texts(values: list[object]) -> None:
    raws = [Raw(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) for value in values]
    want = [v if isinstance(v := json.loads(bytes(raw)), str) else bytes(raw).decode() for raw in raws]
    assert raw_texts(raws).to_pylist() == want


def test_bytes_that_are_not_utf8() -> None:
    """The readers replace them before; found by the guided fuzzer."""
    raws = [Raw(b'"1736408883704643.\xcb12"'), Raw(b'"' + b"7" * 60 + b'\xff"'), Raw(b'"2.5"'), Raw('"é"'.encode())]
    assert raw_ns(raws)[1].tolist() == [NOT_A_NUMBER, NOT_A_NUMBER, OK, NOT_A_NUMBER]
    assert raw_texts(raws).to_pylist()[::3] == ["1736408883704643.\ufffd12", "é"]
    assert raw_ids(raws)[0].to_pylist()[2:] == ["2.5", "é"]


def test_ids() -> None:
    texts = ['"7"', "7", '"0x1A"', '""', "true", "1.5", '{"a": 1}', "[2]", "", "86123456789012345678901234567890", "-3"]
    ids, valid = raw_ids([Raw(t.encode()) for t in texts])
    assert [i for i, ok in zip(ids.to_pylist(), valid, strict=True) if ok] == [
        "7", "7", "0x1A", "86123456789012345678901234567890", "-3",
    ]  # fmt: skip
    ids, valid = raw_ids([Raw(t.encode()) for t in ['"7"', "7", '""', "5"]])
    assert valid.tolist() == [True, True, False, True]
    for lone in ('""', ""):
        assert raw_ids([Raw(lone.encode())])[1].tolist() == [False]
    assert raw_ids([Raw(b"5"), Raw(b"")])[1].tolist() == [True, False]
    assert raw_ids([Raw(b"5"), Raw(b""), Raw(b"7")])[1].tolist() == [True, False, True]
