"""How long questions wait, what happens then, and when their human is reminded.

No process has to be running when a deadline passes, so the next one that looks acts on it: `Upcall.expire`, an answer,
a resume. Deadlines are stored in UTC. What was once recorded - an answer, an end, that a question is overdue - stays
valid whatever the clock says later. Silence approves nothing: `upcall.policy.resolver.answer_by_default` decides what
it results in. A question about a call in doubt never expires: only the human can know.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from upcall.autogen.messages import PATH, Event, answered_event, asked_event
from upcall.errors import (
    AlreadyAnswered,
    ConfigurationError,
    QuestionExpired,
    RunConflict,
    RunNotWaiting,
    SchemaMismatch,
    TeamMismatch,
    UnknownRun,
)
from upcall.policy.resolver import answer_by_default
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question, format_time
from upcall.questions.record import QuestionRecord
from upcall.runs.run import Run
from upcall.runs.states import RunEvent, RunStatus
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun

EXPIRY = "upcall.expiry"
"""The key in the metadata of a deadline event: `REMINDED`, `OVERDUE` or `EXPIRED`."""

REMINDED, OVERDUE, EXPIRED = "reminded", "overdue", "expired"

ResumeWith: TypeAlias = Callable[[StoredRun, Sequence[Answer], Sequence[Event]], AsyncGenerator[Event | Run, None]]
"""Continues a run with answers; the events come as soon as the answers are stored."""

_log = logging.getLogger("upcall")


# -- what a run contains -----------------------------------------------------------------------------------------------


def attach_deadline(event: Event, question: Question) -> Event:
    """Return the event that asks a question, with the deadline the question got when it was published."""
    if question.expires_at is None:
        return event
    return event.model_copy(update={"metadata": event.metadata | asked_event(question, source=event.source).metadata})


def explain_expiry(question: Question) -> str:
    """Return the reason why a question expired."""
    return (
        f"Nobody answered by {format_time(question.expires_at)}." if question.expires_at else "Nobody answered in time."
    )


def expired_answers(run: Run, now: datetime | None = None) -> list[Answer]:
    """Return the outcomes of the questions that have expired; nothing if they wait on, or if the run ends with them."""
    if run.config.on_expiry != "assume":
        return []
    return [answer_by_default(question, explain_expiry(question)) for question in run.list_overdue(now)]


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
    for question in run.list_overdue() if run.waiting else ():
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
    late = next((each for each in run.list_overdue(now) if each.id in (shown if ends else given)), None)
    if ends:
        ended = _end_run(run, now)
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
    go_on = f" Continue with: upcall resume {run.id}" if resumable else ""
    return LateAnswer(QuestionExpired(f"{_explain_refusal(late)} {instead}{go_on}"), noted)


def _explain_refusal(question: Question) -> str:
    return f"Question {question.id} expired; the answer is refused. {explain_expiry(question)}"


def _explain_assumption(question: Question) -> str:
    answer = answer_by_default(question, "")
    return f"What is assumed instead: {answer.text}." if answer.outcome is Outcome.ASSUMED else "Nothing is assumed."


def _end_run(run: Run, now: datetime | None) -> Run:
    """Return the run as it ends because nobody answered in time: cancelled, or expired with an error that names the
    question."""
    lapsed = {question.id: question for question in run.list_overdue(now)}
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
        "again, with more time (expires_after) or another on_expiry."
    )
    return run.record_answers(answers).apply(RunEvent.EXPIRED, error=error)


def note_due(run: Run, now: datetime) -> tuple[Run, list[Event]]:
    """Return the run with what must be recorded now - which questions are overdue, and which reminders are due - and
    the events that report it. Each look sends at most one reminder: missed ones are not made up for."""
    every = run.config.remind_after
    changed: list[QuestionRecord] = []
    events: list[Event] = []
    for record in run.records.open:
        question, after = record.question, record
        if record.is_overdue(now) and not record.noted_overdue:
            after = after.model_copy(update={"noted_overdue": True})
            events.append(_mark(asked_event(question, source=question.asker), question, OVERDUE))
        due = int((now - question.asked_at).total_seconds() // every) if every and record.is_shown else 0
        if due > record.reminders:
            after = after.model_copy(update={"reminders": due})
            events.append(_mark(asked_event(question, source=question.asker), question, REMINDED))
        changed += [after] if after is not record else []
    return run.model_copy(update={"records": run.records.replace(changed)}), events


def _mark(event: Event, question: Question, what: str) -> Event:
    return event.model_copy(update={"metadata": event.metadata | {EXPIRY: what, PATH: "/".join(question.path)}})


def _expired_events(run: Run, answers: Iterable[Answer]) -> list[Event]:
    asked = {question.id: question for question in run.open_questions}
    pairs = [(asked[answer.question_id], answer) for answer in answers if answer.reason]
    return [_mark(answered_event(each, answer, source=each.asker), each, EXPIRED) for each, answer in pairs]


# -- acting on it ------------------------------------------------------------------------------------------------------


class DeadlineWatcher:
    """Checks stored runs, and acts if a question has expired or a reminder is due.

    Every action is a write conditional on the version it read, so if two processes look at once, only one acts.
    """

    def __init__(self, store: RunStore, go_on: ResumeWith) -> None:
        self._store = store
        self._resume_with = go_on

    async def look_at_all(self, now: datetime) -> AsyncGenerator[Event | Run, None]:
        """Check every run that has something due. A damaged one does not keep the others from being checked."""
        for run_id in await self._store.list_due(now):
            try:
                async with aclosing(self.look(run_id, now)) as items:
                    async for item in items:
                        yield item
            except (SchemaMismatch, UnknownRun) as error:
                _log.warning("Run %s has something due and cannot be read: %s", run_id, error)

    async def look(self, run_id: str, now: datetime) -> AsyncGenerator[Event | Run, None]:
        """Check one run. Yields the events of what was done, those of the run if it continues, and the `Run` last if it
        expired."""
        with suppress(RunConflict):  # Somebody else acts on it, or is just answering it.
            stored = await self._store.load(run_id)
            if stored.run.under_way:
                async for event in self._leave_answers(stored.run, now):
                    yield event
            elif stored.run.waiting and is_due(stored.run, now):
                try:
                    async with aclosing(self.act(stored, now)) as items:
                        async for item in items:
                            yield item
                except (ConfigurationError, TeamMismatch) as error:
                    async for event in self._cannot(stored, now, error):
                        yield event
            elif stored.run.waiting:
                async for event in self._note(stored, now):
                    yield event

    async def act(self, stored: StoredRun, now: datetime | None = None) -> AsyncGenerator[Event | Run, None]:
        """Act on a waiting run with expired questions.

        Raises:
            RunConflict: another process acted on it.
            TeamMismatch, ConfigurationError: the run cannot continue here; nothing was changed.
        """
        run = stored.run
        if answers := expired_answers(run, now):
            async with aclosing(self._resume_with(stored, answers, _expired_events(run, answers))) as items:
                async for item in items:
                    yield item
            return
        ended = (await self._store.save(stored, _end_run(run, now))).run
        for event in _expired_events(run, ended.answers[len(run.answers) :]):
            yield event
        yield ended

    async def _note(self, stored: StoredRun, now: datetime) -> AsyncGenerator[Event, None]:
        noted, events = note_due(stored.run, now)
        if events:
            await self._store.save(stored, noted)
        for event in events:
            yield event

    async def _cannot(self, stored: StoredRun, now: datetime, error: Exception) -> AsyncGenerator[Event, None]:
        """Leave a run that cannot continue here unchanged; this is reported once, not at every look."""
        if any(each.is_overdue(now) and not each.noted_overdue for each in stored.run.records.open):
            _log.warning("Run %s has expired questions and cannot continue here: %s", stored.run.id, error)
        async for event in self._note(stored, now):
            yield event

    async def _leave_answers(self, run: Run, now: datetime) -> AsyncGenerator[Event, None]:
        """Queue the outcomes of expired questions for a team at work, like an answer of the human. A question that ends
        its run does so when the team pauses."""
        there = {answer.question_id for answer in await self._store.queue.read(run.id)}
        for answer in expired_answers(run, now):
            with suppress(AlreadyAnswered):
                if answer.question_id not in there and await self._store.queue.add(run.id, [answer]):
                    for event in _expired_events(run, [answer]):
                        yield event


def is_due(run: Run, now: datetime | None = None) -> bool:
    """Return whether a question has expired and that has consequences."""
    return run.config.on_expiry != "wait" and bool(run.list_overdue(now))
