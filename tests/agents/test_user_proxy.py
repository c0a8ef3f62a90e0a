"""A `UserProxyAgent` in a run, and AutoGen's own hand-off to the user: the run pauses with what was written."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import Handoff, Team
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm

from upcall import Answer, Outcome, PausableAgent, Run, RunStatus, Upcall, with_questions
from upcall.agents import NestedTeam
from upcall.testing import Call, Calls, ScriptedModelClient


def never(prompt: str) -> str:
    raise AssertionError("Nobody is prompted in a run.")


def review(client: ScriptedModelClient, proxy: str) -> Team:
    writer = AssistantAgent("writer", client, system_message="<writer>")
    members = [writer, UserProxyAgent(proxy, input_func=never)]
    return RoundRobinGroupChat(members, name="crew", termination_condition=TextMentionTermination("APPROVE"))


async def answer(make: Any, run: Run, text: str) -> Run:
    return await Upcall(team=make, store="runs.db").answer(run.id, text)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("proxy", ["user", "user_proxy"])
async def test_user_proxy_turn_is_a_question_until_answered(proxy: str, nested: bool) -> None:
    client = ScriptedModelClient({"<writer>": ["A poem.", "A better poem."]})

    def make() -> Team:
        crew = review(client, proxy)
        return RoundRobinGroupChat([NestedTeam(crew)], max_turns=1) if nested else crew

    run = await Upcall(team=make, store="runs.db").start("Write")
    assert (run.status, run.questions[0].question, run.questions[0].path[-1]) == (
        RunStatus.AWAITING_CLARIFICATION,
        "A poem.",
        proxy,
    )
    run = await answer(make, run, "Make it better")
    assert run.questions[0].question == "A better poem."
    run = await answer(make, run, "APPROVE")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "APPROVE")
    assert [each["content"] for each in client.requests[-1].messages[1:]] == ["Write", "A poem.", "Make it better"]


async def test_blank_answer_is_a_blank_message() -> None:
    client = ScriptedModelClient({"<writer>": ["A poem.", "Another."]})
    run = await Upcall(team=lambda: review(client, "user_proxy"), store="runs.db").start("Write")
    skipped = Answer(question_id=run.questions[0].id, outcome=Outcome.SKIPPED)
    run = await Upcall(team=lambda: review(client, "user_proxy"), store="runs.db").answer(run.id, skipped)
    assert client.requests[-1].messages[-1]["content"] == ""


@pytest.mark.parametrize("proxy", ["user", "human"])
@pytest.mark.parametrize("kind", ["before", "thought", "converted"])
async def test_handoff_to_the_user_asks_what_the_agent_wrote(kind: str, proxy: str) -> None:
    hand_over = Call(f"transfer_to_{proxy}")
    text = ["Which flight?", hand_over] if kind == "before" else [Calls([hand_over], thought="Which flight?")]
    client = ScriptedModelClient({"<clerk>": [*text, "Refunded. TERMINATE"]})

    def make() -> Team:
        clerk: Any = AssistantAgent("clerk", client, system_message="<clerk>", handoffs=[Handoff(target=proxy)])
        clerk = with_questions(clerk, ask_user=False) if kind == "converted" else clerk
        members = [clerk] if proxy == "user" else [clerk, UserProxyAgent(proxy, input_func=never)]
        return Swarm(members, termination_condition=HandoffTermination("user") | TextMentionTermination("TERMINATE"))

    run = await Upcall(team=make, store="runs.db").start("Refund")
    assert [each.question for each in run.questions] == ["Which flight?"]
    run = await answer(make, run, "507811")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Refunded. TERMINATE")
    assert "507811" in client.requests[-1].messages[-1]["content"]


async def test_handoff_of_nested_stock_agent_is_a_question() -> None:
    client = ScriptedModelClient(
        {
            "<lead>": [Call("clerk", {"task": "<clerk>"}), "Led."],
            "<clerk>": [Calls([Call("transfer_to_user")], thought="Which flight?"), "Refunded."],
        }
    )

    def make() -> Team:
        clerk = AssistantAgent("clerk", client, system_message="<clerk>", handoffs=["user"])
        return RoundRobinGroupChat(
            [PausableAgent("lead", client, system_message="<lead>", agents=[clerk])], max_turns=1
        )

    run = await Upcall(team=make, store="runs.db").start("Refund")
    assert (run.questions[0].question, run.questions[0].path) == ("Which flight?", ("lead", "clerk"))
    run = await answer(make, run, "507811")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Led.")
    assert client.requests[-1].tool_results == {"call_1_1": "Refunded."}
