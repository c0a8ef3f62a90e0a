"""Runs and answers that are submitted: stored at once, with the job that brings them to a worker, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult
from fleet import make_team
from postgres import Server
from scenario import upcall
from stores import FIRST, execute

from upcall import PausableAgent, Run, RunStatus, Settings, Upcall
from upcall.errors import ConfigurationError, StoreUnavailable, UnknownRun
from upcall.execution.in_process import InProcessWorker
from upcall.storage.stored_run import StoredRun
from upcall.testing import ScriptedModelClient
from upcall.workers.worker import Worker

QUEUED, WAITING = RunStatus.QUEUED, RunStatus.AWAITING_CLARIFICATION
JOBS = "select task_name, priority, args from procrastinate_jobs where status = 'todo' order by id"


def app_on(location: str) -> Upcall:
    return Upcall(store=location, team=make_team)


async def advance_all(app: Upcall, location: str) -> None:
    """Do what a worker does with the jobs that are queued."""
    await app.drain()
    for _, _, job in execute(location, JOBS) if "://" in location else ():
        await app.driver.advance_queued(**job)


async def test_submitted_run_goes_from_pause_to_pause(location: str) -> None:
    app = app_on(location)
    seen = [await app.submit("Build it")]
    run_id = seen[0].id
    for text in ("Express", "SQLite"):
        await advance_all(app, location)
        seen += [await app.get(run_id), await app.answer(run_id, text, wait=False)]
    await advance_all(app, location)
    assert [each.status for each in seen] == [QUEUED, WAITING, QUEUED, WAITING, QUEUED]
    assert (await app.get(run_id)).status is RunStatus.COMPLETED
    assert Path("notes.txt").read_text().split()[1::4] == ["first", "second"]


async def test_submitted_job_delivered_twice_works_once(location: str) -> None:
    app = app_on(location)
    run_id = (await app.submit("Build it")).id
    await advance_all(app, location)
    before = await app.store.load(run_id)
    assert await app.driver.advance_queued(run_id, 1) is None
    assert await app.store.load(run_id) == before


@pytest.mark.parametrize("status", [RunStatus.FAILED, QUEUED], ids=["failed", "queued, its job is gone"])
async def test_submitted_run_without_a_worker_is_requeued_by_resume(status: RunStatus, location: str) -> None:
    app = app_on(location)
    run = await app.store.create(Run(task="Build it", status=status), FIRST)
    assert (await app.resume(run.run.id, wait=False)).status is QUEUED
    await advance_all(app, location)
    assert (await app.get(run.run.id)).status is WAITING


async def test_who_resumed_a_run_acts_once_for_the_audit(location: str) -> None:
    app = app_on(location)
    run = await app.store.create(Run(task="Build it", status=RunStatus.FAILED, user="ann"), FIRST)
    await app.resume(run.run.id, user="ann", wait=False)
    await advance_all(app, location)
    assert [entry.kind for entry in await app.log.entries(run.run.id)].count("resumed") == 1


@pytest.mark.slow
async def test_submitted_runs_over_a_users_limit_wait() -> None:
    at_work = [0]

    class Counted(ScriptedModelClient):
        async def create(self, *args: Any, **options: Any) -> CreateResult:
            at_work.append(at_work[-1] + 1)
            await asyncio.sleep(0.1)  # Others begin meanwhile, if they may.
            at_work.append(at_work[-1] - 1)
            return await super().create(*args, **options)

    def make() -> Team:
        return RoundRobinGroupChat([PausableAgent("clerk", Counted(["Done."]))], max_turns=1)

    app = Upcall(store="runs.db", team=make, settings=Settings(queue={"user_limit": 1}))
    runs = [await app.submit("Build it", user="ann") for _ in range(3)]
    await app.drain()
    assert [(await app.get(run.id)).status for run in runs] == [RunStatus.COMPLETED] * 3
    assert max(at_work) == 1


async def test_submitted_run_that_grows_too_large_fails() -> None:
    app = Upcall(store="runs.db", team=make_team, settings=Settings(store={"max_state_bytes": 1_700}))
    run = await app.submit("Build it")
    await app.drain()
    failed = await app.get(run.id)
    assert failed.status is RunStatus.FAILED
    assert "max_state_bytes" in (failed.error or "")


async def test_submitted_built_in_team_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InProcessWorker, "start", lambda *given: None)  # Another worker is to take the run.
    started = await Upcall(store="runs.db", settings=Settings(models={"model": "demo"})).submit("Build it")
    own = app_on("runs.db")
    await own.driver.advance_queued(started.id, 1)
    assert "has the built-in team" in ((await own.get(started.id)).error or "")


@pytest.mark.parametrize("priority", [2**31, True])
async def test_priority_that_no_queue_takes_is_refused(priority: int) -> None:
    with pytest.raises(ConfigurationError, match="priority"):
        await app_on("runs.db").submit("Build it", priority=priority)


@pytest.mark.slow
async def test_submitted_run_in_queue_takes_answers_and_cancels(postgres: Server) -> None:
    location = postgres.new_database()
    app = app_on(location)
    run_id = (await app.start("Build it")).id
    answered = [await app.answer(run_id, "Express", wait=wait) for wait in (False, False, True)]
    assert [each.status for each in answered] == [QUEUED] * 3
    assert (await app.cancel(run_id)).status is RunStatus.CANCELLED
    await advance_all(app, location)
    assert not Path("notes.txt").exists()


@pytest.mark.slow
async def test_submitted_run_that_cannot_continue_fails_with_reason(postgres: Server) -> None:
    location = postgres.new_database()
    run_id = (await app_on(location).submit("Build it")).id
    other = Upcall(store=location)
    await other.driver.advance_queued(run_id, 1)
    failed = await other.get(run_id)
    assert failed.status is RunStatus.FAILED
    assert "has a team of its own" in (failed.error or "")


@pytest.mark.slow
async def test_job_has_the_priority_of_its_run(postgres: Server) -> None:
    location = postgres.new_database()
    run = await app_on(location).submit("Build it", priority=7)
    assert execute(location, JOBS) == [("upcall.advance", 7, {"run_id": run.id, "version": 1})]


@pytest.mark.slow
async def test_task_and_job_are_stored_both_or_neither(postgres: Server) -> None:
    """The job cannot be written; so there is no run either, and the answer is not taken."""
    location = postgres.new_database()
    app = app_on(location)
    waiting = await app.start("Build it")
    await app.store.jobs.open()
    execute(location, "alter table procrastinate_jobs add constraint broken check (id < 0)")
    with pytest.raises(StoreUnavailable, match="broken"):
        await app.submit("Build it", run_id="other")
    with pytest.raises(StoreUnavailable, match="broken"):
        await app.answer(waiting.id, "Express", wait=False)
    with pytest.raises(UnknownRun):
        await app.get("other")
    assert (await app.get(waiting.id)).status is WAITING


@pytest.mark.parametrize("command", [["run", "Build it", "--submit"], ["worker"], ["workers"]])
def test_submitted_run_in_a_file_reaches_no_worker(command: list[str]) -> None:
    ended = upcall(*command, "--store", "runs.db")
    assert ended.status == 2
    assert "is a file, which workers in other processes take no runs from. Use" in ended.error


@pytest.mark.slow
def test_command_line_submits_and_returns_at_once(postgres: Server) -> None:
    location = postgres.new_database()
    ended = upcall("run", "Build it", "--submit", "--json", "--model", "demo", "--store", location)
    assert ended.json["status"] == "queued"
    assert [job["run_id"] for _, _, job in execute(location, JOBS)] == [ended.json["run_id"]]


@pytest.mark.slow
async def test_submitted_named_team_needs_no_root_team_approval(postgres: Server) -> None:
    location = postgres.new_database()
    run = await Upcall(store=location, team="fleet:make_team").submit("Build it")
    app = Upcall(
        store=location, settings=Settings.read(models={"model": "demo"}, questions={"approve": ["run_command"]})
    )
    await Worker(app, drain=True).run()
    assert ((done := await app.get(run.id)).status, done.error) == (WAITING, None)


@pytest.mark.slow
async def test_worker_loads_a_run_once_for_a_job(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_on(postgres.new_database())
    run, loaded, load = await app.submit("Build it"), list[str](), app.store.load

    async def count(run_id: str) -> StoredRun:
        loaded.append(run_id)
        return await load(run_id)

    monkeypatch.setattr(app.store, "load", count)
    await Worker(app, drain=True).run()
    assert ((await app.get(run.id)).status, loaded) == (WAITING, [run.id])
