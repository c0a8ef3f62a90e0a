"""What is held, in the store: every process that works on its runs looks here before work begins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from upcall.runs.events import HoldPlaced, HoldReleased
from upcall.runs.holds import Hold, HoldKind
from upcall.runs.run import Run
from upcall.storage.connection import Connection
from upcall.storage.databases import Database
from upcall.storage.event_log import append_events
from upcall.storage.job_queue import JobQueue


class Holds:
    """The holds of a store.

    Args:
        database: the store's database.
        jobs: its queue, in which held runs wait.
    """

    def __init__(self, database: Database, jobs: JobQueue) -> None:
        self._database, self._jobs = database, jobs

    async def list(self) -> Sequence[Hold]:
        """List what is held, the longest held first."""
        return await self._database.read(_list, small=True) if await self._database.exists() else ()

    async def find(self, run: Run) -> Hold | None:
        """Return the hold that keeps work on a run from beginning; None if there is none."""
        return next((hold for hold in await self.list() if hold.is_about(run)), None)

    async def place(self, hold: Hold) -> Hold:
        """Store a hold, and return the one that is there: where the same is held already, it stays as it is."""
        return await self._database.write(partial(_place, hold=hold))

    async def release(self, kind: HoldKind, name: str, user: str | None) -> Hold | None:
        """Remove a hold, and let the runs that waited for that continue at once; return it, None if there was none."""
        return await self._database.write(partial(_release, kind=kind, name=name, user=user, jobs=self._jobs))


def _list(connection: Connection) -> Sequence[Hold]:
    query = "SELECT kind, name, reason, placed_by, at FROM upcall_holds ORDER BY at, kind, name"
    return [
        Hold(HoldKind(kind), name, reason, placed_by, datetime.fromtimestamp(at, UTC))
        for kind, name, reason, placed_by, at in connection.execute(query).fetchall()
    ]


def _find(connection: Connection, kind: HoldKind, name: str) -> Hold | None:
    return next((each for each in _list(connection) if (each.kind, each.name) == (kind, name)), None)


def _place(connection: Connection, *, hold: Hold) -> Hold:
    insert = (
        "INSERT INTO upcall_holds (kind, name, placed_by, reason, at) "
        "VALUES (:kind, :name, :placed_by, :reason, :at) ON CONFLICT (kind, name) DO NOTHING"
    )
    values = {"kind": hold.kind.value, "name": hold.name, "placed_by": hold.placed_by, "reason": hold.reason}
    if connection.execute(insert, {**values, "at": int(hold.at.timestamp())}).rowcount == 1:
        placed = HoldPlaced(user=hold.placed_by, kind=hold.kind.value, name=hold.name, reason=hold.reason)
        append_events(connection, "", [placed])
        return hold
    return _find(connection, hold.kind, hold.name) or hold


def _release(connection: Connection, *, kind: HoldKind, name: str, user: str | None, jobs: JobQueue) -> Hold | None:
    hold = _find(connection, kind, name)
    if hold is not None:
        values = {"kind": kind.value, "name": name}
        connection.execute("DELETE FROM upcall_holds WHERE kind = :kind AND name = :name", values)
        append_events(connection, "", [HoldReleased(user=user, kind=kind.value, name=name)])
        jobs.retry_now(connection)
    return hold
