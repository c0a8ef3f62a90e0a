"""AutoGen's own agents beside ours: they work as they do in AutoGen, and questions come and go past them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from autogen_agentchat.agents import (
    ApprovalRequest,
    ApprovalResponse,
    AssistantAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
)
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from upcall import RunStatus, Upcall
from upcall.agents import NestedTeam, PausableAgent
from upcall.testing import Call, Reply, ScriptedModelClient

pytestmark = pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor may execute code")

CODE = "```python\nprint(6 * 7)\n```"
CODER: list[Reply] = [Call("ask_user", {"question": "Which framework?"}), CODE]


def assistant(client: ScriptedModelClient, folder: Path) -> ChatAgent:
    return AssistantAgent("helper", client, system_message="You are the helper.")


def approve(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="It only counts.")


def executor(client: ScriptedModelClient, folder: Path) -> ChatAgent:
    work = folder / "code"
    work.mkdir(exist_ok=True)
    return CodeExecutorAgent(
        "helper", LocalCommandLineCodeExecutor(work_dir=work), sources=["coder"], approval_func=approve
    )


def society(client: ScriptedModelClient, folder: Path) -> ChatAgent:
    team = RoundRobinGroupChat([AssistantAgent("inner", client, system_message="You are the inner.")], max_turns=1)
    return SocietyOfMindAgent("helper", team, client)


def filtered(client: ScriptedModelClient, folder: Path) -> ChatAgent:
    last = MessageFilterConfig(per_source=[PerSourceFilter(source="coder", position="last", count=1)])
    return MessageFilterAgent("helper", assistant(client, folder), last)


STOCK = pytest.mark.parametrize(
    ("make", "replies", "expected"),
    [
        (assistant, {"You are the helper": ["Helped."]}, "Helped."),
        (executor, {}, "42"),
        (society, {"You are the inner": ["Thought."], "Earlier you were asked": ["Helped."]}, "Helped."),
        (filtered, {"You are the helper": ["Helped."]}, "Helped."),
    ],
)
Make = Callable[[ScriptedModelClient, Path], ChatAgent]


@STOCK
@pytest.mark.parametrize("nested", [False, True])
async def test_stock_agent_speaks_after_ours_has_its_answer(
    make: Make, replies: dict[str, list[Reply]], expected: str, nested: bool, tmp_path: Path
) -> None:
    with ScriptedModelClient({"You are the coder": CODER, **replies}) as client:

        def team() -> Team:
            coder = PausableAgent("coder", client, system_message="You are the coder.")
            crew = RoundRobinGroupChat([coder, make(client, tmp_path)], name="crew", max_turns=2)
            return RoundRobinGroupChat([NestedTeam(crew)], max_turns=1) if nested else crew

        run = await Upcall(team=team, store=tmp_path / "runs.db").start("Compute it")
        assert (run.status, run.error) == (RunStatus.AWAITING_CLARIFICATION, None)
        run = await Upcall(team=team, store=tmp_path / "runs.db").answer(run.id, "None")
    assert (run.status, run.error) == (RunStatus.COMPLETED, None)
    assert expected in str(run.result)


@pytest.mark.parametrize(
    ("make", "replies", "expected"),
    [
        (assistant, {"You are the helper": ["Helped."]}, "Helped."),
        (society, {"You are the inner": ["Thought."], "Earlier you were asked": ["Helped."]}, "Helped."),
    ],
)
async def test_stock_agent_is_a_tool_beside_a_question(
    make: Make, replies: dict[str, list[Reply]], expected: str, tmp_path: Path
) -> None:
    lead: list[Reply] = [Call("helper", {"task": "Help"}), Call("ask_user", {"question": "Enough?"}), "Done."]
    with ScriptedModelClient({"You are the lead": lead, **replies}) as client:

        def team() -> Team:
            agent = PausableAgent("lead", client, system_message="You are the lead.", agents=[make(client, tmp_path)])
            return RoundRobinGroupChat([agent], max_turns=1)

        run = await Upcall(team=team, store=tmp_path / "runs.db").start("Compute it")
        run = await Upcall(team=team, store=tmp_path / "runs.db").answer(run.id, "Yes")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert expected in json.dumps(client.requests[-1].messages)
