"""A team on a runtime of the user's own: its run is recorded, and asks, as any other."""

from __future__ import annotations

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import SingleThreadedAgentRuntime

from upcall import RunStatus, Upcall, idempotency_key, with_questions
from upcall.testing import Call, ScriptedModelClient


async def test_runtime_of_the_users_own_is_recorded_and_asks() -> None:
    clerk = [Call("buy"), Call("ask_user", {"question": "Which region?"}), Call("buy"), "Bought."]
    client, keys = ScriptedModelClient({"<clerk>": clerk}), list[str]()

    def buy() -> str:
        """Buy."""
        keys.append(idempotency_key())
        return "bought"

    runtime = SingleThreadedAgentRuntime()
    runtime.start()

    def make() -> Team:
        agent = AssistantAgent("clerk", client, system_message="<clerk>", tools=[buy])
        inner = RoundRobinGroupChat([with_questions(agent)], max_turns=1, runtime=runtime)
        return RoundRobinGroupChat([inner], max_turns=1, runtime=runtime)

    run = await Upcall(team=make, store="runs.db").start("Buy it")
    assert (run.error, run.status) == (None, RunStatus.AWAITING_CLARIFICATION)
    run = await Upcall(team=make, store="runs.db").answer(run.id, "eu")
    await runtime.stop()
    assert (run.result, run.error, len(keys)) == ("Bought.", None, 2)
    assert all(each.startswith(run.id) for each in keys)
