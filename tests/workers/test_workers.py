"""Workers in processes of their own, over PostgreSQL: they take runs from pause to pause, and may end at any time."""

from __future__ import annotations

import signal

import pytest
from postgres import Server
from scenario import upcall
from worker_process import (
    answer,
    finish,
    kill,
    notes,
    open_app,
    running,
    start,
    wait_for,
    wait_for_pause,
    wait_for_status,
    wait_for_worker_lost,
)

from upcall import RunStatus

pytestmark = pytest.mark.slow


async def test_a_worker_takes_runs_from_pause_to_pause(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location):
        runs = [await app.submit("Build it") for _ in range(3)]
        done = [await finish(app, each.id) for each in runs]
    assert [each.status for each in done] == [RunStatus.COMPLETED] * 3
    assert sorted(notes().split()[1::4]) == ["first"] * 3 + ["second"] * 3


async def test_the_runs_of_a_killed_worker_go_on_elsewhere(postgres: Server) -> None:
    """Each is cut off in the middle of a tool call, which is put to the human and not made again unasked."""
    location = postgres.new_database()
    app = open_app(location)
    with running(location, 2, FLEET_SECONDS="0.5") as workers:
        runs = [await app.submit("Build it") for _ in range(4)]
        for each in runs:
            await answer(app, each.id)
        await wait_for(lambda: "first" in notes())
        kill(workers[0])
        done = [await finish(app, each.id) for each in runs]
    assert [each.status for each in done] == [RunStatus.COMPLETED] * 4
    assert sorted(notes().split()[1::4]) == ["first"] * 4 + ["second"] * 4


async def test_a_worker_that_stood_still_has_lost_its_runs(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_SECONDS="30") as workers:
        run_id = (await app.submit("Build it")).id
        await answer(app, run_id)
        await wait_for_status(app, run_id, RunStatus.EXECUTING)
        workers[0].send_signal(signal.SIGSTOP)
        workers.append(start(location))
        await wait_for_worker_lost(app, run_id)
        workers[0].send_signal(signal.SIGCONT)
        done = await finish(app, run_id)
    assert done.status is RunStatus.COMPLETED
    assert sorted(notes().split()[1::4]) == ["first", "second"]


async def test_a_stopped_worker_gives_back_what_does_not_finish_in_time(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_SECONDS="30", UPCALL_GRACE_SECONDS="0.2") as workers:
        run_id = (await app.submit("Build it")).id
        await answer(app, run_id)
        await wait_for_status(app, run_id, RunStatus.EXECUTING)
        workers[0].terminate()
        assert workers[0].wait(20) == 0
        interrupted = await app.get(run_id)
        workers.append(start(location))
        done = await finish(app, run_id)
    assert (interrupted.status, interrupted.interrupted) == (RunStatus.EXECUTING, True)
    assert done.status is RunStatus.COMPLETED
    assert not [each for each in await app.store.log(run_id) if each.kind == "worker_lost"]


async def test_a_run_that_kills_its_worker_three_times_fails(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_KILLS="yes") as workers:
        run_id = (await app.submit("Build it")).id
        for _ in range(3):
            await wait_for(lambda: workers[-1].poll() is not None)
            workers.append(start(location, FLEET_KILLS="yes"))
        failed = await wait_for_pause(app, run_id)
    assert failed.status is RunStatus.FAILED
    assert "3 workers in a row were killed" in (failed.error or "")


async def test_workers_wait_for_a_database_that_is_started_anew(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_SECONDS="0.5"):
        run_id = (await app.submit("Build it")).id
        await answer(app, run_id)
        await wait_for_status(app, run_id, RunStatus.EXECUTING)
        postgres.kill()
        postgres.start()
        assert (await finish(app, run_id)).status is RunStatus.COMPLETED
    assert sorted(notes().split()[1::4]) == ["first", "second"]


async def test_a_worker_that_drains_ends_with_the_queue(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    runs = [await app.submit("Build it") for _ in range(3)]
    with running(location, 0) as workers:
        workers.append(start(location, "--drain"))
        assert workers[0].wait(60) == 0
    assert [(await app.get(each.id)).status for each in runs] == [RunStatus.AWAITING_CLARIFICATION] * 3


async def test_the_fleet_is_shown_with_its_queue(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_SECONDS="30") as workers:
        run_id = (await app.submit("Build it")).id
        await answer(app, run_id)
        await wait_for_status(app, run_id, RunStatus.EXECUTING)
        shown = upcall("workers", "--json", "--store", location).json
    (only,) = shown["workers"]
    assert (only["process"], only["runs"], only["is_alive"]) == (workers[0].pid, [run_id], True)
    assert shown["queue"] == {"waiting": 0, "oldest_seconds": 0.0, "later": 0}
