"""Forks: the same run up to a question, with another answer; what came before is shared and not done again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool
from scenario import upcall

from upcall import Run, RunStatus, Settings, Upcall, idempotent
from upcall import ask as ask_user
from upcall.agents import PausableAgent
from upcall.errors import AnswerRefused, CallerError, UnknownRun
from upcall.execution import branches, forks
from upcall.execution.branches import BranchRow
from upcall.execution.demo import TASKS, demo_reply
from upcall.questions.answer import Outcome
from upcall.runs.call_timings import TimedCall
from upcall.runs.checkpoint import Checkpoint
from upcall.storage.store import RunStore
from upcall.testing import Call, Calls, Fail, Reply, Request, ScriptedModelClient

FRAMEWORKS = ["Express", "FastAPI"]


class Bench:
    """A lead with a coder; the coder takes a note before and after it asks."""

    def __init__(self, replies: dict[str, Sequence[Reply]]) -> None:
        self.replies = replies
        self.client = ScriptedModelClient(self._reply)
        self.app = Upcall(team=self._team, store="runs.db")

    def _reply(self, request: Request) -> Reply:
        """Return what comes next in this context; what it was given last where it is to report."""
        (name,) = (name for name in self.replies if f"You are the {name}." in request.system)
        texts = self.replies[name][sum(each["role"] == "assistant" for each in request.messages)]
        return f"{name}: {list(request.tool_results.values())}" if texts == "report" else texts

    def _team(self) -> Team:
        async def note(text: str) -> str:
            """Take a note."""
            with Path("notes.txt").open("a") as file:
                file.write(f"{text}\n")
            return f"noted {text}"

        def agent(name: str, *nested: PausableAgent) -> PausableAgent:
            texts = f"You are the {name}."
            return PausableAgent(name, self.client, system_message=texts, agents=nested, tools=[note])

        workers = [agent(name) for name in self.replies if name != "lead"]
        return RoundRobinGroupChat([agent("lead", *workers)], max_turns=1)

    @property
    def notes(self) -> list[str]:
        """The side effects so far."""
        return Path("notes.txt").read_text().split()

    def calls(self) -> int:
        """How many model calls there were."""
        return len(self.client.requests)


def ask(question: str = "Which framework?", **more: object) -> Call:
    return Call("ask_user", {"question": question, **more})


def note(text: str) -> Call:
    return Call("note", {"text": text})


LEAD: list[Reply] = [Call("coder", {"task": "Code"}), "report"]
ONE: dict[str, Sequence[Reply]] = {
    "lead": LEAD,
    "coder": [note("before"), ask(options=FRAMEWORKS, allow_free_text=False), note("after"), "report"],
}
TWO: dict[str, Sequence[Reply]] = {
    "lead": LEAD,
    "coder": [note("before"), ask(), note("between"), ask("Which database?"), note("after"), "report"],
}


def texts(run: Run) -> list[str]:
    """Return the answers, in order."""
    return [answer.as_text() for answer in run.answers]


async def test_fork_continues_with_another_answer_without_repeating_earlier_work() -> None:
    """S3 and DESIGN.md: `app.fork(run.id, question_id, "FastAPI")`."""
    bench = Bench(ONE)
    asked = await bench.app.start("Build it", user="alice")
    done = await bench.app.answer(asked.id, "Express")
    calls, stored = bench.calls(), await bench.app.store.load(done.id)
    forked = await bench.app.fork(done.id, asked.questions[0].id, "FastAPI")
    assert (forked.status, texts(forked)) == (RunStatus.COMPLETED, ["FastAPI"])
    assert "FastAPI" in str(forked.result)
    assert "Express" in str(done.result)
    assert (forked.forked_from, forked.forked_at, forked.user) == (done.id, asked.questions[0].id, "alice")
    assert bench.notes == ["before", "after", "after"]
    assert bench.calls() == calls + 3  # The coder's two calls behind the question, and the lead's last one.
    assert await bench.app.store.load(done.id) == stored
    assert forked.usage == done.usage


@pytest.mark.parametrize(("at", "again"), [(0, ["between", "after"]), (1, ["after"])])
async def test_fork_keeps_earlier_answers_and_asks_later_ones_again(at: int, again: list[str]) -> None:
    bench = Bench(TWO)
    run = await bench.app.start("Build it")
    ids = [run.questions[0].id]
    run = await bench.app.answer(run.id, "Express")
    ids.append(run.questions[0].id)
    run = await bench.app.answer(run.id, "SQLite")
    plan = await bench.app.forks.plan(run.id, ids[at])
    assert (plan.kept_answers, plan.answers_again) == (at, 1 - at)
    assert plan.tool_calls_again == {"lead/coder/note": len(again)}  # The lead's call to the coder is open there.
    assert plan.kept_model_calls + sum(plan.model_calls_again.values()) == bench.calls()
    forked = await bench.app.fork(run.id, ids[at], "Other")
    if at == 0:
        assert [question.question for question in forked.questions] == ["Which database?"]
        forked = await bench.app.answer(forked.id, "SQLite")
    assert texts(forked) == (["Other", "SQLite"] if at == 0 else ["Express", "Other"])
    assert bench.notes == ["before", "between", "after", *again]
    again_calls = sum(plan.model_calls_again.values())
    assert bench.calls() == plan.kept_model_calls + 2 * again_calls


@pytest.mark.parametrize("together", [True, False])
async def test_fork_changes_one_of_two_open_questions_answers(together: bool) -> None:
    both = Calls([Call("coder", {"task": "Code"}), Call("writer", {"task": "Write"})])
    bench = Bench({"lead": [both, "report"], "coder": [ask(), "report"], "writer": [ask("Which style?"), "report"]})
    run = await bench.app.start("Build it")
    ids = {question.question: question.id for question in run.questions}
    first, second = ids["Which framework?"], ids["Which style?"]
    if together:
        run = await bench.app.answer(run.id, {first: "Express", second: "Plain"})
    else:
        run = await bench.app.answer(run.id, {first: "Express"})
        run = await bench.app.answer(run.id, {second: "Plain"})
    forked = await bench.app.fork(run.id, second, "Ornate")
    assert (forked.status, sorted(texts(forked))) == (RunStatus.COMPLETED, ["Express", "Ornate"])
    assert "Ornate" in str(forked.result)
    forked = await bench.app.fork(run.id, first, "FastAPI")
    assert (forked.status, sorted(texts(forked))) == (RunStatus.COMPLETED, ["FastAPI", "Plain"])


SIBLINGS = [f"coder{number}" for number in range(10)]


def siblings() -> Bench:
    """Ten agents called in one reply; each takes a note, asks, and takes another; then the lead reports."""
    calls = Calls([Call(name, {"task": "Code"}) for name in SIBLINGS])
    each = {name: [note(name), ask(f"What of {name}?"), note(f"{name}-after"), "report"] for name in SIBLINGS}
    return Bench({"lead": [calls, "report"], **each})


@pytest.mark.parametrize("size", [1, 3, 10])
async def test_fork_calls_no_sibling_that_saw_nothing(size: int) -> None:
    """`size` questions are answered at a time, so that the siblings end at different pauses (issue 36)."""
    bench = siblings()
    run = await bench.app.start("Build it")
    asked = {question.question: question.id for question in run.questions}
    while run.questions:
        run = await bench.app.answer(run.id, {each.id: f"A {each.question}" for each in run.questions[:size]})
    notes, calls = bench.notes, bench.calls()
    for name in (SIBLINGS[0], SIBLINGS[4], SIBLINGS[9]):
        before = len(bench.client.requests)
        plan = await bench.app.forks.plan(run.id, asked[f"What of {name}?"])
        assert (plan.model_calls_again, plan.answers_again) == ({f"lead/{name}": 2, "lead": 1}, 0)
        assert plan.effects == (f'{name}: note({{"text": "{name}-after"}})',)
        assert plan.tokens_again > 0
        forked = await bench.app.fork(run.id, asked[f"What of {name}?"], "Other")
        assert (forked.status, len(forked.answers)) == (RunStatus.COMPLETED, 10)
        assert str(forked.result) == str(run.result).replace(f"A What of {name}?", "Other")
        made = [request.system.split(".")[0] for request in bench.client.requests[before:]]
        assert sorted(made) == sorted([f"You are the {name}"] * 2 + ["You are the lead"])
        notes = [*notes, f"{name}-after"]
        assert bench.notes == notes
    assert bench.calls() == calls + 9


async def test_fork_of_a_fork_keeps_what_both_did() -> None:
    bench = siblings()
    run = await bench.app.start("Build it")
    asked = {question.question: question.id for question in run.questions}
    run = await bench.app.answer(run.id, {each.id: f"A {each.question}" for each in run.questions})
    one = await bench.app.fork(run.id, asked["What of coder1?"], "Other")
    at = {question.question: question.id for question in one.answered_questions}
    calls = bench.calls()
    two = await bench.app.fork(one.id, at["What of coder2?"], "Another")
    assert bench.calls() == calls + 3
    assert sorted(texts(two)) == sorted([*(f"A What of coder{n}?" for n in (0, *range(3, 10))), "Other", "Another"])


async def test_fork_is_cut_off_and_continues_without_its_run() -> None:
    """What it took from its run is in its own journal."""
    bench = siblings()
    run = await bench.app.start("Build it")
    first = run.questions[0].id
    run = await bench.app.answer(run.id, {each.id: "A" for each in run.questions})
    calls, replies = bench.calls(), bench.replies
    bench.replies = {**replies, "lead": [*replies["lead"][:1], Fail(RuntimeError("gone"))]}
    forked = await bench.app.fork(run.id, first, "Other")
    assert forked.status is RunStatus.FAILED
    bench.replies = replies
    await bench.app.store.delete(run.id)
    forked = await bench.app.resume(forked.id)
    assert (forked.status, bench.calls()) == (RunStatus.COMPLETED, calls + 4)
    assert len(bench.notes) == 21


async def test_fork_overrules_a_fact_and_keeps_earlier_work() -> None:
    """An answer from any step of the resolver can be overruled by the human afterwards (issue 4)."""
    bench = Bench(ONE)
    run = await bench.app.start("Build it", facts={"framework": "Express"})
    assert run.status is RunStatus.COMPLETED
    calls = bench.calls()
    forked = await bench.app.fork(run.id, run.answered_questions[0].id, "FastAPI")
    assert (forked.status, texts(forked), forked.answers[0].by.value) == (RunStatus.COMPLETED, ["FastAPI"], "human")
    assert bench.notes == ["before", "after", "after"]
    assert bench.calls() == calls + 3
    assert f"{forked.id} (completed, 3 model calls of its own, 3 shared)" in await bench.app.forks.diff(
        run.id, forked.id
    )
    again = await bench.app.fork(forked.id, run.answered_questions[0].id, "Express")
    assert "Express" in str(again.result)
    assert bench.notes == ["before", "after", "after"]  # With the run's own answer all is in its journal.


async def test_fork_within_a_segment_keeps_no_later_answer() -> None:
    """S4-52: facts answered both questions without a pause; what the coder asked second depends on the first."""

    def respond(request: Request) -> Reply:
        results = list(request.tool_results.values())
        if not results:
            return ask()
        return ask("Which database?") if results == ["Express"] else f"Built with {', '.join(results)}"

    client = ScriptedModelClient(respond)
    app = Upcall(team=lambda: RoundRobinGroupChat([PausableAgent("coder", client)], max_turns=1), store="runs.db")
    run = await app.start("Build it", facts={"framework": "Express", "database": "SQLite"})
    assert (run.result, len(run.answers)) == ("Built with Express, SQLite", 2)
    first = run.answered_questions[0].id
    plan = await app.forks.plan(run.id, first)
    assert (plan.kept_answers, plan.answers_again) == (0, 1)
    forked = await app.fork(run.id, first, "FastAPI")
    assert (forked.result, texts(forked)) == ("Built with FastAPI", ["FastAPI"])


async def test_branch_of_a_branch_and_where_they_part() -> None:
    bench = Bench(TWO)
    run = await bench.app.start("Build it")
    first = run.questions[0].id
    run = await bench.app.answer(run.id, "Express")
    second = run.questions[0].id
    run = await bench.app.answer(run.id, "SQLite")
    one = await bench.app.fork(run.id, second, "PostgreSQL")
    other = await bench.app.fork(one.id, second, "MySQL")
    lines = await bench.app.forks.diff(one.id, other.id)
    assert lines[0] == "The same: 1 answer."
    assert [line.strip() for line in lines if "Which database?" in line] == [
        "coder (for lead): Which database? - PostgreSQL",
        "coder (for lead): Which database? - MySQL",
    ]
    assert not any("Which framework?" in line for line in lines)
    assert (await bench.app.forks.diff(run.id, run.id))[1] == "No answer differs."
    three = await bench.app.fork(other.id, first, "Django")
    assert texts(await bench.app.answer(three.id, "Any")) == ["Django", "Any"]


@pytest.mark.slow
async def test_branches_are_compared_by_files_answers_and_own_cost() -> None:
    """A branch is not credited with the calls that it keeps from its run (issue 35)."""
    prices = {"demo": {"prompt": 1, "completion": 1}}
    settings = Settings.read(None, models={"model": "demo", "prices": prices})
    app = Upcall(store="runs.db", settings=settings)
    run = await app.start(TASKS[0])
    done = await app.answer(run.id, "FastAPI")
    before = run.total_usage
    forked = await app.fork(done.id, run.questions[0].id, "Express")
    lines = await app.forks.diff(done.id, forked.id)
    own, made = forked.total_usage.minus(before), sum(not call.tool for call in await calls_of(app, forked.id))
    assert own.model_calls == made
    assert f"{forked.id} (completed, {made} model calls of its own, {before.model_calls} shared)" in lines
    theirs, ours = [line for line in lines if line.startswith("  files: ")]
    assert "server.js (+" in ours
    assert "server.js" not in theirs
    spent = f"{own.prompt_tokens:,}+{own.completion_tokens:,} tokens, {own.tokens / 1_000_000:.4f} USD"
    assert lines[-1] == f"  cost of its own calls: {spent}"


async def calls_of(app: Upcall, run_id: str) -> list[TimedCall]:
    return [call for period in await app.log.call_timings(run_id) for call in period.calls]


async def test_fork_of_a_failed_run_starts_at_the_question() -> None:
    bench = Bench({"lead": LEAD, "coder": [note("before"), ask(), Fail(500), "report"]})
    run = await bench.app.start("Build it")
    failed = await bench.app.answer(run.id, "Express")
    assert failed.status is RunStatus.FAILED
    bench.replies = {"lead": LEAD, "coder": [note("before"), ask(), "report", "report"]}
    forked = await bench.app.fork(run.id, run.questions[0].id, "FastAPI")
    assert (forked.status, texts(forked), forked.error) == (RunStatus.COMPLETED, ["FastAPI"], None)
    assert bench.notes == ["before"]
    assert (await bench.app.get(run.id)) == failed


async def test_fork_answers_an_open_question_and_leaves_the_original() -> None:
    """S4-52: a paused turn is started again from its question."""
    bench = Bench(ONE)
    run = await bench.app.start("Build it")
    forked = await bench.app.fork(run.id, run.questions[0].id, "FastAPI")
    assert forked.status is RunStatus.COMPLETED
    assert (await bench.app.answer(run.id, "Express")).status is RunStatus.COMPLETED


async def test_fork_that_is_impossible_is_refused_without_storing() -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it", user="alice")
    await bench.app.answer(run.id, "Express")
    with pytest.raises(CallerError, match=rf"has no question 'nope'. It asked: {run.questions[0].id} \(Which"):
        await bench.app.fork(run.id, "nope", "FastAPI")
    with pytest.raises(AnswerRefused, match="Express"):
        await bench.app.fork(run.id, run.questions[0].id, "Django")
    with pytest.raises(AnswerRefused, match="No answer was given"):
        await bench.app.fork(run.id, run.questions[0].id, {})
    with pytest.raises(UnknownRun):
        await bench.app.fork(run.id, run.questions[0].id, "FastAPI", user="bob")
    assert len(await bench.app.list()) == 1
    assert bench.notes == ["before", "after"]


async def test_log_says_who_forked_what() -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it")
    await bench.app.answer(run.id, "Express")
    forked = await bench.app.fork(run.id, run.questions[0].id, "FastAPI", user=None)
    (entry,) = [each for each in await bench.app.store.events.read(forked.id) if each.kind == "forked"]
    assert entry.detail == {"run": run.id, "question": run.questions[0].id}


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_fork_of_the_root_team_copies_the_files() -> None:
    app = Upcall(ScriptedModelClient(demo_reply), store="runs.db", settings=Settings.read(models={"model": "demo"}))
    run = await app.start(TASKS[0])
    done = await app.answer(run.id, "FastAPI")
    files = {path.name: path.read_text() for path in (done.workspace or Path()).iterdir() if path.is_file()}
    forked = await app.fork(done.id, run.questions[0].id, "Express")
    assert (forked.status, "with Express" in str(forked.result)) == (RunStatus.COMPLETED, True)
    assert forked.workspace != done.workspace
    assert {path.name: path.read_text() for path in (done.workspace or Path()).iterdir() if path.is_file()} == files
    assert (forked.plan, forked.classification) == (done.plan, done.classification)


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_files_are_copied_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the leases of the other runs of a process are not renewed meanwhile."""
    app = Upcall(ScriptedModelClient(demo_reply), store="runs.db", settings=Settings.read(models={"model": "demo"}))
    run = await app.start(TASKS[0])
    done = await app.answer(run.id, "FastAPI")
    copying = list[threading.Thread]()
    monkeypatch.setattr(forks, "copy_tree", lambda *_: copying.append(threading.current_thread()))
    await app.fork(done.id, run.questions[0].id, "Express")
    assert len(copying) == 1
    assert copying != [threading.current_thread()]


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_fork_from_the_command_line() -> None:
    run = upcall("run", TASKS[0], "--model", "demo", "--json").json
    (question,) = run["questions"]
    upcall("answer", run["run_id"], "FastAPI", "--json")
    plan = upcall("fork", run["run_id"], question["id"], "--dry-run").out
    assert "coder (for lead) asked: Which framework? - FastAPI" in plan
    assert "write_file" in plan
    forked = upcall("fork", run["run_id"], question["id"], "Express", "--json").json
    assert "with Express" in forked["result"]
    assert "Which framework? - Express" in upcall("diff", run["run_id"], forked["run_id"]).out


