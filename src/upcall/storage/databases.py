"""Where a store lives: an SQLite file, or a PostgreSQL database. What is done in one transaction is a plain function of
its connection; a database runs it, commits it whole or not at all, and says in one line what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from upcall.errors import ConfigurationError, StoreUnavailable
from upcall.storage import schema
from upcall.storage.connection import Connection, Work, database_errors
from upcall.text import first_line

T = TypeVar("T")
Synchronous: TypeAlias = Literal["normal", "full"]
"""Whether an SQLite store may lose its last commits when the power fails: ``full`` waits for the disk at each one."""

BUSY_SECONDS = 30
"""How long a write waits for another process's write before it gives up."""
_USE = "Use a file name, sqlite:///FILE, or postgresql://USER:PASSWORD@HOST/DATABASE."


class Database(Protocol):
    """One place for a store. Made without opening anything; usable from several event loops, and after a fork."""

    @property
    def name(self) -> str:
        """For messages: without a password."""

    @property
    def file(self) -> Path | None:
        """The file that it is; None for a server's database."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """How to connect to a server's database, with its password; nothing for a file."""

    async def exists(self) -> bool:
        """Tell whether there is anything to read."""

    async def read(self, work: Work[T], *, small: bool = False) -> T:
        """Give what `work` gives, all of it as of one moment. A `small` one takes no longer than to have a thread do
        it."""

    async def write(self, work: Work[T], *, small: bool = False) -> T:
        """Give what `work` gives, once it is stored; if it raises, nothing is. A `small` one takes no longer than to
        have a thread do it."""

    async def inspect(self, work: Work[T]) -> T:
        """As `read`, whatever the schema: for looking at what may be damaged."""

    async def shrink(self) -> None:
        """Give the room of what was removed back to the disk, where the database does not by itself."""

    async def close(self) -> None:
        """Close what the running event loop has open; the next call opens it again."""


def open_database(location: str | Path, synchronous: Synchronous = "normal") -> Database:
    """Give the database that a file name or URL names.

    Raises:
        ConfigurationError: there is no such kind, or its driver is not installed.
    """
    from upcall.storage.postgresql import PostgreSQL
    from upcall.storage.sqlite import SQLite

    given = str(location)
    if "://" not in given:
        return SQLite(_parse_file(given, given), synchronous)
    scheme, _, rest = given.partition("://")
    kind, _, driver = scheme.partition("+")
    if kind == "sqlite" and driver in ("", "aiosqlite", "pysqlite"):
        return SQLite(_parse_file(rest.removeprefix("/"), given), synchronous)
    if kind in ("postgresql", "postgres") and driver in ("", "psycopg", "asyncpg"):
        try:
            return PostgreSQL.parse(f"postgresql://{rest}")
        except ValueError as error:
            raise ConfigurationError(f"The URL of the store cannot be read: {error}. {_USE}") from None
    raise ConfigurationError(f"A store of kind {scheme!r} is not supported. {_USE}")


def _parse_file(text: str, given: str) -> Path:
    if not text or text == ":memory:":
        raise ConfigurationError(f"The store {given!r} names no file. Use a file name: runs outlive a process.")
    return Path(text).expanduser().absolute()


# -- what both have in common -----------------------------------------------------------------------------------------


class _Closable(Connection, Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class Pool(Generic[C]):
    """The connections of one event loop, used by one thread each at a time. They are closed when the loop ends: a loop
    closes the generators that it still has."""

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._idle: list[C] = []
        self._closed = False
        self._life = self._live()

    async def open(self) -> None:
        """Bind it to the running loop."""
        await anext(self._life)

    async def close(self) -> None:
        """Close the connections; one that is in use is closed when it is given back."""
        await self._life.aclose()

    def take(self) -> C:
        """Give a connection that nobody else has."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def begin(self, statement: str) -> C:
        """Give one with a transaction in it."""
        connection = self.take()
        try:
            connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: C) -> None:
        """Keep a connection for the next who needs one."""
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def drop_idle(self) -> None:
        """Close what is kept."""
        while self._idle:
            self._idle.pop().close()

    async def _live(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._closed = True
            self.drop_idle()


@contextlib.contextmanager
def commit_at_end(connection: Connection) -> Iterator[None]:
    """Commit the transaction that was begun at the end of the block, or roll it back."""
    try:
        yield
        commit(connection)
    except BaseException:
        with contextlib.suppress(*database_errors()):
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def leave_at_end(connection: Connection) -> Iterator[None]:
    """End the transaction that was begun at the end of the block: there is nothing to commit. SQLite complains of what
    could not be read only now; who read has dealt with that."""
    try:
        yield
    finally:
        with contextlib.suppress(*database_errors()):
            connection.execute("ROLLBACK")


def commit(connection: Connection) -> None:
    """Commit: the one place where anything becomes durable."""
    connection.execute("COMMIT")


def transact(pool: Pool[C], begin: str, work: Work[T], *, writes: bool) -> T:
    """Do some work in one transaction. After an error of the database, or an interruption, its connection is closed."""
    connection = pool.begin(begin)
    try:
        with commit_at_end(connection) if writes else leave_at_end(connection):
            result = work(connection)
    except BaseException as error:
        if breaks_connection(error):
            connection.close()
        else:
            pool.give_back(connection)
        raise
    pool.give_back(connection)
    return result


def breaks_connection(error: BaseException) -> bool:
    """Tell whether a connection is not to be used again after this."""
    return isinstance(error, database_errors()) or not isinstance(error, Exception)


async def run_in_thread(work: Callable[[], T]) -> T:
    """Give the result of `work`. Who is cancelled waits for its end: nothing goes on behind the caller's back."""
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()
        raise


@contextlib.contextmanager
def explain_errors(verb: str, name: str, advise: Callable[[str], str]) -> Iterator[None]:
    """Say of an error of the database in one line what could not be done, where, and what to do.

    Raises:
        StoreUnavailable: for such an error.
    """
    try:
        yield
    except database_errors() as error:
        problem = first_line(error).rstrip(".")
        raise StoreUnavailable(f"Cannot {verb} the store {name}: {problem}. {advise(problem)}") from error


def is_unreadable(error: Exception) -> bool:
    """Tell whether an SQLite file is damaged where it was read."""
    return "malformed" in str(error)


def make_tables(connection: Connection, name: str) -> None:
    """Make the tables where another process has not done so meanwhile."""
    if not schema.is_there(connection, name):
        schema.create(connection)
