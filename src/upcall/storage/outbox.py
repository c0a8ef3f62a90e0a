"""Deliveries: what others are to be told of a run, stored in the very transaction that changes the run.

A sender claims a delivery for a while, sends it, and records what came of that. One that dies in between leaves it to
be sent again, with the same id. Of one run, the next delivery to the same place waits until the one before it is done
with.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

from upcall import identity
from upcall.errors import CallerError
from upcall.storage.connection import Connection
from upcall.storage.databases import Database
from upcall.storage.run_rows import name_values


class DeliveryState(StrEnum):
    """How a delivery stands.

    Attributes:
        PENDING: it is to be sent, at once or again later.
        DELIVERED: it was taken.
        FAILED: it was given up.
        DROPPED: it was no longer of use when it was to be sent.
    """

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Message:
    """What is to be delivered.

    Attributes:
        target: where: ``mail``, or ``webhook:`` and its name in the settings.
        recipient: the user whom a mail is for; empty for a webhook.
        event: what happened.
        content: what is sent, or what it is made from.
    """

    target: str
    recipient: str
    event: str
    content: str


@dataclass(frozen=True)
class Delivery:
    """A stored delivery.

    Attributes:
        number: its place among all.
        id: its name for the receiver, the same each time it is sent.
        run_id: the run that it is about.
        attempts: how often it was sent, or begun to be.
        due_at: when it is to be sent, in seconds since 1970; while it is being sent, when somebody else may.
        problem: what came of the last attempt, where it was not taken.
    """

    number: int
    id: str
    run_id: str
    target: str
    recipient: str
    event: str
    content: str
    state: DeliveryState
    attempts: int
    created_at: int
    due_at: float
    problem: str | None

    def as_json(self) -> dict[str, Any]:
        """Give it as plain JSON, without what is sent."""
        found = asdict(self)
        del found["number"], found["content"]
        for name in ("created_at", "due_at"):
            found[name] = datetime.fromtimestamp(found[name], UTC).replace(microsecond=0).isoformat()
        return {**found, "state": self.state.value}


class UnknownDelivery(CallerError):
    """There is no such delivery that failed."""


def insert_messages(connection: Connection, run_id: str, messages: Sequence[Message]) -> None:
    """Store what is to be delivered, in the transaction that changes the run."""
    now = int(identity.now().timestamp())
    rows = [
        {**asdict(each), "id": f"msg_{secrets.token_hex(12)}", "run_id": run_id, "now": now, "due_at": float(now)}
        for each in messages
    ]
    if rows:
        connection.executemany(_INSERT, rows)


_COLUMNS = tuple(each.name for each in fields(Delivery))
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM upcall_deliveries"
_INSERT = (
    "INSERT INTO upcall_deliveries (id, run_id, target, recipient, event, content, state, attempts, created_at, due_at)"
    " VALUES (:id, :run_id, :target, :recipient, :event, :content, 'pending', 0, :now, :due_at)"
)
_DUE = (
    f"{_SELECT} d WHERE state = 'pending' AND target = :target AND due_at <= :now "
    "AND NOT EXISTS (SELECT 1 FROM upcall_deliveries earlier WHERE earlier.run_id = d.run_id AND earlier.target = "
    "d.target AND earlier.recipient = d.recipient AND earlier.state = 'pending' AND earlier.number < d.number) "
    "ORDER BY number LIMIT :limit"
)
# Of two senders that found the same one, the second waits for the first, and then finds it claimed.
_CLAIM = (
    "UPDATE upcall_deliveries SET attempts = attempts + 1, due_at = :until "
    "WHERE number = :number AND state = 'pending' AND attempts = :attempts AND due_at <= :now"
)
_RECORD = (
    "UPDATE upcall_deliveries SET state = :state, due_at = :due_at, problem = :problem "
    "WHERE number = :number AND state = 'pending' AND attempts = :attempts"
)


class Outbox:
    """The deliveries of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, target: str, *, now: float, until: float, limit: int) -> Sequence[Delivery]:
        """Claim what is due for one target, the oldest first; it is the caller's until then."""
        if not await self._database.exists():
            return []
        values = {"target": target, "now": now, "limit": limit}
        due = await self._database.read(partial(_select, query=_DUE, values=values))
        if not due:
            return []

        def work(connection: Connection) -> list[Delivery]:
            claims = [(each, {"number": each.number, "attempts": each.attempts}) for each in due]
            return [
                each for each, key in claims if connection.execute(_CLAIM, {**key, "now": now, "until": until}).rowcount
            ]

        return await self._database.write(work, small=True)

    async def record(
        self, claimed: Delivery, state: DeliveryState, due_at: float = 0.0, problem: str | None = None
    ) -> None:
        """Record what came of a delivery that was claimed; nothing where somebody else has claimed it since."""
        key = {"number": claimed.number, "attempts": claimed.attempts + 1}
        values = {**key, "state": state.value, "due_at": due_at, "problem": problem}
        await self._database.write(lambda connection: connection.execute(_RECORD, values).rowcount, small=True)

    async def list(
        self, states: Collection[DeliveryState] = (), run_id: str | None = None, limit: int = 100
    ) -> Sequence[Delivery]:
        """List deliveries, the newest first: in some states, of one run."""
        if not await self._database.exists():
            return []
        names, values = name_values(each.value for each in states)
        conditions = [f"state IN ({names})"] if states else []
        if run_id is not None:
            conditions, values = [*conditions, "run_id = :run_id"], {**values, "run_id": run_id}
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        query = f"{_SELECT} {where}ORDER BY number DESC LIMIT :limit"
        return await self._database.read(partial(_select, query=query, values={**values, "limit": limit}))

    async def retry(self, ids: Collection[str] = ()) -> int:
        """Send again what was given up: all of it, or those with these ids. How many there are.

        Raises:
            UnknownDelivery: one of the ids is of none that was given up. Nothing was changed.
        """
        names, values = name_values(ids)
        chosen = f" AND id IN ({names})" if ids else ""
        query = (
            "UPDATE upcall_deliveries SET state = 'pending', attempts = 0, due_at = :now WHERE state = 'failed'"
            + chosen
        )

        def work(connection: Connection) -> int:
            changed = connection.execute(query, {**values, "now": identity.now().timestamp()}).rowcount
            if ids and changed != len({*ids}):
                raise UnknownDelivery(
                    "Not all of these are deliveries that were given up; none was changed. See them with: "
                    "upcall deliveries list --state failed"
                )
            return changed

        return await self._database.write(work)


def _select(connection: Connection, *, query: str, values: Mapping[str, Any]) -> list[Delivery]:
    rows = connection.execute(query, values).fetchall()
    return [Delivery(**{**dict(zip(_COLUMNS, row, strict=True)), "state": DeliveryState(row[7])}) for row in rows]
