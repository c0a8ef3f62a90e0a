"""Where a store lives: an SQLite file, or a PostgreSQL database. What is done in one transaction is a plain function of
a SQLAlchemy connection; this runs it, commits it whole or not at all, and says in one line what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sqlite3
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

from sqlalchemy import create_engine, event, inspect, select, text
from sqlalchemy.engine import URL, Connection, Engine, RootTransaction, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool

from upcall.errors import ConfigurationError, SchemaMismatch, StoreUnavailable
from upcall.storage import tables
from upcall.text import first_line

T = TypeVar("T")
Work = Callable[[Connection], T]
Identity = tuple[int, int]
"""Which file it is, whatever its name."""

WRITES_A_CHECKPOINT = 64
"""How many small writes are made at once before one is made in a thread, which puts SQLite's log into the file where it
has grown."""
BUSY_SECONDS = 30
"""How long a write waits for another process's write before it gives up."""
_LOCK = 0x75706361
"""The advisory lock under which PostgreSQL's tables are made or changed."""
_USE = "Use a file name, sqlite:///FILE, or postgresql://USER:PASSWORD@HOST/DATABASE."


class Database(Protocol):
    """One place for a store. Made without opening anything; usable from several event loops, and after a fork."""

    @property
    def name(self) -> str:
        """For messages: without a password."""

    @property
    def file(self) -> Path | None:
        """The file that it is; None for a server's database."""

    async def exists(self) -> bool:
        """Whether there is anything to read."""

    async def read(self, work: Work[T]) -> T:
        """What `work` gives, all of it as of one moment."""

    async def write(self, work: Work[T], *, small: bool = False) -> T:
        """What `work` gives, once it is stored; if it raises, nothing is. A `small` one takes no longer than to have a
        thread do it."""

    async def inspect(self, work: Work[T]) -> T:
        """As `read_prompt`, whatever the schema: for looking at what may be damaged."""

    async def shrink(self) -> None:
        """Give the room of what was removed back to the disk, where the database does not by itself."""

    async def close(self) -> None:
        """Close what the running event loop has open; the next call opens it again."""


def database(location: str | Path) -> Database:
    """The database that a file name or URL names.

    Raises:
        ConfigurationError: there is no such kind, or its driver is not installed.
    """
    given = str(location)
    if "://" not in given:
        return SQLite(_file(given, given))
    scheme, _, rest = given.partition("://")
    kind, _, driver = scheme.partition("+")
    if kind == "sqlite" and driver in ("", "aiosqlite", "pysqlite"):
        return SQLite(_file(rest.removeprefix("/"), given))
    if kind in ("postgresql", "postgres") and driver in ("", "psycopg", "asyncpg"):
        return PostgreSQL(_url(f"postgresql+psycopg://{rest}"))
    raise ConfigurationError(f"A store of kind {scheme!r} is not supported. {_USE}")


def _file(text: str, given: str) -> Path:
    if not text or text == ":memory:":
        raise ConfigurationError(f"The store {given!r} names no file. Use a file name: runs outlive a process.")
    return Path(text).expanduser().absolute()


def _url(given: str) -> URL:
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        # SQLAlchemy's own words may hold the password.
        raise ConfigurationError(f"The URL of the store cannot be read. {_USE}") from None
    if not url.database:
        raise ConfigurationError(f"The URL of the store names no database. {_USE}")
    return url


