"""A fleet of workers over PostgreSQL: killed and stopped all the time, and measured.

    python benchmarks/workers.py kill                     # 1,000 runs, 4 workers, one killed or stopped every 6 s
    python benchmarks/workers.py kill --runs 40 --kills 3 --rate 5
    python benchmarks/workers.py kill --runs 300 --kills 15 --disk /mnt/small    # a database restarted, its disk full
    python benchmarks/workers.py roll                     # 300 runs, 15 kills, the next format, a database restarted
    python benchmarks/workers.py suspend --lease 5        # a worker stopped before and behind each statement it writes
    python benchmarks/workers.py latency --finished 100000 --waiting 10000
    python benchmarks/workers.py throughput

Each run asks two questions and takes a note behind each answer; a script answers, a question about a call in doubt too:
it looks whether the note was taken. ``kill`` ends with status 1 if a run did not complete, a note is missing or was
taken twice, or a job is left. The PostgreSQL is a private one (tests/support/postgres.py) unless ``--store`` names one.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import made_up_format
import psycopg
import pytest
from fleet import make_team
from postgres import Server, running
from stores import execute
from worker_process import kill, notes, start

from upcall import Run, RunStatus, Settings, Upcall, identity
from upcall.errors import AnswerError, CallerError, RunConflict, StoredStateError, StoreUnavailable
from upcall.storage.run_rows import STATUS_NUMBERS, STATUSES

SLACK_S = 2.0
"""How long a worker may take to look for runs that are free again, and to take one."""
OVER = (RunStatus.COMPLETED, RunStatus.FAILED)


class Fleet:
    """Worker processes, and the program that submits and answers.

    Args:
        location: the store.
        lease: how long a worker keeps a run without a sign of life, in seconds.
    """

    def __init__(self, location: str, lease: float, server: Server | None = None) -> None:
        self.location, self.lease, self.server = location, lease, server
        self.app = self.open_app()
        self.workers: list[subprocess.Popen[str]] = []
        self.environment = {"UPCALL_STORE__LEASE_SECONDS": str(lease), "UPCALL_QUEUE__CONCURRENCY": "8"}

    def open_app(self) -> Upcall:
        """Return an application of the program that submits and answers."""
        settings = Settings.read(store={"lease_seconds": self.lease})
        return Upcall(store=self.location, team=make_team, settings=settings)

    def start(self, *options: str, program: str = "upcall", **environment: str) -> subprocess.Popen[str]:
        """Start one more worker."""
        worker = start(self.location, *options, program=program, **self.environment, **environment)
        self.workers.append(worker)
        return worker

    def end(self) -> None:
        """End all workers."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                kill(worker)

    def count(self) -> Counter[str]:
        """Count the runs by status."""
        found = execute(self.location, "select status, count(*) from upcall_runs group by status")
        return Counter({STATUSES[number].value: count for number, count in found})

    def has_work(self, runs: int) -> bool:
        """Return whether not all of the runs are over, or a job is left."""
        return sum(self.count()[each] for each in OVER) < runs or bool(self.jobs())

    def jobs(self) -> list[tuple[Any, ...]]:
        """Return the jobs that are in the queue."""
        return execute(self.location, "select * from procrastinate_jobs where queue_name = 'upcall'")

    async def submit(self, runs: int, rate: float) -> list[str]:
        """Submit so many runs, so many a second."""
        ids, began = [], time.monotonic()
        for number in range(runs):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            ids.append(await self._submit_one(identity.new_id()))
        return ids

    async def _submit_one(self, run_id: str) -> str:
        """Submit a run, again and again while the database is away."""
        while True:
            try:
                return (await self.app.submit("Build it", run_id=run_id)).id
            except RunConflict:  # It is there: only the reply was lost.
                return run_id
            except StoreUnavailable:
                await asyncio.sleep(0.5)

    async def answer_all(self) -> None:
        """Answer whatever is asked, until it is cancelled."""
        while True:
            waiting = []
            with suppress(StoreUnavailable):
                page = await self.app.store.list_open(limit=100)
                waiting = [run for run in page if run.waiting]
            await asyncio.gather(*(self._answer(run) for run in waiting))
            if len(waiting) < 10:
                await asyncio.sleep(0.05)

    async def _answer(self, run: Run) -> None:
        question, answer = run.questions[0], "Express"
        if run.records.unknown_outcomes:
            text = "first" if len(_asked(run)) < 2 else "second"
            answer = "noted" if f"{run.id} {text} " in notes() else "Run it again"
        try:
            await self.app.answer(run.id, {question.id: answer}, wait=False)
        except (AnswerError, CallerError, StoredStateError) as error:
            print(f"not answered: {error}", file=sys.stderr)


