"""The scripted model client."""

from __future__ import annotations

from contextlib import suppress

import pytest
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel

from upcall.testing import Call, Calls, CutShort, Fail, Hang, Raw, Reply, Request, Say, ScriptedModelClient, ScriptError
from upcall.testing.model import ScriptedFailure

MESSAGES: list[LLMMessage] = [UserMessage(content="Build me a login", source="user")]
CALL = AssistantMessage(content=[FunctionCall(id="call_7", name="add", arguments="{}")], source="coder")
RESULT = FunctionExecutionResultMessage(
    content=[FunctionExecutionResult(call_id="call_7", name="add", content="3", is_error=False)]
)


class Plan(BaseModel):
    steps: list[str]


async def test_replies_come_in_order() -> None:
    with ScriptedModelClient(["One", Say(Plan(steps=["two"])), Say({"three": 3})]) as client:
        texts = [(await client.create(MESSAGES)).content for _ in range(3)]
    assert texts == ["One", '{"steps":["two"]}', '{"three": 3}']


async def test_each_agent_gets_its_own_replies() -> None:
    with ScriptedModelClient({"You plan": ["A plan"], "You code": ["Code"]}) as client:
        texts = [(await client.create([SystemMessage(content=f"You {verb}.")])).content for verb in ("code", "plan")]
    assert texts == ["Code", "A plan"]


async def test_function_may_say_what_the_model_says() -> None:
    def reply_to(request: Request) -> Reply:
        return str(request.messages[-1]["content"]).upper()

    with ScriptedModelClient(reply_to) as client:
        assert (await client.create(MESSAGES)).content == "BUILD ME A LOGIN"


async def test_scripted_calls_have_thoughts_and_ids_of_their_own() -> None:
    replies: list[Reply] = [
        Calls([Call("add", {"a": 1}), Call("add", "{broken", id="mine")], thought="Hm"),
        Call("add"),
    ]
    with ScriptedModelClient(replies) as client:
        first, second = [await client.create(MESSAGES) for _ in range(2)]
    assert first.content == [
        FunctionCall(id="call_1_1", name="add", arguments='{"a": 1}'),
        FunctionCall(id="mine", name="add", arguments="{broken"),
    ]
    assert (first.thought, first.finish_reason) == ("Hm", "function_calls")
    assert second.content == [FunctionCall(id="call_2_1", name="add", arguments="{}")]


async def test_tool_results_are_seen_by_call_id() -> None:
    with ScriptedModelClient(["It is 3"]) as client:
        await client.create([*MESSAGES, CALL, RESULT])
    assert client.requests[0].tool_results == {"call_7": "3"}


@pytest.mark.parametrize("message", [CALL, RESULT])
async def test_half_of_a_tool_call_is_refused(message: LLMMessage) -> None:
    with pytest.raises(ScriptError, match="call_7"):
        await ScriptedModelClient(["never said"]).create([*MESSAGES, message])


async def test_request_too_many_is_refused() -> None:
    client = ScriptedModelClient(["One"])
    await client.create(MESSAGES)
    with pytest.raises(ScriptError, match="no reply left for 'the model' at request 2"):
        await client.create(MESSAGES)


async def test_script_of_another_process_begins_where_the_conversation_stands() -> None:
    """Issue 35: the list of the README's sample started over there, so that the run failed."""
    add = Call("add", {"a": 1})
    before = [*MESSAGES, AssistantMessage(content="Let me see.", source="solo"), *MESSAGES]
    with ScriptedModelClient(["Let me see.", Fail(500), add, "It is 3"]) as client:
        (made,) = [FunctionCall(id="call_7", name="add", arguments=add.text)]
        asked = AssistantMessage(content=[made], source="solo")
        assert (await client.create([*before, asked, RESULT])).content == "It is 3"


async def test_script_begins_at_its_first_reply_among_others() -> None:
    with ScriptedModelClient(["One", "Two"]) as client:
        others = [AssistantMessage(content="Zero", source="solo"), AssistantMessage(content="One", source="solo")]
        assert [(await client.create([*MESSAGES, *others])).content for _ in range(2)] == ["One", "Two"]


async def test_scripted_model_refuses_an_unscripted_agent() -> None:
    with pytest.raises(ScriptError, match="no replies scripted for: 'You plan"):
        await ScriptedModelClient({"You code": ["Code"]}).create([SystemMessage(content="You plan")])


def test_leftover_replies_are_an_error_at_the_end() -> None:
    client = ScriptedModelClient({"You code": ["One", "Two"], "You plan": []})
    with pytest.raises(ScriptError, match=r"left over: \{'You code': 2\}"), client:
        pass


async def test_scripted_refusal_that_was_survived_raises_at_the_end() -> None:
    client = ScriptedModelClient([])
    with suppress(ScriptError):  # As a run does, which is failed then.
        await client.create(MESSAGES)
    with pytest.raises(ScriptError, match="no reply left for 'the model' at request 1"), client:
        pass


def test_scripted_leftovers_do_not_hide_a_tests_error() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedModelClient(["One"]):
        _ = 1 / 0


async def test_text_is_streamed_word_by_word_and_then_whole() -> None:
    with ScriptedModelClient(["Here  it is"]) as client:
        *words, result = [item async for item in client.create_stream(MESSAGES)]
    assert words == ["Here", " ", " it", " is"]
    assert isinstance(result, CreateResult)
    assert result.content == "Here  it is"


async def test_calls_are_not_streamed() -> None:
    with ScriptedModelClient([Call("add")]) as client:
        items = [item async for item in client.create_stream(MESSAGES)]
    assert [type(item) for item in items] == [CreateResult]


async def test_usage_adds_up_words() -> None:
    with ScriptedModelClient(["One two", "Three"]) as client:
        await client.create(MESSAGES)
        await client.create(MESSAGES)
    assert client.total_usage().prompt_tokens == 8
    assert client.total_usage().completion_tokens == 3


async def test_failure_has_its_status() -> None:
    with (
        ScriptedModelClient([Fail(429, "slow down")]) as client,
        pytest.raises(ScriptedFailure, match="slow down") as caught,
    ):
        await client.create(MESSAGES)
    assert caught.value.status_code == 429


async def test_hang_ends_in_a_timeout() -> None:
    with ScriptedModelClient([Hang(0.01)]) as client, pytest.raises(TimeoutError):
        await client.create(MESSAGES)


async def test_reply_cut_short_has_no_finish_reason() -> None:
    with ScriptedModelClient([CutShort("Here it")]) as client:
        result = await client.create(MESSAGES)
    assert (result.content, result.finish_reason) == ("Here it", "unknown")


async def test_raw_body_needs_a_server() -> None:
    with pytest.raises(ValueError, match="only a server can send"):
        await ScriptedModelClient([Raw("not json")]).create(MESSAGES)


async def test_what_is_no_reply_is_refused_by_its_name() -> None:
    client = ScriptedModelClient([RuntimeError("out of order")])  # type: ignore[list-item]
    with pytest.raises(ScriptError, match=r"RuntimeError.*is not a reply"):
        await client.create(MESSAGES)
