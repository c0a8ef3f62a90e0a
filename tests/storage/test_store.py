"""The store's contract, on both databases: a real SQLite file and a real PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest
from stores import FIRST, execute, history, rewrite
from tables import rows

from upcall.errors import ConfigurationError, RunConflict, RunGone, SchemaMismatch, TooLarge, UnknownRun
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.run import Run
from upcall.runs.states import RunEvent, RunStatus
from upcall.storage.connection import Connection
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun

# -- one run ----------------------------------------------------------------------------------------------------------


async def test_run_loads_as_it_was_stored(location: str) -> None:
    """S4-54"""
    stored = await RunStore(location).create(Run(task="do it", user="alice"), FIRST)
    assert await RunStore(location).load(stored.run.id) == stored


async def test_save_counts_the_version(location: str) -> None:
    store = RunStore(location)
    first = await store.create(Run(task="do it"), FIRST)
    second = await store.save(first, first.run.apply(RunEvent.PLANNING))
    assert (second.version, (await store.load(first.run.id)).run.status) == (2, RunStatus.PLANNING)


async def test_save_after_an_older_version_changes_nothing(location: str) -> None:
    store = RunStore(location)
    first = await store.create(Run(task="do it"), FIRST)
    second = await store.save(first, first.run.apply(RunEvent.PLANNING))
    with pytest.raises(RunConflict, match="nothing was written"):
        await store.save(first, first.run.apply(RunEvent.FAILED), Checkpoint(team_state={"lost": True}))
    assert await store.load(first.run.id) == second


async def test_save_without_a_checkpoint_keeps_the_last_one(location: str) -> None:
    store = RunStore(location)
    first = await store.create(Run(task="do it"), FIRST)
    await store.save(first, first.run.apply(RunEvent.FAILED, error="no"))
    assert (await store.load(first.run.id)).checkpoint == FIRST


async def test_taken_id_is_refused(location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), FIRST)
    with pytest.raises(ConfigurationError, match="already"):
        await store.create(Run(id=stored.run.id, task="another"), FIRST)
    assert await store.load(stored.run.id) == stored


async def test_removed_run_is_gone(location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), FIRST)
    execute(location, "delete from upcall_runs")
    with pytest.raises(RunGone, match="no longer in the store"):
        await store.save(stored, stored.run)
    with pytest.raises(RunGone, match="no longer in the store"):
        await store.queue.add(stored.run.id, [])


@pytest.mark.parametrize(
    ("named", "found"),
    rows("store/run_is_named_by_its_id_or_an_unmistakable_beginning"),
)
async def test_run_is_named_by_id_or_unique_prefix(named: str, found: str, location: str) -> None:
    store = RunStore(location)
    await store.create(Run(id="abcdef000001", task="one"), FIRST)
    await store.create(Run(id="abcdff000002", task="two"), FIRST)
    if found == "one":
        assert (await store.load(named)).run.task == found
    else:
        with pytest.raises(UnknownRun, match=found):
            await store.load(named)


@pytest.mark.parametrize("value", [{"$": 0}, "\ud800", "\x00", 10**30, float("inf"), {"": {"$": {"": 1}}}])
async def test_odd_values_come_back(value: object, location: str) -> None:
    odd = Checkpoint(team_state={"odd": value, "long": [value] * 400})
    stored = await RunStore(location).create(Run(task="do \x00 \ud800 \u2028 it"), odd)
    assert await RunStore(location).load(stored.run.id) == stored


async def test_too_large_value_is_refused_before_anything_is_written(location: str) -> None:
    store = RunStore(location, max_state_bytes=50_000)
    stored, large = await store.create(Run(task="do it"), FIRST), "x" * 100_000
    for write in (
        store.save(stored, stored.run, Checkpoint(team_state={"big": large})),
        store.save(stored, stored.run.apply(RunEvent.COMPLETED, result=large)),
        store.journal.write(stored, {"reply": large}),
        store.create(Run(id="another", task=large), FIRST),
    ):
        with pytest.raises(TooLarge, match=r"has 0\.1 MB, more than the 0\.1 MB .* store\.max_state_bytes"):
            await write
    assert (await store.load(stored.run.id), len(await store.list())) == (stored, 1)


async def test_deleted_run_leaves_nothing(location: str) -> None:
    store = RunStore(location)
    stored, question = await at_work(store)
    await store.journal.write(stored, {"lead:1": "a reply"})
    await store.queue.add(stored.run.id, [Answer(question_id=question.id, text="Express")])
    await store.leases.release(stored)
    other = await store.create(Run(task="another"), FIRST)
    assert await store.delete(stored.run.id[:6]) == stored.run.id
    tables = ("checkpoints", "queued_answers", "journal", "contents", "log")
    rows = [execute(location, f"select run_id from upcall_{table}") for table in tables]
    assert {run_id for each in rows for (run_id,) in each} == {other.run.id}
    assert [run.id for run in await store.list()] == [other.run.id]


# -- checkpoints ------------------------------------------------------------------------------------------------------


async def test_every_checkpoint_of_a_run_is_kept(location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), history(1))
    for length in (2, 3, 1):
        stored = await store.save(stored, stored.run, history(length))
        stored = await store.save(stored, stored.run)
    versions = await store.versions(stored.run.id)
    expected = [history(length) for length in (1, 2, 3, 1)]
    assert [await store.checkpoint(stored.run.id, version) for version in versions] == expected
    assert (await store.checkpoints(stored.run.id), (await store.load(stored.run.id)).checkpoint) == (
        expected,
        history(1),
    )


async def test_missing_checkpoint_is_unknown(location: str) -> None:
    stored = await RunStore(location).create(Run(task="do it"), FIRST)
    with pytest.raises(UnknownRun, match="no checkpoint of version 7"):
        await RunStore(location).checkpoint(stored.run.id, 7)


async def test_checkpoint_of_ten_megabytes_is_kept(location: str) -> None:
    """S4-49"""
    big = Checkpoint(team_state={"messages": ["x" * 1000] * 10_000})
    stored = await RunStore(location).create(Run(task="do it"), big)
    assert (await RunStore(location).load(stored.run.id)).checkpoint == big


@pytest.mark.slow
async def test_one_more_pause_takes_what_is_new_in_it(location: str) -> None:
    async def measure(length: int) -> int:
        store = RunStore(location)
        stored = await store.create(Run(task="do it"), history(length))
        stored = await store.save(stored, stored.run, history(length + 2))
        before = count_state_bytes(location)
        for more in range(4, 44, 2):
            stored = await store.save(stored, stored.run, history(length + more))
        return count_state_bytes(location) - before

    assert await measure(500) < 2 * await measure(20)


def count_state_bytes(location: str) -> int:
    return int(execute(location, "select sum(length(state)) from upcall_checkpoints")[0][0])


# -- what another version wrote ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "column", "value", "message"),
    [
        ("upcall_checkpoints", "state", {"version": 1, "inbox": 7}, "damaged"),
        (
            "upcall_checkpoints",
            "state",
            {"version": 2},
            "has format 2, .* later version of upcall, one that reads format 2",
        ),
        ("upcall_checkpoints", "state", {"version": 2, "needs": "0.2.0"}, "Continue with upcall 0.2.0 or later"),
        ("upcall_checkpoints", "state", {"version": "1"}, "damaged"),
        ("upcall_runs", "record", {"format": 3, "needs": "0.3.0"}, "Continue with upcall 0.3.0"),
        ("upcall_runs", "record", {"status": "dreaming"}, "field 'status'"),
    ],
)
async def test_unreadable_run_is_refused_and_left_as_it_is(
    table: str, column: str, value: object, message: str, location: str
) -> None:
    stored = await RunStore(location).create(Run(task="do it"), FIRST)
    rewrite(location, table, column, lambda _: value)
    before = execute(location, f"select {column} from {table}")
    with pytest.raises(SchemaMismatch, match=message):
        await RunStore(location).load(stored.run.id)
    assert execute(location, f"select {column} from {table}") == before


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "odd", "has no format"),
        ("reads_from", None, "made before upcall 0.1.0 was released"),
        ("format", "99", "The store .* has format 99, .* reads formats up to 1. Continue with upcall 7.1 or later"),
        pytest.param(
            "notifications.format",
            "9",
            "What 'notifications' keeps .* has format 9, .* Continue with upcall 7.1 or later",
            marks=pytest.mark.needs("notifications"),
        ),
    ],
)
async def test_store_of_unknown_format_is_refused(key: str, value: str | None, message: str, location: str) -> None:
    await RunStore(location).create(Run(task="do it"), FIRST)
    execute(location, "delete from upcall_meta where key = ?", key)
    if value is not None:
        prefix = key.removesuffix("format")
        execute(location, f"delete from upcall_meta where key in ('{prefix}needs', '{prefix}reads_from')")
        rows = f"('{key}', '{value}'), ('{prefix}needs', '7.1'), ('{prefix}reads_from', '{value}')"
        execute(location, f"insert into upcall_meta values {rows}")
    before = execute(location, "select * from upcall_meta order by key")
    with pytest.raises(SchemaMismatch, match=message):
        await RunStore(location).load("abcd")
    assert execute(location, "select * from upcall_meta order by key") == before


# -- several at once --------------------------------------------------------------------------------------------------


async def test_one_of_eight_writers_at_once_wins(location: str) -> None:
    first = await RunStore(location).create(Run(task="do it"), FIRST)
    writes = [RunStore(location).save(first, first.run.apply(RunEvent.PLANNING)) for _ in range(8)]
    ended = await asyncio.gather(*writes, return_exceptions=True)
    assert sorted(type(each).__name__ for each in ended) == ["RunConflict"] * 7 + ["StoredRun"]


async def test_many_objects_make_a_new_store_at_once(location: str) -> None:
    runs = [Run(task=f"task {number}") for number in range(8)]
    await asyncio.gather(*(RunStore(location).create(run, FIRST) for run in runs))
    assert {run.id for run in await RunStore(location).list()} == {run.id for run in runs}


async def test_store_is_used_from_several_event_loops(location: str) -> None:
    store = RunStore(location)
    first = await asyncio.to_thread(asyncio.run, store.create(Run(task="do it"), FIRST))
    assert await store.load(first.run.id) == first


# -- journal, queued answers, and what is stored with them ------------------------------------------------------------


async def test_claim_comes_with_the_last_written_journal(location: str) -> None:
    store = RunStore(location, lease_seconds=0)
    stored = await store.create(Run(task="do it"), FIRST, {"call": "begun \ud800"})
    stored = await store.claim(stored, stored.run)
    stored = await store.save(stored, stored.run)
    stored = await store.claim(stored, stored.run, records={"call": None, "reply": "given"})
    assert stored.records == {"reply": "given"}
    stored = await store.save(stored, stored.run, FIRST)
    assert (await store.claim(stored, stored.run)).records == {}


async def test_claim_with_another_journal_is_refused(location: str) -> None:
    store = RunStore(location, lease_seconds=0)
    stored = await store.create(Run(task="do it"), FIRST)
    await store.journal.write(stored, {"call": "begun"})
    with pytest.raises(RunConflict):
        await store.claim(stored, stored.run)


async def at_work(store: RunStore) -> tuple[StoredRun, Question]:
    question = Question(question="Which framework?", path=("lead", "coder"))
    run = Run(task="do it", status=RunStatus.EXECUTING, records=QuestionRecords.build([question]))
    return await store.create(run, FIRST), question


@pytest.mark.parametrize("fails", [False, True])
async def test_callback_is_part_of_the_transaction(fails: bool, location: str) -> None:
    store = RunStore(location)
    stored, question = await at_work(store)

    def note(connection: Connection) -> None:
        connection.execute("INSERT INTO upcall_meta (key, value) VALUES (:key, :key)", {"key": "turn"})
        if fails:
            raise LookupError("no such queue")

    write = store.queue.add(stored.run.id, [Answer(question_id=question.id, text="Express")], also=note)
    (ended,) = await asyncio.gather(write, return_exceptions=True)
    assert isinstance(ended, LookupError) if fails else ended is True
    noted = execute(location, "select count(*) from upcall_meta where key = 'turn'")[0][0]
    assert (noted, len(await store.queue.read(stored.run.id))) == ((0, 0) if fails else (1, 1))
