"""The events of all runs in one log: appended with the write that they describe, read by whoever needs some types of
them.

The number of an event is a reader's position in its run: whoever has all events up to a number asks for those after
it, whatever they are. For that, the numbers of a run become visible in their order. SQLite has one writer at a time; on
PostgreSQL who appends holds the lock of the run's row before a number is taken. (Between runs nothing is promised: of
two that are written at once the one with the higher number may be seen first.)

Entries of a transcript that are added together share a row, compressed as one text: its ``detail`` is their segment,
its id the number of the last of them. The numbers of the others are those before it, unless the text says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

from upcall import identity
from upcall.errors import RunGone, SchemaMismatch
from upcall.runs.call_timings import WorkPeriod, read_work_period
from upcall.runs.events import DETAILED, EntryAdded, LogEntry, LogEvent, MessageSent, SegmentTimed
from upcall.runs.run import Run
from upcall.runs.transcript import TranscriptEntry
from upcall.storage.compression import Damaged, decode, encode
from upcall.storage.connection import Connection, Values
from upcall.storage.databases import Database
from upcall.storage.entry_blocks import dump_block, load_block
from upcall.storage.event_bodies import dump_event, load_event
from upcall.storage.run_rows import load_run, name_values

EventTypes: TypeAlias = Collection[type[LogEvent]]


class EventLog:
    """The event log of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, run_id: str, event: LogEvent) -> None:
        """Append an event that no other write of its run brings."""

        await self._database.write(partial(append_event, run_id=run_id, event=event))

    async def append_open(self, run_id: str, event: LogEvent) -> Run:
        """Append an event to a run, unless it is over, or has the same event already and that is a message; return the
        run as it was in that moment.

        Raises:
            RunGone: it was removed.
        """

        def work(connection: Connection) -> Run:
            lock_run(connection, run_id)
            row = connection.execute("SELECT record FROM upcall_runs WHERE id = :id", {"id": run_id}).fetchone()
            if row is None:
                raise RunGone(run_id, self._database.name)
            run = load_run(row[0], run_id)
            if not (run.is_final or (isinstance(event, MessageSent) and is_sent(connection, run_id, event.message))):
                append_events(connection, run_id, [event])
            return run

        return await self._database.write(work)

    async def read(
        self,
        run_id: str,
        after: int = 0,
        *,
        types: EventTypes | None = None,
        without: EventTypes = (),
        limit: int | None = None,
    ) -> Sequence[LogEntry]:
        """Read the log of a run, oldest first, after the entry with the id `after`. Optionally only some types of
        events, or all but some, at most `limit`."""
        values = {"run_id": run_id, "after": after}
        # A row of a transcript may have entries that come before those of earlier rows.
        some = limit if types is not None and EntryAdded not in types else None
        entries = await self._select(["run_id = :run_id", "id > :after"], values, types, without, some)
        return [each for each in entries if each.id > after][:limit]

    async def read_new(self, run_id: str, after: int, types: EventTypes) -> tuple[Sequence[LogEntry], int]:
        """Read the events of some types behind the entry with the id `after`, by a reader who was there: there are few,
        and no transcript is among them. Also return up to which entry that is."""
        chosen, named = choose_kinds(types)
        conditions = ["run_id = :run_id", "id > :after", "id <= :last", *chosen]

        def read(connection: Connection) -> tuple[Sequence[LogEntry], int]:
            last = find_last(connection, run_id)
            if last <= after:
                return (), after
            values = {"run_id": run_id, "after": after, "last": last, **named}
            return read_entries(connection, conditions, values), last

        return await self._database.read(read, small=True)

    async def find_last(self, run_id: str) -> int:
        """Return the id of the newest entry of a run; 0 if there is none."""
        return await self._database.read(partial(find_last, run_id=run_id))

    async def find_last_but(self, run_id: str, kind: type[LogEvent]) -> int:
        """Return the id of the newest entry of a run that is of another type; 0 if there is none."""
        return await self._database.read(partial(find_last, run_id=run_id, without=(kind,)), small=True)

    async def is_sent(self, run_id: str, message_id: str) -> bool:
        """Return whether a message to the agents of a run is stored."""
        return await self._database.read(partial(is_sent, run_id=run_id, message_id=message_id))

    async def call_timings(self, run_id: str) -> Sequence[WorkPeriod]:
        """List when teams were at work on a run, and the calls that they made, oldest first."""
        entries = await self.read(run_id, types=(SegmentTimed,))
        return [read_work_period(each.event) for each in entries if isinstance(each.event, SegmentTimed)]

    async def read_all(
        self,
        after: int = 0,
        *,
        types: EventTypes | None = None,
        user: str | None = None,
        limit: int | None = None,
    ) -> Sequence[LogEntry]:
        """Read the logs of all runs merged, oldest first, after the entry with the id `after`: of some types of events,
        if not named all but those in `DETAILED`, at most `limit`. For a user: entries of runs that are theirs, and
        their own actions elsewhere, except refusals."""
        if not await self._database.exists():
            return []
        conditions, values = ["id > :after"], dict[str, Any](after=after)
        if user is not None:
            owned = "SELECT 1 FROM upcall_runs r WHERE r.id = run_id AND owner = :user"
            conditions.append(f"(EXISTS ({owned}) OR (actor = :user AND kind <> 'refused'))")
            values["user"] = user
        return await self._select(conditions, values, types, DETAILED, limit)

    async def _select(
        self,
        conditions: Sequence[str],
        values: Values,
        types: EventTypes | None,
        without: EventTypes,
        limit: int | None,
    ) -> Sequence[LogEntry]:
        chosen, named = choose_kinds(types, without)
        return await self._database.read(
            lambda connection: read_entries(connection, [*conditions, *chosen], {**values, **named}, limit)
        )


