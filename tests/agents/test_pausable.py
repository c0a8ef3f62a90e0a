"""One `PausableAgent`: its tools, its questions, its state, its errors. `test_nested.py` has the nesting."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_agentchat.teams import Swarm
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import FunctionTool, StaticWorkbench, ToolResult, Workbench
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import (
    Counted,
    TurnResult,
    answers,
    cancelled_while,
    impatient,
    nothing_left_behind,
    resumed_as,
    run,
    send,
)
from PIL import Image as Picture

from upcall.agents import PausableAgent
from upcall.agents.structured.agent import Thread
from upcall.agents.tool_loop.options import PausableOptions, PausableSettings
from upcall.autogen.messages import OUTCOME, answer_message, message_questions
from upcall.autogen.tool_calls import Interruption
from upcall.errors import (
    AgentFailed,
    ConfigurationError,
    ModelAuthenticationError,
    ModelError,
    ModelNotFound,
    ModelReplyInvalid,
    ModelTimeout,
    ModelUnavailable,
    SchemaMismatch,
    UserInputRequired,
)
from upcall.questions.answer import Answer, Outcome
from upcall.testing import Call, Calls, CutShort, Fail, Hang, Reply, ScriptedModelClient

pytestmark = pytest.mark.usefixtures(impatient.__name__)

ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})
STRICT = Call("ask_user", {"question": "Which one?", "options": ["Express", "FastAPI"], "allow_free_text": False})


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def times(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def coder(client: ChatCompletionClient, **options: Any) -> PausableAgent:
    return PausableAgent("coder", client, **options)


def bench(*functions: Callable[..., Any]) -> StaticWorkbench:
    return StaticWorkbench([FunctionTool(each, description="A tool.") for each in functions])


# -- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tools",
    [
        {"tools": [add]},
        {"tools": [FunctionTool(add_async, description="Add.", name="add")]},
        {"workbench": bench(add)},
        {"workbench": [bench(times), bench(add)]},
        {"tools": [times], "workbench": [bench(add)]},
    ],
    ids=["function", "tool", "workbench", "two workbenches", "both"],
)
async def test_tools_result_is_paired_with_its_call(tools: dict[str, Any]) -> None:
    with ScriptedModelClient([Call("add", {"a": 1, "b": 2}), "It is 3."]) as client:
        rest = await send(coder(client, **tools), "Add 1 and 2")
    assert rest.text == "It is 3."
    assert client.requests[-1].tool_results == {"call_1_1": "3"}


async def test_model_is_offered_every_tool_once() -> None:
    with ScriptedModelClient(["Hello."]) as client:
        await send(coder(client, tools=[add], workbench=[bench(times)], handoffs=["peer"]), "Hello")
    offered = [schema["name"] for schema in client.requests[0].body["tools"]]
    assert offered == ["add", "times", "transfer_to_peer", "ask_user"]


@pytest.mark.parametrize("kind", ["tools", "workbench"])
async def test_calls_of_one_reply_run_at_the_same_time(kind: str) -> None:
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        """Return when the other call has come too."""
        await both.wait()
        return f"{name} met"

    tools: dict[str, Any] = {"tools": [meet]} if kind == "tools" else {"workbench": bench(meet)}
    calls = Calls([Call("meet", {"name": "Ann"}), Call("meet", {"name": "Bob"})])
    with ScriptedModelClient([calls, "Done."]) as client:
        await send(coder(client, **tools), "Meet")
    assert client.requests[-1].tool_results == {"call_1_1": "Ann met", "call_1_2": "Bob met"}


async def fails() -> str:
    """Fail."""
    raise OSError("disk full")


def fails_silently() -> str:
    """Fail without a word."""
    raise RuntimeError


def exits() -> None:
    """End the program, as the main function of a command line does."""
    sys.exit(2)


async def cancels_itself() -> None:
    """Wait for something that somebody else cancels."""
    lost = asyncio.get_running_loop().create_future()
    lost.cancel()
    await lost


BROKEN_CALLS: list[tuple[Call, str]] = [
    (Call("no_such_tool"), "there is no tool 'no_such_tool'. Your tools: add"),
    (Call("add", "{broken"), "not valid JSON"),
    (Call("add", "[1, 2]"), "a JSON list"),
    (Call("add", "null"), "Field required"),
    (Call("add", '{"a":' * 100_000), "not valid JSON"),
    (Call("add", '{"a": NaN, "b": 1}'), "not valid JSON"),
    (Call("add", '{"a": "\\ud800", "b": 1}'), "not valid JSON"),
    (Call("add", {"a": "one", "b": 2}), "validation error"),
    (Call("add", ""), "validation error"),
    (Call("fails"), "Error: disk full"),
    (Call("fails_silently"), "Error: RuntimeError"),
    (Call("exits"), "Error: "),
    (Call("cancels_itself"), "Error: "),
]


@pytest.mark.parametrize(("call", "text"), BROKEN_CALLS, ids=lambda value: repr(value)[:60])
async def test_call_that_cannot_be_made_gets_an_actionable_error(call: Call, text: str) -> None:
    tools = [add, fails, fails_silently, exits, cancels_itself]
    with ScriptedModelClient([call, "I see."]) as client:
        rest = await send(coder(client, tools=tools), "Try")
    (done,) = rest.events_of(ToolCallExecutionEvent)
    assert isinstance(done, ToolCallExecutionEvent)
    assert done.content[0].is_error
    assert text in client.requests[-1].tool_results["call_1_1"]


async def test_broken_arguments_never_enter_the_context() -> None:
    with ScriptedModelClient([Call("add", "{broken"), "I see."]) as client:
        await send(coder(client, tools=[add]), "Try")
    assert client.requests[-1].messages[-2]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_failing_workbench_is_an_error_result_too() -> None:
    class Broken(StaticWorkbench):
        async def call_tool(self, *args: Any, **kwargs: Any) -> ToolResult:
            raise ConnectionError("server gone")

    with ScriptedModelClient([Call("add", {"a": 1, "b": 2}), "I see."]) as client:
        await send(coder(client, workbench=Broken([FunctionTool(add, description="Add.")])), "Try")
    assert client.requests[-1].tool_results == {"call_1_1": "Error: server gone"}


async def test_one_failing_call_does_not_stop_the_others() -> None:
    calls = Calls([Call("fails"), Call("add", {"a": 1, "b": 2})])
    with ScriptedModelClient([calls, "I see."]) as client:
        await send(coder(client, tools=[add, fails]), "Try")
    assert client.requests[-1].tool_results == {"call_1_1": "Error: disk full", "call_1_2": "3"}


async def test_result_of_invalid_text_is_made_valid() -> None:
    def list_files() -> str:
        """List files, one of them with a name in another encoding."""
        return "na\udcefve.txt"

    with ScriptedModelClient([Call("list_files"), "One."]) as client:
        await send(coder(client, tools=[list_files]), "List")
    assert client.requests[-1].tool_results == {"call_1_1": "na?ve.txt"}


class WithoutIds(ScriptedModelClient):
    """A model server that sends no tool call ids."""

    async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
        result = await super().create(*args, **kwargs)
        if not isinstance(result.content, str):
            result.content = [FunctionCall(id="", name=each.name, arguments=each.arguments) for each in result.content]
        return result


async def test_calls_without_ids_get_ids_of_their_own() -> None:
    calls = Calls([Call("add", {"a": 1, "b": 1}), Call("add", {"a": 2, "b": 2})])
    with WithoutIds([calls, "Done."]) as client:
        await send(coder(client, tools=[add]), "Add")
    assert list(client.requests[-1].tool_results.values()) == ["2", "4"]


@pytest.mark.parametrize("mixed_batch", ["ask_only", "run"])
async def test_two_calls_with_one_id_both_get_their_result(mixed_batch: Literal["ask_only", "run"]) -> None:
    twice = Calls([Call("add", {"a": 1, "b": 1}, id="same"), Call("add", {"a": 2, "b": 2}, id="same")])
    with ScriptedModelClient([twice, "Done."]) as client:
        await send(coder(client, tools=[add], mixed_batch=mixed_batch), "Add")
    assert list(client.requests[-1].tool_results.values()) == ["2", "4"]


async def test_call_id_of_an_earlier_round_is_not_reused() -> None:
    one, two = Call("add", {"a": 1, "b": 1}, id="call_0"), Call("add", {"a": 2, "b": 2}, id="call_0")
    with ScriptedModelClient([one, two, "Done."]) as client:
        await send(coder(client, tools=[add]), "Add")
    assert list(client.requests[-1].tool_results.values()) == ["2", "4"]


async def test_reply_with_an_empty_list_of_calls_is_empty() -> None:
    with ScriptedModelClient([Calls([]), "Done."]) as client:
        rest = await send(coder(client), "Hello")
    assert rest.text == "Done."
    assert "empty" in client.requests[-1].messages[-1]["content"]


async def test_function_with_a_new_description_is_offered_with_it() -> None:
    def search(query: str) -> str:
        return query

    for description in ("Search the files of Ann.", "Search the files of Bob."):
        search.__doc__ = description  # As a function that builds a team for a user may do.
        with ScriptedModelClient(["Hello."]) as client:
            await send(coder(client, tools=[search]), "Hello")
        assert client.requests[0].body["tools"][0]["description"] == description


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'coder': two tools, agents or hand-offs are called add"):
        coder(ScriptedModelClient([]), tools=[add, FunctionTool(times, description="", name="add")])


def test_tool_named_ask_user_is_refused_unless_alone() -> None:
    own = FunctionTool(add, description="", name="ask_user")
    with pytest.raises(ConfigurationError, match="ask_user"):
        coder(ScriptedModelClient([]), tools=[own])
    coder(ScriptedModelClient([]), tools=[own], ask_user=False)


@pytest.mark.parametrize("other", [{"tools": [add]}, {"workbench": [bench(add), bench(add)]}])
async def test_workbench_tool_with_a_taken_name_is_refused(other: dict[str, Any]) -> None:
    options = {"workbench": bench(add), **other}
    with pytest.raises(ConfigurationError, match="are called add"):
        await send(coder(ScriptedModelClient([]), **options), "Add")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_questoins": 3}, "'coder': there is no option 'max_questoins'; did you mean 'max_questions'"),
        ({"ask_mode": "never"}, "'coder': ask_mode = 'never' is wrong: Input should be 'strict', 'soft' or 'none'"),
    ],
)
def test_unknown_or_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        coder(ScriptedModelClient([]), **options)


def test_something_that_is_no_tool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not str"):
        coder(ScriptedModelClient([]), tools=["add"])


# -- asking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_every_outcome_reaches_the_model_as_text(outcome: Outcome) -> None:
    with ScriptedModelClient([ASK, "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        answer = Answer(question_id=rest.questions[0].id, outcome=outcome, text="Koa")
        await send(agent, answers(rest, answer))
    assert client.requests[-1].tool_results == {"call_1_1": answer.as_text()}


@pytest.mark.parametrize("ask", [ASK, Call("ask_user"), Call("ask_user", "{broken")], ids=["valid", "empty", "broken"])
async def test_calls_beside_a_question_are_dropped(ask: Call) -> None:
    """X9: the model decides anew with the answer, or with the hint where the question could not be put."""
    tool = Counted()
    with ScriptedModelClient([Calls([Call("note"), ask]), *([] if ask is ASK else [ASK]), "Built."]) as client:
        agent = coder(client, tools=[tool.note])
        await send(agent, answers(await send(agent, "Build it"), "Express"))
    assert tool.calls == 0
    assert "call_1_1" not in client.requests[-1].tool_results


async def test_calls_beside_a_question_run_if_that_is_wanted() -> None:
    """X9: every call has its result, and none ran twice."""
    tool = Counted()
    with ScriptedModelClient([Calls([Call("note"), ASK]), "Built."]) as client:
        agent = coder(client, tools=[tool.note], mixed_batch="run")
        rest = await send(agent, "Build it")
        assert tool.calls == 1
        await send(agent, answers(rest, "Express"))
    assert tool.calls == 1
    assert client.requests[-1].tool_results == {"call_1_1": "note 1", "call_1_2": "Express"}


async def test_several_questions_of_one_reply_are_open_together() -> None:
    other = Call("ask_user", {"question": "Which database?"})
    with ScriptedModelClient([Calls([ASK, other]), "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        rest = await send(agent, answers(rest, None, "SQLite"))
        assert [question.question for question in rest.questions] == ["Which framework?"]
        await send(agent, answers(rest, "Express"))
    assert client.requests[-1].tool_results == {"call_1_1": "Express", "call_1_2": "SQLite"}


async def test_question_beyond_the_limit_fails_until_the_next_turn() -> None:
    with ScriptedModelClient([ASK, ASK, "Built.", ASK]) as client:
        agent = coder(client, max_questions=1)
        rest = await send(agent, answers(await send(agent, "Build it"), "Express"))
        assert rest.text == "Built."
        assert "You have asked 1 questions, the limit" in client.requests[-1].tool_results["call_2_1"]
        assert len((await send(agent, "Build more")).questions) == 1


async def proxy_reply(rest: TurnResult, typed: str) -> BaseChatMessage:
    """Return what AutoGen's own `UserProxyAgent` makes of what the user types."""
    proxy = UserProxyAgent("user", input_func=lambda prompt: typed)
    return (await proxy.on_messages([rest.message], CancellationToken())).chat_message


