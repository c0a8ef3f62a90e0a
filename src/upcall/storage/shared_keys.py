"""Keys that all processes of a store share: what one of them has sealed, another opens, also much later.

They are in the store as they are: whoever reads the store can seal too. So a key proves that a value came from here,
and never who somebody is or what they may do.
"""

from __future__ import annotations

import secrets

from upcall.storage.connection import Connection
from upcall.storage.store import RunStore

_KEY = "shared_key "


async def share_key(store: RunStore, name: str) -> str:
    """Return the key of a name; the first process that wants it makes it."""

    def work(connection: Connection) -> str:
        row = {"key": _KEY + name, "value": secrets.token_urlsafe(32)}
        connection.execute(
            "INSERT INTO upcall_meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING", row
        )
        query = "SELECT value FROM upcall_meta WHERE key = :key"
        value: str = connection.execute(query, {"key": row["key"]}).fetchone()[0]
        return value

    return await store.database.write(work)
