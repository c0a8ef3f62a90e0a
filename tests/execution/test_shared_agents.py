"""Two runs, every way to build a team: no word of one in the other."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import (
    AssistantAgent,
    BaseChatAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    SocietyOfMindAgent,
)
from autogen_agentchat.agents._message_filter_agent import PerSourceFilter
from autogen_agentchat.base import ChatAgent, Response, Team
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken
from autogen_core.model_context import BufferedChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.tools import StaticWorkbench

from upcall import PausableAgent, Settings, Upcall, with_questions
from upcall.agents import NestedTeam
from upcall.autogen import ownership
from upcall.errors import SharedAgent, StoreUnavailable
from upcall.runs.states import RunStatus
from upcall.testing import Call, Reply, ScriptedModelClient
from upcall.testing.model import Request

MakeTeam = Callable[[], Team]


def user_texts(request: Request) -> list[str]:
    return [str(each["content"]) for each in request.messages if each["role"] == "user"]


def asking() -> ScriptedModelClient:
    def reply(request: Request) -> Reply:
        text = f"{user_texts(request)}"
        return f"Done: {text}" if request.tool_results else Call("ask_user", {"question": f"Which one for {text}?"})

    return ScriptedModelClient(reply)


def telling() -> ScriptedModelClient:
    return ScriptedModelClient(lambda request: f"Done: {user_texts(request)}")


def calling(tool: str) -> ScriptedModelClient:
    def reply(request: Request) -> Reply:
        return next(iter(request.tool_results.values()), None) or Call(tool, {"task": user_texts(request)[0]})

    return ScriptedModelClient(reply)


class Memo(BaseChatAgent):
    """Remembers all it was given; with an inner agent that one does."""

    def __init__(self, name: str = "memo", inner: ChatAgent | None = None) -> None:
        super().__init__(name, "Remembers.")
        self.inner, self.given = {"first": [inner]}, list[str]()

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        (inner,) = self.inner["first"]
        if inner is not None:
            return await inner.on_messages(messages, cancellation_token)
        self.given += [each.to_text() for each in messages]
        return Response(chat_message=TextMessage(content=f"Done: {self.given}", source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.given = []


class Desk:
    """An object of the program that holds an agent out of sight."""

    def __init__(self, expert: ChatAgent | Team) -> None:
        self.experts = [{"one": expert}]

    async def consult(self, task: str) -> str:
        """Consult the expert."""
        return (await self.experts[0]["one"].run(task=task)).messages[-1].to_text()


def a_round(*members: ChatAgent | Team, turns: int = 1) -> Team:
    return RoundRobinGroupChat([*members], max_turns=turns)


def lead(tool: str, **options: Any) -> PausableAgent:
    return PausableAgent("lead", calling(tool), ask_user=False, **options)


def stock(name: str = "expert", **options: Any) -> AssistantAgent:
    return AssistantAgent(name, telling(), description="An expert.", **options)


def asker(name: str = "expert", **options: Any) -> PausableAgent:
    return PausableAgent(name, asking(), description="An expert.", **options)


def graph_of(agent: ChatAgent) -> Team:
    builder = DiGraphBuilder()
    builder.add_node(agent)
    return GraphFlow([agent], builder.build())


def consulting(expert: ChatAgent) -> Callable[[str], Any]:
    async def consult(task: str) -> str:
        """Consult the expert."""
        return (await expert.run(task=task)).messages[-1].to_text()

    return consult


global_expert: ChatAgent


async def consult_global(task: str) -> str:
    """Consult the expert."""
    return "".join([each.to_text() for each in (await global_expert.run(task=task)).messages[-1:]])


def with_global_expert() -> MakeTeam:
    global global_expert
    global_expert = stock()
    return lambda: a_round(lead("consult_global", tools=[consult_global]))


def sharing(make: Callable[[Any], Team], shared: Any) -> MakeTeam:
    return lambda: make(shared)


def filtered(agent: ChatAgent) -> Team:
    kept = MessageFilterConfig(per_source=[PerSourceFilter(source="user", position="last", count=9)])
    return a_round(MessageFilterAgent(agent.name, agent, kept))


SERVED: Mapping[str, Callable[[], MakeTeam]] = {
    "a PausableAgent": lambda: sharing(a_round, asker()),
    "with_questions": lambda: sharing(a_round, with_questions(AssistantAgent("w", asking()))),
    "with_questions of a shared agent": lambda: sharing(
        lambda each: a_round(with_questions(each)), AssistantAgent("w", asking())
    ),
    "nested in an agent": lambda: sharing(lambda each: a_round(lead("expert", agents=[each])), asker()),
    "in a team in a team": lambda: sharing(lambda each: a_round(a_round(each)), asker()),
    "in a Swarm": lambda: sharing(lambda each: Swarm([each], termination_condition=MaxMessageTermination(2)), asker()),
    "in a SelectorGroupChat": lambda: sharing(
        lambda each: SelectorGroupChat([each, asker("b")], telling(), selector_func=lambda _: "expert", max_turns=1),
        asker(),
    ),
    "its model context": lambda: sharing(
        lambda each: a_round(asker(model_context=each)), BufferedChatCompletionContext(9)
    ),
    "all built inside": lambda: lambda: a_round(stock(), asker("b"), turns=2),
}

REFUSED: Mapping[str, Callable[[], MakeTeam]] = {
    "an AssistantAgent": lambda: sharing(a_round, stock()),
    "a class of the program": lambda: sharing(a_round, Memo()),
    "a whole team": lambda: sharing(lambda team: team, a_round(asker())),
    "a whole graph": lambda: sharing(lambda team: team, graph_of(stock())),
    "in a graph": lambda: sharing(graph_of, stock()),
    "an inner team": lambda: sharing(a_round, a_round(asker())),
    "a NestedTeam": lambda: sharing(a_round, NestedTeam(a_round(asker()), name="nested")),
    "in a NestedTeam": lambda: sharing(lambda each: a_round(NestedTeam(a_round(each), name="nested")), asker()),
    "in a message filter": lambda: sharing(filtered, asker()),
    "a society's team": lambda: sharing(
        lambda team: a_round(SocietyOfMindAgent("society", team, telling())), a_round(stock())
    ),
    "a stock agent nested": lambda: sharing(lambda each: a_round(lead("expert", agents=[each])), stock()),
    "an AgentTool": lambda: sharing(lambda tool: a_round(lead("expert", tools=[tool])), AgentTool(stock())),
    "an AgentTool of a stock agent": lambda: sharing(
        lambda tool: a_round(AssistantAgent("lead", calling("expert"), tools=[tool])), AgentTool(stock())
    ),
    "a TeamTool": lambda: sharing(
        lambda tool: a_round(AssistantAgent("lead", calling("tool"), tools=[tool])),
        TeamTool(a_round(stock()), "tool", "A team."),
    ),
    "an agent in a workbench": lambda: sharing(
        lambda each: a_round(lead("expert", workbench=each)), StaticWorkbench([AgentTool(stock())])
    ),
    "a tool's closure": lambda: sharing(lambda each: a_round(lead("consult", tools=[each])), consulting(stock())),
    "a tool's global": with_global_expert,
    "behind a tool's object": lambda: sharing(
        lambda desk: a_round(lead("consult", tools=[desk.consult])), Desk(stock())
    ),
    "a PausableAgent behind one": lambda: sharing(
        lambda desk: a_round(lead("consult", tools=[desk.consult])),
        Desk(PausableAgent("expert", telling(), ask_user=False)),
    ),
    "a team behind one": lambda: sharing(
        lambda desk: a_round(lead("consult", tools=[desk.consult])), Desk(a_round(Memo("expert")))
    ),
    "inside a class of the program": lambda: sharing(lambda each: a_round(Memo("outer", each)), Memo("expert")),
    "a stock agent's model context": lambda: sharing(
        lambda each: a_round(stock(model_context=each)), UnboundedChatCompletionContext()
    ),
    "a context of two agents": lambda: sharing(
        lambda each: a_round(asker(model_context=each), stock("b", model_context=each), turns=2),
        UnboundedChatCompletionContext(),
    ),
    "a selector's model context": lambda: sharing(
        lambda each: SelectorGroupChat(
            [asker(), asker("b")], telling(), selector_func=lambda _: "expert", max_turns=1, model_context=each
        ),
        UnboundedChatCompletionContext(),
    ),
}


def app_with(team: MakeTeam, store: str = "runs.db") -> Upcall:
    return Upcall(store=store, team=team, settings=Settings.read(None))


async def finish(app: Upcall, task: str) -> str:
    """Return all that a run asked and said; or why it was refused."""
    try:
        run = await app.start(task)
        asked = [question.question for question in run.questions]
        if run.waiting:
            run = await app.answer(run.id, "that one")
    except SharedAgent as refusal:
        return str(refusal)
    return f"{asked} {run.result} {run.error}"


@pytest.mark.parametrize("way", SERVED)
async def test_two_runs_with_a_renewed_agent_stay_apart(way: str) -> None:
    app = app_with(SERVED[way]())
    await app.start("Lovelace's secret")
    both = await asyncio.gather(finish(app, "Ada's secret"), finish(app, "Bob's order"))
    assert ["Done" in each for each in both] == [True, True]
    assert [("Ada" in each, "Bob" in each, "Lovelace" in each) for each in both] == [
        (True, False, False),
        (False, True, False),
    ]


@pytest.mark.parametrize("way", REFUSED)
async def test_second_run_with_a_shared_agent_is_refused(way: str) -> None:
    app = app_with(REFUSED[way]())
    assert "Done" in await finish(app, "Ada's secret")
    refused = await finish(app, "Bob's order")
    assert "has worked in another run, whose messages it keeps. Build it inside the function" in refused
    assert "Ada" not in refused


@pytest.mark.parametrize("way", REFUSED)
async def test_shared_agent_serves_one_of_two_runs_at_once(way: str) -> None:
    app = app_with(REFUSED[way]())
    await app_with(SERVED["all built inside"]()).start("Make the store")
    both = await asyncio.gather(finish(app, "Ada's secret"), finish(app, "Bob's order"))
    assert sorted("has worked in another run" in each for each in both) == [False, True]
    assert not any("Ada" in each and "Bob" in each for each in both)


@pytest.mark.parametrize(
    "way",
    ["a PausableAgent", "with_questions", "an AssistantAgent", "a whole team", "a NestedTeam", "a tool's closure"],
)
async def test_segments_of_one_run_share_their_agents(way: str) -> None:
    app = app_with((SERVED | REFUSED)[way]())
    run = await app.start("Ada's order")
    if run.waiting:
        run = await app.answer(run.id, "that one")
    assert (run.status, str(run.result).count("Ada")) == (RunStatus.COMPLETED, 1)


async def test_shared_agent_refusal_stores_nothing_and_spares_the_first() -> None:
    app = app_with(sharing(lambda team: team, a_round(asker())))
    first = await app.start("Ada's order")
    with pytest.raises(SharedAgent, match=r"^Team 'RoundRobinGroupChat' .*\. Build it inside[^\n]*$"):
        await app.start("Bob's order")
    assert [each.id for each in await app.list()] == [first.id]
    assert "Ada's order" in str((await app.answer(first.id, "that one")).result)


async def test_fork_and_follow_up_are_runs_of_their_own() -> None:
    app = app_with(sharing(lambda each: a_round(asker(), each, turns=2), stock("b")))
    run = await app.start("Ada's order")
    question = run.questions[0].id
    await app.answer(run.id, "that one")
    for act in (app.fork(run.id, question, "another"), app.start("Go on", follows=run.id)):
        with pytest.raises(SharedAgent, match="Agent 'b'"):
            await act


async def test_shared_agent_refuses_second_loops_and_equal_run_ids() -> None:
    make, seen = sharing(a_round, stock()), list[str]()

    def work(store: str) -> None:
        try:
            seen.append(str(asyncio.run(app_with(make, store).start(f"Order in {store}", run_id="the-same")).result))
        except SharedAgent as refusal:
            seen.append(str(refusal))

    for store in ("one.db", "two.db"):
        thread = threading.Thread(target=work, args=(store,))
        thread.start()
        await asyncio.to_thread(thread.join)
    assert ("one.db" in seen[0], "Agent 'expert'" in seen[1]) == (True, True)


async def test_shared_agent_is_free_after_a_run_without_work(tmp_path: Any) -> None:
    make = sharing(a_round, stock())
    (tmp_path / "broken.db").write_text("This is no database. " * 100)
    with pytest.raises(StoreUnavailable):
        await app_with(make, str(tmp_path / "broken.db")).start("Ada's order")
    assert "Bob's order" in await finish(app_with(make), "Bob's order")


async def test_submitted_run_claims_its_agents_when_it_works() -> None:
    app = app_with(sharing(a_round, stock()))
    await app.submit("Ada's order")
    await app.submit("Bob's order")
    await app.drain()
    statuses = sorted([(each.status, str(each.error)[:14]) for each in await app.list()])
    assert statuses == [(RunStatus.COMPLETED, "None"), (RunStatus.FAILED, "Agent 'expert'")]


@pytest.mark.slow
async def test_owners_are_forgotten_with_their_agents() -> None:
    gc.collect()
    before = len(ownership._owners)
    assert "Done" in await finish(app_with(lambda: a_round(stock(), asker("b"), turns=2)), "Ada's order")
    gc.collect()
    assert len(ownership._owners) <= before


async def test_agent_that_a_tool_builds_needs_no_owner_before() -> None:
    async def consult(task: str) -> str:
        """Consult the expert."""
        return (await stock().run(task=task)).messages[-1].to_text()

    app = app_with(lambda: a_round(lead("consult", tools=[consult])))
    assert ["Ada" in await finish(app, "Ada's order"), "Ada" in await finish(app, "Bob's order")] == [True, False]


def test_plain_script_may_share_its_agents() -> None:
    expert = stock()
    for task in ("Ada's order", "Bob's order"):
        result = asyncio.run(a_round(expert).run(task=task))
    assert "Bob's order" in result.messages[-1].to_text()
