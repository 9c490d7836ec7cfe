"""The JSON Schema of DSpark records, our columns and the field lists of the reference say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from samples.config import Config
from samples.dspark_records import payload
from samples.generate import simulate
from schemas.dspark import (
    PAYLOAD_FIELDS,
    RECORD_FLOATS,
    RECORD_INTS,
    RECORD_TEXTS,
    REQUEST_FLOATS,
    REQUEST_ID,
    REQUEST_INTS,
    REQUEST_TOKENS,
)

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "schemas" / "dspark_record.schema.json").read_text("utf-8")
)
PYTHON_TYPES = {
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
    "object": dict,
    "null": type(None),
}


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    return SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]] if "$ref" in node else node


def problems(value: Any, node: dict[str, Any], at: str = "$") -> list[str]:
    """The part of JSON Schema that the file uses: type, enum, required, properties, items, minimum."""
    node = resolved(node)
    if "enum" in node:
        return [] if value in node["enum"] else [f"{at}: {value!r}"]
    types = node["type"] if isinstance(node["type"], list) else [node["type"]]
    if isinstance(value, bool) or not any(isinstance(value, PYTHON_TYPES[t]) for t in types):
        return [f"{at}: {value!r} is no {types}"]
    out = []
    if isinstance(value, dict):
        out += [f"{at}: no {key}" for key in node.get("required", ()) if key not in value]
        for key, item in value.items():
            if key in node.get("properties", {}):
                out += problems(item, node["properties"][key], f"{at}.{key}")
    if isinstance(value, list):
        out += [p for i, item in enumerate(value) for p in problems(item, node["items"], f"{at}[{i}]")]
    if isinstance(value, int) and value < node.get("minimum", value):
        out.append(f"{at}: {value} is below {node['minimum']}")
    return out


def properties(name: str) -> set[str]:
    return set(SCHEMA["$defs"][name]["properties"])


def test_columns_are_those_of_the_schema() -> None:
    assert {*RECORD_INTS, *RECORD_FLOATS, *RECORD_TEXTS, "reqs"} == properties("record")
    assert {*REQUEST_INTS, *REQUEST_FLOATS, *REQUEST_TOKENS, REQUEST_ID} == properties("request")
    assert set(PAYLOAD_FIELDS) == set(SCHEMA["properties"])


def fields_of_table(text: str, heading: str) -> dict[str, str]:
    """field -> type of the first table under a heading."""
    rows = re.search(rf"^### {re.escape(heading)}.*?\n\|.*?\n\|[-|]+\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert rows is not None
    out = {}
    for row in rows[1].splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        for name in re.findall(r"`(\w+)`", cells[0]):
            out[name] = cells[1]
    return out


def test_schema_holds_every_field_of_the_reference_with_its_type(shared: Path) -> None:
    text = (shared / "reference" / "dspark.md").read_text("utf-8")
    for heading, name in (("1.4 ", "record"), ("1.5 ", "request")):
        fields = fields_of_table(text, heading)
        assert set(fields) == properties(name)
        for field, kind in fields.items():
            types = SCHEMA["$defs"][name]["properties"][field]["type"]
            types = [types] if isinstance(types, str) else types
            wanted = {"int": "integer", "float": "number", "str": "string", "list": "array"}
            first = next(schema for short, schema in wanted.items() if kind.startswith(short))
            assert first in types, field
            assert ("null" in types) == kind.split(" ")[0].endswith("?"), field


def test_records_of_the_simulator_fit_and_wrong_ones_do_not() -> None:
    (capture,) = simulate(Config(ranks=1, steps=2))
    made = json.loads(json.dumps(payload(capture)))
    assert problems(made, SCHEMA) == []
    assert problems({"records": [{"bs": 2}]}, SCHEMA) == ["$.records[0]: no forward_ct"]
    assert problems({"records": [{"forward_ct": "2"}]}, SCHEMA)
    assert problems({"records": [{"forward_ct": 2, "reqs": [{"acc_len": None}]}], "new": 1}, SCHEMA)
