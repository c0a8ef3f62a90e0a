"""The runs of a worker that is gone: others take them over, unless the run itself kills its workers."""

from __future__ import annotations

from procrastinate import App
from procrastinate.jobs import Job, Status

from upcall.runs.events import StatusChanged, WorkerLost
from upcall.runs.states import RunStatus
from upcall.storage.connection import Connection
from upcall.storage.event_bodies import dump_event
from upcall.storage.event_log import append_events, lock_run
from upcall.storage.job_queue import QUEUE, UPKEEP_QUEUE
from upcall.storage.store import RunStore

MAX_LOST, MAX_LOST_AMONG_OTHERS = 3, 6
"""How many workers in a row a run may lose at the same point of its work: where all that were lost meanwhile had this
run, and where workers were lost without it too: a run that is merely there when workers are killed is not to blame."""

_POINT = """
SELECT (SELECT max(version) FROM upcall_checkpoints WHERE run_id = :run_id),
       (SELECT count(*) FROM upcall_journal WHERE run_id = :run_id)
"""


async def rescue_jobs(app: App, store: RunStore, silent_seconds: float) -> int:
    """Put the jobs of workers that were silent for so long back into the queue, record that with the runs, and return
    how many there were."""
    stalled = list(await app.job_manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=silent_seconds))
    for job in stalled:
        await _note_lost(store, job)
        await app.job_manager.retry_job(job)
    # A periodic task runs again by itself.
    for job in await app.job_manager.get_stalled_jobs(queue=UPKEEP_QUEUE, seconds_since_heartbeat=silent_seconds):
        await app.job_manager.finish_job(job, Status.FAILED, delete_job=True)
    return len(stalled)


async def _note_lost(store: RunStore, job: Job) -> None:
    run_id = str(job.task_kwargs["run_id"])

    def work(connection: Connection) -> None:
        lock_run(connection, run_id)
        # If two rescue the same job at once, one is counted.
        query = "SELECT attempts FROM procrastinate_jobs WHERE id = :id AND status = 'doing' FOR UPDATE"
        row = connection.execute(query, {"id": job.id}).fetchone()
        if row is None or row[0] != job.attempts:
            return
        checkpoint, journal = connection.execute(_POINT, {"run_id": run_id}).fetchone()
        lost = WorkerLost(
            job=job.id or 0, attempt=job.attempts, worker=job.worker_id, checkpoint=checkpoint, journal=journal
        )
        noted = "SELECT 1 FROM upcall_log WHERE run_id = :run_id AND kind = :kind AND detail = :detail"
        values = {"run_id": run_id, "kind": lost.type, "detail": dump_event(lost)}
        if connection.execute(noted, values).fetchone() is None:
            append_events(connection, run_id, [lost])

    await store.database.write(work)


async def count_lost(store: RunStore, run_id: str) -> int:
    """Count the workers that a run has lost in a row, at the point where it lost the last one; 0 if the run is not to
    blame."""
    row: list[WorkerLost] = []
    since = 0
    for entry in await store.events.read(run_id, types=(WorkerLost, StatusChanged)):
        match entry.event:
            case WorkerLost() as lost if row and _point(row[-1]) == _point(lost):
                row.append(lost)
            case WorkerLost() as lost:
                row, since = [lost], entry.id
            case StatusChanged(after=RunStatus.FAILED):
                row = []  # Somebody has looked at it, and tries again.
    if len(row) < MAX_LOST:
        return 0
    # For all runs: workers that are killed from outside lose others beside this one, a run that kills them does not.
    all_lost = [entry.event for entry in await store.events.read_all(since - 1, types=(WorkerLost,))]
    others = {each.worker for each in all_lost if isinstance(each, WorkerLost)} - {each.worker for each in row}
    return len(row) if not others or len(row) >= MAX_LOST_AMONG_OTHERS else 0


def _point(lost: WorkerLost) -> tuple[int | None, int]:
    return lost.checkpoint, lost.journal


def explain_lost(run_id: str, lost: int) -> str:
    """Say why a run is not tried again."""
    return (
        f"{lost} workers in a row were killed or stood still at the same point of this run. See what it did (upcall "
        f"log {run_id}), and the memory and the log of the workers. To try again: upcall resume {run_id}"
    )
