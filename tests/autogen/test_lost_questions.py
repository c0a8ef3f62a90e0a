"""A question is never lost: a run whose question nobody passed on fails, and says who swallowed it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from lossy import Deaf

from upcall import PausableAgent, Run, RunStatus, Upcall, make_resumable
from upcall.autogen.messages import answer_message, message_questions
from upcall.errors import AgentFailed
from upcall.questions.answer import Answer
from upcall.testing import Call, Calls, Reply, ScriptedModelClient

ASK = Call("ask_user", {"question": "Which region?"})


def models(**replies: Sequence[Reply]) -> ScriptedModelClient:
    return ScriptedModelClient({f"<{name}>": list(text) for name, text in replies.items()})


def agent(name: str, client: ScriptedModelClient, *agents: ChatAgent, tools: Sequence[object] = ()) -> PausableAgent:
    return PausableAgent(name, client, system_message=f"<{name}>", agents=agents, tools=tools)  # type: ignore[arg-type]


def team(*members: ChatAgent) -> Team:
    return RoundRobinGroupChat([*members], max_turns=len(members))


async def failed(make: object) -> Run:
    run = await Upcall(team=make, store="runs.db").start("Buy it")  # type: ignore[arg-type]
    assert run.status is RunStatus.FAILED
    return run


async def test_member_that_swallows_a_question_is_named() -> None:
    client = models(clerk=[ASK])
    run = await failed(lambda: team(Deaf("deaf", agent("clerk", client))))
    assert run.error == (
        "Agent 'clerk' asked 'Which region?', and member 'deaf' ended its turn without passing the question on. Let it "
        "end its turn with the HandoffMessage that it gets, or make 'clerk' a member of the team, and resume the run."
    )


async def test_run_continues_after_the_remedy() -> None:
    client = models(clerk=[ASK, "Bought."])
    run = await failed(lambda: team(Deaf("deaf", agent("clerk", client))))
    app = Upcall(team=lambda: team(agent("clerk", client)), store="runs.db")
    paused = await app.resume(run.id)
    done = await app.answer(paused.id, "eu")
    assert (done.status, done.result) == (RunStatus.COMPLETED, "Bought.")


async def test_function_that_runs_an_agent_is_named() -> None:
    client = models(lead=[Call("delegate"), "Led."], clerk=[ASK])

    async def delegate() -> str:
        """Let the clerk do it."""
        result = await agent("clerk", client).run(task="Buy it")
        return result.messages[-1].to_text()

    run = await failed(lambda: team(agent("lead", client, tools=[delegate])))
    assert run.error is not None
    assert run.error.startswith(
        "Agent 'clerk' asked 'Which region?' inside the function tool 'delegate' of agent 'lead'"
    )
    assert "Give 'clerk' to 'lead' as an agent" in run.error


async def test_question_swallowed_beside_another_is_found_before_the_pause() -> None:
    client = models(clerk=[ASK], other=[Call("ask_user", {"question": "When?"})])
    run = await failed(lambda: team(Deaf("deaf", agent("clerk", client)), agent("other", client)))
    assert "member 'deaf'" in str(run.error)


@pytest.mark.slow
async def test_question_of_a_timed_out_nested_agent_is_kept() -> None:
    client = models(
        lead=[Call("slow", {"task": "<slow>"}), "Led."],
        slow=[Calls([Call("clerk", {"task": "<clerk>"}), Call("wait")])],
        clerk=[ASK],
    )

    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "waited"

    def make() -> Team:
        slow = agent("slow", client, agent("clerk", client), tools=[wait])
        lead = PausableAgent("lead", client, system_message="<lead>", agents=[slow], nested_timeout=0.5)
        return team(lead)

    run = await Upcall(team=make, store="runs.db").start("Buy it")
    assert (run.error, run.status, run.result) == (None, RunStatus.COMPLETED, "Led.")


@pytest.mark.parametrize("kind", [PausableAgent, AssistantAgent])
async def test_question_lost_in_a_scripts_tool_raises(kind: Any) -> None:
    client = models(lead=[Call("delegate"), "Led."], clerk=[ASK])

    async def delegate() -> str:
        """Let the clerk do it."""
        return (await agent("clerk", client).run(task="Buy it")).messages[-1].to_text()

    lead = kind("lead", client, system_message="<lead>", tools=[delegate])
    with pytest.raises(AgentFailed, match=r"Agent 'clerk' asked 'Which region\?'.* run it again"):
        await make_resumable(team(lead)).run(task="Buy it")


async def test_question_lost_by_an_inner_teams_member_raises() -> None:
    inner = team(Deaf("deaf", agent("clerk", models(clerk=[ASK]))))
    with pytest.raises(AgentFailed, match="member 'deaf' ended its turn"):
        await make_resumable(RoundRobinGroupChat([inner], max_turns=1)).run(task="Buy it")


async def test_question_answered_inside_a_scripts_tool_is_kept() -> None:
    client = models(lead=[Call("delegate"), "Led."], clerk=[ASK, "Bought."])

    async def delegate() -> str:
        """Let the clerk do it, and answer for the user."""
        clerk = agent("clerk", client)
        asked = message_questions((await clerk.run(task="Buy it")).messages[-1])
        answer = answer_message([Answer(question_id=asked[0].id, text="eu")], target="clerk")
        return (await clerk.run(task=answer)).messages[-1].to_text()

    result = await make_resumable(team(agent("lead", client, tools=[delegate]))).run(task="Buy it")
    assert result.messages[-1].to_text() == "Led."  # type: ignore[union-attr]
