"""What is done with a store as a whole: count it, check it, prune it, and carry a run from one store to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from autogen_agentchat.messages import HandoffMessage, TextMessage
from pydantic import Field, TypeAdapter
from sqlalchemy import func, inspect, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from upcall import identity
from upcall.autogen.group_chats import PendingQuestions
from upcall.autogen.messages import USER
from upcall.errors import SchemaMismatch, UnknownRun
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.run import Run, RunStatus
from upcall.storage import packing
from upcall.storage import store as stores
from upcall.storage.blobs import batches, insert_missing, references_or_none
from upcall.storage.change_log import contents_named
from upcall.storage.databases import schema_version
from upcall.storage.packing import DamagedNode
from upcall.storage.store import RunStore
from upcall.storage.tables import OF_A_RUN, blobs, checkpoints, journal, log, mail, metadata, runs
from upcall.text import first_line


@dataclass(frozen=True)
class Stats:
    """What is in a store. ``bytes`` are those of all columns, by table; ``as_json`` is what the checkpoints would have
    if each were kept whole as JSON; ``file`` is what the database takes on disk."""

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
        stored = self.bytes[checkpoints.name] + self.bytes[blobs.name]
        return self.as_json / stored if stored else 1.0


@dataclass(frozen=True)
class Checked:
    """What a check found. ``problems`` has one line each; ``unreferenced`` blobs are no problem, `prune` collects
    them."""

    runs: int = 0
    checkpoints: int = 0
    blobs: int = 0
    unreferenced: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be: the ids of runs, how many checkpoints and blobs, and the bytes of all that."""

    runs: list[str]
    checkpoints: int
    blobs: int
    bytes: int


# -- counting ---------------------------------------------------------------------------------------------------------


async def stats(store: RunStore) -> Stats:
    """Count a store. An SQLite file that is not there yet is empty."""
    if not await store.exists():
        nothing = {table.name: 0 for table in metadata.sorted_tables}
        return Stats({}, 0, nothing, nothing, 0, 0)
    return await store.database.read(_stats)


def _stats(connection: Connection) -> Stats:
    by_status = connection.execute(select(runs.c.status, func.count()).group_by(runs.c.status)).all()
    rows, sizes = {}, {}
    for table in metadata.sorted_tables:
        count, size = connection.execute(select(func.count(), func.sum(_width(table.c)))).one()
        rows[table.name], sizes[table.name] = count, int(size or 0)
    whole = _Whole({bytes(row.hash): bytes(row.data) for row in connection.execute(select(blobs))})
    states = connection.execute(select(checkpoints.c.state)).scalars()
    as_json = sum(whole.size(bytes(state), sealed=True) for state in states)
    if connection.dialect.name == "sqlite":
        file = connection.execute(text("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"))
    else:
        names = ", ".join(f"('{table.name}')" for table in metadata.sorted_tables)
        file = connection.execute(
            text(f"SELECT sum(pg_total_relation_size(name::regclass)) FROM (VALUES {names}) t(name)")
        )
    return Stats(dict(by_status), rows[checkpoints.name], rows, sizes, as_json, int(file.scalar_one()))


def _width(columns: Iterable[Any]) -> Any:
    """The bytes of a row: those of its texts and blobs, eight for a number."""
    total: Any = 0
    for column in columns:
        kind = column.type.python_type
        total = total + (func.coalesce(func.length(column), 0) if kind in (str, bytes) else 8)
    return total


class _Whole:
    """How large nodes are with all that is under them, each computed once."""

    def __init__(self, stored: dict[bytes, bytes]) -> None:
        self._stored = stored
        self._sizes: dict[bytes, int] = {}

    def size(self, stored: bytes, *, sealed: bool = False) -> int:
        try:
            node = packing.unseal(stored) if sealed else packing.read(stored)
        except DamagedNode:
            return 0
        return len(node.text) + sum(self._under(each) for each in node.references)

    def _under(self, name: bytes) -> int:
        if name not in self._sizes:
            self._sizes[name] = self.size(self._stored[name]) if name in self._stored else 0
        return self._sizes[name]


# -- checking ---------------------------------------------------------------------------------------------------------


async def check(store: RunStore) -> Checked:
    """Look at all that is stored, and say what is damaged."""
    if not await store.exists():
        raise UnknownRun("", f"the store {store.name} does not exist")
    return await store.database.inspect(partial(_check, name=store.name))


