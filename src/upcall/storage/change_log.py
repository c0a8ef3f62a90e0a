"""The change log of a run in its store: events of the run, and the contents of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from upcall.errors import SchemaMismatch
from upcall.runs.events import ChangeDropped, ChangesUndone, FilesChanged, LogEvent
from upcall.runs.file_changes import Change, digest
from upcall.storage.compression import Damaged, decode, encode
from upcall.storage.connection import Connection
from upcall.storage.event_log import append_events, choose_kinds, lock_run, read_entries
from upcall.storage.store import RunStore


class StoredChanges:
    """The change log of one run, in its store. See `upcall.runs.file_changes.ChangeLog`.

    Args:
        user: who undoes, for the audit trail.
        keeps_new: see `ChangeLog`.
    """

    def __init__(self, store: RunStore, run_id: str, user: str | None = None, *, keeps_new: bool = False) -> None:
        self._store, self._run_id, self._user = store, run_id, user
        self.keeps_new = keeps_new

    async def record(self, change: Change, contents: Mapping[str, bytes]) -> None:
        """Record a change that is about to be made: its entry and the contents it names, both or neither."""
        events: list[LogEvent] = [FilesChanged(user=self._user, change=change)]
        if change.undoes:
            events.append(ChangesUndone(user=self._user, changes=change.undoes, by=change.id))

        def work(connection: Connection) -> None:
            lock_run(connection, self._run_id)
            put_contents(connection, self._run_id, contents)
            append_events(connection, self._run_id, events)

        await self._store.database.write(work)

    async def drop(self, change: Change) -> None:
        """Note that a change that was recorded could not be made."""
        await self._store.events.append(self._run_id, ChangeDropped(user=self._user, change=change.id))

    async def list_changes(self) -> Sequence[Change]:
        """List all changes except dropped ones, oldest first.

        Raises:
            SchemaMismatch: an entry was written by another version of upcall.
        """
        found: dict[str, Change] = {}
        for entry in await self._store.events.read(self._run_id, types=(FilesChanged, ChangeDropped)):
            match entry.event:
                case FilesChanged(change=change):
                    found[change.id] = change
                case ChangeDropped(change=dropped):
                    found.pop(dropped, None)
        return list(found.values())

    async def read_content(self, digest: str) -> bytes:
        """Return the contents with this digest.

        Raises:
            SchemaMismatch: it is missing or damaged.
        """
        query = "SELECT content FROM upcall_contents WHERE run_id = :run_id AND digest = :digest"
        values = {"run_id": self._run_id, "digest": digest}
        row = await self._store.database.read(lambda connection: connection.execute(query, values).fetchone())
        try:
            if row is None:
                raise Damaged("it is missing")
            return decode_content(digest, row[0])
        except Damaged as error:
            raise SchemaMismatch(
                f"What a file held before a change of run {self._run_id} cannot be read ({error}). See what else is "
                "damaged: upcall store check"
            ) from error


def put_contents(connection: Connection, run_id: str, contents: Mapping[str, bytes]) -> None:
    """Store the contents of files by digest, if not stored yet."""
    rows = [{"run_id": run_id, "digest": name, "content": encode(data)} for name, data in contents.items()]
    if rows:
        connection.executemany(
            "INSERT INTO upcall_contents (run_id, digest, content) VALUES (:run_id, :digest, :content) "
            "ON CONFLICT (run_id, digest) DO NOTHING",
            rows,
        )


def copy_changes(connection: Connection, run_id: str, new_id: str, folders: Mapping[str, str]) -> None:
    """Copy the change log of a run to the branch that takes its place, with other names for some folders."""
    chosen, named = choose_kinds((FilesChanged, ChangeDropped, ChangesUndone))
    for entry in read_entries(connection, ["run_id = :run_id", *chosen], {"run_id": run_id, **named}):
        event = entry.event
        if isinstance(event, FilesChanged):
            folder = folders.get(event.change.folder, event.change.folder)
            event = replace(event, change=event.change.model_copy(update={"folder": folder}))
        append_events(connection, new_id, [event], int(datetime.fromisoformat(entry.at).timestamp()))
    connection.execute(
        "INSERT INTO upcall_contents (run_id, digest, content) "
        "SELECT :new_id, digest, content FROM upcall_contents WHERE run_id = :run_id",
        {"run_id": run_id, "new_id": new_id},
    )


def decode_content(name: str, stored: bytes) -> bytes:
    """Return the contents of a file, whose digest must match the name.

    Raises:
        Damaged: it cannot be decompressed, or has another digest.
    """
    found = decode(stored)
    if digest(found) != name:
        raise Damaged("its digest is another one")
    return found


def read_contents(connection: Connection, run_id: str) -> dict[str, bytes]:
    """Read the contents of a run's files by digest, without damaged ones."""
    query = "SELECT digest, content FROM upcall_contents WHERE run_id = :run_id ORDER BY digest"
    found = {}
    for name, stored in connection.execute(query, {"run_id": run_id}).fetchall():
        try:
            found[name] = decode_content(name, stored)
        except Damaged:
            continue
    return found
