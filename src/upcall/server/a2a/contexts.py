"""What only a client of A2A knows of a run: the ids that it chose for the conversation and for its messages. All else
of a task is the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from upcall.runs.run_filter import RunFilter
from upcall.runs.states import RunStatus
from upcall.storage.connection import Connection
from upcall.storage.run_rows import list_numbers, name_values
from upcall.storage.schema import Table, is_made
from upcall.storage.store import RunStore

TASKS = Table(
    "upcall_a2a_tasks",
    {"run_id": "NAME", "context_id": "NAME NOT NULL", "message_id": "TEXT NOT NULL"},
    "run_id",
    {"upcall_a2a_tasks_context": "(context_id)"},
    is_exported=True,
)
"""The conversation and the message that began a run, by the ids that the client chose."""

TEXTS = Table(
    "upcall_a2a_texts",
    {"run_id": "NAME", "message_id": "TEXT", "shown": "TEXT NOT NULL"},
    "run_id, message_id",
    is_exported=True,
)
"""Which questions were open when a client answered by a text: sent again, it answers no later one."""


class TaskNames(NamedTuple):
    """The ids that a client chose for a task.

    Attributes:
        context_id: its conversation.
        message_id: the message that began it; empty where it was begun elsewhere.
    """

    context_id: str
    message_id: str = ""


async def keep_names(store: RunStore, run_id: str, names: TaskNames) -> None:
    """Note what a client names a run by, before it begins."""
    values = {"run_id": run_id, **names._asdict()}

    def work(connection: Connection) -> None:
        connection.execute(
            "INSERT INTO upcall_a2a_tasks (run_id, context_id, message_id) VALUES (:run_id, :context_id, :message_id) "
            "ON CONFLICT (run_id) DO NOTHING",
            values,
        )

    await store.database.write(work)


async def forget_names(store: RunStore, run_id: str) -> None:
    """Remove what a client named a run by that could not begin."""

    def work(connection: Connection) -> None:
        connection.execute("DELETE FROM upcall_a2a_tasks WHERE run_id = :run_id", {"run_id": run_id})

    await store.database.write(work)


async def read_names(store: RunStore, run_ids: Sequence[str]) -> Mapping[str, TaskNames]:
    """Read what clients named these runs by; those begun elsewhere are missing."""
    if not run_ids or not await store.exists():
        return {}
    return await store.database.read(partial(_read_names, run_ids=run_ids))


async def list_in_context(store: RunStore, context_id: str) -> Sequence[str]:
    """List the runs of a conversation, whoever's they are, and the one that has its id."""
    if not await store.exists():
        return []
    found = await store.database.read(partial(_list_in_context, context_id=context_id))
    return [*dict.fromkeys([context_id, *found])]


def _read_names(connection: Connection, *, run_ids: Sequence[str]) -> Mapping[str, TaskNames]:
    if not is_made(connection, TASKS):
        return {}
    names, values = name_values(run_ids)
    query = f"SELECT run_id, context_id, message_id FROM upcall_a2a_tasks WHERE run_id IN ({names})"
    return {run_id: TaskNames(*rest) for run_id, *rest in connection.execute(query, values).fetchall()}


def _list_in_context(connection: Connection, *, context_id: str) -> Sequence[str]:
    if not is_made(connection, TASKS):
        return []
    query = "SELECT run_id FROM upcall_a2a_tasks WHERE context_id = :context_id"
    return [run_id for (run_id,) in connection.execute(query, {"context_id": context_id}).fetchall()]


async def count_runs(store: RunStore, only: RunFilter) -> int:
    """Count the runs of an owner (of everybody, if none is named) by status and time of their last change."""
    conditions, values = [f"status IN ({list_numbers(only.statuses or RunStatus)})"], dict[str, object]()
    if only.owner is not None:
        conditions.append("owner = :owner")
        values["owner"] = only.owner
    if only.changed_after is not None:
        conditions.append("updated_at >= :after")
        values["after"] = int(only.changed_after.timestamp())
    query = f"SELECT count(*) FROM upcall_runs WHERE {' AND '.join(conditions)}"

    def work(connection: Connection) -> int:
        return int(connection.execute(query, values).fetchone()[0])

    return await store.database.read(work) if await store.exists() else 0


async def read_shown(store: RunStore, run_id: str, message_id: str) -> Sequence[str] | None:
    """Read which questions were open when a text came; None if it did not come before."""
    if not await store.exists():
        return None
    return await store.database.read(partial(_read_shown, run_id=run_id, message_id=message_id))


async def keep_shown(store: RunStore, run_id: str, message_id: str, shown: Sequence[str]) -> Sequence[str]:
    """Note which questions are open when a text comes; return those that were when it came first."""
    values = {"run_id": run_id, "message_id": message_id, "shown": json.dumps(shown)}

    def work(connection: Connection) -> Sequence[str]:
        connection.execute(
            "INSERT INTO upcall_a2a_texts (run_id, message_id, shown) VALUES (:run_id, :message_id, :shown) "
            "ON CONFLICT (run_id, message_id) DO NOTHING",
            values,
        )
        return _read_shown(connection, run_id=run_id, message_id=message_id) or []

    return await store.database.write(work)


def _read_shown(connection: Connection, *, run_id: str, message_id: str) -> Sequence[str] | None:
    if not is_made(connection, TEXTS):
        return None
    query = "SELECT shown FROM upcall_a2a_texts WHERE run_id = :run_id AND message_id = :message_id"
    row = connection.execute(query, {"run_id": run_id, "message_id": message_id}).fetchone()
    return None if row is None else list(map(str, json.loads(row[0])))
