"""Odd calls of a model, and tools that end in odd ways: in AutoGen some of them hang a stock agent for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from conversation import soon

from upcall import RunStatus, Upcall, make_resumable
from upcall.testing import Call, Calls, Reply, ScriptedModelClient


def note(text: str = "") -> str:
    """Take a note."""
    return f"noted {text}"


async def give_up() -> str:
    """End as one that was cancelled."""
    raise asyncio.CancelledError


async def give_nothing() -> str:
    """End with an error that says nothing."""
    raise RuntimeError


DEEP = f'{{"text": {"[" * 100_000}{"]" * 100_000}}}'
ODD: dict[str, Call] = {
    **{f"arguments {text}": Call("note", text) for text in ("[1]", "5", "null", '"x"', "", "{", '{"text": NaN}')},
    "arguments nested too deep": Call("note", DEEP),
    "no such tool": Call("nothing", {}),
    "no name": Call("", {}),
    "a tool that is cancelled": Call("give_up", {}),
    "a tool that says nothing": Call("give_nothing", {}),
}


def team_of(*replies: Reply) -> Team:
    client = ScriptedModelClient([*replies])
    tools: Any = [note, give_up, give_nothing]
    agent = AssistantAgent("clerk", client, tools=tools, handoffs=["user"], reflect_on_tool_use=True)
    return RoundRobinGroupChat([agent], max_turns=1)


@pytest.mark.parametrize("odd", ODD)
async def test_odd_call_returns_an_error_and_others_are_made(odd: str) -> None:
    batch = Calls([ODD[odd], Call("note", {"text": "it"})])
    run = await soon(Upcall(team=lambda: team_of(batch, "Done."), store="runs.db").start("Go"))
    assert (run.status, run.error) == (RunStatus.COMPLETED, None)
    result = await soon(make_resumable(team_of(batch, "Done.")).run(task="Go"))
    assert "Done." in str(result.messages[-1])


async def test_hand_off_with_odd_arguments_is_one() -> None:
    run = await soon(Upcall(team=lambda: team_of(Call("transfer_to_user", "[1]")), store="runs.db").start("Go"))
    assert (run.status, run.error) == (RunStatus.AWAITING_CLARIFICATION, None)


@pytest.mark.parametrize("call", [{"name": "note", "id": 5}, {"name": None}], ids=["id", "name"])
async def test_call_without_its_required_text_ends_a_plain_team(call: dict[str, Any]) -> None:
    """Its result could not be instructed to the model."""
    with pytest.raises(RuntimeError, match="both must be strings"):
        await soon(make_resumable(team_of(Call(**call))).run(task="Go"))


async def test_call_without_a_name_fails_the_run() -> None:
    """A numeric id is read as text there."""
    call: Any = Call(None, {})  # type: ignore[arg-type]
    run = await soon(Upcall(team=lambda: team_of(call), store="runs.db").start("Go"))
    assert run.status is RunStatus.FAILED
    assert "the model's reply cannot be stored" in str(run.error)
