"""A question is stored and emitted while siblings still work, and who asked continues as soon as it is answered."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallRequestEvent, UserInputRequestedEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from conversation import read_to_end, soon
from shapes import join_branches

from upcall import Answer, AnsweredBy, Run, RunStatus, Settings, Upcall
from upcall.agents import NestedTeam, PausableAgent
from upcall.autogen.messages import event_path
from upcall.errors import AlreadyAnswered, RunNotWaiting, StoreUnavailable, TooLarge
from upcall.storage.queued_answers import QueuedAnswers
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun
from upcall.testing import Call, Calls, Fail, Reply, Request, ScriptedModelClient

ASK = Call("ask_user", {"question": "Which framework?"})
BOTH = Calls([Call("coder", {"task": "Code"}), Call("searcher", {"task": "Search"})])


class Bench:
    """A coder that asks beside a searcher whose tool takes as long as the test wants."""

    def __init__(self, client: ScriptedModelClient, store: Path) -> None:
        self.client, self.store = client, store
        self.searched = asyncio.Event()

    async def search(self) -> str:
        """Search slowly."""
        await self.searched.wait()
        return "Found."

    def worker(self, name: str, **options: Any) -> PausableAgent:
        return PausableAgent(name, self.client, description=name, system_message=f"You are the {name}.", **options)

    def nested(self) -> Team:
        agents = [self.worker("coder"), self.worker("searcher", tools=[self.search], ask_user=False)]
        return RoundRobinGroupChat([self.worker("lead", agents=agents)], max_turns=1)

    def branches(self) -> Team:
        start, coder, end = self.worker("start"), self.worker("coder"), self.worker("lead")
        searcher = self.worker("searcher", tools=[self.search], ask_user=False)
        return join_branches(start, coder, searcher, end)

    def nested_branches(self) -> Team:
        return RoundRobinGroupChat([NestedTeam(self.branches(), name="crew")], max_turns=1)

    def app(self, make: Callable[[], Team]) -> Upcall:
        return Upcall(team=make, store=self.store)

    def calls_of(self, name: str) -> int:
        return sum(request.system.startswith(f"You are the {name}") for request in self.client.requests)

    async def until(self, done: Callable[[], bool]) -> None:
        while not done():
            await asyncio.sleep(0.01)


NESTED: dict[str, list[Reply]] = {
    "You are the coder": [ASK, "Coded."],
    "You are the searcher": [Call("search", {}), "Searched."],
    "You are the lead": [BOTH, "All done."],
}
BRANCHES = NESTED | {"You are the start": ["Go."], "You are the lead": ["All done."]}

SHAPES = pytest.mark.parametrize(
    ("shape", "script", "path"),
    [
        ("nested", NESTED, ("lead", "coder")),
        ("branches", BRANCHES, ("coder",)),
        ("nested_branches", BRANCHES, ("crew", "coder")),
    ],
)


async def asked(stream: AsyncIterator[Any]) -> str:
    """Return the id of the question that the events report next."""
    async for event in stream:
        if isinstance(event, UserInputRequestedEvent):
            return event.request_id
    raise AssertionError("nothing was asked")


@SHAPES
async def test_who_is_answered_continues_while_a_sibling_works(
    shape: str, script: dict[str, list[Reply]], path: tuple[str, ...], tmp_path: Path
) -> None:
    """S4-20: the question does not wait for the end of the stream."""
    with ScriptedModelClient(script) as client:
        bench = Bench(client, tmp_path / "runs.db")
        make = getattr(bench, shape)
        stream = bench.app(make).start_stream("Build it", run_id="a-run")
        question_id = await soon(asked(stream))
        run = await bench.app(make).get("a-run")
        assert run.status is RunStatus.EXECUTING
        assert [(question.id, question.path) for question in run.questions] == [(question_id, path)]
        run = await bench.app(make).answer("a-run", {question_id: "Express"})
        assert (run.status, run.questions) == (RunStatus.EXECUTING, ())
        rest = asyncio.create_task(read_to_end(stream))
        await soon(bench.until(lambda: bench.calls_of("coder") == 2))
        assert not rest.done()
        assert not bench.searched.is_set()
        bench.searched.set()
        run = await soon(rest)
    assert (run.status, run.result, run.error) == (RunStatus.COMPLETED, "All done.", None)
    assert [(answer.text, answer.by) for answer in run.answers] == [("Express", AnsweredBy.HUMAN)]
    assert client.requests[-1].system.startswith("You are the lead")
    coder = [request for request in client.requests if request.system.startswith("You are the coder")]
    assert coder[-1].messages[-1]["content"] == "Express"


@pytest.mark.slow
async def test_early_answer_arrives_although_the_store_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes for long, as one that prunes the store does."""
    monkeypatch.setattr("upcall.storage.databases.BUSY_TIMEOUT_S", 0.05)
    with ScriptedModelClient(NESTED) as client:
        bench = Bench(client, tmp_path / "runs.db")
        app = bench.app(bench.nested)
        stream = app.start_stream("Build it", run_id="a-run")
        question_id = await soon(asked(stream))
        rest = asyncio.create_task(read_to_end(stream))
        with contextlib.closing(sqlite3.connect(bench.store, isolation_level=None)) as other:
            await app.answer("a-run", {question_id: "Express"})
            other.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(1)
            other.execute("ROLLBACK")
        await soon(bench.until(lambda: bench.calls_of("coder") == 2))
        bench.searched.set()
        run = await soon(rest)
    assert (run.status, run.result, run.error) == (RunStatus.COMPLETED, "All done.", None)
    assert [answer.text for answer in run.answers] == ["Express"]


