"""A run with a budget pauses at its limit with a question, and the answer continues it at the very model call."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import budget_process
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool
from budget_process import RUN, World
from conversation import soon
from forked import run_python

from upcall import OpenAICompatibleClient, PausableAgent, Run, RunStatus, Settings, Upcall
from upcall.budget import MAX_AMOUNT, UsageLimits, parse_budget
from upcall.errors import AnswerRefused, CallerError, ConfigurationError
from upcall.execution.demo import TASKS
from upcall.runs.budget import AS_MUCH_AGAIN, STOP
from upcall.runs.transcript import EntryKind
from upcall.testing import Call, Calls, LoopbackServer, Raw, Reply, Request, ScriptedModelClient

WHOLE = 2 + 2 * 4
"""Calls of the whole run: two of the lead, and four of each coder."""


async def start(world: World, budget: str) -> Run:
    return await soon(world.app.start("Build it", run_id=RUN, budget=budget))


# -- at the limit -----------------------------------------------------------------------------------------------------


async def test_budget_of_calls_pauses_and_continues(tmp_path: Path, location: str) -> None:
    world = World(tmp_path, location)
    run = await start(world, "4 calls")
    asked = []
    while run.waiting:
        (question,) = run.questions
        asked.append((world.count(), run.budget and run.budget.spent.calls))
        assert [each.label for each in question.options] == [AS_MUCH_AGAIN, STOP]
        run = await soon(world.app.answer(RUN, "1"))
    assert asked == [(4, 4), (8, 8)]
    assert (run.status, run.result, world.count()) == (RunStatus.COMPLETED, "Done.", WHOLE)
    assert world.steps() == {"a": [1, 2, 3], "b": [1, 2, 3]}


@pytest.mark.parametrize("budget", [f"{count} calls" for count in range(1, WHOLE)])
async def test_budget_of_calls_is_never_exceeded(tmp_path: Path, budget: str) -> None:
    world = World(tmp_path)
    run = await start(world, budget)
    assert (run.waiting, world.count()) == (True, int(budget.split()[0]))


async def test_call_cut_off_at_a_limit_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have taken effect, so that it is not simply made again once the budget was raised."""
    monkeypatch.setattr("upcall.execution.budget.IDLE_TIMEOUT_S", 0.2)
    begun, is_sending = list[str](), asyncio.Event()

    async def send() -> str:
        """Send it."""
        begun.append("sent")
        is_sending.set()
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "sent"

    async def look() -> str:
        """Look until it is being sent."""
        await is_sending.wait()
        return "seen"

    def respond(request: Request) -> Reply:
        number = sum(each["role"] == "assistant" for each in request.messages)
        if "You are a." in request.system:
            return [Call("send"), "a: done"][number]
        if "You are b." in request.system:
            return [Call("look"), "b: done"][number]
        return Calls([Call("a", {"task": "Do it"}), Call("b", {"task": "Do it"})]) if number == 0 else "Done."

    def team() -> Team:
        a = PausableAgent("a", client, system_message="You are a.", tools=[send])
        b = PausableAgent("b", client, system_message="You are b.", tools=[look])
        return RoundRobinGroupChat([PausableAgent("lead", client, agents=[a, b])], max_turns=1)

    client = ScriptedModelClient(respond)
    app = Upcall(team=team, store="runs.db")
    run = await soon(app.start("Do it", budget="3 calls"))
    headers = [each.header for each in run.questions]
    assert (sorted(map(str, headers)), begun) == (["Budget", "Call in doubt"], ["sent"])
    given = {each.id: "Do not run it again" if each.header == "Call in doubt" else "20 calls" for each in run.questions}
    run = await soon(app.answer(run.id, given))
    assert (run.status, run.result, begun) == (RunStatus.COMPLETED, "Done.", ["sent"])


async def test_budget_of_tokens_counts_calls_in_flight(tmp_path: Path) -> None:
    world = World(tmp_path)
    run = await start(world, "1 token")
    while run.waiting and run.budget is not None:
        before = run.budget.spent.calls
        run = await soon(world.app.answer(RUN, "1 token"))
        assert run.budget is not None
        assert run.budget.spent.calls - before <= 2  # The coders call side by side.
    assert (run.result, world.count()) == ("Done.", WHOLE)


