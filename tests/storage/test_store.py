"""The store's contract, on both databases: a real SQLite file and a real PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest
from stores import FIRST, execute, history, rewrite

from upcall.errors import ConfigurationError, RunConflict, RunGone, SchemaMismatch, TooLarge, UnknownRun
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.run import Run, RunStatus
from upcall.storage.store import RunStore


async def test_a_run_comes_back_as_it_was_stored(location: str) -> None:
    """S4-54"""
    stored = await RunStore(location).create(Run(task="do it", user="alice"), FIRST)
    assert await RunStore(location).load(stored.run.id) == stored


async def test_a_write_follows_the_version_it_saw(location: str) -> None:
    store = RunStore(location)
    first = await store.create(Run(task="do it"), FIRST)
    second = await store.save(first, first.run.move_to(RunStatus.PLANNING))
    assert (second.version, (await store.load(first.run.id)).run.status) == (2, RunStatus.PLANNING)


async def test_a_write_that_follows_an_older_version_is_refused_and_changes_nothing(location: str) -> None:
    store = RunStore(location)
    first = await store.create(Run(task="do it"), FIRST)
    second = await store.save(first, first.run.move_to(RunStatus.PLANNING))
    with pytest.raises(RunConflict, match="nothing was written"):
        await store.save(first, first.run.move_to(RunStatus.FAILED), Checkpoint(team_state={"lost": True}))
    assert await store.load(first.run.id) == second


async def test_of_eight_writers_at_once_one_wins(location: str) -> None:
    first = await RunStore(location).create(Run(task="do it"), FIRST)
    writes = [RunStore(location).save(first, first.run.move_to(RunStatus.PLANNING)) for _ in range(8)]
    ended = await asyncio.gather(*writes, return_exceptions=True)
    assert sorted(type(each).__name__ for each in ended) == ["RunConflict"] * 7 + ["StoredRun"]


async def test_without_a_new_checkpoint_the_last_one_stays(location: str) -> None:
    store = RunStore(location)
    first = await store.create(Run(task="do it"), FIRST)
    await store.save(first, first.run.move_to(RunStatus.FAILED, error="no"))
    assert (await store.load(first.run.id)).checkpoint == FIRST


async def test_the_beginning_of_an_id_is_enough_where_it_is_the_only_one(location: str) -> None:
    store = RunStore(location)
    await store.create(Run(id="abcdef000001", task="one"), FIRST)
    await store.create(Run(id="abcdff000002", task="two"), FIRST)
    assert (await store.load("abcde")).run.task == "one"
    with pytest.raises(UnknownRun, match="several runs start with it"):
        await store.load("abcd")


async def test_a_percent_sign_is_no_wildcard(location: str) -> None:
    store = RunStore(location)
    await store.create(Run(task="do it"), FIRST)
    with pytest.raises(UnknownRun):
        await store.load("%%%%")


async def test_runs_are_listed_newest_first_and_by_user(location: str) -> None:
    store = RunStore(location)
    for user in ("alice", "bob"):
        await store.create(Run(task=f"for {user}", user=user), FIRST)
    assert [run.user for run in await store.list("alice")] == ["alice"]
    assert len(await store.list()) == 2


async def test_a_checkpoint_that_does_not_fit_is_said_and_left_as_it_is(location: str) -> None:
    stored = await RunStore(location).create(Run(task="do it"), FIRST)
    rewrite(location, "upcall_checkpoints", "state", lambda state: {"version": 1, "inbox": 7})
    before = execute(location, "select state from upcall_checkpoints")
    with pytest.raises(SchemaMismatch, match="damaged"):
        await RunStore(location).load(stored.run.id)
    assert execute(location, "select state from upcall_checkpoints") == before


@pytest.mark.parametrize("version", [0, 2, None, "1"])
async def test_a_checkpoint_of_another_version_is_refused_with_what_to_do(version: object, location: str) -> None:
    stored = await RunStore(location).create(Run(task="do it"), FIRST)
    rewrite(location, "upcall_checkpoints", "state", lambda state: {"version": version})
    with pytest.raises(SchemaMismatch, match="Go on with the version of upcall that stored it"):
        await RunStore(location).load(stored.run.id)


async def test_a_run_record_of_another_version_is_refused(location: str) -> None:
    stored = await RunStore(location).create(Run(task="do it"), FIRST)
    rewrite(location, "upcall_runs", "record", lambda record: {"status": "dreaming"})
    with pytest.raises(SchemaMismatch, match="field 'status'"):
        await RunStore(location).load(stored.run.id)


async def test_a_store_can_be_used_from_several_event_loops(location: str) -> None:
    store = RunStore(location)
    first = await asyncio.to_thread(asyncio.run, store.create(Run(task="do it"), FIRST))
    assert await store.load(first.run.id) == first


async def test_a_checkpoint_of_ten_megabytes_is_kept(location: str) -> None:
    """S4-49"""
    big = Checkpoint(team_state={"messages": ["x" * 1000] * 10_000})
    stored = await RunStore(location).create(Run(task="do it"), big)
    assert (await RunStore(location).load(stored.run.id)).checkpoint == big


async def test_every_checkpoint_of_a_run_is_kept(location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), history(1))
    for length in (2, 3):
        stored = await store.save(stored, stored.run, history(length))
        stored = await store.save(stored, stored.run)
    versions = await store.versions(stored.run.id)
    assert [await store.checkpoint(stored.run.id, version) for version in versions] == [history(n) for n in (1, 2, 3)]
    assert (await store.load(stored.run.id)).checkpoint == history(3)


async def test_a_checkpoint_that_is_not_there_is_said(location: str) -> None:
    stored = await RunStore(location).create(Run(task="do it"), FIRST)
    with pytest.raises(UnknownRun, match="no checkpoint of version 7"):
        await RunStore(location).checkpoint(stored.run.id, 7)


async def test_a_pause_costs_the_same_after_five_hundred_messages(location: str) -> None:
    """What a pause adds, in bytes of all columns, on average: a group of the list ends now and then."""

    async def added(length: int) -> int:
        store = RunStore(location)
        stored = await store.create(Run(task="do it"), history(length))
        before = payload(location)
        for more in range(2, 42, 2):
            stored = await store.save(stored, stored.run, history(length + more))
        return payload(location) - before

    # The tree over a list that is 25 times as long has two levels more; these messages are small beside its references.
    assert await added(500) < 3 * await added(20)


async def test_what_runs_have_in_common_is_stored_once(location: str) -> None:
    store = RunStore(location)
    await store.create(Run(task="one"), history(100))
    before = payload(location)
    await store.create(Run(task="two"), history(100))
    assert payload(location) - before < 1_000


async def test_another_connection_sees_what_was_saved_without_the_nodes_being_stored_again(location: str) -> None:
    first = await RunStore(location).create(Run(task="do it"), history(50))
    loaded = await RunStore(location).load(first.run.id)
    assert loaded.checkpoint_nodes == first.checkpoint_nodes
    second = await RunStore(location).save(loaded, loaded.run, history(51))
    assert await RunStore(location).load(first.run.id) == second


@pytest.mark.parametrize("value", [{"$": 0}, {"$": [[], 1]}, "\ud800", "\x00", 10**30, {"": {"$": {"": 1}}}])
async def test_odd_values_come_back(value: object, location: str) -> None:
    """What looks like a mark of the encoding, and what JSON or a database's text cannot hold."""
    odd = Checkpoint(team_state={"odd": value, "long": [value] * 400})
    stored = await RunStore(location).create(Run(task="do it"), odd)
    assert (await RunStore(location).load(stored.run.id)).checkpoint == odd


