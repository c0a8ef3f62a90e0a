"""The two values that travel: what they accept, what they look like as text, and what they are as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from upcall import identity
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import (
    MAX_LABEL_CHARS,
    MAX_OPTIONS,
    MAX_QUESTION_CHARS,
    ClarificationType,
    Option,
    Question,
)

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def question(**fields: Any) -> Question:
    return Question(**{"id": "q1", "question": "Which framework?", "asked_at": NOON, **fields})


def answer(**fields: Any) -> Answer:
    return Answer(**{"question_id": "q1", "answered_at": NOON, **fields})


# -- what a question accepts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("camel", "snake", "value"),
    [
        ("clarificationType", "clarification_type", ClarificationType.SUGGESTION),
        ("allowFreeText", "allow_free_text", False),
        ("multiSelect", "multi_select", True),
        ("askedAt", "asked_at", NOON),
        ("expiresAt", "expires_at", NOON),
    ],
)
def test_question_reads_camel_case(camel: str, snake: str, value: object) -> None:
    """X8"""
    asked = Question.model_validate({"question": "Which?", "options": ["A"], camel: value})
    assert getattr(asked, snake) == value


def test_answer_reads_camel_case() -> None:
    """X8"""
    assert Answer.model_validate({"questionId": "q1", "answeredAt": NOON}) == answer()


def test_question_fields_are_snake_case_in_data_and_schema() -> None:
    """X8"""
    written = [*question().model_dump(mode="json"), *Question.model_json_schema()["properties"]]
    assert [name for name in written if name != name.lower()] == []


def test_texts_of_a_question_are_trimmed() -> None:
    """S1-28"""
    asked = question(question="  Which?\n", context=" why ", header=" h ", options=[" A ", {"label": " B "}])
    assert (asked.question, asked.context, asked.header) == ("Which?", "why", "h")
    assert [option.label for option in asked.options] == ["A", "B"]


@pytest.mark.parametrize("blank", ["", "  ", None, {}, {"label": ""}, {"label": " ", "description": None}])
def test_option_that_says_nothing_is_dropped(blank: object) -> None:
    """S1-28"""
    assert question(options=["A", blank, "B"]).options == (Option(label="A"), Option(label="B"))


def test_option_without_a_label_is_refused_despite_its_description() -> None:
    with pytest.raises(ValidationError, match="label"):
        question(options=[{"label": "", "description": "the fast one"}])


@pytest.mark.parametrize("options", [["A", "A"], ["Yes", "yes"], ["Straße", "STRASSE"], ["A", {"label": " a "}]])
def test_two_options_of_one_label_are_refused(options: list[object]) -> None:
    with pytest.raises(ValidationError, match="same label"):
        question(options=options)


def test_two_options_of_one_id_are_refused() -> None:
    with pytest.raises(ValidationError, match="same id"):
        question(options=[{"label": "A", "id": "x"}, {"label": "B", "id": "x"}])


def test_without_options_free_text_must_be_allowed() -> None:
    with pytest.raises(ValidationError, match="allow_free_text"):
        question(options=[""], allow_free_text=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"question": ""},
        {"question": " \n "},
        {"question": "\x1b\x07"},
        {"question": "x" * (MAX_QUESTION_CHARS + 1)},
        {"question": "\ud800"},
        {"question": 5},
        {"question": None},
        {"id": ""},
        {"header": "x" * 81},
        {"context": "x" * (MAX_QUESTION_CHARS + 1)},
        {"default": "x" * (MAX_QUESTION_CHARS + 1)},
        {"options": [str(number) for number in range(MAX_OPTIONS + 1)]},
        {"options": ["x" * (MAX_LABEL_CHARS + 1)]},
        {"options": [{"label": "A", "description": "x" * (MAX_QUESTION_CHARS + 1)}]},
        {"options": "A, B"},
        {"options": {"A": "a"}},
        {"options": [[1], 2]},
        {"options": 0},
        {"clarification_type": "curiosity"},
        {"unknown": 1},
    ],
    ids=lambda fields: repr(fields)[:40],
)
def test_question_that_nobody_could_answer_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        question(**fields)


def test_longest_question_with_the_most_options_is_accepted() -> None:
    """S4-49"""
    asked = question(question="x" * MAX_QUESTION_CHARS, options=[str(number) for number in range(MAX_OPTIONS)])
    assert len(asked.options) == MAX_OPTIONS


def test_control_characters_of_a_model_never_reach_a_terminal() -> None:
    """Authority: what an agent says is data and is escaped in terminals"""
    asked = question(
        question="Delete \x1b[2Kall\rnothing?\x00",
        context="\u202egnp.exe",
        options=[{"label": "Y\x1b[8mes", "description": "\x9b2J"}],
    )
    assert [character for character in asked.as_text() if character < " " and character != "\n"] == []
    assert "\u202e" not in asked.as_text()
    assert "\x9b" not in asked.as_text()


def test_option_cannot_pass_for_two() -> None:
    shown = question(options=["A\n  2. B", "C"]).details()
    assert shown[:2] == ["  1. A 2. B", "  2. C"]


def test_question_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        question().question = "Another?"  # type: ignore[misc]  # that it is refused at run time too is the test


@pytest.mark.parametrize("order", [1, -1], ids=["type first", "type last"])
def test_risk_can_neither_be_skipped_nor_assumed(order: int) -> None:
    """Authority: a risk_confirmation is answered by the human's own choice only"""
    fields = {"clarification_type": "risk_confirmation", "required": False, "default": "Yes"}
    asked = question(**dict(list(fields.items())[::order]))
    assert (asked.required, asked.default) == (True, None)
    assert "If nobody answers" not in asked.as_text()


