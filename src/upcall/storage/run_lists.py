"""Pages of runs: selected by columns, read one by one. A damaged run is named, and does not prevent others from being
read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pydantic import ValidationError

from upcall.errors import SchemaMismatch, UnknownRun
from upcall.questions.answer import Answer
from upcall.runs import queued
from upcall.runs.run import Run
from upcall.runs.run_page import EVERYBODY, DamagedRun, RunPage, Viewer, is_storable
from upcall.runs.states import WORKING, RunStatus
from upcall.storage.connection import Connection, database_errors
from upcall.storage.databases import is_unreadable
from upcall.storage.run_rows import list_numbers, load_run, name_values

AT_ONCE = 250
"""How many rows one statement returns; databases limit the values that it names."""


_Row = tuple[int, str, str | None, str | None]
"""When, id, owner, assignees."""


def list_runs(
    connection: Connection,
    *,
    viewer: Viewer | None = None,
    statuses: Collection[RunStatus] | None = None,
    limit: int | None = None,
    before: str | None = None,
) -> RunPage:
    """List the newest runs, after the one with the id `before` if given.

    Raises:
        UnknownRun: there is no run `before` for the viewer.
    """
    conditions = []
    if statuses is not None:
        conditions.append(f"status IN ({list_numbers(statuses)})")
    start = None
    if before is not None:
        query = "SELECT created_at, owner, assignees FROM upcall_runs WHERE id = :id"
        row = connection.execute(query, {"id": before}).fetchone() if is_storable(before) else None
        if row is None or not (viewer is None or viewer.sees(*row[1:])):
            raise UnknownRun(before)
        start = (row[0], before)
    return _page(connection, _walk(connection, "created_at", "DESC", conditions, {}, viewer, start), limit)


def list_open(connection: Connection, *, viewer: Viewer | None = None, limit: int | None = None) -> RunPage:
    """List the runs that have an open question, oldest question first; for a viewer, not those they may only read."""
    if viewer is not None:
        viewer = Viewer(viewer.user, viewer.names - {EVERYBODY})
    return _page(connection, _walk(connection, "asked_at", "ASC", ["asked_at IS NOT NULL"], {}, viewer, None), limit)


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
    if not rows and len(prefix) >= 4:
        # The names with this beginning are one range: an index is enough, where a pattern would go through all rows.
        values = {"first": prefix, "end": prefix + "\U0010ffff"}
        limit = "LIMIT 3" if viewer is None else ""
        rows = connection.execute(f"{seen_by} id >= :first AND id < :end ORDER BY id {limit}", values).fetchall()
    return list(islice((row[0] for row in rows if viewer is None or viewer.sees(row[1], row[2])), 3))


def _walk(
    connection: Connection,
    key: str,
    direction: str,
    conditions: Sequence[str],
    values: Mapping[str, Any],
    viewer: Viewer | None,
    start: tuple[int, str] | None,
) -> Iterator[_Row]:
    """Walk through the rows that a viewer sees, in the order of a key and the id. An index holds all that is looked at
    here."""
    visible = [] if viewer is None else ["(owner = :viewer OR assignees IS NOT NULL)"]
    named = dict(values) if viewer is None else {**values, "viewer": viewer.user}
    while True:
        behind = [] if start is None else [f"({key}, id) {'<' if direction == 'DESC' else '>'} (:at, :id)"]
        where = " AND ".join([*conditions, *visible, *behind]) or "1 = 1"
        more = {} if start is None else {"at": start[0], "id": start[1]}
        rows: list[_Row] = connection.execute(
            f"SELECT {key}, id, owner, assignees FROM upcall_runs WHERE {where} "
            f"ORDER BY {key} {direction}, id {direction} LIMIT {AT_ONCE}",
            {**named, **more},
        ).fetchall()
        yield from (row for row in rows if viewer is None or viewer.sees(row[2], row[3]))
        if len(rows) < AT_ONCE:
            return
        start = rows[-1][:2]


def _page(connection: Connection, rows: Iterator[_Row], limit: int | None) -> RunPage:
    page, damaged = RunPage(), list[DamagedRun]()
    left = limit
    while chosen := list(islice(rows, AT_ONCE if left is None else min(left, AT_ONCE))):
        records = read_records(connection, [row[1] for row in chosen])
        for at, run_id, *_ in chosen:
            try:
                page.append(show_queued(connection, _read_run(records, run_id)))
            except SchemaMismatch as error:
                damaged.append(DamagedRun(run_id, datetime.fromtimestamp(at, UTC), str(error)))
        if left is not None:
            left -= len(chosen)
            if left == 0:
                page.next = chosen[-1][1] if next(rows, None) is not None else None
                break
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
