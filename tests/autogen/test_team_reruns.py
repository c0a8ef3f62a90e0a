"""A resumable team in a plain script, run again after its run raised an error; a stock team answers nothing then."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import TeamTool
from autogen_core import SingleThreadedAgentRuntime

from upcall import UpcallError, make_resumable, with_questions
from upcall.testing import Call, Fail, Reply, Request, ScriptedModelClient

END = {"is_request_satisfied": True, "is_in_loop": False, "is_progress_being_made": True, "next_speaker": "critic"}


class World:
    """A writer, and a critic whose model fails as often as it is instructed to, in a team of a shape."""

    def __init__(self, failures: int = 1) -> None:
        self.failures = failures
        self.client = ScriptedModelClient(self.reply)
        writer, critic = (
            AssistantAgent(name, self.client, description=name, system_message=f"<{name}>", handoffs=handoffs)
            for name, handoffs in (("writer", ["critic"]), ("critic", []))
        )
        self.members = [writer, critic]

    def reply(self, request: Request) -> Reply:
        text = json.dumps(request.messages)
        if "<critic>" in request.system:
            self.failures -= 1
            return Fail(503) if self.failures >= 0 else "Fine."
        if "<writer>" in request.system:
            return Call("transfer_to_critic") if self.swarm else "A poem."
        if "is_request_satisfied" in text.rpartition('"role"')[2]:
            output = END | {"is_request_satisfied": "Fine." in text, "instruction_or_question": "Go on."}
            return json.dumps({name: {"reason": "so", "answer": each} for name, each in output.items()})
        return "critic" if "A poem." in text.partition("participants")[0] else "writer"

    swarm = False


def round_robin(world: World) -> Team:
    return RoundRobinGroupChat(world.members, max_turns=2)


def selected(world: World) -> Team:
    return SelectorGroupChat(world.members, world.client, max_turns=2, selector_prompt="{history} {participants}")


def handing_over(world: World) -> Team:
    world.swarm = True
    return Swarm(world.members, max_turns=2)


def graph(world: World) -> Team:
    writer, critic = world.members
    return GraphFlow(world.members, DiGraphBuilder().add_node(writer).add_node(critic).add_edge(writer, critic).build())


def orchestrated(world: World) -> Team:
    return MagenticOneGroupChat(world.members, world.client)


def nested(world: World) -> Team:
    return RoundRobinGroupChat([RoundRobinGroupChat(world.members, max_turns=2, name="inner")], max_turns=1)


SHAPES = [round_robin, selected, handing_over, graph, orchestrated, nested]


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
async def test_team_rerun_after_an_error_continues_with_its_member(
    shape: Callable[[World], Team], failures: int
) -> None:
    world = World(failures)
    team = make_resumable(shape(world))
    for task in ["Write a poem", *[None] * (failures - 1)]:
        with pytest.raises((UpcallError, RuntimeError), match="503"):
            await team.run(task=task)
    result = await team.run()
    assert [each.to_text() for each in result.messages if each.source in ("writer", "critic")] == ["Fine."]
    assert sum("<writer>" in request.system for request in world.client.requests) == (shape is not orchestrated)


async def test_team_rerun_with_a_task_finishes_the_turn_first() -> None:
    world = World()
    team = make_resumable(round_robin(world))
    with pytest.raises(RuntimeError, match="503"):
        await team.run(task="Write a poem")
    result = await team.run(task="Be kind")
    assert [each.source for each in result.messages] == ["user", "critic"]
    await team.run()
    read = [each["content"] for each in world.client.requests[-1].messages[1:]]
    assert read == ["Write a poem", "A poem.", "Fine.", "Be kind", "A poem."]


async def test_team_counts_the_messages_of_a_failed_run_once() -> None:
    world = World()
    team = make_resumable(RoundRobinGroupChat(world.members, termination_condition=MaxMessageTermination(4)))
    with pytest.raises(RuntimeError, match="503"):
        await team.run(task="Write a poem")
    result = await team.run()
    assert [each.source for each in result.messages] == ["critic", "writer"]


async def test_team_in_a_tool_continues_with_its_agent() -> None:
    world = World()
    tool = TeamTool(round_robin(world), "write", "Writes.", return_value_as_last_message=True)
    client = ScriptedModelClient({"<lead>": [Call("write", {"task": "A poem"}), "Done."]})
    lead = with_questions(AssistantAgent("lead", client, system_message="<lead>", tools=[tool]))
    with pytest.raises(UpcallError, match="503"):
        await lead.run(task="A poem, please")
    await lead.run()
    assert list(client.requests[-1].tool_results.values()) == ["Fine."]
    assert sum("<writer>" in request.system for request in world.client.requests) == 1


async def test_team_on_a_runtime_of_ones_own_keeps_it() -> None:
    world, runtime = World(), SingleThreadedAgentRuntime()
    runtime.start()
    team = make_resumable(RoundRobinGroupChat(world.members, max_turns=2, runtime=runtime))
    with pytest.raises(RuntimeError, match="503"):
        await team.run(task="Write a poem")
    assert team._runtime is runtime
    await runtime.stop()
