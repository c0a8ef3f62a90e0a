"""Maintenance of a store as a whole: count it, check it, prune it, and restore a run to a readable checkpoint."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter

from upcall import identity
from upcall.autogen.api import HandoffMessage, TextMessage
from upcall.autogen.group_chats import PendingQuestions
from upcall.autogen.messages import USER
from upcall.errors import SchemaMismatch, UnknownRun
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.events import FilesChanged, RunRestored
from upcall.runs.run import Run
from upcall.runs.states import UNDER_WAY, RunEvent, RunStatus, is_over
from upcall.storage import checkpoints, schema, upgrading
from upcall.storage import store as stores
from upcall.storage.change_log import decode_content
from upcall.storage.compression import Damaged, decode, measure
from upcall.storage.connection import Connection, database_errors
from upcall.storage.event_bodies import load_event
from upcall.storage.event_log import SELECT_ROWS, append_events, load_row
from upcall.storage.run_leases import lease_columns
from upcall.storage.run_lists import batch_ids, read_records
from upcall.storage.run_rows import STATUSES, is_being_replaced, list_numbers, load_run, name_values
from upcall.storage.schema import CHECKPOINTS, JOURNAL, QUEUED_ANSWERS, RUNS, TABLES, Table
from upcall.storage.store import RunStore
from upcall.text import first_line

PAGE_ROWS = 5_000
"""How many rows of a table are counted in one transaction."""

RUNS_AT_ONCE = 200
"""How many runs are pruned in one transaction: some ten milliseconds, for which a writer waits."""


@dataclass(frozen=True)
class Stats:
    """What is in a store. ``bytes`` are those of all columns, by table; ``as_json`` is the size of the checkpoints
    if each were kept whole as JSON; ``file`` is the size of the database on disk."""

    runs: dict[str, int]
    checkpoints: int
    rows: dict[str, int]
    bytes: dict[str, int]
    as_json: int
    file: int

    @property
    def payload(self) -> int:
        """The bytes of all tables."""
        return sum(self.bytes.values())

    @property
    def ratio(self) -> float:
        """How many bytes of checkpoints one stored byte stands for."""
        stored = self.bytes[CHECKPOINTS.name]
        return self.as_json / stored if stored else 1.0


@dataclass(frozen=True)
class StoreCheck:
    """What a check looked at, and what it found: ``problems`` has one line each."""

    runs: int = 0
    checkpoints: int = 0
    contents: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be: the ids of runs, how many checkpoints, the ids of runs whose files that came along
    are, and the bytes of all that."""

    runs: list[str]
    checkpoints: int
    bytes: int
    uploads: list[str] = field(default_factory=list)

    def plus(self, more: Pruned) -> Pruned:
        """Return both together. The list of runs is the same one, longer: a copy a batch would be a square."""
        self.runs.extend(more.runs)
        return replace(self, checkpoints=self.checkpoints + more.checkpoints, bytes=self.bytes + more.bytes)


# -- counting ---------------------------------------------------------------------------------------------------------


async def stats(store: RunStore) -> Stats:
    """Count a store. An SQLite file that does not exist yet is empty.

    It is read some thousand rows at a time: a store with millions of runs is not kept from cleaning up behind its
    writers meanwhile, and the count can be stopped. Of runs that change meanwhile it counts one state or the other.
    """
    if not await store.exists():
        nothing = {table.name: 0 for table in TABLES}
        return Stats({}, 0, nothing, nothing, 0, 0)
    database = store.database
    by_status, tables, file = await database.read(_count)
    rows, sizes, as_json = Counter[str](), Counter[str](), 0
    for table in tables:
        rows[table.name] = sizes[table.name] = 0
        last: Sequence[Any] | None = None
        while last is None or len(last) > 0:
            page = await database.read(partial(_measure_page, table=table, after=last))
            rows[table.name] += page.rows
            sizes[table.name] += page.bytes
            as_json += page.as_json
            last = page.last
    return Stats(by_status, rows[CHECKPOINTS.name], dict(rows), dict(sizes), as_json, file)


