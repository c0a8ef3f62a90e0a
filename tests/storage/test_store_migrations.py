"""Stores that older versions of upcall wrote, with runs that wait, are done and have failed: they open and go on.

The files in tests/stores_of_old were written by the versions themselves, each with the runs of the demo.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from places import TESTS
from sqlalchemy import Connection
from stores import execute

from upcall import RunStatus, Settings, Upcall
from upcall.errors import SchemaMismatch, StoreUnavailable
from upcall.storage import tables
from upcall.storage.migrations import STEPS
from upcall.storage.store import RunStore
from upcall.storage.tables import SCHEMA_VERSION

OLD = TESTS / "stores_of_old"
VERSIONS = range(1, SCHEMA_VERSION)


def old_store(version: int, location: str) -> None:
    """Make a store as that version left it, in the same words on both databases."""
    text = (OLD / f"store_v{version}.sql").read_text().replace("FOLDER", str(Path.cwd()))
    script = re.sub(
        r"(?m)^(BEGIN TRANSACTION|COMMIT|DELETE FROM \"?sqlite_sequence.*|INSERT INTO \"sqlite_.*);$", "", text
    )
    if "://" not in location:
        with sqlite3.connect(location) as connection:
            connection.executescript(script)
        connection.close()
        return
    script = re.sub(r"(?m)^(\s+)user VARCHAR", r'\1"user" VARCHAR', script)
    head, log, rest = script.partition("CREATE TABLE upcall_log (")
    execute(location, head + log + rest.replace("id INTEGER", "id SERIAL", 1))
    if log:
        execute(location, "select setval(pg_get_serial_sequence('upcall_log', 'id'), 1000)")


def with_demo(location: str) -> Upcall:
    return Upcall(store=location, settings=Settings.read(model="demo"))


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_runs_of_an_older_store_go_on(version: int, location: str) -> None:
    old_store(version, location)
    app = with_demo(location)
    runs = {run.status: run for run in await app.list()}
    assert set(runs) == {RunStatus.AWAITING_CLARIFICATION, RunStatus.COMPLETED, RunStatus.FAILED}
    assert runs[RunStatus.COMPLETED].clarification_history[0][1].text == "Express"
    assert runs[RunStatus.AWAITING_CLARIFICATION].user == "alice"
    answered = await app.answer(runs[RunStatus.AWAITING_CLARIFICATION].id, "FastAPI")
    assert (answered.status, answered.clarification_history[0][1].text) == (RunStatus.COMPLETED, "FastAPI")
    resumed = await app.resume(runs[RunStatus.FAILED].id)
    assert resumed.status is RunStatus.AWAITING_CLARIFICATION
    assert (await app.answer(resumed.id, "Django")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_migrated_schema_is_that_of_a_fresh_store(version: int, location: str) -> None:
    old_store(version, location)
    store = RunStore(location)
    await store.list()

    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, tables.metadata))

    assert await store.database.read(differences) == []
    assert execute(location, "select value from upcall_meta where key = 'schema_version'") == [(str(SCHEMA_VERSION),)]


def schema_of(path: str) -> list[tuple[object, ...]]:
    """Tables with their columns, and indexes, as SQLite tells them."""
    with sqlite3.connect(path) as connection:
        names = [
            name for (name,) in connection.execute("select name from sqlite_master where name not like 'sqlite_%'")
        ]
        found = [
            (name, *sorted(row[1:] for row in connection.execute(f"pragma {kind}('{name}')")))
            for name in sorted(names)
            for kind in ("table_info", "index_list", "index_info")
        ]
        found += connection.execute(
            "select name, wr, strict from pragma_table_list where name like 'upcall%' order by 1"
        )
    connection.close()
    return found


async def test_sqlite_says_the_same_of_a_migrated_and_a_fresh_file() -> None:
    old_store(1, "old.db")
    await RunStore("old.db").list()
    Path("new.db").touch()
    await RunStore("new.db").list()
    assert schema_of("old.db") == schema_of("new.db")


def test_there_is_a_step_for_each_version() -> None:
    assert list(STEPS) == list(range(2, SCHEMA_VERSION + 1))


async def test_a_migration_that_fails_changes_nothing(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old_store(2, location)
    before = execute(location, "select id, version, status, record from upcall_runs order by id")

    def breaks(*_: object) -> None:
        raise StoreUnavailable("The power failed.")

    with monkeypatch.context() as patch:
        patch.setitem(STEPS, SCHEMA_VERSION, breaks)
        with pytest.raises(StoreUnavailable, match="power"):
            await RunStore(location).list()
    assert execute(location, "select id, version, status, record from upcall_runs order by id") == before
    assert execute(location, "select value from upcall_meta") == [("2",)]
    assert len(await RunStore(location).list()) == 3


async def test_of_eight_that_open_an_older_store_at_once_one_migrates_it(location: str) -> None:
    old_store(2, location)
    listed = await asyncio.gather(*(RunStore(location).list() for _ in range(8)))
    assert [len(runs) for runs in listed] == [3] * 8


async def test_what_was_damaged_before_is_still_told_and_the_rest_is_migrated() -> None:
    old_store(2, "runs.db")
    run_id = execute("runs.db", "select id from upcall_runs where status = 'completed'")[0][0]
    execute("runs.db", "update upcall_checkpoints set state = '{' where run_id = ?", run_id)
    with pytest.raises(SchemaMismatch, match=run_id):
        await RunStore("runs.db").load(run_id)
    assert len(await RunStore("runs.db").list()) == 3


async def test_a_journal_of_the_version_before_is_kept(location: str) -> None:
    old_store(3, location)
    run_id = execute(location, "select id from upcall_runs where status = 'failed'")[0][0]
    execute(location, "insert into upcall_journal values (?, 'lead:1', '{\"reply\": \"yes\"}')", run_id)
    assert await RunStore(location).journal(run_id) == {"lead:1": '{"reply": "yes"}'}
    assert next(entry.kind for entry in await RunStore(location).log(run_id)) == "started"
