"""The journal of a run: what was done since its last checkpoint, as records by their keys. Each checkpoint ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from upcall.storage.compression import SHORT, encode
from upcall.storage.connection import Connection, Work
from upcall.storage.databases import Database
from upcall.storage.run_leases import renew_lease
from upcall.storage.stored_run import StoredRun, decode_records


class RunJournal:
    """The journals of a store.

    Args:
        database: the store's database.
        refuse_large: refuses what has a name and so many bytes, if it is larger than the store accepts.
    """

    def __init__(self, database: Database, refuse_large: Callable[[str, int], None]) -> None:
        self._database, self._refuse_large = database, refuse_large

    async def write(
        self, stored: StoredRun, records: Mapping[str, str | None], *, also: Work[object] | None = None
    ) -> None:
        """Write into the journal of a run: a text for each key, None to remove the key. It renews the lease. `also` is
        done in the same transaction.

        Raises:
            RunConflict: the caller has the lease no longer. Nothing was written.
            TooLarge: a text is larger than the store accepts. Nothing was written.
        """
        self.refuse_large(stored.run.id, records)
        small = sum(len(text) for text in records.values() if text is not None) < SHORT

        def work(connection: Connection) -> None:
            renew_lease(connection, stored)
            put_records(connection, stored.run.id, records)
            if also is not None:
                also(connection)

        await self._database.write(work, small=small)

    def refuse_large(self, run_id: str, records: Mapping[str, str | None]) -> None:
        """Refuse records of a journal that can never be written.

        Raises:
            TooLarge: a text is larger than the store accepts.
        """
        size = max((len(text) for text in records.values() if text is not None), default=0)
        self._refuse_large(f"What is to be journalled of run {run_id}", size)

    async def read(self, run_id: str) -> dict[str, str]:
        """Return the journal since the run's last checkpoint: the records by their keys.

        Raises:
            SchemaMismatch: a record is damaged.
        """
        return decode_records(run_id, await self._database.read(partial(read_journal, run_id=run_id)))


def put_records(connection: Connection, run_id: str, records: Mapping[str, str | None]) -> None:
    """Write into the journal of a run: a text for each key, None to remove the key."""
    removed = [{"run_id": run_id, "key": key} for key, text in records.items() if text is None]
    put = [
        {"run_id": run_id, "key": key, "record": encode(text.encode("utf-8", "surrogatepass"))}
        for key, text in records.items()
        if text is not None
    ]
    if removed:
        connection.executemany("DELETE FROM upcall_journal WHERE run_id = :run_id AND key = :key", removed)
    if put:
        connection.executemany(
            "INSERT INTO upcall_journal (run_id, key, record) VALUES (:run_id, :key, :record) "
            "ON CONFLICT (run_id, key) DO UPDATE SET record = excluded.record",
            put,
        )


def read_journal(connection: Connection, run_id: str) -> dict[str, bytes]:
    """Read the journal of a run as it is stored."""
    query = "SELECT key, record FROM upcall_journal WHERE run_id = :run_id"
    return dict(connection.execute(query, {"run_id": run_id}).fetchall())
