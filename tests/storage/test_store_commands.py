"""``upcall store ...``, ``list`` and ``inbox`` on real files, in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario import TASK, upcall
from stores import FIRST, execute

from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.store import RunStore

GARBAGE = b"\xa5" * 40


@pytest.mark.slow
def test_run_is_counted_carried_answered_and_pruned() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    assert upcall("log", run_id[:6], "--json").json[0]["kind"] == "started"
    assert upcall("store", "stats", "--json").json["runs"] == {"awaiting_clarification": 1}
    assert "As full JSON" in upcall("store", "stats").out
    assert upcall("store", "check").out.endswith("No damage found.\n")
    assert upcall("store", "export", run_id, "run.json").status == 0
    assert "in the store already" in upcall("store", "import", "run.json").error
    moved = upcall("store", "import", "run.json", "--store", "other.db", "--json").json
    assert (moved["run_id"], moved["status"]) == (run_id, "awaiting_clarification")
    done = upcall("answer", run_id, "Express", "--json", "--store", "other.db").json
    assert done["status"] == "completed"
    assert upcall("store", "prune", "--dry-run", "--status", "completed", "--store", "other.db", "--json").json["runs"]
    assert (
        run_id in upcall("store", "prune", "--status", "completed", "--verbose", "--dry-run", "--store", "other.db").out
    )
    pruned = upcall("store", "prune", "--status", "completed", "--store", "other.db").out
    assert (pruned.startswith("Removed 1 runs and"), run_id in pruned) == (True, False)
    assert upcall("list", "--json", "--store", "other.db").json == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("check --store none.db", "does not exist"),
        ("import letter.json", "it is not JSON"),
        pytest.param("import nothing.json", "No such file", marks=pytest.mark.slow),
        pytest.param("prune --older-than soon", "is not an age", marks=pytest.mark.slow),
        pytest.param("prune --status odd", "Known: queued, initializing", marks=pytest.mark.slow),
        pytest.param("delete abcd --store none.db", "does not exist", marks=pytest.mark.slow),
    ],
)
def test_wrong_use_is_one_line(command: str, message: str) -> None:
    Path("letter.json").write_text('{"dear": ')
    assert message in upcall("store", *command.split()).error


@pytest.mark.slow
async def test_damaged_run_is_listed_and_deleted() -> None:
    store = RunStore("upcall.db")
    for name in ("damaged-one", "whole-one"):
        await store.create(Run(id=name, task="do it", status=RunStatus.AWAITING_CLARIFICATION), FIRST)
    execute("upcall.db", "update upcall_runs set record = ? where id = 'damaged-one'", GARBAGE)
    await store.close()
    listed = {each["run_id"]: each["status"] for each in upcall("list", "--json").json}
    assert listed == {"damaged-one": "damaged", "whole-one": "awaiting_clarification"}
    assert "damaged-one  damaged " in upcall("list").out
    assert upcall("store", "check").status == 1
    assert upcall("store", "delete", "damaged-one").out.startswith("Run damaged-one was deleted")
    assert upcall("store", "check").status == 0


@pytest.mark.slow
async def test_list_continues_behind_a_run() -> None:
    store = RunStore("upcall.db")
    for number in range(3):
        await store.create(Run(id=f"run-{number}", task="do it"), FIRST)
    await store.close()
    first = upcall("list", "--limit", "2")
    assert [line.split()[0] for line in first.out.splitlines()] == ["run-2", "run-1"]
    assert "upcall list --before run-1" in first.err
    assert upcall("list", "--before", "run-1", "--json").json[0]["run_id"] == "run-0"


@pytest.mark.slow
async def test_restored_run_waits_for_earlier_questions() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    store = RunStore("upcall.db")
    stored = await store.load(run_id)
    await store.save(stored, stored.run, stored.checkpoint.model_copy(update={"version": 0}))
    await store.close()
    assert "is damaged" in upcall("answer", run_id, "Express").error
    assert upcall("store", "restore", run_id, "--json").json["questions"][0]["id"] == stored.run.questions[0].id
    assert upcall("answer", run_id, "Express", "--json").json["status"] == "completed"


@pytest.mark.slow
def test_password_is_never_shown() -> None:
    ended = upcall("store", "check", "--store", "postgresql://me:hush-hush@127.0.0.1:1/db?password=hush-hush")
    assert "postgresql://me@127.0.0.1:1/db" in ended.error
    assert "hush" not in ended.out + ended.err
    shown = upcall("list", "--debug", "--store", "postgresql://me:hush-hush@127.0.0.1:1/db")
    assert "hush" not in shown.out + shown.err
