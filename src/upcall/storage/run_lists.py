"""Pages of runs: selected by columns, read one by one. A damaged run is named, and does not prevent others from being
read."""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import Any, NamedTuple

from pydantic import ValidationError

from upcall.errors import CallerError, SchemaMismatch, UnknownRun
from upcall.questions.answer import Answer
from upcall.runs import queued
from upcall.runs.run import Run
from upcall.runs.run_filter import EVERY_RUN, RunFilter, list_agents
from upcall.runs.run_page import EVERYBODY, DamagedRun, RunPage, Viewer, is_storable
from upcall.runs.states import WORKING
from upcall.storage.compression import Damaged, decode
from upcall.storage.connection import Connection, database_errors
from upcall.storage.databases import is_unreadable
from upcall.storage.run_rows import as_searched, list_numbers, load_run, name_values

AT_ONCE = 250
"""How many rows one statement returns; databases limit the values that it names."""


MIN_ID_CHARS = 4
"""How much of a run's id stands for it."""

LOOKED_AT = 2_000
"""How many runs one page of a filtered list looks at, a few milliseconds' worth. One that has a next page names it."""


class _Row(NamedTuple):
    """A run as a list is chosen from: the time by which it is sorted, and whether a filter lets it through."""

    at: int
    id: str
    fits: bool


@dataclass(frozen=True)
class _Source:
    """Rows in the order of an index: those of one value of its first columns.

    Attributes:
        table: the table, with what it is called in a statement.
        key: the columns that they are sorted by: the time, and the id.
        where: which rows.
        fits: whether a filter lets a row through, as far as columns say it.
        values: what is named in these.
        agent: the agent that a run is wanted with, which only its record says.
    """

    table: str
    key: tuple[str, str]
    where: Sequence[str]
    fits: str
    values: Mapping[str, Any]
    agent: str | None = None


def list_runs(
    connection: Connection,
    *,
    viewer: Viewer | None = None,
    only: RunFilter = EVERY_RUN,
    limit: int | None = None,
    before: str | None = None,
) -> RunPage:
    """List the newest runs, after the one with the id `before` if given.

    Raises:
        UnknownRun: there is no run `before` for the viewer.
    """
    start = None
    if before is not None:
        query = "SELECT created_at, owner, assignees FROM upcall_runs WHERE id = :id"
        row = connection.execute(query, {"id": before}).fetchone() if is_storable(before) else None
        if row is None or not (viewer is None or viewer.sees(*row[1:])):
            raise UnknownRun(before)
        start = (row[0], before)
    sources = _list_sources(connection, viewer, only)
    chosen, last = _choose(_merge(connection, sources, "DESC", start), limit)
    page = _read_page(connection, chosen)
    page.next = None if last is None else last.id
    return page


def list_open(
    connection: Connection, *, viewer: Viewer | None = None, limit: int | None = None, after: str | None = None
) -> RunPage:
    """List the runs that have an open question, oldest question first; for a viewer, not those they may only read.

    Raises:
        CallerError: there is no place `after`.
    """
    start = None if after is None else _parse_place(after)
    key, asked = ("asked_at", "id"), "asked_at IS NOT NULL"
    if viewer is None:
        sources = [_Source("upcall_runs", key, [asked], "1 = 1", {})]
    else:
        sources = [_Source("upcall_runs", key, ["owner = :owner", asked], "1 = 1", {"owner": viewer.user})]
        sources += [
            _Source("upcall_shown_to", ("asked_at", "run_id"), ["name = :name", asked], "1 = 1", {"name": name})
            for name in sorted(viewer.names - {EVERYBODY})
        ]
    chosen, last = _choose(_merge(connection, sources, "ASC", start), limit)
    page = _read_page(connection, chosen)
    page.next = None if last is None else f"{last.at}-{last.id}"
    return page


def _parse_place(text: str) -> tuple[int, str]:
    at, _, run_id = text.partition("-")
    if not (at.isascii() and at.isdigit() and len(at) < 16 and is_storable(run_id)):
        raise CallerError(f"There is no place {text!r} in the list. Take what the page before names as its next.")
    return int(at), run_id


def list_due(connection: Connection, now: datetime) -> list[str]:
    """List the ids of the runs with a due action on a question, longest due first."""
    query = "SELECT id FROM upcall_runs WHERE due_at <= :now ORDER BY due_at, id"
    return [run_id for (run_id,) in connection.execute(query, {"now": int(now.timestamp())}).fetchall()]