def _count(connection: Connection) -> tuple[dict[str, int], Sequence[Table], int]:
    by_status = connection.execute("SELECT status, count(*) FROM upcall_runs GROUP BY status").fetchall()
    tables = schema.list_made(connection)
    if connection.dialect == "sqlite":
        query = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    else:
        names = ", ".join(f"('{table.name}')" for table in tables)
        query = f"SELECT sum(pg_total_relation_size(name::regclass)) FROM (VALUES {names}) t(name)"
    (file,) = connection.execute(query).fetchone()
    return {STATUSES[number].value: count for number, count in by_status}, tables, int(file)


class _Page(NamedTuple):
    """What some rows of a table take, and the key of the last of them; empty at the end."""

    rows: int
    bytes: int
    as_json: int
    last: Sequence[Any]


def _measure_page(connection: Connection, *, table: Table, after: Sequence[Any] | None) -> _Page:
    keys = [each.strip() for each in table.key.split(",")]
    begin = "substr(state, 1, 18)" if table is CHECKPOINTS else "NULL"
    values = {f"key{number}": value for number, value in enumerate(after or ())}
    behind = f"WHERE ({table.key}) > ({', '.join(f':{name}' for name in values)})" if after else ""
    rows = connection.execute(
        f"SELECT {table.width}, {begin}, {table.key} FROM {table.name} {behind} ORDER BY {table.key} LIMIT {PAGE_ROWS}",
        values,
    ).fetchall()
    as_json = sum(_measure(row[1]) for row in rows if row[1] is not None)
    last = rows[-1][2 : 2 + len(keys)] if len(rows) == PAGE_ROWS else ()
    return _Page(len(rows), sum(int(row[0] or 0) for row in rows), as_json, last)


def _measure(begin: bytes) -> int:
    try:
        return measure(begin)
    except Damaged:
        return 0


# -- checking ---------------------------------------------------------------------------------------------------------


async def check(store: RunStore) -> StoreCheck:
    """Check everything that is stored, and report the damage."""
    if not await store.exists():
        raise UnknownRun("", f"the store {store.name} does not exist")
    return await store.database.inspect(partial(_check, name=store.name))


def _check(connection: Connection, *, name: str) -> StoreCheck:
    problems: list[str] = []
    _try(problems, "the database", lambda: _check_file(connection, problems))
    if not _try(problems, "the schema", lambda: _check_schema(connection, name, problems)):
        return StoreCheck(problems=problems)
    counted = Counter[str]()
    ids: list[str] = []
    _try(problems, "the table of runs", lambda: ids.extend(_check_runs(connection, problems)))
    for run_id in ids:
        what = f"the checkpoints of run {run_id}"
        _try(problems, what, partial(_check_checkpoints, connection, run_id, problems, counted))
    _try(problems, "the journal", lambda: _check_journal(connection, problems))
    _try(problems, "the log", lambda: _check_log(connection, problems))
    _try(problems, "what files held", lambda: _check_contents(connection, problems, counted))
    for table in schema.list_of_run(connection):
        _try(problems, f"the table {table.name}", partial(_check_owners, connection, table.name, problems))
    return StoreCheck(len(ids), counted["checkpoints"], counted["contents"], problems)


def _try(problems: list[str], what: str, work: Callable[[], object]) -> bool:
    """Return whether `work` could be done. The unreadable part of a damaged file is one problem; the rest is still
    checked."""
    try:
        work()
    except database_errors() as error:
        problems.append(f"{what} cannot be read: {first_line(error)}")
        return False
    except SchemaMismatch as error:
        problems.append(str(error))
        return False
    return True


def _check_file(connection: Connection, problems: list[str]) -> None:
    if connection.dialect == "sqlite":
        found = connection.execute("PRAGMA quick_check(20)").fetchall()
        problems += [f"the file is damaged: {first_line(each)}" for (each,) in found if each != "ok"]


def _check_schema(connection: Connection, name: str, problems: list[str]) -> None:
    if schema.is_there(connection, name):
        upgrading.refuse_behind(connection, name)
    there = schema.list_tables(connection)
    problems += [f"the table {table.name} is missing" for table in TABLES if table.name not in there]


def _check_runs(connection: Connection, problems: list[str]) -> list[str]:
    """Check the records of all runs; return their ids."""
    ids = [run_id for (run_id,) in connection.execute("SELECT id FROM upcall_runs ORDER BY id").fetchall()]
    for batch in batch_ids(ids):
        records = read_records(connection, batch)
        for run_id in batch:
            if run_id not in records:
                problems.append(f"The record of run {run_id} cannot be read: the file is damaged there.")
                continue
            try:
                load_run(records[run_id], run_id)
            except SchemaMismatch as error:
                problems.append(first_line(error))
    return ids


