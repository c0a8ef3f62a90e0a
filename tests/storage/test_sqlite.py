"""The store in an SQLite file: what is a file's own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from stores import FIRST

from upcall import Settings, Upcall
from upcall.errors import ConfigurationError, RunGone, StoreUnavailable, UnknownRun
from upcall.runs.run import Run
from upcall.runs.states import RunEvent, RunStatus
from upcall.storage import sqlite
from upcall.storage.connection import Connection
from upcall.storage.databases import run_in_thread
from upcall.storage.leases import LeaseHolder
from upcall.storage.sqlite import SQLite
from upcall.storage.store import RunStore


def test_one_file_holds_everything_at_rest(tmp_path: Path) -> None:
    """At rest is when the event loop has ended, or the store was closed."""

    async def closed_by_hand() -> list[str]:
        store = RunStore("runs.db")
        await store.create(Run(task="do it"), FIRST)
        await store.close()
        return [path.name for path in tmp_path.iterdir()]

    asyncio.run(RunStore("runs.db").create(Run(task="do it"), FIRST))
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]
    assert asyncio.run(closed_by_hand()) == ["runs.db"]


@pytest.mark.parametrize(("synchronous", "pragma"), [("normal", 1), ("full", 2)])
async def test_write_waits_for_the_disk_on_request(synchronous: str, pragma: int) -> None:
    app = Upcall(store="runs.db", settings=Settings.read(models={"model": "demo"}, store={"synchronous": synchronous}))
    await app.store.create(Run(task="do it"), FIRST)
    for work in (app.store.database.read, app.store.database.write):
        assert (await work(lambda each: each.execute("PRAGMA synchronous").fetchone())) == (pragma,)


async def test_reading_a_store_that_is_not_there_makes_none() -> None:
    assert await RunStore("runs.db").list() == []
    with pytest.raises(UnknownRun, match="does not exist"):
        await RunStore("runs.db").load("abcd")
    assert not Path("runs.db").exists()


async def test_empty_file_is_a_new_store() -> None:
    """A process may have been killed between making the file and making the tables."""
    Path("runs.db").touch()
    store = RunStore("runs.db")
    assert await store.list() == []
    stored = await store.create(Run(task="do it"), FIRST)
    assert await RunStore("runs.db").load(stored.run.id) == stored


async def test_folder_is_no_store() -> None:
    with pytest.raises(StoreUnavailable, match="is a folder"):
        await RunStore(".").list()


@pytest.mark.parametrize("location", ["runs.db", "sqlite:///runs.db", "sqlite+aiosqlite:///runs.db"])
async def test_file_can_be_named_by_path_or_url(location: str, tmp_path: Path) -> None:
    assert RunStore(location).name == str(tmp_path / "runs.db")


def test_absolute_path_in_a_url_stays_absolute() -> None:
    assert RunStore("sqlite:////srv/runs.db").name == "/srv/runs.db"


@pytest.mark.parametrize(
    "location", ["mysql://user:secret@host/db", "sqlite://", ":memory:", "https://host/x", "postgresql://u:secret@host"]
)
def test_another_kind_of_store_is_refused_without_its_password(location: str) -> None:
    with pytest.raises(ConfigurationError, match="Use a file name") as refused:
        RunStore(location)
    assert "secret" not in str(refused.value)


async def test_missing_folder_is_reported() -> None:
    with pytest.raises(StoreUnavailable, match="its folder does not exist"):
        await RunStore("nowhere/runs.db").create(Run(task="do it"), FIRST)


async def test_database_that_is_locked_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.storage.sqlite.BUSY_TIMEOUT_S", 0.05)
    store = RunStore("runs.db")
    first = await store.create(Run(task="do it"), FIRST)
    with contextlib.closing(sqlite3.connect("runs.db")) as other, other:
        other.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="database is locked"):
            await store.save(first, first.run.apply(RunEvent.PLANNING))


async def test_small_read_stays_in_the_loops_thread() -> None:
    database = RunStore("runs.db").database
    await database.write(lambda connection: connection.execute("CREATE TABLE mine (what)").rowcount)

    def work(connection: Connection) -> tuple[int, int]:
        return connection.execute("SELECT count(*) FROM mine").fetchone()[0], threading.get_ident()

    with contextlib.closing(sqlite3.connect("runs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO mine VALUES (1)")
        assert await database.read(work, small=True) == (0, threading.get_ident())
        other.execute("COMMIT")
    assert await database.read(work, small=True) == (1, threading.get_ident())
    assert (await database.read(work))[1] != threading.get_ident()


async def test_small_read_of_a_locked_file_uses_threads() -> None:
    """In WAL mode too a query may find the file busy (https://www.sqlite.org/wal.html)."""
    database = RunStore("runs.db").database
    await database.write(_thread)

    def work(connection: Connection) -> int:
        if threading.get_ident() == here:
            raise sqlite3.OperationalError("database is locked")
        return connection.execute("SELECT 1").fetchone()[0]

    here = threading.get_ident()
    assert await database.read(work, small=True) == 1


async def test_small_read_behind_a_writer_uses_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SQLite's log a reader has to wait until who writes is done."""
    monkeypatch.setattr(SQLite, "_connect", _connect_without_log)
    database = RunStore("runs.db").database
    await database.write(_thread)
    assert await database.read(_thread, small=True) != threading.get_ident()


def _connect_without_log(self: SQLite) -> sqlite._SqliteConnection:
    return sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, factory=sqlite._SqliteConnection)


