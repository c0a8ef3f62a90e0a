"""Tasks of A2A whose runs workers carry on, over PostgreSQL: whoever is killed in between, the task continues."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("a2a", reason="the extra a2a is not installed")
pytest.importorskip("procrastinate", reason="the extra workers is not installed")

from a2a_client import COMPLETED, INPUT_REQUIRED, connected, questions_of, result_of, text_of
from places import SUPPORT
from postgres import Server
from services import Process, serve_apart
from worker_process import kill, notes, open_app, running, start, wait_for_call

pytestmark = [pytest.mark.slow, pytest.mark.needs("workers")]

OURS = {"context_id": "ours"}


@contextmanager
def serving_fleet(location: str) -> Iterator[Process]:
    """Yield a service that hands its runs to workers."""
    path = os.pathsep.join([str(SUPPORT), *sys.path])
    with serve_apart("--store", location, "--team", "fleet:make_team", PYTHONPATH=path) as process:
        yield process


def secret_of(process: Process) -> str:
    return process.client.headers["Authorization"].removeprefix("Bearer ")


async def test_workers_take_a_task_to_its_result(postgres: Server) -> None:
    location = postgres.new_database()
    with serving_fleet(location) as process, running(location):
        async with connected(process.url, secret_of(process), streaming=True) as client:
            task = await client.send("Build it", message_id="m1", **OURS)
            for text in ("Express", "SQLite"):
                assert task.status.state == INPUT_REQUIRED
                task = await client.send(text, task=task)
            again = await client.send("Build it", message_id="m1", **OURS)
    assert (task.status.state, result_of(task), again) == (COMPLETED, "Done.", task)
    assert notes().split()[1::4] == ["first", "second"]


async def test_killed_worker_and_service_leave_the_task_to_others(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_TIMEOUT_S="30") as workers:
        with serving_fleet(location) as process:
            async with connected(process.url, secret_of(process)) as client:
                task = await client.send("Build it", message_id="m1", **OURS)
                going = asyncio.create_task(client.send("Express", task=task, message_id="m2"))
                await wait_for_call(app, task.id)
                kill(workers[0])
                process.stop(signal.SIGKILL)
                await asyncio.gather(going, return_exceptions=True)
        workers.append(start(location))
        with serving_fleet(location) as process:
            async with connected(process.url, secret_of(process)) as client:
                assert (await client.send("Build it", message_id="m1", **OURS)).id == task.id
                in_doubt = await client.send("Express", task=task, message_id="m2")
                (question,) = questions_of(in_doubt)
                await app.answer(task.id, {question["id"]: "Run it again"}, wait=False)
                asked = await client.send("Express", task=task, message_id="m2")
                done = await client.send("SQLite", task=task, message_id="m3")
    assert question["needs_person"]
    assert "clerk was calling note when its process ended" in question["question"]
    assert ("Which database?" in text_of(asked), done.status.state, result_of(done)) == (True, COMPLETED, "Done.")
    assert notes().split()[1::4] == ["first", "second"]
