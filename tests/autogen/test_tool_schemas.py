"""Tools whose schemas are none, or refer to much, written in another way for a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upcall.autogen.openai_client.mends import MENDS

INLINE, SIMPLE = "references in tools", "the whole schemas of tools (a simple form instead)"


def rewrite(mend: str, schema: dict[str, Any]) -> Any:
    function: dict[str, Any] = {"name": "t", "parameters": schema}
    MENDS[mend].apply({"tools": [{"type": "function", "function": function}]})
    return function["parameters"]


@pytest.mark.parametrize("mend", [INLINE, SIMPLE])
@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": 1, "properties": 5},
        {"anyOf": True, "required": 5, "type": {}, "properties": {"a": {"required": True, "enum": 3}}},
        {"$defs": {"": [], "a": "b"}, "properties": {"a": {"$ref": "#/$defs/a"}, "$ref": {"$ref": ["x"]}}},
        {"properties": {"a": {"$ref": "#"}}, "type": ["null", 5]},
    ],
)
def test_malformed_tool_schema_is_still_written(mend: str, schema: dict[str, Any]) -> None:
    assert json.dumps(rewrite(mend, schema))


def test_reference_with_escapes_is_inlined() -> None:
    schema = {"$defs": {"a/b[c]": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/a~1b%5Bc%5D"}}}
    assert rewrite(INLINE, schema) == {"properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize("reference", ["#/definitions/A", "#/components/schemas/A", "A"])
def test_reference_to_another_place_is_inlined_by_name(reference: str) -> None:
    schema = {"$defs": {"A": {"type": "integer"}}, "properties": {"a": {"$ref": reference}}}
    assert rewrite(INLINE, schema) == {"properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize("mend", [INLINE, SIMPLE])
def test_inlined_references_in_one_another_stay_small(mend: str) -> None:
    levels: dict[str, Any] = {
        f"n{at}": {"properties": {f"p{each}": {"$ref": f"#/$defs/n{at + 1}"} for each in range(20)}} for at in range(9)
    }
    schema = {"$defs": {**levels, "n9": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/n0"}}}
    assert len(json.dumps(rewrite(mend, schema))) < 1_000_000
