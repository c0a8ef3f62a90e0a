"""From a model's text to a value: JSON is found wherever it stands, and what is wrong is said to the model."""

from __future__ import annotations

import contextlib
import json
import random
import time

import pytest
from conversation import HANG_GUARD
from pydantic import BaseModel

from upcall.agents.structured.parse_output import UnreadableReply, parse_reply, schema_text
from upcall.research.reports import Report
from upcall.runs.outputs import AmbiguityCheck, Classification
from upcall.runs.plan import Plan

GOOD = '{"intent": "coding", "research_depth": "deep"}'
OTHER = '{"intent": "meta"}'


class Point(BaseModel):
    """A reply with nothing but one field, so that every mistake shows."""

    x: int


def problem(text: str, kind: type[BaseModel] = Classification) -> str:
    with pytest.raises(UnreadableReply) as refused:
        parse_reply(text, kind)
    return str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  \n{GOOD}\n",
        f"\ufeff{GOOD}",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"```JSON  \r\n{GOOD}\r\n```",
        f"```\n\n{GOOD}\n\n```",
        f"Sure! Here you are:\n```json\n{GOOD}\n```\nAnything else?",
        f"```python\nprint({{}})\n```\n```json\n{GOOD}\n```",
        f"Here: {GOOD} - that is it.",
        f"I choose {{coding}} because of {{reasons}}. {GOOD}",
        f"{{{GOOD}}}",
        f"[{GOOD}]",
        f"<think>{{hmm</think>{GOOD}",
        f"<think>\n{OTHER}?\n</think>\n{GOOD}",
        f"<THINKING>{OTHER}</THINKING> {GOOD}",
        f"<think>Hm.</think><think>{OTHER}</think>\n```json\n{GOOD}\n```",
        f"{OTHER[1:-1]}: {OTHER}? No.</think>{GOOD}",
        f"Sure. <think>{OTHER}</think> {GOOD}",
        json.dumps(GOOD),
        json.dumps(f"<think>{OTHER}</think>{GOOD}"),
        f"<think>{OTHER}</think>{json.dumps(GOOD)}",
        json.dumps(f"```json\n{GOOD}\n```"),
        f"\ufeff{json.dumps(GOOD)}",
        GOOD.replace(", ", ",\n\n    "),
        GOOD.removesuffix("}") + ', "why": "a\nline break"}',
        GOOD.removesuffix("}") + ', "why": "braces } { and ``` fences"}',
        GOOD.removesuffix("}") + ', "more": {"intent": "meta", "deep": {"er": [{}]}}}',
    ],
    ids=lambda text: repr(text)[:45],
)
def test_an_object_is_found_whole_fenced_and_in_prose(text: str) -> None:
    """S0-63"""
    assert parse_reply(text, Classification).intent == "coding"


def test_of_two_objects_the_first_counts() -> None:
    assert parse_reply(f"{GOOD}\n{OTHER}", Classification).intent == "coding"


def test_of_two_objects_the_one_that_fits_counts() -> None:
    """S0-63"""
    assert parse_reply(f'{{"tool": "search"}} {GOOD}', Classification).intent == "coding"


def test_a_fenced_object_counts_before_one_in_prose() -> None:
    assert parse_reply(f"Not {OTHER} but\n```json\n{GOOD}\n```", Classification).intent == "coding"


def test_an_object_in_prose_counts_where_the_fenced_one_does_not_fit() -> None:
    assert parse_reply(f'```json\n{{"name": "x"}}\n```\n{GOOD}', Classification).intent == "coding"


def test_a_broken_object_is_mended_by_a_second_one() -> None:
    assert parse_reply(f'{{"intent": "meta", }} I mean {GOOD}', Classification).intent == "coding"


def test_a_fence_inside_a_text_is_text() -> None:
    text = '{"summary": "Run\n```json\n{\\"summary\\": 1}\n```"}'
    assert parse_reply(text, Report).summary.endswith('{"summary": 1}\n```')


@pytest.mark.parametrize("key", ["result", "Response", "OUTPUT", "answer", "data", "classification", "Classification"])
@pytest.mark.parametrize("inner", [json.loads(GOOD), GOOD, f"```json\n{GOOD}\n```"], ids=["object", "text", "fence"])
def test_an_object_inside_a_key_that_only_names_it_is_found(key: str, inner: object) -> None:
    """S0-63"""
    text = json.dumps({key: inner})
    assert parse_reply(text, Classification).intent == "coding"
    assert parse_reply(f"Here: {text}", Classification).intent == "coding"


@pytest.mark.parametrize(
    "text",
    [
        '{"result": {"x": 1}, "status": "ok"}',
        '{"step": {"x": 1}}',
        '{"result": [{"x": 1}]}',
        '{"result": {"result": {"x": 1}}}',
        '{"result": "x is 1"}',
        '{"result": null}',
        '{"x": {"x": 1}}',
    ],
)
def test_an_object_among_other_things_is_not_the_reply(text: str) -> None:
    with pytest.raises(UnreadableReply):
        parse_reply(text, Point)


def test_a_field_is_never_taken_for_a_wrapper() -> None:
    class Answered(BaseModel):
        answer: dict[str, int]

    assert parse_reply('{"answer": {"answer": 1}}', Answered).answer == {"answer": 1}


def test_what_is_wrong_inside_a_wrapper_is_named_as_if_it_stood_alone() -> None:
    assert problem('{"result": {"intent": 5}}').startswith("intent: Input should be")


