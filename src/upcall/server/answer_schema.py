"""The answers that a question accepts, as a JSON schema: for programs that draw a form, or check what they send."""

from __future__ import annotations

from typing import Any

from upcall.questions.answer_form import set_defaults
from upcall.questions.question import Question
from upcall.questions.question_form import QuestionForm
from upcall.questions.tool_call import PendingCall


def describe_answer(question: Question) -> dict[str, Any]:
    """Describe the answers that a question accepts, as a JSON schema."""
    form = QuestionForm.of(question)
    if question.answer_schema is not None:
        return set_defaults(question.answer_schema, question.answer_draft or {})
    if form.call is not None:
        return _describe_decision(form.call)
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    if form.hidden:
        return {**text, "format": "password", "writeOnly": True}
    choices: list[dict[str, Any]] = [{"type": "string", "enum": form.labels}] if form.choices else []
    choices += [text] if form.takes_text else []
    one = choices[0] if len(choices) == 1 else {"anyOf": choices}
    return {"type": "array", "items": one, "minItems": 1} if form.several else one


def _describe_decision(call: PendingCall) -> dict[str, Any]:
    edited = {"type": "object", "description": "The arguments to call it with: all of them, some changed."}
    return {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "editedArgs": {**call.parameters, **edited}},
        "required": ["approved"],
        "additionalProperties": False,
    }
