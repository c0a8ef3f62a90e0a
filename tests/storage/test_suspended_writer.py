"""A process that is suspended in a write to PostgreSQL: others who need its locks do not wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from places import SUPPORT
from postgres import Server
from stores import execute

from upcall.storage import postgresql
from upcall.storage.connection import Connection
from upcall.storage.databases import open_database

pytestmark = pytest.mark.slow

WRITER = """
import asyncio, os, sys, threading, time
from fleet import suspend
from upcall.storage.databases import open_database

def count(connection):
    connection.execute("UPDATE counter SET value = value + 1")

def between_statements(connection):
    count(connection)
    suspend()

def behind_several_rows(connection):
    count(connection)
    connection.executemany("INSERT INTO bytes VALUES (:data)", [{"data": b"1"}, {"data": b"2"}])
    suspend()

def in_a_pipeline(connection):
    count(connection)
    with connection.driver.pipeline():
        connection.execute("INSERT INTO bytes VALUES (:data)", {"data": b"1"})
        connection.driver.pgconn.send_flush_request()
        connection.driver.pgconn.flush()
        time.sleep(0.2)
        suspend()

def in_a_large_value(connection):
    count(connection)
    if os.fork() == 0:
        time.sleep(0.05)
        os.kill(os.getppid(), 19)
        os._exit(0)
    connection.execute("INSERT INTO bytes VALUES (:data)", {"data": bytes(100_000_000)})

def in_a_large_result(connection):
    count(connection)
    connection.driver.pgconn.send_query(b"SELECT repeat('x', 1000) FROM generate_series(1, 200000)")
    connection.driver.pgconn.flush()
    time.sleep(0.5)
    suspend()

asyncio.run(open_database(sys.argv[1]).write(globals()[sys.argv[2]]))
"""
PLACES = ("between_statements", "behind_several_rows", "in_a_pipeline", "in_a_large_value", "in_a_large_result")


@pytest.fixture
def counted(postgres: Server) -> str:
    """Return the location of a database with a counter."""
    location = postgres.new_database()
    execute(location, "CREATE TABLE counter AS SELECT 0 AS value")
    execute(location, "CREATE TABLE bytes (data bytea)")
    return location


@contextmanager
def suspended(location: str, place: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a writer that has suspended itself."""
    path = os.pathsep.join([str(SUPPORT), *sys.path])
    with Path("writer.log").open("wb") as log:
        command = [sys.executable, "-c", WRITER, location, place]
        writer = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=log)
    try:
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
        yield writer
    finally:
        writer.send_signal(signal.SIGCONT)
        writer.kill()
        writer.wait()


def add_ten(connection: Connection) -> int:
    return int(connection.execute("UPDATE counter SET value = value + 10 RETURNING value").fetchone()[0])


@pytest.mark.parametrize("place", PLACES)
async def test_locks_of_a_suspended_writer_are_freed(counted: str, place: str) -> None:
    with suspended(counted, place):
        assert await open_database(counted).write(add_ten) == 10


async def test_suspended_writer_that_continues_has_stored_nothing(counted: str) -> None:
    with suspended(counted, "between_statements") as writer:
        await open_database(counted).write(add_ten)
        writer.send_signal(signal.SIGCONT)
        assert writer.wait(30) == 1
    assert await open_database(counted).write(add_ten) == 20
    assert "StoreUnavailable: Cannot write the store" in Path("writer.log").read_text()


async def test_locks_of_a_slow_writer_are_kept(counted: str) -> None:
    """It is at work for longer than one that stands still is waited for."""

    def add_slowly(connection: Connection) -> None:
        for _ in range(25):
            connection.execute("UPDATE counter SET value = value + 1")
            time.sleep(0.2)

    writing = asyncio.create_task(open_database(counted).write(add_slowly))
    while (
        not writing.done() and execute(counted, "SELECT 1 FROM pg_locks WHERE objid = ?", postgresql._WRITER_LOCK) == []
    ):
        await asyncio.sleep(0.05)
    assert await open_database(counted).write(add_ten) == 35
    await writing
