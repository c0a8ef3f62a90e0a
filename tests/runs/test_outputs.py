"""The models behind structured output: lenient in reading, strict in meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from guests import load_those_here
from pydantic import BaseModel, ValidationError
from seed_texts import AMBIGUITY

from upcall.agents.tool_loop.parse_output import parse_reply
from upcall.questions.question import MAX_LABEL_CHARS, MAX_OPTIONS, MAX_QUESTION_CHARS, ClarificationType
from upcall.runs.outputs import (
    Ambiguity,
    AmbiguityCheck,
    ClarificationResponse,
    Classification,
    Depth,
    Effect,
    Intent,
    QuestionCheck,
    StructuredReply,
    WrittenQuestion,
)
from upcall.runs.plan import Plan, PlanStep
from upcall.runs.reports import MadeCall, Report, WorkDone

REPORTS: list[type[Report]] = [
    Report,
    *load_those_here("upcall.workspace.reports:CodingReport", "upcall.research.reports:ResearchReport"),
]
KINDS = [Classification, ClarificationResponse, WrittenQuestion, AmbiguityCheck, Plan, *REPORTS]


def keys(schema: object) -> Iterator[str]:
    """Every key of a schema at any depth, but not the names of properties."""
    if isinstance(schema, list):
        for each in schema:
            yield from keys(each)
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield key
            yield from keys(list(value.values()) if key in ("properties", "$defs") else value)


# -- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_schema_holds_nothing_that_strict_servers_refuse(kind: type[StructuredReply]) -> None:
    refused = {"default", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format"}
    assert refused & set(keys(kind.model_json_schema())) == set()


def test_schema_of_nested_replies_holds_no_defaults() -> None:
    class Outer(BaseModel):
        inner: Plan

    assert "default" not in set(keys(Outer.model_json_schema()))


@pytest.mark.parametrize("kind", [*KINDS, Ambiguity, PlanStep])
def test_schema_names_its_fields_as_the_prompts_do(kind: type[StructuredReply]) -> None:
    """X8"""
    unseen = {
        "ResearchReport": {"left_open"},
        "CodingReport": {"files", "commands", "tests"},
    }.get(kind.__name__, set()) | {"warnings"}
    assert list(kind.model_json_schema()["properties"]) == [each for each in kind.model_fields if each not in unseen]


# -- classification ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "intent"),
    [("meta", Intent.META), (" Coding ", Intent.CODING), ("RESEARCH", Intent.RESEARCH), ("poetry", Intent.RESEARCH)],
)
def test_unknown_intent_is_research(text: str, intent: Intent) -> None:
    """S2-39"""
    assert Classification.model_validate({"intent": text}).intent is intent


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("deep", Depth.DEEP),
        ("Deep\n", Depth.DEEP),
        ("medium", Depth.SHALLOW),
        ("", Depth.SHALLOW),
        (None, Depth.SHALLOW),
    ],
)
def test_unknown_depth_is_shallow(text: str | None, depth: Depth) -> None:
    """S2-39"""
    assert Classification.model_validate({"intent": "research", "research_depth": text}).depth is depth


@pytest.mark.parametrize("text", [{}, {"intent": None}, {"intent": 1}, {"intent": ["meta"]}], ids=repr)
def test_classification_needs_an_intent(text: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="intent"):
        Classification.model_validate(text)


@pytest.mark.parametrize(
    "written",
    [
        *[None, "", "Nothing.", "none", "NULL", "n/a", [], {}, 3, False, ["none"]],
        *[
            "Nothing is missing",
            "nothing; any style will do",
            "None (clear)",
            "nichts",
            "keine",
            "rien",
            "nada",
            "\u65e0",
        ],
    ],
)
def test_missing_that_names_nothing_is_nothing(written: object) -> None:
    assert Classification.model_validate({"intent": "coding", "missing": written}).missing is None


@pytest.mark.parametrize(
    ("written", "missing"),
    [
        ("the unit", "the unit"),
        ("Nothingham or Leeds", "Nothingham or Leeds"),
        (["the unit", "none", "the file"], "the unit, the file"),
        (" a\nb ", "a b"),
    ],
)
def test_missing_is_read_in_every_form(written: object, missing: str) -> None:
    assert Classification.model_validate({"intent": "coding", "missing": written}).missing == missing


def test_missing_is_cut_where_it_is_long() -> None:
    assert len(Classification.model_validate({"intent": "coding", "missing": "x" * 500}).missing or "") == 120


def test_fields_that_nobody_asked_for_are_ignored() -> None:
    assert Classification.model_validate({"intent": "meta", "confidence": 0.9}).intent is Intent.META


def test_reply_is_read_in_camel_case() -> None:
    """X8"""
    fields = {"needsClarification": True, "clarificationQuestion": "Which?"}
    assert ClarificationResponse.model_validate(fields).clarification_question == "Which?"


# -- clarification ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [{}, {"clarification_question": None}, {"clarification_question": "  "}], ids=repr)
def test_need_to_clarify_needs_a_question(text: dict[str, Any]) -> None:
    """S0-38, S0-39"""
    with pytest.raises(ValidationError, match="clarification_question is empty"):
        ClarificationResponse.model_validate({"needs_clarification": True, **text})


@pytest.mark.parametrize("text", [{}, {"clarification_question": None, "options": None, "reason": None}], ids=repr)
def test_no_need_to_clarify_needs_nothing_else(text: dict[str, Any]) -> None:
    response = ClarificationResponse.model_validate({"needs_clarification": False, **text})
    assert (response.clarification_question, response.options, response.reason) == (None, (), "")


def test_clarification_becomes_a_question() -> None:
    asked = ClarificationResponse(
        needs_clarification=True, clarification_question="Which topic?", options=("A", "B"), reason="None named."
    ).question(("clarifier",))
    assert (asked.question, asked.context, asked.path) == ("Which topic?", "None named.", ("clarifier",))
    assert [option.label for option in asked.options] == ["A", "B"]


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        (["", " ", "A"], ["A"]),
        (["Express", "FastAPI", "express", "Express "], ["Express", "FastAPI"]),
        (["\x1b", "A", "A\x1b"], ["A"]),
        ([1, 2.5], ["1", "2.5"]),
        (["x" * 500, "x" * 400 + "y"], ["x" * MAX_LABEL_CHARS]),
        (["x" * 399 + " y", "x" * 399], ["x" * 399]),
        ([str(n) for n in range(90)], [str(n) for n in range(MAX_OPTIONS)]),
    ],
    ids=["blank", "equal", "unseen", "numbers", "long", "equal when cut", "many"],
)
def test_question_of_a_model_survives_odd_options(options: list[object], labels: list[str]) -> None:
    fields = {"needs_clarification": True, "clarification_question": "Which?", "options": options}
    asked = ClarificationResponse.model_validate(fields).question(("clarifier",))
    assert [option.label for option in asked.options] == labels


def test_question_of_a_model_is_cut_when_long() -> None:
    fields = {"needs_clarification": True, "clarification_question": "x" * 9_000, "reason": "y" * 9_000}
    asked = ClarificationResponse.model_validate(fields).question(("clarifier",))
    assert len(asked.question) == len(asked.context or "") == MAX_QUESTION_CHARS


# -- ambiguity --------------------------------------------------------------------------------------------------------


def test_seed_example_asks_two_questions_at_once() -> None:
    """S3-13"""
    check = parse_reply(AMBIGUITY, AmbiguityCheck)
    asked = [aspect.question(("planner",)) for aspect in check.ambiguity_details]
    assert [each.question for each in asked] == [
        "Would you like to search in all documents or only recent ones?",
        "How would you like the results formatted?",
    ]
    assert [[option.label for option in each.options] for each in asked] == [
        ["all_documents", "recent_documents"],
        ["summary", "detailed_report", "bullet_points"],
    ]


def test_aspect_becomes_a_question_with_its_reason() -> None:
    """S3-09 to S3-12"""
    asked = parse_reply(AMBIGUITY, AmbiguityCheck).ambiguity_details[0].question(("planner",))
    assert (asked.header, asked.context) == ("search_scope", "The search scope is unclear")
    assert asked.clarification_type is ClarificationType.AMBIGUOUS_REQUIREMENT
    assert asked.path == ("planner",)


def test_question_made_of_an_aspect_survives_json() -> None:
    asked = Ambiguity(aspect="x" * 500, clarification_question="Which?").question(("planner",))
    assert type(asked).model_validate_json(asked.model_dump_json()) == asked


@pytest.mark.parametrize("details", [[], None], ids=repr)
def test_need_to_clarify_needs_an_aspect(details: object) -> None:
    """S3-07, S3-08"""
    with pytest.raises(ValidationError, match="ambiguity_details is empty"):
        AmbiguityCheck.model_validate({"needs_clarification": True, "ambiguity_details": details})


def test_aspect_may_leave_out_what_is_optional() -> None:
    fields = {"aspect": "scope", "clarification_question": "Which?", "description": None, "possible_options": None}
    aspect = Ambiguity.model_validate(fields)
    assert (aspect.description, aspect.possible_options) == ("", ())


# -- reports ----------------------------------------------------------------------------------------------------------


def test_report_reads_as_its_summary_and_basis() -> None:
    report = Report(summary="Done.", assumptions=("PostgreSQL",), left_open=("Tests",))
    assert report.to_text() == "Done.\n\nAssumed:\n- PostgreSQL\n\nLeft open:\n- Tests"


def test_report_without_lists_is_its_summary() -> None:
    assert Report(summary="Done.").to_text() == "Done."


@pytest.mark.parametrize("kind", REPORTS)
def test_words_without_json_are_a_report_too(kind: type[Report]) -> None:
    assert kind.from_text(" It is done. ").to_text() == "It is done."


@pytest.mark.parametrize("kind", REPORTS)
def test_lists_that_are_null_are_empty(kind: type[Report]) -> None:
    text: dict[str, Any] = dict.fromkeys(kind.model_fields) | {"summary": "Done."}
    assert kind.model_validate(text).to_text() == "Done."


@pytest.mark.parametrize(
    ("work", "warnings"),
    [
        (WorkDone([], frozenset({"coder"})), ("it called none of its tools",)),
        (WorkDone([MadeCall("coder", {"task": "x"}, "")], frozenset({"coder"})), ()),
        (WorkDone([]), ()),
    ],
)
def test_report_of_an_agent_without_calls_is_warned_of(work: WorkDone, warnings: tuple[str, ...]) -> None:
    assert Report.from_text("All done.").verify_against(work).warnings == warnings


@pytest.mark.parametrize("text", [{}, {"summary": ""}, {"summary": None}], ids=repr)
def test_report_says_something(text: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="summary"):
        Report.model_validate(text)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Classification(intent=Intent.META), "a question about me"),
        (Classification(intent=Intent.CODING, research_depth=Depth.DEEP), "a deep coding task"),
        (Classification(intent=Intent.CODING, missing="it"), "a shallow coding task that may lack something: it"),
        (ClarificationResponse(needs_clarification=False), "nothing has to be asked"),
        (
            ClarificationResponse(needs_clarification=True, clarification_question="Which?"),
            "would like to know: Which?",
        ),
        (QuestionCheck(first="a", second="b", effect=Effect.PART), "changes the result: a or b"),
        (QuestionCheck(first="3.12", effect=Effect.NOTHING), "need not be asked: 3.12"),
        (AmbiguityCheck(needs_clarification=False), "nothing is unclear"),
        (Plan(title="Login", sections=("Do",)), "a plan of no steps: Login"),
    ],
)
def test_reply_says_in_words_what_was_decided(reply: StructuredReply, words: str) -> None:
    assert reply.in_words() == words
