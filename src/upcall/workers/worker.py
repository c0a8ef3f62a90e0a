"""One worker process: it takes jobs from the queue, and reconnects when the database is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from procrastinate import App, JobContext, PsycopgConnector, RetryDecision
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.retry import BaseRetryStrategy
from procrastinate.utils import utcnow
from psycopg_pool import AsyncConnectionPool

from upcall.app import Upcall
from upcall.errors import (
    RunBusy,
    RunConflict,
    RunGone,
    RunHeld,
    SchemaMismatch,
    StoreUnavailable,
    UnknownRun,
    UserAtLimit,
    WorkspaceMissing,
)
from upcall.execution.background import list_background
from upcall.runs.run import Run
from upcall.storage.job_queue import ADVANCE, QUEUE, UPKEEP_QUEUE
from upcall.telemetry.spans import is_on
from upcall.text import first_line
from upcall.workers.health import serve_health
from upcall.workers.library_log import quiet_libraries
from upcall.workers.lost_workers import count_lost, explain_lost, rescue_jobs
from upcall.workers.metrics import ShownMetrics, WorkerMetrics
from upcall.workers.owned_jobs import IntroducedWorkers, OwnedJobs
from upcall.workers.settings import WorkersSettings

RECONNECT_DELAY_S = 2.0
NEXT_JOB_DELAY_S = 5.0
CONNECTIONS = 4

_CONNECT = "connect to"
"""What the worker does with its database besides reading and writing."""


@dataclass(frozen=True)
class FleetTimes:
    """The intervals of one fleet in seconds, all derived from the lease of a run: the jobs of a silent worker are back
    in the queue before the lease ends."""

    lease: float

    @property
    def heartbeat(self) -> float:
        """How often a worker gives a sign of life."""
        return self.lease / 6

    @property
    def silence(self) -> float:
        """How long it may be silent before others take its jobs."""
        return self.lease * 0.6

    @property
    def rescue(self) -> int:
        """How often to look for silent workers, in whole seconds."""
        return max(1, int(self.lease / 8))

    @property
    def deadlines(self) -> int:
        """How often to look for expired questions, in whole seconds."""
        return max(1, int(self.lease / 3))

    @property
    def poll(self) -> float:
        """How often to look for jobs that were put back; PostgreSQL announces new ones at once."""
        return min(0.5, self.lease / 8)


class Worker:
    """Advances runs from pause to pause, until cancelled.

    A run uses the team that it was started with: the root team, a team that its account named on the command line, or
    the one of `app`.

    Args:
        app: an application over a PostgreSQL store.
        concurrency: how many runs at a time; the setting of this name if not given.
        grace: seconds that runs have to reach a pause when the worker is cancelled; those that do not are given back,
            to continue elsewhere from their journal.
        drain: end when the queue is empty.
        health_port: the port that serves ``/healthz`` and ``/readyz``, and with `workers.open_metrics` ``/metrics``.

    Raises:
        ConfigurationError: the store is a file.
    """

    def __init__(
        self,
        app: Upcall,
        *,
        concurrency: int | None = None,
        grace: float | None = None,
        drain: bool = False,
        health_port: int | None = None,
    ) -> None:
        app.store.jobs.refuse_file()
        self._app, self._store = app, app.store
        self._concurrency = concurrency or app.settings.queue.concurrency
        app.store.database.outage.reports = True
        self._grace = app.settings.section(WorkersSettings).grace_seconds if grace is None else grace
        self._drain = drain
        self._times = FleetTimes(app.store.leases.seconds)
        self._apps: dict[str | None, Upcall] = {}
        self._health_port, self._is_ready = health_port, False
        self._is_traced = is_on(app.settings.telemetry.tracing)
        shows = health_port is not None and app.settings.section(WorkersSettings).open_metrics
        self._metrics = WorkerMetrics(self._store, self._concurrency) if self._is_traced or shows else None
        self._shown = ShownMetrics(app, self._metrics) if shows and self._metrics else None

    async def run(self) -> None:
        """Work until cancelled; with `drain` until the queue is empty.

        Raises:
            ConfigurationError: the health port is not available.
        """
        with quiet_libraries():
            show = None if self._shown is None else self._shown.render
            async with serve_health(self._health_port, lambda: self._is_ready, show):
                await self._run()

    async def _run(self) -> None:
        while True:
            try:
                await self._store.jobs.open()
                async with self._open() as (runs, upkeep, jobs):
                    self._is_ready = True
                    self._store.database.outage.end(_CONNECT)
                    await self._work(runs, upkeep, jobs)
                    if self._drain and not await self._count_left():
                        return
            except (StoreUnavailable, ConnectorException, psycopg.Error) as error:
                problem = (
                    f"Cannot use the store {self._store.name}: {first_line(error.__cause__ or error).rstrip('.')}."
                )
                self._store.database.outage.begin(_CONNECT, problem)
            finally:
                self._is_ready = False
            await asyncio.sleep(RECONNECT_DELAY_S)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[App, App, IntroducedWorkers]]:
        """Open the two parts of the engine, on one pool of connections: runs, and periodic tasks."""
        parameters: dict[str, Any] = dict(self._store.jobs.parameters)
        pool = AsyncConnectionPool(
            kwargs=parameters, configure=_commit_at_once, min_size=1, max_size=CONNECTIONS, timeout=10, open=False
        )
        async with pool:
            # Two, since a periodic task among the runs would wait for one of their slots.
            runs, upkeep = (App(connector=PsycopgConnector(kwargs=parameters)) for _ in range(2))
            runs.job_manager = jobs = IntroducedWorkers(
                runs.connector, self._store.name, self._concurrency, self._app.team.name
            )
            upkeep.job_manager = OwnedJobs(upkeep.connector)
            for each in (runs, upkeep):
                await each.open_async(pool)
            self._add_tasks(runs, upkeep)
            yield runs, upkeep, jobs

    def _add_tasks(self, runs: App, upkeep: App) -> None:
        runs.task(name=ADVANCE, queue=QUEUE, pass_context=True, retry=_Again())(self._advance)

        async def rescue(timestamp: int) -> None:
            await rescue_jobs(upkeep, self._store, self._times.silence)

        async def look_at_deadlines(timestamp: int) -> None:
            await self._app.expire(wait=False)

        for work, seconds in ((rescue, self._times.rescue), (look_at_deadlines, self._times.deadlines)):
            name = f"upcall.{work.__name__}"
            task = upkeep.task(name=name, queue=UPKEEP_QUEUE, queueing_lock=name)(work)
            upkeep.periodic(cron=f"* * * * * */{seconds}")(task)

    async def _work(self, runs: App, upkeep: App, jobs: IntroducedWorkers) -> None:
        """Work until one of the two parts ends: because it is instructed to, the database is gone, or the queue is
        empty."""
        common: dict[str, Any] = {
            "install_signal_handlers": False,
            "delete_jobs": "always",
            "fetch_job_polling_interval": self._times.poll,
            "update_heartbeat_interval": self._times.heartbeat,
            # Each worker that starts deletes entries silent for longer, and with an entry the name of the worker that
            # a run has lost: `count_lost` distinguishes workers by it.
            "stalled_worker_timeout": self._times.lease * 20,
        }
        parts = [
            runs.run_worker_async(
                queues=[QUEUE],
                concurrency=self._concurrency,
                wait=not self._drain,
                shutdown_graceful_timeout=self._grace,
                **common,
            ),
            # No grace: a periodic task's next turn does what this one leaves undone.
            upkeep.run_worker_async(queues=[UPKEEP_QUEUE], shutdown_graceful_timeout=0, **common),
        ]
        if self._metrics is not None and self._is_traced:
            parts.append(self._metrics.keep_measuring(self._times.deadlines))
        parts += [work() for work in list_background(self._store, self._app.settings)]
        tasks = [asyncio.create_task(each) for each in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            jobs.stop_insisting()
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        _raise_first(ended)

    async def _count_left(self) -> int:
        query = "SELECT count(*) FROM procrastinate_jobs WHERE queue_name = :queue AND status IN ('todo', 'doing')"
        values = {"queue": QUEUE}
        return int(await self._store.database.read(lambda opened: opened.execute(query, values).fetchone()[0]))

    # -- one job ------------------------------------------------------------------------------------------------------

    async def _advance(self, context: JobContext, run_id: str, version: int) -> None:
        """Take one run to its next pause.

        Raises:
            StoredStateError: it has to be retried later; `_Again` says when.
        """
        metrics = self._metrics
        with suppress(UnknownRun), nullcontext() if metrics is None else metrics.use_slot():
            if context.job.attempts and (lost := await count_lost(self._store, run_id)):
                await self._app.driver.fail(run_id, explain_lost(run_id, lost), "WorkerLost")
                return
            taken = None if metrics is None else metrics.measure_delay(context.job.id, version)
            stored = await self._store.load(run_id)
            await self._select_app(stored.run).driver.advance_loaded(stored, version, taken=taken)

    def _select_app(self, run: Run) -> Upcall:
        """Return the application that builds the team of a run."""
        team = run.config.select_team(self._app)
        if isinstance(team, Upcall):
            return team
        return self._app if team is None and not self._app.team.is_own else self._app_with(team)

    def _app_with(self, team: str | None) -> Upcall:
        """Return the application that builds a team by its name, or the root team."""
        if team not in self._apps:
            settings = self._app.settings
            if team is not None:  # What the root team's agents need approval for; another team says so itself.
                settings = settings.replace(questions={"approve": []})
            self._apps[team] = Upcall(settings=settings, store=self._store, team=team)
        return self._apps[team]


class _Again(BaseRetryStrategy):
    """When to retry a job that could not be done now."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        match exception:
            case asyncio.CancelledError():
                seconds = 0.0  # Given back: the worker ends.
            case RunBusy() | UserAtLimit() | RunHeld():
                seconds = exception.seconds
            case RunConflict() if not isinstance(exception, RunGone):
                seconds = 1.0
            case StoreUnavailable():
                seconds = RECONNECT_DELAY_S
            case SchemaMismatch() | WorkspaceMissing():
                seconds = NEXT_JOB_DELAY_S  # A worker of the version that stored it, or with the folder, takes it.
            case _:
                return None
        return RetryDecision(retry_at=utcnow() + timedelta(seconds=seconds))


async def _commit_at_once(connection: psycopg.AsyncConnection[Any]) -> None:
    """Leave no transaction open between two messages: a worker suspended there would hold up all others."""
    await connection.set_autocommit(True)


def _raise_first(ended: Sequence[object]) -> None:
    for error in ended:
        if isinstance(error, Exception):
            raise error
