"""A made-up format 2: a changed table of the core, a guest's table with another column, a new dictionary, and changed
states of agents.

``python -m made_up_format STORE POINT`` opens a store as a program of that format would, and is killed at a point of
the upgrade.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
import zstandard

from upcall.agents import resumable
from upcall.formats import Format, Upgrade
from upcall.runs.checkpoint import Checkpoint
from upcall.storage import compression, databases, run_rows, schema, sqlite_copy, upgrades
from upcall.storage.connection import Connection
from upcall.storage.store import RunStore
from upcall.storage.upgrades import TableUpgrade

RELEASE = "0.2.0"
POINTS = ("copying", "copied", "expanding", "between", "contracted", "committed")
"""Where a process can be killed, in their order."""

NEWER_RUNS = replace(schema.RUNS, columns={**schema.RUNS.columns, "words": "NUMBER NOT NULL DEFAULT 0"})


def count_words(connection: Connection) -> None:
    """Add a column that says how many words the task of each run has."""
    connection.execute("ALTER TABLE upcall_runs ADD COLUMN words BIGINT NOT NULL DEFAULT 0")
    rows = connection.execute("SELECT id, record FROM upcall_runs").fetchall()
    counted = [{"id": run_id, "words": len(run_rows.load_run(record, run_id).task.split())} for run_id, record in rows]
    if counted:
        connection.executemany("UPDATE upcall_runs SET words = :words WHERE id = :id", counted)


def drop_waits(connection: Connection) -> None:
    """Take away a table that only the first format has."""
    connection.execute("DROP TABLE upcall_model_waits")
    connection.execute(
        "CREATE TABLE upcall_model_waits (model TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL, why TEXT)"
    )


STEPS: Sequence[TableUpgrade] = (TableUpgrade(RELEASE, count_words, drop_waits),)


def mark(state: dict[str, Any]) -> dict[str, Any]:
    """Bring the state of an agent to format 2, where ``seen`` has another name."""
    return {**{name: each for name, each in state.items() if name != "seen"}, "taken_in": state.get("seen", [])}


def use(patch: pytest.MonkeyPatch) -> None:
    """Have this process be one of format 2."""
    patch.setattr(upgrades, "STEPS", STEPS)
    tables = tuple(NEWER_RUNS if each is schema.RUNS else each for each in schema.TABLES)
    patch.setattr(schema, "TABLES", tables)
    patch.setattr(Checkpoint, "stored_as", Format(upgrades=(Upgrade(RELEASE, lambda value: value),)))
    patch.setattr(run_rows, "RECORD", Format("format", (Upgrade(RELEASE, lambda value: value),)))
    use_dictionary(patch)
    use_states(patch)


def use_dictionary(patch: pytest.MonkeyPatch) -> None:
    """Write with a dictionary 2: the text of the first, the other way round."""
    load = compression._load_dictionary

    def load_made_up(number: int) -> zstandard.ZstdCompressionDict:
        if number == 1:
            return load(1)
        text = files("upcall.storage").joinpath("dictionaries", "1.txt").read_bytes()[::-1]
        tables = bytearray(base64.b85decode(compression.TABLES[1]))
        tables[4:8] = number.to_bytes(4, "little")
        return zstandard.ZstdCompressionDict(bytes(tables) + text, dict_type=zstandard.DICT_TYPE_FULLDICT)

    patch.setattr(compression, "_load_dictionary", load_made_up)
    patch.setattr(compression, "TABLES", {**compression.TABLES, 2: compression.TABLES[1]})


class RenamedField(Format):
    """The formats of a state whose field ``seen`` is stored as ``taken_in`` since format 2."""

    def bring_up(self, value: Mapping[str, Any], what: str) -> dict[str, Any]:
        now = super().bring_up(value, what)
        if "taken_in" in now:  # As the agents' code of this format would call the field.
            now["seen"] = now.pop("taken_in")
        return now


def use_states(patch: pytest.MonkeyPatch) -> None:
    """Store the state of every agent of ours with another name for a field."""
    save = resumable.ResumableAgent.save_state

    async def save_state(self: Any) -> Any:
        return mark(dict(await save(self)))

    patch.setattr(resumable.AgentState, "stored_as", RenamedField(upgrades=(Upgrade(RELEASE, mark),)))
    patch.setattr(resumable.ResumableAgent, "save_state", save_state)


def kill_at(point: str, patch: pytest.MonkeyPatch) -> None:
    """Have this process end, as by ``kill -9``, at a point of the upgrade."""

    def dying(real: Callable[..., Any], *, before: bool) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*given, **named)
            os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    (step,) = STEPS
    assert step.contract is not None
    match point:
        case "copying":
            patch.setattr(sqlite_copy, "_sync", dying(sqlite_copy._sync, before=True))
        case "copied":
            patch.setattr(upgrades, "STEPS", (replace(step, expand=dying(step.expand, before=True)),))
        case "expanding":
            patch.setattr(upgrades, "STEPS", (replace(step, expand=dying(step.expand, before=False)),))
        case "between":
            patch.setattr(upgrades, "STEPS", (replace(step, contract=dying(step.contract, before=True)),))
        case "contracted":
            patch.setattr(upgrades, "STEPS", (replace(step, contract=dying(step.contract, before=False)),))
        case "committed":
            commit = databases.commit

            def commit_last(connection: Connection) -> None:
                commit(connection)
                formats = upgrades.read_formats(connection, "")
                if formats[upgrades.CORE].reads_from == 2:
                    os.kill(os.getpid(), signal.SIGKILL)

            patch.setattr(databases, "commit", commit_last)


async def main(location: str, point: str) -> None:
    """Open the store, and be killed."""
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        kill_at(point, patch)
        await RunStore(location).list()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
