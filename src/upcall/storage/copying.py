"""Copy a whole store into an empty one, on whatever databases: everything that is stored, byte by byte.

Some runs at a time are read in one transaction and written in another, with all that belongs to them: each run is in
the copy whole or not at all. A copy that was cut off is taken up where it was: what is there in the same version is
passed by. Runs at work are left out, since they would go on in the old store; they are copied once they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from upcall.errors import ConfigurationError, UnknownRun
from upcall.runs.states import RunStatus
from upcall.storage import schema
from upcall.storage.connection import Connection
from upcall.storage.leases import is_over
from upcall.storage.run_leases import lease_columns
from upcall.storage.run_rows import STATUS_NUMBERS, load_run, name_values
from upcall.storage.schema import LOG, META, MODEL_CALLS, MODEL_WAITS, RUNS, Table
from upcall.storage.store import RunStore

RUNS_PER_TRANSACTION = 50
_MARK = "copy_of"
"""The key under which an unfinished copy names the store that it is one of."""
_PASSING = (META, MODEL_CALLS, MODEL_WAITS)
"""The tables that hold nothing for another store."""


@dataclass
class StoreCopy:
    """What was copied.

    Attributes:
        runs: how many runs were.
        known: how many were there already, as they are.
        busy: the ids of those at work, which were left out.
        files: how many runs have documents in the folder beside the old store, which were not copied.
    """

    runs: int = 0
    known: int = 0
    busy: list[str] = field(default_factory=list)
    files: int = 0


async def copy_store(
    source: RunStore, target: RunStore, *, on_progress: Callable[[StoreCopy], None] = lambda done: None
) -> StoreCopy:
    """Copy everything in a store into another one, which is empty or an unfinished copy of the same store.

    Raises:
        UnknownRun: there is no source.
        ConfigurationError: the target has runs of its own, or is the source.
    """
    if not await source.exists():
        raise UnknownRun("", f"the store {source.name} does not exist")
    if source.name == target.name:
        raise ConfigurationError(f"{source.name} cannot be copied onto itself. Name another store.")
    await target.database.write(partial(_begin, source=source.name, name=target.name))
    done, last = StoreCopy(), ""
    while True:
        known = await target.database.read(partial(_read_known, after=last))
        batch = await source.database.read(partial(_read_batch, after=last, known=known, seconds=source.leases.seconds))
        if batch.last is None:
            break
        if any(row["status"] == STATUS_NUMBERS[RunStatus.QUEUED] for row in batch.rows[RUNS.name]):
            await target.jobs.open()
        await target.database.write(partial(_write_batch, target=target, batch=batch))
        last = batch.last
        done.runs += len(batch.rows[RUNS.name])
        done.known += batch.known
        done.busy += batch.busy
        on_progress(done)
    rest = await source.database.read(_read_rest)
    await target.database.write(partial(_write_rest, rest=rest, finished=not done.busy))
    done.files = len(rest.rows["upcall_uploads"])
    return done


@dataclass(frozen=True)
class _CopyBatch:
    """Rows by table, as mappings; the newest numbers of the tables that count theirs; and which runs are not in it."""

    rows: dict[str, list[dict[str, Any]]]
    counters: dict[str, int]
    last: str | None = None
    known: int = 0
    busy: list[str] = field(default_factory=list)


def _begin(connection: Connection, *, source: str, name: str) -> None:
    row = connection.execute("SELECT value FROM upcall_meta WHERE key = :key", {"key": _MARK}).fetchone()
    if row is not None and row[0] == source:
        return
    if row is not None or connection.execute("SELECT 1 FROM upcall_runs LIMIT 1").fetchone() is not None:
        what = f"an unfinished copy of {row[0]}" if row is not None else "runs of its own"
        raise ConfigurationError(
            f"The store {name} has {what}. Name an empty one; upcall store export and import move single runs."
        )
    connection.execute("INSERT INTO upcall_meta (key, value) VALUES (:key, :value)", {"key": _MARK, "value": source})


def _read_known(connection: Connection, *, after: str) -> dict[str, tuple[int, int]]:
    """Return version and newest event of the runs that are there behind an id: as many as a batch may have."""
    query = (
        "SELECT id, version, (SELECT coalesce(max(l.id), 0) FROM upcall_log l WHERE l.run_id = r.id) "
        "FROM upcall_runs r WHERE id > :after ORDER BY id LIMIT :most"
    )
    rows = connection.execute(query, {"after": after, "most": RUNS_PER_TRANSACTION}).fetchall()
    return {run_id: (version, newest) for run_id, version, newest in rows}


def _read_batch(connection: Connection, *, after: str, known: dict[str, tuple[int, int]], seconds: float) -> _CopyBatch:
    found = _read_known(connection, after=after)
    if not found:
        return _CopyBatch({}, {})
    names, values = name_values(found)
    leases = connection.execute(f"SELECT id, worker, renewed_at FROM upcall_runs WHERE id IN ({names})", values)
    free = {run_id for run_id, lease, renewed_at in leases if is_over(lease, renewed_at, seconds)}
    wanted = [run_id for run_id in found if run_id in free and known.get(run_id) != found[run_id]]
    rows = {
        table.name: list(_select(connection, table, "id" if table is RUNS else "run_id", wanted))
        for table in (RUNS, *schema.list_of_run(connection))
    }
    busy = [run_id for run_id in found if run_id not in free]
    return _CopyBatch(rows, _read_counters(connection), [*found][-1], len(found) - len(wanted) - len(busy), busy)


def _select(connection: Connection, table: Table, column: str, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    if ids:
        names, values = name_values(ids)
        yield from _as_rows(connection, table, f"WHERE {column} IN ({names})", values)


def _as_rows(connection: Connection, table: Table, where: str, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    columns = [*table.columns]
    for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table.name} {where}", values):
        yield dict(zip(columns, row, strict=True))


def _write_batch(connection: Connection, *, target: RunStore, batch: _CopyBatch) -> None:
    schema.create_added(connection)
    tables = {table.name: table for table in (RUNS, *schema.list_of_run(connection))}
    ids = [row["id"] for row in batch.rows[RUNS.name]]
    for name, rows in batch.rows.items():
        if ids:  # What an earlier copy has of them is older.
            names, values = name_values(ids)
            column = "id" if name == RUNS.name else "run_id"
            connection.execute(f"DELETE FROM {name} WHERE {column} IN ({names})", values)
        _insert(connection, tables[name], rows)
    _raise_counters(connection, batch.counters)
    for row in batch.rows[RUNS.name]:
        if row["status"] == STATUS_NUMBERS[RunStatus.QUEUED]:
            target.jobs.defer(load_run(row["record"], row["id"]), row["version"])(connection)


def _insert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    if table is RUNS:
        rows = [{**row, **lease_columns(None)} for row in rows]
    names = ", ".join(f":{name}" for name in table.columns)
    connection.executemany(f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({names})", rows)


def _list_rest(connection: Connection) -> list[Table]:
    """List the tables with what belongs to no single run."""
    of_runs = {RUNS.name, *(table.name for table in schema.list_of_run(connection))}
    passing = {table.name for table in _PASSING}
    return [table for table in schema.list_made(connection) if table.name not in of_runs | passing]


def _read_rest(connection: Connection) -> _CopyBatch:
    rows = {table.name: list(_as_rows(connection, table, "", {})) for table in _list_rest(connection)}
    nobodys = "WHERE NOT EXISTS (SELECT 1 FROM upcall_runs WHERE id = run_id)"
    rows[LOG.name] = list(_as_rows(connection, LOG, nobodys, {}))
    return _CopyBatch(rows, _read_counters(connection))


def _write_rest(connection: Connection, *, rest: _CopyBatch, finished: bool) -> None:
    schema.create_added(connection)
    nobodys = "DELETE FROM upcall_log WHERE NOT EXISTS (SELECT 1 FROM upcall_runs WHERE id = run_id)"
    connection.execute(nobodys)
    for table in (*_list_rest(connection), LOG):
        if table is not LOG:
            connection.execute(f"DELETE FROM {table.name}")
        _insert(connection, table, rest.rows.get(table.name, ()))
    _raise_counters(connection, rest.counters)
    if finished:
        connection.execute("DELETE FROM upcall_meta WHERE key = :key", {"key": _MARK})


def _list_counted(connection: Connection) -> dict[str, str]:
    """Return the tables that number their rows, each with the column of its number."""
    made = schema.list_made(connection)
    return {table.name: table.key for table in made if table.columns.get(table.key) == "SERIAL"}


def _read_counters(connection: Connection) -> dict[str, int]:
    """Read the highest number that each table has given to a row."""
    keys = _list_counted(connection)
    if connection.dialect == "sqlite":
        given = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        return {name: given.get(name, 0) for name in keys}
    query = "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence(:name, :key)::regclass), 0)"
    return {name: connection.execute(query, {"name": name, "key": key}).fetchone()[0] for name, key in keys.items()}


def _raise_counters(connection: Connection, counters: dict[str, int]) -> None:
    """Have tables give higher numbers to new rows than the source has given."""
    now, keys = _read_counters(connection), _list_counted(connection)
    for name, number in counters.items():
        if name not in now or now[name] >= number:
            continue
        values = {"name": name, "key": keys[name], "number": number}
        if connection.dialect == "postgresql":
            connection.execute("SELECT setval(pg_get_serial_sequence(:name, :key), :number)", values)
        elif connection.execute("UPDATE sqlite_sequence SET seq = :number WHERE name = :name", values).rowcount == 0:
            connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)", values)
