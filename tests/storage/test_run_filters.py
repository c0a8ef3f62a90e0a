"""Filters of the list of runs, and how its pages are found: by an index, however many runs there are of others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from stores import FIRST, execute

from upcall import identity
from upcall.errors import CallerError
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.config import RunConfig
from upcall.runs.run import Run, Usage
from upcall.runs.run_filter import RunFilter, parse_filter
from upcall.runs.run_page import EVERYBODY, Viewer
from upcall.runs.states import RunStatus
from upcall.storage import run_lists
from upcall.storage.store import RunStore

NOW = identity.now()
ALICE = Viewer("alice", frozenset({"alice", "role:reviewer", EVERYBODY}))
BOB = Viewer("bob", frozenset({"bob", EVERYBODY}))


async def add(store: RunStore, name: str, age: int = 0, task: str = "Build it", **fields: Any) -> None:
    """Store a run that was created, and last changed, so many minutes ago."""
    at = NOW - timedelta(minutes=age)
    run = Run(id=name, task=task, created_at=at, updated_at=at).model_copy(update=fields)
    await store.create(run, FIRST)


def asked(assignee: str | None = None) -> dict[str, Any]:
    """Return the fields of a run with an open question for somebody."""
    question = Question(question="Which?", path=("lead",), asked_at=NOW, assignee=assignee)
    return {"status": RunStatus.AWAITING_CLARIFICATION, "records": QuestionRecords.build([question])}


async def fill(location: str) -> RunStore:
    store = RunStore(location)
    await add(store, "old", 90, "Mend the\nLogin page", user="alice", status=RunStatus.COMPLETED)
    await add(store, "new", 1, "Write 100% of the docs", user="alice", status=RunStatus.FAILED)
    worked = {"lead-2/coder": Usage(model_calls=1)}
    await add(store, "his", 2, "Mend the LOGIN form", user="bob", status=RunStatus.COMPLETED, usage=worked)
    await add(store, "operators", 3, "Say login", status=RunStatus.QUEUED)
    await add(store, "reviewed", 4, "Hide the login", user="bob", **asked("role:reviewer"))
    await add(store, "open", 5, "Open the login", user="bob", config=RunConfig(open=True))
    return store


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "new his operators reviewed open old"),
        ({"statuses": ["completed", "failed"]}, "new his old"),
        ({"owner": "alice"}, "new old"),
        ({"owner": "nobody"}, ""),
        ({"text": "login"}, "his operators reviewed open old"),
        ({"text": "  the   login "}, "his reviewed open old"),
        ({"text": "100% of"}, "new"),
        ({"text": "10_% of"}, ""),
        ({"text": "OPERA"}, "operators"),
        ({"agent": "lead"}, "reviewed"),
        ({"agent": "coder"}, "his"),
        ({"agent": "ledger/lead"}, ""),
        ({"agent": "code"}, ""),
        ({"agent": "coder", "owner": "alice"}, ""),
        ({"older_than": "1h"}, "old"),
        ({"newer_than": "150s"}, "new his"),
        ({"owner": "bob", "statuses": ["completed"], "text": "form"}, "his"),
    ],
)
async def test_filter_lets_through_what_fits_all_of_it(wanted: dict[str, Any], found: str, location: str) -> None:
    store = await fill(location)
    page = await store.list(only=parse_filter(**wanted, now=NOW), limit=10)
    assert ([run.id for run in page], page.next) == (found.split(), None)


@pytest.mark.parametrize(
    ("viewer", "wanted", "found"),
    [
        (ALICE, RunFilter(), "new reviewed open old"),
        (BOB, RunFilter(), "his reviewed open"),
        # The task of a run is not hers to read, of which one question is assigned to her.
        (ALICE, RunFilter(text="login"), "open old"),
        (BOB, RunFilter(text="login"), "his reviewed open"),
        (ALICE, RunFilter(text="form", named=frozenset({"old", "his", "reviewed"})), "old"),
        # Nor who works at it.
        (ALICE, RunFilter(agent="lead"), ""),
        (BOB, RunFilter(agent="lead"), "reviewed"),
        (ALICE, RunFilter(owner="bob"), "reviewed open"),
        (ALICE, RunFilter(statuses=frozenset({RunStatus.AWAITING_CLARIFICATION})), "reviewed"),
    ],
)
async def test_viewer_searches_only_what_is_theirs_to_read(
    viewer: Viewer, wanted: RunFilter, found: str, location: str
) -> None:
    store = await fill(location)
    assert [run.id for run in await store.list(viewer, only=wanted)] == found.split()


async def test_page_of_rare_runs_ends_early_and_continues(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lists, "LOOKED_AT", 3)
    store, pages, before = await fill(location), [], None
    for _ in range(5):
        page = await store.list(only=RunFilter(text="login page"), limit=1, before=before)
        pages.append([run.id for run in page])
        before = page.next
        if before is None:
            break
    assert pages == [[], ["old"]]


async def test_inbox_pages_follow_one_another_though_answers_come(location: str) -> None:
    store = RunStore(location)
    for number in range(5):
        await add(store, f"run-{number}", user="bob", **asked("alice" if number else None))
    first = await store.list_open(ALICE, limit=2)
    await store.delete(first[-1].id)
    second = await store.list_open(ALICE, limit=2, after=first.next)
    assert [run.id for run in (*first, *second)] == ["run-1", "run-2", "run-3", "run-4"]
    assert second.next is None
    with pytest.raises(CallerError, match="no place 'run-2'"):
        await store.list_open(after="run-2")


async def test_run_assigned_anew_is_in_the_other_list(location: str) -> None:
    store = RunStore(location)
    await add(store, "run", user="bob", **asked("alice"))
    stored = await store.load("run")
    (record,) = stored.run.records
    moved = record.model_copy(update={"question": record.question.model_copy(update={"assignee": "carol"})})
    await store.save(stored, stored.run.model_copy(update={"records": QuestionRecords((moved,))}))
    carol = Viewer("carol", frozenset({"carol"}))
    assert [[run.id for run in await store.list(each)] for each in (ALICE, carol)] == [[], ["run"]]
    assert [[run.id for run in await store.list_open(each)] for each in (ALICE, carol)] == [[], ["run"]]


@pytest.mark.parametrize("wrong", [{"statuses": ["done"]}, {"older_than": "soon"}, {"text": "a\0b"}])
def test_filter_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CallerError):
        parse_filter(**wrong, now=NOW)


@pytest.mark.parametrize(
    ("read", "index"),
    [
        (lambda store: store.list(limit=50), "upcall_runs_created"),
        (lambda store: store.list(ALICE, limit=50), "upcall_runs_owner "),
        (lambda store: store.list(only=RunFilter(owner="alice"), limit=50), "upcall_runs_owner "),
        (lambda store: store.list(only=RunFilter(frozenset({RunStatus.FAILED})), limit=50), "upcall_runs_status"),
        (lambda store: store.list_open(limit=50), "upcall_runs_asked"),
        (lambda store: store.list_open(ALICE, limit=50), "upcall_runs_owner_asked"),
    ],
)
async def test_list_is_read_from_an_index_and_never_sorted(read: Any, index: str) -> None:
    """SQLite says how it finds the rows: no table is gone through, and nothing is sorted."""
    store = await fill("runs.db")
    statements: list[str] = []
    real = run_lists._walk

    def note(connection: Any, source: Any, direction: str, start: Any) -> Any:
        class Noting:
            dialect = "sqlite"

            def execute(self, statement: str, values: Any) -> Any:
                plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
                statements.append(" | ".join(row[-1] for row in plan) + " ")
                return connection.execute(statement, values)

        return real(Noting(), source, direction, start)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_lists, "_walk", note)
        await read(store)
    assert index in statements[0]
    for plan in statements:
        assert "TEMP B-TREE" not in plan
        assert "SCAN upcall_runs" not in plan.replace("SCAN upcall_runs USING COVERING INDEX", "")


async def test_text_is_searched_in_the_folded_task(location: str) -> None:
    store = await fill(location)
    columns = execute(location, "select task from upcall_runs where id = 'old'")
    assert columns == [("mend the login page",)]
    assert (await store.list(only=RunFilter(text="LOGIN PAGE")))[0].id == "old"
