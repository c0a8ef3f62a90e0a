"""Upgrades of a store: every step in one transaction, after a copy, and what is newer is left alone."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import made_up_format
import pytest
from made_guests import guests
from made_up_format import POINTS
from scenario import upcall
from stores import FIRST, execute, make_store

from upcall.errors import NewerFormat, SchemaMismatch
from upcall.runs.run import Run
from upcall.storage.compression import decode, encode
from upcall.storage.maintenance import check
from upcall.storage.store import RunStore
from upcall.storage.upgrading import upgrade_store

COPY = Path("runs.db.format-1")


__all__ = ["guests"]


def read_format(location: str) -> tuple[str, str]:
    rows = dict(execute(location, "select key, value from upcall_meta"))
    return rows["format"], rows["reads_from"]


def has_column(location: str) -> bool:
    try:
        execute(location, "select words from upcall_runs")
    except sqlite3.OperationalError:
        return False
    return True


async def test_upgrade_of_a_file_is_automatic_after_a_copy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await make_store("runs.db")
    made_up_format.use(monkeypatch)
    store = RunStore("runs.db")
    assert {run.id for run in await store.list()} == {*ids}
    assert execute("runs.db", "select words from upcall_runs") == [(4,)] * 3
    assert (read_format("runs.db"), read_format(str(COPY))) == (("2", "2"), ("1", "1"))
    (line,) = caplog.messages
    assert "was upgraded (core: format 1 to 2 (upcall 0.2.0)). As it was before: " in line
    assert str(COPY.absolute()) in line


async def test_upgrade_copies_what_is_in_the_log_only(monkeypatch: pytest.MonkeyPatch) -> None:
    before = await make_store("runs.db", 1)
    with closing(sqlite3.connect("runs.db")) as reader:  # Keeps SQLite from putting its log into the file.
        reader.execute("begin")
        reader.execute("select count(*) from upcall_runs").fetchall()
        ids = before + await make_store("runs.db")
        assert Path("runs.db-wal").stat().st_size > 0
        with monkeypatch.context() as patch:
            made_up_format.use(patch)
            await RunStore("runs.db").list()
    assert {run.id for run in await RunStore(COPY).list()} == {*ids}
    assert (await check(RunStore(COPY))).problems == []


async def test_copy_is_readable_by_whom_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    await make_store("runs.db")
    Path("runs.db").chmod(0o600)
    made_up_format.use(monkeypatch)
    await RunStore("runs.db").list()
    assert COPY.stat().st_mode & 0o777 == 0o600


async def test_copy_replaces_no_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    await make_store("runs.db")
    COPY.write_text("somebody's")
    made_up_format.use(monkeypatch)
    await RunStore("runs.db").list()
    assert COPY.read_text() == "somebody's"
    assert read_format(f"{COPY}-2") == ("1", "1")


async def test_upgrade_without_room_for_a_copy_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    await make_store("runs.db")
    Path("runs.db.format-1.part").mkdir()
    made_up_format.use(monkeypatch)
    with pytest.raises(Exception, match="cannot be upgraded: its copy"):
        await RunStore("runs.db").list()
    assert (read_format("runs.db"), has_column("runs.db")) == (("1", "1"), False)


async def test_step_that_fails_leaves_the_old_store(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await make_store("runs.db")
    with monkeypatch.context() as patch:
        made_up_format.use(patch)
        patch.setattr("upcall.storage.run_rows.load_run", lambda record, run_id: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await RunStore("runs.db").list()
    assert (read_format("runs.db"), has_column("runs.db")) == (("1", "1"), False)
    assert {run.id for run in await RunStore("runs.db").list()} == {*ids}


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
async def test_kill_in_an_upgrade_leaves_old_or_new(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await make_store("runs.db", 20)
    command = [sys.executable, made_up_format.__file__, "runs.db", point]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    is_new = point == "committed"
    assert (read_format("runs.db"), has_column("runs.db")) == ((("2", "2"), True) if is_new else (("1", "1"), False))
    made_up_format.use(monkeypatch)
    store = RunStore("runs.db")
    assert {run.id for run in await store.list()} == {*ids}
    assert (read_format("runs.db"), (await check(store)).problems) == (("2", "2"), [])
    assert not [*Path.cwd().glob("*.part")]


async def test_program_that_has_the_file_open_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    (run_id,) = await make_store("runs.db", 1)
    old = RunStore("runs.db")
    stored = await old.load(run_id)
    with monkeypatch.context() as patch:
        made_up_format.use(patch)
        await RunStore("runs.db").list()
    message = r"has format 2, .* Continue with upcall 0\.2\.0 or later"
    with pytest.raises(NewerFormat, match=message):
        await old.save(stored, stored.run)
    with pytest.raises(NewerFormat, match=message):
        await old.load(run_id)


async def test_downgrade_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (run_id,) = await make_store("runs.db", 1)
    with monkeypatch.context() as patch:
        made_up_format.use(patch)
        await RunStore("runs.db").list()
    before = Path("runs.db").read_bytes()
    with pytest.raises(NewerFormat, match=r"Continue with upcall 0\.2\.0 or later; nothing was changed"):
        await RunStore("runs.db").load(run_id)
    assert Path("runs.db").read_bytes() == before


async def test_text_of_each_dictionary_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    old = encode(b'{"version":1,"messages":[]}')
    with monkeypatch.context() as patch:
        made_up_format.use_dictionary(patch)
        new = encode(b'{"version":1,"messages":[]}')
        assert (decode(old), decode(new)) == (decode(new), b'{"version":1,"messages":[]}')
    assert old != new


async def test_newer_dictionary_is_named_and_not_called_damage(monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    with monkeypatch.context() as patch:
        made_up_format.use_dictionary(patch)
        stored = await RunStore(location).create(Run(task="do it"), FIRST)
    store = RunStore(location)
    message = "needs a later version of upcall than 0.1.0: it was compressed with dictionary 2, and the newest .* is 1"
    with pytest.raises(NewerFormat, match=message):
        await store.load(stored.run.id)
    (listed,) = (await store.list()).damaged
    assert "dictionary 2" in listed.problem


async def test_guest_brings_its_own_steps(guests: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    guests.add(
        "notes",
        "tables",
        'from upcall.storage.schema import Table\nT = Table("a_notes", {"id": "NAME"}, "id")',
        notes="T",
    )
    await make_store("runs.db", 1)
    code = (
        "from upcall.storage.upgrades import TableUpgrade\n"
        "def widen(connection):\n    connection.execute('ALTER TABLE a_notes ADD COLUMN text TEXT')\n"
        "STEPS = (TableUpgrade('3.1', widen, breaks=True),)"
    )
    guests.add("notes-too", "upgrades", code, notes="STEPS")
    await RunStore("runs.db").list()
    assert execute("runs.db", "select id, text from a_notes") == []
    assert execute("runs.db", "select value from upcall_meta where key = 'notes.format'") == [("2",)]


# -- the command ------------------------------------------------------------------------------------------------------


async def test_dry_run_shows_steps_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    await make_store("runs.db")
    made_up_format.use(monkeypatch)
    shown = await upgrade_store(RunStore("runs.db"), dry_run=True)
    assert (shown.found, shown.number, shown.steps) == (1, 2, ("core: format 1 to 2 (upcall 0.2.0)",))
    assert (read_format("runs.db"), has_column("runs.db"), COPY.exists()) == (("1", "1"), False, False)


@pytest.mark.slow
async def test_upgrade_of_a_server_is_explicit(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    location = postgres.new_database()
    ids = await make_store(location)
    made_up_format.use(monkeypatch)
    with pytest.raises(SchemaMismatch, match=r"is to be upgraded .* and run: upcall store upgrade$"):
        await RunStore(location).list()
    done = await upgrade_store(RunStore(location), backup=True)
    assert Path(done.copy).read_bytes().startswith(b"PGDMP")
    assert (done.unfinished, read_format(location)) == (done.steps, ("2", "1"))
    assert {run.id for run in await RunStore(location).list()} == {*ids}


@pytest.mark.slow
async def test_old_programs_work_until_the_store_is_contracted(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    location = postgres.new_database()
    (run_id,) = await make_store(location, 1)
    old = RunStore(location)
    with monkeypatch.context() as patch:
        made_up_format.use(patch)
        await upgrade_store(RunStore(location))
    stored = await old.load(run_id)
    await old.save(stored, stored.run)
    assert (await RunStore(location).load(run_id)).version == 2
    with monkeypatch.context() as patch:
        made_up_format.use(patch)
        done = await upgrade_store(RunStore(location), contract=True)
        assert (done.contracted, read_format(location)) == (("core: format 1 to 2 (upcall 0.2.0)",), ("2", "2"))
    with pytest.raises(NewerFormat, match=r"Continue with upcall 0\.2\.0"):
        await RunStore(location).load(run_id)


@pytest.mark.slow
async def test_upgrade_command_says_when_there_is_nothing_to_do() -> None:
    await make_store("upcall.db", 1)
    assert "has format 1, the newest" in upcall("store", "upgrade").out
    assert upcall("store", "upgrade", "--dry-run", "--json").json["steps"] == []
    assert "does not exist" in upcall("store", "upgrade", "--store", "no.db").error