async def test_fork_makes_later_calls_even_where_they_look_equal() -> None:
    """Weak models number their calls anew: the same id, tool and arguments are another call there."""
    written: list[str] = []

    def respond(request: Request) -> Reply:
        texts = list(request.tool_results.values())
        turn = sum(each["role"] == "assistant" for each in request.messages)
        if turn == 0:
            return Call("ask_user", {"question": "Which framework?"}, id="a")
        return [None, Call("write", {"what": texts[0]}, id="b"), Call("look", id="c"), f"Saw {texts[-1]}"][turn] or "?"

    def write(what: str) -> str:
        """Write."""
        written.append(what)
        return "written"

    def look() -> str:
        """Look."""
        return written[-1]

    client = ScriptedModelClient(respond)
    app = Upcall(
        team=lambda: RoundRobinGroupChat([PausableAgent("solo", client, tools=[write, look])], max_turns=1),
        store="runs.db",
    )
    run = await app.start("Build it", facts={"framework": "Express"})
    assert run.result == "Saw Express"
    forked = await app.fork(run.id, run.answered_questions[0].id, "FastAPI")
    assert (forked.result, written) == ("Saw FastAPI", ["Express", "FastAPI"])


@pytest.mark.parametrize("kind", [PausableAgent, AssistantAgent])
async def test_fork_gives_an_asking_tool_the_other_answer(kind: Any) -> None:
    def respond(request: Request) -> Reply:
        texts = list(request.tool_results.values())
        return texts[0] if texts else Call("write", id="a")

    def write() -> str:
        """Write."""
        return f"written with {ask_user('Which framework?').text}"

    app = Upcall(
        team=lambda: RoundRobinGroupChat([kind("solo", ScriptedModelClient(respond), tools=[write])], max_turns=1),
        store="runs.db",
    )
    run = await app.start("Build it", facts={"framework": "Express"})
    forked = await app.fork(run.id, run.answered_questions[0].id, "FastAPI")
    assert (run.result, forked.result) == ("written with Express", "written with FastAPI")