def _check(connection: Connection, *, name: str) -> Checked:
    problems: list[str] = []
    _tried(problems, "the database", lambda: _check_file(connection, problems))
    if not _tried(problems, "the schema", lambda: _check_schema(connection, name, problems)):
        return Checked(problems=problems)
    known: dict[bytes, list[bytes]] = {}
    _tried(problems, "the table of blobs", lambda: known.update(_check_blobs(connection, problems)))
    states: list[int] = []
    used: set[bytes] = set()
    ids: dict[str, int] = {}
    _tried(problems, "the table of runs", lambda: ids.update(_check_runs(connection, problems, used)))
    _tried(
        problems,
        "the table of checkpoints",
        lambda: states.append(_check_checkpoints(connection, ids, problems, used)),
    )
    _tried(problems, "the journal", lambda: _check_journal(connection, problems))
    for table in (mail, journal, log):
        _tried(problems, f"the table {table.name}", partial(_check_owners, connection, table, ids, problems))
    _tried(problems, "the log", lambda: used.update(_check_changes(connection, known, problems)))
    return Checked(len(ids), sum(states), len(known), len(_unused(known, used)), problems)


def _unused(known: dict[bytes, list[bytes]], used: set[bytes]) -> list[bytes]:
    """The blobs, each with those that it names, to which nothing leads from those that are used."""

    def below(names: Collection[bytes]) -> list[bytes]:
        return [each for name in names for each in known.get(name, ())]

    reached = {each for level in packing.reachable(used, below) for each in level}
    return [each for each in known if each not in reached]


def _tried(problems: list[str], what: str, work: Callable[[], object]) -> bool:
    """Whether `work` could be done. What a damaged file keeps from being read is one problem; the rest is still looked
    at."""
    try:
        work()
    except SQLAlchemyError as error:
        problems.append(f"{what} cannot be read: {first_line(getattr(error, 'orig', None) or error)}")
        return False
    except SchemaMismatch as error:
        problems.append(str(error))
        return False
    return True


def _check_file(connection: Connection, problems: list[str]) -> None:
    if connection.dialect.name == "sqlite":
        found = connection.execute(text("PRAGMA quick_check(20)")).scalars().all()
        problems += [f"the file is damaged: {first_line(each)}" for each in found if each != "ok"]


def _check_schema(connection: Connection, name: str, problems: list[str]) -> None:
    schema_version(connection, name)
    there = inspect(connection)
    for table in metadata.sorted_tables:
        if not there.has_table(table.name):
            problems.append(f"the table {table.name} is missing")
        elif missing := set(table.c.keys()) - {column["name"] for column in there.get_columns(table.name)}:
            problems.append(f"the table {table.name} has no {', '.join(sorted(missing))}")


def _check_blobs(connection: Connection, problems: list[str]) -> dict[bytes, list[bytes]]:
    """The references of each blob."""
    found: dict[bytes, list[bytes]] = {}
    for row in connection.execute(select(blobs.c.hash, blobs.c.data)):
        name = bytes(row.hash)
        found[name] = references_or_none(bytes(row.data))
        try:
            packing.load(bytes(row.data), name)
        except DamagedNode as error:
            problems.append(f"the blob {name.hex()} is damaged: {error}")
    for name, references in found.items():
        problems += [
            f"the blob {name.hex()} names {each.hex()}, which is missing" for each in references if each not in found
        ]
    return found