@SHAPES
async def test_early_question_nobody_answers_waits_at_the_pause(
    shape: str, script: dict[str, list[Reply]], path: tuple[str, ...], tmp_path: Path
) -> None:
    with ScriptedModelClient(script) as client:
        bench = Bench(client, tmp_path / "runs.db")
        make = getattr(bench, shape)
        bench.searched.set()
        run = await soon(bench.app(make).start("Build it"))
        assert (run.status, [question.path for question in run.questions]) == (RunStatus.AWAITING_CLARIFICATION, [path])
        run = await soon(bench.app(make).answer(run.id, "Express"))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "All done.")


class SlowToEnd(RoundRobinGroupChat):
    """A team that takes as long as the test wants to end."""

    may_end: asyncio.Event

    async def run_stream(self, **given: Any) -> AsyncGenerator[Any, None]:
        async for item in super().run_stream(**given):
            if isinstance(item, TaskResult):
                await self.may_end.wait()
            yield item


async def test_early_answer_too_late_goes_to_the_next_segment(tmp_path: Path) -> None:
    """Nobody else works, so that the team stops before the answer can reach it: the run continues all the same."""
    with ScriptedModelClient({"You are the coder": [ASK, "Coded."]}) as client:
        bench = Bench(client, tmp_path / "runs.db")

        def make() -> Team:
            team = SlowToEnd([bench.worker("coder")], max_turns=1)
            team.may_end = bench.searched
            return team

        stream = bench.app(make).start_stream("Build it", run_id="a-run")
        question_id = await soon(asked(stream))
        given = await bench.app(make).answer("a-run", {question_id: "Express"})
        bench.searched.set()
        run = await soon(read_to_end(stream))
        run = run if run.is_final else await bench.app(make).get("a-run")
    assert (given.status, run.status, run.result) == (RunStatus.EXECUTING, RunStatus.COMPLETED, "Coded.")


async def test_first_answer_stands(tmp_path: Path) -> None:
    with ScriptedModelClient(NESTED) as client:
        bench = Bench(client, tmp_path / "runs.db")
        stream = bench.app(bench.nested).start_stream("Build it", run_id="a-run")
        question_id = await soon(asked(stream))
        app = bench.app(bench.nested)
        await app.store.queue.add("a-run", [Answer(question_id=question_id, text="Express")])
        await app.store.queue.add("a-run", [Answer(question_id=question_id, text="Express")])
        with pytest.raises(AlreadyAnswered, match="that one stands"):
            await app.store.queue.add("a-run", [Answer(question_id=question_id, text="Django")])
        bench.searched.set()
        run = await soon(read_to_end(stream))
    assert [answer.text for answer in run.answers] == ["Express"]
    with pytest.raises(AlreadyAnswered):
        await app.answer("a-run", {question_id: "Django"})