async def test_fork_of_a_run_ended_while_waiting_works() -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it")
    await bench.app.cancel(run.id)
    forked = await bench.app.fork(run.id, run.questions[0].id, "FastAPI")
    assert (forked.status, texts(forked)) == (RunStatus.COMPLETED, ["FastAPI"])
    assert bench.notes == ["before", "after"]


async def test_fork_of_an_expired_run_starts_at_its_question() -> None:
    both = Calls([Call("coder", {"task": "Code"}), Call("watcher", {"task": "Watch"})])

    def respond(request: Request) -> Reply:
        results = list(request.tool_results.values())
        if "lead" in request.system:
            return str(results) if results else both
        if "watcher" in request.system:
            return "watched" if results else Call("watch")
        return f"coded: {results[0]}" if len(results) > 1 else note("after") if results else ask()

    async def watch() -> str:
        """Work on until the coder has continued with its answer."""
        while not Path("notes.txt").exists():
            await asyncio.sleep(0)
        return "seen"

    async def write(text: str) -> str:
        """Take a note."""
        Path("notes.txt").write_text(text)
        return text

    def agent(name: str, *nested: PausableAgent) -> PausableAgent:
        tools = [FunctionTool(write, "Take a note.", name="note"), watch]
        return PausableAgent(name, ScriptedModelClient(respond), system_message=name, agents=nested, tools=tools)

    app = Upcall(
        team=lambda: RoundRobinGroupChat([agent("lead", agent("coder"), agent("watcher"))], max_turns=1),
        store="runs.db",
    )
    run = await app.start("Build it", unattended=True)
    assert (run.status, run.answers[0].outcome) == (RunStatus.COMPLETED, Outcome.EXPIRED)
    forked = await app.fork(run.id, run.answers[0].question_id, "FastAPI")
    assert (forked.status, texts(forked)) == (RunStatus.COMPLETED, ["FastAPI"])
    assert "FastAPI" in str(forked.result)


