"""`ask_user` calls in other shapes ask; those that mean nothing are refused, and the user learns of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_core import FunctionCall
from conversation import answers, send

from upcall.agents import PausableAgent
from upcall.agents.tool_loop.ask_shapes import mend_asks
from upcall.autogen.messages import event_warnings
from upcall.questions.question import ClarificationType
from upcall.testing import Call, Reply, ScriptedModelClient

AB = ["A", "B"]
SHAPES: list[Any] = [
    {"question": "Which?", "options": '["A", "B"]'},
    json.dumps(json.dumps({"question": "Which?", "options": AB})),
    {"questions": [{"question": "Which?", "options": AB}]},
    {"questions": json.dumps([{"question": "Which?", "options": AB}])},
    {"questions": {"question": "Which?", "options": AB}},
    {"question": {"text": "Which?", "choices": AB}},
    {"question": [{"question": "Which?", "options": AB}]},
    {"prompt": "Which?", "choices": AB},
    {"question": "Which?", "options": [{"value": "A"}, {"value": "B"}]},
    {"question": "Which?", "options": [{"value": "a", "text": "A"}, {"name": "B"}]},
    {"question": "Which?", "options": [{"title": "A", "id": 1}, {"option": "B", "explanation": "The other."}]},
    {"question": "Which?", "options": '[{"label": "A"}, {"label": "B"}]'},
    {"question": "Which?", "options": ["A", "A", " a ", "B"]},
    {"question": "Which?", "options": AB, "clarification_type": "clarification"},
    {"question": "Which?", "options": AB, "default": 8080},
    {"question": "Which?", "options": AB, "allow_free_text": "true", "required": "yes"},
    {"question": "Which?", "options": AB, "header": "x" * 90},
    {"question": "Which?", "options": AB, "context": None, "default": None, "multiSelect": None},
    '```json\n{"question": "Which?", "options": ["A", "B",],}\n```',
    "{'question': 'Which?', 'options': ['A', 'B']}",
]


def agent(client: ScriptedModelClient, **options: Any) -> PausableAgent:
    return PausableAgent("solo", client, **options)


@pytest.mark.parametrize("arguments", SHAPES, ids=lambda each: str(each)[:60])
async def test_question_in_another_shape_is_asked(arguments: Any) -> None:
    with ScriptedModelClient([Call("ask_user", arguments)]) as client:
        (question,) = (await send(agent(client), "Go")).questions
    assert (question.question, [each.label for each in question.options]) == ("Which?", AB)


@pytest.mark.parametrize("questions", [[{"question": "One?"}, {"question": "Two?"}], ["One?", "Two?"]])
async def test_several_questions_in_a_call_are_asked_each(questions: Any) -> None:
    with ScriptedModelClient([Call("ask_user", {"questions": questions, "required": False}), "Done."]) as client:
        solo = agent(client)
        rest = await send(solo, "Go")
        assert [(each.question, each.required) for each in rest.questions] == [("One?", False), ("Two?", False)]
        await send(solo, answers(rest, "1", "2"))
    assert list(client.requests[-1].tool_results.values()) == ["1", "2"]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("risk", ClarificationType.RISK_CONFIRMATION),
        ("Risk Confirmation", ClarificationType.RISK_CONFIRMATION),
        ("approach-choice", ClarificationType.APPROACH_CHOICE),
        ("curiosity", ClarificationType.MISSING_INFO),
        ("", ClarificationType.MISSING_INFO),
    ],
)
async def test_kind_of_a_question_is_understood(word: str, kind: ClarificationType) -> None:
    with ScriptedModelClient([Call("ask_user", {"question": "Which?", "clarification_type": word})]) as client:
        assert (await send(agent(client), "Go")).questions[0].clarification_type is kind


@pytest.mark.parametrize(
    "arguments",
    [
        {"question": "Which?", "options": AB, "clarificationType": "suggestion"},
        {"question": "Which?", "options": ["1", "2"], "default": "1"},
        {"question": "Which?", "options": "A, B"},
        {"question": "Which?", "options": {"A": "x"}},
        {"question": "Which?", "options": ["A", "a"]},
        {"questions": []},
        {"questions": [1]},
        {"question": "Which?", "questions": ["Other?"]},
        {"options": AB},
        "[]",
    ],
    ids=str,
)
def test_right_and_ambiguous_shapes_stay(arguments: Any) -> None:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = FunctionCall(id="c", name="ask_user", arguments=text)
    assert mend_asks([call]) == [call]


REFUSED = Call("ask_user", {"question": "Which?", "options": 3})
UNASKED = "it tried to ask you something and could not (options must be a list), so it continued without your answer"


@pytest.mark.parametrize("replies", [[REFUSED, "Done."], [REFUSED] * 5, [*[REFUSED] * 4, "Done."]])
async def test_question_that_was_never_asked_is_warned_of(replies: list[Reply]) -> None:
    rest = await send(agent(ScriptedModelClient(replies)), "Go")
    assert event_warnings(rest.message)[0] == UNASKED


async def test_question_that_was_put_right_is_not_warned_of() -> None:
    with ScriptedModelClient([REFUSED, Call("ask_user", {"question": "Which?"}), "Done."]) as client:
        solo = agent(client)
        done = await send(solo, answers(await send(solo, "Go"), "A"))
    assert event_warnings(done.message) == []
