"""The job that brings a run to a worker, put into procrastinate's queue in the same transaction that stores the run.

An SQLite file has no queue: the process that stores the run works on it (`upcall.execution.in_process`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from upcall.errors import ConfigurationError, missing_extra
from upcall.runs.run import Run
from upcall.storage.connection import Connection, Work
from upcall.storage.databases import Database

if TYPE_CHECKING:
    from procrastinate import App

QUEUE, ADVANCE = "upcall", "upcall.advance"

UPKEEP_QUEUE = "upcall-upkeep"
"""Of the periodic tasks, which wait for no run."""

_MAKE_TABLES_LOCK = 0x7570716A
"""The advisory lock under which the tables of the queue are made."""

_WORKERS_TABLE = """
CREATE TABLE upcall_workers (
    id BIGINT PRIMARY KEY REFERENCES procrastinate_workers (id) ON DELETE CASCADE,
    host TEXT NOT NULL, process BIGINT NOT NULL, concurrency BIGINT NOT NULL,
    version TEXT NOT NULL, format BIGINT NOT NULL, team TEXT,
    started_at TIMESTAMPTZ NOT NULL DEFAULT now()
)
"""
"""Beside what procrastinate knows of a worker, which is its last sign of life."""


class JobQueue:
    """The jobs of one store.

    Args:
        database: the store's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_open = False

    @property
    def is_shared(self) -> bool:
        """Whether workers in other processes take jobs from it."""
        return self._database.file is None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The connection parameters of the database, including the password."""
        return self._database.parameters

    def refuse_file(self) -> None:
        """Refuse an operation that needs workers in other processes if there can be none.

        Raises:
            ConfigurationError: the store is a file.
        """
        if not self.is_shared:
            raise ConfigurationError(
                f"The store {self._database.name} is a file, which workers in other processes take no runs from. Use "
                "--store postgresql://USER@HOST/DATABASE; or leave --submit out, and in a program of yours call "
                "Upcall.submit: it does the work itself."
            )

    async def open(self) -> None:
        """Make the tables if they do not exist yet.

        Raises:
            ConfigurationError: procrastinate is not installed.
        """
        if self.is_shared and not self._is_open:
            _deferring()
            await self._database.write(_make_tables)
            self._is_open = True

    def defer(self, run: Run, version: int) -> Work[None]:
        """Return what puts the job into the queue: take the run on from the state that was stored as `version`."""

        def work(connection: Connection) -> None:
            if not self.is_shared:
                return
            job = _deferring().configure_task(
                ADVANCE, queue=QUEUE, priority=run.config.priority, connection=connection.driver
            )
            with raise_cause():
                job.defer(run_id=run.id, version=version)

        return work

    def retry_now(self, connection: Connection) -> None:
        """Let the jobs that were to be tried again later be tried now, in a transaction of the store."""
        if not self.is_shared:
            return
        if connection.execute("SELECT to_regclass('procrastinate_jobs') IS NOT NULL").fetchone()[0]:
            connection.execute(
                "UPDATE procrastinate_jobs SET scheduled_at = NULL "
                "WHERE queue_name = :queue AND status = 'todo' AND scheduled_at IS NOT NULL",
                {"queue": QUEUE},
            )


@cache
def _deferring() -> App:
    """Return what writes jobs through connections of the store; it opens none itself."""
    try:
        from procrastinate import App, SyncPsycopgConnector
    except ImportError as error:
        problem = f"Runs are brought to workers by procrastinate, which cannot be loaded ({error})"
        raise missing_extra(problem, "workers") from error
    return App(connector=SyncPsycopgConnector())


@contextmanager
def raise_cause() -> Iterator[None]:
    """Raise the database's own error inside, which the store explains, and not procrastinate's around it."""
    from procrastinate.exceptions import ConnectorException

    try:
        yield
    except ConnectorException as error:
        raise error.__cause__ or error from None


def _make_tables(connection: Connection) -> None:
    from procrastinate.schema import SchemaManager

    connection.execute(f"SELECT pg_advisory_xact_lock({_MAKE_TABLES_LOCK})")
    there = "SELECT to_regclass('procrastinate_jobs') IS NOT NULL, to_regclass('upcall_workers') IS NOT NULL"
    has_jobs, has_workers = connection.execute(there).fetchone()
    if not has_jobs:
        connection.execute(SchemaManager.get_schema())
    if not has_workers:
        connection.execute(_WORKERS_TABLE)