def _check_checkpoints(connection: Connection, run_id: str, problems: list[str], counted: Counter[str]) -> None:
    readable = []
    for version, text in checkpoints.read_texts(connection, run_id):
        counted["checkpoints"] += 1
        try:
            if isinstance(text, Damaged):
                raise text
            Checkpoint.load(text, run_id)
        except (Damaged, SchemaMismatch) as error:
            readable.append(False)
            problems.append(f"run {run_id}: its checkpoint of version {version} is damaged: {first_line(error)}")
        else:
            readable.append(True)
    if not readable:
        problems.append(f"run {run_id} has no checkpoint")
    elif not readable[0] and any(readable):
        problems.append(f"run {run_id} can go back to an older checkpoint: upcall store restore {run_id}")


def _check_journal(connection: Connection, problems: list[str]) -> None:
    for run_id, key, record in connection.execute("SELECT run_id, key, record FROM upcall_journal"):
        try:
            decode(record)
        except Damaged as error:
            problems.append(f"run {run_id}: its journal is damaged at {key!r}: {error}")


def _check_log(connection: Connection, problems: list[str]) -> None:
    for row in connection.execute(f"{SELECT_ROWS} ORDER BY id"):
        try:
            load_row(row)
        except SchemaMismatch:
            number, run_id, _, kind, *_ = row
            problems.append(f"entry {number} of the log, of run {run_id or '(none)'}, is damaged: {kind}")


def _check_contents(connection: Connection, problems: list[str], counted: Counter[str]) -> None:
    """Check the contents that are kept to undo changes of files."""
    whole = set()
    for run_id, name, stored in connection.execute("SELECT run_id, digest, content FROM upcall_contents"):
        counted["contents"] += 1
        try:
            decode_content(name, stored)
        except Damaged:
            continue
        whole.add((run_id, name))
    query = "SELECT run_id, detail FROM upcall_log WHERE kind = :kind"
    named = set()
    for run_id, detail in connection.execute(query, {"kind": FilesChanged.type}):
        if isinstance(event := load_event(FilesChanged.type, detail), FilesChanged):
            named |= {(run_id, each) for each in event.change.list_contents()}
    lost = named - whole
    problems += [f"what run {run_id} changed in a file cannot be undone: {name}" for run_id, name in sorted(lost)]


def _check_owners(connection: Connection, table: str, problems: list[str]) -> None:
    query = (
        f"SELECT DISTINCT run_id FROM {table} WHERE run_id <> '' "
        f"AND NOT EXISTS (SELECT 1 FROM upcall_runs WHERE id = run_id) ORDER BY run_id"
    )
    rows = connection.execute(query).fetchall()
    problems += [f"{table} has rows of the run {run_id}, which is not there" for (run_id,) in rows]


# -- going back -------------------------------------------------------------------------------------------------------


async def restore(store: RunStore, run_id: str) -> Run:
    """Return a run to its last intact checkpoint, and drop the damaged ones after it. The run then waits for the
    questions its team had asked, or has failed and can be resumed.

    Raises:
        UnknownRun: there is no such run, or none of its checkpoints is intact.
    """
    return await store.database.write(partial(_restore, store=store, run_id=run_id))


def _restore(connection: Connection, *, store: RunStore, run_id: str) -> Run:
    run_id = stores.find_id(connection, run_id, store.name)
    query = f"SELECT version, record FROM upcall_runs WHERE id = :id{_for_update(connection)}"
    version, record = connection.execute(query, {"id": run_id}).fetchone()
    whole = checkpoints.find_whole(connection, run_id, version + 1)
    if whole is None:
        raise UnknownRun(run_id, "none of its checkpoints is whole")
    found, text = whole
    run = _as_it_was(Checkpoint.load(text, run_id), load_run(record, run_id))
    checkpoints.go_back_to(connection, run_id, found, text)
    for table in (JOURNAL, QUEUED_ANSWERS):
        connection.execute(f"DELETE FROM {table.name} WHERE run_id = :run_id", {"run_id": run_id})
    row = {**store.prepare_run(run), "version": version + 1, **lease_columns(None)}
    stores.update_run(connection, run_id, version, row)
    append_events(connection, run_id, [RunRestored(checkpoint=found)])
    return run


