"""Where runs live: an SQLite file or a PostgreSQL database. A write names the version it follows, or is refused."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Select, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DatabaseError, IntegrityError

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
)
from upcall.questions.answer import Answer
from upcall.runs.call_timings import TIMED, WorkPeriod, parse_work_period
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.run import Run, RunStatus, log_changes
from upcall.storage import packing
from upcall.storage import statements as sql
from upcall.storage.blobs import Nodes, insert_missing
from upcall.storage.databases import Database, database
from upcall.storage.leases import Worker, take_lease
from upcall.storage.packing import DamagedNode, Node, Packed
from upcall.storage.tables import log, runs

MAX_STATE_BYTES = 100_000_000
SMALL_CHARS = 64_000
"""What has less is written without a thread: to compress it takes a millisecond at most."""


class AnswersQueued(Exception):
    """A run that is to stand still has got an answer in the very moment: take it in, then store it."""


@dataclass(frozen=True)
class StoredRun:
    """A run as it stands in the store. `version` counts its writes; a write names the version it follows. `worker` is
    who has the lease of it.

    The nodes that its record and its checkpoint are made of are known to be in the store as long as no other write
    follows: the next one need not store them again.
    """

    run: Run
    checkpoint: Checkpoint
    version: int
    worker: str | None = None
    journal: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """What was done since the checkpoint, as it was stored when the run was created, read or claimed."""
    record_nodes: frozenset[bytes] = field(default=frozenset(), compare=False, repr=False)
    checkpoint_nodes: frozenset[bytes] = field(default=frozenset(), compare=False, repr=False)

    @cached_property
    def records(self) -> Mapping[str, str]:
        """The records of the journal by their keys.

        Raises:
            SchemaMismatch: a record is damaged.
        """
        return _read_records(self.run.id, self.journal)


@dataclass(frozen=True)
class LogEntry:
    """One entry of a run's log: what happened, when, and who did it.

    Attributes:
        id: its place in the log of the whole store.
        run_id: the run.
        at: when, as ISO 8601 in UTC.
        kind: what happened: ``started``, ``asked``, ``answered``, ``status``, ...
        user: who did it, where somebody did and it is known.
        detail: more, by kind. It names questions by their ids and holds nothing of what was said; that of a change of
            files has its diff.
    """

    id: int
    run_id: str
    at: str
    kind: str
    user: str | None
    detail: dict[str, Any]


class RunStore:
    """Runs in an SQLite file or a PostgreSQL database.

    An object can be used from several event loops, and leaves nothing open that would outlive them.

    Args:
        location: a file name, a URL ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/DATABASE``. The file and
            the tables are made by the first write; the folder or the database is not.
        lease_seconds: how long a worker that does not say that it lives keeps a run to itself. One whose process on
            this machine has ended loses it at once.
        max_state_bytes: what is larger is not stored: one checkpoint, the record of one run, or one record of its
            journal, as JSON.

    Raises:
        ConfigurationError: the URL names another kind of database, or its driver is not installed.
        StoreUnavailable: from every call, if the database cannot be opened, read or written.
        SchemaMismatch: from every call, if the database was written by a later version of upcall, or is damaged.
    """

    def __init__(
        self, location: str | Path, *, lease_seconds: float = 15.0, max_state_bytes: int = MAX_STATE_BYTES
    ) -> None:
        self.database: Database = database(location)
        self.lease_seconds = lease_seconds
        self.max_state_bytes = max_state_bytes

    @property
    def name(self) -> str:
        """Where it is, for messages: the file, or the URL without its password."""
        return self.database.name

    @property
    def file(self) -> Path | None:
        """The file that it is; None for a server's database."""
        return self.database.file

    async def exists(self) -> bool:
        """Whether there is anything to read: a file may not have been made yet."""
        return await self.database.exists()

    async def close(self) -> None:
        """Close what is open in the running event loop. The next call opens it again; without it, the end of the loop
        does the same."""
        await self.database.close()

    async def create(
        self, run: Run, checkpoint: Checkpoint, records: Mapping[str, str] = MappingProxyType({})
    ) -> StoredRun:
        """Store a new run with its first checkpoint, and what its journal has already. Where it is to be worked on, the
        lease is the caller's.

        Raises:
            ConfigurationError: there is a run with this id.
            TooLarge: the run or the checkpoint is larger than the store takes.
        """
        worker = take_lease(Worker()).dump() if run.working else None
        record, state = self.packed_record(run), self.packed_state(run, checkpoint)
        entries = log_changes(None, run)

        def work(connection: Connection) -> Mapping[str, bytes]:
            row = {"version": 1, "worker": worker, "beat": time.time(), **columns_of(run, record)}
            insert_run(connection, run, row)
            insert_missing(connection, {**record.nodes, **state.nodes})
            _add_checkpoint(connection, run.id, 1, state)
            _put_records(connection, run.id, records)
            add_to_log(connection, run.id, entries)
            return _journal(connection, run.id) if records else {}

        put = await self.database.write(work, small=_is_small(record.nodes, state.nodes))
        return StoredRun(
            run,
            checkpoint,
            1,
            worker,
            put,
            record_nodes=frozenset(record.nodes),
            checkpoint_nodes=frozenset(state.nodes),
        )

    async def load(self, run_id: str) -> StoredRun:
        """The run with this id, or the only one whose id starts with it (four characters or more).

        Raises:
            UnknownRun: there is none, or there are several.
            SchemaMismatch: what is stored of it is damaged.
        """
        if not await self.exists():
            raise UnknownRun(run_id, f"the store {self.name} does not exist")
        return await self.database.read(partial(_load, run_id=run_id, name=self.name))

    async def checkpoint(self, run_id: str, version: int) -> Checkpoint:
        """One of the checkpoints of a run; `versions` says which there are.

        Raises:
            UnknownRun: there is none of this version.
            SchemaMismatch: it is damaged.
        """
        return await self.database.read(partial(checkpoint_at, run_id=run_id, version=version))

    async def versions(self, run_id: str) -> list[int]:
        """The versions of a run that have a checkpoint, oldest first."""
        return await self.database.read(partial(versions_of, run_id=run_id))

    async def save(self, stored: StoredRun, run: Run, checkpoint: Checkpoint | None = None) -> StoredRun:
        """Store the next version of a run, all of it or nothing; without a checkpoint the last one stays. Mail that
        the run now has as its answers is taken out of the mail. A checkpoint ends the journal of what was done before
        it; a run that is not worked on has no lease.

        Raises:
            RunConflict: the stored version is not the one that `stored` has.
            MailCame: an open question of `stored` has mail that the run does not know yet, and the run is to wait, or
                to drop that question. Nothing was written.
            TooLarge: the run or the checkpoint is larger than the store takes.
        """
        worker = stored.worker if run.working else None

        def after(connection: Connection) -> Mapping[str, bytes]:
            if checkpoint is None and not run.is_final:
                return stored.journal
            connection.execute(sql.DELETE_JOURNAL, {"of_run": run.id})
            return {}

        return await self._write(stored, run, checkpoint, worker, after)

    async def claim(
        self,
        stored: StoredRun,
        run: Run,
        checkpoint: Checkpoint | None = None,
        records: Mapping[str, str | None] | None = None,
    ) -> StoredRun:
        """As `save`, by who takes the run over and, where it is to be worked on, gets its lease. The journal goes on,
        with `records` in it.

        Raises:
            RunConflict: also where the journal is not the one that `stored` has.
            RunBusy: another worker has the lease, and lives.
        """
        self.refuse_large(run.id, records or {})
        await self._lease_ended(stored)
        worker = take_lease(Worker()).dump() if run.working else None

        def after(connection: Connection) -> Mapping[str, bytes]:
            if _journal(connection, run.id) != stored.journal:
                raise RunConflict(run.id)
            _put_records(connection, run.id, records or {})
            return _journal(connection, run.id) if records else stored.journal

        return await self._write(stored, run, checkpoint, worker, after)

    async def _write(
        self,
        stored: StoredRun,
        run: Run,
        checkpoint: Checkpoint | None,
        worker: str | None,
        after: Callable[[Connection], Mapping[str, bytes]],
    ) -> StoredRun:
        version = stored.version + 1
        record = self.packed_record(run)
        state = None if checkpoint is None else self.packed_state(run, checkpoint)
        entries = log_changes(stored.run, run)
        known = stored.record_nodes | stored.checkpoint_nodes
        needed = {**record.nodes, **(state.nodes if state else {})}
        new = {each: node for each, node in needed.items() if each not in known}

        def work(connection: Connection) -> Mapping[str, bytes]:
            row = {"version": version, "worker": worker, "beat": time.time(), **columns_of(run, record)}
            head = {"of_run": run.id, "of_version": stored.version}
            if connection.execute(sql.UPDATE_HEAD, {**row, **head}).rowcount != 1:
                there = connection.execute(sql.SELECT_RUN, {"of_run": run.id}).one_or_none()
                raise RunConflict(run.id) if there else RunGone(run.id, self.name)
            _take_mail(connection, stored.run, run)
            insert_missing(connection, new)
            if state is not None:
                _add_checkpoint(connection, run.id, version, state)
            add_to_log(connection, run.id, entries)
            return after(connection)

        left = await self.database.write(work, small=_is_small(new))
        nodes = frozenset(record.nodes), stored.checkpoint_nodes if state is None else frozenset(state.nodes)
        return StoredRun(run, checkpoint or stored.checkpoint, version, worker, left, *nodes)

    def packed_record(self, run: Run) -> Packed:
        """The record of a run, as it is stored; refused where it is too large."""
        return self._bounded(f"The record of run {run.id}", run.model_dump(mode="json", exclude_none=True))

    def packed_state(self, run: Run, checkpoint: Checkpoint) -> Packed:
        """The same for a checkpoint of its team."""
        return self._bounded(f"The state of the team of run {run.id}", checkpoint.as_json())

    def _bounded(self, what: str, value: Any) -> Packed:
        packed = packing.packed(value)
        if packed.size > self.max_state_bytes:
            raise TooLarge(what, packed.size, self.max_state_bytes)
        return packed

    # -- the lease ----------------------------------------------------------------------------------------------------

    async def renew_lease(self, stored: StoredRun) -> None:
        """Renew the lease.

        Raises:
            RunConflict: another worker has it now, or the run was cancelled.
        """
        await self.database.write(partial(_renew, stored=stored), small=True)

    async def release(self, stored: StoredRun) -> None:
        """Give the lease back in mid-work: the run stays as it is, and its journal.

        Raises:
            RunConflict: the caller has no longer the lease. Nothing was written.
        """

        def work(connection: Connection) -> None:
            _renew(connection, stored)
            connection.execute(sql.RELEASE, {"of_run": stored.run.id})

        await self.database.write(work)

    async def at_work(self, stored: StoredRun) -> str | None:
        """Who works on the run now, in words; None where nobody does."""
        try:
            await self._lease_ended(stored)
        except RunBusy as busy:
            return busy.worker
        return None

    async def _lease_ended(self, stored: StoredRun) -> None:
        """Return where nobody works on the run.

        The time of the last beat is that of another process, and a clock may be set back: a beat that seems to come
        from the future is watched for as long as a lease lasts.
        """
        worker = Worker.load(stored.worker) if stored.worker else None
        if worker is None or worker.gone():
            return
        beat = await self._beat(stored)
        age = time.time() - beat
        if age >= self.lease_seconds:
            return
        if age >= 0:
            raise RunBusy(stored.run.id, str(worker), self.lease_seconds - age)
        await asyncio.sleep(self.lease_seconds)
        if await self._beat(stored) != beat:
            raise RunBusy(stored.run.id, str(worker), self.lease_seconds)

    async def _beat(self, stored: StoredRun) -> float:
        of_run = {"of_run": stored.run.id}
        found = await self.database.read(
            lambda connection: connection.execute(sql.SELECT_BEAT, of_run).scalar_one_or_none()
        )
        if found is None:
            raise RunGone(stored.run.id, self.name)
        return float(found)

    # -- the journal and the log --------------------------------------------------------------------------------------

    async def record(self, stored: StoredRun, records: Mapping[str, str | None]) -> None:
        """Write into the journal of a run: a text for each key, None to take the key out. It renews the lease.

        Raises:
            RunConflict: the caller has no longer the lease. Nothing was written.
            TooLarge: a text is larger than the store takes. Nothing was written.
        """
        self.refuse_large(stored.run.id, records)
        small = sum(len(text) for text in records.values() if text is not None) < SMALL_CHARS

        def work(connection: Connection) -> None:
            _renew(connection, stored)
            _put_records(connection, stored.run.id, records)

        await self.database.write(work, small=small)

    def refuse_large(self, run_id: str, records: Mapping[str, str | None]) -> None:
        """Refuse records of a journal that can never be written.

        Raises:
            TooLarge: a text is larger than the store takes.
        """
        size = max((len(text) for text in records.values() if text is not None), default=0)
        if size > self.max_state_bytes:
            raise TooLarge(f"What is to be journalled of run {run_id}", size, self.max_state_bytes)

    async def journal(self, run_id: str) -> dict[str, str]:
        """What was done since the run's last checkpoint: the records by their keys.

        Raises:
            SchemaMismatch: a record is damaged.
        """
        return await self.database.read(partial(records_of, run_id=run_id))

    async def note(self, run_id: str, kind: str, user: str | None = None, **detail: Any) -> None:
        """Add to the log of a run what no other write says."""
        await self.database.write(lambda connection: add_to_log(connection, run_id, [(kind, user, detail)]))

    async def log(self, run_id: str, after: int = 0) -> Sequence[LogEntry]:
        """The log of a run, oldest first, from the entry that follows the one with the id `after`; not its times."""
        told = select(log).where(log.c.run_id == run_id, log.c.id > after, log.c.kind != TIMED)
        return await self.database.read(partial(_entries, told))

    async def call_timings(self, run_id: str) -> Sequence[WorkPeriod]:
        """When teams were at work on a run, and the calls that they made, oldest first."""
        timed = select(log).where(log.c.run_id == run_id, log.c.kind == TIMED)
        return [parse_work_period(each.detail) for each in await self.database.read(partial(_entries, timed))]

    async def trail(self, after: int = 0) -> Sequence[LogEntry]:
        """The logs of all runs in one, oldest first, from the entry that follows the one with the id `after`."""
        if not await self.exists():
            return []
        return await self.database.read(partial(_entries, select(log).where(log.c.id > after, log.c.kind != TIMED)))

    # -- mail ---------------------------------------------------------------------------------------------------------

    async def enqueue_answers(self, run_id: str, answers: Sequence[Answer]) -> bool:
        """Leave answers for whoever works on the run. False, and nothing left, where nobody is at work on it, or a
        question is no longer open.

        Raises:
            AlreadyAnswered: another answer to the same question has been left already.
        """
        return await self.database.write(partial(_post, run_id=run_id, answers=answers, name=self.name))

    async def queued_answers(self, run_id: str) -> Sequence[Answer]:
        """The answers that were left for whoever works on the run."""
        return await self.database.read(partial(mail_of, run_id=run_id))

    async def list(self, user: str | None = None, *, statuses: Sequence[RunStatus] | None = None) -> list[Run]:
        """All runs, or those of one user or in one of some statuses, newest first."""
        if not await self.exists():
            return []
        query = select(runs.c.id, runs.c.record).order_by(runs.c.created_at.desc(), runs.c.id)
        if user is not None:
            query = query.where(runs.c.user == user)
        if statuses is not None:
            query = query.where(runs.c.status.in_([status.value for status in statuses]))
        return await self.database.read(lambda connection: runs_of(connection, connection.execute(query)))


