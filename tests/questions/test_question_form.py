"""What a question gives to fill in, whoever draws it."""

from __future__ import annotations

from typing import Any

import pytest

from upcall.questions.question import ClarificationType, Question
from upcall.questions.question_form import QuestionForm, join_fields
from upcall.questions.tool_call import PendingCall

AB = ("A", "B")
CALL = PendingCall(tool="send", arguments={"to": "Ada"}, parameters={})


@pytest.mark.parametrize(
    ("fields", "labels", "takes_text", "text_label"),
    [
        ({}, [], True, "Your answer"),
        ({"options": AB}, ["A", "B"], True, "Or in your own words"),
        ({"options": AB, "allow_free_text": False}, ["A", "B"], False, "Or in your own words"),
        ({"options": AB, "approval": CALL}, ["A", "B"], True, "Or why not; or other arguments, as JSON"),
        ({"secret": True}, [], True, "Secret: it is stored encrypted, and not shown again"),
        (
            {"secret": True, "options": AB, "allow_free_text": False, "multi_select": True},
            [],
            True,
            "Secret: it is stored encrypted, and not shown again",
        ),
    ],
)
def test_form_has_the_fields_of_its_question(
    fields: dict[str, Any], labels: list[str], takes_text: bool, text_label: str
) -> None:
    form = QuestionForm.of(Question(question="Which?", **fields))
    assert (form.labels, form.takes_text, form.text_label) == (labels, takes_text, text_label)
    assert not any((form.several, form.may_skip, form.needs_own_choice))


def test_form_says_how_it_may_be_left() -> None:
    assert QuestionForm.of(Question(question="Which?", required=False)).may_skip
    risk = QuestionForm.of(Question(question="Sure?", clarification_type=ClarificationType.RISK_CONFIRMATION))
    assert risk.needs_own_choice
    assert QuestionForm.of(Question(question="Which?", options=AB, multi_select=True)).several


@pytest.mark.parametrize(
    ("chosen", "text", "value"),
    [(["A"], " ", "A"), ([], "C", "C"), (["A", "B"], "", ["A", "B"]), (["A"], "C", ["A", "C"]), ([], "", [])],
)
def test_fields_become_one_answer(chosen: list[str], text: str, value: object) -> None:
    assert join_fields(chosen, text) == value
