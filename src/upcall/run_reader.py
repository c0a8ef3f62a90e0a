"""Read stored runs: this needs only a store and a user, neither AutoGen nor a team."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from upcall.errors import CallerError, require_type
from upcall.notifications.announcement import make_announce
from upcall.policy.authorization import Authorization, OpenQuestions, require_run_id
from upcall.questions.question import Question
from upcall.runs.call_timings import WorkPeriod
from upcall.runs.events import LogEntry
from upcall.runs.run import Run
from upcall.runs.transcript import Transcript
from upcall.storage.run_lists import RunPage
from upcall.storage.store import RunStore
from upcall.storage.transcripts import load_transcript

if TYPE_CHECKING:
    from upcall.settings import Settings

MOST = 2**63 - 1
"""The largest number that a database can store."""


class RunReader:
    """The runs of a store, as far as a caller may see them.

    Args:
        settings: name the user if a call does not.
        store: the store of the runs; by default that of the settings.
    """

    def __init__(self, settings: Settings, store: str | Path | RunStore | None = None) -> None:
        self.settings = settings
        if not isinstance(store, RunStore):
            store = RunStore(
                store or settings.store,
                lease_seconds=settings.lease_seconds,
                max_state_bytes=settings.max_state_bytes,
                synchronous=settings.synchronous,
                announce=make_announce(settings.notifications),
            )
        self.store = store

    async def get(self, run_id: str, *, user: str | None = None) -> Run:
        """Return the run as it is stored. `run_id` may be the first characters of its id, four or more. For users with
        only assigned questions in it, it contains these and nothing else of what was said.

        Raises:
            UnknownRun: there is no such run.
        """
        access = self._access(user)
        run = access.restrict(await access.find(self.store, run_id, "show"))
        return run.model_copy(update={"interrupted": bool(await self.store.find_interrupted([run]))})

    async def transcript(self, run: Run | str, *, user: str | None = None) -> Transcript:
        """Return what the agents of a run said and did, oldest first; while they work, up to a second or so ago.

        With ``transcripts: false`` it is empty.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        run_id = run.id if isinstance(run, Run) else run
        found = await self._access(user).find_whole(self.store, run_id, "show")
        return Transcript.of(found, await load_transcript(self.store, found.id))

    async def call_timings(self, run_id: str, *, user: str | None = None) -> Sequence[WorkPeriod]:
        """Return when teams were at work on a run, and the model and tool calls they made, oldest first, as drawn by
        `upcall.ui.diagrams.timeline`. Work in progress when a process was killed is missing.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        run = await self._access(user).find_whole(self.store, run_id, "show")
        return await self.store.call_timings(run.id)

    async def list(self, user: str | None = None, *, limit: int | None = None, before: str | None = None) -> RunPage:
        """Return all runs, or those that a user sees, newest first. With a limit, return a page after the run `before`;
        the page names where the next one starts. Damaged runs are listed in ``damaged``.

        Raises:
            UnknownRun: there is no run `before`.
        """
        access = self._access(user)
        _check_limit(limit)
        if before is not None:
            require_run_id(before)
        page = access.all_seen(await self.store.list(access.viewer, limit=limit, before=before))
        left = await self.store.find_interrupted(page)
        page[:] = [run.model_copy(update={"interrupted": True}) if run.id in left else run for run in page]
        return page

    async def inbox(self, user: str | None = None, *, limit: int | None = None) -> OpenQuestions:
        """Return the open questions of all runs that a user may answer, oldest first; with a limit, those of this many
        runs. Damaged runs are listed in ``damaged``."""
        access = self._access(user)
        _check_limit(limit)
        return access.inbox(await self.store.list_open(access.viewer, limit=limit))

    def answerable(self, run: Run, user: str | None = None) -> Sequence[Question]:
        """Return the questions that a run shows and a user may answer."""
        require_run(run)
        return self._access(user).answerable(run)

    def owns(self, run: Run, user: str | None = None) -> bool:
        """Return whether a user may continue, cancel, undo, fork, follow and assign a run, besides reading it."""
        require_run(run)
        return self._access(user).owns(run)

    def is_unlimited(self, user: str | None = None) -> bool:
        """Return whether a user sees everything: an admin, or no user at all."""
        return self._access(user).unlimited

    async def audit(
        self, run_id: str | None = None, *, user: str | None = None, after: int = 0, limit: int | None = None
    ) -> Sequence[LogEntry]:
        """Return who did what, oldest first, after the entry with the id `after`, at most `limit` entries: who
        started, answered, resumed, cancelled, assigned, and who was refused. Of one run, or of all the user's runs.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        _check_after(after)
        _check_limit(limit)
        return await self._access(user).audit(self.store, run_id, after, limit)

    async def log(self, run_id: str, *, user: str | None = None, after: int = 0) -> Sequence[LogEntry]:
        """Return the log of a run, oldest first, after the entry with the id `after`.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        _check_after(after)
        run = await self._access(user).find_whole(self.store, run_id, "log")
        return await self.store.log(run.id, after)

    async def visible_log(self, run_id: str, *, user: str | None = None) -> Sequence[LogEntry]:
        """Return the same as `log`, but nothing for users who see only questions of the run.

        Raises:
            UnknownRun: there is no such run.
        """
        access = self._access(user)
        run = await access.find(self.store, run_id, "show")
        return await self.store.log(run.id) if access.sees_whole(run) else ()

    def _access(self, user: str | None) -> Authorization:
        return Authorization.of(user, self.settings)


def require_run(run: object) -> None:
    """Refuse a value that is not a run id.

    Raises:
        ConfigurationError: it is not one.
    """
    require_type("run", run, Run, "a run, as `await app.get(run_id)` gives it")


def _check_limit(limit: object) -> None:
    if limit is not None and not (isinstance(limit, int) and 0 < limit <= MOST):
        raise CallerError(f"limit = {limit!r} is wrong: it must be a whole number, 1 or more.")


def _check_after(after: object) -> None:
    if not (isinstance(after, int) and 0 <= after <= MOST):
        raise CallerError(f"after = {after!r} is wrong: it must be the id of an entry of the log, or 0.")