def _is_small(*new: Mapping[bytes, Node]) -> bool:
    """Whether nodes are compressed and written in no time."""
    return sum(len(node.text) for nodes in new for node in nodes.values()) < SMALL_CHARS


# -- what is done in one transaction ----------------------------------------------------------------------------------


def insert_run(connection: Connection, run: Run, row: Mapping[str, Any]) -> None:
    """Store the row of a new run.

    Raises:
        ConfigurationError: its id is taken.
    """
    try:
        connection.execute(sql.INSERT_RUN, {"id": run.id, **row})
    except IntegrityError as error:
        raise ConfigurationError(f"There is a run {run.id} in the store already. Choose another id.") from error


def _load(connection: Connection, *, run_id: str, name: str) -> StoredRun:
    found_id = full_id(connection, run_id)
    of_run = {"of_run": found_id}
    row = connection.execute(sql.SELECT_HEAD, of_run).one_or_none()
    if row is None:
        raise UnknownRun(run_id, f"no run in {name} has this id")
    run, record_nodes = run_of(connection, row.record, found_id)
    found = connection.execute(sql.SELECT_LAST_STATE, of_run).one_or_none()
    if found is None:
        raise SchemaMismatch(f"The stored run {found_id} has no checkpoint. See what is damaged: upcall store check")
    try:
        checkpoint, nodes = checkpoint_of(connection, found.state, found_id)
    except DamagedNode as error:
        raise _damaged_checkpoint(connection, found_id, found.version, error) from error
    return StoredRun(run, checkpoint, row.version, row.worker, _journal(connection, found_id), record_nodes, nodes)


