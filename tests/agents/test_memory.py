"""Memory, which is asked once a turn, and the model context, which is a view: a pause loses and repeats nothing."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MemoryQueryEvent, TextMessage
from autogen_core import FunctionCall
from autogen_core.memory import ListMemory, Memory, MemoryContent, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import answers, cancelled_while, impatient, nothing_left_behind, resumed_as, send

from upcall.agents import PausableAgent
from upcall.agents.tool_loop.model_view import drop_unpaired, with_system_message
from upcall.agents.tool_loop.turn import Turn
from upcall.errors import AgentFailed, ConfigurationError, ModelUnavailable, UpcallError
from upcall.testing import Call, Calls, Fail, Reply, Request, ScriptedModelClient
from upcall.testing.model import MODEL_INFO

pytestmark = pytest.mark.usefixtures(impatient.__name__)

ASK = Call("ask_user", {"question": "Which framework?"})
NOTE = "1. The user likes tea"


def note() -> str:
    """Take a note."""
    return "noted"


_ASKED = Counter[int]()
"""How often each memory was asked: not in an attribute, which comes through a pause."""


class Counted(ListMemory):
    """A memory of one thing that counts how often it is asked, and fails as often as it is set to."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        super().__init__(memory_contents=[MemoryContent(content="The user likes tea", mime_type="text/plain")])
        self.failures, self.error = failures, error or OSError("no such\nserver")
        _ASKED[id(self)] = 0
        self.seen: list[list[LLMMessage]] = []

    @property
    def asked(self) -> int:
        return _ASKED[id(self)]

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        _ASKED[id(self)] += 1
        self.seen.append(list(await model_context.get_messages()))
        result = await super().update_context(model_context)
        if self.asked <= self.failures:
            raise self.error
        return result


def coder(client: ChatCompletionClient, *memory: Memory, **options: Any) -> PausableAgent:
    return PausableAgent("coder", client, memory=memory, **options)


def notes_in(request: Request) -> int:
    return sum(NOTE in str(each["content"]) for each in request.messages)


async def messages_of(agent: PausableAgent) -> list[LLMMessage]:
    state = dict(await agent.save_state())
    state.pop("parts", None)
    return Turn.model_validate(state).messages


# -- memory -----------------------------------------------------------------------------------------------------------


async def test_memory_is_queried_once_and_seen_every_round() -> None:
    memory = Counted()
    with ScriptedModelClient([Call("note"), Call("note"), "Done."]) as client:
        rest = await send(coder(client, memory, tools=[note]), "Build it")
    assert memory.asked == 1
    assert [notes_in(request) for request in client.requests] == [1, 1, 1]
    (event,) = rest.events_of(MemoryQueryEvent)
    assert (event.source, event.content[0].content) == ("coder", "The user likes tea")  # type: ignore[union-attr]


async def test_memory_is_asked_with_what_came_in() -> None:
    memory = Counted()
    with ScriptedModelClient(["Done."]) as client:
        await send(coder(client, memory), "Build it")
    assert [each.content for each in memory.seen[0]] == ["Build it"]


async def test_events_and_messages_are_those_of_an_assistant_agent() -> None:
    with ScriptedModelClient(["Done.", "Done."]) as client:
        ours = await send(coder(client, Counted(), ask_user=False, system_message="Work."), "Build it")
        stock = AssistantAgent("coder", client, memory=[Counted()], system_message="Work.")
        theirs = [each async for each in stock.run_stream(task="Build it")]
    (event,) = ours.events_of(MemoryQueryEvent)
    assert [event.content] == [each.content for each in theirs if isinstance(each, MemoryQueryEvent)]
    assert client.requests[0].messages == client.requests[1].messages


async def test_memory_is_not_asked_again_after_a_pause() -> None:
    first, second = Counted(), Counted()
    with ScriptedModelClient([ASK, "Done."]) as client:
        asking = coder(client, first)
        rest = await send(asking, "Build it")
        going_on = await resumed_as(asking, coder(client, second))
        done = await send(going_on, answers(rest, "Express"))
    assert (first.asked, second.asked, done.events_of(MemoryQueryEvent)) == (1, 0, [])
    assert notes_in(client.requests[-1]) == 1


async def test_memory_is_not_queried_for_messages_beside_an_answer() -> None:
    memory = Counted()
    with ScriptedModelClient([ASK, "Done."]) as client:
        made = coder(client, memory)
        rest = await send(made, "Build it")
        await send(made, TextMessage(source="tester", content="Hurry."), answers(rest, "Express"))
    assert (memory.asked, notes_in(client.requests[-1])) == (1, 1)


