"""Copy a whole store into another one, to the other database and back, however often it is cut off."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import copy_process
import pytest
from copy_process import POINTS
from scenario import TASK, upcall
from stores import FIRST, execute, history, make_store

from upcall.errors import ConfigurationError
from upcall.runs.run import Run
from upcall.runs.states import RunEvent
from upcall.storage.copying import copy_store
from upcall.storage.maintenance import check
from upcall.storage.store import RunStore


async def contents(location: str, run_id: str) -> tuple[Any, ...]:
    """Return what a store has of a run, and the numbers of its events."""
    store = RunStore(location)
    loaded = await store.load(run_id)
    found = (loaded, await store.checkpoints(run_id), await store.events.read(run_id))
    await store.close()
    return found


async def test_copy_has_everything_and_counts_on(location: str) -> None:
    ids = await make_store("old.db", 4)
    execute("old.db", "insert into upcall_asked_topics values ('alice', '', 'format', 3, 1)")
    done = await copy_store(RunStore("old.db"), RunStore(location))
    assert (done.runs, done.known, done.busy) == (4, 0, [])
    for run_id in ids:
        assert await contents(location, run_id) == await contents("old.db", run_id)
    assert execute(location, "select owner, asked from upcall_asked_topics") == [("alice", 3)]
    assert (await check(RunStore(location))).problems == []
    newest = execute("old.db", "select max(id) from upcall_log")[0][0]
    await RunStore(location).create(Run(task="one more"), history(1))
    assert execute(location, "select max(id) from upcall_log")[0][0] > newest


async def test_copy_takes_up_what_was_cut_off(monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    ids = sorted(await make_store("old.db", 5))
    monkeypatch.setattr("upcall.storage.copying.RUNS_PER_TRANSACTION", 2)

    def stop(done: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await copy_store(RunStore("old.db"), RunStore(location), on_progress=stop)
    source = RunStore("old.db")
    stored = await source.load(ids[0])  # It changes meanwhile.
    await source.save(stored, stored.run.model_copy(update={"task": "another"}))
    done = await copy_store(source, RunStore(location))
    assert (done.runs, done.known) == (4, 1)
    assert [await contents(location, each) for each in ids] == [await contents("old.db", each) for each in ids]


@pytest.mark.slow
@pytest.mark.parametrize(("point", "number"), POINTS)
async def test_copy_that_was_killed_is_taken_up(location: str, point: str, number: int) -> None:
    ids = sorted(await make_store("old.db", 5))
    command = [sys.executable, copy_process.__file__, "old.db", location, point, str(number)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert (await check(RunStore(location))).problems == []
    done = await copy_store(RunStore("old.db"), RunStore(location))
    assert done.runs + done.known == 5
    assert [await contents(location, each) for each in ids] == [await contents("old.db", each) for each in ids]
    assert execute(location, "select count(*) from upcall_log") == execute("old.db", "select count(*) from upcall_log")


async def test_copy_is_refused_into_a_store_with_runs() -> None:
    await make_store("old.db", 1)
    before = await make_store("other.db", 1)
    with pytest.raises(ConfigurationError, match=r"has runs of its own. Name an empty one"):
        await copy_store(RunStore("old.db"), RunStore("other.db"))
    assert [run.id for run in await RunStore("other.db").list()] == before


async def test_copy_leaves_out_what_is_at_work() -> None:
    await make_store("old.db", 1)
    store = RunStore("old.db")
    run = Run(task="do it").apply(RunEvent.PLANNING)
    stored = await store.create(run, FIRST)
    done = await copy_store(store, RunStore("other.db"))
    assert (done.runs, done.busy) == (1, [run.id])
    await store.leases.release(stored)
    again = await copy_store(store, RunStore("other.db"))
    assert (again.runs, again.known) == (1, 1)


@pytest.mark.slow
def test_copy_is_answered_in_the_other_database(postgres: Any) -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    server = postgres.new_database()
    assert "Copied 1 runs" in upcall("store", "copy", "upcall.db", server).out
    assert upcall("store", "copy", server, "back.db").status == 0
    assert upcall("answer", run_id, "Express", "--json", "--store", "back.db").json["status"] == "completed"
    assert upcall("answer", run_id, "Express", "--json", "--store", server).json["status"] == "completed"


@pytest.mark.slow
def test_all_runs_are_exported_and_imported_again() -> None:
    first, second = (upcall("run", TASK, "--detach", "--json").json["run_id"] for _ in range(2))
    assert "2 runs were written" in upcall("store", "export", "--all-runs", "all.jsonl").out
    upcall("store", "import", "all.jsonl", "--store", "other.db")
    assert upcall("store", "import", "all.jsonl", "--store", "other.db", "--json").json == []
    assert {each["run_id"] for each in upcall("list", "--store", "other.db", "--json").json} == {first, second}
    assert upcall("answer", second, "Express", "--json", "--store", "other.db").json["status"] == "completed"
