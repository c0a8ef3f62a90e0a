"""What a converted agent did in its turn counts in a group chat as it does of a stock one."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, TerminationCondition
from autogen_agentchat.conditions import FunctionCallTermination, TokenUsageTermination
from autogen_agentchat.messages import (
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from upcall import PausableAgent, Run, Upcall, with_questions
from upcall.errors import SchemaMismatch
from upcall.testing import Call, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO


def look() -> str:
    """Look."""
    return "seen"


def agent(name: str, replies: list[Reply], converted: bool, **options: Any) -> ChatAgent:
    client = ScriptedModelClient(replies)
    stock = AssistantAgent(name, client, tools=[look], max_tool_iterations=5, **options)
    return with_questions(stock, ask_user=False) if converted else stock


CONVERTED = pytest.mark.parametrize("converted", [False, True])
TURN: list[Reply] = [Call("look"), "Looked. It is there."]


@CONVERTED
@pytest.mark.parametrize("stop", [FunctionCallTermination("look"), TokenUsageTermination(max_completion_token=5)])
async def test_condition_on_a_turns_work_stops_the_team(stop: TerminationCondition, converted: bool) -> None:
    team = RoundRobinGroupChat([agent("a", TURN * 2, converted)], termination_condition=stop, max_turns=2)
    result = await team.run(task="Look")
    assert len([each for each in result.messages if isinstance(each, ToolCallRequestEvent)]) == 1


@CONVERTED
async def test_running_an_agent_alone_gives_its_inner_events(converted: bool) -> None:
    result = await agent("a", TURN, converted).run(task="Look")  # type: ignore[attr-defined]
    assert [type(each) for each in result.messages[1:-1]] == [ToolCallRequestEvent, ToolCallExecutionEvent]


@CONVERTED
async def test_selector_function_sees_tool_calls(converted: bool) -> None:
    seen: list[type] = []

    def select(thread: Any) -> str:
        seen.extend(type(each) for each in thread)
        return "a"

    members: list[Any] = [agent("a", TURN * 2, converted), agent("b", [], converted)]
    await SelectorGroupChat(members, ScriptedModelClient([]), selector_func=select, max_turns=2).run(task="Look")
    assert ToolCallExecutionEvent in seen


async def test_events_around_a_question_each_count_once() -> None:
    client = ScriptedModelClient([Call("look"), Call("ask_user", {"question": "Where?"}), Call("look"), "Done."])
    counted: list[int] = []

    class Counting(FunctionCallTermination):
        async def __call__(self, messages: Any) -> Any:
            counted.extend(len(each.content) for each in messages if isinstance(each, ToolCallExecutionEvent))
            return None

    def make() -> RoundRobinGroupChat:
        stock = AssistantAgent("a", client, tools=[look])
        return RoundRobinGroupChat([with_questions(stock)], termination_condition=Counting("none"), max_turns=1)

    async def answer(run: Run) -> Run:
        return await Upcall(team=make, store="runs.db").answer(run.id, "here")

    run = await answer(await Upcall(team=make, store="runs.db").start("Look"))
    assert (run.result, counted) == ("Done.", [1, 1])


async def test_handoff_of_a_nested_agent_moves_no_swarm() -> None:
    inner = AssistantAgent("inner", ScriptedModelClient([Call("transfer_to_b")]), handoffs=["b"])
    lead = PausableAgent("a", ScriptedModelClient([Call("inner", {"task": "x"}), "A."]), agents=[inner])
    result = await Swarm([lead, agent("b", [], True)], max_turns=1).run(task="Look")  # type: ignore[list-item]
    assert result.messages[-1].to_text() == "A."  # type: ignore[attr-defined]


@CONVERTED
async def test_thought_of_a_final_reply_is_an_event(converted: bool) -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    reply = CreateResult(finish_reason="stop", content="Done.", usage=usage, cached=False, thought="Easy.")
    stock = AssistantAgent("a", ReplayChatCompletionClient([reply], model_info=MODEL_INFO))
    result = await (with_questions(stock) if converted else stock).run(task="Look")
    assert [each.content for each in result.messages if isinstance(each, ThoughtEvent)] == ["Easy."]


@CONVERTED
async def test_pieces_of_a_streamed_reply_name_their_message(converted: bool) -> None:
    streaming: Any = agent("a", ["All is done."], converted, model_client_stream=True)
    items = [item async for item in streaming.run_stream(task="Look")]
    pieces = {each.full_message_id for each in items if isinstance(each, ModelClientStreamingChunkEvent)}
    assert pieces == {items[-1].messages[-1].id}


@CONVERTED
async def test_context_of_an_agent_can_be_read(converted: bool) -> None:
    one: Any = agent("a", TURN, converted)
    await one.run(task="Look")
    assert [type(each).__name__ for each in await one.model_context.get_messages()] == [
        "UserMessage",
        "AssistantMessage",
        "FunctionExecutionResultMessage",
        "AssistantMessage",
    ]


async def test_converted_agent_takes_the_state_of_the_stock_one() -> None:
    stock: Any = agent("a", TURN, False, model_context=BufferedChatCompletionContext(10))
    await stock.run(task="Look")
    converted: Any = agent("a", ["Again."], True)
    await converted.load_state(await stock.save_state())
    assert len(await converted.model_context.get_messages()) == 4
    with pytest.raises(SchemaMismatch, match="another kind of agent"):
        await converted.load_state({"type": "SocietyOfMindAgentState"})


def test_metadata_is_kept() -> None:
    client = ReplayChatCompletionClient([], model_info=MODEL_INFO)
    one = with_questions(AssistantAgent("a", client, metadata={"team": "blue"}))
    assert one.dump_component().config["metadata"] == {"team": "blue"}