@pytest.mark.parametrize("usage", [{"prompt_tokens": 0, "completion_tokens": 0}, None])
async def test_budget_of_tokens_holds_without_a_count(usage: dict[str, int] | None) -> None:
    async def work(step: int) -> str:
        """Work on."""
        return f"worked at {step}, " * 50

    def respond(request: Request) -> Reply:
        step = len(request.messages)
        made = {"name": "work", "arguments": json.dumps({"step": step})}
        calls = [{"id": f"c{step}", "type": "function", "function": made}]
        choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": calls}}
        return Raw(json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}))

    def team() -> Team:
        client = OpenAICompatibleClient("m", base_url=server.base_url, api_key="k")
        return RoundRobinGroupChat([PausableAgent("a", client, tools=[work])], max_turns=1)

    with LoopbackServer(respond) as server:
        run = await soon(Upcall(team=team, store="runs.db").start("Do it", budget="2k tokens, 30 calls"))
    assert ([each.header for each in run.questions], run.error) == (["Budget"], None)
    assert run.budget is not None
    assert 2_000 <= run.budget.spent.tokens < 5_000


async def test_budget_of_time_passes_while_a_team_works(tmp_path: Path) -> None:
    world = World(tmp_path)
    run = await start(world, "time=0.001s")
    assert run.waiting
    assert run.budget is not None
    used = run.budget.spent.time
    await asyncio.sleep(0.3)  # The wait for a person.
    run = await soon(world.app.answer(RUN, "1h"))
    assert run.result == "Done."
    assert run.budget is not None
    assert run.budget.limits.time == pytest.approx(used + 3600)


async def test_budget_stopped_ends_with_what_there_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    await start(world, "6 calls")
    run = await soon(world.app.answer(RUN, STOP))
    assert (run.status, run.stop_reason, run.open_questions) == (RunStatus.COMPLETED, "budget", ())
    assert (run.result or "").startswith("Step ")
    assert world.count() == 6


async def test_budget_question_takes_amounts_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    await start(world, "4 calls")
    others = ("50k tokens", "10 calls, cost 0.01", "1h", "9" * 400 + " calls", "9" * 190 + " calls")
    for wrong in ("perhaps", "5", "5 apples", "0 calls", *others):
        with pytest.raises(AnswerRefused):
            await world.app.answer(RUN, wrong)
    with pytest.raises(CallerError):
        await world.app.fork(RUN, (await world.app.get(RUN)).questions[0].id, "1")
    run = await soon(world.app.answer(RUN, "100 calls"))
    assert (run.result, run.budget and run.budget.limits.calls) == ("Done.", 104)


async def test_budget_raised_beyond_bounds_is_still_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    await start(world, "4 calls")
    await soon(world.app.answer(RUN, f"{MAX_AMOUNT} calls"))
    run = await World(tmp_path).app.get(RUN)
    assert (run.result, run.budget and run.budget.limits.calls) == ("Done.", MAX_AMOUNT)


async def test_budget_question_stands_in_the_transcript(tmp_path: Path) -> None:
    world = World(tmp_path)
    run = await start(world, "4 calls")
    entries = (await world.app.log.transcript(RUN)).entries
    assert (entries[-1].kind, entries[-1].name) == (EntryKind.QUESTION, run.questions[0].id)


async def test_unattended_run_waits_at_its_budget(tmp_path: Path) -> None:
    world = World(tmp_path)
    run = await soon(world.app.start("Build it", budget={"calls": 4}, unattended=True, on_expiry="assume"))
    assert (run.waiting, world.count()) == (True, 4)


async def test_budget_waits_with_the_question_of_an_agent(tmp_path: Path) -> None:
    world = World(tmp_path, asks="a")
    run = await start(world, "4 calls")
    about_budget = next(each for each in run.questions if each.asker == "upcall")
    others = [each for each in run.questions if each is not about_budget]
    for each in others:
        run = await soon(world.app.answer(RUN, {each.id: "Blue"}))
        assert run.waiting
    run = await soon(world.app.answer(RUN, {about_budget.id: "50 calls"}))
    while run.waiting:
        run = await soon(world.app.answer(RUN, {run.questions[0].id: "Blue"}))
    assert run.result == "Done."


