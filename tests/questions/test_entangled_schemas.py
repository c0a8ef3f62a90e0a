"""Small schemas that would take for ever: by references in one another, by texts that a format is checked of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upcall.errors import CallerError, UnusableSchema
from upcall.questions.answer import Answer
from upcall.questions.answer_form import AnswerForm, InvalidFields
from upcall.questions.elicitation import UnusableRequest, ValueForm
from upcall.questions.json_values import find_problem, is_entangled
from upcall.subjects.external import describe_question

FIELDS = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["name"],
}


def entangle(word: str, width: int = 20, depth: int = 9) -> dict[str, Any]:
    """Return a schema of under 10 KB in which each level refers to the next one many times."""
    parts: dict[str, Any] = {f"n{depth}": {"type": "string"}}
    for level in range(depth):
        others = [{"$ref": f"#/$defs/n{level + 1}"} for _ in range(width)]
        parts[f"n{level}"] = {"type": "null", word: [{"type": "string"}, *others]}
    return {"$defs": parts, "$ref": "#/$defs/n0"}


@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
def test_form_of_references_in_one_another_is_refused(word: str) -> None:
    schema = entangle(word)
    assert len(json.dumps(schema)) < 10_000
    with pytest.raises(UnusableSchema):
        AnswerForm.of({"type": "object", "$defs": schema["$defs"], "properties": {"a": {"$ref": "#/$defs/n0"}}})


@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
def test_value_is_not_checked_by_such_a_schema(word: str) -> None:
    schema = {"type": "string", **entangle(word)}
    assert is_entangled(schema)
    assert find_problem(schema, "a") is None
    with pytest.raises(UnusableRequest, match="too many alternatives"):
        ValueForm({"type": "string", "allOf": [schema], "$defs": schema["$defs"]})


def test_schema_of_a_tree_is_not_entangled() -> None:
    tree = {"$defs": {"node": {"type": "object", "properties": {"below": {"items": {"$ref": "#/$defs/node"}}}}}}
    assert not is_entangled({**tree, "$ref": "#/$defs/node"})
    assert find_problem({**tree, "$ref": "#/$defs/node"}, {"below": [1]}) is not None


def test_long_text_of_a_format_is_refused_at_once() -> None:
    form = AnswerForm.of({"type": "object", "properties": {"a": {"type": "string", "format": "iri"}}})
    with pytest.raises(InvalidFields, match="too long to be checked as iri"):
        form.check({"a": "http://a/" + "[" * 90_000})
    assert find_problem({"type": "string", "format": "iri"}, "[" * 90_000) is None


def test_bound_that_is_no_number_is_refused() -> None:
    price = {"anyOf": [{"type": "number", "minimum": "abc"}, {"type": "string"}]}
    with pytest.raises(UnusableSchema):
        AnswerForm.of({"type": "object", "properties": {"price": price}})


@pytest.mark.parametrize("text", ["blue", "[1]", "7", '{"other": 1}'])
def test_plain_answer_does_not_fit_several_fields(text: str) -> None:
    value, problem = ValueForm(FIELDS).read(Answer(question_id="q", text=text))
    assert value is None
    assert problem
    assert ValueForm(FIELDS).read(Answer(question_id="q", text='{"name": "a"}')) == ({"name": "a"}, None)


def test_default_that_does_not_fit_several_fields_is_refused() -> None:
    with pytest.raises(CallerError, match="'staging' does not answer"):
        describe_question("Where?", path=["a"], schema=FIELDS, default="staging", deadline=60)
    assert describe_question("Where?", path=["a"], schema=FIELDS, default='{"name": "a"}', deadline=60).default
