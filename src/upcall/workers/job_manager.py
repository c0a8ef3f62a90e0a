"""procrastinate's jobs, changed only by the worker that has them."""

from __future__ import annotations

import os
import socket
from datetime import datetime

from procrastinate.connector import BaseConnector
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from procrastinate.utils import utcnow

_MINE = (
    "WITH mine AS MATERIALIZED (SELECT id FROM procrastinate_jobs WHERE id = %(job_id)s AND status = 'doing' "
    "AND worker_id IS NOT DISTINCT FROM %(worker_id)s FOR UPDATE) "
)
_FINISH = _MINE + "SELECT procrastinate_finish_job_v1(id, %(status)s, %(delete_job)s) FROM mine"
_RETRY = _MINE + "SELECT procrastinate_retry_job_v2(id, %(retry_at)s, NULL, NULL, NULL) FROM mine"
_INTRODUCE = (
    "INSERT INTO upcall_workers (id, host, process, concurrency) "
    "VALUES (%(worker_id)s, %(host)s, %(process)s, %(concurrency)s)"
)


class OwnedJobs(JobManager):
    """A worker that stood still for longer than its signs of life are waited for has lost its jobs to others.
    procrastinate 3.10 lets it finish them all the same when it goes on, under the hands of who has them now."""

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """Finish a job, unless somebody else has it now."""
        await self.connector.execute_query_async(
            _FINISH, job_id=job.id, worker_id=job.worker_id, status=status.value, delete_job=delete_job
        )

    async def retry_job(
        self,
        job: Job,
        retry_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        """Put a job back into the queue, unless somebody else has it now."""
        await self.connector.execute_query_async(
            _RETRY, job_id=job.id, worker_id=job.worker_id, retry_at=retry_at or utcnow()
        )


class IntroducedWorkers(OwnedJobs):
    """The jobs of workers that say who they are, for `upcall workers`."""

    def __init__(self, connector: BaseConnector, concurrency: int) -> None:
        super().__init__(connector)
        self._concurrency = concurrency

    async def register_worker(self) -> int:
        """Register a worker, with its host, process and concurrency."""
        worker_id = await super().register_worker()
        me = {"host": socket.gethostname(), "process": os.getpid(), "concurrency": self._concurrency}
        await self.connector.execute_query_async(_INTRODUCE, worker_id=worker_id, **me)
        return worker_id