async def test_early_question_returns_after_a_siblings_failure(tmp_path: Path) -> None:
    replies = NESTED | {"You are the searcher": [Fail(500), Call("search", {}), "Searched."]}
    with ScriptedModelClient(replies) as client:
        bench = Bench(client, tmp_path / "runs.db")
        bench.searched.set()
        run = await soon(bench.app(bench.nested).start("Build it"))
        assert (run.status, [question.path for question in run.questions]) == (RunStatus.FAILED, [("lead", "coder")])
        (before,) = run.questions
        run = await soon(bench.app(bench.nested).resume(run.id))
        assert [question.id for question in run.questions] == [before.id]
        run = await soon(bench.app(bench.nested).answer(run.id, "Express"))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "All done.")


async def test_early_answer_to_a_dead_worker_resumes_without_repetition(tmp_path: Path) -> None:
    """The checkpoint knows nothing of the question; the same call asks it again, and has its answer."""
    with ScriptedModelClient(NESTED | {"You are the searcher": [Call("search", {}), "Searched."]}) as client:
        bench = Bench(client, tmp_path / "runs.db")
        stream = bench.app(bench.nested).start_stream("Build it", run_id="a-run")
        question_id = await soon(asked(stream))
        await soon(bench.until(lambda: bench.calls_of("searcher") == 1))
        await stream.aclose()
        bench.searched.set()
        run = await soon(bench.app(bench.nested).answer("a-run", {question_id: "Express"}))
        if run.waiting:  # The search was cut off.
            run = await soon(bench.app(bench.nested).answer(run.id, "Run it again"))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "All done.")
    assert [(answer.text, answer.by) for answer in run.answers if answer.question_id == question_id] == [
        ("Express", AnsweredBy.HUMAN)
    ]


async def test_early_answer_without_a_question_is_refused(tmp_path: Path) -> None:
    with ScriptedModelClient({"You are the searcher": [Call("search", {}), "Searched."]}) as client:
        bench = Bench(client, tmp_path / "runs.db")

        def make() -> Team:
            return RoundRobinGroupChat([bench.worker("searcher", tools=[bench.search], ask_user=False)], max_turns=1)

        working = asyncio.create_task(bench.app(make).start("Search", run_id="a-run"))
        await soon(bench.until(lambda: bench.calls_of("searcher") == 1))
        with pytest.raises(RunNotWaiting, match="waits for no answer"):
            await bench.app(make).answer("a-run", "Express")
        bench.searched.set()
        await soon(working)


async def test_early_fact_is_noted_once_beside_an_answer(tmp_path: Path) -> None:
    """The rest is stored a second time then, with the answer."""
    database = Call("ask_user", {"question": "Which database should I use?"})
    with ScriptedModelClient({"You are the coder": [database, ASK, "Coded."]}) as client:
        bench = Bench(client, tmp_path / "runs.db")

        def make() -> Team:
            return RoundRobinGroupChat([bench.worker("coder")], max_turns=1)

        stream = bench.app(make).start_stream("Build it", run_id="a-run", facts={"database": "SQLite"})
        question_id = await soon(asked(stream))
        await bench.app(make).answer("a-run", {question_id: "Express"})
        await soon(read_to_end(stream))
        run = await bench.app(make).get("a-run")
    assert run.status is RunStatus.COMPLETED
    assert sorted((answer.text, answer.by) for answer in run.answers) == [
        ("Express", AnsweredBy.HUMAN),
        ("SQLite", AnsweredBy.FACTS),
    ]


async def test_early_answer_without_ledger_is_for_its_question_alone(tmp_path: Path) -> None:
    both = Calls([*BOTH.calls, Call("tester", {"task": "Test"})])
    script = NESTED | {"You are the lead": [both, "All done."], "You are the tester": [ASK, "Tested."]}
    with ScriptedModelClient(script) as client:
        bench = Bench(client, tmp_path / "runs.db")

        def make() -> Team:
            searcher = bench.worker("searcher", tools=[bench.search], ask_user=False)
            agents = [bench.worker("coder"), searcher, bench.worker("tester")]
            return RoundRobinGroupChat([bench.worker("lead", agents=agents)], max_turns=1)

        def app() -> Upcall:
            return Upcall(team=make, store=bench.store, settings=Settings.read(None, questions={"ledger": False}))

        stream = app().start_stream("Build it", run_id="a-run")
        first, second = await soon(asked(stream)), await soon(asked(stream))
        await app().answer("a-run", {first: "Express"})
        rest = asyncio.create_task(read_to_end(stream))
        await soon(bench.until(lambda: len(client.requests) == 5))
        bench.searched.set()
        run = await soon(rest)
        assert [question.id for question in run.questions] == [second]
        run = await soon(app().answer("a-run", {second: "Django"}))
    assert [(answer.text, answer.by) for answer in run.answers] == [
        ("Express", AnsweredBy.HUMAN),
        ("Django", AnsweredBy.HUMAN),
    ]