class SQLite:
    """A file. Each event loop has connections of its own, which are closed when it ends: opening the file and closing
    it again, with what SQLite then writes, takes longer than all else. A file that was replaced is opened anew.

    The calls run in worker threads: that takes half the time of a driver that makes each statement a task. A small
    write is made at once where nobody else writes: it takes a quarter of a millisecond, and three times as much in a
    thread with cold caches. It waits for nothing: not for another's write, and not for the disk, since SQLite in WAL
    mode syncs at a checkpoint only (https://www.sqlite.org/wal.html), which is left to the others.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopEngine] = weakref.WeakKeyDictionary()
        self._checked: Identity | None = None
        """Which file had its schema checked."""

    @property
    def name(self) -> str:
        """The file's full path."""
        return str(self.path)

    @property
    def file(self) -> Path:
        """See `Database`."""
        return self.path

    async def exists(self) -> bool:
        """Whether there is a file, or something that hides whether there is one: that is told when it is opened."""
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    async def read(self, work: Work[T]) -> T:
        """See `Database`."""
        return await self._call(lambda engine, file: self._do(engine, file, work, "read"))

    async def write(self, work: Work[T], *, small: bool = False) -> T:
        """See `Database`. Cancelled in the middle it is done to its end first."""
        own = self._engines.get(asyncio.get_running_loop()) if small else None
        if own is not None and own.file is not None and own.file == self._checked == self._identity():
            with contextlib.suppress(_Busy), _explained("write", self.name, self._advice):
                return own.at_once(work)
        return await self._call(lambda engine, file: self._do(engine, file, work, "write"))

    async def inspect(self, work: Work[T]) -> T:
        """See `Database`."""
        return await self._call(lambda engine, _: self._inspect(engine, work))

    async def shrink(self) -> None:
        """See `Database`. Where another process is at work on the file it is left as it is."""
        await self._call(lambda engine, _: self._shrink(engine))

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.close()

    async def _call(self, work: Callable[[Engine, Identity | None], T]) -> T:
        loop = asyncio.get_running_loop()
        own, file = self._engines.get(loop), self._identity()
        if own is not None and own.file != file:  # Deleted, or replaced by another file.
            await self.close()
            if own.log == _identity(self._wal):  # SQLite would read what belonged to the other file into this one.
                self._wal.unlink(missing_ok=True)
                self.path.with_name(self.path.name + "-shm").unlink(missing_ok=True)
            own = None
        if own is None:
            made = create_engine("sqlite://", creator=self._connect, poolclass=QueuePool, max_overflow=-1)
            event.listen(made, "begin", _begin)
            own = self._engines[loop] = _LoopEngine(made, file, fixed=self._fixed)
            await own.open()
        engine = own.engine
        assert isinstance(engine, Engine)
        try:
            return await _in_thread(lambda: work(engine, file))
        finally:
            own.file, own.log = own.file or self._identity(), own.log or _identity(self._wal)
            if own.fixed:  # What is read as it stands does not show what others write later.
                await self.close()

    def _inspect(self, engine: Engine, work: Work[T]) -> T:
        with _explained("read", self.name, self._advice):
            self._refuse_folder("read")
            return _transaction(engine, "read", work)

    def _shrink(self, engine: Engine) -> None:
        with contextlib.suppress(SQLAlchemyError), contextlib.closing(engine.raw_connection()) as connection:
            connection.cursor().execute("VACUUM")

    def _do(self, engine: Engine, file: Identity | None, work: Work[T], verb: str) -> T:
        with _explained(verb, self.name, self._advice):
            if file is None or self._checked != file:
                self._refuse_folder(verb)
                self._check(engine)
            return _transaction(engine, verb, work)

    def _check(self, engine: Engine) -> None:
        if not _transaction(engine, "read", lambda connection: _is_current(connection, self.name)):
            # Two processes may find a new file at the same time: one makes the tables, all of them, the other waits.
            _transaction(engine, "write", lambda connection: _make_current(connection, self.name))
        self._checked = self._identity()

    def _identity(self) -> Identity | None:
        return _identity(self.path)

    @property
    def _wal(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _refuse_folder(self, verb: str) -> None:
        if os.path.isdir(self.path):
            raise StoreUnavailable(f"The store {self.path} is a folder. Name a file in it with --store.")
        if verb == "write" and not os.path.isdir(self.path.parent):
            raise StoreUnavailable(
                f"Cannot write the store {self.path}: its folder does not exist. Make the folder, or choose another "
                "file with --store."
            )

    def _connect(self) -> sqlite3.Connection:
        # A folder that cannot be written has no room for the files beside the database; then it is read as it stands.
        place = f"file:{quote(str(self.path))}{'?mode=ro&immutable=1' if self._fixed else ''}"
        connection = sqlite3.connect(
            place, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            with contextlib.suppress(sqlite3.OperationalError):  # A read-only file keeps the mode that it has.
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _fixed(self) -> bool:
        """Whether it can only be read as it stands."""
        return self._identity() is not None and not os.access(self.path.parent, os.W_OK) and not _identity(self._wal)

    def _advice(self, problem: str) -> str:
        if "malformed" in problem or "not a database" in problem:
            return (
                f"The file is damaged, or no database. See what can still be read with: upcall store check --store "
                f"{self.path}"
            )
        return (
            "Check that it is a database that upcall made, that file and folder can be written, and that the disk is "
            "not full; what was stored before is unchanged."
        )


def _identity(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class PostgreSQL:
    """A database on a server. Each event loop has connections of its own, which are closed when it ends."""

    def __init__(self, url: URL) -> None:
        query = {name: value for name, value in url.query.items() if name not in ("password", "sslpassword")}
        self._url = url
        shown = URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
        self._name = shown.render_as_string()
        if importlib.util.find_spec("psycopg") is None:
            raise ConfigurationError(
                f"The store {self._name} needs the driver psycopg. Install it: pip install 'upcall[postgres]'"
            )
        self._engines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopEngine] = weakref.WeakKeyDictionary()
        self._checked = False

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self._name

    @property
    def file(self) -> None:
        """See `Database`."""
        return None

    async def exists(self) -> bool:
        """Always: the tables are made by the first call."""
        return True

    async def read(self, work: Work[T]) -> T:
        """See `Database`."""
        return await self._do(work, "read")

    async def write(self, work: Work[T], *, small: bool = False) -> T:
        """See `Database`."""
        return await self._do(work, "write")

    async def inspect(self, work: Work[T]) -> T:
        """See `Database`."""
        with _explained("read", self.name, self._advice):
            return await _async_transaction(await self._engine(), "read", work)

    async def shrink(self) -> None:
        """The server does by itself."""

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.close()

    async def _do(self, work: Work[T], verb: str) -> T:
        with _explained(verb, self.name, self._advice):
            engine = await self._engine()
            if not self._checked:
                await _async_transaction(engine, "write", lambda connection: _make_current(connection, self.name))
                self._checked = True
            return await _async_transaction(engine, verb, work)

    async def _engine(self) -> AsyncEngine:
        loop = asyncio.get_running_loop()
        if loop not in self._engines:
            self._engines[loop] = _LoopEngine(self._new_engine())
            await self._engines[loop].open()
        engine = self._engines[loop].engine
        assert isinstance(engine, AsyncEngine)
        return engine

    def _new_engine(self) -> AsyncEngine:
        try:
            engine = create_async_engine(
                self._url, pool_size=5, max_overflow=10, pool_pre_ping=True, connect_args={"connect_timeout": 10}
            )
        except ImportError as error:
            raise ConfigurationError(
                f"The driver psycopg cannot be loaded ({first_line(error)}). Install it: pip install 'upcall[postgres]'"
            ) from error
        event.listen(engine.sync_engine, "begin", _bounded)
        return engine

    def _advice(self, problem: str) -> str:
        return (
            "Check that the server runs, that it lets this user in, and that its disk is not full; what was stored "
            "before is unchanged."
        )


class _Busy(Exception):
    """A write cannot be made without waiting."""


class _LoopEngine:
    """An engine that is disposed of when its event loop ends: a loop closes the generators that it still has."""

    def __init__(self, engine: Engine | AsyncEngine, file: Identity | None = None, *, fixed: bool = False) -> None:
        self.engine = engine
        self.file = file
        self.fixed = fixed
        """Whether the file can only be read as it stands."""
        self._here: Connection | None = None
        self._opened: DBAPIConnection | None = None
        self._waits = fixed
        """Whether a write would wait: SQLite has no log here."""
        self._writes = 0
        self.log: Identity | None = None
        """SQLite's log of what is not in the file yet."""
        self._life = self._living()

    async def open(self) -> None:
        await anext(self._life)

    def at_once(self, work: Work[T]) -> T:
        """Write in this thread.

        Raises:
            _Busy: another connection writes, or it is time for a checkpoint; or each write would wait.
        """
        self._writes += 1
        if self._waits or self._writes % WRITES_A_CHECKPOINT == 0:
            raise _Busy
        assert isinstance(self.engine, Engine)
        if self._here is None:
            self._here = _without_waiting(self.engine)
            self._opened = self._here.connection.dbapi_connection
            if not _has_log(self._here):
                self._leave()
                self._waits = True
                raise _Busy
        try:
            with _begun(self._here):
                return work(self._here)
        except BaseException as error:
            # A disk that was full, or Ctrl-C in the middle of a statement: the next one begins afresh.
            if isinstance(error, SQLAlchemyError) or not isinstance(error, Exception):
                self._leave()
            raise

    def _leave(self) -> None:
        if self._here is not None:
            self._here.close()
            self._here = None
        if self._opened is not None:  # SQLAlchemy lets go of one that was interrupted, and leaves its lock to chance.
            self._opened.close()
            self._opened = None

    async def close(self) -> None:
        await self._life.aclose()

    async def _living(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._leave()
            if isinstance(self.engine, AsyncEngine):
                await self.engine.dispose()
            else:
                self.engine.dispose()


# -- transactions -----------------------------------------------------------------------------------------------------


def _transaction(engine: Engine, verb: str, work: Work[T]) -> T:
    with engine.connect().execution_options(upcall=verb) as connection, connection.begin():
        return work(connection)


def _without_waiting(engine: Engine) -> Connection:
    """A connection that waits for nobody, and leaves it to others to put the log into the file."""
    connection = engine.connect().execution_options(upcall="write")
    connection.detach()  # No other is to get one with these settings.
    for setting in ("busy_timeout=0", "wal_autocheckpoint=0"):
        connection.connection.cursor().execute(f"PRAGMA {setting}")
    return connection


def _has_log(connection: Connection) -> bool:
    """Whether SQLite is in WAL mode. A file system without shared memory has none: there a commit waits for the disk,
    and for all who read."""
    cursor = connection.connection.cursor()
    cursor.execute("PRAGMA journal_mode")
    return bool(cursor.fetchone() == ("wal",))


def _begun(connection: Connection) -> RootTransaction:
    try:
        return connection.begin()
    except OperationalError as error:
        if "locked" in str(error.orig) or "busy" in str(error.orig):
            raise _Busy from error
        raise


async def _async_transaction(engine: AsyncEngine, verb: str, work: Work[T]) -> T:
    # Several statements of a reader are to see the same moment; a writer locks the rows that it changes first.
    level = "REPEATABLE READ" if verb == "read" else "READ COMMITTED"
    async with engine.connect() as opened:
        connection = await opened.execution_options(isolation_level=level)
        async with connection.begin():
            return await connection.run_sync(work)


async def _in_thread(work: Callable[[], T]) -> T:
    """The result of `work`. Who is cancelled waits for its end: nothing goes on behind the caller's back."""
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()
        raise


def _begin(connection: Connection) -> None:
    # A writer takes the lock at once: one that has read before could not wait for another's write.
    writes = connection.get_execution_options().get("upcall") == "write"
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _bounded(connection: Connection) -> None:
    """Wait for others no longer than SQLite does; and who stands still in a transaction does not hold up the others."""
    connection.exec_driver_sql(
        f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'; SET LOCAL idle_in_transaction_session_timeout = '60s'"
    )


@contextlib.contextmanager
def _explained(verb: str, name: str, advice: Callable[[str], str]) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        problem = first_line(getattr(error, "orig", None) or error).rstrip(".")
        raise StoreUnavailable(f"Cannot {verb} the store {name}: {problem}. {advice(problem)}") from error
    except sqlite3.Error as error:  # From opening it: SQLAlchemy does not wrap what a creator raises.
        raise StoreUnavailable(f"Cannot {verb} the store {name}: {error}. {advice(str(error))}") from error


# -- the schema -------------------------------------------------------------------------------------------------------


def schema_version(connection: Connection, name: str) -> int | None:
    """The version of the store's schema, None where there is none yet.

    Raises:
        StoreUnavailable: it is a database of another program.
        SchemaMismatch: a later version of upcall wrote it.
    """
    there = inspect(connection).get_table_names()
    if tables.meta.name not in there:
        if there and connection.dialect.name == "sqlite":
            raise StoreUnavailable(f"{name} is a database of another program. Choose another file with --store.")
        return None
    query = select(tables.meta.c.value).where(tables.meta.c.key == "schema_version")
    found = connection.execute(query).scalar_one_or_none()
    if found is None or not found.isdecimal() or not 1 <= int(found) <= tables.SCHEMA_VERSION:
        raise SchemaMismatch(
            f"The store {name} has schema version {found}; this version of upcall reads versions up to "
            f"{tables.SCHEMA_VERSION}. Use the version of upcall that made it, or choose another store with --store."
        )
    return int(found)


def _is_current(connection: Connection, name: str) -> bool:
    return schema_version(connection, name) == tables.SCHEMA_VERSION


def _make_current(connection: Connection, name: str) -> None:
    """Make the tables, or bring those of an older version up to date; all of it in one transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    found = schema_version(connection, name)
    if found is None:
        tables.metadata.create_all(connection)
        connection.execute(tables.meta.insert().values(key="schema_version", value=str(tables.SCHEMA_VERSION)))
    elif found < tables.SCHEMA_VERSION:
        from upcall.storage.migrations import (
            migrate,  # Alembic takes as long to load as the store: only where it is needed.
        )

        migrate(connection, found)