@pytest.mark.parametrize("text", [f"<think>{GOOD}</think>", f"<think>{GOOD} or", f"<think>{GOOD}</think> Hm."])
def test_thoughts_are_no_reply(text: str) -> None:
    assert problem(text) == "it holds no JSON object"


def test_a_tag_of_thoughts_inside_a_text_is_text() -> None:
    text = json.dumps({"summary": "Write </think> {x} after <think>."})
    assert parse_reply(text, Report).summary == "Write </think> {x} after <think>."


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_counts_as_left_out(number: str) -> None:
    assert parse_reply(f'{{"intent": "meta", "meta_response": {number}}}', Classification).meta_response is None
    assert problem(f'{{"title": {number}, "sections": ["A"]}}', Plan) == "title: Field required"


@pytest.mark.parametrize(
    "text",
    ['{"a": {"x": 1}', '{"a": {"x": 1}, "b": ', '{"a": {"x": 1} "b": 2}', '{"a": {"x": 1}}'],
    ids=["cut short", "cut in a field", "comma missing", "whole"],
)
def test_a_part_of_an_object_is_never_the_reply(text: str) -> None:
    with pytest.raises(UnreadableReply):
        parse_reply(text, Point)


@pytest.mark.parametrize("text", ["", " ", "null", "true", "42", '"text"', "[]", "[1, 2]", "No idea.", "}"], ids=repr)
def test_what_holds_no_object_says_so(text: str) -> None:
    assert problem(text) == "it holds no JSON object"


def test_single_quotes_are_named_as_the_problem() -> None:
    assert "double quotes" in problem("{'intent': 'coding'}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"intent": "coding",}', "its JSON is broken: Expecting property name"),
        ('{"intent": "coding"', "its JSON is broken: Expecting ',' delimiter"),
        ('{"intent": "cod', "its JSON is broken: Unterminated string"),
        ('{"intent" "coding"}', "its JSON is broken: Expecting ':' delimiter"),
        ('Here: ```json\n{"intent": coding}\n```', "its JSON is broken: Expecting value"),
    ],
)
def test_broken_json_says_what_is_broken(text: str, says: str) -> None:
    assert problem(text).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "intent: Field required"),
        ('{"intent": null}', "intent: Field required"),
        ('{"intent": 5}', "intent: Input should be"),
        ('{"intent": {"x": 1}}', "intent: Input should be"),
        ('{"intent": "coding", "meta_response": []}', "meta_response: Input should be a valid string"),
        ('{"intent": "\\ud800", "meta_response": "\\ud800"}', "meta_response: Input should be a valid string"),
    ],
)
def test_an_object_that_does_not_fit_says_where(text: str, says: str) -> None:
    assert problem(text).startswith(says)


def test_problems_deep_inside_are_named_by_their_path() -> None:
    steps = [{"step_id": "1", "description": "x"}, {"step_id": "2"}]
    text = json.dumps({"title": "T", "sections": ["S"], "steps": steps})
    assert problem(text, Plan) == "steps.1.description: Field required"


def test_a_rule_over_several_fields_is_named_too() -> None:
    says = problem('{"needs_clarification": true}', AmbiguityCheck)
    assert says == "object: Value error, needs_clarification is true but ambiguity_details is empty"


def test_at_most_three_problems_are_named() -> None:
    steps = [{"step_id": "", "description": ""}] * 20
    says = problem(json.dumps({"title": "T", "sections": ["S"], "steps": steps}), Plan)
    assert says.count(";") == 2


def test_a_number_of_too_many_digits_is_an_unreadable_reply() -> None:
    """Python refuses such an integer with a ValueError that is no JSONDecodeError"""
    assert "cannot be read" in problem('{"intent": ' + "1" * 5_000 + "}")


@pytest.mark.parametrize("opening", ['{"a":', "[", '{"a":['], ids=repr)
@pytest.mark.parametrize("depth", [900, 100_000])
def test_deep_nesting_is_an_unreadable_reply(opening: str, depth: int) -> None:
    closing = {'{"a":': "1" + "}" * depth, "[": "]" * depth, '{"a":[': "]}" * depth}[opening]
    problem(opening * depth + closing)
    problem(opening * depth)


@pytest.mark.parametrize(
    "text",
    [
        "{" * 200_000,
        '{"a"' * 50_000,
        '{"a":"\n' * 50_000,
        "```" + "\n" * 100_000,
        "```json\n" * 50_000,
        "x" * 2_000_000,
        "<think>" * 100_000,
        "<think>x</think>" * 20_000,
        '"' + "{" * 200_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_a_huge_reply_does_not_hold_up_the_others(text: str) -> None:
    start = time.monotonic()
    problem(text)
    assert time.monotonic() - start < HANG_GUARD


def test_a_huge_object_is_read() -> None:
    summary = "word " * 400_000
    assert len(parse_reply(json.dumps({"summary": summary}), Report).summary) == len(summary) - 1


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_model_writes_nothing_but_an_unreadable_reply_is_raised(seed: int) -> None:
    """Behaviour must never be any other exception: the agent has a repair for this one only"""
    rng = random.Random(seed)
    pieces = [GOOD, "{", "}", "[", "]", '"', "\\", ",", ":", "```", "json\n", "1e999", "NaN", "\ud800", "\0", "ä"]
    for _ in range(200):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 20)))
        with contextlib.suppress(UnreadableReply):
            parse_reply(text, Classification)


def test_the_schema_in_a_prompt_is_json_and_readable() -> None:
    shown = schema_text(Report)
    assert json.loads(shown)["properties"].keys() == {"summary", "assumptions", "left_open"}
    assert "\\u" not in shown
