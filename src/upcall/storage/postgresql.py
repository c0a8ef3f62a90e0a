"""A store in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import time
import weakref
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from upcall.errors import missing_extra
from upcall.storage import schema, upgrading
from upcall.storage.connection import NO_VALUES, Connection, Values, Work
from upcall.storage.databases import (
    BUSY_TIMEOUT_S,
    Outage,
    Pool,
    explain_errors,
    make_tables,
    run_in_thread,
    transact,
)
from upcall.text import first_line

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_BEGIN = {
    # Several statements of a reader are to see the same moment; a writer locks the rows that it changes first.
    "read": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "write": "BEGIN ISOLATION LEVEL READ COMMITTED",
}
_IDLE_LIMIT_S = {"read": 60, "write": 15}
"""How long the server lets a client stand still between two statements of a transaction."""
_WRITER_LOCK = 0x75706362
"""The advisory lock that each write shares, by which the others know it for one."""
_STALLED_S = 3.0
"""A write whose client has neither asked nor read anything for so long is ended by those who wait for its locks."""
_END_STALLED = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE usename = current_user AND datname = current_database() AND wait_event_type = 'Client'
  AND state_change < clock_timestamp() - interval '{_STALLED_S} s'
  AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
              AND classid = 0 AND objid = {_WRITER_LOCK} AND objsubid = 1)
"""
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A line that was cut without a word is given up after half a minute, not after the quarter of an hour, or the two
hours, for which Linux waits by itself. What the store's URL says comes first."""
_MAKE_TABLES_LOCK = 0x75706361
"""The advisory lock under which the tables are made."""
_SECRET = ("password", "sslpassword")


