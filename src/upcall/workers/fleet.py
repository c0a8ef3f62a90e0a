"""Which workers of a fleet are alive, what they work on, and how far behind the queue is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from upcall.storage.connection import Connection
from upcall.storage.store import RunStore
from upcall.workers.queue_state import QueueState, read_queue
from upcall.workers.worker import FleetTimes


@dataclass(frozen=True)
class WorkerStatus:
    """One worker.

    Attributes:
        id: its number in this store.
        host: the machine.
        process: its process there.
        concurrency: how many runs it works on at a time.
        version: its version of upcall.
        team: the team that it builds, as ``--team`` named it; None for the built-in one, or one given in a program.
        since: when it started, as ISO 8601 in UTC.
        runs: the ids of the runs that it works on now.
        silent_seconds: seconds since its last sign of life.
        is_alive: whether that is recent enough. The runs of a dead worker go to others.
    """

    id: int
    host: str
    process: int
    concurrency: int
    version: str
    team: str | None
    since: str
    runs: tuple[str, ...]
    silent_seconds: float
    is_alive: bool


@dataclass(frozen=True)
class Fleet:
    """The workers of a store, and its queue.

    Attributes:
        workers: those that still have an entry, the longest running first.
        queue: the runs that wait for them.
    """

    workers: tuple[WorkerStatus, ...]
    queue: QueueState

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that the command line prints."""
        return {"workers": [asdict(each) for each in self.workers], "queue": asdict(self.queue)}

    def as_lines(self) -> list[str]:
        """Return lines for a person, one per worker."""
        lines = [
            f"{each.id:>5}  {each.host}  process {each.process}  {len(each.runs)}/{each.concurrency} runs"
            f"{' '.join(['', *each.runs])}  "
            f"{'alive' if each.is_alive else 'given up'}, last sign of life {each.silent_seconds:.0f} s ago  "
            f"upcall {each.version}, {each.team or 'built-in team'}, since {each.since}"
            for each in self.workers
        ]
        queue = self.queue
        later = f", {queue.later} to be tried again later" if queue.later else ""
        oldest = f", the oldest for {queue.oldest_seconds:.1f} s" if queue.waiting else ""
        return [*(lines or ["No worker. Start one with: upcall worker"]), f"Waiting: {queue.waiting}{oldest}{later}"]


async def look_at_fleet(store: RunStore) -> Fleet:
    """Return the workers of a store, and how far behind its queue is.

    Raises:
        ConfigurationError: the store is a file.
    """
    store.jobs.refuse_file()
    await store.jobs.open()
    silence = FleetTimes(store.leases.seconds).silence
    return await store.database.read(lambda connection: _read(connection, silence))


_WORKERS = """
SELECT w.id, w.host, w.process, w.concurrency, w.version, w.team,
       to_char(w.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"'),
       (SELECT string_agg(args ->> 'run_id', ' ' ORDER BY j.id) FROM procrastinate_jobs j
        WHERE j.worker_id = w.id AND j.status = 'doing'),
       extract(epoch FROM clock_timestamp() - p.last_heartbeat)::float8
FROM upcall_workers w JOIN procrastinate_workers p ON p.id = w.id ORDER BY w.id
"""


def _read(connection: Connection, silence: float) -> Fleet:
    workers = [
        WorkerStatus(
            id_, host, process, concurrency, version, team, since, tuple((runs or "").split()), silent, silent < silence
        )
        for id_, host, process, concurrency, version, team, since, runs, silent in connection.execute(_WORKERS)
    ]
    return Fleet(tuple(workers), read_queue(connection))