async def test_fork_during_an_answer_leaves_the_answer_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it")
    read = RunStore.checkpoints

    async def read_late(store: RunStore, run_id: str) -> Sequence[Checkpoint]:
        monkeypatch.setattr(RunStore, "checkpoints", read)
        await bench.app.answer(run_id, "Express")
        return await read(store, run_id)

    monkeypatch.setattr(RunStore, "checkpoints", read_late)
    forked = await bench.app.fork(run.id, run.questions[0].id, "FastAPI")
    assert (texts(forked), forked.result) == (
        ["FastAPI"],
        "lead: [\"coder: ['noted before', 'FastAPI', 'noted after']\"]",
    )


# -- the tree of branches ---------------------------------------------------------------------------------------------


def rows_of(tree: Sequence[BranchRow]) -> list[tuple[int, str, str | None]]:
    return [(row.depth, row.run.id, row.answer and row.answer.text) for row in tree]


async def test_tree_is_the_same_from_each_of_its_runs() -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it")
    question = run.questions[0].id
    await bench.app.answer(run.id, "Express")
    second = await bench.app.fork(run.id, question, "FastAPI")
    third = await bench.app.fork(run.id, question, "Express")
    fourth = await bench.app.fork(second.id, question, "FastAPI")
    expected = [(0, run.id, None), (1, second.id, "FastAPI"), (2, fourth.id, "FastAPI"), (1, third.id, "Express")]
    for each in (run, second, third, fourth):
        assert rows_of(await bench.app.forks.tree(each.id)) == expected


