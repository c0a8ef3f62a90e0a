"""Old and new workers on one store: what only old ones need goes when none of them can come back."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from postgres import Server
from worker_process import LEASE, kill, open_app, running, start, wait_for_pause

pytestmark = pytest.mark.slow


async def upgrade(location: str, *options: str) -> int:
    """Upgrade a store to the made-up format, and return the status of the command; what it says goes to the log."""
    return await asyncio.to_thread(start(location, *options, program="newer_worker", command="store upgrade").wait)


@asynccontextmanager
async def old_worker(postgres: Server) -> AsyncIterator[tuple[str, subprocess.Popen[str]]]:
    """Yield a store that was upgraded under a worker, and the worker."""
    location = postgres.new_database()
    app = open_app(location)
    with running(location) as (worker,):
        await wait_for_pause(app, (await app.submit("Build it")).id)
        assert await upgrade(location) == 0
        yield location, worker


async def test_killed_worker_holds_up_a_contract_for_a_lease(postgres: Server) -> None:
    async with old_worker(postgres) as (location, worker):
        kill(worker)
        refused = await upgrade(location, "--contract")
        await asyncio.sleep(LEASE)
        assert (refused, await upgrade(location, "--contract")) == (2, 0)
    says = Path("worker.log").read_text()
    assert re.search(r"at work: \d+ \(upcall 0\.1\.0, seen \d s ago\).* one that was killed counts for 3 seconds", says)


async def test_suspended_worker_ends_after_a_contract(postgres: Server) -> None:
    async with old_worker(postgres) as (location, worker):
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE)
        assert await upgrade(location, "--contract") == 0
        worker.send_signal(signal.SIGCONT)
        status = await asyncio.to_thread(worker.wait, 60)
    assert status == 1
    assert "Continue with upcall 0.2.0 or later" in Path("worker.log").read_text()
