"""Questions as interrupts of AG-UI, and its resume entries as answers."""

from __future__ import annotations

import json

from ag_ui.core import Interrupt, ResumeEntry

from upcall.errors import AnswerRefused
from upcall.questions.answer import Answer, Outcome
from upcall.questions.approval import find_side, list_decisions
from upcall.questions.matching import AnswerValue
from upcall.questions.question import Question, Side
from upcall.questions.question_form import QuestionForm
from upcall.questions.tool_call import PendingCall
from upcall.server.answer_schema import describe_answer


def describe_interrupt(question: Question, name: str, call: str | None) -> Interrupt:
    """Describe a question as an interrupt.

    Args:
        question: what is asked.
        name: what an answer names it by.
        call: the id of the tool call that it stops.
    """
    reason = "tool_call" if question.approval is not None and call is not None else "input_required"
    return Interrupt(
        id=name,
        reason="confirmation" if reason == "input_required" and question.is_risk else reason,
        message=question.as_text(),
        tool_call_id=call,
        response_schema=describe_answer(question),
        expires_at=question.expires_at and question.expires_at.isoformat(),
        metadata={"upcall": question.as_json()},
    )


def read_payload(question: Question, entry: ResumeEntry) -> AnswerValue:
    """Read the answer to a question from a resume entry.

    Raises:
        AnswerRefused: it does not match the interrupt's schema.
    """
    given = entry.payload
    if entry.status == "cancelled":
        return Answer(question_id=question.id, outcome=Outcome.DECLINED)
    form = QuestionForm.of(question)
    if form.call is not None:
        return _read_decision(question, form.call, given)
    if isinstance(given, str) or (isinstance(given, dict) and question.answer_schema is not None):
        return given
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return given
    if question.answer_schema is not None:
        raise AnswerRefused(f"The payload for question {question.id} is not an answer: send an object of its fields.")
    expected = "a list of texts" if form.several else "a text"
    raise AnswerRefused(f"The payload for question {question.id} is not an answer: send {expected}.")


def _read_decision(question: Question, call: PendingCall, given: object) -> AnswerValue:
    """Read whether to make a call. Edited arguments replace all of them, so none may be missing: otherwise the call
    would be made with one that the human removed."""
    edited = given.get("editedArgs") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(given.get("approved"), bool) or given.keys() - _DECISION:
        raise AnswerRefused(
            f'The payload for question {question.id} is not a decision: send {{"approved": true}}, false, or true with '
            '"editedArgs".'
        )
    if edited is None or not given["approved"]:
        side = Side.YES if given["approved"] else Side.NO
        return find_side(list_decisions(call), side).label
    if not isinstance(edited, dict) or (missing := call.arguments.keys() - edited.keys()):
        names = ", ".join(sorted(missing)) if isinstance(edited, dict) else "all"
        raise AnswerRefused(
            f"The edited arguments for question {question.id} leave out some: {names}. Send all of them."
        )
    return json.dumps(edited)


_DECISION = {"approved", "editedArgs"}
