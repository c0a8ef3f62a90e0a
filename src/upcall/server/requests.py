"""Idempotent requests: repeating one with the same key returns the outcome of the first."""

from __future__ import annotations

import json
from functools import partial

from upcall import identity
from upcall.errors import CallerError
from upcall.questions.secrets import list_digests
from upcall.storage.connection import Connection
from upcall.storage.schema import Table
from upcall.storage.store import RunStore

KEY_RETENTION_S = 7 * 86_400
"""How long a key is remembered, in seconds."""


REQUESTS = Table(
    "upcall_requests",
    {"actor": "TEXT", "key": "TEXT", "content": "TEXT NOT NULL", "run_id": "NAME NOT NULL", "at": "NUMBER NOT NULL"},
    "actor, key",
    {"upcall_requests_at": "(at)"},
)
"""Which run a request was for that may be made twice."""


class KeyReused(CallerError):
    """The idempotency key was used for another request. Nothing was changed."""


async def reserve_request(store: RunStore, actor: str | None, key: str, content: object, run_id: str) -> str:
    """Note which run a request with this key is for, before anything is done; the run of the first such request.

    Args:
        store: where it is noted.
        actor: who makes the request: a key is their own.
        key: what the caller chose.
        content: all that the request says, as JSON.
        run_id: the run, or the id that a new one is to get.

    Raises:
        KeyReused: the first request with the key said something else.
    """
    digests = list_digests(json.dumps(content, sort_keys=True))  # A short answer could be guessed from a plain one.
    values = {"actor": actor or "", "key": key, "content": digests[0], "run_id": run_id}
    before, known = await store.database.write(partial(_reserve, values=values))
    if before not in digests:
        raise KeyReused(f"The idempotency key {key!r} was used for another request. Choose a new key for this one.")
    return known


def _reserve(connection: Connection, *, values: dict[str, str]) -> tuple[str, str]:
    now = int(identity.now().timestamp())
    connection.execute("DELETE FROM upcall_requests WHERE at < :before", {"before": now - KEY_RETENTION_S})
    connection.execute(
        "INSERT INTO upcall_requests (actor, key, content, run_id, at) VALUES (:actor, :key, :content, :run_id, :at) "
        "ON CONFLICT (actor, key) DO NOTHING",
        {**values, "at": now},
    )
    query = "SELECT content, run_id FROM upcall_requests WHERE actor = :actor AND key = :key"
    content, run_id = connection.execute(query, {"actor": values["actor"], "key": values["key"]}).fetchone()
    return content, run_id
