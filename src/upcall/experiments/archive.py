"""The replies of an experiment's models, stored by request: a replay needs no model, and nothing is paid for twice.

A reply has the name of its request (`upcall.autogen.journal`), in the slot of its trial: the task, team, policy, model
and seed by name. So the same request still finds its reply after a change elsewhere.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from upcall.autogen.api import CreateResult
from upcall.autogen.token_odds import NO_CALL
from upcall.errors import ConfigurationError, ModelError
from upcall.runs.run import Usage

AFTER_FAILURE, EARLIER = "/after failure", "/earlier failure"
"""Behind the slot of a trial whose run failed and was taken up again: in the last attempt, and in those before it."""


class NotRecorded(ModelError):
    """A reply is not recorded, and must not be requested."""


_SCHEMA = """
CREATE TABLE IF NOT EXISTS replies (slot TEXT, name TEXT, reply TEXT, seconds REAL, PRIMARY KEY (slot, name));
CREATE TABLE IF NOT EXISTS uses (used_by TEXT, slot TEXT, name TEXT, PRIMARY KEY (used_by, slot, name));
"""


class Archive:
    """The file of the replies.

    Raises:
        ConfigurationError: it cannot be opened, or is another file.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None)
            # What a killed process has written survives; only a crash of the machine may lose replies.
            self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise ConfigurationError(f"The recorded replies {path} cannot be opened: {error}.") from error
        self.requested = 0
        """How many replies were requested from a model since it was opened."""
        self.found = 0
        """How many were there."""

    def bind(self, used_by: str, *slots: str, may_request: bool = True) -> BoundArchive:
        """Return the replies of slots, as seen by one user of them; a new reply goes into the first slot."""
        return BoundArchive(self, used_by, slots, may_request)

    def forget_uses(self, prefix: str) -> None:
        """Forget which replies were used by users whose names begin with this."""
        self._database.execute("DELETE FROM uses WHERE substr(used_by, 1, ?) = ?", (len(prefix), prefix))

    def begin_attempt(self, slot: str) -> None:
        """Keep the replies of a failed attempt at a trial from the next one. A replay needs them."""
        for table in ("replies", "uses"):
            move = f"UPDATE OR REPLACE {table} SET slot = ? WHERE slot = ?"
            self._database.execute(move, (slot + EARLIER, slot + AFTER_FAILURE))

    def seconds(self, used_by: str) -> float:
        """Return how long the models took for all replies used under this name."""
        query = "SELECT seconds FROM uses JOIN replies USING (slot, name) WHERE used_by = ?"
        return fsum(seconds for (seconds,) in self._database.execute(query, (used_by,)))

    def usage(self, used_by: str) -> Usage:
        """Return the tokens of all replies used under this name."""
        query = "SELECT reply FROM uses JOIN replies USING (slot, name) WHERE used_by = ? ORDER BY slot, name"
        used = Usage()
        for (text,) in self._database.execute(query, (used_by,)):
            reply = CreateResult.model_validate_json(text)
            if reply != NO_CALL:
                used = used.plus(reply.usage.prompt_tokens, reply.usage.completion_tokens)
        return used

    def find(self, slots: Sequence[str], name: str) -> tuple[str, CreateResult] | None:
        """Return the reply of this name and its slot, from the first slot that has one."""
        query = "SELECT reply FROM replies WHERE slot = ? AND name = ?"
        rows = ((slot, self._database.execute(query, (slot, name)).fetchone()) for slot in slots)
        return next(((slot, CreateResult.model_validate_json(row[0])) for slot, row in rows if row is not None), None)

    def keep(self, slot: str, name: str, reply: CreateResult, seconds: float) -> None:
        """Keep a reply, and how long it took."""
        text = reply.model_dump_json(warnings=False)
        self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", (slot, name, text, seconds))

    def note_use(self, used_by: str, slot: str, name: str) -> None:
        """Note who used a reply."""
        self._database.execute("INSERT OR IGNORE INTO uses VALUES (?, ?, ?)", (used_by, slot, name))

    def close(self) -> None:
        """Close the file."""
        self._database.close()


@dataclass(frozen=True)
class BoundArchive:
    """The replies of slots, for one user of them: the `upcall.autogen.scope.ReplyArchive` of a run's scope."""

    archive: Archive
    used_by: str
    slots: Sequence[str]
    may_request: bool = True

    async def find_or_request(self, name: str, request: Callable[[], Awaitable[CreateResult]]) -> CreateResult:
        """Return the reply stored under a name, or request one and store it.

        Raises:
            NotRecorded: there is none, and it must not be requested.
        """
        if (there := self.archive.find(self.slots, name)) is not None:
            slot, reply = there
            self.archive.found += reply != NO_CALL
        elif not self.may_request:
            raise NotRecorded("A reply is not recorded.")
        else:
            since, slot = time.monotonic(), self.slots[0]
            reply = await request()
            self.archive.keep(slot, name, reply, round(time.monotonic() - since, 3))
            self.archive.requested += reply != NO_CALL
        self.archive.note_use(self.used_by, slot, name)
        return reply


async def write_nothing(records: Mapping[str, str | None]) -> None:
    """Accept a journal's records and keep none: the archive has the replies."""
