"""`ask(schema=...)`: a form of several fields, checked where it is filled in, and an instance for the tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.base import Team
from pydantic import BaseModel, field_validator
from trips import BAD_VALUES, BOOKED, TRIP, Address, Trip, book
from worlds import pausing

from upcall import Answer, Outcome, PausableAgent, Settings, Upcall, ask
from upcall.errors import AnswerRefused, FieldsRefused, UnusableSchema, UserInputRequired
from upcall.policy.duplicates import share_answer
from upcall.questions import answer_form
from upcall.questions.answer_form import AnswerForm, InvalidFields
from upcall.questions.matching import AnswerValue, match_answers, parse_answer
from upcall.questions.question import Question
from upcall.testing import Call, ScriptedModelClient

FORM = AnswerForm.of(Trip.model_json_schema())


def app_of(model: ScriptedModelClient, tool: Callable[..., Any]) -> Upcall:
    def make() -> Team:
        return pausing(PausableAgent("solo", model, tools=[tool]))

    return Upcall(store="runs.db", team=make, settings=Settings())


def asked_of(schema: Any) -> Question:
    return Question(question="Which trip?", answer_schema=schema)


async def test_typed_answer_reaches_its_tool_as_an_instance() -> None:
    with ScriptedModelClient([Call("book"), "Done."]) as model:
        asked = await app_of(model, book).start("Book it")
        done = await app_of(model, book).answer(asked.id, {**TRIP, "nights": "2"})
        assert [*model.requests[-1].tool_results.values()] == [BOOKED]
    assert json.loads(done.answers[0].text) == {**TRIP, "nights": 2}


async def test_typed_answer_the_model_refuses_is_asked_again() -> None:
    with ScriptedModelClient([Call("book"), "Done."]) as model:
        asked = await app_of(model, book).start("Book it")
        again = await app_of(model, book).answer(asked.id, {**TRIP, "traveller": "Ada"})
        (question,) = again.questions
        assert question.context == "What was answered does not fit: traveller: give a surname too."
        assert question.answer_form is not None
        shown = {each.name: each.begun_text for each in question.answer_form.fields}
        assert (shown["traveller"], shown["address.city"]) == ("Ada", "Oslo")
        again = await app_of(model, book).answer(asked.id, {**TRIP, "traveller": "Ada"})
        assert "(2 times so far)" in (again.questions[0].context or "")
        done = await app_of(model, book).answer(asked.id, Trip.model_validate(TRIP))
    assert done.result == "Done."


async def test_long_answer_the_model_refuses_is_kept() -> None:
    remark = "First line\n" + "x" * 50_000
    with ScriptedModelClient([Call("book"), "Done."]) as model:
        asked = await app_of(model, book).start("Book it")
        again = await app_of(model, book).answer(asked.id, {**TRIP, "traveller": "Ada", "remark": remark})
        (question,) = again.questions
        assert question.context == "What was answered does not fit: traveller: give a surname too."
        assert question.answer_form is not None
        shown = {each.name: each.begun_text for each in question.answer_form.fields}
        assert shown["remark"] == remark
        kept = question.answer_form.take({**shown, "traveller": "Ada Byron"})
        done = await app_of(model, book).answer(asked.id, kept)
        assert next(iter(model.requests[-1].tool_results.values())).endswith(f"({remark})")
    assert done.result == "Done."


async def test_cleared_field_stays_empty_when_asked_again() -> None:
    class Note(BaseModel):
        text: str
        place: str | None = "here"

        @field_validator("text")
        @classmethod
        def _has_an_end(cls, value: str) -> str:
            if not value.endswith("."):
                raise ValueError("end it")
            return value

    def write() -> str:
        """Write it."""
        return repr(ask("What?", schema=Note))

    with ScriptedModelClient([Call("write"), "Done."]) as model:
        asked = await app_of(model, write).start("Write it")
        again = await app_of(model, write).answer(asked.id, {"text": "a", "place": None})
        form = again.questions[0].answer_form
        assert form is not None
        drawn = {each.name: each.begun_text for each in form.fields}
        await app_of(model, write).answer(asked.id, form.take({**drawn, "text": "a."}))
        assert [*model.requests[-1].tool_results.values()] == ["Note(text='a.', place=None)"]


def test_answer_that_is_too_long_is_kept() -> None:
    given = {"traveller": "x" * 60_000, "remark": "y" * 60_000}
    with pytest.raises(FieldsRefused, match="at most 100,000 are taken") as refused:
        parse_answer(asked_of({"properties": {"traveller": {"type": "string"}, "remark": {}}}), given)
    assert refused.value.given == given


async def test_form_that_cannot_be_shown_takes_json(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModelClient([Call("book"), "Done."]) as model:
        asked = await app_of(model, book).start("Book it")
        monkeypatch.setattr(answer_form, "MAX_FIELDS", 3)
        answer_form._read_form.cache_clear()
        app = app_of(model, book)
        assert [each.id for each in await app.list()] == [asked.id]
        (question,) = (await app.get(asked.id)).questions
        problem = "its fields cannot be shown: a form has 1 to 3 fields, and this one 10."
        assert question.as_text().endswith(f"Answer with a JSON object by the schema of the question; {problem}")
        with pytest.raises(AnswerRefused, match=r"is not a JSON object\. Its fields cannot be shown"):
            await app.answer(asked.id, "To Oslo")
        with pytest.raises(FieldsRefused, match="'many' is not of type 'integer'"):
            await app.answer(asked.id, {**TRIP, "nights": "many"})
        await app.answer(asked.id, json.dumps(TRIP))
        assert [*model.requests[-1].tool_results.values()] == [BOOKED]


async def test_raised_form_that_cannot_be_shown_is_refused() -> None:
    def order() -> str:
        """Order it."""
        raise UserInputRequired("Where to?", schema={"type": "string"})

    with ScriptedModelClient([Call("order"), "Done."]) as model:
        done = await app_of(model, order).start("Order it")
        assert "has no fields" in next(iter(model.requests[-1].tool_results.values()))
    assert done.result == "Done."


@pytest.mark.parametrize(
    ("field", "given", "value"),
    [
        ({"type": "string"}, "007", "007"),
        ({"type": "string"}, '{"x": "a"}', "a"),
        ({"type": "integer"}, 3, 3),
        ({"type": "boolean"}, "no", False),
        ({"type": "array", "items": {"type": "string"}}, ["a", "b"], ["a", "b"]),
        ({"type": "object", "properties": {"y": {"type": "string"}}}, "a", {"y": "a"}),
    ],
)
def test_form_of_one_field_takes_its_bare_value(field: dict[str, Any], given: AnswerValue, value: object) -> None:
    assert json.loads(parse_answer(asked_of({"properties": {"x": field}}), given).text) == {"x": value}


def test_bare_value_is_refused_where_several_fields_are() -> None:
    with pytest.raises(AnswerRefused, match="is not a JSON object"):
        parse_answer(asked_of({"properties": {"x": {"type": "string"}, "y": {"type": "string"}}}), "a")


def test_field_named_like_a_question_id_is_a_field() -> None:
    schema: dict[str, Any] = {"properties": {"face": {"type": "string"}}}
    question = asked_of(schema).model_copy(update={"id": "facedc0ffee1"})
    (given,) = match_answers({"face": "round"}, [question])
    assert given.text == '{"face": "round"}'


async def test_typed_question_that_is_declined_gives_the_answer() -> None:
    with ScriptedModelClient([Call("book"), "Done."]) as model:
        asked = await app_of(model, book).start("Book it")
        await app_of(model, book).answer(asked.id, Answer(question_id=asked.questions[0].id, outcome=Outcome.DECLINED))
        assert [*model.requests[-1].tool_results.values()] == ["Not booked: declined."]


async def test_json_schema_gives_the_tool_a_dict() -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer", "enum": [1, 2]}}, "required": ["size"]}

    def order() -> str:
        """Order it."""
        return repr(ask("Which size?", schema=schema))

    with ScriptedModelClient([Call("order"), "Done."]) as model:
        asked = await app_of(model, order).start("Order it")
        await app_of(model, order).answer(asked.id, '{"size": "2"}')
        assert [*model.requests[-1].tool_results.values()] == ["{'size': 2}"]


async def test_typed_question_raised_gives_the_model_json() -> None:
    def order() -> str:
        """Order it."""
        raise UserInputRequired("Where to?", schema=Address)

    with ScriptedModelClient([Call("order"), "Done."]) as model:
        asked = await app_of(model, order).start("Order it")
        await app_of(model, order).answer(asked.id, {"city": "Oslo"})
        assert [*model.requests[-1].tool_results.values()] == ['{"city": "Oslo"}']


@pytest.mark.parametrize(("name", "value", "message"), BAD_VALUES)
async def test_typed_answer_is_refused_by_its_field(name: str, value: object, message: str) -> None:
    with ScriptedModelClient([Call("book"), "Done."]) as model:
        asked = await app_of(model, book).start("Book it")
        with pytest.raises(FieldsRefused) as refused:
            await app_of(model, book).answer(asked.id, {**TRIP, name: value})
        assert refused.value.problems == {name: message}
        assert f"{name}: {message}" in str(refused.value)
        assert (await app_of(model, book).answer(asked.id, TRIP)).result == "Done."


def test_typed_answer_names_each_field_that_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"start: Field required; address\.city: Field required"):
        FORM.check({"traveller": "Ada Byron", "address": {}})


def test_form_reads_what_was_typed_into_its_fields() -> None:
    texts = {
        "traveller": " Ada Byron ",
        "nights": "3",
        "start": "2026-03-01",
        "seat": "Aisle",
        "price": "19.9",
        "extras": "bag, meal",
        "flexible": "yes",
        "address.city": "Oslo",
        "address.zip": "",
    }
    more = {"nights": 3, "seat": "aisle", "price": "19.9", "extras": ["bag", "meal"], "flexible": True}
    assert FORM.check(FORM.take(texts)) == {**TRIP, **more}


def test_optional_group_may_stay_empty_as_a_whole() -> None:
    class Order(BaseModel):
        item: str
        to: Address | None = None

    form = AnswerForm.of(Order.model_json_schema())
    assert [each.must_fill for each in form.fields] == [True, False, False]
    assert form.take({"item": "tea", "to.city": "", "to.zip": ""}) == {"item": "tea"}
    with pytest.raises(ValueError, match=r"to\.city: Field required"):
        form.check(form.take({"item": "tea", "to.city": "", "to.zip": "0150"}))


def test_form_describes_each_field_in_a_line() -> None:
    assert asked_of(Trip.model_json_schema()).as_text().splitlines()[1:] == [
        "  Answer with a JSON object of these fields:",
        "  - traveller (text)",
        "  - nights (whole number, 1 to 30, at first 2): Number of nights",
        "  - start (date, such as 2026-01-31)",
        "  - seat (one of window | aisle, at first window)",
        "  - price (decimal number, may be left empty)",
        "  - extras (some of meal | bag, may be left empty)",
        "  - flexible (yes or no, at first No)",
        "  - remark (text, at first No smoking)",
        "  - address.city (text): Where to deliver",
        "  - address.zip (text, may be left empty)",
    ]


class Node(BaseModel):
    name: str
    child: Node | None = None


class Deep(BaseModel):
    class Middle(BaseModel):
        address: Address

    middle: Middle


class Either(BaseModel):
    what: int | Address


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Node.model_json_schema(), "child.child is nested too deeply"),
        (Deep.model_json_schema(), "middle.address is nested too deeply"),
        (Either.model_json_schema(), r"what may be of several kinds \(anyOf\)"),
        ({"type": "object", "properties": {}}, "has no fields"),
        ({"type": "string"}, "has no fields"),
        ({"properties": {"a.b": {"type": "string"}}}, "'a.b' cannot be the name of a field"),
        ({"properties": {"a": {"type": "string", "format": "password"}}}, "a is a secret"),
        ({"properties": {"a": {"type": "array", "items": {"type": "object"}}}}, "a is nested too deeply"),
        ({"properties": {"a": {"type": "array", "prefixItems": []}}}, "a has a rule that no form shows: prefixItems"),
        ({"properties": {"a": {"$ref": "https://example.org/a"}}}, "a refers to what is not in the schema"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "a refers to itself"),
        ({"properties": {"a": {"type": "string", "pattern": "(?=x)"}}}, "a has a rule that no form checks"),
        ({"properties": {f"a{number}": {} for number in range(51)}}, "a form has 1 to 50 fields"),
        ({"properties": {"a": {}}, "required": 5}, "the schema does not name the required fields in a list"),
        ({"properties": {"a": {"enum": 5}}}, "the schema is not one"),
        ({"properties": {"a": {"type": {}}}}, "the schema is not one"),
        (
            {"properties": {"a": {"oneOf": [{"const": "keep", "title": "Drop"}, {"const": "drop", "title": "Keep"}]}}},
            "a calls one choice what another one is: Drop",
        ),
    ],
)
def test_schema_that_no_form_shows_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnusableSchema, match=reason) as refused:
        ask("Which?", schema=schema)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("3", 3),
        ("\N{MINUS SIGN}3", -3),
        (3, 3),
        (3.0, 3.0),
        ("2.5", 2.5),
        ("12345678901234567890", 12345678901234567890),
    ],
)
def test_whole_number_keeps_its_digits(given: Any, value: float) -> None:
    field = {"type": "number", "minimum": -5}
    read = AnswerForm.of({"properties": {"a": field, "b": {"type": "array", "items": field}}}).check(
        {"a": given, "b": [given]}
    )
    assert json.dumps(read) == json.dumps({"a": value, "b": [value]})


@pytest.mark.parametrize("given", ["-6", -6, 10**400, "9" * 400], ids=["text", "number", "huge number", "long text"])
def test_number_beyond_its_bounds_is_refused(given: Any) -> None:
    with pytest.raises(InvalidFields):
        AnswerForm.of({"properties": {"a": {"type": "number", "minimum": -5}}}).check({"a": given})


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ({"type": "integer"}, {"a": 10**5000}),
        ({"type": "string", "format": "regex"}, {"a": "(" * 5000 + ")" * 5000}),
        ({"type": "string"}, {5: "x"}),
    ],
)
def test_odd_answer_is_refused_in_a_line(rule: dict[str, Any], given: Any) -> None:
    with pytest.raises(AnswerRefused, match=r"^The answer to .*"):
        parse_answer(asked_of({"properties": {"a": rule}}), given)


async def test_fact_that_the_model_refuses_is_named() -> None:
    def make() -> Team:
        return pausing(PausableAgent("solo", model, tools=[book]))

    with ScriptedModelClient([Call("book")]) as model:
        asked = await app_of(model, book).start("Book it")
    question = asked.questions[0].question
    fact = json.dumps({**TRIP, "traveller": "Ada"})
    with ScriptedModelClient([Call("book"), "Done."]) as model:
        app = Upcall(store="facts.db", team=make, settings=Settings())
        done = await app.start("Book it", facts={question: fact})
        assert "It comes from the fact" in next(iter(model.requests[-1].tool_results.values()))
    assert done.result == "Done."


def test_questions_of_different_forms_share_no_answer() -> None:
    one, other = asked_of(Trip.model_json_schema()), asked_of(Address.model_json_schema())
    assert share_answer(one, one.model_copy(update={"id": "b"}))
    assert not share_answer(one, other)
    assert not share_answer(one, Question(question="Which trip?"))
    numbers, flags = (asked_of({"properties": {"a": {"enum": each}}}) for each in ([0, 1], [False, True]))
    assert not share_answer(numbers, flags)


def test_typed_answer_comes_back_from_the_store_as_asked() -> None:
    question = asked_of(Trip.model_json_schema())
    assert Question.model_validate_json(question.model_dump_json()) == question
    assert "answer_schema" not in Question(question="Which?").as_json()
