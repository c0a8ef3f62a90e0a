"""`app.changes`: what a run did to files, and how to undo it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from upcall.errors import CallerError, ConfigurationError, RunBeingReplaced, RunBusy
from upcall.extensions import find_added, load_added
from upcall.runs.file_changes import Change, ChangeLog
from upcall.storage.change_log import StoredChanges
from upcall.subjects.subject import Subject

UndoChanges: TypeAlias = Callable[[ChangeLog, str, str | None], Awaitable[Sequence[Change]]]
"""Undoes a run's last change, or the one of an id and all later ones, and returns the changes made to do so."""


@dataclass(frozen=True)
class RunChanges(Subject):
    """The changes of runs to files."""

    async def list(self, run_id: str, *, user: str | None = None) -> Sequence[Change]:
        """Return a run's changes to files, oldest first, each with its diff, including those that undid others.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        access = self.access_of(user)
        stored = await access.load_whole(run_id, "changes")
        return await StoredChanges(access.store, stored.run.id).list_changes()

    async def undo(self, run_id: str, change_id: str | None = None, *, user: str | None = None) -> Sequence[Change]:
        """Undo a run's last change to files, or the one with this id and all later ones, all of
        them or none. Return the changes made to do so, which are also in the run's log.

        Raises:
            CallerError: there is no such change, somebody else has changed a file since, or a branch took the run's
                place; nothing was changed.
            RunBeingReplaced: a branch is about to take its place.
            RunBusy: a team is at work on the run.
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
            ConfigurationError: what undoes changes is not installed.
        """
        access = self.access_of(user)
        stored = await access.load_owned(run_id, "undo")
        if (branch := stored.run.replaced_by) is not None:
            raise CallerError(f"Run {stored.run.id} was continued as {branch}, with its files. Undo them there.")
        if stored.run.replacing:
            raise RunBeingReplaced(stored.run.id, stored.run.replacing)
        if stored.run.working and (worker := await access.store.leases.find_worker(stored)) is not None:
            raise RunBusy(stored.run.id, worker, access.store.leases.seconds)
        if "undo" not in find_added("changes"):
            raise ConfigurationError("Nothing that can undo changes to files is installed here. Install it.")
        undo: UndoChanges = load_added("changes", "undo")
        return await undo(StoredChanges(access.store, stored.run.id, access.user), stored.run.id, change_id)
