"""How long questions wait, what happens then, and when their human is reminded.

No process has to be running when a deadline passes, so the next one that looks acts on it: `Upcall.expire`, an answer,
a resume. Deadlines are stored in UTC. What was once recorded - an answer, an end, that a question is overdue - stays
valid whatever the clock says later. Silence approves nothing: `upcall.policy.assumptions.answer_by_default` decides
what it results in. A question about a call in doubt never expires: only the human can know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from upcall.errors import (
    QuestionExpired,
    RunNotWaiting,
)
from upcall.policy.assumptions import answer_by_default, hold_for_now, is_for_the_human
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question, format_time
from upcall.questions.record import QuestionRecord
from upcall.runs.run import Run
from upcall.runs.states import RunEvent, RunStatus

REMINDED, OVERDUE, EXPIRED = "reminded", "overdue", "expired"
"""What is reported of a question with a deadline."""


# -- what a run contains -----------------------------------------------------------------------------------------------


def explain_expiry(question: Question) -> str:
    """Return the reason why a question expired."""
    return (
        f"Nobody answered by {format_time(question.expires_at)}." if question.expires_at else "Nobody answered in time."
    )


def expired_answers(run: Run, now: datetime | None = None) -> list[Answer]:
    """Return the outcomes of the questions that have expired; nothing if they wait on, or if the run ends with them."""
    if run.config.on_expiry != "assume":
        return []
    found = []
    for question in run.records.list_overdue(now):
        outcome = answer_by_default(question, explain_expiry(question))
        # What a program outside did with an assumption cannot be done again.
        is_final = run.config.is_external or is_for_the_human(question)
        found.append(outcome if is_final else hold_for_now(outcome) or outcome)
    return found


def add_expired(run: Run, answers: Sequence[Answer], now: datetime | None = None) -> list[Answer]:
    """Return the answers, and the outcomes of the other questions that have expired."""
    given = {answer.question_id for answer in answers}
    return [*answers, *(each for each in expired_answers(run, now) if each.question_id not in given)]


def explain_end(run: Run) -> str:
    """Say why an expired question ended a run, with a leading space; empty for any other run, and for users who may not
    see why."""
    if run.status is RunStatus.EXPIRED and run.error:
        return f" {run.error}"
    reasons = (each.reason for each in run.answers if each.outcome is Outcome.CANCELLED and each.reason)
    return f" {next(reasons, '')}".rstrip()


def explain_lapsed(run: Run) -> list[str]:
    """Describe the expired questions of a waiting run to a viewer, one line each. A viewer who sees only some of its
    questions does not see what follows for the run, and cannot resume it."""
    lines = []
    for question in run.records.list_overdue() if run.waiting else ():
        match run.config.on_expiry:
            case _ if run.restricted:
                now = ""
            case "wait":
                now = " It can still be answered."
            case "assume":
                now = f" {_explain_assumption(question)} Continue with: upcall resume {run.id}"
            case how:
                now = f" The run ends ({how}) with: upcall expire"
        lines.append(f"The time of question {question.id} is over. {explain_expiry(question)}{now}")
    return lines


@dataclass(frozen=True)
class LateAnswer:
    """An answer that came too late: its refusal, and the run to be stored before that if it changes."""

    refusal: QuestionExpired | RunNotWaiting
    run: Run | None = None


def refuse_late(run: Run, answers: Sequence[Answer], seen: Run, now: datetime) -> LateAnswer | None:
    """Refuse answers to expired questions; if the run ends with its question, it ends now.

    `seen` is the run as the answerer sees it: no other question of it is named to them.
    """
    if not is_due(run, now):
        return None
    given, how = {answer.question_id for answer in answers}, run.config.on_expiry
    # While the team works, the run ends only at its next pause, so that the others' work is kept.
    ends = run.waiting and how in ("cancel", "fail")
    shown = {question.id for question in seen.open_questions}
    late = next((each for each in run.records.list_overdue(now) if each.id in (shown if ends else given)), None)
    if ends:
        ended = end_run(run, now)
        if late is None:
            return LateAnswer(RunNotWaiting(f"Run {run.id} is {ended.status} and waits for no answer."), ended)
        return LateAnswer(QuestionExpired(f"{_explain_refusal(late)} Run {run.id} is {ended.status}."), ended)
    if late is None:
        return None
    record, noted = run.records[late.id], None
    if run.waiting and not record.noted_overdue:
        noted = run.model_copy(
            update={"records": run.records.replace([record.model_copy(update={"noted_overdue": True})])}
        )
    instead = _explain_assumption(late) if how == "assume" else f"The run ends ({how}) as soon as its team pauses."
    resumable = seen is run and not run.under_way  # A user who sees only some questions cannot resume it.
    hint = f" Continue with: upcall resume {run.id}" if resumable else ""
    return LateAnswer(QuestionExpired(f"{_explain_refusal(late)} {instead}{hint}"), noted)


def _explain_refusal(question: Question) -> str:
    return f"Question {question.id} expired; the answer is refused. {explain_expiry(question)}"


def _explain_assumption(question: Question) -> str:
    answer = answer_by_default(question, "")
    return f"What is assumed instead: {answer.text}." if answer.outcome is Outcome.ASSUMED else "Nothing is assumed."


def end_run(run: Run, now: datetime | None) -> Run:
    """Return the run as it ends because nobody answered in time: cancelled, or expired with an error that names the
    question."""
    lapsed = {question.id: question for question in run.records.list_overdue(now)}
    failed = run.config.on_expiry == "fail"
    answers = [
        Answer(
            question_id=question.id,
            outcome=Outcome.EXPIRED if failed and question.id in lapsed else Outcome.CANCELLED,
            by=AnsweredBy.POLICY,
            reason=explain_expiry(question) if question.id in lapsed else None,
        )
        for question in run.open_questions
    ]
    if not failed:
        return run.record_answers(answers).apply(RunEvent.CANCELLED, error=None)
    first = next(iter(lapsed.values()))
    error = (
        f"Question {first.id} of {' > '.join(first.path)} expired: {explain_expiry(first)} The run is over; start it "
        "again, with more time (questions.expires_after) or another questions.on_expiry."
    )
    return run.record_answers(answers).apply(RunEvent.EXPIRED, error=error)


class DueNotice(NamedTuple):
    """What there is to report of a question: it is `REMINDED` of, or `OVERDUE`."""

    question: Question
    what: str


def note_due(run: Run, now: datetime) -> tuple[Run, list[DueNotice]]:
    """Return the run with what must be recorded now, and what there is to report: which questions are overdue, which
    reminders are due. Each look sends at most one reminder: missed ones are not made up for."""
    every = run.config.remind_after
    changed: list[QuestionRecord] = []
    notices: list[DueNotice] = []
    for record in run.records.open:
        question, after = record.question, record
        if record.is_overdue(now) and not record.noted_overdue:
            after = after.model_copy(update={"noted_overdue": True})
            notices.append(DueNotice(question, OVERDUE))
        due = int((now - question.asked_at).total_seconds() // every) if every and record.is_shown else 0
        if due > record.reminders:
            after = after.model_copy(update={"reminders": due})
            notices.append(DueNotice(question, REMINDED))
        changed += [after] if after is not record else []
    return run.model_copy(update={"records": run.records.replace(changed)}), notices


def is_due(run: Run, now: datetime | None = None) -> bool:
    """Return whether a question has expired and that has consequences."""
    return run.config.on_expiry != "wait" and bool(run.records.list_overdue(now))
