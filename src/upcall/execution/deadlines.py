"""Look at stored runs from time to time, and act on expired questions and due reminders; `upcall.policy.deadlines` says
what is to be done."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from typing import TypeAlias

from upcall.autogen.messages import Event
from upcall.errors import (
    AlreadyAnswered,
    ConfigurationError,
    RunConflict,
    SchemaMismatch,
    TeamMismatch,
    UnknownRun,
)
from upcall.execution.deadline_events import due_event, expired_events
from upcall.policy.deadlines import end_run, expired_answers, is_due, note_due
from upcall.questions.answer import Answer
from upcall.runs.run import Run
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun

ResumeWith: TypeAlias = Callable[[StoredRun, Sequence[Answer], Sequence[Event]], AsyncGenerator[Event | Run, None]]
"""Continues a run with answers; the events come as soon as the answers are stored."""

_log = logging.getLogger("upcall")


class DeadlineWatcher:
    """Checks stored runs, and acts if a question has expired or a reminder is due.

    Every action is a write conditional on the version it read, so if two processes look at once, only one acts.
    """

    def __init__(self, store: RunStore, resume: ResumeWith) -> None:
        self._store = store
        self._resume_with = resume

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
            if stored.run.replacing:
                return
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
            async with aclosing(self._resume_with(stored, answers, expired_events(run, answers))) as items:
                async for item in items:
                    yield item
            return
        ended = (await self._store.save(stored, end_run(run, now))).run
        for event in expired_events(run, ended.answers[len(run.answers) :]):
            yield event
        yield ended

    async def _note(self, stored: StoredRun, now: datetime) -> AsyncGenerator[Event, None]:
        noted, notices = note_due(stored.run, now)
        if notices:
            await self._store.save(stored, noted)
        for notice in notices:
            yield due_event(notice)

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
                    for event in expired_events(run, [answer]):
                        yield event
