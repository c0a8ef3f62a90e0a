"""How far behind the queue of a store is."""

from __future__ import annotations

from dataclasses import dataclass

from upcall.storage.connection import Connection
from upcall.storage.job_queue import QUEUE

# A job does not record since when it waits: its last event does, so that a job that was put back starts again.
_QUEUE = """
SELECT count(*) FILTER (WHERE scheduled_at IS NULL OR scheduled_at <= now()),
       count(*) FILTER (WHERE scheduled_at > now()),
       coalesce(extract(epoch FROM clock_timestamp() - min((SELECT e.at FROM procrastinate_events e
           WHERE e.job_id = j.id AND e.type IN ('deferred', 'deferred_for_retry') ORDER BY e.id DESC LIMIT 1))
           FILTER (WHERE scheduled_at IS NULL OR scheduled_at <= now())), 0)
FROM procrastinate_jobs j WHERE status = 'todo' AND queue_name = :queue
"""


@dataclass(frozen=True)
class QueueState:
    """The queue.

    Attributes:
        waiting: how many runs wait for a free worker.
        oldest_seconds: how long the oldest of them has waited.
        later: how many will be retried at a later time.
    """

    waiting: int
    oldest_seconds: float
    later: int


def read_queue(connection: Connection) -> QueueState:
    """Read how far behind the queue is."""
    waiting, later, oldest = connection.execute(_QUEUE, {"queue": QUEUE}).fetchone()
    return QueueState(waiting, float(oldest), later)
