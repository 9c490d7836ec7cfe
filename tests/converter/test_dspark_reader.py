"""Every shape in which people save DSpark records gives the same columns; what can't be used is said."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from converter.readers.dspark import read_records
from schemas.errors import InputError

RECORDS: list[dict[str, Any]] = [
    {"forward_ct": 10, "bs": 2, "step_gpu_ms": 12.1, "reqs": [{"prefix_len": 100, "acc_len": 3}, {"prefix_len": 5}]},
    {"forward_ct": 12, "bs": 3, "num_verify_tokens": 24},
]
PAYLOAD = {"mode": "static", "gamma": 7, "verify_num_draft_tokens": 8, "components": ["core"], "records": RECORDS}
SERVER = {"tp_size": 2, "dp_size": 1, "api_key": "secret", "internal_states": [{"x": 1, "dspark_info_record": PAYLOAD}]}


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "dspark.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def lines(*objects: Any) -> str:
    return "\n".join(json.dumps(o) for o in objects)


SHAPES = {
    "server_info": json.dumps(SERVER),
    "payload": json.dumps(PAYLOAD),
    "pretty": json.dumps(PAYLOAD, indent=2),
    "under its key": json.dumps({"dspark_info_record": PAYLOAD}),
    "only records under its key": json.dumps({"dspark_info_record": {"records": RECORDS}}),
    "merged": json.dumps({"sampling": {"temperature": 1}, "records": RECORDS}),
    "list": json.dumps(RECORDS),
    "list of payloads": json.dumps([PAYLOAD]),
    "lines of records": lines(*RECORDS),
    "lines of payloads": lines({**PAYLOAD, "records": RECORDS[:1]}, {**PAYLOAD, "records": RECORDS[1:]}),
    "list of parts": json.dumps([{**PAYLOAD, "records": RECORDS[:1]}, {**PAYLOAD, "records": RECORDS[1:]}]),
    "a state before and after": lines(
        {**SERVER, "internal_states": [{"dspark_info_record": {"records": RECORDS[:1]}}]}, SERVER
    ),
    "crlf, bom, blank line": "\ufeff" + lines(*RECORDS).replace("\n", "\r\n\r\n") + "\r\n",
    "utf-16": json.dumps(PAYLOAD).encode("utf-16"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_records(tmp_path: Path, shape: str) -> None:
    found = read_records(write(tmp_path, SHAPES[shape]))
    assert len(found.ranks) == 1
    (rank,) = found.ranks
    assert rank.forward_ct.tolist() == [10, 12]
    assert rank.ints["bs"].tolist() == [2, 3]
    assert rank.ints["num_verify_tokens"].tolist() == [-1, 24]
    assert rank.floats["step_gpu_ms"][0] == 12.1
    assert math.isnan(rank.floats["step_gpu_ms"][1])
    assert rank.reqs == [RECORDS[0]["reqs"], None]
    assert not found.warnings


def test_payload_head_and_server_facts_but_nothing_else_of_the_server(tmp_path: Path) -> None:
    found = read_records(write(tmp_path, json.dumps(SERVER)))
    assert (found.ranks[0].mode, found.ranks[0].gamma, found.ranks[0].verify_width) == ("static", 7, 8)
    assert found.server == {"tp_size": 2, "dp_size": 1}


def test_dp_ranks_of_one_reply_keep_their_place(tmp_path: Path) -> None:
    states = [{"dspark_info_record": PAYLOAD}, {}, {"dspark_info_record": {"records": [{"forward_ct": 7, "bs": 1}]}}]
    found = read_records(write(tmp_path, json.dumps({"tp_size": 6, "dp_size": 3, "internal_states": states})))
    assert [len(r) for r in found.ranks] == [2, 0, 1]
    # attention TP is 6 // 3 = 2: ranks 0 and 1 share the first record list, 4 and 5 the last
    of_rank = [found.for_rank(r) for r in range(6)]
    assert [r.index if r is not None else None for r in of_rank] == [0, 0, 1, 1, 2, 2]
    assert found.for_rank(6) is None


def test_ranks_concatenated_in_one_list_are_told_apart_where_forward_ct_starts_over(tmp_path: Path) -> None:
    both = [{"forward_ct": n, "bs": 1} for n in (3, 4, 6, 3, 5)]
    found = read_records(write(tmp_path, json.dumps({"sampling": {}, "records": both})))
    assert [r.forward_ct.tolist() for r in found.ranks] == [[3, 4, 6], [3, 5]]


def test_lines_of_two_ranks(tmp_path: Path) -> None:
    """Ranks count side by side: records of one forward_ct that differ are of two ranks."""
    other = {**PAYLOAD, "records": [{**record, "bs": 7} for record in RECORDS]}
    for text in (lines(PAYLOAD, other), json.dumps([PAYLOAD, other])):
        found = read_records(write(tmp_path, text))
        assert [r.ints["bs"].tolist() for r in found.ranks] == [[2, 3], [7, 7]]


def test_a_restarted_server_keeps_the_earlier_records_and_says_so(tmp_path: Path) -> None:
    def reply(bs: int) -> dict[str, Any]:
        return {"internal_states": [{"dspark_info_record": {"records": [{"forward_ct": 4, "bs": bs}]}}]}

    found = read_records(write(tmp_path, lines(reply(1), reply(2))))
    assert [r.ints["bs"].tolist() for r in found.ranks] == [[1]]
    assert "restarted" in found.warnings[0]


@pytest.mark.parametrize("number", ["[]", "{}", '"4"', "true", "1e400", "-3", "4.5", "99999999999999999999"])
def test_odd_counters(tmp_path: Path, number: str) -> None:
    text = f'[{{"forward_ct": {number}, "bs": 1}}, {{"forward_ct": 5.0, "bs": 2}}]'
    found = read_records(write(tmp_path, text + "\n" + text))
    assert [r.forward_ct.tolist() for r in found.ranks if len(r)] == [[5]]
    assert "without a usable forward_ct" in found.warnings[-1]


def test_lines_of_records_saved_twice_are_one_rank_and_of_two_ranks_are_two(tmp_path: Path) -> None:
    def numbers(*runs: tuple[int, ...]) -> list[list[int]]:
        text = lines(*({"forward_ct": n, "bs": 1} for run in runs for n in run))
        return [r.forward_ct.tolist() for r in read_records(write(tmp_path, text)).ranks]

    assert numbers((1, 2, 3), (2, 3, 4, 5)) == [[1, 2, 3, 4, 5]]
    assert numbers((3, 4, 6), (3, 5)) == [[3, 4, 6], [3, 5]]


def test_reduced_form_of_the_sps_profiler_is_in_seconds_and_names_its_ranks(tmp_path: Path) -> None:
    rows = [
        {
            "repeat": 0,
            "dp_rank": rank,
            "forward_ct": n,
            "num_running_reqs": 4 + rank,
            "num_verify_tokens": 32,
            "step_time": 0.0125,
        }
        for n in (1, 2)
        for rank in (1, 0)
    ]
    found = read_records(write(tmp_path, lines(*rows)))
    assert [r.forward_ct.tolist() for r in found.ranks] == [[1, 2], [1, 2]]
    assert [r.ints["bs"].tolist() for r in found.ranks] == [[4, 4], [5, 5]]
    assert found.ranks[0].floats["step_cpu_ms"].tolist() == [12.5, 12.5]


def test_nan_null_texts_and_unknown_keys(tmp_path: Path) -> None:
    text = (
        '{"components": ["core", "verify_logits"], "gamma": null, "records": ['
        '{"forward_ct": 1, "bs": 2, "step_gpu_ms": NaN, "draft_gpu_ms": null, "new": {"a": [1]}, "reqs": [null]},'
        '{"forward_ct": 2, "bs": "three", "step_gpu_ms": Infinity, "step_cpu_ms": "x"}]}'
    )
    found = read_records(write(tmp_path, text))
    (rank,) = found.ranks
    assert rank.ints["bs"].tolist() == [2, -1]
    assert all(math.isnan(v) for key in ("step_gpu_ms", "draft_gpu_ms", "step_cpu_ms") for v in rank.floats[key])
    assert found.warnings == [
        "`bs` is not a number in 1 records: read as absent there",
        "`step_cpu_ms` is not a number in 1 records: read as absent there",
    ]


def test_records_without_forward_ct_are_counted(tmp_path: Path) -> None:
    found = read_records(write(tmp_path, json.dumps([{"bs": 2}, {"forward_ct": None, "bs": 2}, {"forward_ct": 4}])))
    assert [len(r) for r in found.ranks] == [1]
    assert found.warnings == ["2 records without a usable forward_ct are left out"]


def test_a_broken_line_is_counted(tmp_path: Path) -> None:
    found = read_records(write(tmp_path, lines(*RECORDS) + '\n{"forward_ct": 13, "b'))
    assert found.ranks[0].forward_ct.tolist() == [10, 12]
    assert found.damaged
    assert found.warnings == ["1 of 3 lines are not JSON and are left out, the first is line 3"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (" \r\n", "is empty"),
        ("Unauthorized", "starts with 'Unauthorized'"),
        ('{"records": [{"forward_ct": 1}', "is not JSON"),
        ('{"error": "no"}', "holds no DSpark records"),
        ("[]", "holds no DSpark records"),
        ("3", "holds no DSpark records"),
        ('{"internal_states": [{"a": 1}]}', "SGLANG_DSPARK_DEBUG_DUMP"),
        ("[" * 5000, "nested deeper than 64 levels"),
    ],
)
def test_what_is_no_record_file_is_one_line_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=r"dspark\.json") as caught:
        read_records(write(tmp_path, text))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_records(tmp_path / "dspark.json")


def test_an_empty_list_of_records_is_a_rank_without_records(tmp_path: Path) -> None:
    assert [len(r) for r in read_records(write(tmp_path, json.dumps({**PAYLOAD, "records": []}))).ranks] == [0]