def _thread(connection: Connection) -> int:
    return threading.get_ident()


async def test_write_that_is_interrupted_keeps_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook Ctrl-C comes wherever Python is."""
    store = RunStore("runs.db")
    stored = await store.create(Run(task="do it"), FIRST)
    await store.journal.write(stored, {"call": "begun"})

    def interrupt(self: sqlite._SqliteConnection, statement: str, rows: object) -> None:
        sqlite3.Connection.executemany(self, statement, rows)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sqlite._SqliteConnection, "executemany", interrupt, raising=False)
        with pytest.raises(KeyboardInterrupt):
            await store.journal.write(stored, {"call": "made"})
    with contextlib.closing(sqlite3.connect("runs.db", timeout=0)) as other:
        other.execute("BEGIN IMMEDIATE")
    assert await store.journal.read(stored.run.id) == {"call": "begun"}
    await store.journal.write(stored, {"call": "made"})
    assert await store.journal.read(stored.run.id) == {"call": "made"}


@pytest.mark.slow
async def test_file_without_a_log_is_written_after_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file system without shared memory leaves it in SQLite's older mode, where a commit waits for all readers."""
    options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "factory": sqlite._SqliteConnection}
    monkeypatch.setattr(SQLite, "_connect", lambda self: sqlite3.connect(self.path, **options))
    store = RunStore("runs.db")
    stored = await store.create(Run(task="do it"), FIRST)
    await store.journal.write(stored, {"call": "begun"})
    with contextlib.closing(sqlite3.connect("runs.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM upcall_runs").fetchall()
        writing = asyncio.create_task(store.journal.write(stored, {"call": "made"}))
        await asyncio.wait([writing], timeout=0.3)
        reader.execute("COMMIT")
        await writing
    assert await store.journal.read(stored.run.id) == {"call": "made"}


@pytest.mark.slow
def test_disk_that_is_full_keeps_the_last_state() -> None:
    """A limit on the file's size stands for the disk: the write fails in the same place."""
    code = f"""
import asyncio, os, resource, signal
from upcall.runs.checkpoint import Checkpoint
from upcall.errors import StoreUnavailable
from upcall.runs.run import Run
from upcall.storage.store import RunStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
async def main():
    store = RunStore("runs.db")
    first = await store.create(Run(task="do it"), Checkpoint())
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, {resource.RLIM_INFINITY}))
    try:
        await store.save(first, first.run, Checkpoint(team_state={{"big": os.urandom(500_000).hex()}}))
    except StoreUnavailable as error:
        print("refused", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({resource.RLIM_INFINITY}, {resource.RLIM_INFINITY}))
    assert await store.load(first.run.id) == first
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "the disk is not full" in done.stdout


async def test_file_that_was_replaced_is_noticed() -> None:
    """By another store, with other runs in it."""
    store, other = RunStore("runs.db"), RunStore("other.db")
    first, second = await store.create(Run(task="one"), FIRST), await other.create(Run(task="two"), FIRST)
    await other.close()
    shutil.move("other.db", "runs.db")
    assert [run.task for run in await store.list()] == ["two"]
    assert await store.load(second.run.id) == second
    with pytest.raises(RunGone):
        await store.save(first, first.run)


async def test_new_file_of_two_calls_is_no_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call finds the file that the first is just making, and must not clear away its log."""
    database, connect, is_let_on = SQLite(Path("runs.db")), SQLite._connect, threading.Event()

    def connect_slowly(database: SQLite) -> Any:
        database.path.touch()
        assert is_let_on.wait(30)
        return connect(database)

    monkeypatch.setattr(SQLite, "_connect", connect_slowly)
    calls = [asyncio.create_task(database.write(lambda opened: None))]
    while not Path("runs.db").exists():
        await asyncio.sleep(0.01)
    opened = database._opened[asyncio.get_running_loop()]
    calls.append(asyncio.create_task(database.write(lambda opened: None)))
    await asyncio.sleep(0.05)
    is_let_on.set()
    await asyncio.gather(*calls)
    assert database._opened[asyncio.get_running_loop()] is opened


async def test_file_that_was_deleted_is_not_written_unseen() -> None:
    store = RunStore("runs.db")
    first = await store.create(Run(task="one"), FIRST)
    for path in Path().glob("runs.db*"):
        path.unlink()
    with pytest.raises(RunGone, match="the database was replaced"):
        await store.save(first, first.run)
    again = await store.create(Run(task="again"), FIRST)
    assert await RunStore("runs.db").load(again.run.id) == again


async def test_forked_process_can_use_its_parents_store() -> None:
    store = RunStore("runs.db")
    first = await store.create(Run(task="do it"), FIRST)

    def child() -> None:
        loaded = asyncio.run(store.load(first.run.id))
        asyncio.run(store.save(loaded, loaded.run.apply(RunEvent.PLANNING)))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    await asyncio.to_thread(process.join)
    second = await store.load(first.run.id)
    assert (process.exitcode, second.version, second.run.status) == (0, 2, RunStatus.PLANNING)
    assert (await store.save(second, second.run)).version == 3


async def test_forked_process_is_a_worker_of_its_own() -> None:
    """Else its runs would be taken for its parent's, and never for those of a process that is gone."""
    parent, pipe = LeaseHolder(), multiprocessing.get_context("fork").Pipe()

    process = multiprocessing.get_context("fork").Process(target=lambda: pipe[1].send(LeaseHolder()))
    process.start()
    child = await asyncio.to_thread(pipe[0].recv)
    await asyncio.to_thread(process.join)
    assert (child.process, child.place) == (process.pid, parent.place)
    assert child.started != parent.started
    assert child.is_gone()


def test_nothing_is_left_open_that_outlives_the_event_loop() -> None:
    asyncio.run(RunStore("runs.db").create(Run(task="do it"), FIRST))
    assert not [each for each in os.listdir("/proc/self/fd") if "runs.db" in _target(each)]


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


async def test_cancellation_that_is_repeated_leaves_no_unheard_error() -> None:
    received: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: received.append(context))
    begun, resume = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        resume.wait(5)
        raise ValueError

    task = asyncio.ensure_future(run_in_thread(work))
    await asyncio.to_thread(begun.wait, 5)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    resume.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    del task  # Its traceback holds what was waited for.
    await asyncio.sleep(0.05)
    gc.collect()
    assert received == []