async def test_stock_user_proxy_text_answers_the_first_question() -> None:
    other = Call("ask_user", {"question": "Which database?"})
    with ScriptedModelClient([Calls([ASK, other]), "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        rest = await send(agent, await proxy_reply(rest, "fastapi"))
        await send(agent, await proxy_reply(rest, "SQLite"))
    assert client.requests[-1].tool_results == {"call_1_1": "FastAPI", "call_1_2": "SQLite"}


async def test_text_that_is_no_option_asks_again_with_reason() -> None:
    with ScriptedModelClient([STRICT, "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        again = await send(agent, await proxy_reply(rest, "Koa"))
        assert again.text.startswith("'Koa' is not an option")
        assert again.questions == rest.questions
        await send(agent, await proxy_reply(again, "2"))
    assert client.requests[-1].tool_results == {"call_1_1": "FastAPI"}


# -- tools that ask ---------------------------------------------------------------------------------------------------


def deploy(target: str) -> str:
    """Deploy."""
    raise UserInputRequired(f"Deploy to {target}?", ["yes", "no"])


async def deploy_async(target: str) -> str:
    """Deploy."""
    raise UserInputRequired(f"Deploy to {target}?", ["yes", "no"])


class AskingWorkbench(StaticWorkbench):
    """A workbench that needs the human before it may act."""

    async def call_tool(self, *args: Any, **kwargs: Any) -> ToolResult:
        raise UserInputRequired("Deploy to production?", ["yes", "no"])


@pytest.mark.parametrize(
    "tools",
    [
        {"tools": [deploy]},
        {"tools": [FunctionTool(deploy_async, description="Deploy.", name="deploy")]},
        {"workbench": AskingWorkbench([FunctionTool(deploy, description="Deploy.")])},
    ],
    ids=["sync", "async", "workbench"],
)
async def test_answer_becomes_the_result_of_the_asking_tool(tools: dict[str, Any]) -> None:
    with ScriptedModelClient([Call("deploy", {"target": "production"}), "Deployed."]) as client:
        agent = coder(client, **tools)
        rest = await send(agent, "Deploy")
        assert [question.question for question in rest.questions] == ["Deploy to production?"]
        assert len(rest.events_of(UserInputRequestedEvent)) == 1
        again = await resumed_as(agent, coder(client, **tools))
        await send(again, answers(rest, "yes"))
    assert client.requests[-1].tool_results == {"call_1_1": "yes"}


async def test_tool_that_asks_nonsense_gets_an_error_result() -> None:
    def ask_nothing() -> str:
        """Ask."""
        raise UserInputRequired(" ")

    with ScriptedModelClient([Call("ask_nothing"), "I see."]) as client:
        assert (await send(coder(client, tools=[ask_nothing]), "Ask")).text == "I see."
    assert "in a way that cannot be shown" in client.requests[-1].tool_results["call_1_1"]


async def test_tool_that_waits_does_not_stop_calls_beside_it() -> None:
    with ScriptedModelClient([Calls([Call("deploy", {"target": "here"}), Call("note")]), "Done."]) as client:
        tool = Counted()
        agent = coder(client, tools=[deploy, tool.note])
        await send(agent, answers(await send(agent, "Deploy"), "no"))
    assert tool.calls == 1
    assert client.requests[-1].tool_results == {"call_1_1": "no", "call_1_2": "note 1"}


# -- the state --------------------------------------------------------------------------------------------------------


async def test_paused_agent_run_without_an_answer_asks_again() -> None:
    with ScriptedModelClient([ASK]) as client:
        first = coder(client)
        rest = await send(first, "Build it")
        again = await send(await resumed_as(first, coder(client)))
    assert again.questions == rest.questions


THREAD = Thread(messages=[TextMessage(source="user", content="Hello")]).model_dump(mode="json")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({}, "another kind of agent"),
        ({"version": 2, "messages": []}, "has format 2, "),
        ({"version": 2, "needs": "0.2.0"}, "Continue with upcall 0.2.0 or later"),
        ({"type": "AssistantAgentState", "llm_context": {"messages": [{"type": "Unknown"}]}}, "another kind of agent"),
        ({"version": 1, **THREAD}, "another kind of agent"),
        ({"version": 1, **Thread().model_dump(mode="json")}, "another kind of agent"),
        ({"version": 1, "frames": "none"}, "another kind of agent"),
        ({"version": 1, "messages": [{"type": "Unknown"}]}, "another kind of agent"),
    ],
    ids=["empty", "newer", "newer, named", "AutoGen's", "other agent", "other agent, empty", "frames", "message"],
)
async def test_foreign_state_is_refused_and_nothing_is_changed(state: dict[str, Any], text: str) -> None:
    agent = coder(ScriptedModelClient([]))
    before = await agent.save_state()
    with pytest.raises(SchemaMismatch, match="The stored state of agent 'coder'") as refused:
        await agent.load_state(state)
    assert text in str(refused.value)
    assert await agent.save_state() == before


async def test_reset_agent_is_like_new() -> None:
    with ScriptedModelClient([ASK]) as client:
        agent = coder(client)
        await send(agent, "Build it")
        await agent.on_reset(CancellationToken())
    assert await agent.save_state() == await coder(client).save_state()


async def test_group_messages_during_a_pause_follow_the_results() -> None:
    with ScriptedModelClient([ASK, "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        later = TextMessage(source="planner", content="Use TypeScript")
        assert (await send(agent, later)).questions == rest.questions
        await send(await resumed_as(agent, coder(client)), answers(rest, "Express"))
    assert [message["content"] for message in client.requests[-1].messages[-2:]] == ["Express", "Use TypeScript"]


async def test_message_beside_the_answer_follows_the_results() -> None:
    with ScriptedModelClient([ASK, "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        await send(agent, TextMessage(source="planner", content="Use TypeScript"), answers(rest, "Express"))
    assert [message["content"] for message in client.requests[-1].messages[-2:]] == ["Express", "Use TypeScript"]


async def test_message_repeated_after_a_failed_turn_is_taken_once() -> None:
    task, answer = TextMessage(source="user", content="Build it"), "Express"
    with ScriptedModelClient([Fail(500), ASK, Fail(500), "Built."]) as client:
        first = coder(client)
        with pytest.raises(ModelUnavailable):
            await send(first, task)
        second = await resumed_as(first, coder(client))
        message = answers(await send(second, task), answer)
        with pytest.raises(ModelUnavailable):
            await send(second, message)
        await send(await resumed_as(second, coder(client)), message, message)
    roles = [each["role"] for each in client.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool"]


async def test_message_that_comes_twice_at_once_is_taken_once() -> None:
    """A group chat's buffer holds a message twice where the task was given again after an error."""
    task = TextMessage(source="user", content="Build it")
    with ScriptedModelClient(["Built."]) as client:
        await send(coder(client), task, task)
    assert [each["role"] for each in client.requests[-1].messages] == ["system", "user"]


async def test_answer_that_is_unreadable_keeps_messages_beside_it() -> None:
    broken = HandoffMessage(source="user", target="coder", content="?", metadata={"upcall.answers": "{broken"})
    later = TextMessage(source="planner", content="Use TypeScript")
    with ScriptedModelClient([ASK, "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        with pytest.raises(SchemaMismatch, match="cannot be read"):
            await send(agent, broken, later)
        await send(agent, broken, later, answers(rest, "Express"))
    assert client.requests[-1].messages[-1]["content"] == "Use TypeScript"


async def test_answer_to_somebody_elses_question_is_only_read() -> None:
    stray = answer_message([Answer(question_id="other", text="Django")], target="coder")
    with ScriptedModelClient([ASK, "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        assert (await send(agent, stray)).questions == rest.questions
        await send(agent, answers(rest, "Express"))
    assert [each["content"] for each in client.requests[-1].messages[-2:]] == ["Express", "Django"]


async def test_same_answer_again_is_harmless() -> None:
    other = Call("ask_user", {"question": "Which database?"})
    with ScriptedModelClient([Calls([ASK, other]), "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, "Build it")
        message = answers(rest, "Express")
        assert (await send(agent, message)).questions == (await send(agent, message)).questions
        await send(agent, message, answers(rest, None, "SQLite"))
    assert [each["role"] for each in client.requests[-1].messages[1:]] == ["user", "assistant", "tool", "tool"]


async def test_image_survives_the_pause() -> None:
    image = Image.from_pil(Picture.new("RGB", (2, 2)))
    with ScriptedModelClient([ASK, "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, MultiModalMessage(source="user", content=["Like this:", image]))
        second = await resumed_as(agent, coder(client))
        await send(second, answers(rest, "Express"))
    assert client.requests[-1].messages[1]["content"] == "Like this:\n<image>"


async def test_handoff_context_of_a_stock_agent_is_taken_in() -> None:
    call = FunctionCall(id="call_9", name="search", arguments="{}")
    found = FunctionExecutionResult(call_id="call_9", name="search", content="three files", is_error=False)
    context = [
        AssistantMessage(content=[call], source="researcher"),
        FunctionExecutionResultMessage(content=[found]),
    ]
    handed = HandoffMessage(source="researcher", target="coder", content="Your turn", context=list(context))
    with ScriptedModelClient(["Built."]) as client:
        await send(coder(client), handed)
    assert client.requests[-1].tool_results == {"call_9": "three files"}


# -- streaming --------------------------------------------------------------------------------------------------------


async def test_text_is_streamed_as_it_comes() -> None:
    with ScriptedModelClient([Call("add", {"a": 1, "b": 2}), "It is 3."]) as client:
        rest = await send(coder(client, tools=[add], stream=True), "Add")
    chunks = [event.content for event in rest.events if isinstance(event, ModelClientStreamingChunkEvent)]
    assert chunks == ["It", " is", " 3."]
    assert rest.text == "It is 3."


async def test_events_come_in_the_order_in_which_things_happen() -> None:
    with ScriptedModelClient([Calls([Call("add", {"a": 1, "b": 2})], thought="Easy."), "It is 3."]) as client:
        rest = await send(coder(client, tools=[add]), "Add")
    assert [type(event) for event in rest.events] == [ThoughtEvent, ToolCallRequestEvent, ToolCallExecutionEvent]


async def test_stream_that_is_cut_short_is_an_invalid_reply() -> None:
    with ScriptedModelClient([CutShort("It is"), "It is 3."]) as client:
        agent = coder(client, stream=True)
        with pytest.raises(ModelReplyInvalid, match="cut its reply short"):
            await send(agent, "Add")
        assert (await send(await resumed_as(agent, coder(client)))).text == "It is 3."


class Endless(ScriptedModelClient):
    """A model client whose stream ends without a result."""

    async def create_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[str | CreateResult, None]:
        yield "It is"


async def test_stream_without_a_result_is_an_invalid_reply() -> None:
    with pytest.raises(ModelReplyInvalid, match="cut its reply short"):
        await send(coder(Endless([]), stream=True), "Add")


# -- errors -----------------------------------------------------------------------------------------------------------


class Raising(ScriptedModelClient):
    """A model client that raises what SDKs and network libraries raise."""

    def __init__(self, error: Exception) -> None:
        super().__init__([])
        self.error = error

    async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
        raise self.error


class APIConnectionError(Exception):
    """As openai's."""


class RemoteProtocolError(Exception):
    """As httpx's, when a connection breaks in the middle of a stream."""


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Fail(401), ModelAuthenticationError),
        (Fail(403), ModelAuthenticationError),
        (Fail(404), ModelNotFound),
        (Fail(400), ModelError),
        (Fail(408), ModelTimeout),
        (Fail(429), ModelUnavailable),
        (Fail(500), ModelUnavailable),
        (Fail(503), ModelUnavailable),
        (Fail(504), ModelTimeout),
        (Hang(0.01), ModelTimeout),
        (APIConnectionError(), ModelUnavailable),
    ],
    ids=repr,
)
@pytest.mark.parametrize("stream", [False, True])
async def test_model_call_failure_is_an_error_of_one_line(
    failure: Reply | Exception, kind: type[ModelError], stream: bool
) -> None:
    client = Raising(failure) if isinstance(failure, Exception) else ScriptedModelClient([failure])
    with pytest.raises(ModelError, match=r"^Agent 'coder': the model .* The run is stored") as failed:
        await send(coder(client, stream=stream), "Build it")
    assert type(failed.value) is kind
    assert len(str(failed.value).splitlines()) == 1


@pytest.mark.parametrize(
    "failure",
    [RemoteProtocolError(), OSError("no route to host"), json.JSONDecodeError("broken", "", 0), IndexError()],
    ids=repr,
)
async def test_client_error_names_its_class_and_line(failure: Exception) -> None:
    line = Raising.create.__code__.co_firstlineno + 1
    with pytest.raises(ModelError) as failed:
        await send(coder(Raising(failure)), "Build it")
    assert f"its model client Raising failed ({__file__}, line {line}): {type(failure).__name__}" in str(failed.value)
    assert len(str(failed.value).splitlines()) == 1


# -- cancellation -----------------------------------------------------------------------------------------------------


async def test_workbench_that_cannot_list_its_tools_is_an_error() -> None:
    class Unreachable(StaticWorkbench):
        async def list_tools(self) -> list[Any]:
            raise ConnectionError

    with pytest.raises(AgentFailed, match=r"^Agent 'coder': a workbench cannot list its tools \(ConnectionError\)"):
        await send(coder(ScriptedModelClient([]), workbench=Unreachable([])), "Go")


@pytest.mark.parametrize("how", ["token", "task"])
async def test_workbench_that_hangs_listing_tools_can_be_cancelled(how: str) -> None:
    asked = asyncio.Event()

    class Unreachable(StaticWorkbench):
        async def list_tools(self) -> list[Any]:
            asked.set()
            await asyncio.Event().wait()
            return []

    async with nothing_left_behind():
        await cancelled_while(coder(ScriptedModelClient([]), workbench=Unreachable([])), asked.is_set, how, "Go")


@pytest.mark.parametrize("how", ["token", "task"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_tool_failing_during_cancel_leaves_nothing_behind(how: str, at_once: bool) -> None:
    started = asyncio.Event()

    async def clean_up_badly() -> None:
        """Fail on the way out."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0 if at_once else 0.1)
            raise OSError("disk full")

    async with nothing_left_behind():
        with ScriptedModelClient([Call("clean_up_badly")]) as client:
            await cancelled_while(coder(client, tools=[clean_up_badly]), started.is_set, how, "Go")
        await asyncio.sleep(0 if at_once else 0.1)


async def test_cancelled_token_stops_a_turn_before_it_begins() -> None:
    token = CancellationToken()
    token.cancel()
    with ScriptedModelClient([]) as client, pytest.raises(asyncio.CancelledError):
        await send(coder(client), "Go", token=token)


async def test_calls_failing_for_good_leave_no_loose_end() -> None:
    class Gone(Interruption):
        pass

    def refuse() -> str:
        """Raise what no one catches."""
        raise Gone

    async with nothing_left_behind():
        with ScriptedModelClient([Calls([Call("refuse"), Call("refuse")])]) as client, pytest.raises(Gone):
            await send(coder(client, tools=[refuse]), "Go")


# -- limits, counters -------------------------------------------------------------------------------------------------


async def test_turn_ends_with_text_when_model_calls_are_spent() -> None:
    again = Call("add", {"a": 1, "b": 2})
    with ScriptedModelClient([again, again, again, "It is 3."]) as client:
        agent = coder(client, tools=[add], max_rounds=2)
        rest = await send(agent, "Add")
        assert rest.message.metadata[OUTCOME] == "max_rounds"
        assert rest.text.startswith("coder stopped after 2 model calls")
        assert (await send(agent, "Go on")).text == "It is 3."


async def test_model_calls_count_over_a_pause() -> None:
    """S4-33"""
    with ScriptedModelClient([ASK, Call("add", {"a": 1, "b": 2})]) as client:
        first = coder(client, tools=[add], max_rounds=2)
        rest = await send(first, "Build it")
        second = await resumed_as(first, coder(client, tools=[add], max_rounds=2))
        assert (await send(second, answers(rest, "Express"))).message.metadata[OUTCOME] == "max_rounds"


# -- hand-offs to peers -----------------------------------------------------------------------------------------------


async def test_hand_off_gives_the_turn_to_a_peer() -> None:
    with ScriptedModelClient({"You code": [Call("transfer_to_tester")], "You test": ["Tested."]}) as client:
        first = PausableAgent("coder", client, system_message="You code.", handoffs=["tester"])
        second = PausableAgent("tester", client, system_message="You test.", handoffs=["coder"])
        rest = await run(Swarm([first, second], termination_condition=TextMessageTermination("tester")), "Build it")
    assert rest.text == "Tested."
    assert [message["content"] for message in client.requests[-1].messages[1:]] == [
        "Build it",
        "Transferred to tester, adopting the role of tester immediately.",
    ]


async def test_handoff_follows_the_calls_beside_it() -> None:
    tool = Counted()
    with ScriptedModelClient([Calls([Call("transfer_to_tester"), Call("note")])]) as client:
        agent = coder(client, tools=[tool.note], handoffs=[Handoff(target="tester", message="Over to you")])
        rest = await send(agent, "Build it")
    assert (rest.text, tool.calls) == ("Over to you", 1)


async def test_handoff_whose_reader_leaves_early_is_repeated() -> None:
    with ScriptedModelClient([Call("transfer_to_tester")]) as client:
        agent = coder(client, handoffs=["tester"])
        stream = agent.on_messages_stream([TextMessage(source="user", content="Go")], CancellationToken())
        async for event in stream:
            if isinstance(event, ToolCallExecutionEvent):
                break
        await stream.aclose()
        rest = await send(await resumed_as(agent, coder(client, handoffs=["tester"])))
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "tester"


async def test_handoff_is_one_of_two_and_the_model_knows() -> None:
    with ScriptedModelClient([Calls([Call("transfer_to_tester"), Call("transfer_to_writer")]), "Hello."]) as client:
        agent = coder(client, handoffs=["tester", "writer"])
        rest = await send(agent, "Build it")
        await send(agent, "And now?")
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "tester"
    assert client.requests[-1].tool_results["call_1_2"].startswith("Error: ")


async def test_handoff_beside_a_question_waits_for_the_answer() -> None:
    with ScriptedModelClient([Calls([Call("transfer_to_tester"), ASK])]) as client:
        agent = coder(client, handoffs=["tester"], mixed_batch="run")
        rest = await send(agent, answers(await send(agent, "Build it"), "Express"))
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "tester"


# -- component --------------------------------------------------------------------------------------------------------

REPLAY = ModelInfo(
    vision=False, function_calling=True, json_output=False, structured_output=False, family=ModelFamily.UNKNOWN
)


def replay(*replies: str | Call) -> ReplayChatCompletionClient:
    results = [
        each
        if isinstance(each, str)
        else CreateResult(
            finish_reason="function_calls",
            content=[FunctionCall(id=each.id or "call_1", name=each.name, arguments=each.text)],
            usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
            cached=False,
        )
        for each in replies
    ]
    return ReplayChatCompletionClient(results, model_info=REPLAY)


def options(agent: PausableAgent) -> dict[str, Any]:
    return agent.dump_component().model_dump(exclude={"config": {"model_client"}})


async def test_every_option_survives_a_dump() -> None:
    given: PausableOptions = {
        "description": "Codes.",
        "system_message": "You code.",
        "ask_user": False,
        "ask_mode": "none",
        "mixed_batch": "run",
        "max_rounds": 3,
        "max_repeats": 4,
        "max_questions": 2,
        "max_reply_calls": 5,
        "report_tool": False,
        "search_first": True,
        "answers_nested": True,
        "catch_prose": True,
        "nested_timeout": 5.0,
        "stream": True,
        "metadata": {"team": "red"},
        "user_proxy": "human",
        "compact_at": 0.5,
    }
    assert given.keys() == PausableSettings.model_fields.keys()
    handoffs = [Handoff(target="tester", message="Over to you")]
    first = PausableAgent("coder", replay("Hello."), workbench=[StaticWorkbench([])], handoffs=handoffs, **given)
    second = PausableAgent.load_component(json.loads(first.dump_component().model_dump_json()))
    assert options(second) == options(first)
    assert options(second)["config"].items() >= given.items()


async def test_loaded_agent_uses_its_tools() -> None:
    first = coder(replay(Call("add", {"a": 1, "b": 2}), "It is 3."), tools=[add], ask_user=False)
    with pytest.warns(UserWarning, match="FunctionTool"):
        second = PausableAgent.load_component(first.dump_component())
    rest = await send(second, "Add")
    (done,) = rest.events_of(ToolCallExecutionEvent)
    assert isinstance(done, ToolCallExecutionEvent)
    assert (rest.text, done.content[0].content) == ("It is 3.", "3")


async def test_closing_an_agent_stops_its_workbenches() -> None:
    stopped: list[str] = []

    class Stoppable(StaticWorkbench):
        async def stop(self) -> None:
            stopped.append("one")

    benches: Sequence[Workbench] = [Stoppable([]), Stoppable([])]
    await coder(ScriptedModelClient([]), workbench=benches).close()
    assert stopped == ["one", "one"]


async def test_run_and_on_messages_work_like_autogens_agents() -> None:
    with ScriptedModelClient(["Hello.", ASK]) as client:
        agent = coder(client)
        assert (await agent.run(task="Hi")).messages[-1].to_text() == "Hello."
        paused = await agent.run(task="Build it")
    assert len(message_questions(paused.messages[-1])) == 1
