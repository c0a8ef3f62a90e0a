"""A store that cannot be reached for a moment, at whichever call: the run continues later, and nothing is done
twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from fleet import make_team
from shapes import PLACES, SCENARIOS, SHAPES, World, note, script
from worker_process import notes

from upcall import PausableAgent, Run, RunStatus, Settings, Upcall
from upcall.errors import RunConflict, StoreUnavailable
from upcall.storage.connection import Work
from upcall.storage.databases import Database
from upcall.storage.store import RunStore
from upcall.testing import Call, ScriptedModelClient

T = TypeVar("T")


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
            raise StoreUnavailable("No space left on device", self._database.name)
        return done


def use_database(store: RunStore, database: Database) -> None:
    """Give a store, and each of its parts, another database."""
    for part in vars(store).values():
        if hasattr(part, "_database"):
            part._database = database
    store.database = database


async def insist(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Try again as a worker does, each time in a task of its own, as a job has."""
    while True:
        with suppress(StoreUnavailable, RunConflict):
            await asyncio.create_task(act())
            return
        await asyncio.sleep(0.01)


async def finish(app: Upcall, run: Run, answers: Mapping[str, str]) -> Run:
    """Do what a worker and its user do until the run ends."""

    async def resume() -> None:
        nonlocal run
        stored = await app.store.load(run.id)
        run = stored.run
        if run.waiting:
            assert not run.records.unknown_outcomes
            given = {each.id: answers[each.question] for each in run.questions}
            await app.answer(run.id, given, wait=False)
        else:
            await app.driver.advance_queued(run.id, stored.version)
        run = await app.get(run.id)

    while run.status is RunStatus.QUEUED or run.working or run.waiting:
        await insist(resume)
    return run


Play = Callable[[int], Awaitable[int]]
"""Plays one run whose store fails at the call of some number, and returns how many calls there were."""


async def play_with(app: Upcall, fails: int, is_made: bool, answers: Mapping[str, str]) -> tuple[Run, int]:
    """Play one run, left to a worker; return its end, and the number of calls."""
    app.driver.work_here = lambda *given: None  # type: ignore[method-assign]
    run = await app.submit("Build me a user authentication system")
    database = UnreliableDatabase(app.store.database, fails, is_made)
    use_database(app.store, database)
    ended = await finish(app, run, answers)
    assert (fails, ended.error, ended.status) == (fails, None, RunStatus.COMPLETED)
    return ended, database.calls


async def fail_at_each_call(play: Play, more_than: int = 20) -> None:
    """Play as many runs as one has calls of its store, each with another that fails; check how many that are."""
    fails, calls = 0, 1
    while fails < calls:
        fails += 1
        calls = await play(fails)
    assert calls > more_than


both = pytest.mark.parametrize("is_made", [False, True], ids=["not_made", "made"])


@both
@pytest.mark.slow
async def test_store_call_that_fails_ends_no_run(is_made: bool) -> None:
    async def play(fails: int) -> int:
        app = Upcall(store="runs.db", team=make_team, settings=Settings())
        answers = {"Which framework?": "Express", "Which database?": "SQLite"}
        _, calls = await play_with(app, fails, is_made, answers)
        assert notes().split()[1::4] == ["first", "second"]
        Path("notes.txt").unlink()
        return calls

    await fail_at_each_call(play)


@both
@pytest.mark.parametrize("shape", [pytest.param(each, marks=pytest.mark.slow) for each in SHAPES])
async def test_nor_in_a_team_of_any_shape(shape: str, is_made: bool) -> None:
    team, place, scenario = SHAPES[shape], PLACES["as a tool"], SCENARIOS["two at once"]

    async def play(fails: int) -> int:
        with script(team.others, place.others, scenario.wording) as client:  # It has no reply to a call made twice.
            world = World(client)
            make = place.put(team.make)
            app = Upcall(store="runs.db", team=lambda: make(world))
            answers = {question: str(text) for pause in scenario.pauses for question, text in pause.items()}
            run, calls = await play_with(app, fails, is_made, answers)
        assert run.result == place.result
        assert len(world.noted()) == len(set(world.noted())) == team.notes + scenario.notes
        world.notes.unlink()
        return calls

    await fail_at_each_call(play)


@pytest.mark.slow
@both
async def test_store_failure_is_not_shown_to_models_as_tools(is_made: bool) -> None:
    async def play(fails: int) -> int:
        app = Upcall(store="runs.db", settings=Settings.read(models={"model": "demo"}))
        run, calls = await play_with(app, fails, is_made, {"Which framework?": "Express"})
        assert run.result is not None
        assert run.result.endswith("Files:\n- server.js\n- package.json")
        return calls

    await fail_at_each_call(play)


@both
async def test_store_failure_leaves_the_run_with_its_process(is_made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.execution.in_process.REOPEN_DELAY_S", 0.01)

    async def play(fails: int) -> int:
        app = Upcall(store="runs.db", team=make_team, settings=Settings())
        run = await app.submit("Build it")
        known = app.store.database
        database = UnreliableDatabase(known, fails, is_made)
        use_database(app.store, database)
        await app.drain()
        use_database(app.store, known)
        assert (fails, (await app.get(run.id)).status) == (fails, RunStatus.AWAITING_CLARIFICATION)
        return database.calls

    await fail_at_each_call(play, more_than=5)


async def test_store_of_a_tool_reports_failures_to_its_model() -> None:
    async def ask_another() -> str:
        """Look into another store."""
        return str(await Upcall(store="nowhere/runs.db", team=make_team).start("Build it"))

    with ScriptedModelClient([Call("ask_another"), "There is none."]) as client:
        agent = PausableAgent("clerk", client, tools=[ask_another])
        run = await Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([agent], max_turns=1)).start("Look")
        assert (run.status, run.result) == (RunStatus.COMPLETED, "There is none.")
        assert "its folder does not exist" in client.requests[1].messages[-1]["content"]


@both
@pytest.mark.parametrize("fails", range(2, 12))
async def test_store_failure_at_the_end_retries_from_the_reply(fails: int, is_made: bool) -> None:
    replies = {"coder": [note("began"), "Coded."], "tester": ["", "Tested."]}
    with script(replies) as client:  # It has no second reply to the coder.
        world = World(client)
        app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat(_coder_and_tester(world), max_turns=2))
        known = app.store.database
        use_database(app.store, UnreliableDatabase(known, fails, is_made))
        with suppress(StoreUnavailable):
            await app.start("Build it", run_id="a-run")
        use_database(app.store, known)
        run = await app.resume("a-run")
        if run.status is RunStatus.FAILED:
            run = await app.resume("a-run")
    assert (run.error, run.result, world.noted()) == (None, "Tested.", ["began"])


def _coder_and_tester(world: World) -> list[ChatAgent | Team]:
    return [world.agent("coder"), AssistantAgent("tester", world.client, system_message="You are the tester.")]
