"""The store of runs: an SQLite file or a PostgreSQL database. A write names the version it follows, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from upcall.errors import (
    ConfigurationError,
    RunBeingReplaced,
    RunConflict,
    RunGone,
    SchemaMismatch,
    TooLarge,
    UnknownRun,
)
from upcall.runs.events import LogEvent
from upcall.runs.run import Run
from upcall.runs.run_changes import list_events
from upcall.runs.run_filter import EVERY_RUN, RunFilter
from upcall.runs.run_page import RunPage, Viewer, is_storable
from upcall.storage import checkpoints, run_lists
from upcall.storage.asked_topics import count_closed
from upcall.storage.compression import SHORT, Damaged, encode
from upcall.storage.connection import Connection, Values, Work, database_errors, join_work
from upcall.storage.databases import Database, Synchronous, is_unreadable, open_database, run_in_thread
from upcall.storage.event_log import EventLog, append_events
from upcall.storage.holds import Holds
from upcall.storage.job_queue import JobQueue
from upcall.storage.journal import RunJournal, put_records, read_journal
from upcall.storage.leases import LeaseHolder, take_lease
from upcall.storage.queued_answers import QueuedAnswers, take_queued
from upcall.storage.run_leases import RunLeases, lease_columns
from upcall.storage.run_rows import (
    COLUMNS,
    derive_columns,
    derive_shown,
    dump_run,
    load_run,
    put_shown_to,
)
from upcall.storage.schema import list_of_run
from upcall.storage.stored_run import EMPTY_CHECKPOINT, StoredHead, StoredRun
from upcall.storage.uploads import Uploads

if TYPE_CHECKING:
    from upcall.runs.checkpoint import Checkpoint

T = TypeVar("T")

MAX_STATE_BYTES = 100_000_000

Listener: TypeAlias = Callable[[Run, Sequence[LogEvent]], Work[object] | None]
"""Is given each change of a run before it is stored: the run as it will be, and what happened to it. The work that it
returns is done in the same transaction, so that it is stored with the change or not at all; what it raises refuses the
change."""


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
        self.holds = Holds(self.database, self.jobs)
        self.uploads = Uploads(self.database)
        self._make_listeners = listeners
        self.observers: dict[str, Callable[[Run, Run], None]] = {}
        """Are given a run before and after each change, once it is stored; by their names. They must not raise."""
        self.max_state_bytes = max_state_bytes
        self.leases = RunLeases(self.database, lease_seconds)
        self.journal = RunJournal(self.database, self._refuse_large)
        self.events = EventLog(self.database)
        self.queue = QueuedAnswers(self.database)

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
        put = await self._insert(run, self.dump_checkpoint(run, checkpoint), worker, records, also)
        return StoredRun(run, checkpoint, 1, worker, put)

    async def create_head(self, run: Run) -> StoredHead:
        """Store a new run on which no team works, with the checkpoint of a team that has done nothing.

        Raises:
            ConfigurationError: there is a run with this id.
            TooLarge: the run is larger than the store accepts.
        """
        await self._insert(run, EMPTY_CHECKPOINT, None, {}, None)
        return StoredHead(run, 1)

    async def _insert(
        self, run: Run, state: bytes, worker: str | None, records: Mapping[str, str], also: Work[object] | None
    ) -> Mapping[str, bytes]:
        row, log = self.prepare_run(run), join_work([self._prepare_log(None, run), also])
        small = len(state) < SHORT
        whole = encode(state) if small else await run_in_thread(partial(encode, state))

        def work(connection: Connection) -> Mapping[str, bytes]:
            insert_run(connection, run.id, {**row, "version": 1, **lease_columns(worker)})
            checkpoints.insert_whole(connection, run.id, 1, whole)
            put_records(connection, run.id, records)
            log(connection)
            return read_journal(connection, run.id) if records else {}

        return await self.database.write(work, small=small)

    async def load(self, run_id: str) -> StoredRun:
        """Load the run with this id, or the only one whose id starts with it (four characters or more).

        Raises:
            UnknownRun: there is none, or there are several.
            SchemaMismatch: its stored data is damaged.
        """
        return await self._read_known(run_id, _load)

    async def load_head(self, run_id: str) -> StoredHead:
        """Load a run without its checkpoint and its journal, and so without AutoGen.

        Raises:
            UnknownRun: there is none, or there are several.
            SchemaMismatch: its record is damaged.
        """
        return await self._read_known(run_id, _load_head)

    async def load_run(self, run_id: str) -> Run:
        """Load only the run, for viewing, with the answers that are queued for it
        (`upcall.runs.queued.show_queued`).

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

    async def bare_checkpoints(self, run_id: str) -> Sequence[Checkpoint]:
        """Load all checkpoints of a run without the states of their teams, oldest first, without damaged ones."""
        return await self.database.read(partial(_load_checkpoints, run_id=run_id, bare=True))

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

    async def save_head(self, head: StoredHead, run: Run) -> StoredHead:
        """Store the next version of a run on which no team works, as `save` does.

        Raises:
            RunConflict: the stored version is not the one that `head` has.
            TooLarge: the run is larger than the store accepts.
        """
        await self._update(head.run, head.version, run, None, None, lambda _: {})
        return StoredHead(run, head.version + 1)

    async def claim(
        self,
        stored: StoredRun,
        run: Run,
        checkpoint: Checkpoint | None = None,
        records: Mapping[str, str | None] | None = None,
        *,
        also: Work[object] | None = None,
    ) -> StoredRun:
        """As `save`, by who takes the run over and, where it is to be worked on, gets its lease. The journal continues,
        with `records` in it. `also` is done in the same transaction.

        Raises:
            RunConflict: also where the journal is not the one that `stored` has.
            RunBusy: another worker has the lease, and lives.
            RunBeingReplaced: a branch is to take its place.
        """
        if stored.run.replacing:
            raise RunBeingReplaced(run.id, stored.run.replacing)
        self.journal.refuse_large(run.id, records or {})
        await self.leases.wait_until_free(stored)
        worker = take_lease(LeaseHolder()).dump() if run.working else None

        def end(connection: Connection) -> Mapping[str, bytes]:
            if read_journal(connection, run.id) != stored.journal:
                raise RunConflict(run.id)
            if also is not None:
                also(connection)
            if run.is_final:
                connection.execute("DELETE FROM upcall_journal WHERE run_id = :run_id", {"run_id": run.id})
                return {}
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
        state = None if checkpoint is None else self.dump_checkpoint(run, checkpoint)
        left = await self._update(stored.run, stored.version, run, state, worker, end)
        return StoredRun(run, checkpoint or stored.checkpoint, stored.version + 1, worker, left)

    async def _update(
        self,
        before: Run,
        stored_version: int,
        run: Run,
        state: bytes | None,
        worker: str | None,
        end: Work[Mapping[str, bytes]],
    ) -> Mapping[str, bytes]:
        small = state is None or len(state) < SHORT
        # Before the transaction begins: others wait for its end.
        whole = None if state is None else encode(state) if small else await run_in_thread(partial(encode, state))
        work = self._prepare_update(before, stored_version, run, state, whole, worker, end)
        left = await self.database.write(work, small=small)
        for observe in self.observers.values():
            observe(before, run)
        return left

    def prepare_next(self, stored: StoredRun, run: Run, worker: str | None = None) -> Work[object]:
        """Return what stores the next version of a run on which no team works from now on, as a part of a transaction,
        which fails where the stored version is another. Its journal stays, also where it is over. Who is named has its
        lease."""
        return self._prepare_update(stored.run, stored.version, run, None, None, worker, lambda _: {})

    def _prepare_update(
        self,
        before: Run,
        stored_version: int,
        run: Run,
        state: bytes | None,
        whole: bytes | None,
        worker: str | None,
        end: Work[Mapping[str, bytes]],
    ) -> Work[Mapping[str, bytes]]:
        version = stored_version + 1
        row = self.prepare_run(run)
        log = self._prepare_log(before, run)

        def work(connection: Connection) -> Mapping[str, bytes]:
            more = {"id": run.id, "version": version, "before": stored_version}
            update = {**row, **more, **lease_columns(worker)}
            if connection.execute(_UPDATE_RUN, update).rowcount != 1:
                raise RunConflict(run.id) if is_stored(connection, run.id) else RunGone(run.id, self.name)
            take_queued(connection, before, run)
            count_closed(connection, before, run)
            if _is_shown_otherwise(before, row):
                put_shown_to(connection, run.id, row)
            if state is not None and whole is not None:
                checkpoints.append_checkpoint(connection, run.id, version, state, whole)
            log(connection)
            return end(connection)

        return work

    def _prepare_log(self, before: Run | None, run: Run) -> Work[None]:
        """Return what logs a change: its events, and what the listeners store with them."""
        events = list_events(before, run)
        return join_work(
            [
                partial(append_events, run_id=run.id, events=events),
                *(listener(run, events) for listener in self._listeners),
            ]
        )

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
        await self.leases.refuse_busy(found)
        await self.database.write(partial(delete_run, run_id=found))
        await self.uploads.remove(await self.uploads.find_unused([found]))
        return found

    # -- lists --------------------------------------------------------------------------------------------------------

    async def list(
        self,
        viewer: Viewer | None = None,
        *,
        only: RunFilter = EVERY_RUN,
        limit: int | None = None,
        before: str | None = None,
    ) -> RunPage:
        """List the newest runs, as `load_run` gives them: of those that a viewer sees, those that a filter lets
        through; `limit` at most, behind the one with the id `before`. With a limit and a filter a page looks at some
        thousand runs at most, and may have fewer runs than there are: it then names where the next one begins.

        Raises:
            UnknownRun: there is no run `before`.
        """
        if not await self.exists():
            return RunPage()
        page = partial(run_lists.list_runs, viewer=viewer, only=only, limit=limit, before=before)
        return await self.database.read(page)

    async def list_open(
        self, viewer: Viewer | None = None, *, limit: int | None = None, after: str | None = None
    ) -> RunPage:
        """List the runs that have an open question, oldest question first, `limit` at most, after what another page
        names as its ``next``. A run whose answer is queued is included, and shown as answered.

        Raises:
            CallerError: no page names this place.
        """
        if not await self.exists():
            return RunPage()
        return await self.database.read(partial(run_lists.list_open, viewer=viewer, limit=limit, after=after))

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
    if row["assignees"] is not None:
        put_shown_to(connection, run_id, row)


