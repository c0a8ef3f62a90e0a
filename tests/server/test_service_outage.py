"""A database that is away for a while, in the log of the service: a line when it goes, one when it is back."""

from __future__ import annotations

import asyncio
import signal

import pytest
from postgres import Server
from services import serve_apart

pytestmark = pytest.mark.slow

AWAY_S = 6


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
    model, link, away, back, stopped = (each for each in log.splitlines() if each)
    assert model.startswith("Demo: ")
    assert link.startswith("Open this in a browser")
    assert away.endswith("Waiting for it.")
    assert "can be used again" in back
    assert (status, stopped) == (0, "Stopped.")