@pytest.mark.parametrize("cut_off", [False, True])
async def test_early_mail_not_yet_taken_is_taken_at_end(
    cut_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sibling fails, or the reader leaves, before the answer is fetched: it is neither lost nor waited for again."""
    monkeypatch.setattr("upcall.execution.segment.ANSWER_POLL_INTERVAL_S", 60)
    again: Reply = Call("search", {}) if cut_off else Fail(500)
    with ScriptedModelClient(NESTED | {"You are the searcher": [Call("search", {}), again, "Searched."]}) as client:
        bench = Bench(client, tmp_path / "runs.db")
        stream = bench.app(bench.nested).start_stream("Build it", run_id="a-run")
        question_id = await soon(asked(stream))
        await bench.app(bench.nested).answer("a-run", {question_id: "Express"})
        if cut_off:
            await stream.aclose()
        bench.searched.set()
        if not cut_off:
            assert (await soon(read_to_end(stream))).status is RunStatus.FAILED
        run = await soon(bench.app(bench.nested).resume("a-run"))
        if run.questions:
            run = await soon(bench.app(bench.nested).answer("a-run", "Express"))
    assert (run.status, run.result, run.questions) == (RunStatus.COMPLETED, "All done.", ())
    assert "Express" in [answer.text for answer in run.answers]


def search_once(failed: bool) -> list[Reply]:
    return [Fail(500)] if failed else [Call("search", {})]


async def answered_and_not_taken_in(
    failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: Mapping[str, Sequence[Reply]]
) -> tuple[Upcall, str]:
    """Return an app whose run was left, or has failed, with an answer that no team has taken in; and which question it
    answers."""
    monkeypatch.setattr("upcall.execution.segment.ANSWER_POLL_INTERVAL_S", 60)
    bench = Bench(ScriptedModelClient(replies), tmp_path / "runs.db")
    app = bench.app(bench.nested)
    stream = app.start_stream("Build it", run_id="a-run")
    question_id = await soon(asked(stream))
    await app.answer("a-run", {question_id: "Express"})
    if failed:
        await soon(read_to_end(stream))
    await stream.aclose()
    return app, question_id


@pytest.mark.parametrize("failed", [False, True])
async def test_early_answer_not_taken_is_shown_as_answered(
    failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks before somebody resumes the run sees no open question, and no second answer is taken."""
    app, question_id = await answered_and_not_taken_in(
        failed, tmp_path, monkeypatch, NESTED | {"You are the searcher": [*search_once(failed), "Searched."]}
    )
    run, (listed,) = await app.get("a-run"), await app.list()
    assert [(each.text, each.by) for each in run.answers] == [("Express", AnsweredBy.HUMAN)]
    assert (run.questions, listed.questions, await app.inbox()) == ((), (), [])
    assert await app.get("a-run") == run
    for given in ("Django", {question_id: "Django"}):
        with pytest.raises(AlreadyAnswered, match=r"by human at .*: 'Express'\. That answer stands"):
            await app.answer("a-run", given)
    run = await soon(app.resume("a-run"))
    assert [each.text for each in run.answers if each.question_id == question_id] == ["Express"]


@pytest.mark.parametrize("failed", [False, True])
async def test_what_nobody_took_in_outlives_the_cancelling(
    failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the human had answered stays on record, and another answer to the question can be tried."""
    app, question_id = await answered_and_not_taken_in(
        failed,
        tmp_path,
        monkeypatch,
        NESTED | {"You are the coder": [ASK, ASK], "You are the searcher": search_once(failed)},
    )
    cancelled = await app.cancel("a-run")
    assert (cancelled.status, [(each.text, each.by) for each in cancelled.answers]) == (
        RunStatus.CANCELLED,
        [("Express", AnsweredBy.HUMAN)],
    )
    assert await app.get("a-run") == cancelled
    assert [each.detail["outcome"] for each in await app.log.audit("a-run") if each.kind == "answered"] == ["answered"]
    assert (await app.forks.plan("a-run", question_id)).answered == cancelled.answers[0]


async def test_early_answer_during_a_cancel_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.execution.segment.ANSWER_POLL_INTERVAL_S", 60)
    bench = Bench(ScriptedModelClient(NESTED), tmp_path / "runs.db")
    app, save = bench.app(bench.nested), RunStore.save
    stream = app.start_stream("Build it", run_id="a-run")
    question_id = await soon(asked(stream))

    async def answer_first(store: RunStore, *args: Any, **options: Any) -> StoredRun:
        await app.answer("a-run", {question_id: "Express"})
        return await save(store, *args, **options)

    monkeypatch.setattr(RunStore, "save", answer_first)
    cancelled = await soon(app.cancel("a-run"))
    await stream.aclose()
    assert [each.text for each in cancelled.answers] == ["Express"]


async def test_cancel_by_many_at_once_leaves_it_cancelled(tmp_path: Path) -> None:
    bench = Bench(ScriptedModelClient({"You are the lead": [ASK]}), tmp_path / "runs.db")
    run = await bench.app(bench.nested).start("Build it")
    ended = await asyncio.gather(*(bench.app(bench.nested).cancel(run.id) for _ in range(4)))
    assert {(each.status, len(each.answers)) for each in ended} == {(RunStatus.CANCELLED, 1)}


async def test_early_answer_to_an_abandoned_asker_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is queued when the clerk's caller has just run out of time; nobody hears it, and it is not lost."""
    limits, timeout = dict[float | None, asyncio.Timeout](), asyncio.timeout
    monkeypatch.setattr("asyncio.timeout", lambda delay: (limits.update({delay: timeout(delay)}), limits[delay])[1])
    monkeypatch.setattr("upcall.execution.segment.ANSWER_POLL_INTERVAL_S", 60)
    script: dict[str, list[Reply]] = {
        "You are the lead": [Call("clerk", {"task": "Buy it"}), "Done without."],
        "You are the clerk": [Calls([Call("coder", {"task": "Code"}), Call("search")])],
        "You are the coder": [ASK],
    }
    with ScriptedModelClient(script) as client:
        bench = Bench(client, tmp_path / "runs.db")

        def make() -> Team:
            clerk = bench.worker("clerk", agents=[bench.worker("coder")], tools=[bench.search])
            return RoundRobinGroupChat([bench.worker("lead", agents=[clerk], nested_timeout=4321)], max_turns=1)

        stream = bench.app(make).start_stream("Buy it", run_id="a-run")
        question_id = await soon(asked(stream))
        await bench.app(make).answer("a-run", {question_id: "Express"})
        limits[4321].reschedule(0)
        run = await soon(read_to_end(stream))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done without.")
    assert [each.text for each in run.answers] == ["Express"]


async def test_early_answer_repeated_continues_where_the_first_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upcall.execution.segment.ANSWER_POLL_INTERVAL_S", 60)
    bench = Bench(ScriptedModelClient(NESTED), tmp_path / "runs.db")
    app = bench.app(bench.nested)
    stream = app.start_stream("Build it", run_id="a-run")
    await app.answer("a-run", {await soon(asked(stream)): "Express"})
    await stream.aclose()
    bench.searched.set()
    run = await soon(app.answer("a-run", "Express"))
    assert (run.under_way, [each.text for each in run.answers]) == (False, ["Express"])


@pytest.mark.slow
async def test_early_work_survives_a_store_busy_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    mail, who_answers = QueuedAnswers.read, asyncio.current_task()

    async def busy(queue: QueuedAnswers, run_id: str) -> Sequence[Answer]:
        nonlocal looks
        looks += asyncio.current_task() is not who_answers
        if looks == 1:
            raise StoreUnavailable("the database is locked")
        return await mail(queue, run_id)

    monkeypatch.setattr(QueuedAnswers, "read", busy)
    with ScriptedModelClient(NESTED) as client:
        bench = Bench(client, tmp_path / "runs.db")
        stream = bench.app(bench.nested).start_stream("Build it", run_id="a-run")
        question_id = await soon(asked(stream))
        await bench.app(bench.nested).answer("a-run", {question_id: "Express"})
        rest = asyncio.create_task(read_to_end(stream))
        await soon(bench.until(lambda: bench.calls_of("coder") == 2))
        bench.searched.set()
        run = await soon(rest)
    assert (looks > 1, run.status) == (True, RunStatus.COMPLETED)


async def test_early_answer_is_stored_before_its_asker_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first attempt to store it fails."""
    save, tries, stored = RunStore.save, list[Run](), list[int]()
    when_continued = list[int]()

    async def busy_once(store: RunStore, before: StoredRun, run: Run, *given: Any, **named: Any) -> StoredRun:
        tries.extend([run] if run.answers else [])
        if run.answers and len(tries) == 1:
            raise StoreUnavailable("the database is locked")
        saved = await save(store, before, run, *given, **named)
        stored.append(len(run.answers))
        return saved

    def reply(request: Request) -> Reply:
        name = next(each for each in NESTED if request.system.startswith(each))
        if "Express" in request.tool_results.values():
            when_continued.append(stored[-1])
        return NESTED[name][bool(request.tool_results)]

    monkeypatch.setattr(RunStore, "save", busy_once)
    with ScriptedModelClient(reply) as client:
        bench = Bench(client, tmp_path / "runs.db")
        stream = bench.app(bench.nested).start_stream("Build it", run_id="a-run")
        await bench.app(bench.nested).answer("a-run", {await soon(asked(stream)): "Express"})
        rest = asyncio.create_task(read_to_end(stream))
        await soon(bench.until(lambda: bool(when_continued)))
        bench.searched.set()
        await soon(rest)
    assert (len(tries) > 1, when_continued) == (True, [1])


# -- questions that the pause stores ----------------------------------------------------------------------------------


async def quick() -> str:
    """Be quick."""
    await asyncio.sleep(0.003)
    return "Quick."


@pytest.mark.parametrize("seconds", [0, 0.3])
async def test_early_events_keep_order_for_slow_readers(tmp_path: Path, seconds: float) -> None:
    replies = NESTED | {"You are the searcher": [Call("quick", {}), Call("search", {}), "Searched."]}
    bench = Bench(ScriptedModelClient(replies), tmp_path / "runs.db")

    def make() -> Team:
        agents = [bench.worker("coder"), bench.worker("searcher", tools=[quick, bench.search], ask_user=False)]
        return RoundRobinGroupChat([bench.worker("lead", agents=agents)], max_turns=1)

    emitted: list[str] = []
    async for item in bench.app(make).start_stream("Build it"):
        if isinstance(item, UserInputRequestedEvent):
            bench.searched.set()
            await asyncio.sleep(seconds)
        if isinstance(item, ToolCallRequestEvent | ToolCallExecutionEvent) and "searcher" in event_path(item):
            emitted.append(f"{type(item).__name__} {item.content[0].name}")
    kinds = ("ToolCallRequestEvent", "ToolCallExecutionEvent")
    assert emitted == [f"{kind} {tool}" for tool in ("quick", "search") for kind in kinds]


async def test_early_pause_too_large_keeps_reply_and_question(tmp_path: Path) -> None:
    with ScriptedModelClient({"You are the coder": [ASK]}) as client:  # It has no second reply.
        bench = Bench(client, tmp_path / "runs.db")
        app = bench.app(lambda: RoundRobinGroupChat([bench.worker("coder")], max_turns=1))
        known, app.store.max_state_bytes = app.store.max_state_bytes, 1500
        with pytest.raises(TooLarge):
            await app.start("Build it", run_id="a-run")
        app.store.max_state_bytes = known
        run = await app.resume("a-run")
        assert [each.question for each in run.questions] == ["Which framework?"]


async def test_early_question_given_up_is_emitted_as_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.execution.segment.PAUSE_DELAY_S", 2.0)
    replies = {
        "You are the lead": [Call("clerk", {"task": "Buy it"}), "Done without."],
        "You are the clerk": [Calls([Call("coder", {"task": "Code"}), Call("wait")])],
        "You are the coder": [ASK],
    }
    bench = Bench(ScriptedModelClient(replies), tmp_path / "runs.db")

    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    def make() -> Team:
        clerk = bench.worker("clerk", agents=[bench.worker("coder")], tools=[wait])
        return RoundRobinGroupChat([bench.worker("lead", agents=[clerk], nested_timeout=0.2)], max_turns=1)

    items = [item async for item in bench.app(make).start_stream("Buy it")]
    assert not [item for item in items if isinstance(item, UserInputRequestedEvent)]
    assert "The question was cancelled" in "".join(item.to_text() for item in items if not isinstance(item, Run))
