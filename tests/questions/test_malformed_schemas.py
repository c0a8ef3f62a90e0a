"""Schemas that are none, or written to take for ever: one clear error where they are asked with, else no refusal."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress
from typing import Any

import pytest

from upcall.autogen.mending import mend_arguments
from upcall.errors import CallerError, UnusableSchema, UserInputRequired
from upcall.questions.answer_form import AnswerForm, InvalidFields
from upcall.questions.elicitation import UnusableRequest, answer_request
from upcall.questions.json_values import find_problem, is_entangled, look_up, resolve_root
from upcall.questions.tool_call import PendingCall
from upcall.questions.tool_context import ask, tool_context
from upcall.subjects.external import describe_question

TEXT = {"type": "string"}
FIELDS = {"type": "object", "properties": {"a": TEXT}}
WORDS = (
    *("type", "properties", "required", "enum", "items", "$ref", "$defs", "allOf", "anyOf", "oneOf", "const"),
    *("default", "minimum", "pattern", "format", "description", "title", "$schema", "$id", "$dynamicRef"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1.5, "", "a", "#", "#/$defs/a", "string", "object", "array", "(a+)+$", "\ud800", [], {}),
    *([["x"]], [{"a": 1}], ["a"], [TEXT], [FIELDS], {"a": TEXT}, {"a": 5}, {"a": FIELDS}, TEXT, FIELDS),
)


def elicit(schema: object) -> object:
    with tool_context({}):
        return answer_request({"mode": "form", "message": "Say.", "requestedSchema": schema}, "shop", "buy()")


def ask_with(schema: object) -> object:
    with tool_context({}):
        return ask("What?", schema=schema)


@pytest.mark.parametrize("names", [[["x"]], [{"a": 1}], [None], "a", 5])
@pytest.mark.parametrize("word", ["$ref", "allOf"])
def test_malformed_required_beside_reference_is_refused(word: str, names: object) -> None:
    made_of: object = "#/$defs/a" if word == "$ref" else [FIELDS]
    schema = {"$defs": {"a": FIELDS}, word: made_of, "properties": {"b": TEXT}, "required": names}
    assert resolve_root(schema) == schema
    with pytest.raises(UnusableRequest, match="cannot be shown"):
        elicit(schema)
    described = describe_question("Where?", path=["a"], schema={**schema, "required": [["x"], "b"]}, deadline=60)
    assert described.answer_form is not None


@pytest.mark.slow
def test_random_schemas_raise_documented_errors_alone() -> None:
    draw = random.Random(7)
    for _ in range(1_500):
        schema: dict[str, Any] = {word: draw.choice(VALUES) for word in draw.sample(WORDS, draw.randint(1, 6))}
        schema |= {"properties": {"a": {**schema}, "b": TEXT}} if draw.random() < 0.5 else {}
        with suppress(UnusableSchema, InvalidFields):
            AnswerForm.of(schema).check({"a": "a", "b": 1})
        with suppress(UnusableSchema, UserInputRequired):
            ask_with(schema)
        with suppress(UnusableRequest, UserInputRequired):
            elicit(schema)
        with suppress(CallerError):
            describe_question("Where?", path=["a"], schema=schema, deadline=60)
        with suppress(ValueError):
            PendingCall(tool="t", arguments={}, parameters=schema).edit('{"a": "b"}')
        find_problem(schema, {"a": ["b"]})
        mend_arguments('{"a": "5", "B": null}', schema, "t")


def test_reference_with_escapes_is_found() -> None:
    root = {"$defs": {"a/b": 1, "a~b": 2, "List[str]": 3, "a b": 4, "~1": 5}, "allOf": [6, {"x": 7}]}
    names = ["a~1b", "a~0b", "List%5Bstr%5D", "a%20b", "~01"]
    assert [look_up(f"#/$defs/{name}", root) for name in names] == [1, 2, 3, 4, 5]
    assert [look_up(each, root) for each in ("#/allOf/0", "#/allOf/1/x", "#")] == [6, 7, root]
    assert [look_up(each, root) for each in ("#/allOf/2", "#/allOf/-1", "#a", "", "http://x/#/allOf")] == [None] * 5


def test_form_follows_a_reference_with_escapes() -> None:
    form = AnswerForm.of({"$defs": {"List[a/b]": TEXT}, "properties": {"a": {"$ref": "#/$defs/List%5Ba~1b%5D"}}})
    assert form.check({"a": "x"}) == {"a": "x"}


@pytest.mark.parametrize("schema", [{"$dynamicRef": "#"}, {"properties": {"a": {"$recursiveRef": "#"}}, "$ref": "#"}])
def test_check_by_a_schema_in_a_circle_ends(schema: dict[str, Any]) -> None:
    assert find_problem(schema, {"a": 1}) is None


def test_deep_value_is_checked_by_a_recursive_schema() -> None:
    tree = {"type": "object", "properties": {"below": {"$ref": "#"}, "size": {"type": "integer"}}}
    value: dict[str, Any] = {"size": "big"}
    for _ in range(20):
        value = {"below": value}
    assert "'big' is not of type 'integer'" in (find_problem(tree, value) or "")


def test_schema_that_is_none_refuses_nothing() -> None:
    for schema in ({"type": "text"}, {"required": "a"}, {"minimum": "5"}, {"$id": {}}, {"type": 5}):
        assert find_problem({"maxLength": 1, **schema}, "d") is None


def test_half_a_character_in_a_schema_is_refused() -> None:
    with pytest.raises(UnusableSchema, match="the schema is not JSON"):
        ask_with({"properties": {"a": {"enum": ["\ud800", "b"]}}})


def test_malformed_schema_is_not_entangled() -> None:
    assert not is_entangled({"allOf": 5, "$ref": ["a"], "anyOf": [{"$ref": "#m"}, None]})


LONG = "a" * 60 + "!"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("rules", "given", "problem"),
    [
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": LONG}, f"a: '{LONG}' does not match '^(a+)+$'"),
        ({"properties": {"a": {"pattern": "^[a-z]{2}$"}}}, {"a": "de\n"}, "a: 'de\\n' does not match '^[a-z]{2}$'"),
        ({"properties": {"a": {"pattern": "b"}}}, {"a": "abc"}, None),
        ({"properties": {"a": {"pattern": r"^(?=(a+)+$)"}}}, {"a": LONG}, None),  # The tool has the last word.
        ({"properties": {"a": {"pattern": "["}}}, {"a": "x"}, None),
        ({"patternProperties": {"^(a+)+$": {"type": "string"}}}, {LONG: 1}, None),
        ({"patternProperties": {"^x-": {"type": "string"}}}, {"x-a": 1}, "x-a: 1 is not of type 'string'"),
        ({"patternProperties": {"^x-": {}}, "additionalProperties": False}, {"x-a": 1}, None),
        (
            {"patternProperties": {"^x-": {}}, "additionalProperties": False},
            {"x-a": 1, "b": 2},
            "Additional properties are not allowed ('b' was unexpected)",
        ),
        ({"patternProperties": {"(?=x)": {}}, "additionalProperties": False}, {"b": 2}, None),
        ({"patternProperties": {"^x": {}}, "additionalProperties": TEXT}, {"b": 2}, "b: 2 is not of type 'string'"),
        ({"unevaluatedProperties": False}, {"b": 2}, "Unevaluated properties are not allowed ('b' was unexpected)"),
        ({"allOf": [{"patternProperties": {"(a+)+$": {}}}], "unevaluatedProperties": False}, {LONG: 2}, None),
        ({"properties": {"a": {"$schema": DRAFT, "pattern": "^(?=(a+)+$)"}}}, {"a": LONG}, None),
        ({"$schema": DRAFT, "properties": {"a": {"$ref": "#"}}, "patternProperties": {"(a+)+$": {}}}, {LONG: 1}, None),
        ({"properties": {"$schema": TEXT}}, {"$schema": 1}, "$schema: 1 is not of type 'string'"),
        ({"properties": {"a": {"const": {"$schema": "x"}}}}, {"a": {"$schema": "x"}}, None),
        ({"properties": {"a": {"pattern": r"^\<\w+\>$"}}}, {"a": "<tag>"}, None),
        ({"properties": {"a": {"pattern": "^[a-z&&0-9]+$"}}}, {"a": "a&1"}, None),
    ],
)
def test_patterns_of_others_hold_nothing_up(rules: dict[str, Any], given: dict[str, Any], problem: str | None) -> None:
    """No time is asserted: what backtracks on one of these does so for hours."""
    schema = {"type": "object", **rules}
    assert find_problem(schema, given) == problem
    call = PendingCall(tool="t", arguments={}, parameters=schema)
    if problem is None:
        assert call.edit(json.dumps(given)) == given
    else:
        with pytest.raises(ValueError, match=re.escape(problem)):
            call.edit(json.dumps(given))
