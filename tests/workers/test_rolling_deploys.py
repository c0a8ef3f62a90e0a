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
from stores import execute
from worker_process import LEASE, kill, open_app, running, start, wait_for_pause

pytestmark = pytest.mark.slow


LONG_LEASE = 60
"""A lease that lasts however slowly the command starts."""


async def upgrade(location: str, *options: str, lease: int = LEASE) -> int:
    """Upgrade a store to the made-up format, and return the status of the command; what it says goes to the log."""
    environment = {"UPCALL_STORE__LEASE_SECONDS": str(lease)}
    command = start(location, *options, program="newer_worker", command="store upgrade", **environment)
    return await asyncio.to_thread(command.wait)


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
        refused = await upgrade(location, "--contract", lease=LONG_LEASE)
        await asyncio.sleep(LEASE)
        assert (refused, await upgrade(location, "--contract")) == (2, 0)
    says = Path("worker.log").read_text()
    assert re.search(rf"at work: \d+ \(upcall 0\.1\.0, seen \d+ s ago\).* counts for {LONG_LEASE} seconds", says)


async def test_upgrade_in_one_step_waits_for_old_workers(postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    with running(location):
        await wait_for_pause(app, (await app.submit("Build it")).id)
        assert await upgrade(location, "--contract", lease=LONG_LEASE) == 2
    assert execute(location, "select value from upcall_meta where key = 'format'") == [("1",)]


async def test_suspended_worker_ends_after_a_contract(postgres: Server) -> None:
    async with old_worker(postgres) as (location, worker):
        worker.send_signal(signal.SIGSTOP)
        await open_app(location).submit("Build another")
        await asyncio.sleep(LEASE)
        assert await upgrade(location, "--contract") == 0
        worker.send_signal(signal.SIGCONT)
        status = await asyncio.to_thread(worker.wait, 60)
    jobs = execute(location, "select status from procrastinate_jobs where queue_name = 'upcall'")
    assert (status, jobs) == (1, [("todo",)])
    assert "Continue with upcall 0.2.0 or later" in Path("worker.log").read_text()
