"""Upgrade a store to the format of this version of upcall: an SQLite file by itself, after a copy; a PostgreSQL
database on request."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upcall import identity
from upcall.errors import ConfigurationError, SchemaMismatch, UnknownRun
from upcall.storage import schema, upgrades
from upcall.storage.connection import Connection
from upcall.storage.sqlite_copy import copy_sqlite, name_copy
from upcall.storage.upgrades import CORE
from upcall.text import first_line

if TYPE_CHECKING:
    from upcall.storage.store import RunStore


@dataclass(frozen=True)
class StoreUpgrade:
    """What was done to a store, or would be.

    Attributes:
        found: the format of its tables before.
        number: their format now.
        steps: the steps to that, those of guests too, a line each.
        contracted: the steps behind which programs of the format before can work no longer, a line each.
        unfinished: those behind which they still can.
        copy: the copy from before; empty where none was made.
    """

    found: int
    number: int
    steps: tuple[str, ...]
    contracted: tuple[str, ...]
    unfinished: tuple[str, ...]
    copy: str = ""


async def upgrade_store(
    store: RunStore, *, dry_run: bool = False, backup: bool = False, contract: bool = False
) -> StoreUpgrade:
    """Upgrade a store, all of it or nothing. Before it changes, an SQLite file is copied.

    Args:
        store: the store.
        dry_run: only return what would be done.
        backup: make a copy of a PostgreSQL database too, with ``pg_dump``; and of a file that is not changed.
        contract: also take away what only programs of earlier formats need. With an SQLite file that is always done.

    Raises:
        UnknownRun: there is no store.
        NewerFormat: it has a later format than this version knows.
        ConfigurationError: the copy cannot be made, or workers of an earlier format are at work. Nothing was changed.
    """
    if not await store.exists():
        raise UnknownRun("", f"the store {store.name} does not exist")
    database, file = store.database, store.database.file
    look = partial(_look, name=store.name, contract=contract or file is not None)
    if dry_run:
        return await database.inspect(look)
    copy = ""
    if file is None and backup:
        found = await database.inspect(look)
        copy = str(_dump_database(database.parameters, Path(f"upcall.format-{found.found}.dump")))

    def work(connection: Connection) -> StoreUpgrade:
        planned = look(connection)
        made = copy
        if file is not None and (backup or planned.steps or planned.contracted):
            made = str(_copy_file(file, planned.found))
        upgrades.expand_tables(connection, store.name)
        if planned.contracted:
            _refuse_older_workers(connection, planned.number, store.leases.seconds)
            upgrades.contract_tables(connection, store.name)
        return StoreUpgrade(planned.found, planned.number, planned.steps, planned.contracted, planned.unfinished, made)

    return await database.alter(work)


def upgrade_file(connection: Connection, *, file: Path) -> str | None:
    """Upgrade an SQLite file in the caller's transaction, after a copy; return a line that says so. None if another
    process has done it."""
    planned = _look(connection, name=str(file), contract=True)
    if not planned.steps:
        return None
    copy = _copy_file(file, planned.found)
    upgrades.expand_tables(connection, str(file))
    upgrades.contract_tables(connection, str(file))
    return f"The store {file} was upgraded ({'; '.join(planned.steps)}). As it was before: {copy}"


def refuse_behind(connection: Connection, name: str) -> None:
    """Refuse a store that has yet to be upgraded.

    Raises:
        SchemaMismatch: says how.
    """
    formats = upgrades.read_formats(connection, name)
    if pending := upgrades.list_pending(formats):
        raise SchemaMismatch(
            f"The store {name} is to be upgraded for this version of upcall ({identity.version()}): {pending[0]}. "
            "Back it up and run: upcall store upgrade"
        )


def _look(connection: Connection, *, name: str, contract: bool) -> StoreUpgrade:
    if not schema.is_there(connection, name):
        raise UnknownRun("", f"the store {name} has no tables yet")
    formats = dict(upgrades.read_formats(connection, name))
    pending = upgrades.list_pending(formats)
    after = dict(formats)
    for each in pending:
        reads_from = each.number if each.step.breaks else after[each.tables].reads_from
        after[each.tables] = upgrades.TableFormat(each.number, reads_from)
    unfinished = tuple(map(str, upgrades.list_unfinished(after)))
    return StoreUpgrade(
        formats[CORE].number,
        after[CORE].number,
        tuple(map(str, pending)),
        unfinished if contract else (),
        () if contract else unfinished,
    )


def _copy_file(file: Path, number: int) -> Path:
    copy = name_copy(file, number)
    try:
        copy_sqlite(file, copy)
    except OSError as error:
        raise ConfigurationError(
            f"The store {file} has format {number} and cannot be upgraded: its copy {copy} cannot be written "
            f"({error.strerror}). Nothing was changed."
        ) from error
    return copy


def _dump_database(parameters: Mapping[str, Any], file: Path) -> Path:
    """Write a PostgreSQL database into a file, with its own program; the password is in its environment only."""
    program, file = shutil.which("pg_dump"), file.absolute()
    if program is None:
        raise ConfigurationError("--backup needs pg_dump, which is not on PATH. Nothing was changed.")
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    names |= {"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "options": "PGOPTIONS"}
    given = {names[name]: str(value) for name, value in parameters.items() if name in names}
    try:
        with file.open("xb") as target:
            subprocess.run(
                [program, "--format=custom"],
                env={**os.environ, **given},
                stdout=target,
                stderr=subprocess.PIPE,
                check=True,
            )
    except FileExistsError:
        raise ConfigurationError(f"The backup {file} exists. Move it away; nothing was changed.") from None
    except subprocess.CalledProcessError as error:
        file.unlink()
        problem = first_line(error.stderr.decode(errors="replace"))
        raise ConfigurationError(f"pg_dump cannot back up the store: {problem}. Nothing was changed.") from error
    return file


def _refuse_older_workers(connection: Connection, number: int, lease: float) -> None:
    """Refuse to take away what workers of an earlier format need that gave a sign of life within a lease: one that was
    silent for longer has no run any more, and takes none when it wakes up."""
    if connection.dialect == "sqlite":
        return
    if connection.execute("SELECT to_regclass('upcall_workers')").fetchone()[0] is None:
        return
    if older := connection.execute(_OLDER, {"number": number, "lease": lease}).fetchall():
        named = ", ".join(f"{id_} (upcall {version}, seen {seconds:.0f} s ago)" for id_, version, seconds in older)
        raise ConfigurationError(
            f"Workers of an earlier format are at work: {named}. Stop them first; one that was killed counts for "
            f"{lease:g} seconds. Nothing was changed."
        )


_OLDER = """
SELECT id, version, seconds FROM (
    SELECT w.id, w.version, extract(epoch FROM clock_timestamp() - p.last_heartbeat)::float8 AS seconds
    FROM upcall_workers w JOIN procrastinate_workers p ON p.id = w.id WHERE w.format < :number
) AS older WHERE seconds < :lease ORDER BY id
"""