# -- what is done in one transaction ----------------------------------------------------------------------------------

SELECT_ROWS = "SELECT id, run_id, at, kind, actor, detail, block FROM upcall_log"
INSERT_LOG = "INSERT INTO upcall_log (run_id, at, kind, actor, detail) VALUES (:run_id, :at, :kind, :actor, :detail)"
_INSERT_BLOCK = (
    "INSERT INTO upcall_log (id, run_id, at, kind, detail, block) VALUES (:id, :run_id, :at, :kind, :detail, :block)"
)


def choose_kinds(types: EventTypes | None, without: EventTypes = ()) -> tuple[list[str], dict[str, str]]:
    """Return the condition, if there is one, by which events are of some types, or of all but some; and its values."""
    names, named = name_values(each.type for each in (without if types is None else types))
    if types is not None:
        return [f"kind IN ({names or 'NULL'})"], named
    return [f"kind NOT IN ({names})"] if names else [], named


def is_sent(connection: Connection, run_id: str, message_id: str) -> bool:
    """Return whether a message to the agents of a run is stored."""
    chosen, named = choose_kinds((MessageSent,))
    sent = read_entries(connection, ["run_id = :run_id", *chosen], {"run_id": run_id, **named})
    return any(isinstance(each.event, MessageSent) and each.event.message == message_id for each in sent)


def find_last(connection: Connection, run_id: str, types: EventTypes | None = None, without: EventTypes = ()) -> int:
    """Return the id of a run's newest entry, of some types or of all but some; 0 if there is none."""
    chosen, named = choose_kinds(types, without)
    query = f"SELECT coalesce(max(id), 0) FROM upcall_log WHERE {' AND '.join(['run_id = :run_id', *chosen])}"
    return int(connection.execute(query, {"run_id": run_id, **named}).fetchone()[0])


def lock_run(connection: Connection, run_id: str) -> None:
    """Lock a run's row until the end of the transaction. A write of the row itself has done so."""
    if connection.dialect == "postgresql":
        connection.execute("SELECT 1 FROM upcall_runs WHERE id = :id FOR UPDATE", {"id": run_id})


def append_events(connection: Connection, run_id: str, events: Iterable[LogEvent], at: int | None = None) -> None:
    """Append events to the log of a run, whose row the caller has locked; `at` is when they happened, if not now."""
    at = int(identity.now().timestamp()) if at is None else at
    for segment, group in groupby(events, key=lambda event: event.segment if isinstance(event, EntryAdded) else None):
        some = list(group)
        if segment is not None:
            append_entries(
                connection, run_id, segment, [each.entry for each in some if isinstance(each, EntryAdded)], at
            )
            continue
        rows = [
            {"run_id": run_id, "at": at, "kind": each.type, "actor": each.user, "detail": dump_event(each, at)}
            for each in some
        ]
        connection.executemany(INSERT_LOG, rows)


def append_event(connection: Connection, run_id: str, event: LogEvent) -> None:
    """Append an event that no other write of its run brings."""
    lock_run(connection, run_id)
    append_events(connection, run_id, [event])