def find_ids(connection: Connection, prefix: str, viewer: Viewer | None = None) -> list[str]:
    """Find the id that this is, or else those that start with it (four characters or more), three at most."""
    if not is_storable(prefix):
        return []
    seen_by = "SELECT id, owner, assignees FROM upcall_runs WHERE"
    rows = connection.execute(f"{seen_by} id = :id", {"id": prefix}).fetchall()
    if viewer is not None:
        rows = [row for row in rows if viewer.sees(row[1], row[2])]
    if not rows and len(prefix) >= MIN_ID_CHARS:
        # The names with this beginning are one range: an index is enough, where a pattern would go through all rows.
        values = {"first": prefix, "end": prefix + "\U0010ffff"}
        limit = "LIMIT 3" if viewer is None else ""
        rows = connection.execute(f"{seen_by} id >= :first AND id < :end ORDER BY id {limit}", values).fetchall()
    return list(islice((row[0] for row in rows if viewer is None or viewer.sees(row[1], row[2])), 3))


def sees_whole(viewer: Viewer | None) -> tuple[str, dict[str, str]]:
    """Return the condition by which a viewer may read all of a row of ``upcall_runs``, and its values: their own runs,
    and those that are open to everybody. Without a viewer all rows meet it."""
    if viewer is None:
        return "1 = 1", {}
    shown = "SELECT 1 FROM upcall_shown_to WHERE run_id = upcall_runs.id AND upcall_shown_to.name = :everybody"
    return f"(owner = :viewer OR EXISTS ({shown}))", {"viewer": viewer.user, "everybody": EVERYBODY}


def _list_sources(connection: Connection, viewer: Viewer | None, only: RunFilter) -> list[_Source]:
    """List where a list of runs comes from: the shortest index for what is wanted, and for a viewer one for each way by
    which runs are theirs to see."""
    key, (fits, values), agent = ("created_at", "id"), _as_condition(connection, only), only.agent
    if viewer is not None:
        own = _Source("upcall_runs", key, ["owner = :viewer"], fits, {**values, "viewer": viewer.user}, agent)
        return [own, *(_list_shown(name, only, fits, values) for name in sorted(viewer.names))]
    if only.owner is not None:
        return [_Source("upcall_runs", key, ["owner = :owner"], fits, values, agent)]
    if only.statuses is not None:
        numbers = [list_numbers([each]) for each in only.statuses]
        return [_Source("upcall_runs", key, [f"status = {number}"], fits, values, agent) for number in numbers]
    return [_Source("upcall_runs", key, [], fits, values, agent)]


def _list_shown(name: str, only: RunFilter, fits: str, values: Mapping[str, Any]) -> _Source:
    """Return where the runs come from that are shown to a name. The task of one and its agents are searched where
    everybody may read it: to whom a question is assigned they are not shown."""
    if (only.text is not None or only.agent is not None) and name != EVERYBODY:
        fits = "1 = 0"
    elif only != EVERY_RUN:
        fits = f"(SELECT {fits} FROM upcall_runs WHERE id = run_id)"
    key, shown = ("created_at", "run_id"), {**values, "name": name}
    return _Source("upcall_shown_to", key, ["name = :name"], fits, shown, only.agent)


def _as_condition(connection: Connection, only: RunFilter) -> tuple[str, dict[str, Any]]:
    """Return a filter as a condition of a statement, and the values that it names."""
    conditions, values = list[str](), dict[str, Any]()
    if only.statuses is not None:
        conditions.append(f"status IN ({list_numbers(only.statuses)})")
    if only.owner is not None:
        conditions.append("owner = :owner")
        values["owner"] = only.owner
    for name, bound, sign in (("before", only.changed_before, "<"), ("after", only.changed_after, ">=")):
        if bound is not None:
            conditions.append(f"updated_at {sign} :{name}")
            values[name] = int(bound.timestamp())
    if only.text is not None:
        find = "instr" if connection.dialect == "sqlite" else "strpos"
        names, named = name_values(sorted(only.named))
        found = [f"{find}(task, :text) > 0", *([f"id IN ({names})"] if named else [])]
        values |= {"text": as_searched(only.text), **named}
        if len(values["text"]) >= MIN_ID_CHARS:
            found.append("substr(lower(id), 1, length(:text)) = :text")
        conditions.append(f"({' OR '.join(found)})")
    return " AND ".join(conditions) or "1 = 1", values


def _merge(
    connection: Connection, sources: Iterable[_Source], direction: str, start: tuple[int, str] | None
) -> Iterator[_Row]:
    """Walk through the rows of several sources in one order; a run that comes from several comes once."""
    walks = [_walk(connection, each, direction, start) for each in sources]
    merged = heapq.merge(*walks, key=_place, reverse=direction == "DESC")
    for (at, run_id), rows in groupby(merged, key=_place):
        yield _Row(at, run_id, any(row.fits for row in rows))


def _place(row: _Row) -> tuple[int, str]:
    return row.at, row.id


