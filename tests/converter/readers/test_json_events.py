"""Bytes to events: any block size gives the same events; broken stretches cost themselves and nothing else."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.readers import input_blocks, json_events
from converter.readers.json_events import EventFile
from schemas.errors import InputError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XMsfC"), "name": st.text(max_size=20), "pid": st.integers(), "args": values},
    optional={"tid": st.integers(0, 9) | st.text(max_size=3), "ts": st.integers(0, 10**6).map(str), "cat": st.text()},
)


def read(path: Path, block_bytes: int = 1 << 20, maximum: int = 1 << 30) -> tuple[list[dict[str, Any]], EventFile]:
    """The events as dicts, as Python's json would give them, and the file."""
    kept = input_blocks.BLOCK_BYTES
    input_blocks.BLOCK_BYTES = block_bytes
    try:
        file = EventFile(path, maximum)
        found = []
        for chunk in file:
            for row, event in enumerate(chunk.events):
                one = {key: getattr(event, key) for key in ("ph", "name", "cat", "pid", "tid")}
                one |= {k: bytes(getattr(event, k)).decode() for k in ("ts", "dur", "id", "args")}
                one["byte"] = chunk.byte(row)
                found.append(one)
        return found, file
    finally:
        input_blocks.BLOCK_BYTES = kept


