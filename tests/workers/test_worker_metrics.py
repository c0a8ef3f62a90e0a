"""What a worker measures, read with OpenTelemetry's reader in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from fleet import make_team
from postgres import Server
from stores import execute
from traced import measure, read_points
from worker_process import start, wait_for, wait_for_status

from upcall import PausableAgent, RunStatus, Settings, Upcall
from upcall.testing import Fail, Reply, ScriptedModelClient
from upcall.workers.metrics import WorkerMetrics
from upcall.workers.worker import Worker


@pytest.fixture
def location(postgres: Server) -> str:
    return postgres.new_database()


@pytest.fixture
def app(location: str) -> Upcall:
    """Return a program that is traced."""
    measure()
    settings = Settings.read(store={"lease_seconds": 3}, telemetry={"tracing": True})
    return Upcall(store=location, team=make_team, settings=settings)


def read(name: str, **attributes: str) -> Any:
    """Return what was measured: the last value, or of a histogram the number and the sum; 0 where nothing was."""
    for point in read_points(name, **attributes):
        return point.value if hasattr(point, "value") else (point.count, point.sum)
    return 0


@asynccontextmanager
async def working(app: Upcall) -> AsyncIterator[None]:
    task = asyncio.create_task(Worker(app, concurrency=2, grace=0).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.slow
async def test_metrics_of_the_queue_include_its_oldest_job(app: Upcall, location: str) -> None:
    for _ in range(3):
        await app.submit("Build it")
    execute(location, "update procrastinate_events set at = at - interval '90 seconds' where job_id = 2")
    execute(location, "update procrastinate_jobs set scheduled_at = now() + interval '1 hour' where id = 3")
    await WorkerMetrics(app.store, 2).measure()
    assert (read("upcall.queue.waiting"), read("upcall.queue.later")) == (2, 1)
    assert read("upcall.queue.oldest") >= 90


@pytest.mark.slow
async def test_metrics_measure_time_from_answer_to_resumption(app: Upcall, location: str) -> None:
    run = await app.start("Build it")
    await app.answer(run.id, "Express", wait=False)
    execute(location, "update procrastinate_events set at = at - interval '90 seconds'")
    async with working(app):
        await wait_for_status(app, run.id, RunStatus.AWAITING_CLARIFICATION)
    count, seconds = read("upcall.run.delay", upcall_cause="answer")
    assert (count, seconds >= 90) == (1, True)


@pytest.mark.slow
async def test_share_of_slots_in_use_is_measured(app: Upcall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_MODEL_DELAY_S", "30")
    run = await app.submit("Build it")
    async with working(app):
        await wait_for_status(app, run.id, RunStatus.EXECUTING)
        await wait_for(lambda: read("upcall.worker.busy") == 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "kind"),
    [(Fail(401), "ModelAuthenticationError"), ("", "ModelReplyInvalid"), (None, "ConfigurationError")],
)
async def test_failures_are_counted_by_kind(app: Upcall, reply: Reply | None, kind: str) -> None:
    """The last one brings the root team to a run that has a team of its own."""
    client = ScriptedModelClient(lambda _: reply or "")
    team = None if reply is None else lambda: RoundRobinGroupChat([PausableAgent("clerk", client)], max_turns=1)
    run = await app.submit("Build it")
    async with working(Upcall(store=app.store, team=team, settings=app.settings)):
        await wait_for_status(app, run.id, RunStatus.FAILED)
    assert read("upcall.run.failures", error_type=kind) == 1


@pytest.mark.slow
async def test_command_exports_what_it_measures(app: Upcall, location: str) -> None:
    await app.submit("Build it")
    exporters = {"OTEL_METRICS_EXPORTER": "console", "OTEL_TRACES_EXPORTER": "none"}
    assert start(location, "--drain", UPCALL_TELEMETRY__TRACING="true", **exporters).wait(60) == 0
    assert '"name": "upcall.run.delay"' in Path("worker.log").read_text()
