"""The database of a store: an SQLite file or a PostgreSQL database. The work of a transaction is a plain function of
its connection; a database runs it, commits it whole or not at all, and describes errors in one line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from upcall.errors import ConfigurationError, StoreUnavailable
from upcall.storage import schema
from upcall.storage.connection import Connection, Work, database_errors
from upcall.text import first_line

T = TypeVar("T")
Synchronous: TypeAlias = Literal["normal", "full"]
"""Whether an SQLite store may lose its last commits in a power failure: ``full`` waits for the disk at each one."""

BUSY_TIMEOUT_S = 30
"""How long a write waits for another process's write before it gives up."""
_log = logging.getLogger("upcall")
_USE = "Use a file name, sqlite:///FILE, or postgresql://USER:PASSWORD@HOST/DATABASE."


class Database(Protocol):
    """The database of a store. Creating it opens nothing; usable from several event loops, and after a fork."""

    @property
    def name(self) -> str:
        """The name for messages, without a password."""

    @property
    def file(self) -> Path | None:
        """The file; None for a server's database."""

    @property
    def outage(self) -> Outage:
        """Whether it can be used now."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The URL of a server's database, with its password; empty for a file."""

    async def exists(self) -> bool:
        """Return whether there is anything to read."""

    async def read(self, work: Work[T], *, small: bool = False) -> T:
        """Return the result of `work`, a consistent snapshot. A `small` one takes no longer than starting a
        thread."""

    async def write(self, work: Work[T], *, small: bool = False) -> T:
        """Return the result of `work` once it is stored; if it raises, nothing is stored. A `small` one takes no
        longer than starting a thread."""

    async def inspect(self, work: Work[T]) -> T:
        """Read whatever the schema is, to inspect possibly damaged data; otherwise like `read`."""

    async def alter(self, work: Work[T]) -> T:
        """Write whatever format the tables have, to upgrade them; otherwise like `write`."""

    async def shrink(self) -> None:
        """Return the space of removed data to the disk, if the database does not do so itself."""

    async def close(self) -> None:
        """Close the connections of the running event loop; the next call opens new ones."""


def open_database(location: str | Path, synchronous: Synchronous = "normal") -> Database:
    """Return the database that a file name or URL names.

    Raises:
        ConfigurationError: the kind is unknown, or its driver is not installed.
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
        """Return a connection that nobody else uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def begin(self, statement: str) -> C:
        """Return a connection with an open transaction."""
        connection = self.take()
        try:
            connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: C) -> None:
        """Keep a connection for the next user."""
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def drop_idle(self) -> None:
        """Close the kept connections."""
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
    """Return whether a connection must not be used again after this error."""
    return isinstance(error, database_errors()) or not isinstance(error, Exception)


async def run_in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`. A cancelled caller waits for its end: nothing continues in the background."""
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        # Its error is nobody's any more, also where another cancellation ends the wait: a task group repeats its own.
        working.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([working])
        raise


class Outage:
    """Whether a database can be used, in one process. Where `reports` is set, the log has one line when it cannot and
    one when it can again, however many calls fail in between: whoever calls has no need to log that. A process sets it
    that stands by and continues when the database is back; a command reports its one error itself.

    A full disk fails writes and not reads, so an outage of writes alone is over when one succeeds. Where reads failed
    too, the database was away, and it is back when anything succeeds.

    Args:
        name: the name of the database for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._failing: set[str] = set()
        self._since = 0.0
        self._lock = threading.Lock()  # The calls run in threads.
        self.reports = False

    def begin(self, verb: str, problem: str) -> None:
        """Note that a call failed."""
        with self._lock:
            is_new, self._failing = not self._failing, self._failing | {verb}
            if is_new:
                self._since = time.monotonic()
        if is_new and self.reports:
            _log.warning("%s Waiting for it.", problem)

    def end(self, verb: str) -> None:
        """Note that a call succeeded."""
        if not self._failing:  # Nearly always.
            return
        with self._lock:
            is_over = bool(self._failing) and (verb == "write" or verb in self._failing)
            if is_over:
                self._failing = set()
        if is_over and self.reports:
            _log.warning("The store %s can be used again, after %.0f s.", self._name, time.monotonic() - self._since)


@contextlib.contextmanager
def explain_errors(verb: str, outage: Outage, name: str, advise: Callable[[str], str]) -> Iterator[None]:
    """Describe a database error in one line: what could not be done, where, and what to do.

    Raises:
        StoreUnavailable: for such an error.
    """
    try:
        yield
    except database_errors() as error:
        problem = first_line(error).rstrip(".")
        unavailable = StoreUnavailable(f"Cannot {verb} the store {name}: {problem}. {advise(problem)}", name)
        outage.begin(verb, str(unavailable))
        raise unavailable from error
    outage.end(verb)


def is_unreadable(error: Exception) -> bool:
    """Return whether an SQLite file is damaged at the part that was read."""
    return "malformed" in str(error)


def make_tables(connection: Connection, name: str) -> None:
    """Make the tables, unless another process has done so in the meantime."""
    if not schema.is_there(connection, name):
        schema.create(connection)
