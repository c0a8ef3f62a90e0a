"""A question as a form that an MCP client shows its user, and what comes back."""

from __future__ import annotations

from typing import Any

from mcp.types import ElicitResult

from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue
from upcall.questions.question import Question
from upcall.questions.question_form import QuestionForm, join_fields


def describe_fields(question: Question) -> dict[str, Any]:
    """Describe what the client has to ask for: flat fields, as the protocol requires."""
    form, fields = QuestionForm.of(question), dict[str, Any]()
    one = {"type": "string", "enum": form.labels}
    if form.choices and form.several:
        fields["chosen"] = {"type": "array", "title": "Several may be chosen", "items": one}
    elif form.choices:
        fields["chosen"] = {**one, "title": question.header or "Your choice"}
    if form.takes_text:
        fields["own_words"] = {"type": "string", "title": form.text_label}
    return {"type": "object", "properties": fields, "required": [] if len(fields) > 1 else [*fields]}


def read_reply(reply: ElicitResult, question_id: str) -> AnswerValue:
    """Return what a client's user replied to a form, as an answer; not to accept it is to decline."""
    if reply.action == "accept":
        return _read_fields(reply.content or {})
    return Answer(question_id=question_id, outcome=Outcome.DECLINED)


def _read_fields(content: dict[str, Any]) -> AnswerValue:
    own = str(content.get("own_words") or "").strip()
    chosen = content.get("chosen") or []
    return join_fields(chosen if isinstance(chosen, list) else [str(chosen)], own)
