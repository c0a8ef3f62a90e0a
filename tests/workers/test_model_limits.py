"""At most so many calls to a model at once, over all workers; and where its server asks for time, all of them wait."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping

import pytest
from fleet import make_team
from postgres import Server
from stores import execute
from web_servers import Request, Sent, serving
from worker_process import kill, open_app, running, start, wait_for, wait_for_pause

from upcall import RunStatus, Settings, Upcall
from upcall.storage.databases import open_database
from upcall.storage.model_slots import ModelSlots

DONE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}
COMPLETION = {"id": "1", "object": "chat.completion", "created": 0, "model": "shared", "choices": [DONE]}
REPLY = Sent(json.dumps(COMPLETION), kind="application/json")
BUSY = Sent('{"error": {"message": "slow down"}}', kind="application/json", status=429, headers={"Retry-After": "2"})


class Model:
    """Answers a request for a reply after some seconds, and counts how many it has at once."""

    def __init__(self, seconds: float = 0.2, first: Sent = REPLY) -> None:
        self.came: list[float] = []
        self.most = 0
        self._seconds, self._first, self._now, self._lock = seconds, first, 0, threading.Lock()

    def __call__(self, request: Request) -> Sent:
        if request.method == "GET":
            return Sent(status=404)  # It lists no models.
        with self._lock:
            self.came.append(time.monotonic())
            is_first, self._now = len(self.came) == 1, self._now + 1
            self.most = max(self.most, self._now)
        time.sleep(self._seconds)
        with self._lock:
            self._now -= 1
        return self._first if is_first else REPLY


def environment(url: str, limit: int) -> Mapping[str, str]:
    return {"FLEET_MODEL_URL": f"{url}/v1", "UPCALL_MODELS__MODEL_LIMITS": json.dumps({"shared": limit})}


@pytest.mark.slow
async def test_one_process_makes_no_more_calls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(model := Model()) as server:
        monkeypatch.setenv("FLEET_MODEL_URL", f"{server.url}/v1")
        app = Upcall(
            store="runs.db",
            team=make_team,
            settings=Settings.read(models={"model_limits": {"shared": 2}}, queue={"concurrency": 6}),
        )
        runs = [await app.submit("Build it") for _ in range(6)]
        await app.drain()
    assert [(await app.get(each.id)).status for each in runs] == [RunStatus.COMPLETED] * 6
    assert model.most == 2


@pytest.mark.slow
async def test_two_workers_make_no_more_calls_at_once(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with serving(model := Model()) as server, running(location, 2, **environment(server.url, 2)):
        runs = [await app.submit("Build it") for _ in range(8)]
        done = [await wait_for_pause(app, each.id) for each in runs]
    assert [each.status for each in done] == [RunStatus.COMPLETED] * 8
    assert model.most == 2


@pytest.mark.slow
async def test_killed_worker_keeps_no_place_for_ever(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with serving(model := Model(seconds=1)) as server, running(location, **environment(server.url, 1)) as workers:
        first = await app.submit("Build it")
        await wait_for(lambda: model.came)
        kill(workers[0])
        workers.append(start(location, **environment(server.url, 1)))
        assert (await wait_for_pause(app, first.id)).status is RunStatus.COMPLETED


@pytest.mark.slow
async def test_where_a_server_asks_for_time_all_workers_wait(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with serving(model := Model(0, BUSY)) as server, running(location, 2, FLEET_MODEL_URL=f"{server.url}/v1"):
        runs = [await app.submit("Build it")]
        await wait_for(lambda: model.came and execute(location, "select 1 from upcall_model_waits"))
        runs += [await app.submit("Build it") for _ in range(6)]
        done = [await wait_for_pause(app, each.id) for each in runs]
    assert [each.status for each in done] == [RunStatus.COMPLETED] * 7
    assert min(model.came[1:]) - model.came[0] >= 2


@pytest.mark.slow
async def test_calls_are_made_in_order_of_arrival(location: str) -> None:
    slots, order = ModelSlots(open_database(location), {"m": 1}, 5), list[int]()

    async def call(number: int) -> None:
        async with slots.take("m"):
            order.append(number)

    async with asyncio.TaskGroup() as calls, slots.take("m"):
        for number in range(4):
            calls.create_task(call(number))
            await asyncio.sleep(0.1)
        assert order == []
    assert order == [0, 1, 2, 3]


async def test_who_is_cut_off_in_line_leaves_no_place(location: str) -> None:
    slots = ModelSlots(open_database(location), {"m": 1}, 60)

    async def call() -> None:
        async with slots.take("m"):
            await asyncio.sleep(0)

    for _ in range(10):
        calling = asyncio.create_task(call())
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    assert execute(location, "select id from upcall_model_calls") == []
