"""Teams as tools: a stock `TeamTool`, and a team given as a nested agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import TeamTool
from autogen_core.tools import StaticWorkbench
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import answers, resumed_as, send

from upcall import RunStatus, Upcall, with_questions
from upcall.agents import NestedTeam, PausableAgent
from upcall.testing import Call, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO

CODER: list[Reply] = [Call("ask_user", {"question": "Which framework?"}), "Coded with it."]
LEAD: list[Reply] = [Call("crew", {"task": "Build it"}), "Led to the end."]
SCRIPT = {"You are the coder": CODER, "You are the lead": LEAD}


def crew(client: ScriptedModelClient) -> Team:
    coder = PausableAgent("coder", client, system_message="You are the coder.")
    return RoundRobinGroupChat([coder], name="crew", description="Builds things", max_turns=1)


def tool(client: ScriptedModelClient) -> TeamTool:
    return TeamTool(crew(client), name="crew", description="Builds things")


def lead(client: ScriptedModelClient, **options: Any) -> PausableAgent:
    return PausableAgent("lead", client, system_message="You are the lead.", **options)


LEADS: dict[str, Callable[[ScriptedModelClient], PausableAgent]] = {
    "a TeamTool": lambda client: lead(client, tools=[tool(client)]),
    "a TeamTool in a workbench": lambda client: lead(client, workbench=StaticWorkbench([tool(client)])),
    "a nested team": lambda client: lead(client, agents=[NestedTeam(crew(client))]),
    "a team": lambda client: lead(client, agents=[crew(client)]),
    "a TeamTool of a stock agent": lambda client: with_questions(
        AssistantAgent("lead", client, system_message="You are the lead.", tools=[tool(client)])
    ),
}


@pytest.mark.parametrize("form", LEADS)
async def test_team_tool_member_asks_and_continues_elsewhere(form: str) -> None:
    with ScriptedModelClient(SCRIPT) as client:
        first = LEADS[form](client)
        rest = await send(first, "Build it")
        (question,) = rest.questions
        assert question.path == ("lead", "crew", "coder")
        ended = await send(await resumed_as(first, LEADS[form](client)), answers(rest, "Express"))
    assert ended.text == "Led to the end."


@pytest.mark.slow
def test_team_given_as_an_agent_is_dumped_as_nested() -> None:
    client = ReplayChatCompletionClient([], MODEL_INFO)
    made = PausableAgent("lead", client, agents=[RoundRobinGroupChat([PausableAgent("coder", client)], name="crew")])
    loaded = PausableAgent.load_component(json.loads(made.dump_component().model_dump_json()))
    assert loaded.dump_component() == made.dump_component()
    assert loaded.dump_component().config["agents"][0]["provider"] == "upcall.agents.NestedTeam"


async def test_stock_agent_with_a_team_tool_asks_too(tmp_path: Path) -> None:
    script = {"You are the coder": CODER, "You are the lead": LEAD}
    with ScriptedModelClient(script) as client:

        def make() -> Team:
            agent = AssistantAgent(
                "lead", client, system_message="You are the lead.", tools=[tool(client)], reflect_on_tool_use=True
            )
            return RoundRobinGroupChat([agent], max_turns=1)

        run = await Upcall(team=make, store=tmp_path / "runs.db").start("Build it")
        assert run.status is RunStatus.AWAITING_CLARIFICATION
        run = await Upcall(team=make, store=tmp_path / "runs.db").answer(run.id, "Express")
    assert (run.status, run.questions, run.result) == (RunStatus.COMPLETED, (), "Led to the end.")
