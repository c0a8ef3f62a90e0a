"""procrastinate's jobs, changed only by the worker that owns them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from procrastinate.connector import BaseConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from procrastinate.utils import utcnow

from upcall import identity
from upcall.storage import upgrades

RETRY_DELAY_S = 1.0

# IS NOT DISTINCT FROM: a job whose worker's entry was deleted names no worker, and is rescued too.
_MINE = (
    "WITH mine AS MATERIALIZED (SELECT id FROM procrastinate_jobs WHERE id = %(job_id)s AND status = 'doing' "
    "AND worker_id IS NOT DISTINCT FROM %(worker_id)s FOR UPDATE) "
)
_FINISH = _MINE + "SELECT procrastinate_finish_job_v1(id, %(status)s, %(delete_job)s) FROM mine"
_RETRY = _MINE + "SELECT procrastinate_retry_job_v2(id, %(retry_at)s, NULL, NULL, NULL) FROM mine"
_INTRODUCE = (
    "INSERT INTO upcall_workers (id, host, process, concurrency, version, format, team) "
    "VALUES (%(worker_id)s, %(host)s, %(process)s, %(concurrency)s, %(version)s, %(format)s, %(team)s)"
)
_LOOK = (
    "SELECT EXISTS (SELECT 1 FROM upcall_holds WHERE kind = 'queue') AS held, "
    "(SELECT json_object_agg(key, value) FROM upcall_meta) AS noted"
)


class OwnedJobs(JobManager):
    """Jobs that only their present worker can finish. A worker suspended for longer than others wait for its signs of
    life has lost its jobs to them; procrastinate 3.10 lets it finish them anyway when it wakes up."""

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """Finish a job, unless another worker has it now."""
        await self._change(job, _FINISH, status=status.value, delete_job=delete_job)

    async def retry_job(
        self,
        job: Job,
        retry_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        """Put a job back into the queue, unless another worker has it now."""
        await self._change(job, _RETRY, retry_at=retry_at or utcnow())

    async def _change(self, job: Job, query: str, **values: Any) -> None:
        await self.connector.execute_query_async(query, job_id=job.id, worker_id=job.worker_id, **values)


class IntroducedWorkers(OwnedJobs):
    """The jobs of workers that register by name, for `upcall workers`, and that retry reports of a job's end: nobody
    takes up a job that a live worker seems to have, and procrastinate 3.10 reports its end only once."""

    def __init__(self, connector: BaseConnector, store: str, concurrency: int, team: str | None) -> None:
        super().__init__(connector)
        self._store, self._concurrency, self._team, self._insists = store, concurrency, team, True

    def stop_insisting(self) -> None:
        """Leave to others what cannot be reported now: the worker ends, and they notice."""
        self._insists = False

    async def _change(self, job: Job, query: str, **values: Any) -> None:
        while True:
            try:
                return await super()._change(job, query, **values)
            except ConnectorException:  # A full disk, a server that restarts.
                if not self._insists:
                    raise
            await asyncio.sleep(RETRY_DELAY_S)

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        """Take a job, unless an operator holds the queue.

        Raises:
            NewerFormat: the store was contracted while this worker was suspended: it must not work on it any more.
        """
        found = await self.connector.execute_query_one_async(_LOOK)
        upgrades.refuse_unknown(upgrades.parse_formats(found["noted"], self._store), self._store)
        return None if found["held"] else await super().fetch_job(queues, worker_id)

    async def register_worker(self) -> int:
        """Register a worker, with its host, process and concurrency, its version of upcall and its team."""
        worker_id = await super().register_worker()
        me = {
            "host": socket.gethostname(),
            "process": os.getpid(),
            "concurrency": self._concurrency,
            "version": identity.version(),
            "format": 1 + len(upgrades.STEPS),
            "team": self._team,
        }
        await self.connector.execute_query_async(_INTRODUCE, worker_id=worker_id, **me)
        return worker_id