def append_entries(
    connection: Connection,
    run_id: str,
    segment: int,
    entries: Sequence[TranscriptEntry],
    at: int | None = None,
    *,
    merge: bool = False,
) -> None:
    """Append entries of a segment's transcript as one row.

    With `merge` those that the segment has are put into that row as well, each with the number that it has: together
    they take fewer bytes. Damaged ones are left as they are: a pause is stored all the same.
    """
    at = int(identity.now().timestamp()) if at is None else at
    known = list[tuple[int, TranscriptEntry]]()
    if merge:
        with suppress(SchemaMismatch):
            known = read_segment(connection, run_id, segment)
    if not entries and not known:
        return
    last = _take_numbers(connection, len(entries)) if entries else known[-1][0]
    numbers = [number for number, _ in known] + [*range(last - len(entries) + 1, last + 1)]
    block = encode(dump_block([*(entry for _, entry in known), *entries], at, numbers))
    if known:
        connection.execute(f"DELETE FROM upcall_log WHERE {_OF_SEGMENT}", _of_segment(run_id, segment))
    row = {"id": last, "run_id": run_id, "at": at, "kind": EntryAdded.type, "block": block}
    connection.execute(_INSERT_BLOCK, {**row, "detail": str(segment)})


def _take_numbers(connection: Connection, count: int) -> int:
    """Take so many numbers from the log, of which those of other runs may be in between; return the highest.

    The `count` numbers up to it are higher than all that the run had before.
    """
    if connection.dialect == "postgresql":
        query = "SELECT max(nextval(pg_get_serial_sequence('upcall_log', 'id'))) FROM generate_series(1, :count)"
    else:
        query = "SELECT coalesce(max(seq), 0) + :count FROM sqlite_sequence WHERE name = 'upcall_log'"
    return int(connection.execute(query, {"count": count}).fetchone()[0])


_OF_SEGMENT = "run_id = :run_id AND kind = :kind AND detail = :detail"


def _of_segment(run_id: str, segment: int) -> dict[str, Any]:
    return {"run_id": run_id, "kind": EntryAdded.type, "detail": str(segment)}


def read_segment(connection: Connection, run_id: str, segment: int) -> list[tuple[int, TranscriptEntry]]:
    """Read the transcript of one segment, oldest entry first, each with its number.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    # Most often the segment is new, and what there is is of earlier ones.
    newest = connection.execute(
        "SELECT detail FROM upcall_log WHERE run_id = :run_id AND kind = :kind ORDER BY id DESC LIMIT 1",
        {"run_id": run_id, "kind": EntryAdded.type},
    ).fetchone()
    if newest is None or int(newest[0]) < segment:
        return []
    entries = read_entries(connection, [_OF_SEGMENT], _of_segment(run_id, segment))
    return [(each.id, each.event.entry) for each in entries if isinstance(each.event, EntryAdded)]


def copy_entries(connection: Connection, run_id: str, new_id: str, before: int) -> None:
    """Copy to a fork the transcript of the segments that it shares with its run."""
    rows = connection.execute(
        f"{SELECT_ROWS} WHERE run_id = :run_id AND kind = :kind ORDER BY id",
        {"run_id": run_id, "kind": EntryAdded.type},
    ).fetchall()
    for row in rows:
        number, _, at, kind, _, segment, block = row
        if int(segment) < before:
            span = number - load_row(row)[0].id + 1  # With the gaps that it has.
            copy = {"id": _take_numbers(connection, span), "run_id": new_id, "at": at, "kind": kind}
            connection.execute(_INSERT_BLOCK, {**copy, "detail": segment, "block": block})


def read_entries(
    connection: Connection, conditions: Sequence[str], values: Values, limit: int | None = None
) -> list[LogEntry]:
    """Read the entries in the rows of the log that meet all conditions, oldest first.

    Raises:
        SchemaMismatch: one is damaged, or another version of upcall wrote it.
    """
    end = "" if limit is None else f" LIMIT {limit}"
    rows = connection.execute(f"{SELECT_ROWS} WHERE {' AND '.join(conditions)} ORDER BY id{end}", values).fetchall()
    found = [entry for row in rows for entry in load_row(row)]
    # A row of a segment that was merged at its end spans others.
    return sorted(found, key=lambda entry: entry.id) if any(row[3] == EntryAdded.type for row in rows) else found


def load_row(row: Sequence[Any]) -> list[LogEntry]:
    """Return the entries in a row of `SELECT_ROWS`.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    number, run_id, at, kind, actor, detail, block = row
    if kind != EntryAdded.type:
        return [LogEntry(number, run_id, format_seconds(at), load_event(kind, detail, at, actor))]
    try:
        segment, entries = int(detail), load_block(decode(block), at, number)
    except (Damaged, SchemaMismatch, ValueError, TypeError, LookupError) as error:
        raise SchemaMismatch(
            f"The transcript of run {run_id} is damaged, or another version of upcall wrote it. See what else is: "
            "upcall store check"
        ) from error
    return [
        LogEntry(each, run_id, entry.at.isoformat(), EntryAdded(segment=segment, entry=entry))
        for each, entry in entries
    ]


def format_seconds(at: int) -> str:
    """Format a stored time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat()