async def test_memory_is_asked_again_in_the_next_turn() -> None:
    memory = Counted()
    with ScriptedModelClient([ASK, "Done.", "Done."]) as client:
        made = coder(client, memory)
        await send(made, answers(await send(made, "Build it"), "Express"))
        made = await resumed_as(made, coder(client, memory))
        await send(made, "And test it")
    assert (memory.asked, notes_in(client.requests[-1])) == (2, 2)


async def test_memory_is_not_queried_again_after_failed_model_calls() -> None:
    first, second = Counted(), Counted()
    with ScriptedModelClient([Fail(503), "Done."]) as client:
        made = coder(client, first)
        with pytest.raises(ModelUnavailable):
            await send(made, "Build it")
        await send(await resumed_as(made, coder(client, second)))
    assert (first.asked, second.asked, notes_in(client.requests[-1])) == (1, 0, 1)


async def test_memory_failure_is_one_line_and_the_turn_continues() -> None:
    good, bad = Counted(), Counted(failures=1)
    with ScriptedModelClient(["Done."]) as client:
        made = coder(client, good, bad)
        with pytest.raises(AgentFailed) as failure:
            await send(made, "Build it")
        assert [each.content for each in await messages_of(made)] == ["Build it"]
        again = await resumed_as(made, coder(client, good, bad))
        rest = await send(again)
    assert str(failure.value) == (
        "Agent 'coder': its memory Counted failed (OSError). Check that it can be reached and read. "
        "The run is stored and can be resumed."
    )
    assert (rest.text, notes_in(client.requests[0]), good.asked, bad.asked) == ("Done.", 2, 2, 2)


@pytest.mark.parametrize(
    "error", [UpcallError("Buy more."), AssertionError("scripted")], ids=lambda each: type(each).__name__
)
async def test_memory_error_that_is_clear_already_stays_unchanged(error: Exception) -> None:
    with ScriptedModelClient([]) as client, pytest.raises(type(error), match=str(error)):
        await send(coder(client, Counted(failures=1, error=error)), "Build it")


@pytest.mark.parametrize("how", ["token", "task"])
async def test_memory_that_hangs_is_let_go(how: str) -> None:
    class Hanging(Counted):
        async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
            await super().update_context(model_context)
            await asyncio.sleep(3600)
            raise NotImplementedError

    memory = Hanging()
    with ScriptedModelClient(["Done."]) as client:
        made = coder(client, memory)
        async with nothing_left_behind():
            await cancelled_while(made, lambda: memory.asked > 0, how, "Build it")
        rest = await send(await resumed_as(made, coder(client, Counted())))
    assert (rest.text, notes_in(client.requests[0])) == ("Done.", 1)


async def test_memory_that_finds_nothing_is_not_reported() -> None:
    with ScriptedModelClient(["Done."]) as client:
        rest = await send(coder(client, ListMemory()), "Build it")
    assert rest.events_of(MemoryQueryEvent) == []
    assert [each["role"] for each in client.requests[0].messages] == ["system", "user"]


async def test_memory_never_separates_a_call_from_its_result() -> None:
    class Forgetful(ListMemory):
        async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
            kept = [each for each in await model_context.get_messages() if not isinstance(each, AssistantMessage)]
            await model_context.clear()
            for each in kept:
                await model_context.add_message(each)
            return UpdateContextResult(memories=MemoryQueryResult(results=[]))

    with ScriptedModelClient([Call("note"), "Done.", "Done."]) as client:
        made = coder(client, Forgetful(), tools=[note])
        await send(made, "Build it")
        await send(made, "Again")
    assert [each["content"] for each in client.requests[-1].messages[1:]] == ["Build it", "Again"]


async def test_memory_is_queried_once_by_agents_of_parallel_calls() -> None:
    memory = Counted()
    both = Calls([Call("coder", {"task": "A"}), Call("coder", {"task": "B"})])
    script: dict[str, list[Reply]] = {"I am lead": [both, "Done."], "I am coder": [ASK, ASK, "A done", "B done"]}

    def team(client: ChatCompletionClient) -> PausableAgent:
        return PausableAgent(
            "lead", client, system_message="I am lead", agents=[coder(client, memory, system_message="I am coder")]
        )

    with ScriptedModelClient(script) as client:
        first = team(client)
        rest = await send(first, "Build it")
        assert (memory.asked, len(rest.questions)) == (2, 2)
        await send(await resumed_as(first, team(client)), answers(rest, "Express", "FastAPI"))
    assert memory.asked == 2
    assert [notes_in(each) for each in client.requests if "I am coder" in each.system] == [1, 1, 1, 1]