async def test_run_never_forked_is_its_own_tree() -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it")
    assert rows_of(await bench.app.forks.tree(run.id)) == [(0, run.id, None)]


async def test_tree_leaves_out_what_is_gone() -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it")
    question = run.questions[0].id
    await bench.app.answer(run.id, "Express")
    first, second = [await bench.app.fork(run.id, question, "FastAPI") for _ in range(2)]
    await bench.app.store.delete(first.id)
    assert [row[1] for row in rows_of(await bench.app.forks.tree(run.id))] == [run.id, second.id]
    await bench.app.store.delete(run.id)
    assert rows_of(await bench.app.forks.tree(second.id)) == [(0, second.id, None)]


async def test_tree_is_shown_to_its_owner_alone() -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it", user="alice")
    with pytest.raises(UnknownRun):
        await bench.app.forks.tree(run.id, user="bob")


async def test_tree_writes_no_refusal_for_what_is_gone() -> None:
    bench = Bench(ONE)
    run = await bench.app.start("Build it", user="alice")
    await bench.app.answer(run.id, "Express", user="alice")
    forked = await bench.app.fork(run.id, run.questions[0].id, "FastAPI", user="alice")
    await bench.app.store.delete(run.id)
    await bench.app.forks.tree(forked.id, user="alice")
    assert [each.kind for each in await bench.app.log.audit(user=None) if each.kind == "refused"] == []


