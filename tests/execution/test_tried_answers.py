"""Trials: whether another answer would have changed the result of a run, found out without any effect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tried_shop
from autogen_agentchat.agents import (
    ApprovalRequest,
    ApprovalResponse,
    AssistantAgent,
    BaseChatAgent,
    CodeExecutorAgent,
)
from autogen_agentchat.base import Response, Team
from autogen_agentchat.conditions import FunctionalTermination, MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core import CancellationToken
from autogen_core.memory import ListMemory
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from forked import run_python
from scenario import CLEAR, TASK, script
from tried_shop import RUN, Shop

from upcall import Run, RunStatus, Settings, Upcall, ask, effect_free
from upcall.agents import NestedTeam, PausableAgent
from upcall.errors import CallerError, UnknownRun
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.worth import RunWorth
from upcall.storage.store import RunStore
from upcall.testing import Call, Request, ScriptedModelClient

FIRST = {"question": "Which first?", "options": ["A", "B"]}
HOST = {"question": "Which host?", "options": ["X", "Y"]}
ROLES = ("result", "call", "left", "free", "nothing")


def verdicts(worth: RunWorth) -> list[str | None]:
    return [each.verdict for each in worth.questions]


async def measured(folder: Path, *roles: str, **options: Any) -> tuple[Shop, RunWorth]:
    folder.mkdir(exist_ok=True)
    shop = Shop(folder, roles, **options)
    await shop.run()
    return shop, await shop.app.worth.measure(RUN)


async def test_trial_shows_whether_an_answer_matters(tmp_path: Path) -> None:
    shop, worth = await measured(tmp_path, "result", "free", "nothing")
    assert verdicts(worth) == shop.truth == ["changed", "same", "same"]


@pytest.mark.slow
@pytest.mark.parametrize("first", ROLES)
async def test_trial_verdicts_agree_with_the_truth(tmp_path: Path, first: str) -> None:
    for number, second in enumerate(ROLES):  # Each pair of roles at any two questions.
        third = ROLES[(number + ROLES.index(first)) % len(ROLES)]
        shop, worth = await measured(tmp_path / second, first, second, third)
        assert verdicts(worth) == shop.truth, shop.roles


async def test_trial_makes_no_call_with_an_effect(tmp_path: Path) -> None:
    shop, worth = await measured(tmp_path, "call", "call", "left")
    assert shop.deployed == ["production", "Express", "Red", "staging"]
    assert [each.reason for each in worth.questions] == [
        "lead makes another call of deploy",
        "lead makes another call of deploy",
        "lead makes fewer calls of deploy",
    ]


async def test_trial_bill_is_known_before_anything_is_done(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["nothing", "nothing", "result"])
    await shop.run()
    before = len(shop.client.requests)
    worth = await shop.app.worth.read(RUN)
    assert [each.cost.model_calls for each in worth.questions] == [8, 9, 4]
    assert worth.questions[0].cost.held_back == ('lead: deploy({"to": "production"})',)
    assert len(shop.client.requests) == before
    worth = await shop.app.worth.measure(RUN)
    assert sum(each.model_calls for each in worth.questions) == len(shop.client.requests) - before <= 21


async def test_trial_verdict_is_stored_once(tmp_path: Path) -> None:
    shop, worth = await measured(tmp_path, "result", "nothing", "nothing")
    before = len(shop.client.requests)
    other = Shop(tmp_path, shop.roles)
    assert await other.app.worth.measure(RUN) == await other.app.worth.read(RUN) == worth
    assert (len(shop.client.requests), len(other.client.requests)) == (before, 0)


@pytest.mark.slow
@pytest.mark.parametrize("dies", [1, 5, 9, 13, 17])
async def test_trial_killed_anywhere_is_continued(tmp_path: Path, dies: int) -> None:
    roles = ["result", "nothing", "call"]
    shop = Shop(tmp_path, roles)
    await shop.run()
    deployed = shop.deployed
    made = run_python(tried_shop.__file__, str(tmp_path), " ".join(roles), str(dies))
    assert made.returncode == -9, made.stderr
    assert verdicts(await shop.app.worth.measure(RUN)) == shop.truth
    assert shop.deployed == deployed
    assert not [each for each in await shop.app.store.list() if not each.is_final]


async def test_trial_of_a_model_by_chance_is_unknown(tmp_path: Path) -> None:
    _, worth = await measured(tmp_path, "nothing", "nothing", "nothing", chance=True)
    assert verdicts(worth) == ["unknown"] * 3
    assert worth.questions[0].reason == "with the same answer again, the result is another text"


async def test_trial_leaves_nothing_for_the_human(tmp_path: Path) -> None:
    shop, _ = await measured(tmp_path, "call", "nothing", "left")
    assert {each.status for each in await shop.app.store.list()} == {RunStatus.COMPLETED, RunStatus.CANCELLED}


async def test_trial_is_listed_with_its_run_alone(tmp_path: Path) -> None:
    shop, worth = await measured(tmp_path, "result", "nothing", "nothing")
    tried = {trial for each in worth.questions for trial in each.trials}
    assert [each.id for each in await shop.app.list()] == [RUN]
    assert {each.run.id for each in await shop.app.forks.tree(RUN)} == {RUN, *tried}
    page = await shop.app.list(limit=1)
    found = [*page]
    while page.next is not None:
        page = await shop.app.list(limit=1, before=page.next)
        found += page
    assert [each.id for each in found] == [RUN]


async def test_trial_bill_reads_the_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, ["nothing", "nothing", "result"])
    await shop.run()
    read, found = RunStore.bare_checkpoints, list[str]()

    async def count(store: RunStore, run_id: str) -> Sequence[Checkpoint]:
        found.append(run_id)
        return await read(store, run_id)

    monkeypatch.setattr(RunStore, "bare_checkpoints", count)
    assert len((await shop.app.worth.read(RUN)).questions) == 3
    assert found == [RUN]


async def test_trial_bill_that_was_read_is_measured(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["result", "nothing", "nothing"])
    await shop.run()
    known = await shop.app.worth.read(RUN)
    assert verdicts(await shop.app.worth.measure(known)) == shop.truth
    assert verdicts(known) == [None] * 3


# -- what is not tried ------------------------------------------------------------------------------------------------


def app_that_asks(question: dict[str, Any], **after: Any) -> Upcall:
    """Return the app of an agent that asks one question, and repeats the answer."""

    def reply(request: Request) -> Any:
        results = [*request.tool_results.values()]
        return f"Done: {results}" if results else Call("ask_user", question)

    agent = PausableAgent("lead", ScriptedModelClient(reply), **after)
    return Upcall(team=lambda: RoundRobinGroupChat([agent.fresh()], max_turns=1), store="runs.db")


async def worth_of(app: Upcall, answer: str) -> RunWorth:
    run = await app.start("Do it")
    run = await app.answer(run.id, answer)
    return await app.worth.measure(run.id)


async def test_trial_of_a_default_where_there_are_no_options() -> None:
    worth = await worth_of(app_that_asks({"question": "Which port?", "default": "8080"}), "90")
    assert (worth.questions[0].others, verdicts(worth)) == (("8080",), ["changed"])


async def test_trial_needs_another_answer() -> None:
    for given in ({}, {"default": "90"}):
        worth = await worth_of(app_that_asks({"question": "Which port?", **given}), "90")
        assert (worth.questions[0].reason, verdicts(worth)) == ("no other answer is known", [None])


async def test_trial_gives_no_consent() -> None:
    asked = {"question": "Delete it all?", "options": ["Yes", "No"], "clarification_type": "risk_confirmation"}
    worth = await worth_of(app_that_asks(asked), "Yes")
    assert worth.questions[0].reason == "it asks for consent, which is never given to try something"
    assert not worth.questions[0].is_to_try


class OwnCode(BaseChatAgent):
    """An agent that asks in code of its own."""

    produced_message_types = (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], token: CancellationToken) -> Response:
        """Answer."""
        return Response(chat_message=TextMessage(content="Seen.", source=self.name))

    async def on_reset(self, token: CancellationToken) -> None:
        """Do nothing."""


class OwnTeam(RoundRobinGroupChat):
    """A team that may do anything between two turns."""


def place_own_code(where: str, lead: Callable[..., PausableAgent]) -> Team:
    """Make a team with own code in it: a member, nested in one, nested in a team in one, or the team itself."""
    own = OwnCode("own", "code")
    match where:
        case "member":
            return RoundRobinGroupChat([lead(), own], max_turns=2)
        case "nested":
            return RoundRobinGroupChat([lead(agents=[own])], max_turns=1)
        case "deep":
            inner = NestedTeam(RoundRobinGroupChat([own], max_turns=1), name="inner", description="i")
            return RoundRobinGroupChat([lead(agents=[inner])], max_turns=1)
        case _:
            return OwnTeam([lead()], max_turns=1)


@pytest.mark.parametrize("where", ["member", "nested", "deep", "team"])
async def test_trial_is_refused_with_own_code_anywhere(where: str) -> None:
    def reply(request: Request) -> Any:
        return "Done." if request.tool_results else Call("ask_user", {"question": "Which?", "options": ["A", "B"]})

    lead = partial(PausableAgent, "lead", ScriptedModelClient(reply))
    worth = await worth_of(Upcall(team=lambda: place_own_code(where, lead), store="runs.db"), "A")
    name = "OwnTeam" if where == "team" else "OwnCode"
    assert (verdicts(worth), worth.questions[0].reason) == (
        ["unknown"],
        f"what the code of {name} does outside of tools cannot be held back",
    )


class OwnMemory(ListMemory):
    """A memory that may write anywhere."""


class OwnCondition(MaxMessageTermination):
    """A condition that may do anything."""


def choose(messages: Sequence[Any]) -> str:
    """Choose the speaker."""
    return "lead"


def end(messages: Sequence[Any]) -> bool:
    """Never end."""
    return False


def approve(request: ApprovalRequest) -> ApprovalResponse:
    """Approve it."""
    return ApprovalResponse(approved=True, reason="")


def place_own_helper(where: str, lead: Callable[..., PausableAgent], client: ScriptedModelClient) -> Team:
    """Make a team of stock agents that works with own code."""
    match where:
        case "OwnMemory":
            return RoundRobinGroupChat([lead(memory=[OwnMemory()])], max_turns=1)
        case "OwnCondition":
            condition = OwnCondition(9) | MaxMessageTermination(9)
            return RoundRobinGroupChat([lead()], termination_condition=condition, max_turns=1)
        case "end":
            return RoundRobinGroupChat([lead()], termination_condition=FunctionalTermination(end), max_turns=1)
        case "choose":
            other = AssistantAgent("other", client)
            return SelectorGroupChat([lead(), other], client, selector_func=choose, max_turns=1)
        case _:
            executor = LocalCommandLineCodeExecutor(work_dir="work")
            code = CodeExecutorAgent("code", executor, approval_func=approve)
            return RoundRobinGroupChat([lead(), code], max_turns=1)


@pytest.mark.parametrize("where", ["OwnMemory", "OwnCondition", "end", "choose", "approve"])
@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
async def test_trial_is_refused_with_own_code_beside_agents(where: str) -> None:
    client = ScriptedModelClient(lambda request: "Done." if request.tool_results else Call("ask_user", FIRST))
    lead = partial(PausableAgent, "lead", client)
    worth = await worth_of(Upcall(team=lambda: place_own_helper(where, lead, client), store="runs.db"), "A")
    assert (verdicts(worth), worth.questions[0].reason) == (
        ["unknown"],
        f"what the code of {where} does outside of tools cannot be held back",
    )


async def test_trial_makes_a_limited_number_of_model_calls() -> None:
    looks = list[str]()

    @effect_free
    def look(at: str) -> str:
        """Look at something."""
        looks.append(at)
        return "fine"

    def say(request: Request) -> Any:
        results = [*request.tool_results.values()]
        if results[:1] == ["B"] and len(results) < 40:
            return Call("look", {"at": str(len(results))})
        return "Done." if results else Call("ask_user", FIRST)

    def team() -> Team:
        agent = PausableAgent("lead", ScriptedModelClient(say), tools=[look], max_rounds=100)
        return RoundRobinGroupChat([agent], max_turns=1)

    worth = await worth_of(Upcall(team=team, store="runs.db"), "A")
    assert (verdicts(worth), worth.questions[0].reason) == (["unknown"], "it takes more than 10 model calls")
    assert len(looks) == worth.questions[0].model_calls == 10


async def test_trial_stops_at_a_question_nobody_answered() -> None:
    def reply(request: Request) -> Any:
        results = [*request.tool_results.values()]
        if not results:
            return Call("ask_user", {"question": "Which database?", "options": ["SQLite", "PostgreSQL"]})
        if results == ["PostgreSQL"]:
            return Call("ask_user", {"question": "Which host?"})
        return "Done."

    def team() -> Team:
        return RoundRobinGroupChat([PausableAgent("lead", ScriptedModelClient(reply))], max_turns=1)

    app = Upcall(team=team, store="runs.db")
    worth = await worth_of(app, "SQLite")
    assert worth.questions[0].reason == "it asks something else, which nobody has answered"
    assert not [each for each in await app.store.list() if each.waiting]


async def test_trial_makes_no_call_that_asks() -> None:
    booked = list[str]()

    def book() -> str:
        """Book a seat."""
        seat = ask("Which seat?", options=["Window", "Aisle"]).text
        booked.append(seat)
        return f"booked {seat}"

    def team() -> Team:
        client = ScriptedModelClient(lambda request: "Done." if request.tool_results else Call("book", {}))
        return RoundRobinGroupChat([PausableAgent("lead", client, tools=[book])], max_turns=1)

    worth = await worth_of(Upcall(team=team, store="runs.db"), "Window")
    assert worth.questions[0].reason == "book got another answer, and is not declared free of effects"
    assert (booked, verdicts(worth)) == (["Window"], ["unknown"])


async def test_trial_needs_a_completed_run_of_ones_own(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["nothing"] * 3)
    run = await shop.app.start("Build a shop", user="alice")
    with pytest.raises(CallerError, match="is awaiting_clarification: other answers can be tried once"):
        await shop.app.worth.read(run.id, user="alice")
    with pytest.raises(UnknownRun):
        await shop.app.worth.measure(run.id, user="bob")


# -- what could be taken for the same, and is not ----------------------------------------------------------------------


def app_of(reply: Callable[[list[str]], Any], *, made: list[str] | None = None, **settings: Any) -> Upcall:
    """Return the app of an agent that says what `reply` makes of the results of its calls. Its `act` goes to `made`."""

    def act(what: str) -> str:
        """Do something."""
        made.append(what) if made is not None else None
        return "done"

    def team() -> Team:
        client = ScriptedModelClient(lambda request: reply([*request.tool_results.values()]))
        return RoundRobinGroupChat([PausableAgent("lead", client, tools=[act])], max_turns=1)

    return Upcall(team=team, store="runs.db", settings=Settings.read(None, **settings))


def asks_both(results: list[str]) -> Any:
    """Ask both questions one after another, and show the second answer."""
    match len(results):
        case 0:
            return Call("ask_user", FIRST)
        case 1:
            return Call("ask_user", HOST)
    return f"Done on {results[1]}"


async def answered(app: Upcall, *answers: str | list[str], user: str | None = None) -> Run:
    run = await app.start("Do it", user=user)
    for each in answers:
        run = await app.answer(run.id, each, user=user)
    assert run.status is RunStatus.COMPLETED, run
    return run


async def test_trial_without_the_call_of_a_helper() -> None:
    def deploy(to: str) -> str:
        """Deploy it."""
        return "ok"

    @effect_free
    def look(what: str) -> str:
        """Look."""
        return "fine"

    def say(request: Request) -> Any:
        results = [*request.tool_results.values()]
        if not results:
            return Call("ask_user", FIRST)
        if len(results) == 1:
            return Call("helper", {"task": "deploy"}) if results[0] == "A" else Call("look", {"what": "x"})
        return "Done."

    def help_out(request: Request) -> Any:
        return "helped" if request.tool_results else Call("deploy", {"to": "production"})

    def team() -> Team:
        helper = PausableAgent("helper", ScriptedModelClient(help_out), tools=[deploy], description="h")
        lead = PausableAgent("lead", ScriptedModelClient(say), tools=[look], agents=[helper])
        return RoundRobinGroupChat([lead], max_turns=1)

    worth = await worth_of(Upcall(team=team, store="runs.db"), "A")
    assert (verdicts(worth), worth.questions[0].reason) == (["changed"], "helper makes fewer calls of deploy")


async def test_trial_of_the_same_calls_in_another_order() -> None:
    def reply(results: list[str]) -> Any:
        if not results:
            return Call("ask_user", FIRST)
        order = ["1", "2"] if results[0] == "A" else ["2", "1"]
        return Call("act", {"what": order[len(results) - 1]}) if len(results) < 3 else "Done."

    made = list[str]()
    worth = await worth_of(app_of(reply, made=made), "A")
    assert (verdicts(worth), made) == (["changed"], ["1", "2"])


@pytest.mark.parametrize("replaces", [False, True])
async def test_trial_only_where_a_question_was_asked(*, replaces: bool) -> None:
    app = app_of(asks_both)
    run = await answered(app, "A", "X")
    fork = await app.fork(run.id, run.clarification_history[1][0].id, "Y", replace=replaces)
    worth = await app.worth.measure(fork.id)
    reason = f"it was asked in run {run.id}, which this was forked from: try it there"
    assert [each.reason for each in worth.questions] == [reason] * 2
    assert not [each for each in await app.store.list() if each.config.trial]


async def test_trial_of_a_question_that_a_fork_asked_itself() -> None:
    def reply(results: list[str]) -> Any:
        if results == ["B"]:
            return Call("ask_user", HOST)
        return "Done." if results else Call("ask_user", FIRST)

    app = app_of(reply)
    run = await answered(app, "A")
    fork = await app.fork(run.id, run.clarification_history[0][0].id, "B")
    fork = await app.answer(fork.id, "X")
    assert verdicts(await app.worth.measure(fork.id)) == [None, "same"]


async def test_trial_that_asks_somebody_else() -> None:
    app = app_of(asks_both, questions={"assign": [{"words": "host", "to": "bob"}]})
    run = await app.start("Do it", user="alice")
    run = await app.answer(run.id, "A", user="alice")
    run = await app.answer(run.id, "X", user="bob")
    worth = await app.worth.measure(run.id, user="alice")
    assert worth.questions[0].reason == "it asks what is bob's to answer"
    assert not [each for each in await app.store.list() if each.waiting]


async def test_trial_that_fails_to_be_answered_is_ended() -> None:
    app = app_of(asks_both)
    run = await answered(app, "A", "X")

    async def fail(*_: Any, **__: Any) -> Run:
        raise OSError("the disk is full")

    trials = replace(app.worth, door=replace(app.worth.door, answer=fail))
    with pytest.raises(OSError, match="full"):
        await trials.measure(run.id)
    assert [each.status for each in await app.store.list() if each.config.trial] == [RunStatus.CANCELLED]


async def cut_off_at_a_question(app: Upcall, run: Run) -> Run:
    """Return the trial of a run, cut off before it has an answer."""

    async def die(*_: Any, **__: Any) -> Run:
        raise asyncio.CancelledError

    trials = replace(app.worth, door=replace(app.worth.door, answer=die))
    with pytest.raises(asyncio.CancelledError):
        await trials.measure(run.id)
    (trial,) = [each for each in await app.store.list() if each.waiting]
    return trial


async def test_trial_is_not_in_the_inbox() -> None:
    app = app_of(asks_both)
    await cut_off_at_a_question(app, await answered(app, "A", "X"))
    assert not await app.inbox()


async def test_trial_that_somebody_answered_otherwise() -> None:
    app = app_of(asks_both)
    run = await answered(app, "A", "X")
    trial = await cut_off_at_a_question(app, run)
    await app.answer(trial.id, "Y")
    worth = await app.worth.measure(run.id)
    assert worth.questions[0].reason == "somebody answered it otherwise than its run"
    assert verdicts(worth) == ["unknown", "changed"]


async def test_trial_of_an_earlier_attempt_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(results: list[str]) -> Any:
        if results == ["B"]:
            return Call("ask_user", {"question": "Which other?"})
        return "Done." if results else Call("ask_user", FIRST)

    app = app_of(reply)
    run = await answered(app, "A")

    async def die(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr("upcall.execution.trials.Trials._clear", die)
        with pytest.raises(asyncio.CancelledError):
            await app.worth.measure(run.id)
    assert [each.status for each in await app.store.list() if each.waiting]
    await app.worth.measure(run.id)
    assert not [each for each in await app.store.list() if each.waiting]


async def test_trial_begun_by_another_process_meanwhile() -> None:
    app = app_of(asks_both)
    run = await answered(app, "A", "X")

    async def fork_twice(*given: Any, **named: Any) -> Run:
        await app.worth.door.fork(*given, **named)
        return await app.worth.door.fork(*given, **named)

    trials = replace(app.worth, door=replace(app.worth.door, fork=fork_twice))
    assert verdicts(await trials.measure(run.id)) == ["same", "changed"]


async def test_trial_of_several_choices_is_unknown() -> None:
    app = app_of(lambda results: "Done." if results else Call("ask_user", {**FIRST, "multi_select": True}))
    run = await answered(app, ["A", "B"])
    worth = await app.worth.measure(run.id)
    assert (verdicts(worth), worth.questions[0].reason) == ([None], "its answer has several choices")


async def test_trial_repeats_answers_in_their_order() -> None:
    def reply(results: list[str]) -> Any:
        if not results:
            return Call("ask_user", FIRST)
        if len(results) < 4 and results[-1] != "stop":
            return Call("ask_user", {"question": "Continue?", "options": ["more", "stop"]})
        return f"Done after {len(results)}"

    app = app_of(reply)
    run = await answered(app, "A", "more", "stop")
    worth = await app.worth.measure(run.id)
    assert verdicts(worth)[0] == "same"
    assert [(await app.get(each)).result for each in worth.questions[0].trials] == ["Done after 3"]


# -- what it counts ---------------------------------------------------------------------------------------------------

LEVEL = json.dumps(
    {
        "candidates": [
            {
                "detail": "level",
                "question": "Which level?",
                "known_from": "user",
                "weight": "medium",
                "options": ["Beginners", "Advanced"],
                "assumed": "Advanced",
            }
        ],
        "needs_clarification": True,
    }
)


def level_app(*, is_trial: bool = False, **questions: Any) -> Upcall:
    """Return the app of the root team, which asks for the level, and does the same whatever the answer."""
    replies = script(clarifier=[CLEAR] if is_trial else [LEVEL, CLEAR], lead=['{"summary": "All done."}'])
    settings = Settings.read(questions={"ask_memory": True, **questions}, planning={"enable_plan_approval": False})
    return Upcall(ScriptedModelClient(replies), store="runs.db", settings=settings)


async def answered_level(app: Upcall, answer: str = "Beginners") -> Run:
    run = await app.start(TASK)
    return await app.answer(run.id, answer)


async def dismissed(app: Upcall) -> list[tuple[int, int]]:
    return [(each.asked, each.dismissed) for each in await app.memory.list()]


async def test_trial_counts_as_dismissed_by_choice_alone() -> None:
    run = await answered_level(level_app())
    assert run.status is RunStatus.COMPLETED, run
    for _ in range(2):
        app = level_app(is_trial=True)
        assert verdicts(await app.worth.measure(run.id)) == ["same"]
        assert await dismissed(app) == [(1, 0)]
    for _ in range(2):
        app = level_app(is_trial=True, ask_credit=True)
        worth = await app.worth.measure(run.id)
        assert (verdicts(worth), worth.questions[0].counted) == (["same"], True)
        assert await dismissed(app) == [(1, 1)]


async def test_trial_counts_no_question_twice_that_was_dismissed() -> None:
    run = await answered_level(level_app(), "Advanced")  # What would have been assumed.
    app = level_app(is_trial=True, ask_credit=True)
    assert not (await app.worth.measure(run.id)).questions[0].counted
    assert await dismissed(app) == [(1, 1)]


@pytest.mark.slow
async def test_trial_verdicts_end_questions_of_a_topic() -> None:
    for _ in range(2):
        run = await answered_level(level_app())
        assert run.status is RunStatus.COMPLETED
        await level_app(is_trial=True, ask_credit=True).worth.measure(run.id)
    assert await dismissed(level_app()) == [(2, 2)]
    assert (await level_app().start(TASK)).status is RunStatus.COMPLETED
