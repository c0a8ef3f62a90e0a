"""Arguments that mean one thing only are mended by the tool's schema; legal ones stay, ambiguous ones go back."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_core.tools import FunctionTool
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import answers, send
from pydantic import BaseModel
from worlds import STORE

from upcall import PausableAgent, Settings, Upcall
from upcall.autogen.mending import mend_arguments
from upcall.questions.answer import Answer
from upcall.testing import Call, ScriptedModelClient
from upcall.testing.model import MODEL_INFO


class Item(BaseModel):
    """A part."""

    name: str
    count: int = 1


def book(
    to: str,
    seats: int = 1,
    price: float = 0.0,
    quick: bool = False,
    note: str = "",
    tags: list[str] = [],  # noqa: B006  (as users write it)
    kind: Literal["fast", "slow"] = "fast",
    item: Item | None = None,
) -> str:
    """Book a train."""
    return f"{to} {seats} {price} {quick} {note} {tags} {kind} {item}"


def parameters(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": schema, "required": ["to"]}


BOOK: Any = FunctionTool(book, description="Book.").schema["parameters"]
ANYTHING = parameters({"to": {"type": "string"}, "arguments": {}, "loose": {}})
OSLO = {"to": "Oslo"}

MENDED: list[tuple[Any, dict[str, Any]]] = [
    ({**OSLO, "seats": None, "note": None, "tags": None, "kind": None}, OSLO),
    ({**OSLO, "tags": '["a", "b"]'}, {**OSLO, "tags": ["a", "b"]}),
    ({**OSLO, "tags": '```json\n["a"]\n```'}, {**OSLO, "tags": ["a"]}),
    ({**OSLO, "item": '{"name": "x"}'}, {**OSLO, "item": {"name": "x"}}),
    ({**OSLO, "item": {"name": "x", "count": "2"}}, {**OSLO, "item": {"name": "x", "count": 2}}),
    ({**OSLO, "item": {"name": "x", "count": None}}, {**OSLO, "item": {"name": "x"}}),
    ({**OSLO, "item": "null"}, {**OSLO, "item": None}),
    ({**OSLO, "seats": "2"}, {**OSLO, "seats": 2}),
    ({**OSLO, "seats": " -2 "}, {**OSLO, "seats": -2}),
    ({**OSLO, "seats": ""}, OSLO),
    ({**OSLO, "price": "2.50"}, {**OSLO, "price": 2.5}),
    ({**OSLO, "price": "1e3"}, {**OSLO, "price": 1000.0}),
    ({**OSLO, "quick": "True"}, {**OSLO, "quick": True}),
    ({"arguments": OSLO}, OSLO),
    ({"parameters": json.dumps(OSLO)}, OSLO),
    ([OSLO], OSLO),
    (json.dumps(json.dumps(OSLO)), OSLO),
    (json.dumps(json.dumps(json.dumps(OSLO))), OSLO),
    ('{"to": "Oslo",}', OSLO),
    ('{"to": "Oslo", "tags": ["a",],}', {**OSLO, "tags": ["a"]}),
    ('{"to": "Os\nlo"}', {"to": "Os\nlo"}),
    ("{'to': 'Oslo', 'seats': None, 'quick': True}", {**OSLO, "quick": True}),
    ('```json\n{"to": "Oslo"}\n```', OSLO),
    ('```\n{"to": "Oslo",}\n```', OSLO),
    ('\ufeff{"to": "Oslo"}', OSLO),
    ({**OSLO, "kind": "Fast"}, {**OSLO, "kind": "fast"}),
    ({"to": 7, "note": 2.5}, {"to": "7", "note": "2.5"}),
    ({"To": "Oslo"}, OSLO),
    ({**OSLO, "item": {"Name": "x"}}, {**OSLO, "item": {"name": "x"}}),
    ({"name": "book", "arguments": OSLO}, OSLO),
    ('{"to": "Oslo"} {"to": "Oslo"}', OSLO),
    ('{"to": "Oslo"}\n</tool_call>', OSLO),
    ('{"to": "Oslo"}<|im_end|>', OSLO),
    ("null", {}),
    ("", {}),
    (None, {}),
    ("  ", {}),
]

LEGAL: list[Any] = [
    {**OSLO, "seats": 2, "note": "null", "tags": [], "item": None},
    {"to": "2"},
    {"to": "true"},
    {"to": '["a"]'},
    {"to": ""},
    {"to": "```\nx\n```"},
    {"to": "arguments", "other": None},
    {**OSLO, "seats": 2.0},
    '{"to":"Oslo" ,"seats":  2}',
]

SENT_BACK: list[Any] = [
    {"to": None},
    {**OSLO, "seats": "two"},
    {**OSLO, "seats": "007"},
    {**OSLO, "seats": "1,000"},
    {**OSLO, "seats": "2.5"},
    {**OSLO, "seats": True},
    {**OSLO, "quick": "yes"},
    {**OSLO, "tags": "a"},
    {**OSLO, "tags": "a, b"},
    {**OSLO, "tags": '["a", "b"'},
    {**OSLO, "item": "x"},
    {**OSLO, "kind": "fastest"},
    {"to": True},
    {"name": "rent", "arguments": OSLO},
    {**OSLO, "TO": "Rome"},
    {"To": "Oslo", "TO": "Rome"},
    {"arguments": OSLO, "note": "x"},
    {"arguments": {"from": "Rome"}},
    {"note": ["x"]},
    '{"to": "Oslo"',
    '{"to": "Os',
    '{"to": "Oslo"}{"to": "Rome"}',
    '{"to": "Oslo"} and so on',
    'to: "Oslo"',
    '{"to": "say "hi""}',
    '"Oslo"',
    "[1, 2]",
    "7",
]


def text(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str | None) else json.dumps(arguments)


@pytest.mark.parametrize(("given", "wanted"), MENDED, ids=repr)
def test_arguments_that_mean_one_thing_are_mended(given: Any, wanted: dict[str, Any]) -> None:
    mended, notes = mend_arguments(text(given), BOOK, "book")
    assert json.loads(mended) == wanted
    assert bool(notes) is bool(given and given.strip() if isinstance(given, str) else given)


@pytest.mark.parametrize("given", LEGAL + SENT_BACK, ids=repr)
def test_legal_and_ambiguous_arguments_stay_to_the_letter(given: Any) -> None:
    assert mend_arguments(text(given), BOOK, "book") == (text(given), [])


@pytest.mark.parametrize("given", [{**OSLO, "loose": "[1]"}, {"arguments": OSLO}, {**OSLO, "unknown": None}], ids=repr)
def test_field_without_a_kind_takes_anything(given: Any) -> None:
    assert mend_arguments(text(given), ANYTHING) == (text(given), [])


@pytest.mark.parametrize(
    ("field", "given", "wanted"),
    [
        ({"type": ["array", "null"]}, "[1]", [1]),
        ({"type": ["string", "array"]}, "[1]", "[1]"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "1", "1"),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "1", 1),
        ({"$ref": "#/$defs/Count"}, "1", 1),
        ({"$ref": "#/$defs/Missing"}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": True}, "true", True),
        ({"type": "array", "items": {"type": "integer"}}, ["1", 2], [1, 2]),
        ({"type": "array", "items": {"type": "string"}}, [None], [None]),
        ({"allOf": [{"type": "integer"}]}, "1", "1"),
    ],
)
def test_schema_in_other_words_is_read(field: dict[str, Any], given: Any, wanted: Any) -> None:
    schema = {**parameters({"x": field}), "$defs": {"Count": {"type": "integer"}}}
    mended, _ = mend_arguments(json.dumps({"x": given}), schema)
    assert json.loads(mended) == {"x": wanted}


def test_arguments_that_are_an_object_are_written_as_json() -> None:
    assert mend_arguments(OSLO, BOOK) == (json.dumps(OSLO), [])


def test_schema_that_refers_to_itself_ends() -> None:
    schema = {**parameters({"x": {"$ref": "#/$defs/Tree"}}), "$defs": {"Tree": {"$ref": "#/$defs/Tree"}}}
    assert mend_arguments('{"x": "1"}', schema) == ('{"x": "1"}', [])


# -- in a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stock", [False, True])
async def test_call_without_arguments_is_made(stock: bool) -> None:
    call: Any = FunctionCall(id="c", name="look", arguments=None)  # type: ignore[arg-type]
    replies = [CreateResult(finish_reason="function_calls", content=[call], usage=RequestUsage(1, 1), cached=False)]
    client = ReplayChatCompletionClient([*replies, "Done."], model_info=MODEL_INFO)

    def look() -> str:
        """Look."""
        return "seen"

    kind: Any = AssistantAgent if stock else PausableAgent
    options = {"reflect_on_tool_use": True} if stock else {}
    team = RoundRobinGroupChat([kind("solo", client, tools=[look], **options)], max_turns=1)
    run = await Upcall(store=STORE, team=lambda: team, settings=Settings.read(None)).start("Go")
    assert (run.result, dict(run.tools)) == ("Done.", {"solo/look": 1})


async def test_approved_and_made_call_is_the_mended_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "upcall")
    with ScriptedModelClient([Call("book", {"to": "Oslo", "seats": "2", "note": None}), "Done."]) as client:
        agent = PausableAgent("solo", client, tools=[book], approve=["book"])
        rest = await send(agent, "Go")
        yes = rest.questions[0].options[0].label
        await send(agent, answers(rest, Answer(question_id=rest.questions[0].id, text=yes, selected=(yes,))))
    assert rest.questions[0].approval is not None
    assert rest.questions[0].approval.arguments == {"to": "Oslo", "seats": 2}
    assert list(client.requests[-1].tool_results.values()) == ["Oslo 2 0.0 False  [] fast None"]
    assert "solo: mended the arguments of book: seats: str read as int; note: left out" in caplog.text


async def test_call_in_a_text_is_mended_too() -> None:
    with ScriptedModelClient(['{"name": "book", "arguments": {"to": "Oslo", "tags": "[]"}}', "Done."]) as client:
        await send(PausableAgent("solo", client, tools=[book]), "Go")
    assert list(client.requests[-1].tool_results.values()) == ["Oslo 1 0.0 False  [] fast None"]
