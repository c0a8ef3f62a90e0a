"""Where runs live: one SQLite file, through SQLAlchemy. A write names the version it follows, or is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from sqlalchemy import Column, Float, Integer, MetaData, String, Table, Text, event, inspect, select
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from upcall import identity
from upcall.checkpoints import Checkpoint
from upcall.errors import (
    AlreadyAnswered,
    ConfigurationError,
    RunBusy,
    RunConflict,
    SchemaMismatch,
    StoreUnavailable,
    UnknownRun,
)
from upcall.questions import Answer
from upcall.runs import Run, RunStatus, changes
from upcall.workers import Worker, taken_up

SCHEMA_VERSION = 3
BUSY_SECONDS = 30
"""How long a write waits for another process's write before it gives up."""

_metadata = MetaData()
_meta = Table("upcall_meta", _metadata, Column("key", String, primary_key=True), Column("value", String))
_runs = Table(
    "upcall_runs",
    _metadata,
    Column("id", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("user", String),
    Column("record", Text, nullable=False),
    Column("created_at", String, nullable=False, index=True),
    Column("worker", Text),
    Column("beat", Float),
)
_checkpoints = Table(
    "upcall_checkpoints",
    _metadata,
    Column("run_id", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
)
_mail = Table(
    "upcall_mail",
    _metadata,
    Column("run_id", String, primary_key=True),
    Column("question_id", String, primary_key=True),
    Column("answer", Text, nullable=False),
)
_journal = Table(
    "upcall_journal",
    _metadata,
    Column("run_id", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("record", Text, nullable=False),
)
_log = Table(
    "upcall_log",
    _metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String, nullable=False, index=True),
    Column("at", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("user", String),
    Column("detail", Text, nullable=False),
)


class MailCame(Exception):
    """A run that is to stand still has got an answer in the very moment: take it in, then store it."""


@dataclass(frozen=True)
class StoredRun:
    """A run as it stands in the store. `version` counts its writes; a write names the version it follows. `worker` is
    who has the lease of it."""

    run: Run
    checkpoint: Checkpoint
    version: int
    worker: str | None = None


@dataclass(frozen=True)
class LogEntry:
    """One entry of a run's log: what happened, when, and who did it. ``detail`` names questions by their ids and holds
    nothing of what was said."""

    id: int
    run_id: str
    at: str
    kind: str
    user: str | None
    detail: dict[str, Any]


class RunStore:
    """Runs in an SQLite file.

    Each call opens the file anew: an object can be used from several event loops, and nothing is left open.

    Args:
        location: a file name, or a URL ``sqlite:///FILE``. The file is made by the first write, its folder is not.
        lease_seconds: how long a worker that does not say that it lives keeps a run to itself. One whose process on
            this machine has ended loses it at once.

    Raises:
        ConfigurationError: the URL names another kind of database.
        StoreUnavailable: from every call, if the file cannot be opened, read or written.
        SchemaMismatch: from every call, if the file was written by another version of upcall.
    """

    def __init__(self, location: str | Path, *, lease_seconds: float = 15.0) -> None:
        self.path = _file(location)
        self.lease_seconds = lease_seconds
        self._engine = create_async_engine(
            URL.create("sqlite+aiosqlite", database=str(self.path)),
            poolclass=NullPool,
            connect_args={"timeout": BUSY_SECONDS},
        )
        event.listen(self._engine.sync_engine, "connect", _configure)
        self._checked = False

    async def create(self, run: Run, checkpoint: Checkpoint) -> StoredRun:
        """Store a new run with its first checkpoint. Where it is to be worked on, the lease is the caller's."""
        worker = taken_up(Worker()).dump() if run.working else None
        async with self._writing() as connection:
            row = {"version": 1, "worker": worker, "beat": time.time(), **_columns(run)}
            await connection.execute(_runs.insert().values(id=run.id, **row))
            await connection.execute(_checkpoints.insert().values(run_id=run.id, version=1, state=checkpoint.dump()))
            await _add_to_log(connection, run.id, changes(None, run))
        return StoredRun(run, checkpoint, 1, worker)

    async def load(self, run_id: str) -> StoredRun:
        """The run with this id, or the only one whose id starts with it (four characters or more).

        Raises:
            UnknownRun: there is none, or there are several.
        """
        if not self.path.exists():
            raise UnknownRun(run_id, f"the store {self.path} does not exist")
        full_id = await self._full_id(run_id)
        query = (
            select(_runs.c.record, _runs.c.version, _runs.c.worker, _checkpoints.c.state)
            .join(_checkpoints, _checkpoints.c.run_id == _runs.c.id)
            .where(_runs.c.id == full_id)
        )
        async with self._reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise UnknownRun(run_id, f"no run in {self.path} has this id")
        return StoredRun(_run(row.record, full_id), Checkpoint.load(row.state, full_id), row.version, row.worker)

    async def save(self, stored: StoredRun, run: Run, checkpoint: Checkpoint | None = None) -> StoredRun:
        """Store the next version of a run, all of it or nothing; without a checkpoint the last one stays. Mail that
        the run now has as its answers is taken out of the mail. A checkpoint ends the journal of what was done before
        it; a run that is not worked on has no lease.

        Raises:
            RunConflict: the stored version is not the one that `stored` has.
            MailCame: an open question of `stored` has mail that the run does not know yet, and the run is to wait, or
                to drop that question. Nothing was written.
        """
        worker = stored.worker if run.working else None
        async with self._writing() as connection:
            await self._write(connection, stored, run, checkpoint, worker)
            if checkpoint is not None or run.over:
                await connection.execute(_journal.delete().where(_journal.c.run_id == run.id))
        return StoredRun(run, checkpoint or stored.checkpoint, stored.version + 1, worker)

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
            RunBusy: another worker has the lease, and lives.
        """
        await self._lease_ended(stored)
        worker = taken_up(Worker()).dump() if run.working else None
        async with self._writing() as connection:
            await self._write(connection, stored, run, checkpoint, worker)
            await _put_records(connection, run.id, records or {})
        return StoredRun(run, checkpoint or stored.checkpoint, stored.version + 1, worker)

    async def _write(
        self,
        connection: AsyncConnection,
        stored: StoredRun,
        run: Run,
        checkpoint: Checkpoint | None,
        worker: str | None,
    ) -> None:
        version = stored.version + 1
        head = _runs.update().where(_runs.c.id == run.id, _runs.c.version == stored.version)
        row = {"version": version, "worker": worker, "beat": time.time(), **_columns(run)}
        changed = await connection.execute(head.values(**row))
        if changed.rowcount != 1:
            raise RunConflict(run.id)
        known = {answer.question_id for answer in run.answers}
        asked = {question.id for question in stored.run.open_questions} - known
        new = {answer.question_id for answer in await _left(connection, run.id)} & asked
        dropped = new - {question.id for question in run.open_questions}
        if (dropped and not run.over) or (new and run.waiting):
            raise MailCame
        if run.over or not new:
            await connection.execute(_mail.delete().where(_mail.c.run_id == run.id))
        if checkpoint is not None:
            state = _checkpoints.update().where(_checkpoints.c.run_id == run.id)
            await connection.execute(state.values(version=version, state=checkpoint.dump()))
        await _add_to_log(connection, run.id, changes(stored.run, run))

    # -- the lease ----------------------------------------------------------------------------------------------------

    async def beat(self, stored: StoredRun) -> None:
        """Renew the lease.

        Raises:
            RunConflict: another worker has it now, or the run was cancelled.
        """
        async with self._writing() as connection:
            await _renew(connection, stored)

    async def release(self, stored: StoredRun) -> None:
        """Give the lease back in mid-work: the run stays as it is, and its journal.

        Raises:
            RunConflict: the caller has no longer the lease. Nothing was written.
        """
        async with self._writing() as connection:
            await _renew(connection, stored)
            await connection.execute(_runs.update().where(_runs.c.id == stored.run.id).values(worker=None))

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
        query = select(_runs.c.beat).where(_runs.c.id == stored.run.id)
        async with self._reading() as connection:
            return float((await connection.execute(query)).scalar_one())

    # -- the journal and the log --------------------------------------------------------------------------------------

    async def record(self, stored: StoredRun, records: Mapping[str, str | None]) -> None:
        """Write into the journal of a run: a text for each key, None to take the key out. It renews the lease.

        Raises:
            RunConflict: the caller has no longer the lease. Nothing was written.
        """
        async with self._writing() as connection:
            await _renew(connection, stored)
            await _put_records(connection, stored.run.id, records)

    async def journal(self, run_id: str) -> dict[str, str]:
        """What was done since the run's last checkpoint: the records by their keys."""
        query = select(_journal.c.key, _journal.c.record).where(_journal.c.run_id == run_id)
        async with self._reading() as connection:
            return {row.key: row.record for row in await connection.execute(query)}

    async def note(self, run_id: str, kind: str, user: str | None = None, **detail: Any) -> None:
        """Add to the log of a run what no other write says."""
        async with self._writing() as connection:
            await _add_to_log(connection, run_id, [(kind, user, detail)])

    async def log(self, run_id: str, after: int = 0) -> Sequence[LogEntry]:
        """The log of a run, oldest first, from the entry that follows the one with the id `after`."""
        query = select(_log).where(_log.c.run_id == run_id, _log.c.id > after).order_by(_log.c.id)
        async with self._reading() as connection:
            rows = await connection.execute(query)
            return [LogEntry(row.id, row.run_id, row.at, row.kind, row.user, json.loads(row.detail)) for row in rows]

    # -- mail ---------------------------------------------------------------------------------------------------------

    async def post(self, run_id: str, answers: Sequence[Answer]) -> bool:
        """Leave answers for whoever works on the run. False, and nothing left, where nobody is at work on it, or a
        question is no longer open.

        Raises:
            AlreadyAnswered: another answer to the same question has been left already.
        """
        async with self._writing() as connection:
            await connection.execute(_runs.update().where(_runs.c.id == run_id).values(id=run_id))  # Now nobody writes.
            record = (await connection.execute(select(_runs.c.record).where(_runs.c.id == run_id))).scalar_one()
            run = _run(record, run_id)
            given = [*run.answers, *await _left(connection, run_id)]
            left = {answer.question_id: answer for answer in given}
            known = {*left, *(question.id for question in run.open_questions)}
            if not run.working or not known.issuperset(answer.question_id for answer in answers):
                return False
            for answer in answers:
                before = left.get(answer.question_id)
                if before is None:
                    row = {"run_id": run_id, "question_id": answer.question_id, "answer": answer.model_dump_json()}
                    await connection.execute(_mail.insert().values(**row))
                elif not before.says_the_same(answer):
                    raise AlreadyAnswered(f"Question {answer.question_id} has another answer already; that one stands.")
        return True

    async def mail(self, run_id: str) -> Sequence[Answer]:
        """The answers that were left for whoever works on the run."""
        async with self._reading() as connection:
            return await _left(connection, run_id)

    async def list(self, user: str | None = None, *, statuses: Sequence[RunStatus] | None = None) -> list[Run]:
        """All runs, or those of one user or in one of some statuses, newest first."""
        if not self.path.exists():
            return []
        query = select(_runs.c.id, _runs.c.record).order_by(_runs.c.created_at.desc(), _runs.c.id)
        if user is not None:
            query = query.where(_runs.c.user == user)
        if statuses is not None:
            query = query.where(_runs.c.status.in_([status.value for status in statuses]))
        async with self._reading() as connection:
            return [_run(row.record, row.id) for row in await connection.execute(query)]

    async def _full_id(self, run_id: str) -> str:
        query = select(_runs.c.id).where(_runs.c.id.startswith(run_id, autoescape=True)).limit(3)
        async with self._reading() as connection:
            found = [row.id for row in await connection.execute(query)]
        if run_id in found or len(run_id) < 4 or not found:
            return run_id
        if len(found) > 1:
            raise UnknownRun(run_id, "several runs start with it")
        return str(found[0])

    @contextlib.asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        with self._explained("read"):
            self._refuse_folder()
            async with self._engine.connect() as connection:
                await self._check(connection)
                await connection.commit()  # A file that was still empty has its tables now.
                self._checked = True
                yield connection

    @contextlib.asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        with self._explained("write"):
            self._refuse_folder()
            if not self.path.parent.is_dir():
                raise StoreUnavailable(
                    f"Cannot write the store {self.path}: its folder does not exist. Make the folder, or choose "
                    "another file with --store."
                )
            async with self._engine.begin() as connection:
                await self._check(connection)
                yield connection
            self._checked = True  # Not before: a write that fails takes the tables of a new file back with it.

    def _refuse_folder(self) -> None:
        if self.path.is_dir():
            raise StoreUnavailable(f"The store {self.path} is a folder. Name a file in it with --store.")

    async def _check(self, connection: AsyncConnection) -> None:
        if not self._checked:
            await connection.run_sync(_check_schema, self.path)

    @contextlib.contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StoreUnavailable(
                f"Cannot {verb} the store {self.path}: {error.orig}. Check that it is a database that upcall made, "
                "that file and folder can be written, and that the disk is not full; what was stored before is "
                "unchanged."
            ) from error


def _file(location: str | Path) -> Path:
    text = str(location)
    if "://" in text:
        scheme = urlsplit(text).scheme
        if scheme not in ("sqlite", "sqlite+aiosqlite"):
            raise ConfigurationError(f"A store of kind {scheme!r} is not supported. Use a file name or sqlite:///FILE.")
        text = text.split("://", 1)[1].removeprefix("/")
    if not text or text == ":memory:":
        raise ConfigurationError(f"The store {str(location)!r} names no file. Use a file name: runs outlive a process.")
    return Path(text).expanduser().absolute()


def _configure(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    with contextlib.suppress(Exception):  # A read-only file cannot change its journal; reading it still works.
        cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _check_schema(connection: Connection, path: Path) -> None:
    tables = inspect(connection).get_table_names()
    if not tables:
        # Two processes may find a new file at the same time: one makes the tables, all of them, the other waits.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        tables = inspect(connection).get_table_names()
    if not tables:
        _metadata.create_all(connection)
        connection.execute(_meta.insert().values(key="schema_version", value=str(SCHEMA_VERSION)))
        return
    if _meta.name not in tables:
        raise StoreUnavailable(f"{path} is a database of another program. Choose another file with --store.")
    found = connection.execute(select(_meta.c.value).where(_meta.c.key == "schema_version")).scalar_one_or_none()
    if found != str(SCHEMA_VERSION):
        raise SchemaMismatch(
            f"The store {path} has schema version {found}; this version of upcall reads version {SCHEMA_VERSION}. Use "
            "the version of upcall that made it, or choose another file with --store."
        )


async def _renew(connection: AsyncConnection, stored: StoredRun) -> None:
    held = _runs.update().where(_runs.c.id == stored.run.id, _runs.c.worker == stored.worker)
    if stored.worker is None or (await connection.execute(held.values(beat=time.time()))).rowcount != 1:
        raise RunConflict(stored.run.id)


async def _put_records(connection: AsyncConnection, run_id: str, records: Mapping[str, str | None]) -> None:
    for key, text in records.items():
        await connection.execute(_journal.delete().where(_journal.c.run_id == run_id, _journal.c.key == key))
        if text is not None:
            await connection.execute(_journal.insert().values(run_id=run_id, key=key, record=text))


async def _add_to_log(
    connection: AsyncConnection, run_id: str, entries: Sequence[tuple[str, str | None, Mapping[str, Any]]]
) -> None:
    for kind, user, detail in entries:
        row = {"run_id": run_id, "at": identity.now().isoformat(), "kind": kind, "user": user}
        await connection.execute(_log.insert().values(**row, detail=json.dumps(detail)))


async def _left(connection: AsyncConnection, run_id: str) -> Sequence[Answer]:
    rows = await connection.execute(select(_mail.c.answer).where(_mail.c.run_id == run_id))
    return [Answer.model_validate_json(row.answer) for row in rows]


def _columns(run: Run) -> dict[str, Any]:
    return {
        "status": run.status.value,
        "user": run.user,
        "record": run.model_dump_json(exclude_none=True),
        "created_at": run.created_at.isoformat(),
    }


def _run(record: str, run_id: str) -> Run:
    try:
        return Run.model_validate_json(record)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise SchemaMismatch(
            f"The stored run {run_id} cannot be read (field {where!r}). Use the version of upcall that stored it."
        ) from error
