"""Deliveries: notifications about a run, stored in the same transaction that changes the run.

A sender claims a delivery for a while, sends it, and records the outcome. If it dies in between, the delivery is
sent again, with the same id. The next delivery of a run to the same target waits until the one before it is
finished.
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
from upcall.storage.gauges import Gauge
from upcall.storage.run_rows import name_values
from upcall.storage.schema import Table, is_made

DELIVERIES = Table(
    "upcall_deliveries",
    {
        "number": "SERIAL",
        "id": "TEXT NOT NULL",
        "run_id": "NAME NOT NULL",
        "target": "TEXT NOT NULL",
        "recipient": "TEXT NOT NULL",
        "event": "TEXT NOT NULL",
        "content": "TEXT NOT NULL",
        "state": "TEXT NOT NULL",
        "attempts": "NUMBER NOT NULL",
        "created_at": "NUMBER NOT NULL",
        "due_at": "TIME NOT NULL",
        "problem": "TEXT",
    },
    "number",
    {
        "upcall_deliveries_run": "(run_id, number)",
        "upcall_deliveries_due": "(target, due_at) WHERE state = 'pending'",
        "upcall_deliveries_failed": "(number) WHERE state = 'failed'",
    },
)
"""Notifications to deliver."""


class DeliveryState(StrEnum):
    """The state of a delivery.

    Attributes:
        PENDING: it will be sent, now or again later.
        DELIVERED: it was accepted.
        FAILED: it was given up.
        DROPPED: it was no longer useful when it was due.
    """

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Message:
    """A notification to deliver.

    Attributes:
        target: where: ``mail``, or ``webhook:`` and its name in the settings.
        recipient: the user whom a mail is for; empty for a webhook.
        event: what happened.
        content: the text to send, or the data it is made from.
    """

    target: str
    recipient: str
    event: str
    content: str


@dataclass(frozen=True)
class Delivery:
    """A stored delivery.

    Attributes:
        number: its number in the store.
        id: its id for the receiver, the same each time it is sent.
        run_id: the run that it is about.
        attempts: the number of attempts to send it.
        due_at: when to send it, in seconds since 1970; while it is being sent, when another sender may.
        problem: the error of the last attempt, if it was not accepted.
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
        """Return it as plain JSON, without its content."""
        found = asdict(self)
        del found["number"], found["content"]
        for name in ("created_at", "due_at"):
            found[name] = datetime.fromtimestamp(found[name], UTC).replace(microsecond=0).isoformat()
        return {**found, "state": self.state.value}


class UnknownDelivery(CallerError):
    """There is no failed delivery with this id."""


def read_gauges(connection: Connection) -> Sequence[Gauge]:
    """Count the deliveries that wait, and those that were given up."""
    if not is_made(connection, DELIVERIES):
        return []
    # Each by the index of its state.
    count = "SELECT count(*) FROM upcall_deliveries WHERE state ="
    counts = {
        "waiting": connection.execute(f"{count} 'pending'").fetchone()[0],
        "given_up": connection.execute(f"{count} 'failed'").fetchone()[0],
    }
    what = "Notifications that wait to be delivered, or were given up"
    return [
        Gauge("upcall.deliveries", "{delivery}", what, float(value), {"state": name}) for name, value in counts.items()
    ]


def insert_messages(connection: Connection, run_id: str, messages: Sequence[Message]) -> None:
    """Store notifications in the transaction that changes the run."""
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
        """Claim what is due for one target, oldest first; the claim lasts until the given time."""
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
        """Record the outcome of a claimed delivery, unless somebody else has claimed it since."""
        key = {"number": claimed.number, "attempts": claimed.attempts + 1}
        values = {**key, "state": state.value, "due_at": due_at, "problem": problem}
        await self._database.write(lambda connection: connection.execute(_RECORD, values).rowcount, small=True)

    async def list(
        self, states: Collection[DeliveryState] = (), run_id: str | None = None, limit: int = 100
    ) -> Sequence[Delivery]:
        """List deliveries, newest first, in some states or of one run."""
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
        """Retry deliveries that were given up, all or those with these ids; return their number.

        Raises:
            UnknownDelivery: one of the ids was not given up. Nothing was changed.
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
    if not is_made(connection, DELIVERIES):
        return []
    rows = connection.execute(query, values).fetchall()
    return [Delivery(**{**dict(zip(_COLUMNS, row, strict=True)), "state": DeliveryState(row[7])}) for row in rows]