async def test_memory_joins_the_only_system_message_allowed() -> None:
    """`OpenAIChatCompletionClient` refuses a second one further down (autogen-ext 0.7.5)."""
    with ScriptedModelClient(["Done."], model_info={**MODEL_INFO, "multiple_system_messages": False}) as client:
        await send(coder(client, Counted(), system_message="Work."), "Build it")
    (request,) = client.requests
    assert [each["role"] for each in request.messages] == ["system", "user"]
    assert request.system.startswith("Work.")
    assert NOTE in request.system


def test_system_message_is_left_out_where_it_is_empty() -> None:
    user = UserMessage(content="Hello", source="user")
    assert with_system_message("", [user], several=True) == with_system_message("", [user], several=False) == [user]


# -- model context ----------------------------------------------------------------------------------------------------


def wording(number: int) -> UserMessage:
    return UserMessage(content=f"said {number}", source="user")


def calls(*ids: str) -> AssistantMessage:
    return AssistantMessage(
        content=[FunctionCall(id=each, name="note", arguments="{}") for each in ids], source="coder"
    )


def results(*ids: str) -> FunctionExecutionResultMessage:
    return FunctionExecutionResultMessage(
        content=[FunctionExecutionResult(content="noted", name="note", call_id=each) for each in ids]
    )


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ([], []),
        ([wording(1), calls("a", "b"), results("a", "b"), wording(2)], [0, 1, 2, 3]),
        ([results("a"), wording(1)], [1]),
        ([wording(1), calls("a")], [0]),
        ([calls("a"), wording(1), results("a")], [1]),
        ([calls("a", "b"), results("a"), wording(1)], [2]),
        ([calls("a"), results("b"), wording(1)], [2]),
        ([calls("a"), calls("b"), results("b")], [1, 2]),
        ([calls("a"), results("a"), results("a")], [0, 1]),
        ([wording(1), results()], [0]),
    ],
    ids=["none", "whole", "result first", "call last", "apart", "one of two", "of another", "two", "twice", "empty"],
)
def test_context_shows_calls_and_results_together_or_neither(messages: list[LLMMessage], kept: list[int]) -> None:
    assert drop_unpaired(messages) == [messages[each] for each in kept]


def filled() -> list[LLMMessage]:
    return [wording(1), AssistantMessage(content="said before", source="coder")]


class Words(ReplayChatCompletionClient):
    """A client that counts words."""

    def count_tokens(self, messages: Sequence[LLMMessage], **options: Any) -> int:
        return sum(len(str(each.content).split()) for each in messages)


CONTEXTS = {
    "unbounded": lambda: UnboundedChatCompletionContext(),
    **{f"buffered {size}": lambda size=size: BufferedChatCompletionContext(size) for size in range(2, 9)},
    **{
        f"head {head} and tail {tail}": lambda head=head, tail=tail: HeadAndTailChatCompletionContext(head, tail)
        for head in range(1, 4)
        for tail in range(1, 5)
    },
    **{
        f"{limit} words": lambda limit=limit: TokenLimitedChatCompletionContext(Words([]), token_limit=limit)
        for limit in range(5, 40, 3)
    },
}


@pytest.mark.parametrize("make", CONTEXTS.values(), ids=CONTEXTS.keys())
async def test_no_view_tears_calls_from_their_results(make: Any) -> None:
    two = Calls([Call("note"), Call("note")])
    with ScriptedModelClient([two, Call("note"), ASK, Call("note"), "Done."]) as client:
        made = coder(client, tools=[note], model_context=make())
        rest = await send(made, "Build it")
        made = await resumed_as(made, coder(client, tools=[note], model_context=make()))
        await send(made, answers(rest, "Express"))
    assert [request.list_unpaired() for request in client.requests] == [[]] * 5
    assert len(await messages_of(made)) == 10


