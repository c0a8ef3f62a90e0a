"""Pruning a large store: some runs at a time, in step with their number, and stopped without loss."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from stores import FIRST, execute

from upcall import identity
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage import maintenance
from upcall.storage.maintenance import Pruned, check, prune, stats
from upcall.storage.store import RunStore

COMPLETED = RunStatus.COMPLETED


async def fill(location: str, count: int) -> RunStore:
    store, at = RunStore(location), identity.now() - timedelta(days=40)
    for number in range(count):
        status = COMPLETED if number % 3 else RunStatus.CANCELLED
        await store.create(Run(id=f"run-{number:03}", task="do it", status=status, created_at=at, updated_at=at), FIRST)
    return store


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "RUNS_AT_ONCE", 4)
    monkeypatch.setattr(maintenance, "PAGE_ROWS", 4)


async def test_prune_goes_through_all_batches_of_all_statuses(location: str) -> None:
    store, noted = await fill(location, 13), list[int]()
    planned = await prune(store, older_than=timedelta(days=30), dry_run=True)
    done = await prune(store, older_than=timedelta(days=30), on_progress=lambda pruned: noted.append(len(pruned.runs)))
    assert (done, len(done.runs), sorted(noted)[-1]) == (planned, 13, 13)
    assert (await store.list(), (await check(store)).problems) == ([], [])
    assert (await stats(store)).rows["upcall_checkpoints"] == 0


async def test_prune_that_is_stopped_keeps_what_is_done(location: str) -> None:
    store = await fill(location, 15)
    tasks: list[asyncio.Task[Pruned]] = []

    def stop(pruned: Pruned) -> None:
        if len(pruned.runs) >= 4:
            tasks[0].cancel()

    tasks.append(asyncio.create_task(prune(store, statuses=[COMPLETED], on_progress=stop)))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert len(await store.list()) == 7  # The batch that has begun is done to its end.
    assert (await check(store)).problems == []
    assert len((await prune(store, statuses=[COMPLETED])).runs) == 2


async def test_each_batch_asks_for_no_run_twice(location: str) -> None:
    """What a run costs does not depend on how many others go: the statements of each batch name its runs alone."""
    store, batches = await fill(location, 12), list[int]()
    await prune(store, older_than=timedelta(days=30), on_progress=lambda pruned: batches.append(len(pruned.runs)))
    added = [after - before for before, after in zip([0, *batches], batches, strict=False)]
    assert max(added) == 4


async def test_stats_count_all_pages_of_a_table(location: str) -> None:
    store = await fill(location, 11)
    found = await stats(store)
    assert (found.runs, found.rows["upcall_runs"], found.checkpoints) == ({"cancelled": 4, "completed": 7}, 11, 11)
    (size,) = execute(location, "select sum(length(state)) from upcall_checkpoints")[0]
    assert found.bytes["upcall_checkpoints"] > size


async def test_prune_leaves_a_run_half_replaced(location: str) -> None:
    store, at = await fill(location, 6), identity.now() - timedelta(days=40)
    run = Run(id="half", task="do it", status=COMPLETED, replacing=("question",), created_at=at, updated_at=at)
    await store.save(await store.create(run, FIRST), run, FIRST)
    assert len((await prune(store, older_than=timedelta(days=30))).runs) == 6
    await prune(store, statuses=[COMPLETED], last_checkpoints=1)
    assert ([each.id for each in await store.list()], len(await store.checkpoints("half"))) == (["half"], 2)
