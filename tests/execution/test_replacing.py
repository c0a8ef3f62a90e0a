"""A branch in the place of its run: what depended on the answer is taken back before, and the rest stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import AnsweredBy, Outcome, Run, RunStatus, Settings, Upcall, reversible
from upcall.agents import PausableAgent
from upcall.agents.toolset import Tool
from upcall.errors import AlreadyAnswered, CallerError, EffectsRemain, NotAllowed, OverrulesAssumption, RunNotWaiting
from upcall.testing import Call, Calls, Reply, Request, ScriptedModelClient

FRAMEWORK = {"question": "Which framework?", "options": ["Express", "FastAPI"]}
COLOR = {"question": "Which color?", "options": ["red", "blue"]}


class Booking:
    """An agent that asks, books what it was answered, and asks again; what it booked can be taken back, or not."""

    def __init__(self, folder: Path, *, can_cancel: bool = True, name: str = "runs.db", **questions: object) -> None:
        self.booked: list[str] = []
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self.can_cancel = can_cancel
        self.model = ScriptedModelClient(self._reply)
        settings = Settings.read(None, models={"model": "demo"}, questions={"on_ask": "assume", **questions})
        self.app = Upcall(team=self._team, store=folder / name, settings=settings)

    def _reply(self, request: Request) -> Reply:
        results = list(request.tool_results.values())
        if len(results) == 3:
            return f"Built with {results[0]} in {results[2]}."
        steps = [Call("ask_user", FRAMEWORK, "a"), Call("book", {"name": "".join(results[:1])}, "b")]
        return Calls([[*steps, Call("ask_user", COLOR, "c")][len(results)]])

    def _team(self) -> RoundRobinGroupChat:
        return RoundRobinGroupChat([PausableAgent("coder", self.model, tools=[self._tool()])], max_turns=1)

    def _tool(self) -> Tool:
        async def book(name: str) -> str:
            """Book."""
            self.booked.append(name)
            self.began.set()
            await self.may_end.wait()
            return f"booked {name}"

        undo: Callable[[str], None] = lambda name: self.booked.remove(name)  # noqa: E731
        return reversible(undo=undo)(book) if self.can_cancel else book

    async def find(self, question: str) -> tuple[str, str]:
        (entry,) = [each for each in await self.app.inbox() if each.question.question == question]
        return entry.run_id, entry.question.id


async def begin_at_work(folder: Path) -> tuple[Booking, asyncio.Task[Run]]:
    """Begin a run that has assumed its framework, and is booking until it may end."""
    booking = Booking(folder)
    booking.may_end.clear()
    first = asyncio.create_task(booking.app.start("Build it"))
    await booking.began.wait()
    return booking, first


async def test_run_completes_and_its_questions_stay_in_the_inbox(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    assert (run.result, run.questions) == ("Built with Express in red.", ())
    assert [(each.question.question, each.assumed) for each in await booking.app.inbox()] == [
        ("Which framework?", "Express"),
        ("Which color?", "red"),
    ]
    assert [each["provisional"] for each in run.as_json()["assumptions"]] == [True, True]


async def test_agreeing_answer_is_free(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    calls = len(booking.model.requests)
    for question, answer in (("Which framework?", "express"), ("Which color?", "1")):
        run_id, question_id = await booking.find(question)
        confirmed = await booking.app.answer(run_id, {question_id: answer})
    assert (len(booking.model.requests), confirmed.result, await booking.app.inbox()) == (calls, run.result, [])
    assert [(each.by, each.outcome, each.text) for each in confirmed.answers] == [
        (AnsweredBy.HUMAN, Outcome.ANSWERED, "Express"),
        (AnsweredBy.HUMAN, Outcome.ANSWERED, "red"),
    ]
    with pytest.raises(AlreadyAnswered):
        await booking.app.answer(run.id, {confirmed.answers[0].question_id: "FastAPI"})


@pytest.mark.parametrize("named", [True, False])
async def test_nobody_confirms_the_assumption_of_another(tmp_path: Path, named: bool) -> None:
    booking = Booking(tmp_path, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it", user="ann", open=True)
    run = await booking.app.answer(run.id, "red", user="ann")
    (entry,) = await booking.app.inbox("ann")
    given: Any = {entry.question.id: "Express"} if named else "Express"
    with pytest.raises(NotAllowed):
        await booking.app.answer(run.id, given, user="bob")
    assert [each.assumed for each in await booking.app.inbox("ann")] == ["Express"]
    assert await booking.app.inbox("bob") == []


async def test_other_answer_is_refused_with_the_way(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    await booking.app.start("Build it")
    run_id, question_id = await booking.find("Which framework?")
    with pytest.raises(OverrulesAssumption, match=f"'Express' was assumed.*upcall fork {run_id} {question_id} ANSWER"):
        await booking.app.answer(run_id, {question_id: "FastAPI"})
    assert booking.booked == ["Express"]


async def test_branch_takes_back_what_depended_on_the_answer(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    first = await booking.app.start("Build it")
    run_id, question_id = await booking.find("Which framework?")
    plan = await booking.app.forks.plan(run_id, question_id, replace=True)
    assert (plan.taken_back, plan.effects) == (('coder: book({"name": "Express"})',), ())
    branch = await booking.app.fork(run_id, question_id, "FastAPI", replace=True)
    assert (branch.result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI"])
    assert (await booking.app.get(first.id)).replaced_by == branch.id
    assert [(each.run_id, each.assumed) for each in await booking.app.inbox()] == [(branch.id, "red")]
    with pytest.raises(RunNotWaiting, match=f"as run {branch.id}"):
        await booking.app.answer(first.id, {question_id: "Express"})
    with pytest.raises(CallerError, match=f"continued as {branch.id}"):
        await booking.app.fork(first.id, question_id, "Flask", replace=True)


async def test_answers_of_the_human_outlast_each_overruling(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    await booking.app.start("Build it")
    second = await booking.app.fork(*await booking.find("Which color?"), "blue", replace=True)
    assert (second.result, booking.booked) == ("Built with Express in blue.", ["Express"])
    third = await booking.app.fork(*await booking.find("Which framework?"), "FastAPI", replace=True)
    assert (third.result, booking.booked) == ("Built with FastAPI in blue.", ["FastAPI"])
    assert await booking.app.inbox() == []


async def test_human_allows_what_cannot_be_taken_back(tmp_path: Path) -> None:
    booking = Booking(tmp_path, can_cancel=False)
    await booking.app.start("Build it")
    run_id, question_id = await booking.find("Which framework?")
    with pytest.raises(EffectsRemain, match=r"1 effect .* cannot be taken back: coder: book"):
        await booking.app.fork(run_id, question_id, "FastAPI", replace=True)
    assert ((await booking.app.get(run_id)).replaced_by, booking.booked) == (None, ["Express"])
    branch = await booking.app.fork(run_id, question_id, "FastAPI", replace=True, keep_effects=True)
    assert (branch.result, booking.booked) == ("Built with FastAPI in red.", ["Express", "FastAPI"])


async def test_failing_undo_changes_nothing(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    booking.booked.clear()
    with pytest.raises(CallerError, match=r"book.* could not be taken back: ValueError"):
        await booking.app.fork(*await booking.find("Which framework?"), "FastAPI", replace=True)
    assert (await booking.app.get(run.id)).replaced_by is None
    assert len(await booking.app.list()) == 1


async def test_run_at_work_is_stopped_first(tmp_path: Path) -> None:
    booking, first = await begin_at_work(tmp_path)
    run_id, question_id = await booking.find("Which framework?")
    branch = asyncio.create_task(booking.app.fork(run_id, question_id, "FastAPI", replace=True))
    await asyncio.sleep(0.3)
    booking.may_end.set()
    assert ((await branch).result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI"])
    await first
    ended = await booking.app.get(run_id)
    assert (ended.status, ended.replaced_by) == (RunStatus.CANCELLED, (await branch).id)


async def test_word_for_an_assumption_reaches_a_run_at_work(tmp_path: Path) -> None:
    booking, first = await begin_at_work(tmp_path)
    run_id, question_id = await booking.find("Which framework?")
    await Booking(tmp_path).app.answer(run_id, {question_id: "Express"})
    booking.may_end.set()
    run = await first
    assert [each.by for each in (await booking.app.get(run.id)).answers] == [AnsweredBy.HUMAN, AnsweredBy.POLICY]


@pytest.mark.parametrize(
    "asked",
    [
        {"question": "Delete all?", "options": ["Yes", "No"]},
        {"question": "Which name?"},
        {"question": "Drop it?", "options": ["A", "B"], "clarification_type": "risk_confirmation"},
    ],
)
async def test_nothing_is_assumed_where_only_the_human_knows(tmp_path: Path, asked: dict[str, object]) -> None:
    booking = Booking(tmp_path)
    booking.model = ScriptedModelClient([Call("ask_user", asked, "a"), "Done."])
    assert (await booking.app.start("Build it")).waiting


async def test_rules_say_which_questions_are_assumed(tmp_path: Path) -> None:
    rules = [{"words": "color", "do": "assume"}, {"agent": "coder", "do": "wait"}]
    run = await Booking(tmp_path, ask_rules=rules).app.start("Build it")
    assert [each.question for each in run.questions] == ["Which framework?"]