async def test_budget_counts_agents_at_depth_two(tmp_path: Path) -> None:
    world = World(tmp_path, deep=True)
    run = await start(world, "5 calls")
    assert (run.waiting, world.count()) == (True, 5)
    run = await soon(world.app.answer(RUN, "100 calls"))
    assert (run.result, world.count(), run.budget and run.budget.spent.calls) == ("Done.", WHOLE + 2, WHOLE + 2)


async def test_budget_counts_stock_agents_and_their_group(tmp_path: Path) -> None:
    client = ScriptedModelClient(["one", "First.", "two", "Second."])

    def make_team() -> Team:
        members = [AssistantAgent(name, client, description=name) for name in ("one", "two", "three")]
        return SelectorGroupChat(members, client, termination_condition=MaxMessageTermination(3))

    app = Upcall(team=make_team, store=str(tmp_path / "runs.db"))
    run = await soon(app.start("Build it", budget="2 calls"))
    assert ([each.header for each in run.questions], len(client.requests)) == (["Budget"], 2)
    run = await soon(app.answer(run.id, "yes"))
    assert (run.result, len(client.requests)) == ("Second.", 4)


async def test_budget_pauses_stock_agents_side_by_side(tmp_path: Path) -> None:
    def reply(request: Request) -> Reply:
        if "the lead" not in request.system:
            return "Coded."
        calls = [Call(name, {"task": "Code"}, id=name) for name in ("a", "b")]
        return "Done." if request.tool_results else Calls(calls)

    client = ScriptedModelClient(reply)

    def make_team() -> Team:
        coders = [AssistantAgent(name, client, description="c", system_message="Code.") for name in ("a", "b")]
        tools = [AgentTool(each, return_value_as_last_message=True) for each in coders]
        lead = AssistantAgent("lead", client, tools=tools, system_message="You are the lead.", reflect_on_tool_use=True)
        return RoundRobinGroupChat([lead], max_turns=1)

    app = Upcall(team=make_team, store=str(tmp_path / "runs.db"))
    run = await soon(app.start("Build it", budget="1 call"))  # Each coder waits in a call of its own.
    assert ([each.header for each in run.questions], len(client.requests)) == (["Budget"], 1)
    run = await soon(app.answer(run.id, "50 calls"))
    assert (run.result, len(client.requests)) == ("Done.", 4)


async def test_budget_of_money_goes_by_the_prices(tmp_path: Path) -> None:
    settings = Settings(models={"model": "demo", "prices": {"demo": {"prompt": 1000, "completion": 1000}}})
    app = Upcall(store=str(tmp_path / "runs.db"), settings=settings)
    run = await soon(app.start(TASKS[0], budget="cost 1.50"))
    assert ([each.header for each in run.questions], run.budget and run.budget.currency) == (["Budget"], "USD")
    assert run.budget is not None
    assert run.budget.spent.cost == pytest.approx(run.budget.spent.tokens / 1000)
    assert " of 1.5000 USD" in (run.questions[0].context or "")


async def test_budget_of_money_continues_only_with_prices(tmp_path: Path) -> None:
    priced = {"model": "demo", "prices": {"demo": {"prompt": 1000, "completion": 1000}}}
    known = ({"model": "demo"}, priced)
    apps = [Upcall(store=str(tmp_path / "runs.db"), settings=Settings(models=each)) for each in known]
    run = await soon(apps[1].start(TASKS[0], budget="cost 1.50"))
    with pytest.raises(ConfigurationError, match="no price of demo"):
        await soon(apps[0].answer(run.id, AS_MUCH_AGAIN))
    assert (await apps[1].get(run.id)).questions == run.questions
    run = await soon(apps[1].answer(run.id, "cost 1000"))
    asked = run.questions[0]
    await soon(apps[1].answer(run.id, {asked.id: "1"}))
    with pytest.raises(ConfigurationError, match="no price of demo"):
        await soon(apps[0].fork(run.id, asked.id, "2"))


async def test_fork_begins_its_budget_anew(tmp_path: Path) -> None:
    world = World(tmp_path, asks="ab")
    run = await start(world, "4 calls")
    first = run.questions[0]
    run = await soon(world.app.answer(RUN, {each.id: "Blue" for each in run.questions}))
    run = await soon(world.app.answer(RUN, "1"))
    fork = await soon(world.app.fork(RUN, first.id, "Red"))
    assert fork.budget is not None
    assert (fork.result, fork.budget.limits) == ("Done.", UsageLimits(calls=4))
    assert fork.budget.spent.calls == world.count() - 8  # What it takes over is paid for.