async def test_context_view_reaches_models_while_state_keeps_everything() -> None:
    with ScriptedModelClient([Call("note"), ASK, "Done."]) as client:
        made = coder(client, tools=[note], model_context=BufferedChatCompletionContext(2))
        rest = await send(made, "Build it")
        made = await resumed_as(made, coder(client, tools=[note], model_context=BufferedChatCompletionContext(2)))
        await send(made, answers(rest, "Express"))
    assert [[each["role"] for each in request.messages[1:]] for request in client.requests] == [
        ["user"],
        ["assistant", "tool"],
        ["assistant", "tool"],
    ]
    assert client.requests[-1].tool_results == {"call_2_1": "Express"}
    assert [each.type for each in await messages_of(made)] == [
        "UserMessage",
        *["AssistantMessage", "FunctionExecutionResultMessage"] * 2,
        "AssistantMessage",
    ]


@pytest.mark.parametrize("how", ["initial", "added"])
async def test_context_messages_given_at_start_come_first(how: str) -> None:
    async def made(client: ChatCompletionClient) -> PausableAgent:
        context = UnboundedChatCompletionContext(filled() if how == "initial" else None)
        for message in filled() if how == "added" else []:
            await context.add_message(message)
        return coder(client, model_context=context)

    with ScriptedModelClient([ASK, "Done."]) as client:
        first = await made(client)
        rest = await send(first, "Build it")
        await send(await resumed_as(first, await made(client)), answers(rest, "Express"))
    for request in client.requests:
        assert [each["content"] for each in request.messages[1:4]] == ["said 1", "said before", "Build it"]
        assert request.list_unpaired() == []
    assert len(client.requests[1].messages) == 6


async def test_context_is_left_as_it_was_given() -> None:
    context = BufferedChatCompletionContext(10, filled())
    with ScriptedModelClient([Call("note"), "Done."]) as client:
        await send(coder(client, tools=[note], model_context=context), "Build it")
    assert await context.get_messages() == filled()


async def test_context_view_that_changes_leaves_the_state_alone() -> None:
    class Short(UnboundedChatCompletionContext):
        async def get_messages(self) -> list[LLMMessage]:
            for message in self._messages:
                for result in message.content if isinstance(message, FunctionExecutionResultMessage) else []:
                    result.content = "(cut)"
            return self._messages

    with ScriptedModelClient([Call("note"), "Done."]) as client:
        made = coder(client, tools=[note], model_context=Short())
        await send(made, "Build it")
    assert client.requests[-1].tool_results == {"call_1_1": "(cut)"}
    assert (await messages_of(made))[2].content[0].content == "noted"  # type: ignore[union-attr]


class Slow(UnboundedChatCompletionContext):
    """A context that waits wherever it can, so that calls at the same time meet in it."""

    async def add_message(self, message: LLMMessage) -> None:
        await asyncio.sleep(0)
        await super().add_message(message)

    async def get_messages(self) -> list[LLMMessage]:
        await asyncio.sleep(0)
        return self._messages


@pytest.mark.parametrize("names", [("coder", "coder"), ("coder", "tester")], ids=["twins", "two agents"])
async def test_context_shared_by_parallel_agents_shows_each_its_messages(
    names: tuple[str, str],
) -> None:
    context = Slow(filled())
    both = Calls([Call(name, {"task": f"Task {number}"}) for number, name in enumerate(names)])
    with ScriptedModelClient(
        {"I am lead": [both, "Done."], "I am nested": [Call("note")] * 2 + ["Done."] * 2}
    ) as client:
        nested = [
            PausableAgent(name, client, system_message="I am nested", tools=[note], model_context=context)
            for name in dict.fromkeys(names)
        ]
        await send(PausableAgent("lead", client, system_message="I am lead", agents=nested), "Build it")
    seen = [
        [each["content"] for each in request.messages[1:4]] for request in client.requests if "nested" in request.system
    ]
    assert sorted(seen) == sorted([["said 1", "said before", f"Task {number}"] for number in (0, 0, 1, 1)])
    assert {len(request.messages) for request in client.requests if "nested" in request.system} == {4, 6}


def test_context_serves_one_event_loop_after_another() -> None:
    context = Slow()

    async def both() -> None:
        with ScriptedModelClient(["Done."] * 2) as client:
            await asyncio.gather(*(send(coder(client, model_context=context), "Build it") for _ in range(2)))

    asyncio.run(both())
    asyncio.run(both())