async def test_an_id_that_is_taken_is_refused(location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), FIRST)
    with pytest.raises(ConfigurationError, match="already"):
        await store.create(Run(id=stored.run.id, task="another"), FIRST)
    assert await store.load(stored.run.id) == stored


async def test_a_run_that_was_removed_is_said_to_be_gone(location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), FIRST)
    execute(location, "delete from upcall_runs")
    with pytest.raises(RunGone, match="no longer in the store"):
        await store.save(stored, stored.run)
    with pytest.raises(RunGone, match="no longer in the store"):
        await store.enqueue_answers(stored.run.id, [])


async def test_a_run_is_claimed_by_what_its_last_write_gave(location: str) -> None:
    """Also where that left a journal."""
    store = RunStore(location, lease_seconds=0)
    stored = await store.create(Run(task="do it"), FIRST, {"call": "begun"})
    stored = await store.claim(stored, stored.run)
    stored = await store.save(stored, stored.run)
    stored = await store.claim(stored, stored.run, records={"call": None, "reply": "given"})
    assert stored.records == {"reply": "given"}
    stored = await store.save(stored, stored.run, FIRST)
    assert (await store.claim(stored, stored.run)).records == {}


async def test_what_is_too_large_is_refused_before_anything_is_written(location: str) -> None:
    store = RunStore(location, max_state_bytes=50_000)
    stored = await store.create(Run(task="do it"), FIRST)
    with pytest.raises(TooLarge, match=r"has 0\.1 MB, more than the 0\.1 MB|max_state_bytes"):
        await store.save(stored, stored.run, Checkpoint(team_state={"big": "x" * 100_000}))
    with pytest.raises(TooLarge, match="max_state_bytes"):
        await store.save(stored, stored.run.move_to(RunStatus.COMPLETED, result="x" * 100_000))
    with pytest.raises(TooLarge, match="journalled"):
        await store.record(stored, {"reply": "x" * 100_000})
    with pytest.raises(TooLarge, match="max_state_bytes"):
        await store.create(Run(id="another", task="x" * 100_000), FIRST)
    assert await store.load(stored.run.id) == stored
    assert await store.journal(stored.run.id) == {}
    assert len(await store.list()) == 1


async def test_a_schema_of_a_later_version_is_refused(location: str) -> None:
    await RunStore(location).create(Run(task="do it"), FIRST)
    execute(location, "update upcall_meta set value = '99'")
    with pytest.raises(SchemaMismatch, match="has schema version 99; this version of upcall reads versions up to"):
        await RunStore(location).load("abcd")


async def test_many_objects_make_a_new_store_at_once(location: str) -> None:
    runs = [Run(task=f"task {number}") for number in range(8)]
    await asyncio.gather(*(RunStore(location).create(run, FIRST) for run in runs))
    assert {run.id for run in await RunStore(location).list()} == {run.id for run in runs}


def payload(location: str) -> int:
    """The bytes of all columns of all tables."""
    columns = {
        "upcall_runs": ("id", "status", "record", "created_at"),
        "upcall_checkpoints": ("run_id", "state"),
        "upcall_blobs": ("hash", "data"),
    }
    sums = (
        execute(location, f"select sum({' + '.join(f'length({name})' for name in names)}) from {table}")[0][0]
        for table, names in columns.items()
    )
    return sum(int(each or 0) for each in sums)
