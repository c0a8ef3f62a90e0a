"""The events about deadlines: a reminder, an overdue question, an expired one with its outcome."""

from __future__ import annotations

from collections.abc import Iterable

from upcall.autogen.messages import PATH, Event, answered_event, asked_event
from upcall.policy.deadlines import EXPIRED, DueNotice
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.run import Run

EXPIRY = "upcall.expiry"
"""The key in the metadata of a deadline event: `REMINDED`, `OVERDUE` or `EXPIRED` of `upcall.policy.deadlines`."""


def attach_deadline(event: Event, question: Question) -> Event:
    """Return the event that asks a question, with the deadline the question got when it was published."""
    if question.expires_at is None:
        return event
    return event.model_copy(update={"metadata": event.metadata | asked_event(question, source=event.source).metadata})


def due_event(notice: DueNotice) -> Event:
    """Return the event that reports a reminder, or that a question is overdue."""
    return _mark(asked_event(notice.question, source=notice.question.asker), notice.question, notice.what)


def expired_events(run: Run, answers: Iterable[Answer]) -> list[Event]:
    """Return the events about questions whose time is over, with their outcomes."""
    asked = {question.id: question for question in run.open_questions}
    pairs = [(asked[answer.question_id], answer) for answer in answers if answer.reason]
    return [_mark(answered_event(each, answer, source=each.asker), each, EXPIRED) for each, answer in pairs]


def _mark(event: Event, question: Question, what: str) -> Event:
    return event.model_copy(update={"metadata": event.metadata | {EXPIRY: what, PATH: "/".join(question.path)}})
