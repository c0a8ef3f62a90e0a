"""What becomes of the runs of a worker that is gone: others take them up, unless a run is what ends its workers."""

from __future__ import annotations

from procrastinate import App
from procrastinate.jobs import Job

from upcall.runs.run import RunStatus
from upcall.storage.connection import Connection
from upcall.storage.jobs import QUEUE
from upcall.storage.store import RunStore, add_to_log, dump_detail

MAX_LOST = 3
"""How many workers in a row a run may lose between two of its pauses."""

LOST = "worker_lost"

_PAUSES = {RunStatus.AWAITING_CLARIFICATION, RunStatus.FAILED}


async def rescue_jobs(app: App, store: RunStore, silent_seconds: float) -> int:
    """Put the jobs of workers that gave no sign of life for so long back into the queue, and note that with the runs.
    How many there were."""
    stalled = list(await app.job_manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=silent_seconds))
    for job in stalled:
        await _note_lost(store, job)
        await app.job_manager.retry_job(job)
    return len(stalled)


async def _note_lost(store: RunStore, job: Job) -> None:
    run_id, detail = str(job.task_kwargs["run_id"]), {"job": job.id, "attempt": job.attempts}

    def work(connection: Connection) -> None:
        # Of two who rescue the same job at once, one is counted.
        query = "SELECT attempts FROM procrastinate_jobs WHERE id = :id AND status = 'doing' FOR UPDATE"
        noted = "SELECT 1 FROM upcall_log WHERE run_id = :run_id AND kind = :kind AND detail = :detail"
        row = connection.execute(query, {"id": job.id}).fetchone()
        if row is None or row[0] != job.attempts:
            return
        written = dump_detail(detail)
        if connection.execute(noted, {"run_id": run_id, "kind": LOST, "detail": written}).fetchone() is None:
            add_to_log(connection, run_id, [(LOST, None, detail)])

    await store.database.write(work)


async def count_lost(store: RunStore, run_id: str) -> int:
    """Count the workers that a run has lost since its last pause."""
    lost = 0
    for entry in await store.log(run_id, kinds=(LOST, "status")):
        lost = lost + 1 if entry.kind == LOST else 0 if entry.detail["to"] in _PAUSES else lost
    return lost


def explain_lost(run_id: str, lost: int) -> str:
    """Say why a run is not tried again."""
    return (
        f"{lost} workers in a row were killed or stood still while they worked on this run. See what it did (upcall "
        f"log {run_id}), and the memory and the log of the workers. To try again: upcall resume {run_id}"
    )
