"""A database that is away for a while, in the log of a worker: a line when it goes, one when it is back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from postgres import Server
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
    ends = ["Waiting for it." if number % 2 == 0 else "can be used again, after" for number in range(len(lines))]
    assert len(lines) in (2, 4), lines  # A process of the killed server may answer once more before it ends, too.
    assert all(end in line for end, line in zip(ends, lines, strict=True)), lines