def full_id(connection: Connection, run_id: str) -> str:
    """The id that is meant; what was given where there is none."""
    escaped = re.sub("[/%_]", r"/\g<0>", run_id)
    found = [row.id for row in connection.execute(sql.SELECT_IDS, {"pattern": f"{escaped}%"})]
    if run_id in found or len(run_id) < 4 or not found:
        return run_id
    if len(found) > 1:
        raise UnknownRun(run_id, "several runs start with it")
    return str(found[0])


def checkpoint_of(connection: Connection, state: bytes, run_id: str) -> tuple[Checkpoint, frozenset[bytes]]:
    """The checkpoint under a stored root, and the hashes of its nodes."""
    root = packing.unseal(state)
    nodes = Nodes(connection, [root])
    return Checkpoint.from_json(nodes.value(root), run_id), nodes.hashes


def checkpoint_at(connection: Connection, *, run_id: str, version: int) -> Checkpoint:
    """See `RunStore.checkpoint`."""
    state = connection.execute(sql.SELECT_STATE, {"of_run": run_id, "of_version": version}).scalar_one_or_none()
    if state is None:
        raise UnknownRun(run_id, f"it has no checkpoint of version {version}")
    try:
        return checkpoint_of(connection, state, run_id)[0]
    except DamagedNode as error:
        raise _damaged_checkpoint(connection, run_id, version, error) from error