async def test_tree_of_many_branches_loads_only_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MAX_BRANCHES", 3)
    bench = Bench(ONE)
    run = await bench.app.start("Build it")
    await bench.app.answer(run.id, "Express")
    made = [await bench.app.fork(run.id, run.questions[0].id, "FastAPI") for _ in range(5)]
    loaded = []
    load = bench.app.store.load_run

    async def count(run_id: str) -> Run:
        loaded.append(run_id)
        return await load(run_id)

    monkeypatch.setattr(bench.app.store, "load_run", count)
    rows = await bench.app.forks.tree(made[-1].id)
    assert [row.run.id for row in rows] == [run.id, made[-1].id, made[0].id]
    assert len(loaded) <= 3 + 2  # The run itself, and the one above it.


DEPLOY_STEPS: dict[str, list[Reply]] = {
    "lead": [ask("Which color?"), Call("deploy", {}, "call_1"), "report"],
    "nested": [ask("Which color?"), Call("coder", {"task": "Code"}, "call_1"), "report"],
    "coder": [ask("Which port?"), Call("deploy", {}, "call_1"), "done"],
}


@pytest.mark.parametrize("who", ["lead", "nested"])
async def test_departed_agent_makes_its_calls_behind_a_pause(who: str) -> None:
    """The server gives the same ids again; the human allows the act in the branch, and it is done there."""
    deployed = list[str]()

    async def deploy() -> str:
        """Deploy."""
        deployed.append("once")
        return f"deployed {len(deployed)}"

    def respond(request: Request) -> Reply:
        steps = DEPLOY_STEPS["coder" if "You are the coder." in request.system else who]
        reply = steps[sum(each["role"] == "assistant" for each in request.messages)]
        return str([*request.tool_results.values()]) if reply == "report" else reply

    def agent(name: str, *nested: PausableAgent) -> PausableAgent:
        texts = f"You are the {name}."
        return PausableAgent(
            name, client, system_message=texts, tools=[deploy], approve=["deploy"] if not nested else [], agents=nested
        )

    client = ScriptedModelClient(respond)
    app = Upcall(
        team=lambda: RoundRobinGroupChat([agent("lead", *[agent("coder")] * (who == "nested"))], max_turns=1),
        store="runs.db",
    )
    run = await finish(app, await app.start("Go"), "red")
    assert deployed == ["once"]
    question = next(each for each in run.answered_questions if each.question == "Which color?")
    forked = await finish(app, await app.fork(run.id, question.id, "blue"), "blue")
    assert (forked.status, deployed) == (RunStatus.COMPLETED, ["once"] * 2)


