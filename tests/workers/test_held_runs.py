"""What is held stays in the queue of a fleet, and is worked on at once when it is released."""

from __future__ import annotations

import asyncio

import pytest
from postgres import Server
from stores import execute
from worker_process import finish, open_app, running, wait_for, wait_for_pause

from upcall import RunStatus

pytestmark = pytest.mark.slow


async def test_held_user_waits_while_others_are_worked_on(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    await app.holds.place("user", "alice", reason="Too many runs.")
    hers = [await app.submit("Build it", user="alice") for _ in range(3)]
    his = await app.submit("Build it", user="bob")
    with running(location):
        await finish(app, his.id)
        tried = "select count(*) from procrastinate_jobs where scheduled_at is not null"
        await wait_for(lambda: execute(location, tried)[0][0] == 3)
        assert [(await app.get(each.id)).status for each in hers] == [RunStatus.QUEUED] * 3
        await app.holds.release("user", "alice")
        done = [await finish(app, each.id) for each in hers]
    assert [each.status for each in done] == [RunStatus.COMPLETED] * 3


async def test_held_queue_gives_out_no_job(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location):
        await wait_for_pause(app, (await app.submit("Build it")).id)
        await app.holds.place("queue", reason="Maintenance.")
        run = await app.submit("Build it")
        await asyncio.sleep(2)
        job = "select status, attempts from procrastinate_jobs where args ->> 'run_id' = ?"
        assert execute(location, job, run.id) == [("todo", 0)]
        await app.holds.release("queue")
        assert (await wait_for_pause(app, run.id)).waiting