def _asked(run: Run) -> list[str]:
    """Return what the clerk asked by now, without the questions about calls in doubt."""
    return [each.question for each in run.asked.values() if each.question.startswith("Which")]


# -- killed and stopped ---------------------------------------------------------------------------------------------


async def kill_workers(fleet: Fleet, options: argparse.Namespace) -> dict[str, Any]:
    """Kill and stop workers while runs are submitted and answered; return what was found."""
    chosen, taken_over = random.Random(options.seed), list[float]()
    await fleet.app.list(limit=1)  # It makes the tables, in which runs are counted below.
    fleet.environment["FLEET_MODEL_DELAY_S"] = "0.2"
    for _ in range(options.workers):
        fleet.start()
    answering = asyncio.create_task(fleet.answer_all())
    submitting = asyncio.create_task(fleet.submit(options.runs, options.rate))
    alive, watching, began = list(fleet.workers), list[asyncio.Task[None]](), time.monotonic()
    for number in range(options.kills):
        if options.disk and number in (options.kills // 3, options.kills * 2 // 3):
            await asyncio.to_thread(restart if number == options.kills // 3 else fill_disk, fleet.server)
        await asyncio.sleep(options.every)
        while fleet.has_work(options.runs):
            if at_work := {each: held for each in alive if (held := held_by(fleet.location, each.pid))}:
                break
            await asyncio.sleep(0.1)
        else:
            sys.exit(f"All runs were over before kill {number + 1}: submit more, or fewer a second.")
        victim = chosen.choice(list(at_work))
        held = at_work[victim]
        alive.remove(victim)
        alive.append(fleet.start())
        if number % 2:
            victim.send_signal(signal.SIGSTOP)
            watching.append(asyncio.create_task(continue_and_end(victim, fleet.lease * 2)))
        else:
            kill(victim)
        watching.append(asyncio.create_task(watch(fleet, held, taken_over)))
    ids = await submitting
    await wait_for_all(fleet, len(ids))
    seconds = time.monotonic() - began
    await asyncio.gather(*watching)
    answering.cancel()
    doubts, faults = await find_faults(fleet, ids)
    return {
        "runs": len(ids),
        "seconds": round(seconds, 1),
        "kills": options.kills,
        "runs of lost workers": count_lost(fleet),
        "calls in doubt": doubts,
        "taken over after (s, max)": round(max(taken_over, default=0.0), 1),
        "lease (s)": fleet.lease,
        "faults": faults,
    }


def restart(server: Server) -> None:
    """Kill the database, and start it again after a while."""
    server.kill()
    time.sleep(2)
    server.start()


def fill_disk(server: Server) -> None:
    """Fill the disk of the database for ten seconds. It is started again if it gave up."""
    filler, block = server.folder / "filler", bytes(1 << 20)
    until = time.monotonic() + 10
    with filler.open("wb", buffering=0) as file:
        while time.monotonic() < until:
            try:
                file.write(block)
            except OSError as error:  # What the database frees is taken, too.
                if error.errno != errno.ENOSPC:
                    raise
                block = bytes(max(1, len(block) // 2))
                time.sleep(0.01)
    filler.unlink()
    if not server.is_alive():
        server.start()


async def wait_for_all(fleet: Fleet, runs: int) -> None:
    """Wait until so many runs are over and no job is left."""
    until = time.monotonic() + 300 + 4 * fleet.lease
    while fleet.has_work(runs) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.2)


def count_lost(fleet: Fleet) -> int:
    """Count the runs that were taken from a lost worker."""
    found: int = execute(fleet.location, "select count(*) from upcall_log where kind = 'worker_lost'")[0][0]
    return found


async def find_faults(fleet: Fleet, ids: Sequence[str]) -> tuple[int, list[str]]:
    """Return how many calls were in doubt in some runs, and what went wrong in them."""
    doubts, faults = 0, list[str]()
    for run_id in ids:
        run = await fleet.app.get(run_id)
        doubts += sum(not text.startswith("Which") for text in (each.question for each in run.asked.values()))
        if run.status is not RunStatus.COMPLETED:
            faults.append(f"{run_id} is {run.status}: {run.error}")
        if len(_asked(run)) != 2:
            faults.append(f"{run_id} asked {len(_asked(run))} times")
    taken = Counter(tuple(line.split()[:2]) for line in notes().splitlines())
    wanted = {(run_id, text) for run_id in ids for text in ("first", "second")}
    for (run_id, text), count in taken.items():
        if count > 1:
            lines = [line for line in notes().splitlines() if line.startswith(f"{run_id} {text} ")]
            log = execute(
                fleet.location, "select at, kind, detail from upcall_log where run_id = ? order by id", run_id
            )
            faults.append(f"{text} was noted {count} times: {lines}; {log}")
    faults += [f"{key} was not noted" for key in wanted - taken.keys()]
    faults += [f"a job is left: {each}" for each in fleet.jobs()]
    return doubts, faults


def held_by(location: str, process: int) -> list[tuple[str, str]]:
    """Return the runs that a worker process has, with its leases."""
    return execute(location, "select id, worker from upcall_runs where worker like ?", f'%"process": {process},%')


async def watch(fleet: Fleet, held: list[tuple[str, str]], taken_over: list[float]) -> None:
    """Note how long it takes until somebody else has continued with each of some runs."""
    began, left = time.monotonic(), dict(held)
    while left:
        await asyncio.sleep(0.1)
        names = ", ".join("?" for _ in left)
        query = f"select id, worker from upcall_runs where id in ({names})"
        try:
            rows = await asyncio.to_thread(execute, fleet.location, query, *left)
        except psycopg.Error:
            continue  # The database is away.
        for run_id in [run_id for run_id, worker in rows if worker != left[run_id]]:
            taken_over.append(time.monotonic() - began)
            del left[run_id]


async def continue_and_end(worker: subprocess.Popen[str], seconds: float) -> None:
    """Let a worker that stands still continue after a while, and end it in the ordinary way."""
    await asyncio.sleep(seconds)
    worker.send_signal(signal.SIGCONT)
    await asyncio.sleep(3)
    worker.terminate()
    await asyncio.to_thread(worker.wait)


# -- from one format to the next ---------------------------------------------------------------------------------------


async def roll_workers(fleet: Fleet, options: argparse.Namespace) -> dict[str, Any]:
    """Replace workers by those of the next format one by one, kill some of both, and restart the database; programs of
    both submit and answer side by side until the old ones are gone."""
    assert fleet.server is not None, "roll needs its own PostgreSQL"
    chosen, began, each = random.Random(options.seed), time.monotonic(), options.kills // 3
    fleet.environment["FLEET_MODEL_DELAY_S"] = "0.2"
    for _ in range(options.workers):
        fleet.start()
    first = options.runs // 2
    old_program = multiprocessing.get_context("spawn").Process(
        target=submit_and_answer, args=(fleet.location, first, options)
    )
    old_program.start()
    await kill_some(fleet, each, options, chosen, "upcall")
    await asyncio.to_thread(upgrade, fleet.location)
    with pytest.MonkeyPatch.context() as patch:
        made_up_format.use(patch)
        fleet.app = fleet.open_app()
        submitting = asyncio.create_task(fleet.submit(options.runs - first, options.rate / 2))
        answering = asyncio.create_task(fleet.answer_all())
        await kill_some(fleet, each, options, chosen, "newer_worker")
        await submitting
        await asyncio.to_thread(fleet.server.kill)
        await asyncio.sleep(2)
        await asyncio.to_thread(fleet.server.start)
        await kill_some(fleet, options.kills - 2 * each, options, chosen, "newer_worker")
        await asyncio.to_thread(old_program.join)
        for worker in fleet.workers:
            if worker.poll() is None and "newer_worker" not in worker.args:
                worker.terminate()
                await asyncio.to_thread(worker.wait)
                fleet.start(program="newer_worker")
        await asyncio.to_thread(upgrade, fleet.location, "--contract")
        await wait_for_all(fleet, options.runs)
        answering.cancel()
        ids = [run_id for (run_id,) in execute(fleet.location, "select id from upcall_runs")]
        doubts, faults = await find_faults(fleet, ids)
    versions = execute(fleet.location, "select value from upcall_meta where key = 'reads_from'")
    return {
        "runs": len(ids),
        "seconds": round(time.monotonic() - began, 1),
        "kills": options.kills,
        "runs of lost workers": count_lost(fleet),
        "calls in doubt": doubts,
        "oldest format that still works": versions[0][0],
        "faults": faults + ([] if len(ids) == options.runs else [f"{len(ids)} runs were submitted"]),
    }


def submit_and_answer(location: str, runs: int, options: argparse.Namespace) -> None:
    """Be the old program that submits and answers, until some seconds after its last run."""

    async def work() -> None:
        fleet = Fleet(location, options.lease)
        answering = asyncio.create_task(fleet.answer_all())
        await fleet.submit(runs, options.rate / 2)
        await asyncio.sleep(2 * options.every)
        answering.cancel()

    asyncio.run(work())


async def kill_some(fleet: Fleet, kills: int, options: argparse.Namespace, chosen: random.Random, program: str) -> None:
    """Kill so many workers, one after the other, and start another one for each."""
    for _ in range(kills):
        await asyncio.sleep(options.every)
        victim = chosen.choice([worker for worker in fleet.workers if worker.poll() is None])
        await asyncio.to_thread(kill, victim)
        fleet.start(program=program)


def upgrade(location: str, *options: str) -> None:
    """Upgrade the store with the command of the next format, which waits for old workers: a killed one counts as alive
    until its silence is long enough."""
    until = time.monotonic() + 120
    while start(location, *options, program="newer_worker", command="store upgrade").wait():
        assert time.monotonic() < until, "the store cannot be upgraded"
        time.sleep(2)


# -- suspended in a write ---------------------------------------------------------------------------------------------


async def suspend_in_writes(fleet: Fleet, options: argparse.Namespace) -> dict[str, Any]:
    """Suspend a worker before and behind each statement that it writes for one run, a new worker and run each time;
    return how long after the lease the run continued elsewhere, and what was found wrong."""
    answering = asyncio.create_task(fleet.answer_all())
    waits, faults = list[float](), list[str]()
    for number in range(1, options.places // 2 + 1):
        for place in (number, -number):
            late, run = await _suspend_at(fleet, place)
            waits += [] if late is None else [late]
            counts = Counter(line.split()[1] for line in notes().splitlines() if line.startswith(run.id))
            if run.status is not RunStatus.COMPLETED or counts != {"first": 1, "second": 1}:
                faults.append(f"at {place}: {run.id} is {run.status}, noted {dict(counts)}: {run.error}")
    answering.cancel()
    return {
        "places": len(waits),
        "lease (s)": fleet.lease,
        "went on within the lease": sum(each <= SLACK_S for each in waits),
        "later by (s, median and max)": [round(sorted(waits)[len(waits) // 2], 1), round(max(waits), 1)],
        "faults": faults,
    }


async def _suspend_at(fleet: Fleet, place: int) -> tuple[float | None, Run]:
    """Play one run whose first worker suspends itself at a place; return how many seconds after the lease, and after
    another worker was there, the run continued. None where it ended before the worker came to that place."""
    victim = fleet.start(FLEET_SUSPENDS=str(place))
    run_id, late = (await fleet.app.submit("Build it")).id, None
    while not is_stopped(victim.pid) and not await _is_over(fleet, run_id):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    if is_stopped(victim.pid):
        until, before = time.monotonic() + fleet.lease, await _read_place(fleet, run_id)
        other = fleet.start()
        while not await _is_there(fleet, other):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        until = max(until, time.monotonic())
        while await _read_place(fleet, run_id) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        late = max(0.0, time.monotonic() - until)
    while not await _is_over(fleet, run_id):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    fleet.end()
    fleet.workers.clear()
    return late, await fleet.app.get(run_id)


def is_stopped(process: int) -> bool:
    """Return whether a process stands still (proc(5), the third field of stat)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def _is_over(fleet: Fleet, run_id: str) -> bool:
    return (await fleet.app.get(run_id)).status in OVER


async def _is_there(fleet: Fleet, worker: subprocess.Popen[str]) -> bool:
    query = "select 1 from upcall_workers where process = ?"
    return bool(await asyncio.to_thread(execute, fleet.location, query, worker.pid))


async def _read_place(fleet: Fleet, run_id: str) -> list[tuple[Any, ...]]:
    """Return how far a run is, and who has it."""
    query = "select version, status, worker from upcall_runs where id = ?"
    return await asyncio.to_thread(execute, fleet.location, query, run_id)


# -- measured -------------------------------------------------------------------------------------------------------


async def measure_latency(fleet: Fleet, options: argparse.Namespace) -> dict[str, Any]:
    """Measure how long it takes from an answer to the first thing that is done with it, so many answers a second."""
    fleet.start()
    fleet.start()
    wanted = int(options.seconds * options.rate)
    ids = await fleet.submit(wanted, 40)
    while fleet.count()["awaiting_clarification"] < wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    fill(fleet.location, ids[0], options.finished, options.waiting)
    bytes_before, sent = size_of(fleet.location), dict[str, float]()
    began = time.monotonic()
    for number, run_id in enumerate(ids):
        await asyncio.sleep(max(0.0, began + number / options.rate - time.monotonic()))
        sent[run_id] = time.time()
        await fleet.app.answer(run_id, "Express", wait=False)
    while len(notes().splitlines()) < wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    noted = {line.split()[0]: float(line.split()[3]) for line in notes().splitlines()}
    taken = sorted(1000 * (noted[run_id] - sent[run_id]) for run_id in ids)
    return {
        "finished": options.finished,
        "waiting": options.waiting,
        "answers": wanted,
        "answers a second": options.rate,
        "median (ms)": round(taken[len(taken) // 2], 1),
        "p99 (ms)": round(taken[int(len(taken) * 0.99)], 1),
        "bytes an answer": round((size_of(fleet.location) - bytes_before) / wanted),
    }


def fill(location: str, run_id: str, finished: int, waiting: int) -> None:
    """Fill the store with copies of a run: its rows as they are, under other ids."""
    for status, count in (("completed", finished), ("awaiting_clarification", waiting)):
        ids = f"generate_series(1, {count}) as n"
        name = f"'{status[0]}' || lpad(n::text, 11, '0')"
        asked = "null" if status == "completed" else "asked_at"
        execute(
            location,
            "insert into upcall_runs (id, version, status, owner, created_at, updated_at, asked_at, open_questions, "
            f"task, record) select {name}, version, {STATUS_NUMBERS[status]}, owner, created_at - n, updated_at, "
            f"{asked}, open_questions, task, record from upcall_runs, {ids} where id = ?",
            run_id,
        )
        execute(
            location,
            "insert into upcall_checkpoints (run_id, version, state, deltas) "
            f"select {name}, version, state, deltas from upcall_checkpoints, {ids} where run_id = ?",
            run_id,
        )
    execute(location, "analyze")


def size_of(location: str) -> int:
    """Return the bytes of the database."""
    return int(execute(location, "select pg_database_size(current_database())")[0][0])


async def measure_throughput(fleet: Fleet, options: argparse.Namespace) -> dict[str, Any]:
    """Measure how many segments so many workers do, in seconds and in seconds of their CPUs."""
    ids = await fleet.submit(options.runs, 10_000)
    cpu, began = cpu_of_children(), time.monotonic()
    workers = [fleet.start("--drain") for _ in range(options.workers)]
    for worker in workers:
        await asyncio.to_thread(worker.wait)
    seconds, used = time.monotonic() - began, cpu_of_children() - cpu
    assert fleet.count()["awaiting_clarification"] == len(ids)
    return {
        "workers": options.workers,
        "segments": len(ids),
        "seconds": round(seconds, 1),
        "CPU seconds": round(used, 1),
        "segments a second": round(len(ids) / seconds, 1),
        "segments a CPU second": round(len(ids) / used, 1),
    }


def cpu_of_children() -> float:
    """Return the seconds of CPU of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# -- the command ----------------------------------------------------------------------------------------------------


@contextmanager
def a_place(given: str | None, disk: Path | None) -> Iterator[tuple[str, Server | None]]:
    """Yield the store, and the server if it is a private one, in an empty folder."""
    folder, before = tempfile.mkdtemp(prefix="upcall-workers-"), Path.cwd()
    os.chdir(folder)
    try:
        if given:
            yield given, None
        else:
            with running(disk) as server:
                yield server.new_database(), server
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


MODES = {
    "kill": kill_workers,
    "roll": roll_workers,
    "suspend": suspend_in_writes,
    "latency": measure_latency,
    "throughput": measure_throughput,
}


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--places", type=int, default=100, help="where to suspend a worker")
    parser.add_argument("--every", type=float, default=6.0, help="seconds between two kills")
    parser.add_argument("--rate", type=float, default=5.0, help="runs or answers a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of answers")
    parser.add_argument("--finished", type=int, default=0, help="finished runs in the store before")
    parser.add_argument("--waiting", type=int, default=0, help="waiting runs in the store before")
    parser.add_argument("--lease", type=float, default=15.0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--disk", type=Path, help="a small file system for the private PostgreSQL, to be filled")
    parser.add_argument("--store", help="an empty PostgreSQL database")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Run one mode, and print what it found."""
    options = parse_options()
    with a_place(options.store, options.disk) as (location, server):
        fleet = Fleet(location, options.lease, server)
        try:
            found = asyncio.run(MODES[options.mode](fleet, options))
        finally:
            fleet.end()
    print(json.dumps(found) if options.json else "\n".join(f"{name:28} {value}" for name, value in found.items()))
    return int(bool(found.get("faults")))


if __name__ == "__main__":
    sys.exit(main())
