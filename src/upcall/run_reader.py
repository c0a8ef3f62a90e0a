"""Read stored runs: this needs only a store and a user, neither AutoGen nor a team."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from upcall.errors import require_type
from upcall.execution.access import RunAccess, require_run_id
from upcall.extensions import load_all
from upcall.policy.authorization import Authorization, OpenQuestions
from upcall.runs.run import Run
from upcall.runs.run_filter import EVERY_RUN, RunFilter
from upcall.runs.run_page import RunPage
from upcall.storage.store import Listener, RunStore
from upcall.subjects.access import UserAccess
from upcall.subjects.external import ExternalQuestions
from upcall.subjects.holds import RunHolds
from upcall.subjects.log import RunLog, check_limit
from upcall.subjects.subject import explain_missing

if TYPE_CHECKING:
    from upcall.settings import Settings


class RunReader:
    """The runs of a store, as far as a caller may see them.

    Attributes:
        log: what happened in runs, and what was written.
        access: who may do what.
        holds: which runs an operator keeps from being worked on.
        external: questions of programs outside, and their answers.

    Args:
        settings: name the user if a call does not.
        store: the store of the runs; by default that of the settings.
    """

    def __init__(self, settings: Settings, store: str | Path | RunStore | None = None) -> None:
        self.settings = settings
        if not isinstance(store, RunStore):
            store = RunStore(
                store or settings.store.path,
                lease_seconds=settings.store.lease_seconds,
                max_state_bytes=settings.store.max_state_bytes,
                synchronous=settings.store.synchronous,
                listeners=lambda: _make_listeners(settings),
            )
        self.store = store
        self.log = RunLog(self._access_of)
        self.access = UserAccess(self._access_of)
        self.holds = RunHolds(self._access_of)
        self.external = ExternalQuestions(self._access_of, settings)

    async def get(self, run_id: str, *, user: str | None = None) -> Run:
        """Return the run as it is stored. `run_id` may be the first characters of its id, four or more. For users with
        only assigned questions in it, it contains these and nothing else of what was written.

        Raises:
            UnknownRun: there is no such run.
        """
        access = self._access_of(user)
        run = access.rights.restrict(await access.find(run_id, "show"))
        return run.model_copy(update={"interrupted": bool(await self.store.leases.find_interrupted([run]))})

    async def list(
        self,
        user: str | None = None,
        *,
        limit: int | None = None,
        before: str | None = None,
        only: RunFilter = EVERY_RUN,
    ) -> RunPage:
        """Return all runs, or those that a user sees, newest first; of these those that a filter lets through. With a
        limit, return a page after the run `before`; the page names where the next one starts, in ``next``. It may have
        fewer runs than the limit all the same: with a filter a page looks at some thousand runs at most, and the trials
        of other answers (`Upcall.worth`) are left out. Damaged runs are listed in ``damaged``.

        Raises:
            UnknownRun: there is no run `before`.
        """
        access = self._access_of(user)
        check_limit(limit)
        if before is not None:
            require_run_id(before)
        page = access.rights.all_seen(
            await self.store.list(access.rights.viewer, only=only, limit=limit, before=before)
        )
        left = await self.store.leases.find_interrupted(page)
        page[:] = [run.model_copy(update={"interrupted": True}) if run.id in left else run for run in page]
        return page

    async def inbox(
        self, user: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> OpenQuestions:
        """Return the open questions of all runs that a user may answer, oldest first; with a limit, those of this many
        runs, after what another page names as its ``next``. Damaged runs are listed in ``damaged``.

        Raises:
            CallerError: no page names this place.
        """
        access = self._access_of(user)
        check_limit(limit)
        if after is not None:
            require_type("after", after, str, "what the page before names as its next")
        return access.rights.inbox(await self.store.list_open(access.rights.viewer, limit=limit, after=after))

    def _access_of(self, user: str | None) -> RunAccess:
        return RunAccess(self.store, Authorization.of(user, self.settings.users))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say where a name is that is not here."""
            raise AttributeError(explain_missing(self, name), name=name, obj=self)


def _make_listeners(settings: Settings) -> Sequence[Listener]:
    made: Sequence[Listener | None] = [make(settings) for make in load_all("listeners")]
    return [each for each in made if each is not None]
