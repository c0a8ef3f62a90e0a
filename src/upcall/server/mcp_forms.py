"""A question as a form that an MCP client shows its user, and what comes back."""

from __future__ import annotations

from typing import Any

from mcp.types import ElicitResult

from upcall.questions.answer import Answer, Outcome
from upcall.questions.answer_form import FieldKind, FormField
from upcall.questions.matching import AnswerValue
from upcall.questions.question import Question
from upcall.questions.question_form import QuestionForm, join_fields

_TYPES = {FieldKind.NUMBER: "number", FieldKind.INTEGER: "integer", FieldKind.FLAG: "boolean"}
_FORMATS = {FieldKind.DATE: "date", FieldKind.DATE_TIME: "date-time"}
_RULES = ("minimum", "maximum", "minLength", "maxLength")


def as_message(question: Question) -> str:
    """Return what stands above the fields."""
    return question.without_fields().as_text()


def describe_fields(question: Question, before: ElicitResult | None = None) -> dict[str, Any]:
    """Describe what the client has to ask for: flat fields, as the protocol requires. What the user filled in `before`
    stands in them."""
    form, fields = QuestionForm.of(question), dict[str, Any]()
    if form.answer is not None:
        filled = (before.content if before is not None else None) or {}
        own = {each.name: _describe_field(each, filled.get(each.name)) for each in form.answer.fields}
        return {
            "type": "object",
            "properties": own,
            "required": [each.name for each in form.answer.fields if each.must_fill],
        }
    one = {"type": "string", "enum": form.labels}
    if form.choices and form.several:
        fields["chosen"] = {"type": "array", "title": "Several may be chosen", "items": one}
    elif form.choices:
        fields["chosen"] = {**one, "title": question.header or "Your choice"}
    if form.takes_text:
        fields["own_words"] = {"type": "string", "title": form.text_label}
    return {"type": "object", "properties": fields, "required": [] if len(fields) > 1 else [*fields]}


def _describe_field(field: FormField, filled: object) -> dict[str, Any]:
    """Describe one field of an answer in the few words that the protocol has. What they do not say stands in the
    description, and is checked here."""
    one: dict[str, Any] = {"type": _TYPES.get(field.kind, "string")}
    begun: Any = field.begun
    if field.kind is FieldKind.CHOICE:
        one |= {"enum": field.labels}
        begun = field.begun_labels if field.several else next(iter(field.begun_labels), None)
    elif field.several:
        one, begun = {"type": "string"}, field.begun_text
    else:
        one |= {"format": _FORMATS[field.kind]} if field.kind in _FORMATS else {}
        one |= {name: value for name, value in field.rules if name in _RULES}
    if field.several and field.kind is FieldKind.CHOICE:
        one = {"type": "array", "items": one}
    begun = begun if filled is None else filled
    about = {"title": field.label, "description": f"{field.description} ({field.describe()})".strip()}
    return {**one, **about, **({} if begun in (None, [], "") else {"default": begun})}


def read_reply(reply: ElicitResult, question_id: str, question: Question | None) -> AnswerValue:
    """Return what a client's user replied to a form, as an answer; not to accept it is to decline."""
    if reply.action != "accept":
        return Answer(question_id=question_id, outcome=Outcome.DECLINED)
    form = None if question is None else question.answer_form
    return _read_fields(reply.content or {}) if form is None else form.take(reply.content or {})


def _read_fields(content: dict[str, Any]) -> AnswerValue:
    own = str(content.get("own_words") or "").strip()
    chosen = content.get("chosen") or []
    return join_fields(chosen if isinstance(chosen, list) else [str(chosen)], own)
