"""Who works on which run: the leases in the rows of the runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from upcall.errors import RunBusy, RunConflict, RunGone, UserAtLimit
from upcall.runs.run import Run
from upcall.runs.states import UNDER_WAY, RunStatus
from upcall.storage import run_lists
from upcall.storage.connection import Connection, Work, join_work
from upcall.storage.databases import Database
from upcall.storage.leases import LeaseHolder, is_over
from upcall.storage.run_rows import STATUS_NUMBERS, list_numbers
from upcall.storage.stored_run import StoredRun

LIMIT_RECHECK_INTERVAL_S = 30.0
"""After how long, at most, a run is looked at again whose user has enough at work. Few that wait are looked at more
often than many."""


class RunLeases:
    """The leases of a store.

    Args:
        database: the store's database.
        seconds: how long a worker that does not renew its lease keeps a run.
    """

    def __init__(self, database: Database, seconds: float) -> None:
        self._database, self.seconds = database, seconds

    async def renew(self, stored: StoredRun, *, also: Work[object] | None = None) -> None:
        """Renew the lease. `also` is done in the same transaction.

        Raises:
            RunConflict: another worker has it now, or the run was cancelled. Nothing was written.
        """
        await self._database.write(join_work([partial(renew_lease, stored=stored), also]), small=True)

    async def release(self, stored: StoredRun, *, also: Work[object] | None = None) -> None:
        """Release the lease in the middle of the work: the run stays as it is, and its journal. `also` is done in the
        same transaction.

        Raises:
            RunConflict: the caller has the lease no longer. Nothing was written.
        """

        def end(connection: Connection) -> None:
            connection.execute(
                "UPDATE upcall_runs SET worker = NULL, renewed_at = NULL WHERE id = :id", {"id": stored.run.id}
            )

        await self._database.write(join_work([partial(renew_lease, stored=stored), end, also]))

    def refuse_over_limit(self, run: Run, limit: int | None, *, strict: bool = True) -> Work[None]:
        """Return what refuses, in a transaction, that one more run of a user is worked on than `limit` says. Only one
        that is `strict` sees what others claim at the same moment.

        Raises:
            UserAtLimit: from that.
        """
        since = time.time() - self.seconds

        def work(connection: Connection) -> None:
            if limit is not None and run.user is not None:
                if strict and connection.dialect == "postgresql":
                    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(:user, 0))", {"user": run.user})
                _refuse_over_limit(connection, run.id, run.user, limit, since)

        return work

    async def find_worker(self, stored: StoredRun) -> str | None:
        """Return who works on the run now; None if nobody does."""
        try:
            await self.wait_until_free(stored)
        except RunBusy as busy:
            return busy.worker
        return None

    async def find_interrupted(self, runs: Iterable[Run]) -> Collection[str]:
        """Find the ids of runs whose work was started and that nobody works on."""
        if not (ids := [run.id for run in runs if run.working]):
            return ()
        leases = await self._database.read(partial(run_lists.read_leases, ids=ids))
        over = {run_id: lease for run_id, lease, renewed_at in leases if is_over(lease, renewed_at, self.seconds)}
        if not over:
            return ()
        # A worker may have come to the pause of its run, and be gone, between that read and this look at it.
        again = await self._database.read(partial(run_lists.read_leases, ids=[*over]))
        return {run_id for run_id, lease, _ in again if over[run_id] == lease}

    async def refuse_busy(self, run_id: str) -> None:
        """Return if nobody works on the run with this id.

        Raises:
            RunBusy: somebody does.
        """
        query = "SELECT worker FROM upcall_runs WHERE id = :id"
        row = await self._database.read(lambda connection: connection.execute(query, {"id": run_id}).fetchone())
        if row is not None:
            await self._wait_for_end(run_id, row[0])

    async def wait_until_free(self, stored: StoredRun) -> None:
        """Return as soon as it is known that nobody works on the run.

        Raises:
            RunBusy: somebody does.
        """
        await self._wait_for_end(stored.run.id, stored.worker)

    async def _wait_for_end(self, run_id: str, lease: str | None) -> None:
        """Return if nobody works on the run.

        The time when a lease was renewed is that of another process, and a clock may be set back: a time that seems to
        be in the future is watched for as long as a lease lasts.

        Raises:
            RunBusy: somebody does.
        """
        worker = LeaseHolder.load(lease) if lease else None
        if worker is None or worker.is_gone():
            return
        renewed_at = await self._read_renewal(run_id)
        if renewed_at is None:
            return
        age = time.time() - renewed_at
        if age >= self.seconds:
            return
        if age >= 0:
            raise RunBusy(run_id, str(worker), self.seconds - age)
        await asyncio.sleep(self.seconds)
        if await self._read_renewal(run_id) not in (renewed_at, None):
            raise RunBusy(run_id, str(worker), self.seconds)

    async def _read_renewal(self, run_id: str) -> float | None:
        """Read when the lease was renewed; None where nobody has it any more."""
        query = "SELECT renewed_at FROM upcall_runs WHERE id = :id"
        row = await self._database.read(lambda connection: connection.execute(query, {"id": run_id}).fetchone())
        if row is None:
            raise RunGone(run_id, self._database.name)
        return None if row[0] is None else float(row[0])


def lease_columns(worker: str | None) -> dict[str, Any]:
    """Give the columns of a lease that begins or is renewed now; empty ones where nobody has it."""
    return {"worker": worker, "renewed_at": None if worker is None else time.time()}


def _refuse_over_limit(connection: Connection, run_id: str, user: str, limit: int, since: float) -> None:
    query = (
        "SELECT count(CASE WHEN worker IS NOT NULL AND renewed_at > :since AND id <> :id THEN 1 END), "
        f"count(CASE WHEN status = {STATUS_NUMBERS[RunStatus.QUEUED]} THEN 1 END) FROM upcall_runs "
        f"WHERE status IN ({list_numbers(UNDER_WAY)}) AND owner = :user"
    )
    working, queued = connection.execute(query, {"user": user, "since": since, "id": run_id}).fetchone()
    if working >= limit:
        raise UserAtLimit(run_id, user, limit, min(LIMIT_RECHECK_INTERVAL_S, 1 + queued / 20))


def renew_lease(connection: Connection, stored: StoredRun) -> None:
    """Renew the lease of a run.

    Raises:
        RunConflict: the caller has it no longer.
    """
    values = {"id": stored.run.id, "worker": stored.worker, "now": time.time()}
    update = "UPDATE upcall_runs SET renewed_at = :now WHERE id = :id AND worker = :worker"
    if stored.worker is None or connection.execute(update, values).rowcount != 1:
        raise RunConflict(stored.run.id)
