"""Limit the concurrent calls to a model, and respect its server's requests to wait, for all processes of a store.

A call takes its place in line, a row with a lease; it is made while fewer calls than the limit are before it. Who is
killed loses the place when the lease is over. Each statement is a transaction of its own, so that PgBouncer may give
each another connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from upcall.autogen.concurrency import run_to_completion
from upcall.autogen.scope import report_progress
from upcall.errors import StoreUnavailable
from upcall.storage.connection import Connection
from upcall.storage.databases import Database

FIRST_LOOK, EACH_AHEAD, LAST_LOOK = 0.05, 0.05, 2.0
"""Seconds until a call looks again whether it may be made: who is far behind looks less often, so that a thousand that
wait cost the database no more than some hundred looks a second."""

_NOW = {
    # The database's clock, so that those of the machines need not agree.
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch FROM clock_timestamp())::float8",
}


class ModelSlots:
    """The calls to models from all processes that share a database.

    Args:
        database: the store's database.
        limits: how many calls at once, by the model's name.
        lease_seconds: how long a place is kept without a sign of life.
    """

    def __init__(self, database: Database, limits: Mapping[str, int], lease_seconds: float) -> None:
        self._database, self._limits, self._lease = database, limits, lease_seconds

    @asynccontextmanager
    async def take(self, model: str) -> AsyncIterator[None]:
        """Wait until a model may be called once more, and count as one call, inside.

        Raises:
            StoreUnavailable: the database cannot be reached.
        """
        limit = self._limits.get(model)
        if limit is None:
            yield
            return
        place = await self._join(model)
        try:
            while (ahead := await self._count_ahead(place)) is None or ahead >= limit:
                if ahead is None:  # Its lease was over: this process stood still.
                    place = await self._join(model)
                    continue
                report_progress(f"calls to {model} that come before", ahead)
                await asyncio.sleep(min(FIRST_LOOK + EACH_AHEAD * (ahead - limit), LAST_LOOK))
            renewing = asyncio.create_task(self._renew_all_the_time(place))
            try:
                yield
            finally:
                renewing.cancel()
        finally:
            with suppress(StoreUnavailable):  # The lease ends by itself.
                await run_to_completion(self._leave(place))

    async def read_wait(self, model: str) -> float:
        """Return for how many seconds the server of a model must get no calls; 0.0 if calls are allowed.

        Raises:
            StoreUnavailable: the database cannot be reached.
        """

        def work(connection: Connection) -> float:
            query = f"SELECT until - {_NOW[connection.dialect]} FROM upcall_model_waits WHERE model = :model"
            row = connection.execute(query, {"model": model}).fetchone()
            return max(0.0, float(row[0])) if row is not None else 0.0

        return await self._database.read(work, small=True)

    async def note_wait(self, model: str, seconds: float) -> None:
        """Note that the server of a model asked for no more calls for this long.

        Raises:
            StoreUnavailable: the database cannot be reached.
        """

        def work(connection: Connection) -> None:
            connection.execute(
                f"INSERT INTO upcall_model_waits (model, until) VALUES (:model, {_NOW[connection.dialect]} + :seconds) "
                "ON CONFLICT (model) DO UPDATE SET until = excluded.until "
                "WHERE upcall_model_waits.until < excluded.until",
                {"model": model, "seconds": seconds},
            )

        await self._database.write(work)

    # -- a place in line ----------------------------------------------------------------------------------------------

    async def _join(self, model: str) -> int:
        def work(connection: Connection) -> int:
            now = _NOW[connection.dialect]
            if connection.dialect == "postgresql":  # Who is before whom is settled when it can be seen, and stays so.
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(:model, 1))", {"model": model})
            values = {"model": model, "lease": self._lease}
            connection.execute(f"DELETE FROM upcall_model_calls WHERE model = :model AND until <= {now}", values)
            query = f"INSERT INTO upcall_model_calls (model, until) VALUES (:model, {now} + :lease) RETURNING id"
            return int(connection.execute(query, values).fetchone()[0])

        joining = asyncio.ensure_future(self._database.write(work))
        try:
            return await asyncio.shield(joining)
        except asyncio.CancelledError:
            # Else nobody would leave the place, and others wait for it until its lease ends.
            with suppress(StoreUnavailable):
                await run_to_completion(self._leave(await joining))
            raise

    async def _count_ahead(self, place: int) -> int | None:
        """Count the calls before one that waits; None where its place is lost. The place is kept."""

        def work(connection: Connection) -> tuple[int, float] | None:
            now = _NOW[connection.dialect]
            found: tuple[int, float] | None = connection.execute(
                "SELECT (SELECT count(*) FROM upcall_model_calls other WHERE other.model = mine.model "
                f"AND other.id < mine.id AND other.until > {now}), mine.until - {now} "
                "FROM upcall_model_calls mine WHERE id = :id",
                {"id": place},
            ).fetchone()
            return found

        row = await self._database.read(work)
        if row is None or row[1] <= 0 or (row[1] < self._lease / 2 and not await self._renew(place)):
            return None
        return int(row[0])

    async def _renew_all_the_time(self, place: int) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with suppress(StoreUnavailable):
                await self._renew(place)

    async def _renew(self, place: int) -> bool:
        """Keep a place; False where it is lost already: others may have counted on that."""

        def work(connection: Connection) -> bool:
            now = _NOW[connection.dialect]
            update = f"UPDATE upcall_model_calls SET until = {now} + :lease WHERE id = :id AND until > {now}"
            return connection.execute(update, {"id": place, "lease": self._lease}).rowcount == 1

        return await self._database.write(work)

    async def _leave(self, place: int) -> None:
        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM upcall_model_calls WHERE id = :id", {"id": place})

        await self._database.write(work)