def _for_update(connection: Connection) -> str:
    """Lock the rows that are read; SQLite has locked the file."""
    return " FOR UPDATE" if connection.dialect == "postgresql" else ""


def _as_it_was(checkpoint: Checkpoint, run: Run) -> Run:
    """Return the run as far as its checkpoint shows: waiting for what the team had asked, or to be resumed."""
    if checkpoint.progress is not None:
        run = checkpoint.progress.restore(run)
    messages = [_message.validate_python(each) for each in checkpoint.thread() if each["type"] in _SPOKEN]
    asked = {} if checkpoint.inbox else PendingQuestions.in_thread(messages, (), USER).questions
    return run.apply(
        RunEvent.REOPENED if asked else RunEvent.REWOUND,
        error=None if asked else "What was stored last was damaged; the run is back at an older checkpoint.",
        result=None,
        records=run.records.reopen(asked.values()),
    )


_SPOKEN = ("TextMessage", "HandoffMessage")
_message: TypeAdapter[Any] = TypeAdapter(Annotated[TextMessage | HandoffMessage, Field(discriminator="type")])


# -- pruning ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Selection:
    """Which runs a prune may remove: in one of some statuses, not changed since a time, if one is given, and held by
    nobody. The status does not say that: a run that is over is held while another one takes its place."""

    statuses: frozenset[RunStatus]
    before: int | None
    silent: float

    def as_condition(self, statuses: Iterable[RunStatus] | None = None) -> str:
        """Return the condition of a statement, which names ``:before``, if there is one, and ``:silent``."""
        age = "" if self.before is None else " AND updated_at < :before"
        free = " AND (worker IS NULL OR renewed_at IS NULL OR renewed_at <= :silent)"
        return f"status IN ({list_numbers(self.statuses if statuses is None else statuses)}){age}{free}"

    @property
    def values(self) -> dict[str, Any]:
        """What the condition names."""
        return {"silent": self.silent, **({} if self.before is None else {"before": self.before})}


async def prune(
    store: RunStore,
    *,
    older_than: timedelta | None = None,
    statuses: Collection[RunStatus] = (),
    last_checkpoints: int | None = None,
    dry_run: bool = False,
    on_progress: Callable[[Pruned], None] = lambda _: None,
) -> Pruned:
    """Remove runs that have not changed for `older_than`, those of `statuses`, or those of both where both are given;
    and of the others all but the `last_checkpoints` last checkpoints. The files that came along for runs that are gone
    go as well.

    Without `statuses` only runs that are over are removed; a run at work never is, nor anything of one whose place
    another is about to take, also where that was cut off. Some runs are removed at a time, in one transaction: others
    write in between, and who cancels this waits for those alone. What was removed so far is given to `on_progress`
    each time.
    """
    if not await store.exists():
        return Pruned([], 0, 0)
    chosen = frozenset((statuses or set(filter(is_over, RunStatus))) if older_than or statuses else ()) - UNDER_WAY
    before = None if older_than is None else int((identity.now() - older_than).timestamp())
    selection = _Selection(chosen, before, time.time() - store.leases.seconds)
    database, total, uploaded = store.database, Pruned([], 0, 0), list[str]()
    transact = database.read if dry_run else database.write

    for status in sorted(chosen):
        place: tuple[int, str] | None = (-1, "")
        while place is not None:
            batch = await transact(
                partial(_prune_runs, selection=selection, status=status, after=place, dry_run=dry_run)
            )
            place, total = batch.last, total.plus(batch.removed)
            uploaded += batch.uploaded
            on_progress(total)
    run_id: str | None = "" if last_checkpoints is not None else None
    while run_id is not None:
        work = partial(
            _prune_checkpoints,
            gone=selection if dry_run else None,
            after=run_id,
            last=max(1, last_checkpoints or 1),
            dry_run=dry_run,
        )
        run_id, removed = await transact(work)
        total = total.plus(removed)
        on_progress(total)
    if total.bytes and not dry_run:
        await database.shrink()
    unused = await store.uploads.find_unused(uploaded)
    cleared = unused if dry_run else await store.uploads.remove(unused)
    size = total.bytes + sum(each.bytes for each in cleared)
    return replace(total, uploads=[each.run_id for each in cleared], bytes=size)


