"""What is done with a store as a whole, on both databases, and on the command line in processes of their own."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from scenario import TASK, upcall
from stores import FIRST, execute, history

from upcall import identity
from upcall.errors import ConfigurationError, RunConflict, SchemaMismatch, UnknownRun
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.run import Run, RunStatus
from upcall.storage import packing
from upcall.storage.export import export_run, import_run
from upcall.storage.maintenance import check, prune, restore, stats
from upcall.storage.store import RunStore, StoredRun

COMPLETED = RunStatus.COMPLETED


async def run_with(
    store: RunStore, status: RunStatus, checkpoints: int = 3, days: int = 0, start: int = 0
) -> StoredRun:
    """A run with a few checkpoints that was last changed so many days ago."""
    stored = await store.create(Run(task=f"{status} {start}"), history(start + 1))
    for length in range(start + 2, start + checkpoints + 1):
        stored = await store.save(stored, stored.run, history(length))
    then = identity.now() - timedelta(days=days)
    return await store.save(stored, stored.run.model_copy(update={"status": status, "updated_at": then}))


async def test_a_store_is_counted(location: str) -> None:
    store = RunStore(location)
    await run_with(store, COMPLETED, 20)
    await run_with(store, RunStatus.FAILED, 2)
    found = await stats(store)
    assert found.runs == {"completed": 1, "failed": 1}
    assert (found.checkpoints, found.rows["upcall_checkpoints"]) == (22, 22)
    whole = sum(len(packing._dump(history(length).as_json())) for length in (*range(1, 21), 1, 2))
    assert abs(found.as_json - whole) < 0.05 * whole
    assert found.ratio > 5
    assert found.payload == sum(found.bytes.values()) < found.file


async def test_a_whole_store_has_no_problems(location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), history(60))
    await store.record(stored, {"lead:1": "a reply"})
    found = await check(store)
    assert (found.problems, found.runs, found.checkpoints, found.unreferenced) == ([], 1, 1, 0)
    assert found.blobs > 20


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("delete from upcall_blobs where hash = (select hash from upcall_blobs limit 1)", "is missing"),
        ("update upcall_blobs set data = (select data from upcall_blobs limit 1)", "does not fit"),
        ("update upcall_checkpoints set state = (select data from upcall_blobs limit 1)", "damaged"),
        ("update upcall_runs set record = (select data from upcall_blobs limit 1)", "The record of run"),
        (
            "update upcall_journal set record = (select data from upcall_blobs limit 1)",
            "its journal is damaged at 'lead:1'",
        ),
        ("delete from upcall_checkpoints", "has no checkpoint"),
        ("delete from upcall_runs", "which is not there"),
        ("drop table upcall_mail", "upcall_mail is missing"),
        ("update upcall_meta set value = '99'", "has schema version 99"),
    ],
)
async def test_what_is_damaged_is_found(damage: str, told: str, location: str) -> None:
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), history(60))
    await store.record(stored, {"lead:1": "a reply"})
    await store.close()
    execute(location, damage)
    problems = (await check(RunStore(location))).problems
    assert any(told in problem for problem in problems), problems


async def test_a_damaged_checkpoint_names_the_one_to_go_back_to_and_it_loads(location: str) -> None:
    """The last good state loads."""
    store = RunStore(location)
    stored = await run_with(store, RunStatus.AWAITING_CLARIFICATION, 3)
    execute(location, "update upcall_checkpoints set state = ? where version = 3", b"\x00" * 40)
    run_id = stored.run.id
    with pytest.raises(
        SchemaMismatch, match=rf"version 3.* damaged.*version 2 is whole.*upcall store restore {run_id}"
    ):
        await store.load(run_id)
    assert any("store restore" in problem for problem in (await check(store)).problems)
    assert await store.checkpoint(run_id, 2) == history(2)
    back = await restore(store, run_id[:6])
    loaded = await store.load(run_id)
    assert (loaded.run, loaded.checkpoint) == (back, history(2))
    assert (back.status, loaded.version) == (RunStatus.FAILED, stored.version + 1)
    assert (await check(store)).problems == []
    with pytest.raises(RunConflict, match="moved on by another process"):
        await store.save(stored, stored.run)


async def test_where_no_checkpoint_is_whole_that_is_said(location: str) -> None:
    store = RunStore(location)
    stored = await run_with(store, COMPLETED, 2)
    execute(location, "update upcall_checkpoints set state = ?", b"\x00" * 40)
    with pytest.raises(SchemaMismatch, match="No older one is whole"):
        await store.load(stored.run.id)
    with pytest.raises(UnknownRun, match="none of its checkpoints is whole"):
        await restore(store, stored.run.id)


async def test_runs_are_pruned_by_age_and_status_and_the_others_stay_whole(location: str) -> None:
    store = RunStore(location)
    old = await run_with(store, COMPLETED, 60, days=40, start=1000)
    new = await run_with(store, COMPLETED, 60, days=1)
    waits = await run_with(store, RunStatus.AWAITING_CLARIFICATION, 3, days=40)
    works = await run_with(store, RunStatus.EXECUTING, 3, days=40)
    planned = await prune(store, older_than=timedelta(days=30), dry_run=True)
    assert planned.runs == [old.run.id]
    assert len(await store.list()) == 4
    before = (await stats(store)).payload
    done = await prune(store, older_than=timedelta(days=30))
    assert done == planned
    assert before - (await stats(store)).payload == done.bytes
    with pytest.raises(UnknownRun):
        await store.load(old.run.id)
    for each in (new, waits, works):
        assert await store.load(each.run.id) == each
    assert ((await check(store)).problems, (await check(store)).unreferenced) == ([], 0)
    more = await prune(store, statuses=[RunStatus.AWAITING_CLARIFICATION, RunStatus.EXECUTING])
    assert more.runs == [waits.run.id]


async def test_of_runs_that_stay_the_last_checkpoints_are_kept(location: str) -> None:
    store = RunStore(location)
    stored = await run_with(store, RunStatus.AWAITING_CLARIFICATION, 30)
    await prune(store, last_checkpoints=2)
    assert await store.versions(stored.run.id) == [29, 30]
    assert (await store.load(stored.run.id)).checkpoint == history(30)
    assert (await check(store)).problems == []


async def test_what_was_pruned_is_stored_again_when_it_is_needed_again(location: str) -> None:
    """A writer knows which nodes are there from its last write; prune must not make that wrong."""
    store = RunStore(location)
    stored = await store.create(Run(task="do it"), history(60))
    stored = await store.save(stored, stored.run, FIRST)
    await prune(store, last_checkpoints=1)
    stored = await store.save(stored, stored.run, history(60))
    assert await RunStore(location).load(stored.run.id) == stored
    assert (await check(store)).problems == []


async def asked(store: RunStore) -> StoredRun:
    """A run at work with all that can belong to one: journal, mail, log, several checkpoints."""
    question = Question(question="Which framework?", path=("lead", "coder"))
    stored = await store.create(Run(task="do \x00 \u2028 it", status=RunStatus.EXECUTING, user="alice"), history(30))
    stored = await store.save(stored, stored.run.model_copy(update={"questions": (question,)}), history(40))
    await store.record(stored, {"lead:1": "a \x00 reply"})
    assert await store.enqueue_answers(stored.run.id, [Answer(question_id=question.id, text="Express")])
    await store.note(stored.run.id, "seen", "bob", where="here")
    return stored


async def test_a_run_is_carried_to_another_store(location: str) -> None:
    here, there = RunStore("here.db"), RunStore(location)
    stored = await asked(here)
    content = json.loads(json.dumps(await export_run(here, stored.run.id, all_checkpoints=True)))
    imported = await import_run(there, content)
    loaded = await there.load(stored.run.id)
    assert (loaded.run, loaded.checkpoint, loaded.version) == (stored.run, stored.checkpoint, stored.version)
    assert imported == loaded.run
    assert loaded.worker is None
    assert await there.checkpoint(stored.run.id, 1) == history(30)
    assert await there.journal(stored.run.id) == await here.journal(stored.run.id)
    assert await there.queued_answers(stored.run.id) == await here.queued_answers(stored.run.id)
    kinds = [(entry.kind, entry.user) for entry in await there.log(stored.run.id)]
    assert kinds == [*((entry.kind, entry.user) for entry in await here.log(stored.run.id)), ("imported", None)]
    assert (await check(there)).problems == []


async def test_an_id_that_is_taken_is_refused_unless_it_is_to_be_new(location: str) -> None:
    store = RunStore(location)
    stored = await asked(store)
    content = await export_run(store, stored.run.id)
    assert len(content["checkpoints"]) == 1
    before = await stats(store)
    with pytest.raises(ConfigurationError, match="in the store already"):
        await import_run(store, content)
    assert await stats(store) == before
    copy = await import_run(store, content, as_new=True)
    assert copy.id != stored.run.id
    there = (await store.load(copy.id)).checkpoint
    assert (there.team_state, there.inbox) == (stored.checkpoint.team_state, stored.checkpoint.inbox)
    assert await store.load(stored.run.id) == stored


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "exported in version 2 of the format; this version of upcall reads version 1"),
        ({"format": "letter"}, "no run that upcall exported"),
        ({"mail": []}, "its digest does not fit"),
        ({"digest": "0"}, "its digest does not fit"),
    ],
)
async def test_a_file_that_is_damaged_or_too_new_is_refused(change: dict[str, object], told: str) -> None:
    store = RunStore("runs.db")
    content = await export_run(store, (await asked(store)).run.id)
    with pytest.raises(ConfigurationError, match=told):
        await import_run(RunStore("other.db"), {**content, **change})
    assert not Path("other.db").exists()


@pytest.mark.parametrize("content", [None, [], 7, "x", {"format": "upcall-run", "version": 1}])
async def test_what_is_no_export_is_refused(content: object) -> None:
    with pytest.raises(ConfigurationError, match="export"):
        await import_run(RunStore("other.db"), content)


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands_over_the_life_of_a_run() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    assert upcall("log", run_id[:6], "--json").json[0]["kind"] == "started"
    assert "asked" in upcall("log", run_id).out
    assert upcall("store", "stats", "--json").json["runs"] == {"awaiting_clarification": 1}
    assert "As whole JSON" in upcall("store", "stats").out
    assert upcall("store", "check").out.endswith("All is well.\n")
    assert upcall("store", "export", run_id, "run.json").status == 0
    assert "in the store already" in upcall("store", "import", "run.json").error
    moved = upcall("store", "import", "run.json", "--store", "other.db", "--json").json
    assert (moved["run_id"], moved["status"]) == (run_id, "awaiting_clarification")
    done = upcall("answer", run_id, "Express", "--json", "--store", "other.db").json
    assert done["status"] == "completed"
    assert upcall("store", "prune", "--dry-run", "--status", "completed", "--store", "other.db", "--json").json["runs"]
    assert f"({run_id})" in upcall("store", "prune", "--status", "completed", "--store", "other.db").out
    assert upcall("list", "--json", "--store", "other.db").json == []


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("check --store none.db", "does not exist"),
        ("import letter.json", "it is no JSON"),
        pytest.param("import nothing.json", "No such file", marks=pytest.mark.slow),
        pytest.param("prune --older-than soon", "is no age", marks=pytest.mark.slow),
        pytest.param("prune --status odd", "Known: initializing", marks=pytest.mark.slow),
    ],
)
def test_wrong_use_is_one_line(command: str, says: str) -> None:
    Path("letter.json").write_text('{"dear": ')
    assert says in upcall("store", *command.split()).error


@pytest.mark.slow
def test_the_log_of_an_unknown_run_is_refused_as_json() -> None:
    assert upcall("log", "abcd", "--json").json["error"].startswith("Unknown run 'abcd'")


@pytest.mark.slow
async def test_a_damaged_store_is_checked_with_status_1(tmp_path: Path) -> None:
    stored = await run_with(RunStore("upcall.db"), COMPLETED, 2)
    execute("upcall.db", "update upcall_checkpoints set state = ? where version = 2", b"\x00" * 40)
    ended = upcall("store", "check", "--json")
    assert ended.status == 1
    assert any(stored.run.id in problem for problem in ended.json["problems"])
    assert "damaged" in upcall("show", stored.run.id).error
    assert "resume" in upcall("store", "restore", stored.run.id).out
    assert upcall("store", "check").status == 0


@pytest.mark.slow
def test_a_run_that_was_taken_back_waits_for_what_was_asked_then() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    question = upcall("show", run_id, "--json").json["questions"][0]
    assert upcall("answer", run_id, "Express", "--json").json["status"] == "completed"
    last = execute("upcall.db", "select max(version) from upcall_checkpoints")[0][0]
    execute("upcall.db", "update upcall_checkpoints set state = ? where version = ?", b"\x00" * 40, last)
    assert "upcall store restore" in upcall("show", run_id).error
    back = upcall("store", "restore", run_id, "--json").json
    while back["status"] == "awaiting_clarification" and back["questions"][0]["id"] != question["id"]:
        raise AssertionError(back)
    done = upcall(
        "answer" if back["questions"] else "resume", run_id, *(["Django"] if back["questions"] else []), "--json"
    )
    assert done.json["status"] == "completed"


def test_a_password_is_never_shown() -> None:
    ended = upcall("store", "check", "--store", "postgresql://me:hush-hush@127.0.0.1:1/db?password=hush-hush")
    assert "postgresql://me@127.0.0.1:1/db" in ended.error
    assert "hush" not in ended.out + ended.err
    shown = upcall("list", "--debug", "--store", "postgresql://me:hush-hush@127.0.0.1:1/db")
    assert "hush" not in shown.out + shown.err
