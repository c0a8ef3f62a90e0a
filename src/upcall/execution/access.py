"""A user at the store: find and load the runs that their rights allow; refuse the others, and record that."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from upcall.errors import AlreadyAnswered, CallerError, NotAllowed, StoreUnavailable, UnknownRun
from upcall.policy.authorization import Authorization
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.events import (
    AccessRefused,
    ChangesUndone,
    HoldPlaced,
    HoldReleased,
    LogEntry,
    LoggedIn,
    LoggedOut,
    MessageSent,
    QuestionAnswered,
    QuestionAssigned,
    RunCancelled,
    RunForked,
    RunResumed,
    RunStarted,
    StopRequested,
    TokenCreated,
    TokenRevoked,
)
from upcall.runs.run import Run
from upcall.storage.connection import Work
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun

if TYPE_CHECKING:
    from upcall.autogen.messages import Event

AUDITED = (
    *(RunStarted, QuestionAnswered, RunResumed, RunCancelled, QuestionAssigned, RunForked, ChangesUndone),
    *(MessageSent, StopRequested),
    *(AccessRefused, TokenCreated, TokenRevoked, LoggedIn, LoggedOut, HoldPlaced, HoldReleased),
)
"""The events that record who did what."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunAccess:
    """The runs of a store, as far as one user's rights go. `action` names in the log what a run was wanted for."""

    store: RunStore
    rights: Authorization

    @property
    def user(self) -> str | None:
        """Who acts; None is the operator."""
        return self.rights.user

    async def load(self, run_id: str, action: str) -> StoredRun:
        """Return the run with this id, or the only one visible to the user whose id starts with it.

        Raises:
            UnknownRun: there is none, or several. A run that the user does not see counts as none.
        """
        return await self.store.load(await self._find_id(run_id, action))

    async def find(self, run_id: str, action: str) -> Run:
        """Load the run alone, as `load` does, without the state a team needs to continue."""
        return await self.store.load_run(await self._find_id(run_id, action))

    async def load_owned(self, run_id: str, action: str) -> StoredRun:
        """Load a run as `load` does, for actions that only the owner may take.

        Raises:
            NotAllowed: it is somebody else's, and the user may read it, or answer some of its questions.
        """
        stored = await self.load(run_id, action)
        if not self.rights.owns(stored.run):
            await self._refuse(stored.run, action)
        return stored

    async def load_whole(self, run_id: str, action: str) -> StoredRun:
        """Load a run as `load` does, to read any of it.

        Raises:
            NotAllowed: the user sees only some of its questions.
        """
        stored = await self.load(run_id, action)
        if not self.rights.sees_whole(stored.run):
            await self._refuse(stored.run, action)
        return stored

    async def find_whole(self, run_id: str, action: str) -> Run:
        """Load the run alone, as `load_whole` does."""
        run = await self.find(run_id, action)
        if not self.rights.sees_whole(run):
            await self._refuse(run, action)
        return run

    async def require_answerable(self, run: Run, question: Question) -> None:
        """Refuse another answer to a question that is not the user's to answer, for example in a fork.

        Raises:
            NotAllowed: it is assigned to somebody else.
        """
        if not self.rights.may_answer(run, question):
            await self.record_refusal(run.id, "fork")
            raise NotAllowed(
                f"Question {question.id} is assigned to {question.assignee}, so it is theirs to answer, in a fork too. "
                "An admin may fork there."
            )

    async def enqueue(self, run: Run, answers: Sequence[Answer], *, also: Work[object] | None = None) -> bool:
        """Queue answers for the team at work on a run; see `QueuedAnswers.add`.

        That write checks once more who may answer: since the answer was accepted, somebody else may have answered.

        Raises:
            AlreadyAnswered: somebody else answered one of the questions.
        """
        owns = self.rights.owns(run)
        try:
            return await self.store.queue.add(run.id, answers, owned=not owns, also=also)
        except AlreadyAnswered:
            if not owns:
                await self.record_refusal(run.id, "answer")
            raise

    async def filter_items(
        self, run: Run, items: AsyncGenerator[Event | Run, None]
    ) -> AsyncGenerator[Event | Run, None]:
        """Yield a stream about a run as the user may see it: events if it is theirs, and the run as they see it."""
        whole = self.rights.sees_whole(run)
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Run):
                    yield item if whole else self.rights.restrict(item)
                elif whole:
                    yield item

    async def audit(self, run_id: str | None, after: int, limit: int | None) -> Sequence[LogEntry]:
        """List who did what: in one run, or in all of the user's runs, with what the user did elsewhere.

        Refusals are shown to the run's owner and to admins, not to the refused user, to whom they would reveal that the
        run exists.
        """
        if run_id is not None:
            stored = await self.load_owned(run_id, "audit")
            return await self.store.events.read(stored.run.id, after, types=AUDITED, limit=limit)
        user = None if self.rights.unlimited else self.user
        return await self.store.events.read_all(after, types=AUDITED, user=user, limit=limit)

    async def record_refusal(self, run_id: str, action: str) -> None:
        """Record a refusal: who, what for, which run (none if it does not exist), but nothing of what was written."""
        try:
            await self.store.events.append(run_id, AccessRefused(user=self.user, action=action))
        except StoreUnavailable:  # A read-only store refuses too, in the same words.
            _log.warning("A refusal could not be recorded: the store cannot be written.")

    async def _refuse(self, run: Run, action: str) -> NoReturn:
        await self.record_refusal(run.id, action)
        raise self.rights.refuse_theirs(run)

    async def _find_id(self, run_id: str, action: str) -> str:
        require_run_id(run_id)
        if self.user is None:
            return run_id
        found = await self.store.find(run_id, self.rights.viewer)
        if len(found) == 1:
            return found[0]
        # The log names the run that was tried; to the caller, it looks the same as one that does not exist.
        hidden = [] if found else await self.store.find(run_id)
        await self.record_refusal(hidden[0] if len(hidden) == 1 else "", action)
        reason = ("several runs start with it",) if found else ()
        raise UnknownRun(run_id, *reason)


AccessOf: TypeAlias = Callable[[str | None], RunAccess]
"""Returns the access of a user, or of the settings' user if none is named."""


def require_run_id(run_id: object) -> None:
    """Refuse a value that cannot name a run.

    Raises:
        CallerError: it is not a string.
    """
    if not isinstance(run_id, str):
        raise CallerError(f"A run is named by its id, a string, not by {type(run_id).__name__}. Give run.id.")
