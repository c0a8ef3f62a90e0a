"""What model servers were found not to take, kept for the next runs of a store.

A rule is learned from a refusal, which costs a request (`upcall.autogen.openai_client.server_rules`). The store keeps
the rules of a server and model for `MAX_AGE`: servers are updated, and what one refused last month it may take today.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from upcall import identity
from upcall.errors import StoreUnavailable
from upcall.storage.connection import Connection
from upcall.storage.databases import Database

MAX_AGE = timedelta(days=30)

_KEY = "server_rules "


class ServerRules:
    """The rules in one store, read once and then as this process knows them.

    Args:
        database: the store's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, list[str]] | None = None

    async def read(self) -> Mapping[str, Sequence[str]]:
        """Return what is known, by server and model. A store that cannot be read now knows nothing."""
        if self._known is None:
            with suppress(StoreUnavailable):
                self._known = await self._database.read(_select, small=True) if await self._database.exists() else {}
        return self._known or {}

    async def keep(self, rules: Mapping[str, Sequence[str]]) -> None:
        """Store the rules that are new. A store that cannot be written now goes without."""
        known = await self.read()
        if all({*names} <= {*known.get(key, ())} for key, names in rules.items()):
            return

        def work(connection: Connection) -> dict[str, list[str]]:
            stored, now = _select(connection), identity.now().isoformat()
            for key, names in rules.items():
                merged = sorted({*names, *stored.get(key, ())})
                if merged != stored.get(key):
                    connection.execute(
                        "INSERT INTO upcall_meta (key, value) VALUES (:key, :value) "
                        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                        {"key": _KEY + key, "value": json.dumps({"rules": merged, "at": now})},
                    )
            return _select(connection)

        with suppress(StoreUnavailable):
            self._known = await self._database.write(work)


def _select(connection: Connection) -> dict[str, list[str]]:
    rows = connection.execute(
        "SELECT key, value FROM upcall_meta WHERE key LIKE :keys", {"keys": f"{_KEY}%"}
    ).fetchall()
    found = {key.removeprefix(_KEY): json.loads(value) for key, value in rows}
    oldest = identity.now() - MAX_AGE
    return {key: each["rules"] for key, each in found.items() if datetime.fromisoformat(each["at"]) > oldest}