def versions_of(connection: Connection, *, run_id: str) -> list[int]:
    """See `RunStore.versions`."""
    return list(connection.execute(sql.SELECT_VERSIONS, {"of_run": run_id}).scalars())


def last_whole(connection: Connection, run_id: str, before: int) -> int | None:
    """The version of the last checkpoint before `before` that can be read, None where there is none."""
    for version in reversed(versions_of(connection, run_id=run_id)):
        if version < before:
            try:
                state = connection.execute(sql.SELECT_STATE, {"of_run": run_id, "of_version": version}).scalar_one()
                checkpoint_of(connection, state, run_id)
            except (DamagedNode, SchemaMismatch, DatabaseError):
                continue
            return version
    return None


def _damaged_checkpoint(connection: Connection, run_id: str, version: int, error: DamagedNode) -> SchemaMismatch:
    whole = last_whole(connection, run_id, version)
    remedy = (
        "No older one is whole: start the task again, or restore the database from a backup."
        if whole is None
        else f"The one of version {whole} is whole; go back to it with: upcall store restore {run_id}"
    )
    return SchemaMismatch(f"The checkpoint of run {run_id} (version {version}) is damaged: {error}. {remedy}")


def _add_checkpoint(connection: Connection, run_id: str, version: int, state: Packed) -> None:
    row = {"run_id": run_id, "version": version, "state": packing.seal(state.root)}
    connection.execute(sql.INSERT_CHECKPOINT, row)