def _walk(connection: Connection, source: _Source, direction: str, start: tuple[int, str] | None) -> Iterator[_Row]:
    """Walk through the rows of one source, some at a time. An index holds all that is looked at here, but the task."""
    at, run_id = source.key
    sign = "<" if direction == "DESC" else ">"
    while True:
        behind = [] if start is None else [f"({at}, {run_id}) {sign} (:at, :id)"]
        where = " AND ".join([*source.where, *behind]) or "1 = 1"
        rows = connection.execute(
            f"SELECT {at}, {run_id}, {source.fits} FROM {source.table} WHERE {where} "
            f"ORDER BY {at} {direction}, {run_id} {direction} LIMIT {AT_ONCE}",
            {**source.values, **({} if start is None else {"at": start[0], "id": start[1]})},
        ).fetchall()
        fitting = {each[1] for each in rows if each[2]}
        if source.agent is not None:
            fitting = _find_with_agent(connection, fitting, source.agent)
        yield from (_Row(each[0], each[1], each[1] in fitting) for each in rows)
        if len(rows) < AT_ONCE:
            return
        start = rows[-1][:2]


def _find_with_agent(connection: Connection, ids: Collection[str], agent: str) -> set[str]:
    """Find the runs at which an agent worked or asked. Only their records say it; most of these are not parsed."""
    written, found = json.dumps(agent, ensure_ascii=False)[1:-1].encode(errors="replace"), set[str]()
    for run_id, record in read_records(connection, sorted(ids)).items():
        with suppress(Damaged, SchemaMismatch):  # A list without a filter names the damaged ones.
            if written in decode(record) and agent in list_agents(load_run(record, run_id)):
                found.add(run_id)
    return found


def _choose(rows: Iterator[_Row], limit: int | None) -> tuple[list[_Row], _Row | None]:
    """Choose the rows of a page that fit; return them, and the last one that was looked at, if there are more."""
    chosen = list[_Row]()
    for looked, row in enumerate(rows, 1):
        if row.fits:
            chosen.append(row)
        if limit is not None and (len(chosen) == limit or looked == LOOKED_AT):
            return chosen, row if next(rows, None) is not None else None
    return chosen, None


def _read_page(connection: Connection, chosen: Sequence[_Row]) -> RunPage:
    page, damaged = RunPage(), list[DamagedRun]()
    rest = iter(chosen)
    while rows := list(islice(rest, AT_ONCE)):
        records = read_records(connection, [row.id for row in rows])
        for row in rows:
            try:
                page.append(show_queued(connection, _read_run(records, row.id)))
            except SchemaMismatch as error:
                damaged.append(DamagedRun(row.id, datetime.fromtimestamp(row.at, UTC), str(error)))
    page.damaged = damaged
    return page


def show_queued(connection: Connection, run: Run) -> Run:
    """Return a run with the answers that are queued for it; see `upcall.runs.queued.show_queued`."""
    return queued.show_queued(run, read_queued(connection, run.id)) if queued.may_have_queued(run) else run


def read_queued(connection: Connection, run_id: str) -> Sequence[Answer]:
    """Read the answers that are queued for whoever works on a run.

    Raises:
        SchemaMismatch: one is damaged.
    """
    query = "SELECT answer FROM upcall_queued_answers WHERE run_id = :run_id ORDER BY question_id"
    rows = connection.execute(query, {"run_id": run_id}).fetchall()
    try:
        return [Answer.model_validate_json(text) for (text,) in rows]
    except ValidationError as error:
        raise SchemaMismatch(
            f"An answer that is queued for run {run_id} is damaged. See what else is: upcall store check"
        ) from error


def _read_run(records: Mapping[str, bytes], run_id: str) -> Run:
    if run_id not in records:
        raise SchemaMismatch(
            f"The record of run {run_id} cannot be read: the file is damaged there. See what else is: upcall store "
            "check"
        )
    return load_run(records[run_id], run_id)


def read_leases(connection: Connection, ids: Sequence[str]) -> list[tuple[str, str | None, float | None]]:
    """Read the leases of those of some runs that are worked on, now: id, worker, and when it was renewed."""
    found: list[tuple[str, str | None, float | None]] = []
    statuses = list_numbers(WORKING)
    for batch in batch_ids(ids):
        names, values = name_values(batch)
        query = f"SELECT id, worker, renewed_at FROM upcall_runs WHERE id IN ({names}) AND status IN ({statuses})"
        found += connection.execute(query, values).fetchall()
    return found


def batch_ids(ids: Iterable[str]) -> Iterator[list[str]]:
    """Split ids into as many at a time as one statement takes."""
    rest = iter(ids)
    while batch := list(islice(rest, AT_ONCE)):
        yield batch


def read_records(connection: Connection, ids: Sequence[str]) -> dict[str, bytes]:
    """Read the records of some runs, as far as the file can be read."""
    if not ids:
        return {}
    try:
        return _select_records(connection, ids)
    except database_errors() as error:
        if not is_unreadable(error):
            raise
        if len(ids) == 1:
            return {}
    found: dict[str, bytes] = {}
    for each in ids:  # A damaged page holds some of them.
        found |= read_records(connection, [each])
    return found


def _select_records(connection: Connection, ids: Sequence[str]) -> dict[str, bytes]:
    names, values = name_values(ids)
    return dict(connection.execute(f"SELECT id, record FROM upcall_runs WHERE id IN ({names})", values).fetchall())
