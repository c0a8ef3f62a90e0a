"""Which events a change of a run is: found by comparing the run before with the run after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.events import (
    LogEvent,
    QuestionAnswered,
    QuestionAsked,
    QuestionOverdue,
    QuestionReminded,
    RunStarted,
    StatusChanged,
)
from upcall.runs.run import Run
from upcall.runs.states import RunEvent

_act: ContextVar[LogEvent | None] = ContextVar("upcall_act", default=None)


@contextmanager
def record_act(act: LogEvent) -> Iterator[None]:
    """Inside, a write of a run has this event too, in the same transaction: an act and its event are stored both or
    not at all. For one write."""
    token = _act.set(act)
    try:
        yield
    finally:
        _act.reset(token)


def list_events(before: Run | None, after: Run) -> list[LogEvent]:
    """List what happened to a run that was moved on, in order; `before` is None for a new one."""
    act = _act.get()
    found: list[LogEvent] = [act] if act is not None else []
    if before is None:
        found.append(RunStarted(user=after.user, status=after.status))
    known = before.records if before else QuestionRecords()
    for record in after.records:
        found += _compare_records(known.get(record.id), record)
    if before is not None and before.status is not after.status:
        found.append(StatusChanged(before=before.status, after=after.status))
    return found


def cancel_run(run: Run, reason: str | None = None, **changes: Any) -> Run:
    """Return the run as it is ended for good: nobody waits for its open questions any more, for a reason."""
    dropped = [
        Answer(question_id=each.id, outcome=Outcome.CANCELLED, by=AnsweredBy.POLICY, reason=reason)
        for each in run.open_questions
    ]
    return run.record_answers(dropped).apply(RunEvent.CANCELLED, error=None, replacing=(), **changes)


def walk_questions(before: Run, after: Run) -> Iterator[tuple[QuestionRecord, bool]]:
    """Yield each question that came with a change of a run, and True; and each that waited and was closed by it, and
    False."""
    for record in () if before.records is after.records else after.records:
        was = before.records.get(record.id)
        if was is None:
            yield record, True
        elif record.answer is not None and not was.is_closed:
            yield record, False


def _compare_records(before: QuestionRecord | None, after: QuestionRecord) -> Iterator[LogEvent]:
    question, answer = after.question, after.answer
    if before is None and answer is None:
        yield QuestionAsked(question=question.id, path=question.path, assignee=question.assignee)
    if answer is not None and (
        before is None or before.answer is None or before.is_provisional is not after.is_provisional
    ):
        yield QuestionAnswered(question=question.id, outcome=answer.outcome, by=answer.by, user=answer.user)
    if after.noted_overdue and not (before and before.noted_overdue):
        yield QuestionOverdue(question=question.id)
    if after.reminders > (before.reminders if before else 0):
        yield QuestionReminded(question=question.id, number=after.reminders)
