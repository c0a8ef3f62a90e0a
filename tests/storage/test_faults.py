"""What goes wrong beneath a store: a clear error in one line, nothing half written, and the last good state loads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import run_code
from places import SUPPORT
from postgres import NoPostgres, Server, running
from stores import FIRST, history

from upcall.errors import StoredStateError, StoreUnavailable, UpcallError
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.events import RunResumed
from upcall.runs.run import Run
from upcall.runs.states import RunEvent
from upcall.storage.connection import Connection
from upcall.storage.event_log import append_events
from upcall.storage.maintenance import check, restore
from upcall.storage.store import RunStore


def text_of(error: BaseException) -> str:
    """Return what a user reads: one line that is ours."""
    assert isinstance(error, UpcallError)
    assert "\n" not in str(error)
    return str(error)


# -- the disk ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here; a limit on the file's size stands for it in another test")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


async def test_disk_that_is_full_is_reported_without_loss(small_disk: Path) -> None:
    location = str(small_disk / "runs.db")
    store = RunStore(location)
    first = await store.create(Run(task="do it"), FIRST)
    with pytest.raises(StoreUnavailable, match="disk") as refused:
        await store.save(first, first.run, Checkpoint(team_state={"big": os.urandom(2_000_000).hex()}))
    assert "what was stored before is unchanged" in text_of(refused.value)
    assert await store.load(first.run.id) == first
    second = await store.save(first, first.run, history(3))
    assert await RunStore(location).load(first.run.id) == second
    assert (await check(store)).problems == []


READ_ONLY = """
import asyncio, os, sys
from pathlib import Path
from upcall.errors import StoreUnavailable
from upcall.runs.run import Run
from upcall.runs.checkpoint import Checkpoint
from upcall.storage.store import RunStore

folder, what = Path(sys.argv[1]), sys.argv[2]
first = asyncio.run(RunStore(folder / "runs.db").create(Run(task="do it"), Checkpoint()))
(folder / "runs.db").chmod(0o444)
folder.chmod(0o555 if what == "folder" else 0o777)
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)

async def main():
    store = RunStore(folder / "runs.db")
    assert await store.load(first.run.id) == first
    assert len(await store.list()) == 1
    for write in (store.save(first, first.run), store.create(Run(task="another"), Checkpoint())):
        try:
            await write
        except StoreUnavailable as error:
            print(error)
    assert await store.load(first.run.id) == first

asyncio.run(main())
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_store_that_is_read_only_reads_and_refuses_writes(what: str) -> None:
    folder = Path(tempfile.mkdtemp())  # An ordinary user does not get into the folder of the tests.
    try:
        done = run_code(READ_ONLY, str(folder), what)
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("readonly" in line and "Check that" in line for line in lines)