class _Batch(NamedTuple):
    """What one transaction of a prune removed: which of the runs files came along for, and where the next one begins;
    None at the end."""

    removed: Pruned
    uploaded: list[str]
    last: tuple[int, str] | None


def _prune_runs(
    connection: Connection, *, selection: _Selection, status: RunStatus, after: tuple[int, str], dry_run: bool
) -> _Batch:
    """Remove the next runs of one status, in the order of the index of statuses."""
    lock = "" if dry_run else _for_update(connection)
    rows = connection.execute(
        f"SELECT id, created_at FROM upcall_runs WHERE {selection.as_condition([status])} "
        f"AND (created_at, id) > (:at, :id) ORDER BY created_at, id LIMIT {RUNS_AT_ONCE}{lock}",
        {**selection.values, "at": after[0], "id": after[1]},
    ).fetchall()
    last = (rows[-1][1], rows[-1][0]) if len(rows) == RUNS_AT_ONCE else None
    held = _find_replaced(connection, [run_id for run_id, _ in rows])
    ids = [run_id for run_id, _ in rows if run_id not in held]
    if not ids:
        return _Batch(Pruned([], 0, 0), [], last)
    names, values = name_values(ids)
    (count,) = connection.execute(
        f"SELECT count(*) FROM upcall_checkpoints WHERE run_id IN ({names})", values
    ).fetchone()
    files = connection.execute(f"SELECT run_id FROM upcall_uploads WHERE run_id IN ({names})", values).fetchall()
    size = 0
    for table, key in ((RUNS, "id"), *((table, "run_id") for table in schema.list_of_run(connection))):
        query = f"SELECT sum({table.width}) FROM {table.name} WHERE {key} IN ({names})"
        size += int(connection.execute(query, values).fetchone()[0] or 0)
        # The rows of runs that stay are not touched: they were chosen, and locked, above.
        if not dry_run:
            connection.execute(f"DELETE FROM {table.name} WHERE {key} IN ({names})", values)
    return _Batch(Pruned(ids, count, size), [run_id for (run_id,) in files], last)


def _find_replaced(connection: Connection, ids: Sequence[str]) -> Collection[str]:
    """Find those of some runs that a branch is about to replace, whether or not somebody is at it: they are what it is
    completed with."""
    names, values = name_values(ids or [""])
    rows = connection.execute(f"SELECT id, record FROM upcall_runs WHERE id IN ({names})", values).fetchall()
    return {run_id for run_id, record in rows if is_being_replaced(record, run_id)}


def _prune_checkpoints(
    connection: Connection, *, gone: _Selection | None, after: str, last: int, dry_run: bool
) -> tuple[str | None, Pruned]:
    """Remove all but the last checkpoints of the next runs, without those that would be gone by then; return where the
    next ones begin, None at the end."""
    stay = "" if gone is None or not gone.statuses else f" AND NOT ({gone.as_condition()})"
    values = {} if gone is None or not gone.statuses else gone.values
    rows = connection.execute(
        f"SELECT id FROM upcall_runs WHERE id > :after{stay} ORDER BY id LIMIT {RUNS_AT_ONCE}",
        {**values, "after": after},
    ).fetchall()
    if not rows:
        return None, Pruned([], 0, 0)
    held = _find_replaced(connection, [run_id for (run_id,) in rows])
    names, ids = name_values([run_id for (run_id,) in rows if run_id not in held] or [""])
    kept = (
        "SELECT version FROM upcall_checkpoints newer WHERE newer.run_id = upcall_checkpoints.run_id "
        f"ORDER BY version DESC LIMIT 1 OFFSET {last - 1}"
    )
    old = f"FROM upcall_checkpoints WHERE run_id IN ({names}) AND version < ({kept})"
    count, size = connection.execute(f"SELECT count(*), sum({CHECKPOINTS.width}) {old}", ids).fetchone()
    if count and not dry_run:
        connection.execute(f"DELETE {old}", ids)
    return rows[-1][0], Pruned([], count, int(size or 0))


def as_plain(found: Stats | StoreCheck | Pruned) -> dict[str, Any]:
    """Return the result as plain values, for ``--json``."""
    more = {"payload": found.payload, "ratio": round(found.ratio, 2)} if isinstance(found, Stats) else {}
    return {**asdict(found), **more}