def _take_mail(connection: Connection, before: Run, after: Run) -> None:
    """Take out of the mail what the run has taken in. See `RunStore.save` for what is refused."""
    known = {answer.question_id for answer in after.answers}
    asked = {question.id for question in before.open_questions} - known
    new = {answer.question_id for answer in mail_of(connection, after.id)} & asked
    dropped = new - {question.id for question in after.open_questions}
    if (dropped and not after.is_final) or (new and after.waiting):
        raise AnswersQueued
    if after.is_final or not new:
        connection.execute(sql.DELETE_MAIL, {"of_run": after.id})


def _post(connection: Connection, *, run_id: str, answers: Sequence[Answer], name: str) -> bool:
    connection.execute(sql.LOCK_RUN, {"of_run": run_id})
    record = connection.execute(sql.SELECT_RECORD, {"of_run": run_id}).scalar_one_or_none()
    if record is None:
        raise RunGone(run_id, name)
    run, _ = run_of(connection, record, run_id)
    given = {answer.question_id: answer for answer in [*run.answers, *mail_of(connection, run_id)]}
    known = {*given, *(question.id for question in run.open_questions)}
    if not run.working or not known.issuperset(answer.question_id for answer in answers):
        return False
    for answer in answers:
        before = given.get(answer.question_id)
        if before is None:
            row = {"run_id": run_id, "question_id": answer.question_id, "answer": answer.model_dump_json()}
            connection.execute(sql.INSERT_MAIL, row)
        elif not before.says_the_same(answer):
            raise AlreadyAnswered(f"Question {answer.question_id} has another answer already; that one stands.")
    return True