@settings(max_examples=60, deadline=None)
@given(
    st.lists(events, max_size=12),
    st.integers(1, 300),
    st.sampled_from([None, 1, 2]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_any_block_size(
    tmp_path_factory: pytest.TempPathFactory,
    wanted: list[dict[str, Any]],
    block_bytes: int,
    indent: int | None,
    ascii_only: bool,
    as_object: bool,
    zipped: bool,
) -> None:
    path = tmp_path_factory.mktemp("events") / "trace"
    whole: Any = {"a": [1, {"b": "}, {"}], "traceEvents": wanted, "z": {"t": 1}} if as_object else wanted
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "surrogatepass") if ascii_only else text.encode("utf-8", "replace")
    path.write_bytes(gzip.compress(data) if zipped else data)
    whole = json.loads(data.decode())
    wanted = whole["traceEvents"] if as_object else whole
    found, file = read(path, block_bytes)
    assert (file.damage, file.malformed) == ([], 0)
    assert [(e["ph"], e["name"], e["pid"]) for e in found] == [(e["ph"], e["name"], e["pid"]) for e in wanted]
    assert [json.loads(e["args"]) for e in found] == [e["args"] for e in wanted]
    assert [e["tid"] for e in found] == [e.get("tid") for e in wanted]
    for event in found:
        assert json.JSONDecoder().raw_decode(data[event["byte"] :].decode())[0]["name"] == event["name"]
    if as_object:
        assert file.header == {"a": whole["a"], "z": whole["z"]}


def lines(count: int) -> list[str]:
    args = '{"Task Id": %d, "stack": "a(1): f;\\r\\nb, {c}, {d", "nested": [{"x": 1}, {"y": "}, {"}]}'
    return [
        f'{{"ph": "X", "name": "e{i}", "pid": 1, "tid": 2, "ts": "{i}.000", "dur": 1.5, "args": {args % i}}}'
        for i in range(count)
    ]


BROKEN = {
    "bare word": '{"ph": "X", "name": "bad", "args": {"x": inf}}',
    "quote": '{"ph": "X", "name": "a "b" c", "pid": 1}',
    "path": '{"ph": "X", "name": "C:\\Users\\x", "pid": 1}',
    "cut": '{"ph": "X", "name": "bad", "args": {"x": 1',
    "garbage": "\x00\x01garbage",
    "deep": '{"ph": "X", "args": ' + '{"a": ' * 5000 + "1" + "}" * 5000 + "}",
    "brackets": ']]}}"',
}


@pytest.mark.parametrize("block_bytes", [40, 1000, 1 << 20])
@pytest.mark.parametrize("what", BROKEN)
def test_broken_stretch(tmp_path: Path, what: str, block_bytes: int) -> None:
    """The events around it are kept; what follows a bare closing bracket is said to be unread."""
    good = lines(60)
    text = "[" + ",\n".join([*good[:30], BROKEN[what], *good[30:]]) + "]"
    path = tmp_path / "trace_view.json"
    path.write_text(text)
    found, file = read(path, block_bytes)
    names = [e["name"] for e in found]
    if what == "brackets":
        assert names == [f"e{i}" for i in range(30)]
        assert "bytes after the end" in file.damage[0]
        return
    if what == "cut":  # it swallows the event that follows, whose text becomes part of it
        assert set(names) >= {f"e{i}" for i in range(60) if i != 30}
    else:
        assert names == [f"e{i}" for i in range(60)]
    assert file.malformed == 1
    assert file.first_malformed == text.index(BROKEN[what])


def test_every_event_has_a_nan(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    good = lines(5000)
    path.write_text(
        "[" + ",\n".join(line.replace("1.5,", "1.5, ").replace('"x": 1', '"x": NaN') for line in good) + "]"
    )
    found, file = read(path)
    assert [e["name"] for e in found] == [f"e{i}" for i in range(5000)]
    assert not file.damage
    assert "5000 NaN" in file.notes[0]
    assert json.loads(found[7]["args"])["nested"][0] == {"x": "NaN"}


def test_exact_numbers_on_the_slow_way(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    path.write_text('[{"ph": "X", "ts": 1767000000000000.123, "dur": 0.1, "id": 86123456789012345678901, "x": NaN}]')
    found, _ = read(path)
    assert [found[0][key] for key in ("ts", "dur", "id")] == ["1767000000000000.123", "0.1", "86123456789012345678901"]


def test_half_a_surrogate_and_bad_bytes(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    path.write_bytes(
        b'[{"ph": "X", "name": "a\\ud800", "args": {"b": "\\ud800"}}, {"ph": "X", "name": "\xff\xe4\xbd\xa0"}]'
    )
    found, file = read(path)
    assert [e["name"] for e in found] == ["a\ufffd", "\ufffd你"]
    assert json.loads(found[0]["args"]) == {"b": "\ufffd"}
    assert len(file.damage) == 2


@pytest.mark.parametrize(
    "data", [b"", b"   \n", b"<html>", b"\0" * 100, b'{"a": 1}', b'{"traceEvents": 5}', b"\x1f\x8b"]
)
def test_nothing_to_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "trace_view.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match="trace_view"):
        read(path)


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    path.write_bytes(gzip.compress(b"[" + b" " * 10_000_000 + b"]"))
    with pytest.raises(InputError, match="more than 1000000 bytes once unpacked"):
        read(path, maximum=1_000_000)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read(tmp_path / "trace_view.json")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_anywhere(tmp_path: Path, seed: int) -> None:
    """Bytes flipped, cut out or put in: never a crash, and every event away from the damage is there."""
    rng = random.Random(seed)
    good = lines(200)
    data = bytearray(("[" + ", ".join(good) + "]").encode())
    at = rng.randrange(len(data))
    match rng.randrange(3):
        case 0:
            data[at] = rng.randrange(256)
        case 1:
            del data[at : at + rng.randrange(1, 50)]
        case _:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20)))
    path = tmp_path / "trace_view.json"
    path.write_bytes(data)
    try:
        found, file = read(path, rng.choice([64, 500, 1 << 20]))
    except InputError:
        assert at < 2
        return
    names = {e["name"] for e in found}
    if not any("after the end" in line for line in file.damage):
        assert len(names & {f"e{i}" for i in range(200)}) >= 200 - 4, file.damage


def test_events_without_an_end_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "MAX_EVENT_BYTES", 10_000)
    path = tmp_path / "trace_view.json"
    good = lines(20)
    path.write_text(
        "[" + ",".join(good[:10]) + ',{"ph": "X", "name": "' + "a" * 50_000 + '"},' + ",".join(good[10:]) + "]"
    )
    found, file = read(path, 1000)
    assert {e["name"] for e in found} >= {f"e{i}" for i in range(20) if i != 10}
    assert file.malformed
