"""The names that people give to runs. A run without one is named by the beginning of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from upcall import identity
from upcall.errors import CallerError
from upcall.policy.authorization import Authorization
from upcall.runs.run_filter import RunFilter
from upcall.runs.run_page import Viewer, is_storable
from upcall.storage.connection import Connection
from upcall.storage.run_lists import sees_whole
from upcall.storage.run_rows import as_searched, name_values
from upcall.storage.schema import Table, is_made
from upcall.storage.store import RunStore
from upcall.text import one_line

if TYPE_CHECKING:
    from upcall.app import Upcall

MAX_NAME_CHARS = 120

MAX_FOUND = 200
"""How many names one search finds among those that the user may read, those given last first."""

RUN_NAMES = Table(
    "upcall_run_names",
    {"run_id": "NAME", "name": "TEXT NOT NULL", "searched": "TEXT NOT NULL", "at": "NUMBER NOT NULL"},
    "run_id",
    {"upcall_run_names_at": "(at)"},
    is_exported=True,
)
"""A name beside the run's record: whoever works on the run is not disturbed by a new one."""


def name_task(task: str) -> str:
    """Return what a run with this task is called: the beginning of it, in one line."""
    return one_line(task[: 2 * MAX_NAME_CHARS], MAX_NAME_CHARS)


async def rename_run(store: RunStore, run_id: str, name: str) -> None:
    """Give a run a name; an empty one takes its name away.

    Raises:
        CallerError: it is too long, or not text.
    """
    name = " ".join(name.split())
    if len(name) > MAX_NAME_CHARS:
        raise CallerError(f"The name has {len(name)} characters; give one of {MAX_NAME_CHARS} at most.")
    if not is_storable(name):
        raise CallerError("The name contains what no text contains: a NUL, or bytes that are not UTF-8.")
    await store.database.write(partial(_put, run_id=run_id, name=name))


async def read_names(store: RunStore, run_ids: Sequence[str]) -> Mapping[str, str]:
    """Read the names of runs; those without one are missing."""
    if not run_ids or not await store.exists():
        return {}
    return await store.database.read(partial(_read, run_ids=run_ids))


async def widen_to_names(app: Upcall, user: str | None, only: RunFilter) -> RunFilter:
    """Return a filter that lets runs through by their name too, of those that a user may read."""
    if only.text is None or not await app.store.exists():
        return only
    viewer = Authorization.of(user, app.settings.users).viewer
    found = await app.store.database.read(partial(_find, text=only.text, owner=only.owner, viewer=viewer))
    return replace(only, named=frozenset(found))


def _put(connection: Connection, *, run_id: str, name: str) -> None:
    if not name:
        connection.execute("DELETE FROM upcall_run_names WHERE run_id = :run_id", {"run_id": run_id})
        return
    connection.execute(
        "INSERT INTO upcall_run_names (run_id, name, searched, at) VALUES (:run_id, :name, :searched, :at) "
        "ON CONFLICT (run_id) DO UPDATE SET name = excluded.name, searched = excluded.searched, at = excluded.at",
        {"run_id": run_id, "name": name, "searched": as_searched(name), "at": int(identity.now().timestamp())},
    )


def _read(connection: Connection, *, run_ids: Sequence[str]) -> Mapping[str, str]:
    if not is_made(connection, RUN_NAMES):
        return {}
    names, values = name_values(run_ids)
    return dict(
        connection.execute(f"SELECT run_id, name FROM upcall_run_names WHERE run_id IN ({names})", values).fetchall()
    )


def _find(connection: Connection, *, text: str, owner: str | None, viewer: Viewer | None) -> Sequence[str]:
    if not is_made(connection, RUN_NAMES):
        return []
    find = "instr" if connection.dialect == "sqlite" else "strpos"
    seen, values = sees_whole(viewer)
    conditions = [f"{find}(named.searched, :text) > 0", seen]
    values["text"] = as_searched(text)
    if owner is not None:
        conditions.append("owner = :owner")
        values["owner"] = owner
    query = (
        "SELECT named.run_id FROM upcall_run_names AS named JOIN upcall_runs ON upcall_runs.id = named.run_id "
        f"WHERE {' AND '.join(conditions)} ORDER BY named.at DESC LIMIT {MAX_FOUND}"
    )
    return [run_id for (run_id,) in connection.execute(query, values).fetchall()]