def pages(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the file with one page after another overwritten in its middle."""
    whole = path.read_bytes()
    size = int.from_bytes(whole[16:18], "big")
    for number in range(1, len(whole) // size):
        at = number * size + size // 8
        yield number, whole[:at] + b"\xa5" * (size * 3 // 4) + whole[at + size * 3 // 4 :]


@pytest.mark.slow
async def test_page_that_is_damaged_never_yields_wrong_data() -> None:
    store = RunStore("runs.db")
    stored = await store.create(Run(task="do it"), history(10))
    large = Checkpoint(team_state={"notes": os.urandom(20_000).hex()})  # It has pages of its own.
    for checkpoint in (history(60), history(61), large):
        stored = await store.save(stored, stored.run.apply(RunEvent.PLANNING), checkpoint)
    await store.close()
    good = {1: history(10), 2: history(60), 3: history(61)}
    emitted: list[str] = []
    restored: list[int] = []
    for number, content in pages(Path("runs.db")):
        Path(f"{number}.db").write_bytes(content)
        damaged = RunStore(f"{number}.db")
        try:
            assert await damaged.load(stored.run.id) == stored
        except UpcallError as error:
            emitted.append(text_of(error))
            with contextlib.suppress(StoreUnavailable):  # The page of the schema's own table.
                assert (await check(damaged)).problems
            if "store restore" in emitted[-1]:
                whole = int(re.findall(r"The one of version (\d+) is whole", emitted[-1])[0])
                assert await damaged.checkpoint(stored.run.id, whole) == good[whole]
                with contextlib.suppress(StoreUnavailable):  # The page is one that going back has to write.
                    back = await restore(damaged, stored.run.id)
                    assert (await damaged.load(back.id)).checkpoint == good[whole]
                    restored.append(number)
        await damaged.close()
    others = [each for each in emitted if "upcall store" not in each]
    assert all("Unknown run" in each or "schema version" in each or "restore the database" in each for each in others)
    assert len(restored) > sum("store restore" in each for each in emitted) / 2


async def test_file_that_was_cut_short_is_reported() -> None:
    store = RunStore("runs.db")
    await store.create(Run(task="do it"), history(300))
    await store.close()
    os.truncate("runs.db", Path("runs.db").stat().st_size // 2)
    with pytest.raises(StoredStateError) as refused:
        await RunStore("runs.db").list()
    assert "runs.db" in text_of(refused.value)


@pytest.mark.slow
async def test_checkpoint_of_fifty_megabytes_is_kept(location: str) -> None:
    texts = [f"{number} {os.urandom(50_000).hex()}" for number in range(500)]
    big = Checkpoint(team_state={"messages": [{"content": text, "type": "TextMessage"} for text in texts]})
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), FIRST)
    stored = await store.save(stored, stored.run, big)
    assert (await RunStore(location).load(stored.run.id)).checkpoint == big


# -- the database goes away -------------------------------------------------------------------------------------------

WRITES = """
import asyncio, sys
from stores import history
from upcall.runs.run import Run
from upcall.storage.store import RunStore

async def main():
    store = RunStore(sys.argv[1])
    stored = await store.create(Run(id="abcdef000000", task="do it"), history(1))
    for length in range(2, 10_000):
        print(stored.version, flush=True)
        stored = await store.save(stored, stored.run, history(length % 50))

asyncio.run(main())
"""


@pytest.mark.parametrize("writes", [5, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2, 11, 23))])
@pytest.mark.slow
async def test_writer_that_is_killed_leaves_all_or_nothing(writes: int, location: str) -> None:
    path = os.pathsep.join([str(SUPPORT), *sys.path])
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITES, location],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert writer.stdout is not None
    for _ in range(writes):
        acknowledged = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    acknowledged = max([acknowledged, *map(int, writer.communicate()[0].split())])
    stored = await RunStore(location).load("abcdef000000")
    assert stored.version in (acknowledged, acknowledged + 1)
    assert stored.checkpoint == history(stored.version % 50)
    assert (await check(RunStore(location))).problems == []
    assert (await RunStore(location).save(stored, stored.run, FIRST)).version == stored.version + 1


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """Yield a PostgreSQL that may be killed."""
    try:
        with running() as server:
            yield server
    except NoPostgres as reason:
        pytest.skip(f"no PostgreSQL: {reason}")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.4])
async def test_server_that_dies_midway_leaves_the_last_state(seconds: float, own_server: Server) -> None:
    location = own_server.new_database()
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), history(1))

    async def write() -> StoreUnavailable:
        nonlocal stored
        while True:
            try:
                stored = await store.save(stored, stored.run, history(stored.version % 50 + 1))
            except StoreUnavailable as error:
                return error

    writing = asyncio.create_task(write())
    await asyncio.sleep(seconds)
    await asyncio.to_thread(own_server.kill)
    text = text_of(await writing)
    assert "Cannot write the store postgresql://upcall@127.0.0.1" in text
    assert "p@ss" not in text
    assert "p%40ss" not in text
    with pytest.raises(StoreUnavailable, match="Check that the server runs"):
        await store.load(stored.run.id)
    await asyncio.to_thread(own_server.start)
    loaded = await store.load(stored.run.id)  # The same object: it connects anew.
    assert loaded.version in (stored.version, stored.version + 1)
    assert loaded.checkpoint == history((loaded.version - 1) % 50 + 1 if loaded.version > 1 else 1)
    assert (await check(store)).problems == []
    assert (await store.save(loaded, loaded.run, FIRST)).version == loaded.version + 1


@pytest.mark.slow
async def test_database_that_is_not_there_is_reported(postgres: Server) -> None:
    location = postgres.new_database().rpartition("/")[0] + "/nowhere"
    with pytest.raises(StoreUnavailable) as refused:
        await RunStore(location).list()
    assert 'database "nowhere" does not exist' in text_of(refused.value)


@pytest.mark.slow
async def test_transaction_that_stands_still_holds_nobody_up_long(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a plain statement the limit of the server ends it; elsewhere those who wait (test_suspended_writer.py)."""
    monkeypatch.setattr("upcall.storage.postgresql._IDLE_LIMIT_S", {"read": 60, "write": 1})
    store = RunStore(postgres.new_database())
    first = await store.create(Run(task="do it"), FIRST)

    def stand_still(connection: Connection) -> None:
        append_events(connection, first.run.id, [RunResumed()])
        time.sleep(3)

    with pytest.raises(StoreUnavailable, match="idle"):
        await store.database.write(stand_still)
    assert not await store.events.read(first.run.id, types=(RunResumed,))
