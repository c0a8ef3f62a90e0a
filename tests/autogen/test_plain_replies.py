"""A plain script that runs its team again with the user's own words, as AutoGen's tutorials do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm

from upcall import PausableAgent, make_resumable
from upcall.autogen.group_chats import WAITING
from upcall.testing import Call, Request, ScriptedModelClient

GIVEN_TEXT = "It is sunny."


def after_asking(call: Call) -> ScriptedModelClient:
    def reply(request: Request) -> Any:
        return f"{request.messages[-1]['content']} TERMINATE" if request.tool_results else call

    return ScriptedModelClient(reply)


def hands_over() -> Any:
    handoffs = [Handoff(target="user", message="Transfer to user.")]
    return AssistantAgent("lazy", after_asking(Call("transfer_to_user")), handoffs=handoffs)  # type: ignore[arg-type]


def asks() -> Any:
    return PausableAgent("lazy", after_asking(Call("ask_user", {"question": "How is it?"})))


def leads() -> Any:
    inner = PausableAgent("inner", after_asking(Call("ask_user", {"question": "How is it?"})))
    return PausableAgent("lazy", after_asking(Call("inner", {"task": "Ask"})), agents=[inner])


def alone(agent: Any) -> Any:
    stop = HandoffTermination("user") | TextMentionTermination("TERMINATE")
    return RoundRobinGroupChat([agent], termination_condition=stop)


def inside(agent: Any) -> Any:
    return RoundRobinGroupChat([RoundRobinGroupChat([agent], max_turns=1)], max_turns=1)


def swarm(agent: Any) -> Any:
    return Swarm([agent], termination_condition=TextMentionTermination("TERMINATE"))


TASKS = [
    GIVEN_TEXT,
    TextMessage(source="user", content=GIVEN_TEXT),
    HandoffMessage(source="user", target="lazy", content=GIVEN_TEXT),
]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("agent", [hands_over, asks, leads])
@pytest.mark.parametrize("shape", [alone, inside, swarm])
async def test_plain_task_answers_the_question_that_is_open(shape: Any, agent: Callable[[], Any], task: Any) -> None:
    team = make_resumable(shape(agent()))
    assert (await team.run(task="Weather?")).stop_reason == WAITING
    again = await team.run(task=task)
    assert again.messages[-1].to_text().startswith(GIVEN_TEXT)


async def test_plain_task_stays_the_message_that_it_is() -> None:
    team = make_resumable(alone(hands_over()))
    await team.run(task="Weather?")
    first = (await team.run(task=GIVEN_TEXT)).messages[0]
    assert (type(first), first.to_text()) == (TextMessage, GIVEN_TEXT)  # type: ignore[union-attr]


async def test_plain_task_that_is_no_answer_asks_again() -> None:
    choice = {"question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}], "allow_free_text": False}
    team = make_resumable(alone(PausableAgent("lazy", after_asking(Call("ask_user", choice)))))
    await team.run(task="Weather?")
    again = await team.run(task="Green, perhaps")
    assert again.stop_reason == WAITING
    assert again.messages[-1].source == "lazy"
