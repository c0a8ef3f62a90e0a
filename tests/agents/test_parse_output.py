"""From a model's text to a value: JSON is found wherever it stands, and the model learns what is wrong."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Mapping
from typing import Any

import pytest
from conversation import HANG_GUARD
from odd_replies import ODD, READ, UNREADABLE, Odd
from pydantic import BaseModel
from tables import rows

from upcall.agents.tool_loop.parse_output import UnreadableReply, parse_reply, schema_text
from upcall.runs.outputs import AmbiguityCheck, ClarificationResponse, Classification, StructuredReply
from upcall.runs.plan import Plan
from upcall.runs.reports import Report

GOOD = '{"intent": "coding", "research_depth": "deep"}'
OTHER = '{"intent": "meta"}'

STEPS = [
    {"step_id": "1", "description": "Find the numbers", "name": "researcher", "outputs": ["numbers"]},
    {"step_id": "2", "description": "Compare them", "inputs": ["${1.numbers}"], "depends_on": ["1"]},
]
GOOD_REPLIES: Mapping[type[StructuredReply], Mapping[str, Any]] = {
    Classification: {"intent": "coding", "meta_response": None, "research_depth": "shallow"},
    ClarificationResponse: {
        "needs_clarification": True,
        "clarification_question": "Until when?",
        "options": ["2030", "2050"],
    },
    AmbiguityCheck: {
        "needs_clarification": True,
        "ambiguity_details": [{"aspect": "time", "clarification_question": "Until when?", "possible_options": []}],
    },
    Plan: {"title": "Solar power", "sections": ["Germany", "2030"], "steps": STEPS},
}


class Point(BaseModel):
    """A reply with nothing but one field, so that every mistake shows."""

    x: int


def problem(text: str, kind: type[BaseModel] = Classification) -> str:
    with pytest.raises(UnreadableReply) as refused:
        parse_reply(text, kind)
    return str(refused.value)


def test_table_names_each_oddity_once() -> None:
    assert len(ODD) >= 60
    assert len({odd.name for odd in ODD}) == len(ODD)


@pytest.mark.parametrize("odd", READ, ids=lambda odd: odd.name)
def test_odd_reply_that_says_it_all_is_read(odd: Odd) -> None:
    """S0-63"""
    for kind, good in GOOD_REPLIES.items():
        text = odd.make(good)
        assert isinstance(text, str)
        assert parse_reply(text, kind) == kind.model_validate(good)


@pytest.mark.parametrize("odd", UNREADABLE, ids=lambda odd: odd.name)
def test_what_does_not_say_it_all_is_unreadable(odd: Odd) -> None:
    for kind, good in GOOD_REPLIES.items():
        if isinstance(text := odd.make(good), str):
            problem(text, kind)


@pytest.mark.parametrize(
    "text",
    [
        f"{GOOD}\n{OTHER}",
        f'{{"tool": "search"}} {GOOD}',
        f"Not {OTHER} but\n```json\n{GOOD}\n```",
        f'```json\n{{"name": "x"}}\n```\n{GOOD}',
        f'{{"intent": "meta", }} I mean {GOOD}',
        f'{{"result": {GOOD}}}',
        json.dumps({"Classification": GOOD}),
        f"{OTHER[1:-1]}: {OTHER}? No.</think>{GOOD}",
        json.dumps(f"<think>{OTHER}</think>{GOOD}"),
        GOOD.removesuffix("}") + ', "more": {"intent": "meta", "deep": {"er": [{}]}}}',
    ],
    ids=lambda text: repr(text)[:45],
)
def test_of_several_objects_the_one_that_is_meant_counts(text: str) -> None:
    """S0-63"""
    assert parse_reply(text, Classification).intent == "coding"


@pytest.mark.parametrize(
    "text",
    [
        f"For example:\n```json\n{OTHER}\n```\nFor this task:\n{GOOD}",
        f"```json\n{OTHER}\n```\nwould be wrong. It is\n```json\n{GOOD}\n```",
    ],
)
def test_example_beside_the_reply_is_not_taken_for_it(text: str) -> None:
    assert "several JSON objects that differ" in problem(text)


@pytest.mark.parametrize(
    "text",
    rows("parse_output/a_part_of_an_object_is_never_the_reply"),
)
def test_part_of_an_object_is_never_the_reply(text: str) -> None:
    problem(text, Point)


def test_field_is_never_taken_for_a_wrapper() -> None:
    class Answered(BaseModel):
        answer: dict[str, int]

    assert parse_reply('{"answer": {"answer": 1}}', Answered).answer == {"answer": 1}


def test_fence_or_tag_inside_a_text_is_text() -> None:
    text = "Write </think> {x} after <think>.\n```json\n{}\n```"
    assert parse_reply(json.dumps({"summary": text}), Report).summary == text


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("No idea.", Classification, "it holds no JSON object"),
        (f"<think>{GOOD} or", Classification, "it holds no JSON object"),
        ('{"intent": "coding"', Classification, "its JSON is broken: Expecting ',' delimiter"),
        ('{"title": "A", "steps": [{"step_id": "1"}, {"st', Plan, "its JSON is broken: Unterminated string"),
        ('{"intent": ' + "1" * 5_000 + "}", Classification, "its JSON cannot be read"),
        ('{"intent": null}', Classification, "intent: Field required"),
        ('{"result": {"intent": 5}}', Classification, "intent: Input should be"),
        ('{"title": NaN, "sections": ["A"]}', Plan, "title: Field required"),
        ('{"needs_clarification": true}', AmbiguityCheck, "object: Value error, needs_clarification is true but"),
        (
            json.dumps({"title": "T", "sections": ["S"], "steps": [STEPS[0], {"step_id": "2"}]}),
            Plan,
            "steps.1.description: Field required",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, kind: type[BaseModel], expected: str) -> None:
    assert problem(text, kind).startswith(expected)


def test_at_most_three_problems_are_named() -> None:
    steps = [{"step_id": "", "description": ""}] * 20
    expected = problem(json.dumps({"title": "T", "sections": ["S"], "steps": steps}), Plan)
    assert expected.count(";") == 2


@pytest.mark.parametrize(
    "text",
    [
        "{" * 200_000,
        "{" * 900 + "}" * 900,
        '{"a"' * 50_000,
        '{"a":"\n' * 50_000,
        '{"a":[' * 900 + "]}" * 900,
        "[" * 100_000 + "]" * 100_000,
        "{'a': 1} " * 10_000,
        "```" + "\n" * 100_000,
        "```json\n" * 50_000,
        "x" * 2_000_000,
        "<think>" * 100_000,
        '"' + "{" * 200_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_huge_reply_does_not_hold_up_the_others(text: str) -> None:
    start = time.monotonic()
    problem(text)
    assert time.monotonic() - start < HANG_GUARD / 6


@pytest.mark.slow
def test_huge_object_is_read() -> None:
    summary = "word " * 400_000
    assert len(parse_reply(json.dumps({"summary": summary}), Report).summary) == len(summary) - 1


@pytest.mark.parametrize("seed", range(5))
def test_output_of_any_text_raises_only_unreadable_reply(seed: int) -> None:
    """The agent has a repair for no other exception."""
    rng = random.Random(seed)
    pieces = [GOOD, "{", "}", "[", "]", '"', "\\", ",", ":", "```", "json\n", "1e999", "NaN", "\ud800", "\0", "ä"]
    for _ in range(500):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 20)))
        with contextlib.suppress(UnreadableReply):
            parse_reply(text, Classification)


def test_schema_in_a_prompt_is_json_and_readable() -> None:
    shown = schema_text(Report)
    assert json.loads(shown)["properties"].keys() == {"summary", "assumptions", "left_open"}
    assert "\\u" not in shown