def _entries(query: Select[Any], connection: Connection) -> list[LogEntry]:
    rows = connection.execute(query.order_by(log.c.id))
    return [LogEntry(row.id, row.run_id, row.at, row.kind, row.user, json.loads(row.detail)) for row in rows]


def _renew(connection: Connection, stored: StoredRun) -> None:
    held = {"of_run": stored.run.id, "of_worker": stored.worker, "beat": time.time()}
    if stored.worker is None or connection.execute(sql.RENEW, held).rowcount != 1:
        raise RunConflict(stored.run.id)


def _put_records(connection: Connection, run_id: str, records: Mapping[str, str | None]) -> None:
    taken_out = [{"of_run": run_id, "of_key": key} for key, text in records.items() if text is None]
    put = [
        {"run_id": run_id, "key": key, "record": packing.seal_text(text)}
        for key, text in records.items()
        if text is not None
    ]
    if taken_out:
        connection.execute(sql.DELETE_RECORD, taken_out)
    if put:
        connection.execute(sql.put_record(connection.dialect.name), put)


def records_of(connection: Connection, *, run_id: str) -> dict[str, str]:
    """See `RunStore.journal`."""
    return _read_records(run_id, _journal(connection, run_id))


def _journal(connection: Connection, run_id: str) -> dict[str, bytes]:
    return {row.key: row.record for row in connection.execute(sql.SELECT_JOURNAL, {"of_run": run_id})}


def _read_records(run_id: str, stored: Mapping[str, bytes]) -> dict[str, str]:
    found = {}
    for key, record in stored.items():
        try:
            found[key] = packing.unseal_text(record)
        except DamagedNode as error:
            raise SchemaMismatch(
                f"The journal of run {run_id} is damaged at {key!r}: {error}. See what else is: upcall store check"
            ) from error
    return found


def add_to_log(
    connection: Connection, run_id: str, entries: Iterable[tuple[str, str | None, Mapping[str, Any]]]
) -> None:
    """Add entries (kind, user, detail) to the log of a run."""
    at = identity.now().isoformat()
    rows = [
        {"run_id": run_id, "at": at, "kind": kind, "user": user, "detail": json.dumps(detail)}
        for kind, user, detail in entries
    ]
    if rows:
        connection.execute(sql.INSERT_LOG, rows)


def mail_of(connection: Connection, run_id: str) -> Sequence[Answer]:
    """See `RunStore.queued_answers`."""
    rows = connection.execute(sql.SELECT_MAIL, {"of_run": run_id})
    return [Answer.model_validate_json(row.answer) for row in rows]


def columns_of(run: Run, record: Packed) -> dict[str, Any]:
    """What the row of a run says of it."""
    return {
        "status": run.status.value,
        "user": run.user,
        "record": packing.seal(record.root),
        "created_at": run.created_at.isoformat(),
    }


def runs_of(connection: Connection, rows: Iterable[Any]) -> list[Run]:
    """The runs of some rows (id, record)."""
    roots = {row.id: _root(row.record, row.id) for row in rows}
    nodes = Nodes(connection, roots.values())
    return [_as_run(nodes, root, run_id) for run_id, root in roots.items()]


def run_of(connection: Connection, record: bytes, run_id: str) -> tuple[Run, frozenset[bytes]]:
    """The run with this record, and the hashes of its nodes."""
    root = _root(record, run_id)
    nodes = Nodes(connection, [root])
    return _as_run(nodes, root, run_id), nodes.hashes


def _root(record: bytes, run_id: str) -> Node:
    try:
        return packing.unseal(record)
    except DamagedNode as error:
        raise _damaged_record(run_id, error) from error


def _as_run(nodes: Nodes, root: Node, run_id: str) -> Run:
    try:
        return Run.model_validate(nodes.value(root))
    except DamagedNode as error:
        raise _damaged_record(run_id, error) from error
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise SchemaMismatch(
            f"The stored run {run_id} cannot be read (field {where!r}). Use the version of upcall that stored it."
        ) from error


def _damaged_record(run_id: str, error: DamagedNode) -> SchemaMismatch:
    return SchemaMismatch(
        f"The record of run {run_id} is damaged: {error}. See what can still be read: upcall store check"
    )
