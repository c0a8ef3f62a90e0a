"""The store: a real SQLite file, written by several objects and broken on purpose."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from autogen_agentchat.messages import TextMessage

from upcall.checkpoints import Checkpoint
from upcall.errors import ConfigurationError, RunConflict, SchemaMismatch, StoreUnavailable, UnknownRun
from upcall.runs import Run, RunStatus
from upcall.store import RunStore

FIRST = Checkpoint(inbox=(TextMessage(source="user", content="do it"),))


async def test_a_run_comes_back_as_it_was_stored() -> None:
    """S4-54"""
    stored = await RunStore("runs.db").create(Run(task="do it", user="alice"), FIRST)
    assert await RunStore("runs.db").load(stored.run.id) == stored


async def test_one_file_holds_everything_at_rest(tmp_path: Path) -> None:
    await RunStore("runs.db").create(Run(task="do it"), FIRST)
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]


async def test_a_write_follows_the_version_it_saw() -> None:
    store = RunStore("runs.db")
    first = await store.create(Run(task="do it"), FIRST)
    second = await store.save(first, first.run.moved_to(RunStatus.PLANNING))
    assert (second.version, (await store.load(first.run.id)).run.status) == (2, RunStatus.PLANNING)


async def test_a_write_that_follows_an_older_version_is_refused_and_changes_nothing() -> None:
    store = RunStore("runs.db")
    first = await store.create(Run(task="do it"), FIRST)
    second = await store.save(first, first.run.moved_to(RunStatus.PLANNING))
    with pytest.raises(RunConflict, match="nothing was written"):
        await store.save(first, first.run.moved_to(RunStatus.FAILED), Checkpoint(team_state={"lost": True}))
    assert await store.load(first.run.id) == second


async def test_of_eight_writers_at_once_one_wins() -> None:
    first = await RunStore("runs.db").create(Run(task="do it"), FIRST)
    writes = [RunStore("runs.db").save(first, first.run.moved_to(RunStatus.PLANNING)) for _ in range(8)]
    ended = await asyncio.gather(*writes, return_exceptions=True)
    assert sorted(type(each).__name__ for each in ended) == ["RunConflict"] * 7 + ["StoredRun"]


async def test_without_a_new_checkpoint_the_last_one_stays() -> None:
    store = RunStore("runs.db")
    first = await store.create(Run(task="do it"), FIRST)
    await store.save(first, first.run.moved_to(RunStatus.FAILED, error="no"))
    assert (await store.load(first.run.id)).checkpoint == FIRST


async def test_the_beginning_of_an_id_is_enough_where_it_is_the_only_one() -> None:
    store = RunStore("runs.db")
    await store.create(Run(id="abcdef000001", task="one"), FIRST)
    await store.create(Run(id="abcdff000002", task="two"), FIRST)
    assert (await store.load("abcde")).run.task == "one"
    with pytest.raises(UnknownRun, match="several runs start with it"):
        await store.load("abcd")


async def test_a_percent_sign_is_no_wildcard() -> None:
    store = RunStore("runs.db")
    await store.create(Run(task="do it"), FIRST)
    with pytest.raises(UnknownRun):
        await store.load("%%%%")


async def test_runs_are_listed_newest_first_and_by_user() -> None:
    store = RunStore("runs.db")
    for user in ("alice", "bob"):
        await store.create(Run(task=f"for {user}", user=user), FIRST)
    assert [run.user for run in await store.list("alice")] == ["alice"]
    assert len(await store.list()) == 2


async def test_reading_a_store_that_is_not_there_makes_none() -> None:
    assert await RunStore("runs.db").list() == []
    with pytest.raises(UnknownRun, match="does not exist"):
        await RunStore("runs.db").load("abcd")
    assert not Path("runs.db").exists()


async def test_an_empty_file_is_a_new_store_for_readers_and_writers() -> None:
    """A process may have been killed between making the file and making the tables."""
    Path("runs.db").touch()
    store = RunStore("runs.db")
    assert await store.list() == []
    stored = await store.create(Run(task="do it"), FIRST)
    assert await RunStore("runs.db").load(stored.run.id) == stored


async def test_a_folder_is_no_store() -> None:
    with pytest.raises(StoreUnavailable, match="is a folder"):
        await RunStore(".").list()


@pytest.mark.parametrize("location", ["runs.db", "sqlite:///runs.db", "sqlite+aiosqlite:///runs.db"])
async def test_a_file_can_be_named_by_path_or_url(location: str, tmp_path: Path) -> None:
    assert RunStore(location).path == tmp_path / "runs.db"


def test_an_absolute_path_in_a_url_stays_absolute() -> None:
    assert RunStore("sqlite:////srv/runs.db").path == Path("/srv/runs.db")


@pytest.mark.parametrize("location", ["mysql://user:secret@host/db", "sqlite://", ":memory:", "https://host/x"])
def test_another_kind_of_store_is_refused_without_its_password(location: str) -> None:
    with pytest.raises(ConfigurationError, match="Use a file name") as refused:
        RunStore(location)
    assert "secret" not in str(refused.value)


async def test_a_missing_folder_is_said() -> None:
    with pytest.raises(StoreUnavailable, match="its folder does not exist"):
        await RunStore("nowhere/runs.db").create(Run(task="do it"), FIRST)


async def test_a_damaged_checkpoint_is_said_and_left_as_it_is() -> None:
    stored = await RunStore("runs.db").create(Run(task="do it"), FIRST)
    with sqlite3.connect("runs.db") as connection:
        connection.execute('update upcall_checkpoints set state = \'{"version": 1, "inbox": 7}\'')
    with pytest.raises(SchemaMismatch, match="damaged"):
        await RunStore("runs.db").load(stored.run.id)


@pytest.mark.parametrize("version", ["0", "2", "null", '"1"'])
async def test_a_checkpoint_of_another_version_is_refused_with_what_to_do(version: str) -> None:
    stored = await RunStore("runs.db").create(Run(task="do it"), FIRST)
    with sqlite3.connect("runs.db") as connection:
        connection.execute("update upcall_checkpoints set state = ?", (f'{{"version": {version}}}',))
    with pytest.raises(SchemaMismatch, match="Go on with the version of upcall that stored it"):
        await RunStore("runs.db").load(stored.run.id)


async def test_a_run_record_of_another_version_is_refused() -> None:
    stored = await RunStore("runs.db").create(Run(task="do it"), FIRST)
    with sqlite3.connect("runs.db") as connection:
        connection.execute('update upcall_runs set record = \'{"status": "dreaming"}\'')
    with pytest.raises(SchemaMismatch, match="field 'status'"):
        await RunStore("runs.db").load(stored.run.id)


async def test_a_database_that_is_locked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.store.BUSY_SECONDS", 0.05)
    store = RunStore("runs.db")
    first = await store.create(Run(task="do it"), FIRST)
    with sqlite3.connect("runs.db") as other:
        other.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="database is locked"):
            await store.save(first, first.run.moved_to(RunStatus.PLANNING))


def test_a_full_disk_is_said_and_the_last_state_stays() -> None:
    """A limit on the file's size stands for the disk: the write fails in the same place."""
    code = f"""
import asyncio, resource, signal
from upcall.checkpoints import Checkpoint
from upcall.errors import StoreUnavailable
from upcall.runs import Run
from upcall.store import RunStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
async def main():
    store = RunStore("runs.db")
    first = await store.create(Run(task="do it"), Checkpoint())
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, {resource.RLIM_INFINITY}))
    try:
        await store.save(first, first.run, Checkpoint(team_state={{"big": "x" * 1_000_000}}))
    except StoreUnavailable as error:
        print("refused", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({resource.RLIM_INFINITY}, {resource.RLIM_INFINITY}))
    assert await store.load(first.run.id) == first
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "the disk is not full" in done.stdout


async def test_a_store_can_be_used_from_several_event_loops() -> None:
    store = RunStore("runs.db")
    first = await asyncio.to_thread(asyncio.run, store.create(Run(task="do it"), FIRST))
    assert await store.load(first.run.id) == first


async def test_a_checkpoint_of_ten_megabytes_is_kept() -> None:
    """S4-49"""
    big = Checkpoint(team_state={"messages": ["x" * 1000] * 10_000})
    stored = await RunStore("runs.db").create(Run(task="do it"), big)
    assert (await RunStore("runs.db").load(stored.run.id)).checkpoint == big
