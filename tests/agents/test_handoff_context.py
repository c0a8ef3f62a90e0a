"""What an agent that hands off tells the next one of its turn, as AutoGen's own does."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import Swarm

from upcall import RunStatus, Upcall, with_questions
from upcall.testing import Call, Calls, Reply, Request, ScriptedModelClient


def refund_flight(flight: str) -> str:
    """Refund a flight."""
    return f"refunded {flight}"


def reply(request: Request) -> Reply:
    """Make a team whose travel agent ends when it sees the refund; else it lets the refunder do it."""
    is_done = "refunded 507811" in str(request.messages)
    if "<travel>" in request.system:
        return "Done. TERMINATE" if is_done else Call("transfer_to_refunder")
    return Call("transfer_to_travel") if is_done else Call("refund_flight", {"flight": "507811"})


async def test_swarm_converted_ends_as_early_as_stock() -> None:
    client = ScriptedModelClient(reply)

    def make() -> Team:
        def agent(name: str, **options: Any) -> Any:
            return with_questions(AssistantAgent(name, client, system_message=f"<{name}>", **options))

        members = [
            agent("travel", handoffs=["refunder"]),
            agent("refunder", tools=[refund_flight], handoffs=["travel"]),
        ]
        return Swarm(members, termination_condition=TextMentionTermination("TERMINATE") | MaxMessageTermination(20))

    run = await Upcall(team=make, store="runs.db").start("Refund flight 507811")
    assert (run.status, run.result, len(client.requests)) == (RunStatus.COMPLETED, "Done. TERMINATE", 4)


@pytest.mark.parametrize("beside", [False, True])
async def test_only_this_turns_calls_go_with_a_hand_off(beside: bool) -> None:
    work, over = Call("refund_flight", {"flight": "1"}), Call("transfer_to_b")
    client = ScriptedModelClient([*([Calls([work, over])] if beside else [work, over])])
    agent = with_questions(
        AssistantAgent("a", client, system_message="<a>", tools=[refund_flight], handoffs=["b"]), ask_user=False
    )
    message: Any = (await agent.run(task="Go")).messages[-1]
    assert [type(each).__name__ for each in message.context] == ["AssistantMessage", "FunctionExecutionResultMessage"]
    assert [each.name for each in message.context[1].content] == ["refund_flight"]
