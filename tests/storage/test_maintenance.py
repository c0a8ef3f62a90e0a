"""What is done with a store as a whole, on both databases."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from stores import FIRST, execute, history

from upcall import identity
from upcall.errors import ConfigurationError, NewerFormat, RunConflict, SchemaMismatch, UnknownRun
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.file_changes import Change, FileChange, FileState, digest
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.change_log import StoredChanges
from upcall.storage.export import export_run, import_run
from upcall.storage.maintenance import check, prune, restore, stats
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun

COMPLETED, WAITING = RunStatus.COMPLETED, RunStatus.AWAITING_CLARIFICATION
GARBAGE = b"\xa5" * 40


async def add(store: RunStore, status: RunStatus, checkpoints: int = 3, days: int = 0, start: int = 0) -> StoredRun:
    """Return a run with a few checkpoints that was last changed so many days ago."""
    stored = await store.create(Run(task=f"{status} {start}"), history(start + 1))
    for length in range(start + 2, start + checkpoints + 1):
        stored = await store.save(stored, stored.run, history(length))
    then = identity.now() - timedelta(days=days)
    return await store.save(stored, stored.run.model_copy(update={"status": status, "updated_at": then}))


async def add_everything(store: RunStore) -> StoredRun:
    """Return a run at work with all that can belong to one."""
    question = Question(question="Which framework?", path=("lead", "coder"))
    run = Run(task="do \x00 \u2028 it", status=RunStatus.EXECUTING, user="alice")
    stored = await store.create(run, history(30))
    stored = await store.save(
        stored, run.model_copy(update={"records": QuestionRecords.build([question])}), history(40)
    )
    await store.journal.write(stored, {"lead:1": "a \x00 reply"})
    assert await store.queue.add(run.id, [Answer(question_id=question.id, text="Express")])
    held = b"what the file held"
    change = Change(
        tool="write_file", folder="/work", files=(FileChange(path="app.py", before=FileState(digest=digest(held))),)
    )
    await StoredChanges(store, run.id).record(change, {digest(held): held})
    return stored


# -- counting and checking --------------------------------------------------------------------------------------------


async def test_stats_count_runs_and_bytes(location: str) -> None:
    store = RunStore(location)
    await add(store, COMPLETED, 20)
    await add(store, RunStatus.FAILED, 2)
    found = await stats(store)
    assert (found.runs, found.checkpoints) == ({"completed": 1, "failed": 1}, 22)
    assert found.as_json == sum(len(history(length).dump().encode()) for length in (*range(1, 21), 1, 2))
    assert found.ratio > 5
    assert found.payload == sum(found.bytes.values()) < found.file


async def test_whole_store_has_no_problems(location: str) -> None:
    store = RunStore(location)
    await add_everything(store)
    found = await check(store)
    assert (found.problems, found.runs, found.checkpoints, found.contents) == ([], 1, 2, 1)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("update upcall_checkpoints set state = {garbage} where version = 2", "checkpoint of version 1 is damaged"),
        ("update upcall_checkpoints set state = {garbage} where version = 1", "checkpoint of version 1 is damaged"),
        ("delete from upcall_checkpoints where version = 2", "the one after it is missing"),
        ("delete from upcall_checkpoints", "has no checkpoint"),
        ("update upcall_runs set record = {garbage}", "The record of run"),
        ("update upcall_journal set record = {garbage}", "its journal is damaged at 'lead:1'"),
        ("update upcall_contents set content = {garbage}", "changed in a file cannot be undone"),
        ("delete from upcall_contents", "changed in a file cannot be undone"),
        ("update upcall_log set detail = '{}' where kind = 'changed'", "another version of upcall wrote"),
        ("update upcall_log set detail = '99' where kind = 'started'", "of the log, of run"),
        ("update upcall_log set detail = '{' where kind = 'started'", "is damaged: started"),
        ("delete from upcall_runs", "which is not there"),
        ("drop table upcall_queued_answers", "upcall_queued_answers is missing"),
        ("update upcall_meta set value = '99'", "has format 99"),
    ],
)
async def test_check_finds_what_is_damaged(damage: str, problem: str, location: str) -> None:
    store = RunStore(location)
    await add_everything(store)
    await store.close()
    statement, *rest = damage.split("{garbage}")
    execute(location, "?".join([statement, *rest]), *([GARBAGE] * len(rest)))
    problems = (await check(RunStore(location))).problems
    assert any(problem in each for each in problems), problems


# -- going back -------------------------------------------------------------------------------------------------------


async def test_run_goes_back_to_the_last_whole_checkpoint(location: str) -> None:
    """The last good state loads."""
    store = RunStore(location)
    stored = await add(store, WAITING, 60, start=1)
    whole = [version for version, deltas in list_deltas(location) if deltas is not None]
    kept = whole[-2]
    execute(location, "update upcall_checkpoints set state = ? where version > ?", GARBAGE, kept)
    emitted = rf"version 60.* damaged.*version {kept} is whole.*upcall store restore {stored.run.id}"
    with pytest.raises(SchemaMismatch, match=emitted):
        await store.load(stored.run.id)
    back = await restore(store, stored.run.id[:6])
    loaded = await store.load(stored.run.id)
    assert (loaded.run, loaded.checkpoint, loaded.version) == (back, history(kept + 1), stored.version + 1)
    assert (back.status, (await check(store)).problems) == (RunStatus.FAILED, [])
    with pytest.raises(RunConflict, match="advanced by another process"):
        await store.save(stored, stored.run)


async def test_restore_leaves_a_newer_checkpoint(location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), FIRST)
    odd = history(9).model_copy(update={"version": 2})
    stored = await store.save(stored, stored.run, odd)
    with pytest.raises(NewerFormat, match="has format 2"):
        await restore(store, stored.run.id)
    assert await store.versions(stored.run.id) == [1, 2]


async def test_run_without_a_whole_checkpoint_cannot_go_back(location: str) -> None:
    store = RunStore(location)
    stored = await add(store, COMPLETED, 2)
    execute(location, "update upcall_checkpoints set state = ?", GARBAGE)
    with pytest.raises(SchemaMismatch, match="No older one is whole"):
        await store.load(stored.run.id)
    with pytest.raises(UnknownRun, match="none of its checkpoints is whole"):
        await restore(store, stored.run.id)


async def test_copies_that_stay_whole_at_most_double_the_deltas(location: str) -> None:
    await add(RunStore(location), WAITING, 120)
    sizes = execute(location, "select deltas, length(state) from upcall_checkpoints order by version")
    whole = sum(size for deltas, size in sizes[:-1] if deltas is not None)
    assert 0 < whole <= 2 * sum(size for deltas, size in sizes if deltas is None)


def list_deltas(location: str) -> list[tuple[int, int | None]]:
    return [(row[0], row[1]) for row in execute(location, "select version, deltas from upcall_checkpoints order by 1")]


# -- pruning ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_runs_are_pruned_by_age_and_status(location: str) -> None:
    store = RunStore(location)
    old = await add(store, COMPLETED, 60, days=40, start=1000)
    others = [
        await add(store, status, 3, days) for status, days in ((COMPLETED, 1), (WAITING, 40), (RunStatus.EXECUTING, 40))
    ]
    planned = await prune(store, older_than=timedelta(days=30), dry_run=True)
    assert (planned.runs, len(await store.list())) == ([old.run.id], 4)
    before = (await stats(store)).payload
    done = await prune(store, older_than=timedelta(days=30))
    assert (done, before - (await stats(store)).payload) == (planned, done.bytes)
    assert [await store.load(each.run.id) for each in others] == others
    assert (await check(store)).problems == []
    more = await prune(store, statuses=[WAITING, RunStatus.EXECUTING])
    assert more.runs == [others[1].run.id]


async def test_last_checkpoints_of_runs_are_kept(location: str) -> None:
    store = RunStore(location)
    stored = await add(store, WAITING, 30)
    planned = await prune(store, last_checkpoints=2, dry_run=True)
    assert (await prune(store, last_checkpoints=2), planned.checkpoints) == (planned, 28)
    assert await store.versions(stored.run.id) == [29, 30]
    assert (await store.load(stored.run.id)).checkpoint == history(30)
    assert (await check(store)).problems == []


# -- carrying a run over ----------------------------------------------------------------------------------------------


async def test_run_is_carried_to_another_store(location: str) -> None:
    here, there = RunStore("here.db"), RunStore(location)
    stored = await add_everything(here)
    content = json.loads(json.dumps(await export_run(here, stored.run.id, all_checkpoints=True)))
    imported = await import_run(there, content)
    loaded = await there.load(imported.id)
    assert (loaded.run, loaded.checkpoint, loaded.version) == (stored.run, stored.checkpoint, stored.version)
    assert (imported, loaded.worker) == (stored.run, None)
    again = await export_run(there, imported.id, all_checkpoints=True)
    assert {**again, "log": again["log"][:-1], "digest": ""} == {**content, "digest": ""}
    assert (again["log"][-1]["kind"], (await check(there)).problems) == ("imported", [])


async def test_taken_id_is_refused_unless_renewed(location: str) -> None:
    store = RunStore(location)
    stored = await add_everything(store)
    content = await export_run(store, stored.run.id)
    before = await stats(store)
    with pytest.raises(ConfigurationError, match="in the store already"):
        await import_run(store, content)
    assert (await stats(store), len(content["checkpoints"])) == (before, 1)
    copy = await store.load((await import_run(store, content, as_new=True)).id)
    assert copy.run.id != stored.run.id
    assert copy.checkpoint.team_state == stored.checkpoint.team_state
    assert await store.load(stored.run.id) == stored


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "This exported run has format 2, .* later version of upcall, one that reads format 2"),
        ({"format": "letter"}, "not a run that upcall exported"),
        ({"queued_answers": []}, "its digest differs"),
        ({"digest": "0"}, "its digest differs"),
    ],
)
async def test_changed_export_is_refused(change: dict[str, object], message: str) -> None:
    store = RunStore("runs.db")
    content = await export_run(store, (await add_everything(store)).run.id)
    with pytest.raises(ConfigurationError, match=message):
        await import_run(RunStore("other.db"), {**content, **change})
    assert not Path("other.db").exists()


@pytest.mark.parametrize("content", [None, [], 7, "x", {"format": "upcall-run", "version": 1}])
async def test_other_file_is_refused(content: object) -> None:
    with pytest.raises(ConfigurationError, match="export"):
        await import_run(RunStore("other.db"), content)