# -- over processes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dies", "repeated"), [("request 4", 1), ("question", 0), ("request 6", 1)])
async def test_kill_around_the_limit_repeats_one_call(tmp_path: Path, location: str, dies: str, repeated: int) -> None:
    made = run_python(budget_process.__file__, str(tmp_path), location, dies, "4 calls")
    assert made.returncode == -signal.SIGKILL, made.stderr
    world = World(tmp_path, location)
    run = await world.app.get(RUN)
    assert run.waiting is (dies == "question")
    if not run.waiting:
        run = await soon(world.app.resume(RUN))
    if run.waiting:  # The process that died in its sixth request had the answer.
        assert run.budget is not None
        assert run.budget.spent.calls == 4
        run = await soon(world.app.answer(RUN, "100 calls"))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert world.count() == WHOLE + repeated  # The request in which it died.
    steps = world.steps()
    assert {who: sorted({*taken}) for who, taken in steps.items()} == {"a": [1, 2, 3], "b": [1, 2, 3]}
    assert sum(map(len, steps.values())) <= 7  # A step that was under way beside the request is idempotent.


async def test_budget_counts_over_the_pauses_of_a_run(tmp_path: Path, location: str) -> None:
    world = World(tmp_path, location, asks="ab")
    run = await start(world, "4 calls")
    assert [each.asker for each in run.questions] == ["a", "b"]
    run = await soon(World(tmp_path, location, asks="ab").app.answer(RUN, {each.id: "Blue" for each in run.questions}))
    assert ([each.asker for each in run.questions], world.count()) == (["upcall"], 4)
    assert run.budget is not None
    assert run.budget.spent.calls == 4


async def test_answer_left_to_a_worker_continues_at_the_limit(tmp_path: Path) -> None:
    world = World(tmp_path)
    await start(world, "4 calls")
    await world.app.answer(RUN, "yes", wait=False)
    await soon(world.app.drain())
    assert (await world.app.get(RUN)).waiting
    run = await world.app.answer(RUN, "no", wait=False)
    assert (run.status, world.count()) == (RunStatus.COMPLETED, 8)
    await soon(world.app.drain())


# -- given and shown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("50 calls", UsageLimits(calls=50)),
        ("calls=50, tokens = 200k; 30m", UsageLimits(calls=50, tokens=200_000, time=1800)),
        ("1,500,000 tokens and cost 2.50", UsageLimits(tokens=1_500_000, cost=2.5)),
        ("1.5M tokens", UsageLimits(tokens=1_500_000)),
        ("1 call, 90 s", UsageLimits(calls=1, time=90)),
        ("time: 2h", UsageLimits(time=7200)),
    ],
)
def test_budget_is_read_as_people_write_it(text: str, budget: UsageLimits) -> None:
    assert parse_budget(text) == budget


NO_AMOUNTS = ["", "50", "calls", "5 apples", "5 calls, 6 calls", "-5 calls", "cost 0"]
NO_AMOUNTS += ["9" * 400 + " tokens", "9" * 190 + " tokens", "1" + " " * 20_000 + "x y", "cost " + "9" * 400]


@pytest.mark.parametrize("text", NO_AMOUNTS)
def test_budget_refuses_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_budget(text)


async def test_budget_of_a_start_overrides_the_settings(tmp_path: Path) -> None:
    settings = Settings(budget={"calls": 4, "time": "1h"})
    world = World(tmp_path, settings=settings)
    run = await start(world, "6 calls")
    assert run.budget is not None
    assert (run.budget.limits, world.count()) == (UsageLimits(calls=6, time=3600), 6)


async def test_budget_of_money_needs_prices(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cost"):
        await World(tmp_path).app.start("Build it", budget="cost 2")
    settings = Settings(models={"model": "small", "api_key": "k", "base_url": "http://127.0.0.1:1/v1"})
    with pytest.raises(ConfigurationError, match="no price of small"):
        await Upcall(store=str(tmp_path / "b.db"), settings=settings).start("Build it", budget="cost 2")
