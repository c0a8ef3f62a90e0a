"""The store of runs: an SQLite file or a PostgreSQL database. A write names the version it follows, or is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from upcall import identity
from upcall.errors import (
    AlreadyAnswered,
    ConfigurationError,
    RunBusy,
    RunConflict,
    RunGone,
    SchemaMismatch,
    TooLarge,
    UnknownRun,
    UserAtLimit,
)
from upcall.questions.answer import Answer, Outcome
from upcall.runs.call_timings import WorkPeriod, read_work_period
from upcall.runs.events import LogEntry, LogEvent, SegmentTimed
from upcall.runs.run import Run
from upcall.runs.run_changes import list_events
from upcall.runs.states import UNDER_WAY, RunStatus
from upcall.storage import checkpoints, run_lists
from upcall.storage.asked_kinds import count_closed
from upcall.storage.compression import SHORT, Damaged, decode, encode
from upcall.storage.connection import Connection, Values, Work, database_errors, join_work
from upcall.storage.databases import Database, Synchronous, is_unreadable, open_database, run_in_thread
from upcall.storage.event_bodies import dump_event, load_event
from upcall.storage.jobs import JobQueue
from upcall.storage.leases import LeaseHolder, is_over, take_lease
from upcall.storage.outbox import Outbox
from upcall.storage.run_lists import RunPage, Viewer, read_queued
from upcall.storage.run_rows import (
    COLUMNS,
    STATUS_NUMBERS,
    derive_columns,
    dump_run,
    list_numbers,
    load_run,
    name_values,
)
from upcall.storage.schema import list_of_run
from upcall.storage.uploads import Uploads

if TYPE_CHECKING:
    from upcall.runs.checkpoint import Checkpoint

T = TypeVar("T")

MAX_STATE_BYTES = 100_000_000

LIMIT_RECHECK_INTERVAL_S = 30.0
"""After how long, at most, a run is looked at again whose user has enough at work. Few that wait are looked at more
often than many."""

Listener: TypeAlias = Callable[[Run, Sequence[LogEvent]], Work[object] | None]
"""Is given each change of a run before it is stored: the run as it will be, and what happened to it. The work that it
returns is done in the same transaction, so that it is stored with the change or not at all; what it raises refuses the
change."""


EventTypes: TypeAlias = Collection[type[LogEvent]]


class AnswersQueued(Exception):
    """A run that is to pause or to end has got an answer in that very moment: take it in, then store the run."""


@dataclass(frozen=True)
class StoredRun:
    """A run as stored. `version` counts its writes; a write names the version it follows. `worker` is
    the holder of its lease."""

    run: Run
    checkpoint: Checkpoint
    version: int
    worker: str | None = None
    journal: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """The journal since the checkpoint, as stored when the run was created, read or claimed."""

    @cached_property
    def records(self) -> Mapping[str, str]:
        """The records of the journal by their keys.

        Raises:
            SchemaMismatch: a record is damaged.
        """
        return decode_records(self.run.id, self.journal)


class RunStore:
    """Runs in an SQLite file or a PostgreSQL database.

    An object can be used from several event loops, and leaves nothing open beyond them.

    Args:
        location: a file name, a URL ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/DATABASE``. The first write
            creates the file and the tables, but not the folder or the database.
        lease_seconds: how long a worker that does not renew its lease keeps a run. If its process on this
            machine has ended, it loses the run at once.
        max_state_bytes: the maximum size of a checkpoint, the record of a run, or a record of its
            journal, as JSON; anything larger is not stored.
        synchronous: for an SQLite file: ``full`` waits for the disk at each write, ``normal`` may lose the last writes
            in a power failure, but never half of one.
        listeners: makes those that are given each change; called at the first one.

    Raises:
        ConfigurationError: the URL names another kind of database, or its driver is not installed.
        StoreUnavailable: from every call, if the database cannot be opened, read or written.
        SchemaMismatch: from every call, if the database was written by another version of upcall, or is damaged.
    """

    def __init__(
        self,
        location: str | Path,
        *,
        lease_seconds: float = 15.0,
        max_state_bytes: int = MAX_STATE_BYTES,
        synchronous: Synchronous = "normal",
        listeners: Callable[[], Sequence[Listener]] = tuple,
    ) -> None:
        self.database: Database = open_database(location, synchronous)
        self.jobs = JobQueue(self.database)
        self.outbox = Outbox(self.database)
        self.uploads = Uploads(self.database)
        self._make_listeners = listeners
        self.on_change: Callable[[Run, Run], None] | None = None
        """Is given a run before and after each change, once it is stored; it must not raise."""
        self.lease_seconds = lease_seconds
        self.max_state_bytes = max_state_bytes

    @cached_property
    def _listeners(self) -> Sequence[Listener]:
        return self._make_listeners()

    @property
    def name(self) -> str:
        """Its location for messages: the file, or the URL without its password."""
        return self.database.name

    @property
    def file(self) -> Path | None:
        """The file; None for a server's database."""
        return self.database.file

    async def exists(self) -> bool:
        """Return whether there is anything to read: the file may not exist yet."""
        return await self.database.exists()

    async def close(self) -> None:
        """Close the connections of the running event loop. The next call opens new ones; otherwise the end of the loop
        closes them."""
        await self.database.close()

    async def create(
        self,
        run: Run,
        checkpoint: Checkpoint,
        records: Mapping[str, str] = MappingProxyType({}),
        *,
        also: Work[object] | None = None,
    ) -> StoredRun:
        """Store a new run with its first checkpoint, and what its journal has already. Where it is to be worked on, the
        lease is the caller's. `also` is done in the same transaction.

        Raises:
            ConfigurationError: there is a run with this id.
            TooLarge: the run or the checkpoint is larger than the store accepts.
        """
        worker = take_lease(LeaseHolder()).dump() if run.working else None
        row, state = self.prepare_run(run), self.dump_checkpoint(run, checkpoint)
        events = list_events(None, run)
        joined = join_work(listener(run, events) for listener in self._listeners)
        small = len(state) < SHORT
        whole = encode(state) if small else await run_in_thread(partial(encode, state))

        def work(connection: Connection) -> Mapping[str, bytes]:
            insert_run(connection, run.id, {**row, "version": 1, **lease_columns(worker)})
            checkpoints.insert_whole(connection, run.id, 1, whole)
            put_records(connection, run.id, records)
            add_to_log(connection, run.id, events)
            if joined is not None:
                joined(connection)
            if also is not None:
                also(connection)
            return read_journal(connection, run.id) if records else {}

        put = await self.database.write(work, small=small)
        return StoredRun(run, checkpoint, 1, worker, put)

    async def load(self, run_id: str) -> StoredRun:
        """Load the run with this id, or the only one whose id starts with it (four characters or more).

        Raises:
            UnknownRun: there is none, or there are several.
            SchemaMismatch: its stored data is damaged.
        """
        return await self._read_known(run_id, _load)

    async def load_run(self, run_id: str) -> Run:
        """Load only the run, for viewing, with the answers that are queued for it (see `Run.show_queued`).

        Raises:
            UnknownRun: there is none, or there are several.
            SchemaMismatch: its record is damaged.
        """
        return await self._read_known(run_id, _load_run)

    async def _read_known(self, run_id: str, read: Callable[[Connection, str, str], T]) -> T:
        """Read what belongs to a run that is to be there, or to the only one whose id starts so."""
        if not await self.exists():
            raise UnknownRun(run_id, f"the store {self.name} does not exist")
        return await self.database.read(lambda connection: read(connection, run_id, self.name))

    async def find(self, run_id: str, viewer: Viewer | None = None) -> Sequence[str]:
        """Find the run with this id, or else those whose id starts with it (four characters or more), three at most; of
        those that a viewer sees. Nothing else of them is read."""
        if not await self.exists():
            return []
        return await self.database.read(partial(run_lists.find_ids, prefix=run_id, viewer=viewer))

    async def checkpoint(self, run_id: str, version: int) -> Checkpoint:
        """Load one of the checkpoints of a run; `versions` lists them.

        Raises:
            UnknownRun: there is none of this version.
            SchemaMismatch: it is damaged.
        """
        return await self.database.read(partial(checkpoints.load_at, run_id=run_id, version=version))

    async def checkpoints(self, run_id: str) -> Sequence[Checkpoint]:
        """Load all checkpoints of a run, oldest first, without damaged ones."""
        return await self.database.read(partial(_load_checkpoints, run_id=run_id))

    async def versions(self, run_id: str) -> list[int]:
        """List the versions of a run that have a checkpoint, oldest first."""
        return await self.database.read(partial(checkpoints.list_versions, run_id=run_id))

    async def save(
        self,
        stored: StoredRun,
        run: Run,
        checkpoint: Checkpoint | None = None,
        *,
        also: Work[object] | None = None,
    ) -> StoredRun:
        """Store the next version of a run, all of it or nothing; without a checkpoint the last one stays. Answers that
        the run now has are taken out of the queue. A checkpoint ends the journal of what was done before it; a run that
        is not worked on has no lease. `also` is done in the same transaction.

        Raises:
            RunConflict: the stored version is not the one that `stored` has.
            AnswersQueued: an answer to an open question of `stored` is queued that the run does not know yet, and the
                run is to wait, or to drop or cancel that question. Nothing was written.
            TooLarge: the run or the checkpoint is larger than the store accepts.
        """
        worker = stored.worker if run.working else None

        def end(connection: Connection) -> Mapping[str, bytes]:
            if also is not None:
                also(connection)
            if checkpoint is None and not run.is_final:
                return stored.journal
            connection.execute("DELETE FROM upcall_journal WHERE run_id = :run_id", {"run_id": run.id})
            return {}

        return await self._write(stored, run, checkpoint, worker, end)

    async def claim(
        self,
        stored: StoredRun,
        run: Run,
        checkpoint: Checkpoint | None = None,
        records: Mapping[str, str | None] | None = None,
        *,
        also: Work[object] | None = None,
    ) -> StoredRun:
        """As `save`, by who takes the run over and, where it is to be worked on, gets its lease. The journal goes on,
        with `records` in it. `also` is done in the same transaction.

        Raises:
            RunConflict: also where the journal is not the one that `stored` has.
            RunBusy: another worker has the lease, and lives.
        """
        self.refuse_large(run.id, records or {})
        await self._wait_for_lease(stored)
        worker = take_lease(LeaseHolder()).dump() if run.working else None

        def end(connection: Connection) -> Mapping[str, bytes]:
            if read_journal(connection, run.id) != stored.journal:
                raise RunConflict(run.id)
            if also is not None:
                also(connection)
            put_records(connection, run.id, records or {})
            return read_journal(connection, run.id) if records else stored.journal

        return await self._write(stored, run, checkpoint, worker, end)

    async def _write(
        self,
        stored: StoredRun,
        run: Run,
        checkpoint: Checkpoint | None,
        worker: str | None,
        end: Work[Mapping[str, bytes]],
    ) -> StoredRun:
        version = stored.version + 1
        row = self.prepare_run(run)
        state = None if checkpoint is None else self.dump_checkpoint(run, checkpoint)
        events = list_events(stored.run, run)
        joined = join_work(listener(run, events) for listener in self._listeners)
        small = state is None or len(state) < SHORT
        # Before the transaction begins: others wait for its end.
        whole = None if state is None else encode(state) if small else await run_in_thread(partial(encode, state))

        def work(connection: Connection) -> Mapping[str, bytes]:
            more = {"id": run.id, "version": version, "before": stored.version}
            update = {**row, **more, **lease_columns(worker)}
            if connection.execute(_UPDATE_RUN, update).rowcount != 1:
                raise RunConflict(run.id) if is_stored(connection, run.id) else RunGone(run.id, self.name)
            _take_queued(connection, stored.run, run)
            count_closed(connection, stored.run, run)
            if state is not None and whole is not None:
                checkpoints.append_checkpoint(connection, run.id, version, state, whole)
            add_to_log(connection, run.id, events)
            if joined is not None:
                joined(connection)
            return end(connection)

        left = await self.database.write(work, small=small)
        if self.on_change is not None:
            self.on_change(stored.run, run)
        return StoredRun(run, checkpoint or stored.checkpoint, version, worker, left)

    def prepare_run(self, run: Run) -> dict[str, Any]:
        """Return the columns that store a run; refuse one that is too large."""
        text = dump_run(run)
        self._refuse_large(f"The record of run {run.id}", len(text))
        return {**derive_columns(run), "record": encode(text)}

    def dump_checkpoint(self, run: Run, checkpoint: Checkpoint) -> bytes:
        """Return the JSON text of a checkpoint of a run's team; refuse one that is too large."""
        text = checkpoint.dump().encode()
        self._refuse_large(f"The state of the team of run {run.id}", len(text))
        return text

    def _refuse_large(self, what: str, size: int) -> None:
        if size > self.max_state_bytes:
            raise TooLarge(what, size, self.max_state_bytes)

    async def delete(self, run_id: str) -> str:
        """Remove a run and everything that belongs to it, damaged or not; return its id. Like `load`, accepts the
        beginning of an id. Uploaded files stay while another run reads them.

        Raises:
            UnknownRun: there is none, or there are several.
            RunBusy: a worker has its lease, and lives.
        """
        found = await self._read_known(run_id, find_id)
        await self._refuse_busy(found)
        await self.database.write(partial(delete_run, run_id=found))
        await self.uploads.remove(await self.uploads.find_unused([found]))
        return found

    # -- the lease ----------------------------------------------------------------------------------------------------

    async def renew_lease(self, stored: StoredRun, *, also: Work[object] | None = None) -> None:
        """Renew the lease. `also` is done in the same transaction.

        Raises:
            RunConflict: another worker has it now, or the run was cancelled. Nothing was written.
        """

        def work(connection: Connection) -> None:
            _renew_lease(connection, stored)
            if also is not None:
                also(connection)

        await self.database.write(work, small=True)

    async def release(self, stored: StoredRun, *, also: Work[object] | None = None) -> None:
        """Release the lease in the middle of the work: the run stays as it is, and its journal. `also` is done in the
        same transaction.

        Raises:
            RunConflict: the caller has the lease no longer. Nothing was written.
        """

        def work(connection: Connection) -> None:
            _renew_lease(connection, stored)
            connection.execute(
                "UPDATE upcall_runs SET worker = NULL, renewed_at = NULL WHERE id = :id", {"id": stored.run.id}
            )
            if also is not None:
                also(connection)

        await self.database.write(work)

    def refuse_over_limit(self, run: Run, limit: int | None, *, strict: bool = True) -> Work[None]:
        """Return what refuses, in a transaction, that one more run of a user is worked on than `limit` says. Only one
        that is `strict` sees what others claim at the same moment.

        Raises:
            UserAtLimit: from that.
        """
        since = time.time() - self.lease_seconds

        def work(connection: Connection) -> None:
            if limit is not None and run.user is not None:
                if strict and connection.dialect == "postgresql":
                    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(:user, 0))", {"user": run.user})
                _refuse_over_limit(connection, run.id, run.user, limit, since)

        return work

    async def at_work(self, stored: StoredRun) -> str | None:
        """Return who works on the run now; None if nobody does."""
        try:
            await self._wait_for_lease(stored)
        except RunBusy as busy:
            return busy.worker
        return None

    async def find_interrupted(self, runs: Iterable[Run]) -> Collection[str]:
        """Find the ids of runs whose work was started and that nobody works on."""
        if not (ids := [run.id for run in runs if run.working]):
            return ()
        leases = await self.database.read(partial(run_lists.read_leases, ids=ids))
        over = {run_id: lease for run_id, lease, renewed_at in leases if is_over(lease, renewed_at, self.lease_seconds)}
        if not over:
            return ()
        # A worker may have come to the pause of its run, and be gone, between that read and this look at it.
        again = await self.database.read(partial(run_lists.read_leases, ids=[*over]))
        return {run_id for run_id, lease, _ in again if over[run_id] == lease}

    async def _refuse_busy(self, run_id: str) -> None:
        query = "SELECT worker FROM upcall_runs WHERE id = :id"
        row = await self.database.read(lambda connection: connection.execute(query, {"id": run_id}).fetchone())
        if row is not None:
            await self._wait_for_end(run_id, row[0])

    async def _wait_for_lease(self, stored: StoredRun) -> None:
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
        if age >= self.lease_seconds:
            return
        if age >= 0:
            raise RunBusy(run_id, str(worker), self.lease_seconds - age)
        await asyncio.sleep(self.lease_seconds)
        if await self._read_renewal(run_id) not in (renewed_at, None):
            raise RunBusy(run_id, str(worker), self.lease_seconds)

    async def _read_renewal(self, run_id: str) -> float | None:
        """Read when the lease was renewed; None where nobody has it any more."""
        query = "SELECT renewed_at FROM upcall_runs WHERE id = :id"
        row = await self.database.read(lambda connection: connection.execute(query, {"id": run_id}).fetchone())
        if row is None:
            raise RunGone(run_id, self.name)
        return None if row[0] is None else float(row[0])

    # -- the journal and the log --------------------------------------------------------------------------------------

    async def record(self, stored: StoredRun, records: Mapping[str, str | None]) -> None:
        """Write into the journal of a run: a text for each key, None to remove the key. It renews the lease.

        Raises:
            RunConflict: the caller has the lease no longer. Nothing was written.
            TooLarge: a text is larger than the store accepts. Nothing was written.
        """
        self.refuse_large(stored.run.id, records)
        small = sum(len(text) for text in records.values() if text is not None) < SHORT

        def work(connection: Connection) -> None:
            _renew_lease(connection, stored)
            put_records(connection, stored.run.id, records)

        await self.database.write(work, small=small)

    def refuse_large(self, run_id: str, records: Mapping[str, str | None]) -> None:
        """Refuse records of a journal that can never be written.

        Raises:
            TooLarge: a text is larger than the store accepts.
        """
        size = max((len(text) for text in records.values() if text is not None), default=0)
        self._refuse_large(f"What is to be journalled of run {run_id}", size)

    async def journal(self, run_id: str) -> dict[str, str]:
        """Return the journal since the run's last checkpoint: the records by their keys.

        Raises:
            SchemaMismatch: a record is damaged.
        """
        return decode_records(run_id, await self.database.read(partial(read_journal, run_id=run_id)))

    async def note(self, run_id: str, event: LogEvent) -> None:
        """Add to the log of a run what no other write says."""
        await self.database.write(lambda connection: add_to_log(connection, run_id, [event]))

    async def log(
        self, run_id: str, after: int = 0, *, types: EventTypes | None = None, limit: int | None = None
    ) -> Sequence[LogEntry]:
        """Return the log of a run, oldest first, after the entry with the id `after`; not its times.
        Optionally only some types of events, at most `limit`."""
        values = {"run_id": run_id, "after": after}
        return await self._entries(["run_id = :run_id", "id > :after"], values, types, limit)

    async def call_timings(self, run_id: str) -> Sequence[WorkPeriod]:
        """List when teams were at work on a run, and the calls that they made, oldest first."""
        entries = await self._entries(["run_id = :run_id"], {"run_id": run_id}, (SegmentTimed,))
        return [read_work_period(each.event) for each in entries if isinstance(each.event, SegmentTimed)]

    async def trail(
        self,
        after: int = 0,
        *,
        types: EventTypes | None = None,
        user: str | None = None,
        limit: int | None = None,
    ) -> Sequence[LogEntry]:
        """Return the logs of all runs merged, oldest first, after the entry with the id `after`: of
        some types of events, at most `limit`. For a user: entries of runs that are theirs, and their own
        actions elsewhere, except refusals."""
        if not await self.exists():
            return []
        conditions, values = ["id > :after"], dict[str, Any](after=after)
        if user is not None:
            owned = "SELECT 1 FROM upcall_runs r WHERE r.id = run_id AND owner = :user"
            conditions.append(f"(EXISTS ({owned}) OR (actor = :user AND kind <> 'refused'))")
            values["user"] = user
        return await self._entries(conditions, values, types, limit)

    async def _entries(
        self, conditions: Sequence[str], values: Values, types: EventTypes | None, limit: int | None = None
    ) -> Sequence[LogEntry]:
        names, named = name_values(each.type for each in (types if types is not None else (SegmentTimed,)))
        chosen = f"kind IN ({names or 'NULL'})" if types is not None else f"kind NOT IN ({names})"
        query = (
            f"SELECT id, run_id, at, kind, actor, detail FROM upcall_log WHERE {' AND '.join([*conditions, chosen])} "
            f"ORDER BY id{'' if limit is None else f' LIMIT {limit}'}"
        )
        rows = await self.database.read(lambda connection: connection.execute(query, {**values, **named}).fetchall())
        return [
            LogEntry(number, run_id, format_seconds(at), load_event(kind, detail, at, actor))
            for number, run_id, at, kind, actor, detail in rows
        ]

    # -- queued answers -----------------------------------------------------------------------------------------------

    async def enqueue_answers(
        self, run_id: str, answers: Sequence[Answer], *, owned: bool = False, also: Work[object] | None = None
    ) -> bool:
        """Queue answers for whoever works on the run. Return False, and queue nothing, if nobody is at work on it, or a
        question is no longer open. `also` is done in the same transaction if they are queued.

        Args:
            run_id: the run.
            answers: answers to its open questions.
            owned: whether who gives them may not find out what somebody else answered.

        Raises:
            AlreadyAnswered: another answer to the same question has been queued already; or any, by somebody else,
                where they are ``owned``.
        """

        def work(connection: Connection) -> bool:
            queued = _enqueue(connection, run_id, answers, self.name, owned=owned)
            if queued and also is not None:
                also(connection)
            return queued

        return await self.database.write(work)

    async def queued_answers(self, run_id: str) -> Sequence[Answer]:
        """List the answers that are queued for whoever works on the run."""
        return await self.database.read(partial(read_queued, run_id=run_id))

    # -- lists --------------------------------------------------------------------------------------------------------

    async def list(
        self,
        viewer: Viewer | None = None,
        *,
        statuses: Collection[RunStatus] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> RunPage:
        """List the newest runs, as `load_run` gives them: of those that a viewer sees, or in one of some statuses;
        `limit` at most, behind the one with the id `before`.

        Raises:
            UnknownRun: there is no run `before`.
        """
        if not await self.exists():
            return RunPage()
        page = partial(run_lists.list_runs, viewer=viewer, statuses=statuses, limit=limit, before=before)
        return await self.database.read(page)

    async def list_open(self, viewer: Viewer | None = None, *, limit: int | None = None) -> RunPage:
        """List the runs that have an open question, oldest question first. A run whose answer is queued is
        included, and shown as answered."""
        if not await self.exists():
            return RunPage()
        return await self.database.read(partial(run_lists.list_open, viewer=viewer, limit=limit))

    async def list_due(self, now: datetime) -> Sequence[str]:
        """List the ids of the runs with a due action on a question, longest due first. Nothing else of them is
        read."""
        if not await self.exists():
            return []
        return await self.database.read(partial(run_lists.list_due, now=now))


# -- what is done in one transaction ----------------------------------------------------------------------------------

_ROW = ("id", "version", "worker", "renewed_at", *COLUMNS)
_INSERT_RUN = (
    f"INSERT INTO upcall_runs ({', '.join(_ROW)}) VALUES ({', '.join(f':{each}' for each in _ROW)}) "
    "ON CONFLICT (id) DO NOTHING"
)
_UPDATE_RUN = (
    f"UPDATE upcall_runs SET {', '.join(f'{each} = :{each}' for each in _ROW[1:])} WHERE id = :id AND version = :before"
)


def insert_run(connection: Connection, run_id: str, row: Values) -> None:
    """Store the row of a new run.

    Raises:
        ConfigurationError: its id is taken.
    """
    if connection.execute(_INSERT_RUN, {"id": run_id, **row}).rowcount != 1:
        raise ConfigurationError(f"There is a run {run_id} in the store already. Choose another id.")


def update_run(connection: Connection, run_id: str, before: int, row: Values) -> None:
    """Store the row of a run, whatever its status."""
    connection.execute(_UPDATE_RUN, {"id": run_id, "before": before, **row})


def lease_columns(worker: str | None) -> dict[str, Any]:
    """Give the columns of a lease that begins or is renewed now; empty ones where nobody has it."""
    return {"worker": worker, "renewed_at": None if worker is None else time.time()}


def is_stored(connection: Connection, run_id: str) -> bool:
    """Return whether there is a run with this id."""
    return connection.execute("SELECT 1 FROM upcall_runs WHERE id = :id", {"id": run_id}).fetchone() is not None


def delete_run(connection: Connection, run_id: str) -> None:
    """Remove a run and everything that belongs to it."""
    for table in list_of_run(connection):
        connection.execute(f"DELETE FROM {table.name} WHERE run_id = :run_id", {"run_id": run_id})
    connection.execute("DELETE FROM upcall_runs WHERE id = :run_id", {"run_id": run_id})


def _load(connection: Connection, run_id: str, name: str) -> StoredRun:
    found, record, version, worker = _find_head(connection, run_id, name)
    with _explain_unreadable(found, name):
        run, checkpoint = load_run(record, found), checkpoints.load_newest(connection, found)
        return StoredRun(run, checkpoint, version, worker, read_journal(connection, found))


def _load_run(connection: Connection, run_id: str, name: str) -> Run:
    found, record, *_ = _find_head(connection, run_id, name)
    with _explain_unreadable(found, name):
        return run_lists.show_queued(connection, load_run(record, found))


@contextmanager
def _explain_unreadable(run_id: str, name: str) -> Iterator[None]:
    try:
        yield
    except database_errors() as error:
        if not is_unreadable(error):
            raise
        raise SchemaMismatch(
            f"The stored run {run_id} cannot be read: the file {name} is damaged there. See what else is: upcall store "
            "check"
        ) from error


def _find_head(connection: Connection, run_id: str, name: str) -> Any:
    row = _select_head(connection, run_id)
    return _select_head(connection, find_id(connection, run_id, name)) if row is None else row


def _select_head(connection: Connection, run_id: str) -> Any:
    if not run_lists.is_storable(run_id):
        return None
    query = "SELECT id, record, version, worker FROM upcall_runs WHERE id = :id"
    return connection.execute(query, {"id": run_id}).fetchone()


def find_id(connection: Connection, run_id: str, name: str) -> str:
    """Find the id that is meant: the whole of one, or its beginning.

    Raises:
        UnknownRun: there is none, or there are several.
    """
    found = run_lists.find_ids(connection, run_id)
    if not found:
        raise UnknownRun(run_id, f"no run in {name} has this id")
    if len(found) > 1:
        raise UnknownRun(run_id, "several runs start with it")
    return found[0]


def _load_checkpoints(connection: Connection, *, run_id: str) -> Sequence[Checkpoint]:
    texts = [text for _, text in checkpoints.read_texts(connection, run_id) if not isinstance(text, Damaged)]
    return [checkpoints.parse_checkpoint(text, run_id) for text in reversed(texts)]


def _take_queued(connection: Connection, before: Run, after: Run) -> None:
    """Remove the answers that the run has taken in from the queue. See `RunStore.save` for what is refused."""
    # An answer that came while nobody waited for it any more is on record all the same.
    known = {answer.question_id for answer in after.answers if answer.outcome is not Outcome.CANCELLED}
    asked = {question.id for question in before.open_questions} - known
    new = {answer.question_id for answer in read_queued(connection, after.id)} & asked
    dropped = new - {question.id for question in after.open_questions}
    if dropped or (new and after.waiting):
        raise AnswersQueued
    if after.is_final or not new:
        connection.execute("DELETE FROM upcall_queued_answers WHERE run_id = :run_id", {"run_id": after.id})


def _enqueue(connection: Connection, run_id: str, answers: Sequence[Answer], name: str, *, owned: bool) -> bool:
    # It changes nothing: from here on nobody else writes the run.
    connection.execute("UPDATE upcall_runs SET version = version WHERE id = :id", {"id": run_id})
    row = connection.execute("SELECT record FROM upcall_runs WHERE id = :id", {"id": run_id}).fetchone()
    if row is None:
        raise RunGone(run_id, name)
    run = load_run(row[0], run_id)
    given = {answer.question_id: answer for answer in [*run.answers, *read_queued(connection, run_id)]}
    known = {*given, *(question.id for question in run.open_questions)}
    if not run.under_way or not known.issuperset(answer.question_id for answer in answers):
        return False
    for answer in answers:
        before = given.get(answer.question_id)
        if before is None:
            insert_queued(connection, run_id, answer)
        elif owned and before.user != answer.user:  # Not even whether it says the same is for them to find out.
            raise AlreadyAnswered(f"Question {answer.question_id} has an answer already; that one stands.")
        elif not before.is_equivalent(answer):
            raise AlreadyAnswered(f"Question {answer.question_id} has another answer already; that one stands.")
    return True


def insert_queued(connection: Connection, run_id: str, answer: Answer) -> None:
    """Queue an answer."""
    connection.execute(
        "INSERT INTO upcall_queued_answers (run_id, question_id, answer) VALUES (:run_id, :question_id, :answer)",
        {"run_id": run_id, "question_id": answer.question_id, "answer": answer.model_dump_json()},
    )


def _refuse_over_limit(connection: Connection, run_id: str, user: str, limit: int, since: float) -> None:
    query = (
        "SELECT count(CASE WHEN worker IS NOT NULL AND renewed_at > :since AND id <> :id THEN 1 END), "
        f"count(CASE WHEN status = {STATUS_NUMBERS[RunStatus.QUEUED]} THEN 1 END) FROM upcall_runs "
        f"WHERE status IN ({list_numbers(UNDER_WAY)}) AND owner = :user"
    )
    working, queued = connection.execute(query, {"user": user, "since": since, "id": run_id}).fetchone()
    if working >= limit:
        raise UserAtLimit(run_id, user, limit, min(LIMIT_RECHECK_INTERVAL_S, 1 + queued / 20))


def _renew_lease(connection: Connection, stored: StoredRun) -> None:
    values = {"id": stored.run.id, "worker": stored.worker, "now": time.time()}
    update = "UPDATE upcall_runs SET renewed_at = :now WHERE id = :id AND worker = :worker"
    if stored.worker is None or connection.execute(update, values).rowcount != 1:
        raise RunConflict(stored.run.id)


def put_records(connection: Connection, run_id: str, records: Mapping[str, str | None]) -> None:
    """Write into the journal of a run: a text for each key, None to remove the key."""
    removed = [{"run_id": run_id, "key": key} for key, text in records.items() if text is None]
    put = [
        {"run_id": run_id, "key": key, "record": encode(text.encode("utf-8", "surrogatepass"))}
        for key, text in records.items()
        if text is not None
    ]
    if removed:
        connection.executemany("DELETE FROM upcall_journal WHERE run_id = :run_id AND key = :key", removed)
    if put:
        connection.executemany(
            "INSERT INTO upcall_journal (run_id, key, record) VALUES (:run_id, :key, :record) "
            "ON CONFLICT (run_id, key) DO UPDATE SET record = excluded.record",
            put,
        )


def read_journal(connection: Connection, run_id: str) -> dict[str, bytes]:
    """Read the journal of a run as it is stored."""
    query = "SELECT key, record FROM upcall_journal WHERE run_id = :run_id"
    return dict(connection.execute(query, {"run_id": run_id}).fetchall())


def decode_records(run_id: str, stored: Mapping[str, bytes]) -> dict[str, str]:
    """Return the records of a journal as they were written.

    Raises:
        SchemaMismatch: one is damaged.
    """
    found = {}
    for key, record in stored.items():
        try:
            found[key] = decode(record).decode("utf-8", "surrogatepass")
        except Damaged as error:
            raise SchemaMismatch(
                f"The journal of run {run_id} is damaged at {key!r}: {error}. See what else is: upcall store check"
            ) from error
    return found


def add_to_log(connection: Connection, run_id: str, events: Iterable[LogEvent]) -> None:
    """Add events to the log of a run."""
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
