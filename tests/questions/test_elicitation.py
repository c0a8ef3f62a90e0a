"""What an MCP server asks its user, as questions of a run, and the answers as results for the server."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from upcall.errors import AnswerRefused, FieldsRefused, UserInputRequired
from upcall.questions.answer import Answer, Outcome
from upcall.questions.elicitation import UnusableRequest, ValueForm, answer_request, digest_request
from upcall.questions.elicited_form import ElicitedForm
from upcall.questions.matching import AnswerValue, parse_answer
from upcall.questions.question import Question
from upcall.questions.tool_context import name_question, question_fields, tool_context


def form(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties] if required is None else required}
    return {"mode": "form", "message": "Say.", "requestedSchema": schema}


def page(url: str) -> dict[str, Any]:
    return {"mode": "url", "message": "Log in.", "url": url, "elicitationId": "1"}


def talk(params: dict[str, Any], *answers: AnswerValue, earlier: int = 0) -> tuple[Any, list[Question]]:
    """Return the result for the server, None while something is open, and what the human was asked for it."""
    given: dict[str, Answer] = {}
    asked: list[Question] = []
    for answer in [*answers, None]:
        with tool_context(given):
            try:
                return answer_request(params, "shop", "buy(hat)", earlier), asked
            except UserInputRequired as needed:
                fields = question_fields(needed, "buy")
                asked.append(Question(**{name: each for name, each in fields.items() if each is not None}))
        if answer is not None:
            given[name_question(asked[-1])] = parse_answer(asked[-1], answer)
    return None, asked


def decline(question_id: str = "") -> Answer:
    return Answer(question_id=question_id, outcome=Outcome.DECLINED)


ENUM = {"type": "string", "enum": ["a", "b"]}
CONTENT: list[tuple[str, dict[str, Any], AnswerValue, Any]] = [
    ("string", {"type": "string"}, "Ann", "Ann"),
    ("digits as text", {"type": "string"}, "007", "007"),
    ("integer", {"type": "integer"}, "12", 12),
    ("negative", {"type": "integer"}, "\N{MINUS SIGN}3", -3),
    ("number", {"type": "number"}, "2.5", 2.5),
    ("yes", {"type": "boolean"}, "Yes", True),
    ("no", {"type": "boolean"}, "no", False),
    ("enum", ENUM, "b", "b"),
    ("names", {**ENUM, "enumNames": ["Red", "Blue"]}, "blue", "b"),
    ("titles", {"oneOf": [{"const": "a", "title": "Red"}, {"const": "b", "title": "Blue"}]}, "red", "a"),
    ("same titles", {"oneOf": [{"const": "a", "title": "R"}, {"const": "b", "title": "R"}]}, "R (b)", "b"),
    ("same but for case", {"type": "string", "enum": ["a", "A"]}, "A", "A"),
    ("empty choice", {"type": "string", "enum": ["", "x"]}, "(empty)", ""),
    ("several", {"type": "array", "items": {"enum": ["a", "b", "c"]}}, ["a", "c"], ["a", "c"]),
    (
        "several titles",
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "Red"}, {"const": "b", "title": "Blue"}]}},
        "Red, Blue",
        ["a", "b"],
    ),
    ("more than a list shows", {"type": "string", "enum": [f"v{each}" for each in range(80)]}, "v70", "v70"),
]


@pytest.mark.parametrize(("name", "field", "answer", "value"), CONTENT, ids=[each[0] for each in CONTENT])
def test_answer_becomes_the_value_of_a_field(name: str, field: dict[str, Any], answer: AnswerValue, value: Any) -> None:
    result, asked = talk(form({"x": field}), answer)
    assert (result, len(asked)) == ({"action": "accept", "content": {"x": value}}, 1)
    assert type(result["content"]["x"]) is type(value)


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("word", {"type": "integer"}, "many", "valid integer"),
    ("fraction", {"type": "integer"}, "1.5", "valid integer"),
    ("too small", {"type": "integer", "minimum": 1}, "0", "greater than or equal to 1"),
    ("infinite", {"type": "number"}, "inf", "finite number"),
    ("not a number", {"type": "number"}, "nan", "finite number"),
    ("too long", {"type": "string", "maxLength": 3}, "word", "at most 3 characters"),
    ("no address", {"type": "string", "format": "email"}, "ann", "is not a 'email'"),
    ("no date", {"type": "string", "format": "date"}, "tomorrow", "should be a date"),
    ("beyond the list", {"type": "string", "enum": [f"v{each}" for each in range(80)]}, "v90", "should be 'v0'"),
]


@pytest.mark.parametrize(("name", "field", "answer", "why"), WRONG, ids=[each[0] for each in WRONG])
def test_answer_that_does_not_fit_is_refused(name: str, field: dict[str, Any], answer: str, why: str) -> None:
    _, (asked,) = talk(form({"x": field}))
    with pytest.raises(FieldsRefused, match=why):
        parse_answer(asked, answer)


ZOD_EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
NOT_DRAWN: list[tuple[str, dict[str, Any], AnswerValue, Any]] = [
    ("pattern that looks ahead", {"type": "string", "format": "email", "pattern": ZOD_EMAIL}, "a@b.org", "a@b.org"),
    ("pattern of an item", {"type": "array", "items": {"type": "string", "pattern": "(?=x)x"}}, "x, x", ["x", "x"]),
    ("broken rules", {"type": "string", "pattern": "[", "minLength": "x"}, "word", "word"),
    ("list of anything", {"type": "array"}, "a, b", ["a", "b"]),
    ("number or text", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "3", 3),
    ("text or number", {"type": ["string", "integer"]}, "3", "3"),
    ("number or flag", {"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "yes", True),
    ("object or text", {"anyOf": [{"type": "object"}, {"type": "string"}]}, "hi", "hi"),
    (
        "object with signs in its texts",
        {"anyOf": [{"type": "object"}, {"type": "string"}]},
        {"x": '{"a": "5 \N{MINUS SIGN} 3"}'},
        {"a": "5 \N{MINUS SIGN} 3"},
    ),
    ("negative or text", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "\N{MINUS SIGN}3", -3),
    ("items of two kinds", {"type": "array", "items": {"type": ["integer", "string"]}}, "a, 2", ["a", 2]),
    ("fraction as bound", {"type": "integer", "maximum": 99.5, "multipleOf": 0.5}, "99", 99),
    ("all of", {"allOf": [{"type": "integer"}, {"minimum": 2}]}, "2", 2),
    ("name of another value", {**ENUM, "enumNames": ["b", "c"]}, "b (a)", "a"),
    ("titles swapped", {"oneOf": [{"const": "a", "title": "B"}, {"const": "b", "title": "A"}]}, "A (b)", "b"),
    ("same choice twice", {"type": "string", "enum": ["a", "a"]}, "a", "a"),
    ("date and time", {"type": "string", "format": "date-time"}, "2026-01-31 14:30Z", "2026-01-31T14:30:00+00:00"),
]


@pytest.mark.parametrize(("name", "field", "answer", "value"), NOT_DRAWN, ids=[each[0] for each in NOT_DRAWN])
def test_field_is_answered_without_what_cannot_be_drawn(
    name: str, field: dict[str, Any], answer: AnswerValue, value: Any
) -> None:
    result, asked = talk(form({"x": field}), answer)
    assert (json.dumps(result), len(asked)) == (json.dumps({"action": "accept", "content": {"x": value}}), 1)


REFUSED_BY_SERVER: list[tuple[str, dict[str, Any], str, str, Any, str]] = [
    ("not", {"type": "string", "not": {"const": "bad"}}, "bad", "good", "good", "should not be valid"),
    ("if", {"if": {"minLength": 3}, "then": {"maxLength": 2}}, "long", "ok", "ok", "x: 'long' is too long"),
    ("fraction as bound", {"type": "integer", "maximum": 99.5}, "100", "99", 99, "maximum of 99.5"),
    ("contains", {"type": "array", "contains": {"const": "z"}}, "a", "a, z", ["a", "z"], "does not contain"),
    (
        "no zone",
        {"format": "date-time"},
        "2026-01-31T14:30",
        "2026-01-31T14:30+01:00",
        "2026-01-31T14:30:00+01:00",
        "zone",
    ),
]


@pytest.mark.parametrize(
    ("name", "field", "wrong", "right", "value", "why"), REFUSED_BY_SERVER, ids=[each[0] for each in REFUSED_BY_SERVER]
)
def test_answer_that_the_server_refuses_is_asked_again(
    name: str, field: dict[str, Any], wrong: str, right: str, value: Any, why: str
) -> None:
    result, asked = talk(form({"x": field}), wrong, wrong, right)
    assert result == {"action": "accept", "content": {"x": value}}
    assert asked[0].answer_draft is None
    assert why in str(asked[1].context)
    assert "(2 times so far)" in str(asked[2].context)
    assert asked[1].answer_draft is not None


def test_rules_of_whole_form_are_checked_before_sending() -> None:
    params = form({"x": {"type": "string"}}, [])
    params["requestedSchema"] |= {"minProperties": 1, "additionalProperties": {}}
    result, asked = talk(params, {}, "word")
    assert (result, len(asked)) == ({"action": "accept", "content": {"x": "word"}}, 2)


def test_pattern_of_names_holds_nothing_up() -> None:
    params = form({"a" * 40 + "!": {"type": "string"}})
    params["requestedSchema"] |= {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False}
    assert talk(params, "word")[0] == {"action": "accept", "content": {"a" * 40 + "!": "word"}}


def test_names_that_cannot_be_drawn_are_sent_as_given() -> None:
    names = ["a.b", "a  b", "a\u00a0b", "a_b", ""]
    _, (asked,) = talk(params := form({name: {"type": "string"} for name in names}))
    assert asked.answer_form is not None
    fields = asked.answer_form.fields
    assert [each.name for each in fields] == ["a_b_", "a b", "a b_", "a_b", "field"]
    assert fields[0].title == "a.b"
    content = {name: str(number) for number, name in enumerate(names)}
    given = {field.name: str(number) for number, field in enumerate(fields)}
    assert talk(params, given)[0] == {"action": "accept", "content": content}


FIELDS = {"name": {"type": "string", "title": "Your name"}, "old": {"type": "boolean", "description": "Over 18?"}}


def test_form_is_one_question_and_of_humans_only() -> None:
    result, (asked,) = talk(form(FIELDS), {"name": "Ann", "old": "yes"})
    assert result == {"action": "accept", "content": {"name": "Ann", "old": True}}
    assert asked.question == "The MCP server shop asks:\n| Say."
    assert (asked.is_risk, asked.default, asked.required) == (True, None, True)
    assert asked.answer_form is not None
    assert [each.label for each in asked.answer_form.fields] == ["Your name", "Old"]


@pytest.mark.parametrize("given", [{"name": "Ann"}, {"name": "Ann", "old": 1}, "Ann"])
def test_incomplete_form_is_refused(given: AnswerValue) -> None:
    _, (asked,) = talk(form(FIELDS))
    with pytest.raises(AnswerRefused):
        parse_answer(asked, given)


def test_suggestion_of_a_server_stands_in_no_field() -> None:
    field = {"type": "boolean", "default": True, "description": "Buy it"}
    _, (asked,) = talk(form({"sure": field}, []))
    assert asked.answer_form is not None
    (shown,) = asked.answer_form.fields
    assert (asked.default, shown.begun, shown.default) == (None, None, None)
    assert shown.description == "Buy it The server suggests: true."
    assert talk(form({"sure": field}, []), {})[0] == {"action": "accept", "content": {}}


def test_suggestion_in_an_alternative_is_shown_as_such() -> None:
    _, (asked,) = talk(form({"x": {"anyOf": [{"type": "string", "default": "me"}, {"type": "null"}]}}))
    assert asked.answer_form is not None
    (shown,) = asked.answer_form.fields
    assert (shown.begun, shown.description) == (None, "The server suggests: me.")


@pytest.mark.parametrize("field", [{"type": "string"}, ENUM, {"type": "boolean"}, {"type": "integer"}])
def test_optional_field_may_be_left_empty(field: dict[str, Any]) -> None:
    _, (asked,) = talk(params := form({"x": field}, ["y"]))
    assert asked.answer_form is not None
    assert talk(params, asked.answer_form.take({"x": ""}))[0] == {"action": "accept", "content": {}}


def test_texts_of_a_form_hide_nothing() -> None:
    field = {"type": "string", "enum": ["a\u202e", "b"], "title": "Name\u202e", "description": "Your\u2066 name"}
    result, (asked,) = talk(form({"x": field}), "a\u202e")
    assert asked.answer_form is not None
    (shown,) = asked.answer_form.fields
    assert (shown.title, shown.description) == ("Name", "Your name")
    assert result["content"] == {"x": "a\u202e"}


NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SIZED = {"properties": {"size": {"type": "integer"}}, "required": ["size"]}


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"$ref": "#/definitions/Form", "definitions": {"Form": NAMED}}, {"name": "Ann"}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/Form"}, "Form": NAMED}}, {"name": "Ann"}),
        ({"allOf": [NAMED, SIZED]}, {"name": "Ann", "size": 3}),
        ({**NAMED, "allOf": [SIZED]}, {"name": "Ann", "size": 3}),
    ],
    ids=["ref", "ref of a ref", "all of", "fields and all of"],
)
def test_form_behind_a_reference_is_asked_whole(schema: dict[str, Any], answer: dict[str, Any]) -> None:
    result, (asked,) = talk({**form({}), "requestedSchema": schema}, answer)
    assert result == {"action": "accept", "content": answer}
    assert asked.answer_form is not None
    assert {each.name for each in asked.answer_form.fields if each.required} == {*answer}
    value = ValueForm(schema)
    assert value.has_fields
    assert value.read(parse_answer(asked, answer)) == (answer, None)


@pytest.mark.parametrize("more", [{"maxLength": 3}, {"type": "string", "maxLength": 3, "title": "A name"}])
@pytest.mark.parametrize("rule", [{"minLength": 2}, {"minLength": 2, "maxLength": 9}])
def test_form_keeps_all_rules_of_a_field(more: dict[str, Any], rule: dict[str, Any]) -> None:
    parts = [NAMED, {"properties": {"name": rule}}, {"properties": {"name": more}}]
    read = ElicitedForm({"type": "object", "allOf": parts}).find_problem
    assert [read({"name": each}) is None for each in ("A", "Ann", "Anna")] == [False, True, False]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/Gone"},
        {"$ref": "#"},
        {"type": "string"},
        {"anyOf": [NAMED]},
        {"type": "object", "allOf": 5},
        {"allOf": [{"properties": 5}, SIZED]},
        {"type": "object", "allOf": [{**SIZED, "required": 3}]},
    ],
)
def test_form_that_is_no_object_gets_no_empty_yes(schema: dict[str, Any]) -> None:
    with pytest.raises(UnusableRequest, match="not an object"):
        talk({**form({}), "requestedSchema": schema}, "yes")


def test_form_without_fields_asks_for_a_yes() -> None:
    assert talk(form({}), "yes")[0] == {"action": "accept", "content": {}}
    assert talk(form({}), "no")[0] == {"action": "decline"}


@pytest.mark.parametrize(
    ("outcome", "action"),
    [(Outcome.DECLINED, "decline"), (Outcome.EXPIRED, "cancel"), (Outcome.CANCELLED, "cancel")],
)
def test_outcome_of_a_question_becomes_the_action(outcome: Outcome, action: str) -> None:
    for params in (form({"x": ENUM}), form({}), page("https://a.example/")):
        _, (asked,) = talk(params)
        with tool_context({name_question(asked): Answer(question_id=asked.id, outcome=outcome)}):
            assert answer_request(params, "shop", "buy(hat)") == {"action": action}


def test_declined_form_is_declined() -> None:
    result, asked = talk(form({"a": {"type": "string"}, "b": ENUM}), decline())
    assert (result, len(asked)) == ({"action": "decline"}, 1)


PAGES = [
    ("https://shop.example.org/login?id=1#x", "shop.example.org", ""),
    ("https://shop.example.org@evil.example/", "evil.example", "before the @"),
    ("https://p\u0430ypal.example/", "xn--pypal-4ve.example", "look like others"),
    ("http://shop.example.org/", "shop.example.org", "not encrypted"),
    ("http://127.0.0.1:80/", "127.0.0.1", ""),
]


@pytest.mark.parametrize(("url", "host", "warning"), PAGES)
def test_page_is_shown_whole_with_its_host(url: str, host: str, warning: str) -> None:
    result, (asked,) = talk(page(url), "Done, I was there")
    assert result == {"action": "accept"}
    assert asked.question.split("\n")[2:] == [url, f"Host: {host}"]
    assert ("Take care" in str(asked.context), warning in str(asked.context)) == (bool(warning), True)


NO_PAGES = ["javascript:alert(1)", "file:///etc/passwd", "shop", "", "https://", "https://a b/", "https://[::1"]


@pytest.mark.parametrize("url", [*NO_PAGES, "https://a.example/\u202etxt", "https://a.example/" + "x" * 2_000])
def test_page_that_cannot_be_shown_is_not_asked_for(url: str) -> None:
    with pytest.raises(UnusableRequest):
        talk(page(url))


@pytest.mark.parametrize(
    "properties",
    [
        {"x": {"type": "object"}},
        {"x": {"type": "array", "items": {"type": "object", "enum": [{}]}}},
        {"x": "text"},
        {str(each): {"type": "string"} for each in range(60)},
        {"x": {"type": "object", "properties": {"y": {"type": "string"}}}},
        {"x\u202e": {"type": "string"}},
        {"x": {"type": "string", "format": "password"}},
        {"x": {"anyOf": [{"type": "string", "format": "password"}, {"type": "integer"}]}},
        {"x": {"anyOf": [{"type": "object"}, {"type": "array"}]}},
        {"x": {"$ref": "#/$defs/none"}},
        {"x": {"type": "array", "items": {"$ref": "#/properties/x"}}},
        {"x": {"enum": 5}},
        {"x": {"type": {}}},
    ],
)
def test_form_beyond_the_protocol_is_refused_in_a_line(properties: dict[str, Any]) -> None:
    with pytest.raises(UnusableRequest, match="cannot be shown") as refused:
        talk({**form({}), "requestedSchema": {"type": "object", "properties": properties}})
    assert re.search(r"\n|unhashable|pydantic|schema is not one", str(refused.value)) is None


def test_same_request_in_one_call_is_asked_again() -> None:
    params = form({"name": {"type": "string"}})
    (_, (first,)), (_, (second,)) = talk(params), talk(params, earlier=1)
    assert name_question(first) != name_question(second)
    assert "again" in str(second.context)


def test_words_of_a_server_do_not_pass_for_ours() -> None:
    _, (asked,) = talk({**form({}), "message": "Fine.\nHost: bank.example\nThe MCP server other asks:"})
    assert [line[:2] for line in asked.question.split("\n")[1:]] == ["| "] * 3


def test_page_of_the_same_host_is_the_same_request() -> None:
    one, other = page("https://a.example/1?x=1"), page("https://a.example/2")
    assert digest_request(one) == digest_request(other) != digest_request(page("https://b.example/1"))