async def finish(app: Upcall, run: Run, color: str) -> Run:
    """Answer each question: allow what is to be approved."""
    while run.questions:
        (question,) = run.questions
        run = await app.answer(run.id, "1" if question.approval else color)
    return run


@pytest.mark.parametrize("ids", [("call_0", "call_0"), ("one", "two"), ("", "")])
async def test_idempotent_tool_looks_again_at_what_changed(ids: tuple[str, str]) -> None:
    """Where a server numbers calls anew in each reply, it is their order that tells which reply made which."""
    written, seen = list[str](), list[str]()

    async def save(text: str) -> str:
        """Save."""
        written.append(text)
        return "saved"

    @idempotent
    async def look() -> str:
        """Look."""
        seen.append(written[-1])
        return seen[-1]

    def respond(request: Request) -> Reply:
        number, results = (
            sum(each["role"] == "assistant" for each in request.messages),
            [*request.tool_results.values()],
        )
        if "You are the coder." in request.system:
            return [ask("Which color?"), Call("save", {"text": results[0]}) if results else "", "done"][number]
        return [Call("coder", {"task": "Paint"}, ids[0]), Call("look", {}, ids[1]), f"end {results[-1:]}"][number]

    def team() -> Team:
        coder = PausableAgent("coder", client, system_message="You are the coder.", tools=[save])
        return RoundRobinGroupChat([PausableAgent("lead", client, tools=[look], agents=[coder])], max_turns=1)

    client = ScriptedModelClient(respond)
    app = Upcall(team=team, store="runs.db")
    run = await app.answer((await app.start("Go")).id, "red")
    plan = await app.forks.plan(run.id, run.answered_questions[0].id)
    assert plan.tool_calls_again == {"lead/coder/save": 1, "lead/look": 1}
    forked = await app.fork(run.id, run.answered_questions[0].id, "blue")
    assert (forked.result, seen) == ("end ['blue']", ["red", "blue"])
