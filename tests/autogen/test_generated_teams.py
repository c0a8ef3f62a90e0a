"""No question is lost, whatever the team: teams are generated, with an agent at the bottom that pays, and asks."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import (
    AssistantAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
)
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, Swarm
from autogen_agentchat.tools import AgentTool, TeamTool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lossy import Deaf

from upcall import PausableAgent, Run, RunStatus, Upcall
from upcall.agents import NestedTeam
from upcall.testing import Call, Reply, Request, ScriptedModelClient


class World:
    """A model that knows by the context how far an agent is, and what was paid."""

    def __init__(self) -> None:
        self.client, self.paid = ScriptedModelClient(self._reply), list[str]()
        self.tools: dict[str, str] = {}

    def _reply(self, request: Request) -> Reply:
        step = sum(each["role"] == "assistant" for each in request.messages)
        if "<asker>" in request.system:
            return [Call("pay", {"amount": "5"}), Call("ask_user", {"question": "Which region?"}), "Bought."][step]
        name = next((each for each in self.tools if f"<{each}>" in request.system), None)
        if name is None or step:
            return "Done."
        return Call(self.tools[name], {"task": "Buy it"})

    def pay(self, amount: str) -> str:
        """Pay."""
        self.paid.append(amount)
        return "paid"

    def asker(self) -> ChatAgent:
        return PausableAgent("asker", self.client, system_message="<asker>", tools=[self.pay])

    def lead(self, name: str, tool: str) -> dict[str, Any]:
        self.tools[name] = tool
        return {"name": name, "model_client": self.client, "system_message": f"<{name}>"}


Wrap = Callable[[World, ChatAgent, str], ChatAgent]


def round_robin(*members: ChatAgent, name: str = "crew") -> Team:
    return RoundRobinGroupChat([*members], name=name, max_turns=len(members))


def graph(member: ChatAgent, name: str) -> Team:
    return GraphFlow([member], DiGraphBuilder().add_node(member).build(), name=name)


def ours(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    return PausableAgent(agents=[inner], **world.lead(name, inner.name))


def agent_tool(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    return AssistantAgent(tools=[AgentTool(inner)], reflect_on_tool_use=True, **world.lead(name, inner.name))  # type: ignore[arg-type]


def team_tool(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    tool = TeamTool(round_robin(inner), name=f"{name}_team", description="Buys.")  # type: ignore[arg-type]
    return AssistantAgent(tools=[tool], reflect_on_tool_use=True, **world.lead(name, f"{name}_team"))


def society(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    return SocietyOfMindAgent(name, round_robin(inner), world.client)


def filtered(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    only = MessageFilterConfig(per_source=[PerSourceFilter(source="user", position="first", count=1)])
    return MessageFilterAgent(name, inner, only)  # type: ignore[arg-type]


def team(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    return NestedTeam(round_robin(inner), name=name)


def flow(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    return NestedTeam(graph(inner, name), name=name)


def deaf(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    return Deaf(name, inner)


def function(world: World, inner: ChatAgent, name: str) -> ChatAgent:
    async def delegate(task: str) -> str:
        """Let another agent do it."""
        return (await inner.run(task=task)).messages[-1].to_text()  # type: ignore[union-attr]

    return PausableAgent(tools=[delegate], **world.lead(name, "delegate"))


CARRY: list[Wrap] = [ours, agent_tool, team_tool, society, filtered, team, flow]
LOSE: list[Wrap] = [deaf, function]
PLACES: list[Callable[[ChatAgent], Team]] = [
    round_robin,
    lambda agent: graph(agent, "graph"),
    lambda agent: Swarm([NestedTeam(round_robin(agent), name="first")], max_turns=1),
    lambda agent: RoundRobinGroupChat([round_robin(agent)], max_turns=1),
]
SLOW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


async def drive(wraps: list[Wrap], place: Callable[[ChatAgent], Team], store: Path) -> tuple[Run, World]:
    world = World()

    def make() -> Team:
        agent = world.asker()
        for number, wrap in enumerate(wraps):
            agent = wrap(world, agent, f"a{number}")
        return place(agent)

    run = await Upcall(team=make, store=store).start("Buy it")
    while run.status is RunStatus.AWAITING_CLARIFICATION:
        run = await Upcall(team=make, store=store).answer(run.id, "eu")
    return run, world


@SLOW
@given(st.lists(st.sampled_from(CARRY), max_size=4), st.sampled_from(PLACES))
@pytest.mark.slow
def test_every_shape_carries_a_question(wraps: list[Wrap], place: Callable[[ChatAgent], Team]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, world = asyncio.run(drive(wraps, place, Path(folder, "runs.db")))
    assert (run.status, run.error) == (RunStatus.COMPLETED, None)
    assert (world.paid, [each.text for each in run.answers]) == (["5"], ["eu"])


@SLOW
@given(
    st.lists(st.sampled_from(CARRY), max_size=2),
    st.sampled_from(LOSE),
    st.lists(st.sampled_from(CARRY), max_size=2),
    st.sampled_from(PLACES),
)
def test_run_that_lost_its_question_never_completes(
    below: list[Wrap], lose: Wrap, above: list[Wrap], place: Callable[[ChatAgent], Team]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, _ = asyncio.run(drive([*below, lose, *above], place, Path(folder, "runs.db")))
    assert run.status is RunStatus.FAILED
    assert "'Which region?'" in str(run.error)
    assert str(run.error).endswith("and resume the run.")
