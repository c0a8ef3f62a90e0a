"""A database that is away for a while, in the logs of a worker and of the service: a line when it goes, one when it is
back."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from postgres import Server
from services import serve_apart
from worker_process import finish, open_app, running, wait_for

pytestmark = pytest.mark.slow

AWAY_S = 6


async def test_worker_logs_an_outage_in_two_lines(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location, FLEET_MODEL_DELAY_S="0.2"):
        await finish(app, (await app.submit("Build it")).id)
        before = Path("worker.log").read_text()
        postgres.kill()
        await asyncio.sleep(AWAY_S)
        postgres.start()
        await wait_for(lambda: "can be used again" in Path("worker.log").read_text())
        await finish(app, (await app.submit("Build it")).id)
        lines = Path("worker.log").read_text().removeprefix(before).splitlines()
    assert len(lines) == 2, lines
    assert "Waiting for it." in lines[0]
    assert "can be used again, after" in lines[1]


async def test_service_logs_an_outage_in_two_lines(postgres: Server) -> None:
    location = postgres.new_database()
    with serve_apart("--store", location) as process:
        async with process.caller() as me:
            streams = [asyncio.create_task(me.get("/api/questions/events")) for _ in range(3)]
            assert (await me.get("/readyz")).status_code == 200
            postgres.kill()
            asked = [await me.get(path) for path in ("/api/runs", "/", "/healthz", "/readyz", "/metrics") * 4]
            await me.post("/api/runs", json={"task": "Build it"})
            await asyncio.sleep(AWAY_S)
            postgres.start()
            while (await me.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.2)
            await asyncio.gather(*streams, return_exceptions=True)
        status, log = process.stop(signal.SIGTERM)
    codes = {str(each.url.path): each.status_code for each in asked}
    assert codes == {"/api/runs": 503, "/": 503, "/healthz": 200, "/readyz": 503, "/metrics": 503}
    lines = [each for each in log.splitlines() if each]
    assert [each for each in lines if "Waiting for it." in each or "can be used again" in each] == lines[1:3], lines
    assert (status, len(lines)) == (0, 4)
