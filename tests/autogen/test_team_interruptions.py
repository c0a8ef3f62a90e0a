"""A run whose team fails or is cut off at any level says what failed, and continues with new objects, nothing repeated.

The model's script is strict, as in `test_shapes`: a call that is made again finds no reply.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from conversation import answers, cancelled_while, impatient, resumed_as, send, soon
from foreign import ForeignAgent
from shapes import (
    PLACES,
    SHAPES,
    SIDES,
    TWO,
    Make,
    Replies,
    World,
    ask,
    join_branches,
    note,
    script,
    some_slow,
    system_message_of,
    task,
)

from upcall import Run, RunStatus, Upcall, idempotent
from upcall.agents import NestedTeam
from upcall.testing import Calls, Fail, Hang, Reply, Request, ScriptedModelClient

pytestmark = pytest.mark.usefixtures(impatient.__name__)

LEVELS = [place for place in PLACES if place != "in an agent in a team"]


def app(make: Make, world: World) -> Upcall:
    return Upcall(team=lambda: make(world), store="runs.db")


def failed(run: Run, *text: str) -> Run:
    """Return a run that failed, with one line that says all of `said`."""
    assert (run.status, run.result) == (RunStatus.FAILED, None)
    assert run.error is not None
    assert [each for each in text if each not in run.error] == [], run.error
    assert "\n" not in run.error
    assert "Traceback" not in run.error
    return run


def completed(run: Run, place: str, result: str) -> Run:
    """Return a run that came to its right end."""
    assert (run.error, run.status, run.questions) == (None, RunStatus.COMPLETED, ())
    assert run.result == (PLACES[place].result or result)
    return run


def by_name(run: Run) -> dict[str, str]:
    """Return the ids of the open questions."""
    assert (run.error, run.status) == (None, RunStatus.AWAITING_CLARIFICATION)
    return {each.question: each.id for each in run.questions}


def once(world: World, *notes: str) -> None:
    """Check that these are the side effects, each once."""
    assert sorted(world.noted()) == sorted(notes)


# -- a model that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", some_slow(LEVELS))
@pytest.mark.parametrize("shape", SHAPES)
async def test_member_model_call_that_failed_is_repeated_alone(shape: str, place: str) -> None:
    make = PLACES[place].put(SHAPES[shape].make)
    coder = [note("began"), Fail(500, "broken"), ask("Which?"), Fail(429, "slow down"), note("ended"), "Coded."]
    others = {**SHAPES[shape].others}
    if "tester" in others:
        others["tester"] = [note("tested"), Fail(502), "Tested."]
    with script(others, PLACES[place].others, {"coder": coder}) as client:
        world = World(client)
        run = failed(await app(make, world).start("Build it"), "Agent 'coder'", "HTTP 500")
        run = await app(make, world).resume(run.id)
        run = failed(await app(make, world).answer(run.id, {by_name(run)["Which?"]: "This"}), "Agent 'coder'", "429")
        run = await app(make, world).resume(run.id)
        if "tester" in others:
            run = await app(make, world).resume(failed(run, "Agent 'tester'", "HTTP 502").id)
    completed(run, place, SHAPES[shape].result)
    assert len(world.noted()) == len(set(world.noted())) == SHAPES[shape].notes + 2


@pytest.mark.parametrize("place", some_slow(LEVELS))
@pytest.mark.parametrize("call", range(3), ids=["facts", "plan", "step"])
async def test_orchestrator_model_call_that_failed_is_named_and_repeated(call: int, place: str) -> None:
    shape = SHAPES["magentic"]
    orchestrator = [*shape.others[""][:call], Fail(500, "broken"), *shape.others[""][call:]]
    with script(shape.others, PLACES[place].others, {"": orchestrator, "coder": ["Coded."]}) as client:
        world = World(client)
        make = PLACES[place].put(shape.make)
        run = failed(await app(make, world).start("Build it"), "HTTP 500")
        assert run.error is not None
        assert run.error.startswith("Agent 'MagenticOneOrchestrator': ")
        run = await app(make, world).resume(run.id)
    completed(run, place, shape.result)


# -- what else may fail -----------------------------------------------------------------------------------------------


class Breaks(ForeignAgent):
    """A stock agent that fails as often as its list says, then works."""

    def __init__(self, name: str, failures: list[Exception]) -> None:
        super().__init__(name, "Breaks.")
        self._failures = failures

    async def speak(self, messages: Sequence[BaseChatMessage]) -> str:
        if self._failures:
            raise self._failures.pop()
        return "Whole again."


def crew_of(*members: Any) -> Team:
    """Return the members, one after another."""
    return RoundRobinGroupChat(list(members), name="crew", max_turns=len(members))


@pytest.mark.parametrize("place", some_slow(LEVELS))
async def test_member_with_a_nested_failing_agent_starts_anew(place: str) -> None:
    failures: list[Exception] = [ValueError("two\nlines")]

    def make(world: World) -> Team:
        return crew_of(world.agent("coder", Breaks("fragile", failures)), world.agent("tester"))

    fields = {"coder": [note("began"), task("fragile"), "Coded."], "tester": ["Tested."]}
    with script(PLACES[place].others, fields) as client:
        world, put = World(client), PLACES[place].put(make)
        run = failed(await app(put, world).start("Build it"), "Agent 'fragile'", "ValueError")
        completed(await app(put, world).resume(run.id), place, "Tested.")
    once(world, "began")


@pytest.mark.parametrize("place", some_slow(LEVELS))
async def test_function_tool_exception_reaches_its_agents_model(place: str) -> None:
    def fragile() -> str:
        """Break."""
        raise ValueError("it broke")

    def make(world: World) -> Team:
        return crew_of(world.agent("coder", tools=[world.note, fragile]), world.agent("tester"))

    fields = {"coder": [Calls([note("began"), task("fragile")]), "Coded."], "tester": ["Tested."]}
    with script(PLACES[place].others, fields) as client:
        world = World(client)
        completed(await app(PLACES[place].put(make), world).start("Build it"), place, "Tested.")
    emitted = [each for each in client.requests if each.system.startswith(system_message_of("coder"))][-1]
    assert list(emitted.tool_results.values()) == ["noted began", "Error: it broke"]
    once(world, "began")


# -- a stock member ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", some_slow(LEVELS))
async def test_stock_member_that_fails_is_named_and_starts_anew(place: str) -> None:
    def make(world: World) -> Team:
        stock = AssistantAgent("helper", world.client, system_message=system_message_of("helper"), tools=[world.note])
        return crew_of(world.agent("coder"), stock, world.agent("tester"))

    fields = {
        "coder": [note("began"), ask("Which?"), note("ended"), "Coded."],
        "helper": [Fail(500, "broken"), "Helped."],
        "tester": ["Tested."],
    }
    with script(PLACES[place].others, fields) as client:
        world, put = World(client), PLACES[place].put(make)
        run = await app(put, world).start("Build it")
        run = failed(await app(put, world).answer(run.id, {by_name(run)["Which?"]: "This"}), "'helper'", "HTTP 500")
        run = completed(await app(put, world).resume(run.id), place, "Tested.")
    once(world, "began", "ended")


# -- a run that is cut off --------------------------------------------------------------------------------------------


async def cut_off(app: Upcall, how: str, busy: Any, **given: Any) -> None:
    """Start a run, or continue with it, wait until it is `busy`, and cut it off."""
    stream = app.start_stream("Build it") if not given else app.answer_stream(given["run"], given["answers"])

    async def consume() -> None:
        async with aclosing(stream) as items:
            async for item in items:
                if how == "generator" and busy(item):
                    return

    work = asyncio.create_task(consume())
    if how == "task":
        while not busy(None) and not work.done():
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        work.cancel()
    with suppress(asyncio.CancelledError):
        await soon(work)
    assert work.cancelled() == (how == "task")


@pytest.mark.parametrize("place", some_slow(LEVELS))
@pytest.mark.parametrize("at", ["the model", "a tool", "an idempotent tool"])
async def test_cancelled_run_continues_with_what_was_in_flight(at: str, place: str) -> None:
    hanging: list[bool] = [True]
    tried: list[str] = []

    async def slow() -> str:
        """Take long."""
        tried.append("slow")
        if hanging:
            await asyncio.sleep(3600)
        return "done"

    def make(world: World) -> Team:
        tools = [world.note, idempotent(slow) if at == "an idempotent tool" else slow]
        return crew_of(world.agent("coder", tools=tools), world.agent("tester"))

    waits = [Hang(), "Coded."] if at == "the model" else [task("slow"), "Coded."]
    fields = {"coder": [note("began"), *waits], "tester": [note("tested"), "Tested."]}
    with script(PLACES[place].others, fields) as client:
        world, put = World(client), PLACES[place].put(make)
        begun = len(PLACES[place].others and {"lead"} & set(PLACES[place].others))

        def busy(_: Any) -> bool:
            return len(client.requests) == 2 + begun if at == "the model" else bool(tried)

        await cut_off(app(put, world), "task", busy)
        hanging.clear()
        (run,) = await app(put, world).list()
        assert run.status is RunStatus.EXECUTING
        run = await app(put, world).resume(run.id)
        if at == "a tool":
            (doubt,) = by_name(run)
            assert "coder was calling slow when its process ended" in doubt
            run = await app(put, world).answer(run.id, "Run it again")
        completed(run, place, "Tested.")
    once(world, "began", "tested")
    assert len(tried) == (0 if at == "the model" else 2)


@pytest.mark.parametrize("how", ["token", "task"])
async def test_nested_team_that_is_cancelled_continues_when_rebuilt(how: str) -> None:
    def crew(world: World) -> NestedTeam:
        return NestedTeam(crew_of(world.agent("coder"), world.agent("tester")))

    coder = [note("began"), Hang(), ask("Which?"), "Coded."]
    with script({"coder": coder, "tester": ["Tested."]}) as client:
        world = World(client)
        first = crew(world)
        await cancelled_while(first, lambda: len(client.requests) == 2, how, "Build it")
        second = await resumed_as(first, crew(world))
        rest = await send(second)
        third = await resumed_as(second, crew(world))
        assert (await send(third, answers(rest, "This"))).text == "Tested."
    once(world, "began")


# -- one fails while another asks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", some_slow(LEVELS))
@pytest.mark.parametrize("fails", ["left", "right"])
async def test_question_stays_open_when_a_neighbour_fails(fails: str, place: str) -> None:
    make = PLACES[place].put(SHAPES["round robin"].make)
    fields = {**TWO, fails: [TWO[fails][0], Fail(500), *TWO[fails][1:]]}
    with script(SHAPES["round robin"].others, PLACES[place].others, fields) as client:
        world = World(client)
        run = failed(await app(make, world).start("Build it"), f"Agent {fails!r}", "HTTP 500")
        run = await app(make, world).resume(run.id)
        ids = by_name(run)
        assert set(ids) == set(SIDES)
        run = await app(make, world).answer(run.id, {ids["How many rows?"]: "12"})
        run = await app(make, world).answer(run.id, {ids["Which browser?"]: "Firefox"})
    completed(run, place, "Tested.")
    assert len(world.noted()) == len(set(world.noted())) == 6


@pytest.mark.parametrize("place", some_slow(LEVELS))
@pytest.mark.parametrize("order", ["asked, then failed", "failed, then asked"])
async def test_question_of_a_branch_survives_another_branchs_failure(order: str, place: str) -> None:
    def make(world: World) -> Team:
        starter, red, blue, join = (world.agent(name) for name in ("starter", "red", "blue", "tester"))
        return join_branches(starter, red, blue, join)

    late = [note("later"), note("latest")]
    red, blue = [note("red"), ask("Which red?"), "Red."], [note("blue"), Fail(500), note("blue2"), "Blue."]
    fields = {
        "starter": ["Started."],
        "red": red if order.startswith("asked") else [*late, *red],
        "blue": [*late, *blue] if order.startswith("asked") else blue,
        "tester": ["Tested."],
    }
    with script(PLACES[place].others, fields) as client:
        world, put = World(client), PLACES[place].put(make)
        run = failed(await app(put, world).start("Build it"), "Agent 'blue'", "HTTP 500")
        run = await app(put, world).resume(run.id)
        run = await app(put, world).answer(run.id, {by_name(run)["Which red?"]: "Ruby"})
    completed(run, place, "Tested.")
    once(world, "red", "blue", "blue2", "later", "latest")


# -- a reader who leaves ----------------------------------------------------------------------------------------------


def by_progress(*parts: Replies) -> ScriptedModelClient:
    """Return a model that says what comes next in its context, so that a call that was in flight can be made again."""
    replies = {system_message_of(name): text for part in parts for name, text in part.items()}

    def respond(request: Request) -> Reply:
        (text,) = (text for system, text in replies.items() if request.system.startswith(system))
        made = [message for message in request.messages if message["role"] == "assistant"]
        # A hand-off brings along the calls of the agent that made it, which are not in this one's script.
        handed_over = [
            call
            for message in made
            for call in message.get("tool_calls", [])
            if str(json.loads(call["function"]["arguments"])) not in str(text)
        ]
        return text[len(made) - len(handed_over)]

    return ScriptedModelClient(respond)


async def leaving(stream: AsyncGenerator[Any, None], at: int) -> bool:
    """Leave a stream at one of its events. Gives whether it had so many."""
    async with aclosing(stream) as items:
        async for item in items:
            at -= not isinstance(item, Run)
            if at == 0:
                return True
    return False


async def sure(app: Upcall, world: World, run: Run) -> Run:
    """Return the run when no call is in doubt: the notes show whether it took effect."""
    while run.records.unknown_outcomes:
        asked = next(question for question in run.questions if question.id in run.records.unknown_outcomes)
        (text,) = re.findall('"text": "(.*?)"', str(asked.context))
        output = f"noted {text}" if text in world.noted() else "Run it again"
        run = await app.answer(run.id, {asked.id: output})
    return run


LEFT = [
    pytest.param(shape, place, marks=[] if (shape, place) == ("graph", "as a team") else [pytest.mark.slow])
    for shape in ("agent as tool", "round robin", "swarm", "graph")
    for place in LEVELS
]


@pytest.mark.parametrize(("shape", "place"), LEFT)
@pytest.mark.slow
async def test_reader_who_leaves_repeats_only_work_in_flight(shape: str, place: str) -> None:
    make = PLACES[place].put(SHAPES[shape].make)
    coder: list[Reply] = [note("began"), note("went_on"), ask("Which?"), "Coded."]
    parts: list[Replies] = [SHAPES[shape].others, PLACES[place].others, {"coder": coder}]
    needed = sum(len(text) for part in parts for text in part.values())
    for at in itertools.count(1):
        client = by_progress(*parts)
        world = World(client, notes=Path(f"notes{at}.txt"))
        now = Upcall(team=lambda world=world: make(world), store=f"{at}.db")
        left = await leaving(now.start_stream("Build it"), at)
        (run,) = await now.list()
        if run.working:
            run = await sure(now, world, await now.resume(run.id))
        left_again = await leaving(now.answer_stream(run.id, {by_name(run)["Which?"]: "This"}), at)
        run = await now.get(run.id)
        if run.working:
            run = await sure(now, world, await now.resume(run.id))
        completed(run, place, SHAPES[shape].result)
        assert len(world.noted()) == len(set(world.noted())) == SHAPES[shape].notes + 2
        branches = 2 if shape == "graph" else 1
        assert needed <= len(client.requests) <= needed + branches * (left + left_again)
        if not (left or left_again):
            break
    assert at >= 5
