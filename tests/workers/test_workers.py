"""Workers in processes of their own, over PostgreSQL: they take runs from pause to pause, and may end at any time."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from fleet import make_team
from places import ROOT
from postgres import Server
from scenario import upcall
from stores import execute
from worker_process import (
    answer,
    finish,
    kill,
    notes,
    open_app,
    running,
    start,
    wait_for,
    wait_for_call,
    wait_for_entry,
    wait_for_pause,
    wait_for_status,
)

from upcall import AnsweredBy, RunStatus, Settings, Upcall
from upcall.runs.events import QuestionReminded

pytestmark = pytest.mark.slow


async def test_worker_takes_runs_from_pause_to_pause(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location):
        runs = [await app.submit("Build it") for _ in range(3)]
        done = [await finish(app, each.id) for each in runs]
    assert [each.status for each in done] == [RunStatus.COMPLETED] * 3
    assert sorted(notes().split()[1::4]) == ["first"] * 3 + ["second"] * 3


async def test_runs_of_a_killed_worker_continue_elsewhere(postgres: Server) -> None:
    """Each is cut off in the middle of a tool call, which is asked of the human and not made again unasked."""
    location = postgres.new_database()
    app = open_app(location)
    with running(location, 2, FLEET_TIMEOUT_S="0.5") as workers:
        runs = [await app.submit("Build it") for _ in range(4)]
        for each in runs:
            await answer(app, each.id)
        await wait_for(lambda: "first" in notes())
        kill(workers[0])
        done = [await finish(app, each.id) for each in runs]
    assert [each.status for each in done] == [RunStatus.COMPLETED] * 4
    assert sorted(notes().split()[1::4]) == ["first"] * 4 + ["second"] * 4


async def test_worker_that_stood_still_has_lost_its_runs(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_TIMEOUT_S="6") as workers:
        run_id = (await app.submit("Build it")).id
        await answer(app, run_id)
        await wait_for_call(app, run_id)
        workers[0].send_signal(signal.SIGSTOP)
        workers.append(start(location))
        assert (await wait_for_pause(app, run_id)).records.unknown_outcomes
        workers[0].send_signal(signal.SIGCONT)
        done = await finish(app, run_id)
    assert done.status is RunStatus.COMPLETED
    assert sorted(notes().split()[1::4]) == ["first", "second"]


async def test_worker_standing_still_at_its_first_step_repeats(postgres: Server) -> None:
    """Nobody can look at the clock later than that: it is a limit (docs/limits.md), which an idempotency key lifts."""
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_STOPS="stands_still") as workers:
        run_id = (await app.submit("Build it")).id
        await answer(app, run_id)
        await wait_for(Path("stands_still").exists)
        workers.append(start(location))
        done = await finish(app, run_id)
        before = notes().split()[1::4]
        workers[0].send_signal(signal.SIGCONT)
        await wait_for(lambda: len(notes().splitlines()) == 3)
    assert (done.status, before) == (RunStatus.COMPLETED, ["first", "second"])
    assert notes().split()[1::4] == ["first", "second", "first"]


async def test_worker_that_is_stopped_returns_unfinished_runs(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_TIMEOUT_S="30", UPCALL_WORKERS__GRACE_SECONDS="0.2") as workers:
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
    assert not [each for each in await app.store.events.read(run_id) if each.kind == "worker_lost"]


async def test_run_that_kills_its_worker_three_times_fails(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_KILLS="yes") as workers:
        run_id = (await app.submit("Build it")).id
        for _ in range(3):
            await wait_for(lambda: workers[-1].poll() is not None)
            workers.append(start(location, FLEET_KILLS="yes"))
        failed = await wait_for_pause(app, run_id)
    assert failed.status is RunStatus.FAILED
    assert "3 workers in a row were killed or stood still at the same point" in (failed.error or "")


async def test_workers_wait_for_a_database_that_is_started_anew(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_TIMEOUT_S="0.5"):
        run_id = (await app.submit("Build it")).id
        await answer(app, run_id)
        await wait_for_status(app, run_id, RunStatus.EXECUTING)
        postgres.kill()
        postgres.start()
        assert (await finish(app, run_id)).status is RunStatus.COMPLETED
    assert sorted(notes().split()[1::4]) == ["first", "second"]


async def test_worker_that_drains_ends_with_the_queue(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    runs = [await app.submit("Build it") for _ in range(3)]
    with running(location, 0) as workers:
        workers.append(start(location, "--drain"))
        assert workers[0].wait(60) == 0
    assert [(await app.get(each.id)).status for each in runs] == [RunStatus.AWAITING_CLARIFICATION] * 3


async def test_fleet_is_shown_with_its_queue(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_TIMEOUT_S="30") as workers:
        run_id = (await app.submit("Build it")).id
        await answer(app, run_id)
        await wait_for_status(app, run_id, RunStatus.EXECUTING)
        shown = upcall("workers", "--json", "--store", location).json
    (only,) = shown["workers"]
    assert (only["process"], only["runs"], only["is_alive"]) == (workers[0].pid, [run_id], True)
    assert shown["queue"] == {"waiting": 0, "oldest_seconds": 0.0, "later": 0}


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def test_worker_says_whether_it_is_ready(postgres: Server) -> None:
    location, port = postgres.new_database(), find_port()
    with running(location, 0) as workers:
        workers.append(start(location, "--health-port", str(port)))
        await wait_for(lambda: health(port, "readyz") == 200)
        answers = [health(port, path) for path in ("healthz", "nothing", "metrics")]
        postgres.kill()
        await wait_for(lambda: health(port, "readyz") == 503)
        alive = health(port, "healthz")
        postgres.start()
        await wait_for(lambda: health(port, "readyz") == 200)
    assert (answers, alive) == ([200, 404, 404], 200)


async def test_worker_shows_metrics_where_a_setting_opens_them(postgres: Server) -> None:
    location, port = postgres.new_database(), find_port()
    app = open_app(location)
    with running(location, 0) as workers:
        workers.append(start(location, "--health-port", str(port), UPCALL_WORKERS__OPEN_METRICS="true"))
        await wait_for_pause(app, (await app.submit("Build it")).id)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
    assert {"upcall_questions_asked_total 1.0", "upcall_worker_slots 4.0"} <= {*lines}


def health(port: int, path: str) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


async def test_worker_limit_of_runs_per_user_is_kept(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    at_work = "select count(*) from upcall_runs where owner = 'alice' and worker is not null"
    seen: list[int] = []
    with running(location, 2, FLEET_MODEL_DELAY_S="0.3", UPCALL_QUEUE__USER_LIMIT="1"):
        runs = [await app.submit("Build it", user="alice") for _ in range(3)]
        bob = await app.submit("Build it", user="bob")
        await wait_for_pause(app, bob.id)
        while not all([(await app.get(each.id)).waiting for each in runs]):
            seen += execute(location, at_work)[0]
    assert max(seen) == 1


async def test_deadlines_and_reminders_are_seen_to_by_the_workers(postgres: Server) -> None:
    location = postgres.new_database()
    app = Upcall(store=location, team=make_team, settings=Settings.read(questions={"remind_after": 1}))
    with running(location):
        patient = await app.submit("Build it")
        hasty = await app.submit("Build it", expires_after=2, on_expiry="assume")
        done = await wait_for_status(app, hasty.id, RunStatus.COMPLETED)
        await wait_for_entry(app, patient.id, QuestionReminded)
    assert {each.by for each in done.answers} == {AnsweredBy.POLICY}


def test_workers_killed_continually_lose_and_repeat_nothing() -> None:
    """`benchmarks/workers.py` is the harness."""
    options = ["--runs", "40", "--kills", "4", "--rate", "6", "--every", "1", "--lease", "4", "--json"]
    command = [sys.executable, str(ROOT / "benchmarks" / "workers.py"), "kill", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=160, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (found["runs"], found["kills"], found["faults"]) == (40, 4, [])
    assert found["runs of lost workers"] > 0


def test_suspended_writes_hold_up_no_run() -> None:
    """Each run continues elsewhere, wherever its worker was stopped while it wrote."""
    options = ["--lease", "4", "--places", "6", "--json"]
    command = [sys.executable, str(ROOT / "benchmarks" / "workers.py"), "suspend", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (found["places"], found["faults"]) == (6, [])