def update_run(connection: Connection, run_id: str, before: int, row: Values) -> None:
    """Store the row of a run, whatever its status."""
    connection.execute(_UPDATE_RUN, {"id": run_id, "before": before, **row})
    put_shown_to(connection, run_id, row)


def _is_shown_otherwise(before: Run, row: Values) -> bool:
    """Return whether who sees a run, or since when it asks them, is not what it was: most runs are shown to nobody."""
    shown = derive_shown(before) if before.asked or before.config.open else None
    was = (None, None) if shown is None or shown["assignees"] is None else (shown["assignees"], shown["asked_at"])
    return was != ((None, None) if row["assignees"] is None else (row["assignees"], row["asked_at"]))


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


def _load_head(connection: Connection, run_id: str, name: str) -> StoredHead:
    found, record, version, _ = _find_head(connection, run_id, name)
    with _explain_unreadable(found, name):
        return StoredHead(load_run(record, found), version)


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
    if not is_storable(run_id):
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


def _load_checkpoints(connection: Connection, *, run_id: str, bare: bool = False) -> Sequence[Checkpoint]:
    texts = [text for _, text in checkpoints.read_texts(connection, run_id) if not isinstance(text, Damaged)]
    return [checkpoints.parse_checkpoint(text, run_id, bare=bare) for text in reversed(texts)]
