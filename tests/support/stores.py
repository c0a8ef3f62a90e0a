"""What the tests of the store share: a first checkpoint, and statements that go past the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

from autogen_agentchat.messages import TextMessage

from upcall.runs.checkpoint import Checkpoint
from upcall.runs.run import Run
from upcall.storage.compression import decode, encode
from upcall.storage.store import RunStore

FIRST = Checkpoint(inbox=(TextMessage(source="user", content="do it"),))


def execute(location: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement with ``?`` for each value."""
    if "://" not in location:
        with closing(sqlite3.connect(location)) as connection, connection:
            return connection.execute(statement, values).fetchall()
    import psycopg

    with psycopg.connect(location, autocommit=True) as server:
        query = statement.replace("?", "%s") if values else statement
        cursor = server.execute(query, values or None)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


def rewrite(location: str, table: str, column: str, change: Callable[[Any], Any]) -> None:
    """Change the value in a column of all rows, and seal it again: as another version would have written it."""
    for (stored,) in execute(location, f"select {column} from {table}"):
        value = json.loads(decode(bytes(stored)))
        execute(location, f"update {table} set {column} = ?", encode(json.dumps(change(value)).encode()))


async def change_checkpoint(location: str, run_id: str, change: Callable[[Any], Any]) -> Checkpoint:
    """Store the run's last checkpoint as another version, or somebody else, would have written it. Gives the former."""
    store = RunStore(location)
    stored = await store.load(run_id)
    state = stored.checkpoint.as_json()
    await store.save(stored, stored.run, Checkpoint.from_json(change(state) or state, run_id))
    await store.close()
    return stored.checkpoint


def message(number: int, text: str = "and so on ") -> dict[str, Any]:
    """Return a message as a group chat's state holds it."""
    return {
        "id": f"{number:08x}-0000-4000-8000-{number * 7919 % 10**12:012d}",
        "source": f"agent{number % 4}",
        "models_usage": {"prompt_tokens": 100 + number, "completion_tokens": number % 50},
        "metadata": {},
        "created_at": f"2026-11-22T08:{number // 60 % 60:02d}:{number % 60:02d}.960148Z",
        "content": f"Message {number}: {text * 20}",
        "type": "TextMessage",
    }


def history(length: int) -> Checkpoint:
    """Return a checkpoint with a thread of so many messages, which an agent has in its context too."""
    thread = [message(number) for number in range(length)]
    context = [{"content": each["content"], "source": each["source"], "type": "UserMessage"} for each in thread]
    agent = {"type": "ChatAgentContainerState", "agent_state": {"messages": context}, "message_buffer": []}
    manager = {"type": "SwarmManagerState", "message_thread": thread, "current_turn": length}
    return Checkpoint(team_state={"type": "TeamState", "agent_states": {"lead": agent, "manager": manager}})


async def make_store(location: str, count: int = 3) -> list[str]:
    """Make a store with some runs that nobody works on; return their ids."""
    store = RunStore(location)
    made = [await store.create(Run(task=f"do {number} of it"), history(number)) for number in range(count)]
    for each in made:
        await store.leases.release(each)
    await store.close()
    return [each.run.id for each in made]