# -- how it travels up ------------------------------------------------------------------------------------------------


def test_path_grows_by_name_and_call_at_each_level() -> None:
    asked = question(path=("coder",), calls=("c3",)).raise_through("lead", "c2").raise_through("root", "c1")
    assert asked.path == ("root", "lead", "coder")
    assert asked.calls == ("c1", "c2", "c3")


def test_raising_changes_nothing_but_path_and_calls() -> None:
    asked = question(path=("coder",), options=["A"])
    raised = asked.raise_through("lead", "c1")
    assert raised.model_copy(update={"path": asked.path, "calls": asked.calls}) == asked


def test_asker_is_the_innermost_agent() -> None:
    assert question(path=("lead", "coder")).asker == "coder"
    assert question().asker == "agent"


# -- as text ----------------------------------------------------------------------------------------------------------


def test_question_as_text_stands_alone() -> None:
    """S1-21, S1-32, S4-08"""
    asked = question(
        path=("lead", "coder"),
        context="It shapes all files.",
        options=["Express", {"label": "FastAPI", "description": "Python"}],
        multi_select=True,
        required=False,
        default="Express",
    )
    assert asked.as_text().splitlines() == [
        "coder (for lead) needs to know: Which framework?",
        "  Reason: It shapes all files.",
        "  1. Express",
        "  2. FastAPI - Python",
        "  Or answer in your own words.",
        "  Several may be chosen, separated by commas.",
        "  This question may be skipped.",
        "  If nobody answers: Express",
    ]


def test_question_says_no_more_than_there_is() -> None:
    """S1-32: own words are offered only where they are allowed."""
    assert question(path=("coder",)).as_text() == "coder needs to know: Which framework?"
    assert "own words" not in question(options=["A"], allow_free_text=False).as_text()
    assert question(path=("root", "lead", "coder")).introduce() == "coder (for root > lead) needs to know"


@pytest.mark.parametrize(
    ("asked", "tool", "line"),
    [
        ("Which password?", None, "goes to who asks only"),
        ("Which password?", "deploy", "goes to the tool deploy only"),
        ("密码是什么？", "deploy", "只交给工具 deploy"),
    ],
)
def test_secret_question_says_who_gets_the_answer(asked: str, tool: str | None, line: str) -> None:
    assert line in question(question=asked, secret=True, tool=tool).as_text()
    assert line not in question(question=asked, tool=tool).as_text()


# -- as JSON ----------------------------------------------------------------------------------------------------------


