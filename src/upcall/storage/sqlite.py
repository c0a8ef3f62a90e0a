"""A store in an SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from upcall.errors import StoreUnavailable
from upcall.storage import schema, upgrades
from upcall.storage.connection import Connection, Work
from upcall.storage.databases import (
    BUSY_TIMEOUT_S,
    Outage,
    Pool,
    Synchronous,
    breaks_connection,
    commit_at_end,
    explain_errors,
    leave_at_end,
    make_tables,
    run_in_thread,
    transact,
)
from upcall.storage.upgrading import upgrade_file

_log = logging.getLogger("upcall")

T = TypeVar("T")
Identity = tuple[int, int]
"""Which file it is, whatever its name."""

WRITES_PER_CHECKPOINT = 64
"""How many small writes are made at once before one is made in a thread, which puts SQLite's log into the file where it
has grown."""


class SQLite:
    """An SQLite file. Each event loop has its own connections, closed when it ends: opening and closing the file,
    with what SQLite then writes, takes longer than everything else. A replaced file is opened again.

    The calls run in worker threads. A small read or write is made at once, the write where nobody else writes: it takes
    a fraction of a millisecond, and several times as much in a thread with cold caches. It waits for nothing: not for
    another's write, and not for the disk, since SQLite in WAL mode with ``synchronous=NORMAL`` syncs at a checkpoint
    only (https://www.sqlite.org/wal.html), which is left to the others.
    """

    def __init__(self, path: Path, synchronous: Synchronous = "normal") -> None:
        self.path = path
        self.outage = Outage(str(path))
        self._synchronous = synchronous
        self._opened: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OpenFile] = weakref.WeakKeyDictionary()
        self._checked: Identity | None = None
        """Which file had its format checked, when its counter of changes stood where."""
        self._changes = -1
        self._has_added = False

    @property
    def name(self) -> str:
        """The file's full path."""
        return str(self.path)

    @property
    def file(self) -> Path:
        """See `Database`."""
        return self.path

    @property
    def parameters(self) -> Mapping[str, Any]:
        """See `Database`."""
        return {}

    async def exists(self) -> bool:
        """Return whether there is a file, or something that hides whether there is one: that is reported when it is
        opened."""
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    async def read(self, work: Work[T], *, small: bool = False) -> T:
        """See `Database`."""
        if (opened := self._find_opened(small)) is not None:
            with contextlib.suppress(_Busy), explain_errors("read", self.outage, self.name, self._advise):
                return opened.read_at_once(self._guard(work))
        return await self._call(lambda opened: self._do(opened, work, "read"))

    async def write(self, work: Work[T], *, small: bool = False) -> T:
        """See `Database`. Cancelled in the middle it is done to its end first."""
        if (opened := self._find_opened(small and self._has_added)) is not None:
            with contextlib.suppress(_Busy), explain_errors("write", self.outage, self.name, self._advise):
                return opened.write_at_once(self._guard(work))
        return await self._call(lambda opened: self._do(opened, work, "write"))

    async def inspect(self, work: Work[T]) -> T:
        """See `Database`."""
        return await self._call(lambda opened: self._inspect(opened, work))

    async def alter(self, work: Work[T]) -> T:
        """See `Database`."""
        return await self._call(lambda opened: self._alter(opened, work))

    async def shrink(self) -> None:
        """See `Database`. Where another process is at work on the file it is left as it is; cancelled, too: it may take
        minutes."""
        begun: list[_SqliteConnection] = []
        shrinking = asyncio.ensure_future(self._call(partial(_vacuum, begun=begun)))
        try:
            await asyncio.shield(shrinking)
        except asyncio.CancelledError:
            for connection in begun:
                connection.interrupt()
            await asyncio.wait([shrinking])
            raise

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.pool.close()

    def _find_opened(self, small: bool) -> _OpenFile | None:
        """Return what the running loop has open where a transaction can be made in this thread."""
        opened = self._opened.get(asyncio.get_running_loop()) if small else None
        if opened is None or opened.file is None or not opened.file == self._checked == self._identify():
            return None
        return opened

    async def _call(self, work: Callable[[_OpenFile], T]) -> T:
        loop = asyncio.get_running_loop()
        opened, file = self._opened.get(loop), self._identify()
        if opened is not None and opened.file not in (None, file):  # Deleted, or replaced by another file.
            await self.close()
            # SQLite would read what belonged to the other file into this one.
            if opened.log is not None and opened.log == _identify(self._wal):
                self._wal.unlink(missing_ok=True)
                self.path.with_name(self.path.name + "-shm").unlink(missing_ok=True)
            opened = None
        if opened is None:
            opened = self._opened[loop] = _OpenFile(self._connect, file, waits=self._synchronous == "full")
            await opened.pool.open()
        fixed = self._is_fixed
        try:
            return await run_in_thread(lambda: work(opened))
        finally:
            opened.file, opened.log = opened.file or self._identify(), opened.log or _identify(self._wal)
            if fixed:  # What is read as it stands does not show what others write later.
                await self.close()

    def _inspect(self, opened: _OpenFile, work: Work[T]) -> T:
        with explain_errors("read", self.outage, self.name, self._advise):
            self._refuse_folder("read")
            return _transact(opened.pool, "read", work)

    def _do(self, opened: _OpenFile, work: Work[T], verb: str) -> T:
        with explain_errors(verb, self.outage, self.name, self._advise):
            if opened.file is None or self._checked != opened.file:
                self._refuse_folder(verb)
                self._check(opened)
            if verb == "write" and not self._has_added:
                if schema.list_added():
                    _transact(opened.pool, "write", self._guard(schema.create_added))
                    self._changes = _transact(opened.pool, "read", _count_changes)
                self._has_added = True
            return _transact(opened.pool, verb, self._guard(work))

    def _check(self, opened: _OpenFile) -> None:
        if not _transact(opened.pool, "read", lambda connection: schema.is_there(connection, self.name)):
            # Two processes may find a new file at the same time: one makes the tables, all of them, the other waits.
            _transact(opened.pool, "write", lambda connection: make_tables(connection, self.name))
        changes, is_behind = _transact(opened.pool, "read", self._look_behind)
        if is_behind:
            done = _transact(opened.pool, "write", partial(upgrade_file, file=self.path))
            changes, _ = _transact(opened.pool, "read", self._look_behind)
            if done is not None:
                _log.warning("%s", done)
        self._checked, self._changes, self._has_added = self._identify(), changes, False

    def _look_behind(self, connection: Connection) -> tuple[int, bool]:
        formats = upgrades.read_formats(connection, self.name)
        return _count_changes(connection), bool(upgrades.list_pending(formats))

    def _guard(self, work: Work[T]) -> Work[T]:
        """Return the work for a file whose format was checked: it is checked again where another process has changed
        that meanwhile."""

        def check_first(connection: Connection) -> T:
            if (changes := _count_changes(connection)) != self._changes:
                schema.is_there(connection, self.name)
                self._changes = changes
            return work(connection)

        return check_first

    def _alter(self, opened: _OpenFile, work: Work[T]) -> T:
        with explain_errors("write", self.outage, self.name, self._advise):
            self._refuse_folder("write")
            return _transact(opened.pool, "write", work)

    def _identify(self) -> Identity | None:
        return _identify(self.path)

    @property
    def _wal(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _refuse_folder(self, verb: str) -> None:
        if os.path.isdir(self.path):
            raise StoreUnavailable(f"The store {self.path} is a folder. Name a file in it with --store.", self.name)
        if verb == "write" and not os.path.isdir(self.path.parent):
            raise StoreUnavailable(
                f"Cannot write the store {self.path}: its folder does not exist. Make the folder, or choose another "
                "file with --store.",
                self.name,
            )

    def _connect(self) -> _SqliteConnection:
        # A folder that cannot be written has no room for the files beside the database; then it is read as it stands.
        place = f"file:{quote(str(self.path))}{'?mode=ro&immutable=1' if self._is_fixed else ''}"
        connection = sqlite3.connect(
            place,
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            factory=_SqliteConnection,
        )
        try:
            with contextlib.suppress(sqlite3.OperationalError):  # A read-only file keeps the mode that it has.
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
        except UnicodeDecodeError as error:  # SQLite's message quotes the damaged text of the schema (Python 3.11).
            connection.close()
            raise sqlite3.DatabaseError("the schema is malformed") from error
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _is_fixed(self) -> bool:
        """Whether it can only be read as it stands."""
        return self._identify() is not None and not os.access(self.path.parent, os.W_OK) and not _identify(self._wal)

    def _advise(self, problem: str) -> str:
        if "malformed" in problem or "not a database" in problem:
            return (
                f"The file is damaged, or no database. See what can still be read with: upcall store check --store "
                f"{self.path}"
            )
        return (
            "Check that it is a database that upcall made, that file and folder can be written, and that the disk is "
            "not full; what was stored before is unchanged."
        )


class _SqliteConnection(sqlite3.Connection):
    """See `upcall.storage.connection.Connection`."""

    dialect = "sqlite"

    @property
    def driver(self) -> _SqliteConnection:
        """See `upcall.storage.connection.Connection`."""
        return self

    def __del__(self) -> None:
        """Close it where its store was left to the collector before its event loop ended."""
        with contextlib.suppress(sqlite3.Error):  # It may never have been opened.
            self.close()


class _Busy(Exception):
    """A write cannot be made without waiting."""


class _OpenFile:
    """What one event loop has open of a file."""

    def __init__(self, connect: Callable[[], _SqliteConnection], file: Identity | None, *, waits: bool) -> None:
        self.pool = _FilePool(connect)
        self.file = file
        """Which file it is; None until the first call that makes it has ended."""
        self.log: Identity | None = None
        """SQLite's log of what is not in the file yet, once a call has ended that found one."""
        self._waits = waits
        """Whether each write would wait, for the disk or for those who read."""
        self._writes = 0

    def write_at_once(self, work: Work[T]) -> T:
        """Write in this thread.

        Raises:
            _Busy: another connection writes, or it is time for a checkpoint; or each write would wait.
        """
        self._writes += 1
        if self._writes % WRITES_PER_CHECKPOINT == 0:
            raise _Busy
        return self._do_at_once(work, "BEGIN IMMEDIATE", commit_at_end)

    def read_at_once(self, work: Work[T]) -> T:
        """Read in this thread.

        Raises:
            _Busy: each read would wait; or this one, as where SQLite's log is put right after a crash.
        """
        try:
            return self._do_at_once(work, "BEGIN", leave_at_end)
        except sqlite3.OperationalError as error:  # A reader's lock is not taken before its first statement.
            if _is_locked(error):
                raise _Busy from error
            raise

    def _do_at_once(self, work: Work[T], begin: str, end: Callable[[Connection], AbstractContextManager[None]]) -> T:
        connection = self._take_own()
        try:
            _begin_at_once(connection, begin)
            with end(connection):
                return work(connection)
        except BaseException as error:
            # A disk that was full, or Ctrl-C in the middle of a statement: the next one begins afresh.
            if breaks_connection(error):
                self.pool.drop_own()
            raise

    def _take_own(self) -> _SqliteConnection:
        if not self._waits and self.pool.own is None:
            self.pool.own = self.pool.connect_without_waiting()
            self._waits = self.pool.own is None
        if self._waits or self.pool.own is None:
            raise _Busy
        return self.pool.own


class _FilePool(Pool[_SqliteConnection]):
    """The connections to a file, and one that waits for nobody."""

    own: _SqliteConnection | None = None

    def connect_without_waiting(self) -> _SqliteConnection | None:
        """Return a connection that leaves it to others to put the log into the file. None where there is no log: a file
        system without shared memory has none, and there a commit waits for the disk, and for all who read."""
        connection = self._connect()
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "wal":
            connection.close()
            return None
        connection.execute("PRAGMA busy_timeout=0")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        return connection

    def drop_own(self) -> None:
        """Close it, with the lock that it may hold."""
        if self.own is not None:
            self.own.close()
            self.own = None

    def drop_idle(self) -> None:
        """See `Pool`."""
        self.drop_own()
        super().drop_idle()


def _begin_at_once(connection: _SqliteConnection, begin: str) -> None:
    try:
        connection.execute(begin)
    except sqlite3.OperationalError as error:
        if _is_locked(error):
            raise _Busy from error
        raise


def _is_locked(error: sqlite3.OperationalError) -> bool:
    return "locked" in str(error) or "busy" in str(error)


def _transact(pool: Pool[_SqliteConnection], verb: str, work: Work[T]) -> T:
    # A writer takes the lock at once: one that has read before could not wait for another's write.
    writes = verb == "write"
    return transact(pool, "BEGIN IMMEDIATE" if writes else "BEGIN", work, writes=writes)


def _vacuum(opened: _OpenFile, *, begun: list[_SqliteConnection]) -> None:
    connection = opened.pool.take()
    begun.append(connection)
    with contextlib.suppress(sqlite3.Error):
        connection.execute("VACUUM")
    opened.pool.give_back(connection)


def _count_changes(connection: Connection) -> int:
    """Count how often a format of the file's tables was written."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _identify(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
