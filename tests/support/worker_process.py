"""Worker processes of a test: started, looked at, stopped and killed, and none left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fleet import make_team
from places import SUPPORT

from upcall import Run, RunStatus, Settings, Upcall
from upcall.autogen.journal import find_unfinished
from upcall.errors import StoreUnavailable
from upcall.runs.events import LogEvent

LEASE = 3
TIMEOUT_S = 60
STOPPED = (RunStatus.AWAITING_CLARIFICATION, RunStatus.COMPLETED, RunStatus.FAILED)


def start(
    location: str, *options: str, program: str = "upcall", command: str = "worker", **environment: str
) -> subprocess.Popen[str]:
    """Start ``upcall worker`` with the clerk's team, or another command of it or of a later version."""
    path = os.pathsep.join([str(SUPPORT), *sys.path])
    given = {"PYTHONPATH": path, "UPCALL_STORE__LEASE_SECONDS": str(LEASE), **environment}
    team = ["--team", "fleet:make_team"] if command == "worker" else []
    line = [sys.executable, "-m", program, *command.split(), *team, "--store", location, *options]
    with Path("worker.log").open("a") as log:
        return subprocess.Popen(line, env={**os.environ, **given}, stderr=log, text=True)


def kill(worker: subprocess.Popen[str]) -> None:
    """End a worker with SIGKILL."""
    worker.kill()
    worker.wait()


@contextlib.contextmanager
def running(location: str, count: int = 1, **environment: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Yield so many workers; those that live at the end are killed. What they logged is shown where the test fails."""
    workers = [start(location, **environment) for _ in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGCONT)
            kill(worker)
        print(Path("worker.log").read_text()[-3000:])  # noqa: T201


def open_app(location: str) -> Upcall:
    """Return the application of the program that submits."""
    return Upcall(store=location, team=make_team, settings=Settings.read(store={"lease_seconds": LEASE}))


async def wait_for(condition: Callable[[], object]) -> None:
    """Wait until something is true."""
    until = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        await asyncio.sleep(0.02)


async def wait_for_status(app: Upcall, run_id: str, *statuses: RunStatus) -> Run:
    """Wait until a run is in one of some statuses."""
    until = time.monotonic() + TIMEOUT_S
    while (run := await _look(app, run_id)) is None or run.status not in statuses:
        assert time.monotonic() < until, f"{run and run.status} for too long"
        await asyncio.sleep(0.02)
    return run


async def _look(app: Upcall, run_id: str) -> Run | None:
    """Return the run; None while the database is started anew."""
    with contextlib.suppress(StoreUnavailable):
        return await app.get(run_id)
    return None


async def wait_for_pause(app: Upcall, run_id: str) -> Run:
    """Wait until a run pauses or ends."""
    return await wait_for_status(app, run_id, *STOPPED)


async def wait_for_call(app: Upcall, run_id: str) -> None:
    """Wait until a tool call of a run has begun."""
    until = time.monotonic() + TIMEOUT_S
    while not find_unfinished((await app.store.load(run_id)).records):
        assert time.monotonic() < until, "no call has begun"
        await asyncio.sleep(0.02)


async def wait_for_entry(app: Upcall, run_id: str, event: type[LogEvent]) -> None:
    """Wait until something is noted in the log of a run."""
    until = time.monotonic() + TIMEOUT_S
    while not await app.store.events.read(run_id, types=(event,)):
        assert time.monotonic() < until, f"there is no {event.__name__}"
        await asyncio.sleep(0.02)


async def answer(app: Upcall, run_id: str) -> None:
    """Answer the first question of a run as soon as it is there."""
    await wait_for_status(app, run_id, RunStatus.AWAITING_CLARIFICATION)
    await app.answer(run_id, "Express", wait=False)


async def finish(app: Upcall, run_id: str) -> Run:
    """Answer the clerk's questions, and one about a call in doubt by looking whether it was made."""
    while (run := await wait_for_pause(app, run_id)).waiting:
        (question,) = run.questions
        answer = "Express"
        if run.records.unknown_outcomes:
            text = "first" if run.clarification_count < 2 else "second"
            answer = "noted" if f"{run_id} {text} " in notes() else "Run it again"
        await app.answer(run_id, {question.id: answer}, wait=False)
    return run


def notes() -> str:
    """Return what the clerks have noted."""
    return Path("notes.txt").read_text() if Path("notes.txt").exists() else ""