def test_question_in_json_has_the_fields_of_the_contract() -> None:
    contract = """id question header clarification_type context options allow_free_text multi_select required default
    secret tool approval consent path calls asked_at expires_at assignee detail weight answer_schema
    answer_draft on_ask"""
    assert list(question().model_dump(mode="json")) == contract.split()


def test_answer_in_json_has_the_fields_of_the_contract() -> None:
    contract = "question_id outcome text selected by user answered_at reason sealed provisional"
    assert list(answer().model_dump(mode="json")) == contract.split()


def test_command_line_shows_a_question_as_agreed() -> None:
    asked = question(clarification_type="approach_choice", path=("lead", "coder"), options=["Express", "FastAPI"])
    shown = asked.model_dump(mode="json", exclude_none=True)
    assert shown["options"] == [{"label": "Express"}, {"label": "FastAPI"}]
    assert shown["path"] == ["lead", "coder"]
    assert (shown["clarification_type"], shown["allow_free_text"]) == ("approach_choice", True)


def test_question_survives_json() -> None:
    asked = question(path=("lead", "coder"), calls=("a", "b"), options=["Ä", "日本"], expires_at=NOON, secret=True)
    assert Question.model_validate_json(asked.model_dump_json()) == asked
    assert Question.model_validate(json.loads(asked.model_dump_json(exclude_none=True))) == asked


def test_answer_survives_json() -> None:
    given = answer(text="Ä", selected=("Ä",), by=AnsweredBy.LEDGER, user="alice", outcome=Outcome.ASSUMED)
    assert Answer.model_validate_json(given.model_dump_json()) == given


def test_choices_are_closed() -> None:
    """S1-12 and the contract"""
    kinds = "missing_info ambiguous_requirement approach_choice risk_confirmation suggestion"
    assert [kind.value for kind in ClarificationType] == kinds.split()
    assert [each.value for each in Outcome] == ["answered", "skipped", "declined", "expired", "cancelled", "assumed"]
    assert [each.value for each in AnsweredBy] == ["human", "facts", "ledger", "parent", "policy"]


def test_question_defaults_are_missing_info_required_and_open() -> None:
    """S1-12, S1-14 to S1-16"""
    asked = Question(question="Which?")
    assert asked.clarification_type is ClarificationType.MISSING_INFO
    assert (asked.options, asked.allow_free_text, asked.required) == ((), True, True)


def test_ids_and_the_clock_come_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "new_id", lambda: "abc")
    monkeypatch.setattr(identity, "now", lambda: NOON)
    assert (Question(question="Which?").id, Answer(question_id="abc").answered_at) == ("abc", NOON)


# -- what the asking model reads --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"text": "Use Express"}, ["Use Express"]),
        ({"selected": ("Express", "FastAPI")}, ["Express, FastAPI"]),
        ({"outcome": Outcome.SKIPPED}, ["skipped", "say what you assumed"]),
        ({"outcome": Outcome.DECLINED}, ["declined", "Do not ask again"]),
        ({"outcome": Outcome.DECLINED, "text": "too risky"}, ["They said: too risky"]),
        ({"outcome": Outcome.EXPIRED}, ["Nobody answered in time", "Do not take this as consent"]),
        ({"outcome": Outcome.CANCELLED}, ["cancelled", "end your work"]),
        ({"outcome": Outcome.ASSUMED}, ["Nobody answered", "list it as an assumption"]),
        ({"outcome": Outcome.ASSUMED, "text": "Express"}, ["assumed: Express."]),
    ],
)
def test_answer_reads_as_its_text_and_instruction(fields: dict[str, Any], parts: list[str]) -> None:
    text = answer(**fields).as_text()
    assert [part for part in parts if part not in text] == []
    assert "outcome" in fields or text == parts[0]


@pytest.mark.parametrize("text", ["", " ", "because"])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_answer_says_something(outcome: Outcome, text: str) -> None:
    assert answer(outcome=outcome, text=text).as_text().strip()


def test_answer_text_is_independent_of_answerer_and_time() -> None:
    assert answer(text="A", user="alice").is_equivalent(Answer(question_id="q1", text="A", by=AnsweredBy.FACTS))
    assert not answer(text="A").is_equivalent(answer(text="A", outcome=Outcome.DECLINED))
