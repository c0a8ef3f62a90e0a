"""The events of all runs in one log: appended with the write that they describe, read by whoever needs some types of
them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from upcall import identity
from upcall.runs.call_timings import WorkPeriod, read_work_period
from upcall.runs.events import LogEntry, LogEvent, SegmentTimed
from upcall.storage.connection import Connection, Values
from upcall.storage.databases import Database
from upcall.storage.event_bodies import dump_event, load_event
from upcall.storage.run_rows import name_values

EventTypes: TypeAlias = Collection[type[LogEvent]]


class EventLog:
    """The event log of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, run_id: str, event: LogEvent) -> None:
        """Append an event that no other write of its run brings."""
        await self._database.write(lambda connection: append_events(connection, run_id, [event]))

    async def read(
        self, run_id: str, after: int = 0, *, types: EventTypes | None = None, limit: int | None = None
    ) -> Sequence[LogEntry]:
        """Read the log of a run, oldest first, after the entry with the id `after`; not its times.
        Optionally only some types of events, at most `limit`."""
        values = {"run_id": run_id, "after": after}
        return await self._select(["run_id = :run_id", "id > :after"], values, types, limit)

    async def call_timings(self, run_id: str) -> Sequence[WorkPeriod]:
        """List when teams were at work on a run, and the calls that they made, oldest first."""
        entries = await self._select(["run_id = :run_id"], {"run_id": run_id}, (SegmentTimed,))
        return [read_work_period(each.event) for each in entries if isinstance(each.event, SegmentTimed)]

    async def read_all(
        self,
        after: int = 0,
        *,
        types: EventTypes | None = None,
        user: str | None = None,
        limit: int | None = None,
    ) -> Sequence[LogEntry]:
        """Read the logs of all runs merged, oldest first, after the entry with the id `after`: of
        some types of events, at most `limit`. For a user: entries of runs that are theirs, and their own
        actions elsewhere, except refusals."""
        if not await self._database.exists():
            return []
        conditions, values = ["id > :after"], dict[str, Any](after=after)
        if user is not None:
            owned = "SELECT 1 FROM upcall_runs r WHERE r.id = run_id AND owner = :user"
            conditions.append(f"(EXISTS ({owned}) OR (actor = :user AND kind <> 'refused'))")
            values["user"] = user
        return await self._select(conditions, values, types, limit)

    async def _select(
        self, conditions: Sequence[str], values: Values, types: EventTypes | None, limit: int | None = None
    ) -> Sequence[LogEntry]:
        names, named = name_values(each.type for each in (types if types is not None else (SegmentTimed,)))
        chosen = f"kind IN ({names or 'NULL'})" if types is not None else f"kind NOT IN ({names})"
        query = (
            f"SELECT id, run_id, at, kind, actor, detail FROM upcall_log WHERE {' AND '.join([*conditions, chosen])} "
            f"ORDER BY id{'' if limit is None else f' LIMIT {limit}'}"
        )
        rows = await self._database.read(lambda connection: connection.execute(query, {**values, **named}).fetchall())
        return [
            LogEntry(number, run_id, format_seconds(at), load_event(kind, detail, at, actor))
            for number, run_id, at, kind, actor, detail in rows
        ]


def append_events(connection: Connection, run_id: str, events: Iterable[LogEvent]) -> None:
    """Append events to the log of a run."""
    at = int(identity.now().timestamp())
    rows = [
        {"run_id": run_id, "at": at, "kind": each.type, "actor": each.user, "detail": dump_event(each, at)}
        for each in events
    ]
    if rows:
        connection.executemany(INSERT_LOG, rows)


INSERT_LOG = "INSERT INTO upcall_log (run_id, at, kind, actor, detail) VALUES (:run_id, :at, :kind, :actor, :detail)"


def format_seconds(at: int) -> str:
    """Format a stored time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat()