class PostgreSQL:
    """A database on a server. Each event loop has connections of its own, which are closed when it ends. The calls run
    in worker threads, as many at a time as the loop's executor has."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self._name = name
        self.outage = Outage(name)
        self._parameters = parameters
        if importlib.util.find_spec("psycopg") is None:
            raise missing_extra(f"The store {self._name} needs the driver psycopg", "postgres")
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pool[_PostgresConnection]]
        self._pools = weakref.WeakKeyDictionary()
        self._checked = False

    @classmethod
    def parse(cls, url: str) -> PostgreSQL:
        """Return the database that a URL names.

        Raises:
            ValueError: it cannot be parsed, or names no database. The text contains nothing of it.
            ConfigurationError: the driver is not installed.
        """
        try:
            parts = urlsplit(url)
            host, port, database = parts.hostname, parts.port, unquote(parts.path.removeprefix("/"))
        except ValueError:  # Its text may hold the password.
            raise ValueError("host or port are none") from None
        if not database:
            raise ValueError("it names no database")
        query = dict(parse_qsl(parts.query))
        given = {
            "host": host,
            "port": port,
            "user": None if parts.username is None else unquote(parts.username),
            "password": None if parts.password is None else unquote(parts.password),
            "dbname": database,
        }
        visible = urlencode({name: value for name, value in query.items() if name not in _SECRET})
        user = f"{parts.username}@" if parts.username else ""
        place = f"{host or ''}{f':{port}' if port else ''}/{quote(database)}{f'?{visible}' if visible else ''}"
        parameters = {**query, **{name: value for name, value in given.items() if value is not None}}
        return cls(f"postgresql://{user}{place}", parameters)

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self._name

    @property
    def file(self) -> Path | None:
        """See `Database`."""
        return None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """See `Database`."""
        return {**_PATIENCE, **self._parameters}

    async def exists(self) -> bool:
        """See `Database`. The tables are made by the first call."""
        return True

    async def read(self, work: Work[T], *, small: bool = False) -> T:
        """See `Database`."""
        return await self._call(work, "read")

    async def write(self, work: Work[T], *, small: bool = False) -> T:
        """See `Database`."""
        return await self._call(work, "write")

    async def inspect(self, work: Work[T]) -> T:
        """See `Database`."""
        return await self._call(work, "read", check=False)

    async def alter(self, work: Work[T]) -> T:
        """See `Database`."""

        def alone(connection: Connection) -> T:
            connection.execute(f"SELECT pg_advisory_xact_lock({_MAKE_TABLES_LOCK})")
            return work(connection)

        return await self._call(alone, "write", check=False)

    async def shrink(self) -> None:
        """See `Database`. The server does by itself."""

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    async def _call(self, work: Work[T], verb: str, *, check: bool = True) -> T:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = _ServerPool(self._connect)
            await pool.open()
        return await run_in_thread(lambda: self._do(pool, work, verb, check))

    def _do(self, pool: Pool[_PostgresConnection], work: Work[T], verb: str, check: bool) -> T:
        with explain_errors(verb, self.outage, self.name, self._advise):
            if check and not self._checked:
                _transact(pool, "write", self._make_tables)
                self._checked = True
            return _transact(pool, verb, work)

    def _make_tables(self, connection: Connection) -> None:
        connection.execute(f"SELECT pg_advisory_xact_lock({_MAKE_TABLES_LOCK})")
        make_tables(connection, self.name)
        upgrading.refuse_behind(connection, self.name)
        schema.create_added(connection)

    def _connect(self) -> _PostgresConnection:
        try:
            import psycopg
        except ImportError as error:
            raise missing_extra(f"The driver psycopg cannot be loaded ({first_line(error)})", "postgres") from error
        return _PostgresConnection(psycopg.connect(autocommit=True, **self.parameters))

    def _advise(self, problem: str) -> str:
        if "NUL" in problem:
            return "A name holds one; take it out. What was stored before is unchanged."
        return (
            "Check that the server runs, that it lets this user in, and that its disk is not full; what was stored "
            "before is unchanged."
        )


class _ServerPool(Pool["_PostgresConnection"]):
    """The connections to a server, which may have closed them meanwhile."""

    def begin(self, statement: str) -> _PostgresConnection:
        """See `Pool`. Where the server was started anew, or closed what was idle for long, nothing was begun: it is
        safe to connect again, and cheaper than to ask before each transaction."""
        import psycopg

        were_idle = bool(self._idle)
        try:
            return super().begin(statement)
        except psycopg.OperationalError:
            if not were_idle:
                raise
            self.drop_idle()
            return super().begin(statement)


class _PostgresConnection:
    """See `upcall.storage.connection.Connection`."""

    dialect = "postgresql"

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self.driver = driver

    def execute(self, statement: str, values: Values = NO_VALUES, /) -> psycopg.Cursor[Any]:
        # Without values psycopg takes several statements, and a percent sign for what it is.
        return self.driver.execute(_translate(statement) if values else statement, values or None)

    def executemany(self, statement: str, rows: Iterable[Values], /) -> None:
        several = list(rows)
        if len(several) == 1:
            self.execute(statement, several[0])
            return
        with self.driver.cursor() as cursor:
            cursor.executemany(_translate(statement), several)

    def close(self) -> None:
        self.driver.close()


@lru_cache
def _translate(statement: str) -> str:
    """Name the values of a statement as psycopg does."""
    return re.sub(r"(?<!:):([a-z]\w*)", r"%(\1)s", statement)


def _transact(pool: Pool[_PostgresConnection], verb: str, work: Work[T]) -> T:
    """Do some work in one transaction; see `transact`. What waits in vain for a lock is done anew.

    A process that is suspended in a write (SIGSTOP, a frozen machine) keeps its locks. No limit of the server's covers
    all places where that can be: none in the middle of a message or a pipeline, none while a result is sent (PostgreSQL
    15; `transaction_timeout` of 17 would). So who waits for locks ends such writes. The suspended process finds its
    connection closed and nothing of that transaction stored, as when the server was started anew.
    """
    import psycopg

    patience, until = 0.5, time.monotonic() + BUSY_TIMEOUT_S
    while True:
        left = until - time.monotonic()
        begin = _begin(verb, min(patience, max(left, 0.5)))
        try:
            return transact(pool, begin, work, writes=verb == "write")
        except psycopg.errors.LockNotAvailable:
            if left <= patience:
                raise
            _end_stalled(pool)
            patience *= 2


def _begin(verb: str, patience: float) -> str:
    """Return the statements that begin a transaction, sent in one message."""
    limits = {"lock_timeout": patience, "idle_in_transaction_session_timeout": _IDLE_LIMIT_S[verb]}
    statements = [_BEGIN[verb], *(f"SET LOCAL {name} = '{round(1000 * s)}ms'" for name, s in limits.items())]
    if verb == "write":
        statements.append(f"SELECT pg_advisory_xact_lock_shared({_WRITER_LOCK})")
    return "; ".join(statements)


def _end_stalled(pool: Pool[_PostgresConnection]) -> None:
    """End the writes whose clients stand still."""
    transact(pool, _BEGIN["read"], lambda connection: connection.execute(_END_STALLED), writes=False)
