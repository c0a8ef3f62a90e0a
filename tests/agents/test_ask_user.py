"""The `ask_user` tool: what a model may say in it, and the hint it gets when the question cannot be put."""

from __future__ import annotations

from typing import Any

import pytest

from upcall.agents.tool_loop.ask_user import ASK_USER, HINT, InvalidQuestion, ask_user_schema, parse_question
from upcall.questions.question import MAX_OPTIONS, MAX_QUESTION_CHARS, ClarificationType, Option, Question


def asked(**arguments: Any) -> Question:
    return parse_question({"question": "Which framework?", **arguments}, agent="coder", call_id="call_1")


@pytest.mark.parametrize(
    "arguments",
    [
        {"question": ""},
        {"question": "   "},
        {"question": None},
        {"question": 5},
        {"question": ["Which?"]},
        {"question": {"text": "Which?"}},
        {"question": "x" * (MAX_QUESTION_CHARS + 1)},
        {"question": "\ud800"},
        {"question": "\x1b"},
        {"options": "Express"},
        {"options": {"Express": "a framework"}},
        {"options": 3},
        {"options": [[1], [2]]},
        {"options": [["Express"]]},
        {"options": [{"title": "Express"}]},
        {"options": ["Express", "express"]},
        {"options": [str(number) for number in range(MAX_OPTIONS + 1)]},
        {"options": ["x" * 401]},
        {"options": [], "allow_free_text": False},
        {"allow_free_text": "perhaps"},
        {"required": []},
        {"clarification_type": "curiosity"},
        {"header": "x" * 81},
        {"context": 7},
        {"default": "x" * (MAX_QUESTION_CHARS + 1)},
    ],
    ids=lambda arguments: repr(arguments)[:50],
)
def test_ask_user_answers_invalid_calls_with_error_and_hint(arguments: dict[str, Any]) -> None:
    """S1-19"""
    with pytest.raises(InvalidQuestion) as refused:
        asked(**arguments)
    assert str(refused.value).startswith("Invalid ask_user call: ")
    assert str(refused.value).endswith(HINT)


def test_call_without_a_question_is_invalid() -> None:
    """S1-11"""
    with pytest.raises(InvalidQuestion, match="question: Field required"):
        parse_question({}, agent="coder", call_id="call_1")


def test_hint_is_stable() -> None:
    """S1-19: models and tests rely on these words"""
    assert HINT == (
        "Call ask_user again with a valid question: a non-empty text, and options as a list of distinct strings."
    )


def test_error_says_which_argument_is_wrong() -> None:
    with pytest.raises(InvalidQuestion, match=r"options\.1\.label"):
        asked(options=["A", {"label": [5]}])


@pytest.mark.parametrize("name", ["id", "path", "calls", "secret", "asked_at", "askedAt", "expires_at", "expiresAt"])
def test_ask_user_takes_neither_ids_asker_nor_time(name: str) -> None:
    values = {"id": "mine", "path": ["human"], "calls": ["x"], "secret": True}
    mine = asked(**{name: values.get(name, "2000-01-01T00:00:00Z")})
    assert (mine.path, mine.calls, mine.secret, mine.expires_at) == (("coder",), ("call_1",), False, None)
    assert mine.id != "mine"
    assert mine.asked_at.year > 2000


def test_model_sets_no_ids_of_options() -> None:
    mine = asked(options=[{"label": "Express", "id": "2"}, {"label": "FastAPI", "id": "2"}])
    assert [option.id for option in mine.options] == [None, None]


def test_ask_user_drops_arguments_it_does_not_have() -> None:
    assert asked(urgency="high", _secret=True, by="policy").question == "Which framework?"


@pytest.mark.parametrize(
    ("camel", "value", "snake"),
    [
        ("clarificationType", "approach_choice", "clarification_type"),
        ("allowFreeText", False, "allow_free_text"),
        ("multiSelect", True, "multi_select"),
    ],
)
def test_camel_case_is_read(camel: str, value: object, snake: str) -> None:
    """X8"""
    assert getattr(asked(options=["A"], **{camel: value}), snake) == value


def test_both_spellings_at_once_are_no_error() -> None:
    """X8"""
    mine = asked(clarificationType="suggestion", clarification_type="suggestion")
    assert mine.clarification_type is ClarificationType.SUGGESTION


def test_options_are_strings_or_labels_with_descriptions() -> None:
    """X5, S4-38"""
    mine = asked(options=["Express", {"label": "FastAPI", "description": "Python", "value": "f"}])
    assert mine.options == (Option(label="Express"), Option(label="FastAPI", description="Python"))


@pytest.mark.parametrize("blank", ["", "  ", None, {}, {"label": "", "description": ""}], ids=repr)
def test_blank_options_are_dropped(blank: object) -> None:
    """S1-28"""
    assert asked(options=["A", blank]).options == (Option(label="A"),)


@pytest.mark.parametrize("name", ["context", "options", "header", "default", "required", "clarification_type"])
def test_null_is_left_out(name: str) -> None:
    assert getattr(asked(**{name: None}), name) == getattr(asked(), name)


def test_empty_call_gets_the_defaults_of_the_seed() -> None:
    """S1-12, S1-14, S1-15, S1-16"""
    mine = asked()
    assert mine.clarification_type is ClarificationType.MISSING_INFO
    assert (mine.options, mine.allow_free_text, mine.required, mine.multi_select) == ((), True, True, False)


def test_model_cannot_give_a_risk_a_default() -> None:
    """Authority"""
    mine = asked(clarification_type="risk_confirmation", default="Yes", required=False)
    assert (mine.default, mine.required) == (None, True)


def test_tool_is_described_as_in_the_seed() -> None:
    """S4-36"""
    schema = ask_user_schema()
    assert schema["name"] == ASK_USER
    assert schema["description"] == (
        "Request input from the user when you need clarification or additional information."
    )


def test_ask_user_schema_has_the_defaults_of_the_seed() -> None:
    """S1-12 to S1-16: a model that leaves an argument out knows what it then says."""
    properties = ask_user_schema()["parameters"]["properties"]
    kinds = ["missing_info", "ambiguous_requirement", "approach_choice", "risk_confirmation", "suggestion"]
    assert properties["clarification_type"]["enum"] == kinds
    named = ("clarification_type", "context", "options", "allow_free_text", "required")
    assert {name: properties[name].get("default", "none") for name in named} == {
        "clarification_type": "missing_info",
        "context": None,
        "options": [],
        "allow_free_text": True,
        "required": True,
    }
    assert "default" not in properties["question"]


def test_tool_asks_for_the_question_alone() -> None:
    """S4-37, S4-38"""
    parameters = ask_user_schema()["parameters"]
    assert parameters["required"] == ["question"]
    assert not {"id", "path", "calls", "secret"} & set(parameters["properties"])


def test_schema_of_the_tool_holds_no_references() -> None:
    """Some servers do not follow `$ref` in tools"""
    assert "$ref" not in str(ask_user_schema())


def test_every_argument_says_what_it_is_for() -> None:
    properties = ask_user_schema()["parameters"]["properties"]
    assert [name for name, schema in properties.items() if not schema.get("description")] == []
