"""The change log of a run in its store: entries of the run's log, what the files held as blobs."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.engine import Connection

from upcall.errors import SchemaMismatch
from upcall.runs.file_changes import Change
from upcall.storage import packing
from upcall.storage.blobs import fetch, insert_missing
from upcall.storage.packing import DamagedNode, Node
from upcall.storage.store import RunStore, add_to_log
from upcall.storage.tables import log

CHANGED, NOT_CHANGED, UNDONE = "changed", "not changed", "undone"
"""The kinds of entries: a change with its diffs; one that could not be made; who undid which (ids only)."""


class StoredChanges:
    """The change log of one run, in its store. See `upcall.runs.file_changes.ChangeLog`.

    Args:
        user: who undoes, for the audit trail.
    """

    def __init__(self, store: RunStore, run_id: str, user: str | None = None) -> None:
        self._store, self._run_id, self._user = store, run_id, user

    async def record(self, change: Change, contents: Mapping[str, bytes]) -> None:
        """Keep a change that is about to be made: its entry and what it names, both or neither."""
        nodes = {bytes.fromhex(digest): Node(data, ()) for digest, data in contents.items()}
        entries: list[tuple[str, str | None, Mapping[str, Any]]] = [(CHANGED, self._user, _dumped(change))]
        if change.undoes:
            entries.append((UNDONE, self._user, {"changes": list(change.undoes), "by": change.id}))

        def work(connection: Connection) -> None:
            insert_missing(connection, nodes)
            add_to_log(connection, self._run_id, entries)

        await self._store.database.write(work)

    async def drop(self, change: Change) -> None:
        """Note that a change that was recorded could not be made."""
        await self._store.note(self._run_id, NOT_CHANGED, self._user, change=change.id)

    async def list_changes(self) -> Sequence[Change]:
        """All changes but those dropped, oldest first.

        Raises:
            SchemaMismatch: an entry was written by another version of upcall.
        """
        return await self._store.database.read(partial(_made, run_id=self._run_id))

    async def read_content(self, digest: str) -> bytes:
        """What has this digest.

        Raises:
            SchemaMismatch: it is missing or damaged.
        """
        name = bytes.fromhex(digest)
        found = await self._store.database.read(lambda connection: fetch(connection, [name]))
        try:
            if name not in found:
                raise DamagedNode("it is missing")
            return packing.load(found[name], name).text
        except DamagedNode as error:
            raise SchemaMismatch(
                f"What a file held before a change of run {self._run_id} cannot be read ({error}). See what else is "
                "damaged: upcall store check"
            ) from error


def _dumped(change: Change) -> dict[str, Any]:
    return change.model_dump(mode="json", exclude_none=True)


def _made(connection: Connection, *, run_id: str) -> list[Change]:
    query = select(log.c.kind, log.c.detail).where(log.c.run_id == run_id, log.c.kind.in_((CHANGED, NOT_CHANGED)))
    found: dict[str, Change] = {}
    for row in connection.execute(query.order_by(log.c.id)):
        detail = _json(row.detail)
        if row.kind == NOT_CHANGED:
            found.pop(detail.get("change", ""), None)
            continue
        try:
            change = Change.model_validate(detail)
        except ValidationError as error:
            raise SchemaMismatch(
                f"The log of run {run_id} holds a change that cannot be read. Use the version of upcall that wrote it."
            ) from error
        found[change.id] = change
    return list(found.values())


# -- what a store as a whole must know of them ------------------------------------------------------------------------


def contents_named(connection: Connection, run_ids: Collection[str] | None = None) -> dict[bytes, set[str]]:
    """The blobs that the changes of runs (of all if not given) name, each with the ids of these runs."""
    found: dict[bytes, set[str]] = {}
    for row in connection.execute(select(log.c.run_id, log.c.detail).where(log.c.kind == CHANGED)):
        if run_ids is None or row.run_id in run_ids:
            for name in _names(_json(row.detail)):
                found.setdefault(name, set()).add(row.run_id)
    return found


def exported_contents(connection: Connection, run_id: str) -> dict[str, str]:
    """What the changes of a run name, by digest, as base64; what is damaged is left out."""
    stored = fetch(connection, contents_named(connection, {run_id}))
    found = {}
    for name, data in stored.items():
        try:
            found[name.hex()] = base64.b64encode(packing.load(data, name).text).decode()
        except DamagedNode:
            continue
    return found


def import_contents(connection: Connection, contents: Mapping[str, str]) -> None:
    """Store what `exported_contents` gave; each under the hash that it has, whatever it was called."""
    nodes = [Node(base64.b64decode(text), ()) for text in contents.values()]
    insert_missing(connection, {packing.digest(node): node for node in nodes})


def _json(text: str) -> dict[str, Any]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


def _names(detail: Mapping[str, Any]) -> Iterable[bytes]:
    return map(bytes.fromhex, Change.model_validate(detail).list_contents())
