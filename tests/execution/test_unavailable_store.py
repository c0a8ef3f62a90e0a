"""A store that cannot be reached for a moment, at whichever call: the run goes on later, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fleet import make_team
from worker_process import notes

from upcall import Run, RunStatus, Settings, Upcall
from upcall.errors import RunConflict, StoreUnavailable
from upcall.storage.connection import Work
from upcall.storage.databases import Database

T = TypeVar("T")
CALLS = 34
"""How often the clerk's run uses its store, at least."""


class UnreliableDatabase:
    """A database whose call of some number fails: before it is made, or so that its success remains unknown."""

    def __init__(self, database: Database, fails: int, is_made: bool) -> None:
        self._database, self._fails, self._is_made = database, fails, is_made
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def read(self, work: Work[T], *, small: bool = False) -> T:
        """See `Database`."""
        return await self._call(lambda: self._database.read(work, small=small))

    async def write(self, work: Work[T], *, small: bool = False) -> T:
        """See `Database`."""
        return await self._call(lambda: self._database.write(work, small=small))

    async def _call(self, make: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        fails = self.calls == self._fails
        if not fails or self._is_made:
            done = await make()
        if fails:
            raise StoreUnavailable("No space left on device")
        return done


async def insist(act: Callable[[], Awaitable[object]]) -> None:
    """Try again as a worker does, each time in a task of its own, as a job has."""
    while True:
        with suppress(StoreUnavailable, RunConflict):
            await asyncio.create_task(_await(act))
            return
        await asyncio.sleep(0.01)


async def _await(act: Callable[[], Awaitable[object]]) -> None:
    await act()


async def finish(app: Upcall, run: Run) -> Run:
    """Do what a worker and its user do until the run ends."""
    while run.status is RunStatus.QUEUED or run.working or run.waiting:

        async def go_on() -> None:
            nonlocal run
            stored = await app.store.load(run.id)
            run = stored.run
            if run.waiting:
                assert not run.unknown_outcomes
                await app.answer(run.id, "Express", wait=False)
            else:
                await app.driver.advance_queued(run.id, stored.version)
            run = await app.get(run.id)

        await insist(go_on)
    return run


@pytest.mark.parametrize("is_made", [False, True], ids=["not_made", "made"])
async def test_no_call_of_the_store_that_fails_ends_a_run(is_made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for fails in range(1, CALLS + 1):
        app = Upcall(store="runs.db", team=make_team, settings=Settings())
        monkeypatch.setattr(app.driver, "_work_here", lambda *given: None)
        run = await app.submit("Build it")
        app.store.database = database = UnreliableDatabase(app.store.database, fails, is_made)
        ended = await finish(app, run)
        assert (fails, ended.status, ended.error) == (fails, RunStatus.COMPLETED, None)
        assert database.calls >= fails
        assert notes().split()[1::4] == ["first", "second"]
        Path("notes.txt").unlink()