async def test_context_view_of_nothing_is_an_error_until_enlarged() -> None:
    with ScriptedModelClient([Call("note"), "Done."]) as client:
        made = coder(client, tools=[note], model_context=BufferedChatCompletionContext(1))
        with pytest.raises(ConfigurationError, match=r"'coder': its model context Buffered\w+ shows the model nothing"):
            await send(made, "Build it")
        larger = coder(client, tools=[note], model_context=BufferedChatCompletionContext(2))
        assert (await send(await resumed_as(made, larger))).text == "Done."
    assert client.requests[-1].tool_results == {"call_1_1": "noted"}


async def test_context_failure_is_one_line_and_the_turn_continues() -> None:
    class Broken(UnboundedChatCompletionContext):
        async def get_messages(self) -> list[LLMMessage]:
            raise KeyError("no such\nmodel")

    context = Broken(filled())
    with ScriptedModelClient(["Done."]) as client:
        made = coder(client, model_context=context)
        with pytest.raises(AgentFailed) as failure:
            await send(made, "Build it")
        assert (await send(await resumed_as(made, coder(client)))).text == "Done."
    assert str(failure.value) == (
        "Agent 'coder': its model context Broken failed (KeyError). Give another model_context. "
        "The run is stored and can be resumed."
    )
    assert len((await context.save_state())["messages"]) == 2


async def test_what_a_memory_says_is_part_of_the_view() -> None:
    with ScriptedModelClient([Call("note"), "Done."]) as client:
        made = coder(client, Counted(), tools=[note], model_context=BufferedChatCompletionContext(2))
        await send(made, "Build it")
    assert [notes_in(request) for request in client.requests] == [1, 0]
    assert any(isinstance(each, SystemMessage) for each in await messages_of(made))


# -- component --------------------------------------------------------------------------------------------------------


async def test_memory_and_context_are_in_the_component() -> None:
    memory = ListMemory(memory_contents=[MemoryContent(content="The user likes tea", mime_type="text/plain")])
    made = coder(
        ReplayChatCompletionClient(["Done."]), memory, model_context=BufferedChatCompletionContext(5, filled())
    )
    dumped = json.loads(made.dump_component().model_dump_json())
    loaded = PausableAgent.load_component(dumped)
    assert loaded.dump_component() == made.dump_component()
    rest = await send(loaded, "Build it")
    assert len(rest.events_of(MemoryQueryEvent)) == 1
    replayed = cast(ReplayChatCompletionClient, loaded._model_client)
    messages = replayed.create_calls[0]["messages"]
    assert [each.content for each in messages[1:4]] == ["said 1", "said before", "Build it"]


def test_agent_without_memory_and_context_is_dumped_and_loaded() -> None:
    dumped = coder(ReplayChatCompletionClient(["Done."])).dump_component()
    assert (dumped.config["memory"], dumped.config.get("model_context")) == ([], None)
    older = {
        name: value for name, value in dumped.config.items() if name not in ("memory", "model_context", "catch_prose")
    }
    assert PausableAgent.load_component(dumped.model_copy(update={"config": older})).dump_component() == dumped


@pytest.mark.parametrize("option", ["memory", "model_context"])
def test_component_that_cannot_be_dumped_fails_like_assistant_agents(option: str) -> None:
    class Own(Memory):
        async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult: ...  # type: ignore[empty-body]
        async def query(self, *_: Any, **__: Any) -> MemoryQueryResult: ...  # type: ignore[empty-body]
        async def add(self, *_: Any) -> None: ...
        async def clear(self) -> None: ...
        async def close(self) -> None: ...

    class OwnContext(ChatCompletionContext):
        async def get_messages(self) -> list[LLMMessage]:
            return self._messages

    client = ReplayChatCompletionClient(["Done."])
    given: dict[str, Any] = {"memory": [Own()]} if option == "memory" else {"model_context": OwnContext()}
    errors = []
    for made in (AssistantAgent("coder", client, **given), PausableAgent("coder", client, **given)):
        with pytest.raises((AttributeError, TypeError, NotImplementedError)) as refusal:
            made.dump_component()
        errors.append((refusal.type, str(refusal.value)))
    assert errors[0] == errors[1]


async def test_older_state_is_gone_on_from() -> None:
    memory = Counted()
    with ScriptedModelClient([ASK, "Done."]) as client:
        first = coder(client)
        rest = await send(first, "Build it")
        state = {name: value for name, value in (await first.save_state()).items() if name != "remembered"}
        second = coder(client, memory)
        await second.load_state(state)
        await send(second, answers(rest, "Express"))
    assert memory.asked == 0