def _check_runs(connection: Connection, problems: list[str], used: set[bytes]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for row in connection.execute(select(runs.c.id, runs.c.version, runs.c.record)).all():
        ids[row.id] = row.version
        used.update(references_or_none(bytes(row.record), sealed=True))
        try:
            stores.run_of(connection, row.record, row.id)
        except SchemaMismatch as error:
            problems.append(first_line(error))
    return ids


def _check_checkpoints(connection: Connection, ids: dict[str, int], problems: list[str], used: set[bytes]) -> int:
    count, whole, last = 0, Counter[str](), dict[str, bool]()
    query = select(checkpoints).order_by(checkpoints.c.run_id, checkpoints.c.version)
    for row in connection.execute(query).all():
        count += 1
        used.update(references_or_none(bytes(row.state), sealed=True))
        last[row.run_id] = False
        if row.run_id not in ids:
            problems.append(f"a checkpoint belongs to the run {row.run_id}, which is not there")
            continue
        try:
            stores.checkpoint_of(connection, bytes(row.state), row.run_id)
        except (DamagedNode, SchemaMismatch) as error:
            problems.append(
                f"run {row.run_id}: its checkpoint of version {row.version} is damaged: {first_line(error)}"
            )
        else:
            whole[row.run_id] += 1
            last[row.run_id] = True
    for run_id in ids:
        if run_id not in last:
            problems.append(f"run {run_id} has no checkpoint")
        elif not last[run_id] and whole[run_id]:
            problems.append(f"run {run_id} can go back to an older checkpoint: upcall store restore {run_id}")
    return count


def _check_journal(connection: Connection, problems: list[str]) -> None:
    for row in connection.execute(select(journal)):
        try:
            packing.unseal_text(bytes(row.record))
        except DamagedNode as error:
            problems.append(f"run {row.run_id}: its journal is damaged at {row.key!r}: {error}")


def _check_changes(connection: Connection, known: Collection[bytes], problems: list[str]) -> Collection[bytes]:
    """The blobs that are kept to undo changes of files."""
    named = contents_named(connection)
    for name, run_ids in named.items():
        if name not in known:
            problems.append(f"what run {', '.join(sorted(run_ids))} changed in a file cannot be undone: {name.hex()}")
    return named


def _check_owners(connection: Connection, table: Any, ids: dict[str, int], problems: list[str]) -> None:
    owners = set(connection.execute(select(table.c.run_id).distinct()).scalars())
    problems += [f"{table.name} has rows of the run {each}, which is not there" for each in sorted(owners - ids.keys())]


# -- going back -------------------------------------------------------------------------------------------------------


async def restore(store: RunStore, run_id: str) -> Run:
    """Go back to the last checkpoint of a run that is whole, and drop the damaged ones after it. The run waits for what
    its team had asked then, or else has failed and can be resumed.

    Raises:
        UnknownRun: there is no such run, or none of its checkpoints is whole.
    """
    return await store.database.write(partial(_restore, store=store, run_id=run_id))


def _restore(connection: Connection, *, store: RunStore, run_id: str) -> Run:
    full_id = stores.full_id(connection, run_id)
    query = select(runs.c.version, runs.c.record).where(runs.c.id == full_id).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownRun(run_id, f"no run in {store.name} has this id")
    version = stores.last_whole(connection, full_id, row.version + 1)
    if version is None:
        raise UnknownRun(run_id, "none of its checkpoints is whole")
    checkpoint = stores.checkpoint_at(connection, run_id=full_id, version=version)
    run = _as_it_was(connection, checkpoint, row.record, full_id)
    after = checkpoints.delete().where(checkpoints.c.run_id == full_id, checkpoints.c.version > version)
    connection.execute(after)
    for table in (journal, mail):
        connection.execute(table.delete().where(table.c.run_id == full_id))
    record = store.packed_record(run)
    insert_missing(connection, record.nodes)
    columns = stores.columns_of(run, record)
    connection.execute(
        runs.update().where(runs.c.id == full_id).values(version=row.version + 1, worker=None, **columns)
    )
    stores.add_to_log(connection, full_id, [("restored", None, {"checkpoint": version})])
    return run


def _as_it_was(connection: Connection, checkpoint: Checkpoint, record: bytes, run_id: str) -> Run:
    """The run as far as its checkpoint tells: waiting for what the team had asked, or to be resumed."""
    run, _ = stores.run_of(connection, record, run_id)
    if checkpoint.progress is not None:
        run = run.restored_from(checkpoint.progress)
    messages = [_message.validate_python(each) for each in checkpoint.thread() if each["type"] in _SAID]
    asked = {} if checkpoint.inbox else PendingQuestions.in_thread(messages, (), USER).questions
    # Not by its table of transitions: a run that was over is to go on from there as well.
    return run.model_copy(
        update={
            "status": RunStatus.AWAITING_CLARIFICATION if asked else RunStatus.FAILED,
            "error": None if asked else "What was stored last was damaged; the run is back at an older checkpoint.",
            "result": None,
            "questions": tuple(asked.values()),
            "repeated": (),
            "early": (),
            "doubts": {},
            "answers": tuple(each for each in run.answers if each.question_id not in asked),
            "closed": tuple(each for each in run.closed if each.id not in asked),
            "updated_at": identity.now(),
        }
    )


_SAID = ("TextMessage", "HandoffMessage")
_message: TypeAdapter[Any] = TypeAdapter(Annotated[TextMessage | HandoffMessage, Field(discriminator="type")])


# -- pruning ----------------------------------------------------------------------------------------------------------


async def prune(
    store: RunStore,
    *,
    older_than: timedelta | None = None,
    statuses: Collection[RunStatus] = (),
    last_checkpoints: int | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Remove runs that have not changed for `older_than`, those of `statuses`, or those of both where both are given;
    of the others all but the `last_checkpoints` last checkpoints; and every blob that nothing names any more.

    Without `statuses` only runs that are over are removed; a run at work never is.
    """
    if not await store.exists():
        return Pruned([], 0, 0, 0)
    chosen = partial(
        _prune, older_than=older_than, statuses=frozenset(statuses), last=last_checkpoints, dry_run=dry_run
    )
    if dry_run:
        return await store.database.read(chosen)
    pruned = await store.database.write(chosen)
    if pruned.bytes:
        await store.database.shrink()
    return pruned


def _prune(
    connection: Connection,
    *,
    older_than: timedelta | None,
    statuses: frozenset[RunStatus],
    last: int | None,
    dry_run: bool,
) -> Pruned:
    if connection.dialect.name == "postgresql" and not dry_run:
        # Every writer touches this table first: none is in the middle of storing blobs that nothing names yet.
        connection.execute(text("LOCK TABLE upcall_runs IN SHARE ROW EXCLUSIVE MODE"))
    before = None if older_than is None else identity.now() - older_than
    rows = connection.execute(select(runs.c.id, runs.c.record)).all() if before or statuses else []
    found = stores.runs_of(connection, rows)
    ids = [
        run.id
        for run in found
        if not run.working
        and (run.status in statuses if statuses else run.is_final)
        and (before is None or run.updated_at < before)
    ]
    states = connection.execute(
        select(checkpoints.c.run_id, checkpoints.c.version).order_by(checkpoints.c.run_id, checkpoints.c.version.desc())
    ).all()
    rank = Counter[str]()
    old, gone = [], set(ids)
    for row in states:
        rank[row.run_id] += 1
        if row.run_id in gone or (last is not None and rank[row.run_id] > max(1, last)):
            old.append((row.run_id, row.version))
    freed = _size_of(connection, ids)
    lost = set(old)
    unreferenced, size = _unreferenced(connection, gone, lost)
    if not dry_run:
        _remove(connection, ids, old, unreferenced)
    return Pruned(ids, len(old), len(unreferenced), freed + size)


def _size_of(connection: Connection, ids: Sequence[str]) -> int:
    size = 0
    for table, key in ((runs, runs.c.id), *((table, table.c.run_id) for table in OF_A_RUN)):
        if table is not checkpoints:
            for batch in batches(ids):
                size += connection.execute(select(func.sum(_width(table.c))).where(key.in_(batch))).scalar() or 0
    return int(size)


def _unreferenced(
    connection: Connection, gone: Collection[str], old: Collection[tuple[str, int]]
) -> tuple[list[bytes], int]:
    """The blobs that nothing names but what is removed, and the bytes of these and of the removed checkpoints."""
    used: set[bytes] = set()
    size = 0
    for row in connection.execute(select(runs.c.id, runs.c.record)):
        if row.id not in gone:
            used.update(packing.references(bytes(row.record), sealed=True))
    for row in connection.execute(select(checkpoints)):
        if (row.run_id, row.version) in old:
            size += len(row.run_id) + 8 + len(row.state)
        else:
            used.update(packing.references(bytes(row.state), sealed=True))
    used.update(name for name, run_ids in contents_named(connection).items() if run_ids - set(gone))
    known: dict[bytes, list[bytes]] = {}
    sizes: dict[bytes, int] = {}
    for row in connection.execute(select(blobs.c.hash, blobs.c.data)):
        name = bytes(row.hash)
        known[name], sizes[name] = references_or_none(bytes(row.data)), len(name) + len(row.data)
    free = _unused(known, used)
    return free, size + sum(sizes[each] for each in free)


def _remove(
    connection: Connection, ids: Sequence[str], old: Sequence[tuple[str, int]], unreferenced: Sequence[bytes]
) -> None:
    for batch in batches(ids):
        connection.execute(runs.delete().where(runs.c.id.in_(batch)))
        for table in OF_A_RUN:
            connection.execute(table.delete().where(table.c.run_id.in_(batch)))
    for run_id, version in old:
        one = checkpoints.delete().where(checkpoints.c.run_id == run_id, checkpoints.c.version == version)
        connection.execute(one)
    for hashes in batches(unreferenced):
        connection.execute(blobs.delete().where(blobs.c.hash.in_(hashes)))


def as_plain(found: Stats | Checked | Pruned) -> dict[str, Any]:
    """For ``--json``."""
    more = {"payload": found.payload, "ratio": round(found.ratio, 2)} if isinstance(found, Stats) else {}
    return {**asdict(found), **more}
