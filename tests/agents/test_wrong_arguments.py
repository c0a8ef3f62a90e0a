"""What is wrong with an agent's parts is one line that says what to do, and odd replies hang nobody."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, RunStatus, Upcall, idempotent
from upcall.autogen.tool_calls import is_idempotent
from upcall.errors import ConfigurationError
from upcall.testing import Call, ScriptedModelClient


class Shop:
    """A tool that is a method."""

    def pay(self, amount: str) -> str:
        """Pay."""
        return f"paid {amount}"


def untyped(amount):  # type: ignore[no-untyped-def]
    """Pay."""
    return amount


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": [untyped]}, "The tool 'untyped' cannot be described to a model: "),
        ({"tools": Shop().pay}, "Agent 'a': tools must be a list, not method: tools="),
        (
            {"agents": PausableAgent("b", ScriptedModelClient([]))},
            "Agent 'a': agents must be a list, not PausableAgent",
        ),
        ({"handoffs": "b"}, "Agent 'a': handoffs must be a list, not str"),
    ],
)
def test_a_wrong_part_is_told_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PausableAgent("a", ScriptedModelClient([]), **options)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_a_method_is_declared_idempotent() -> None:
    assert is_idempotent(idempotent(Shop().pay))


@pytest.mark.parametrize("arguments", ["[1, 2]", "7", "{", "null"])
async def test_odd_arguments_of_a_call_hang_no_stock_agent(arguments: str) -> None:
    client = ScriptedModelClient([Call("pay", arguments), "Done."])

    def make() -> RoundRobinGroupChat:
        agent = AssistantAgent("a", client, tools=[Shop().pay], reflect_on_tool_use=True)
        return RoundRobinGroupChat([agent], max_turns=1)

    run = await Upcall(team=make, store="runs.db").start("Buy it")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
