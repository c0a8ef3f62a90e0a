"""The metrics of one worker: its queue, how busy it is, and how long answers wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from upcall.app import Upcall
from upcall.errors import StoreUnavailable, missing_extra
from upcall.storage.connection import Connection, Work
from upcall.storage.gauges import Gauge, read_gauges
from upcall.storage.store import RunStore
from upcall.telemetry.metrics import gauge, instruments
from upcall.text import first_line
from upcall.workers.queue_state import read_queue

_DELAY = """
SELECT extract(epoch FROM clock_timestamp() - min(at)) FROM procrastinate_events
WHERE job_id = :job AND type = 'deferred'
"""


class ShownMetrics:
    """What a worker shows to Prometheus: what it counts of the changes that it makes to runs, and its slots.

    Raises:
        ConfigurationError: the package for it is not installed.
    """

    def __init__(self, app: Upcall, worker: WorkerMetrics) -> None:
        try:
            from upcall.execution.prometheus import MEDIA_TYPE, PrometheusMetrics
        except ImportError as error:
            raise missing_extra(f"prometheus_client cannot be loaded ({first_line(error)})", "workers") from error
        self._media_type, self._worker, self._counts = MEDIA_TYPE, worker, PrometheusMetrics(app.settings)
        app.store.observers["worker"] = self._counts.observe

    def render(self) -> tuple[str, bytes]:
        """Return the media type and the text."""
        return self._media_type, self._counts.render(self._worker.list_slots())


class WorkerMetrics:
    """The metrics of one worker.

    Args:
        store: whose queue it works on.
        concurrency: how many runs it can work on at a time.
    """

    def __init__(self, store: RunStore, concurrency: int) -> None:
        self._store, self._concurrency = store, concurrency
        self._active, self._busy_seconds = 0, 0.0
        self._since = self._changed = time.monotonic()

    @contextmanager
    def use_slot(self) -> Iterator[None]:
        """Count one of the worker's slots as used while the block lasts."""
        self._add_up(1)
        try:
            yield
        finally:
            self._add_up(-1)

    def measure_delay(self, job_id: int | None, version: int) -> Work[None]:
        """Return a function that measures, when a run continues, how long its job had waited: by the database's clock,
        so that it does not matter which machine took the answer."""

        def work(connection: Connection) -> None:
            (seconds,) = connection.execute(_DELAY, {"job": job_id}).fetchone()
            if seconds is not None:
                instruments().delay.record(float(seconds), {"upcall.cause": "submit" if version == 1 else "answer"})

        return work

    def list_slots(self) -> Sequence[Gauge]:
        """List how many of the slots are used, and how many there are."""
        return [
            Gauge("upcall.worker.active", "{run}", "Runs that the worker works on", self._active),
            Gauge("upcall.worker.slots", "{run}", "Runs that it can work on at a time", self._concurrency),
        ]

    async def keep_measuring(self, every: float) -> None:
        """Measure the queue and the worker, until cancelled."""
        while True:
            await asyncio.sleep(every)
            await self.measure()

    async def measure(self) -> None:
        """Measure how busy the worker was since the last time, and the queue as it is now."""
        self._add_up(0)
        if (seconds := self._changed - self._since) > 0:
            instruments().busy.set(self._busy_seconds / seconds / self._concurrency)
        self._since, self._busy_seconds = self._changed, 0.0
        with suppress(StoreUnavailable):  # The worker itself reports it.
            queue = await self._store.database.read(read_queue)
            instruments().waiting.set(queue.waiting)
            instruments().later.set(queue.later)
            instruments().oldest.set(queue.oldest_seconds)
            for each in await self._store.database.read(read_gauges):
                gauge(each.name, each.unit, each.description).set(each.value, dict(each.attributes))

    def _add_up(self, change: int) -> None:
        now = time.monotonic()
        self._busy_seconds += self._active * (now - self._changed)
        self._active, self._changed = self._active + change, now
