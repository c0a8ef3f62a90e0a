"""Lists of runs, on both databases: pages, who sees what, what is due; and damaged runs, which stop nothing else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from stores import FIRST, execute

from upcall import Upcall, identity
from upcall.errors import RunBusy, SchemaMismatch, UnknownRun
from upcall.execution.access import AUDITED
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.config import RunConfig
from upcall.runs.events import AccessRefused, QuestionOverdue, RunResumed
from upcall.runs.run import Run
from upcall.runs.run_filter import RunFilter
from upcall.runs.run_page import EVERYBODY, Viewer
from upcall.runs.states import RunStatus
from upcall.storage.maintenance import check, prune
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun

NOW = identity.now()
WAITING = RunStatus.AWAITING_CLARIFICATION
ALICE = Viewer("alice", frozenset({"alice", "role:reviewer", EVERYBODY}))


async def add(store: RunStore, name: str, age: int = 0, **fields: object) -> StoredRun:
    """Return a run that was created so many seconds ago."""
    at = NOW - timedelta(seconds=age)
    run = Run(id=name, task=name, created_at=at, updated_at=at).model_copy(update=fields)
    return await store.create(run, FIRST)


def asking(age: int = 0, **fields: object) -> dict[str, object]:
    """Return the fields of a run with a question of so many seconds ago."""
    question = Question(question="Which framework?", path=("lead",), asked_at=NOW - timedelta(seconds=age))
    return {"status": WAITING, "records": QuestionRecords.build([question.model_copy(update=fields)])}


async def test_pages_follow_one_another_newest_first(location: str) -> None:
    store = RunStore(location)
    for number in range(5):
        await add(store, f"run-{number}", age=number // 2)  # Two were created in the same second.
    pages, before = [], None
    while True:
        page = await store.list(limit=2, before=before)
        pages.append([run.id for run in page])
        before = page.next
        if before is None:
            break
    assert pages == [["run-1", "run-0"], ["run-3", "run-2"], ["run-4"]]
    assert [run.id for run in await store.list()] == [run_id for page in pages for run_id in page]


async def test_page_behind_an_unknown_run_is_refused(location: str) -> None:
    store = RunStore(location)
    await add(store, "one")
    with pytest.raises(UnknownRun):
        await store.list(before="two")


async def test_long_list_is_read_in_several_statements(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.storage.run_lists.AT_ONCE", 3)
    store = RunStore(location)
    for number in range(8):
        await add(store, f"run-{number}", **(asking(number) if number % 2 else {}))
    assert len(await store.list()) == 8
    assert [run.id for run in await store.list(limit=4)] == ["run-7", "run-6", "run-5", "run-4"]
    assert [run.id for run in await store.list_open()] == ["run-7", "run-5", "run-3", "run-1"]


async def test_list_has_the_runs_of_some_statuses(location: str) -> None:
    store = RunStore(location)
    for status in RunStatus:
        await add(store, status.value, status=status)
    found = await store.list(only=RunFilter(frozenset({WAITING, RunStatus.FAILED})))
    assert {run.status for run in found} == {WAITING, RunStatus.FAILED}
    assert await store.list(only=RunFilter(frozenset())) == []


async def test_viewer_gets_own_open_and_assigned_runs(location: str) -> None:
    store = RunStore(location)
    await add(store, "operators")
    await add(store, "open", config=RunConfig(open=True), **asking(age=9))
    await add(store, "hers", user="alice")
    await add(store, "his", user="bob")
    await add(store, "for-her", user="bob", **asking(assignee="role:reviewer"))
    await add(store, "for-another", user="bob", **asking(assignee="role:review"))
    assert {run.id for run in await store.list(ALICE)} == {"open", "hers", "for-her"}
    assert [run.id for run in await store.list_open(ALICE, limit=1)] == ["for-her"]
    assert [await store.find(each, ALICE) for each in ("for-", "oper", "hers")] == [["for-her"], [], ["hers"]]


async def test_open_questions_come_oldest_first_where_answerable(location: str) -> None:
    store = RunStore(location)
    await add(store, "second", age=9, **asking(age=1))
    await add(store, "first", age=5, **asking(age=5))
    await add(store, "failed", **(asking() | {"status": RunStatus.FAILED}))
    answered = await add(store, "answered", **asking(age=7))
    await store.save(answered, answered.run.model_copy(update={"records": QuestionRecords()}))
    assert [run.id for run in await store.list_open()] == ["first", "second"]


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        (asking(), None),
        (asking(expires_at=NOW + timedelta(seconds=60)), 60),
        (asking(expires_at=NOW + timedelta(seconds=60)) | {"status": RunStatus.EXECUTING}, 60),
        (asking(expires_at=NOW + timedelta(seconds=60)) | {"status": RunStatus.FAILED}, None),
        (asking(age=10) | {"config": RunConfig(remind_after=60)}, 50),
    ],
)
async def test_run_is_due_at_its_questions_times(fields: dict[str, object], due: int | None, location: str) -> None:
    store = RunStore(location)
    await add(store, "run", **fields)
    found = [await store.list_due(NOW + timedelta(seconds=after)) for after in ((due or 100) - 1, due or 100)]
    assert found == [[], ["run"] if due else []]


@pytest.mark.parametrize(("on_expiry", "due"), [("wait", []), ("assume", ["run"])])
async def test_overdue_question_is_noted_once_unless_something_follows(
    on_expiry: str, due: list[str], location: str
) -> None:
    store = RunStore(location)
    waiting = asking(expires_at=NOW)
    noted = [each.model_copy(update={"noted_overdue": True}) for each in waiting["records"]]  # type: ignore[attr-defined]
    await add(
        store, "run", records=QuestionRecords(tuple(noted)), status=WAITING, config=RunConfig(on_expiry=on_expiry)
    )
    assert await store.list_due(NOW) == due


async def test_trail_is_read_by_kind_and_page(location: str) -> None:
    store = RunStore(location)
    for name, user in (("one", "alice"), ("two", "bob"), ("three", None)):
        await add(store, name, user=user)
    await store.events.append("two", AccessRefused(user="alice", action="show"))
    await store.events.append("two", RunResumed(user="alice"))
    everything = await store.events.read_all(types=AUDITED)
    assert [entry.run_id for entry in everything] == ["one", "two", "three", "two", "two"]
    assert await store.events.read_all(everything[0].id, types=AUDITED, limit=2) == everything[1:3]
    hers = [(entry.run_id, entry.kind) for entry in await store.events.read_all(types=AUDITED, user="alice")]
    assert hers == [("one", "started"), ("two", "resumed")]


# -- a damaged run ----------------------------------------------------------------------------------------------------


async def damage(location: str) -> RunStore:
    """Return a store of three runs that wait; the record of one of them is not what was written."""
    store = RunStore(location)
    for number, name in enumerate(("newest", "damaged-one", "oldest")):
        await add(store, name, age=number, **asking(age=number, expires_at=NOW))
    execute(location, "update upcall_runs set record = ? where id = 'damaged-one'", b"\xa5" * 60)
    await store.close()
    return RunStore(location)


async def test_damaged_run_is_named_and_others_are_read(location: str) -> None:
    store = await damage(location)
    page, questions = await store.list(limit=2), await Upcall(store=store).inbox()
    assert ([run.id for run in page], [each.id for each in page.damaged]) == (["newest"], ["damaged-one"])
    assert [entry.run_id for entry in questions] == ["oldest", "newest"]
    assert "The record of run damaged-one is damaged" in questions.damaged[0].problem
    with pytest.raises(SchemaMismatch, match="damaged-one is damaged"):
        await store.load("dama")


async def test_damaged_run_keeps_no_other_from_expiring(location: str) -> None:
    store = await damage(location)
    await Upcall(store=store).expire(NOW)
    overdue = [entry.run_id for entry in await store.events.read_all(types=[QuestionOverdue])]
    assert overdue == ["newest", "oldest"]


async def test_damaged_run_is_pruned_like_any_other(location: str) -> None:
    store = await damage(location)
    assert len((await prune(store, statuses=[WAITING], older_than=timedelta(seconds=-1))).runs) == 3


async def test_damaged_run_is_deleted(location: str) -> None:
    store = await damage(location)
    assert await store.delete("damaged-one") == "damaged-one"
    assert ((await store.list()).damaged, (await check(store)).problems) == ([], [])
    with pytest.raises(UnknownRun):
        await store.delete("damaged-one")


async def test_run_that_is_being_worked_on_is_not_deleted(location: str) -> None:
    store = RunStore(location)
    stored = await add(store, "busy", status=RunStatus.EXECUTING)
    with pytest.raises(RunBusy):
        await store.delete("busy")
    assert await store.load("busy") == stored


async def test_damaged_page_hides_only_its_own_runs() -> None:
    """SQLite refuses to read such a page; what stands on others is listed all the same."""
    store = RunStore("runs.db")
    for number in range(40):
        await add(store, f"run-{number:02}", age=number, result="x" * 300 + str(hash(number) ** 9))
    await store.close()
    whole, page = Path("runs.db").read_bytes(), 4096
    (place,) = execute("runs.db", "select max(pageno) from dbstat where name = 'upcall_runs' and pagetype = 'leaf'")[0]
    Path("runs.db").write_bytes(whole[: (place - 1) * page] + b"\xa5" * page + whole[place * page :])
    found = await RunStore("runs.db").list()
    assert 0 < len(found.damaged) < 40
    assert len(found) + len(found.damaged) == 40
    assert "the file is damaged there" in found.damaged[0].problem
    assert any(found.damaged[0].id in problem for problem in (await check(RunStore("runs.db"))).problems)
