"""What an operator waits for in a large store: lists, inbox and search of any user, pruning by twice as many runs, and
the upgrade of many paused ones.

    python benchmarks/large_store.py --runs 1000000 --prune 200000 --upgrade 10000

The store is filled by SQL with copies of one run under other ids, owners, tasks and times: user-0 has a tenth of all
runs, user-1 three of them, and a thousand others share the rest; one run in twenty waits for an answer, and one in
fifty is assigned to `reviewer`. Read the ratio of the prunes, and the medians; all of it is measured in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import golden_stores
import made_up_format
import postgres
import pytest

from upcall import Settings, Upcall, identity
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.run import Run
from upcall.runs.run_filter import RunFilter
from upcall.runs.states import RunStatus
from upcall.storage import schema
from upcall.storage.copying import copy_store
from upcall.storage.maintenance import prune
from upcall.storage.run_rows import STATUS_NUMBERS
from upcall.storage.store import RunStore
from upcall.storage.upgrading import upgrade_store

OWNERS = """
CASE WHEN n % 10 = 0 THEN 'user-0' WHEN n IN (7, 1007, 2007) THEN 'user-1' ELSE 'user-' || (2 + n % 1000) END
"""
FILL = f"""
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO upcall_runs (id, version, status, owner, created_at, updated_at, asked_at, open_questions, due_at,
                         assignees, worker, renewed_at, task, record)
SELECT printf('r%011d', n), 1, CASE WHEN n % 20 = 1 THEN r.status ELSE {STATUS_NUMBERS[RunStatus.COMPLETED]} END,
       {OWNERS}, :start + n, :start + n, CASE WHEN n % 20 = 1 THEN :start + n END, n % 20 = 1, NULL,
       CASE WHEN n % 50 = 1 THEN 'reviewer' END, NULL, NULL, 'build part ' || n || ' of the shop', r.record
FROM numbers, upcall_runs r WHERE r.id = 'the-first'
"""
SHOWN = """
INSERT INTO upcall_shown_to (name, created_at, run_id, asked_at)
SELECT assignees, created_at, id, asked_at FROM upcall_runs WHERE assignees IS NOT NULL
"""
CHECKPOINTS = """
INSERT INTO upcall_checkpoints (run_id, version, state, deltas)
SELECT r.id, c.version, c.state, c.deltas FROM upcall_runs r, upcall_checkpoints c
WHERE c.run_id = 'the-first' AND r.id <> 'the-first'
"""
DAYS = 40


async def fill(file: Path, count: int) -> RunStore:
    """Make a store with so many runs."""
    store = RunStore(file)
    question = Question(question="Which framework?", path=("lead",))
    run = Run(id="the-first", task="Build it", status=RunStatus.AWAITING_CLARIFICATION)
    run = run.model_copy(update={"records": QuestionRecords.build([question])})
    await store.create(run, Checkpoint())
    await store.close()
    start = int((identity.now() - timedelta(days=DAYS)).timestamp()) - count
    with sqlite3.connect(file) as connection:
        connection.execute(FILL, {"count": count, "start": start})
        connection.execute(SHOWN)
        connection.execute(CHECKPOINTS)
    connection.close()
    return store


async def measure(call: Callable[[], Awaitable[Any]]) -> dict[str, float]:
    """Measure the median and the longest of some calls in milliseconds, after one that warms up."""
    await call()
    taken = []
    for _ in range(9):
        begun = time.perf_counter()
        await call()
        taken.append(1000 * (time.perf_counter() - begun))
    return {"median ms": round(statistics.median(taken), 2), "max ms": round(max(taken), 2)}


async def measure_lists(store: RunStore) -> dict[str, Any]:
    """Measure the first page of lists, inbox and search of several users."""
    app = Upcall(store=store, settings=Settings.read(None))
    found: dict[str, Any] = {}
    for name, user in (
        ("operator", None),
        ("tenth of all", "user-0"),
        ("three runs", "user-1"),
        ("reviewer", "reviewer"),
    ):
        found[f"list, {name}"] = await measure(lambda user=user: app.list(user, limit=50))
        found[f"inbox, {name}"] = await measure(lambda user=user: app.inbox(user, limit=50))
        for what, text in (("of many", "shop"), ("that is not there", "no such words")):
            only = RunFilter(text=text)
            found[f"search {what}, {name}"] = await measure(
                lambda user=user, only=only: app.list(user, limit=50, only=only)
            )
    owned, failed = RunFilter(owner="user-1"), RunFilter(frozenset({RunStatus.FAILED}))
    found["list of a user with three runs, operator"] = await measure(lambda: app.list(limit=50, only=owned))
    nobody = RunFilter(agent="nobody")
    found["list of an agent that no run has, operator"] = await measure(lambda: app.list(limit=50, only=nobody))
    found["list of a rare status, operator"] = await measure(lambda: app.list(limit=50, only=failed))
    return found


async def measure_prune(folder: Path, count: int) -> dict[str, float]:
    """Measure a prune of all runs that are over, in a store of so many."""
    store = await fill(folder / f"prune-{count}.db", count)
    begun = time.perf_counter()
    pruned = await prune(store, older_than=timedelta(days=DAYS - 10))
    taken = time.perf_counter() - begun
    return {"runs": len(pruned.runs), "seconds": round(taken, 2)}


async def measure_upgrade(folder: Path, count: int) -> dict[str, Any]:
    """Measure the upgrade of so many paused runs to a made-up format that computes a column from each run: of a file,
    and of a server after the store was copied there."""
    file = folder / "upgrade.db"
    golden_stores.open_file(1, str(file))
    run_id, _ = golden_stores.read_used(1)["built-in-coder"]
    with sqlite3.connect(file) as connection:
        for table in (schema.RUNS, *schema.RUN_TABLES):
            key = "id" if table is schema.RUNS else "run_id"
            names = [each for each in table.columns if not (table is schema.LOG and each == "id")]
            values = ["printf('r%011d', n)" if each == key else each for each in names]
            connection.execute(
                "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count) "
                f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(values)} FROM numbers, {table.name} "
                f"WHERE {key} = :run_id",
                {"count": count, "run_id": run_id},
            )
        bytes_before = file.stat().st_size
    connection.close()
    found: dict[str, Any] = {"runs": count, "megabytes": round(bytes_before / 1e6)}
    with postgres.running() as server:
        location = server.new_database()
        begun = time.perf_counter()
        await copy_store(RunStore(file), RunStore(location))
        found["copied to a server in seconds"] = round(time.perf_counter() - begun, 1)
        with pytest.MonkeyPatch.context() as patch:
            made_up_format.use(patch)
            for name, where in (("file", str(file)), ("server", location)):
                begun = time.perf_counter()
                await upgrade_store(RunStore(where), contract=True)
                found[f"{name}, seconds"] = round(time.perf_counter() - begun, 1)
    return found


async def main() -> None:
    """Measure, and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--prune", type=int, default=200_000)
    parser.add_argument("--upgrade", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {}
        if options.prune:
            half, whole = [await measure_prune(Path(folder), count) for count in (options.prune // 2, options.prune)]
            found["prune"] = [half, whole]
            found["prune, ratio"] = round(whole["seconds"] / half["seconds"], 2)
        if options.upgrade:
            found["upgrade"] = await measure_upgrade(Path(folder), options.upgrade)
        if options.runs:
            begun = time.perf_counter()
            store = await fill(Path(folder) / "large.db", options.runs)
            found["filled in seconds"] = round(time.perf_counter() - begun, 1)
            found |= await measure_lists(store)
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
