"""A client that sends messages and tools as they are: the server sees what a plain client sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import (
    AzureOpenAIChatCompletionClient,
    BaseOpenAIChatCompletionClient,
    OpenAIChatCompletionClient,
)
from PIL import Image as Picture
from pydantic import BaseModel
from support.web_servers import Request, Sent, Server, serving

from upcall.autogen.internals import sdk_client_of
from upcall.autogen.openai_requests import send_as_is

INFO = ModelInfo(
    vision=True, function_calling=True, json_output=True, family=ModelFamily.UNKNOWN, structured_output=True
)


class City(BaseModel):
    name: str


def look_up(city: str) -> str:
    """Look a city up."""
    return city


TOOL = FunctionTool(look_up, "Look a city up.", strict=True)
CALL = FunctionCall(id="call_1", name="look_up", arguments='{"city": "Oslo"}')
THREAD: list[LLMMessage] = [
    SystemMessage(content="Be brief."),
    UserMessage(content="Where is Zürich? \N{PARTY POPPER}", source="user"),
    AssistantMessage(content=[CALL], thought="I look.", source="helper"),
    FunctionExecutionResultMessage(
        content=[FunctionExecutionResult(content="Oslo", call_id="call_1", name="look_up", is_error=False)]
    ),
    UserMessage(content=["And this?", Image.from_pil(Picture.new("RGB", (2, 2)))], source="user"),
]
SAID: dict[str, Any] = {"role": "assistant", "content": '{"name": "Oslo"}'}
CALLED = SAID | {
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Oslo"}'}}],
}


def reply_to(request: Request) -> Sent:
    body = json.loads(request.body)
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    if body.get("stream"):
        chunks = [
            {"delta": SAID | {"content": '{"name": '}},
            {"delta": {"content": '"Oslo"}'}, "finish_reason": "stop"},
        ]
        lines = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, **each}]} for each in chunks]
        return Sent(
            "".join(f"data: {json.dumps(each)}\n\n" for each in lines) + "data: [DONE]\n\n", "text/event-stream"
        )
    message, reason = (CALLED, "tool_calls") if "tools" in body else (SAID, "stop")
    choices = [{"index": 0, "finish_reason": reason, "message": message}]
    return Sent(json.dumps({**head, "choices": choices}), "application/json")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(reply_to) as running:
        yield running


def openai(url: str, **options: Any) -> BaseOpenAIChatCompletionClient:
    return OpenAIChatCompletionClient(model="m", base_url=f"{url}/v1", api_key="k", model_info=INFO, **options)


def azure(url: str, **options: Any) -> BaseOpenAIChatCompletionClient:
    return AzureOpenAIChatCompletionClient(
        model="m", azure_endpoint=url, azure_deployment="d", api_version="1", api_key="k", model_info=INFO, **options
    )


async def collect(stream: AsyncIterator[str | CreateResult]) -> list[str | CreateResult]:
    return [each async for each in stream]


CASES: dict[str, Callable[[BaseOpenAIChatCompletionClient], Any]] = {
    "text": lambda client: client.create(THREAD),
    "tools": lambda client: client.create(THREAD, tools=[TOOL], tool_choice=TOOL),
    "structured": lambda client: client.create(THREAD, json_output=City),
    "structured with tools": lambda client: client.create(THREAD, tools=[TOOL], json_output=City),
    "json": lambda client: client.create(THREAD, json_output=True),
    "stream": lambda client: collect(client.create_stream(THREAD, tools=[TOOL])),
    "structured stream": lambda client: collect(client.create_stream(THREAD, json_output=City)),
    "extra body": lambda client: client.create(THREAD, extra_create_args={"extra_body": {"top_k": 3}, "seed": 1}),
}


@pytest.mark.parametrize("make", [openai, azure])
@pytest.mark.parametrize("call", CASES.values(), ids=CASES.keys())
async def test_request_and_reply_are_those_of_a_plain_client(
    make: Callable[..., BaseOpenAIChatCompletionClient],
    call: Callable[[BaseOpenAIChatCompletionClient], Any],
    server: Server,
) -> None:
    plain, quick = [make(server.url, parallel_tool_calls=False) for _ in range(2)]
    replies = [await call(plain), await call(send_as_is(quick))]
    assert replies[0] == replies[1]
    first, second = server.requests
    assert json.loads(first.body) == json.loads(second.body)
    assert (first.path, first.query) == (second.path, second.query)


async def test_messages_are_not_walked_before_they_are_sent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Any] = []

    async def note(data: Any, expected_type: object) -> Any:
        walked.extend(data["messages"])
        return data

    monkeypatch.setattr("openai.resources.chat.completions.completions.async_maybe_transform", note)
    await send_as_is(openai(server.url)).create(THREAD, tools=[TOOL])
    assert walked == []


HEAD: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
CHOICE: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": SAID}
REPLIES: dict[str, Any] = {
    "complete": {**HEAD, "choices": [CHOICE], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
    "of a reasoning model": {
        **HEAD,
        "choices": [{**CHOICE, "message": {**SAID, "reasoning_content": "Oslo, I think."}, "native_reason": "eos"}],
        "provider": {"name": "p"},
    },
    "an unknown reason to finish": {**HEAD, "choices": [{**CHOICE, "finish_reason": "eos"}]},
    "no id, no model": {"choices": [CHOICE]},
    "a call without a type": {
        **HEAD,
        "choices": [
            {"message": {**CALLED, "tool_calls": [{k: v for k, v in CALLED["tool_calls"][0].items() if k != "type"}]}}
        ],
    },
    "arguments as an object": {
        **HEAD,
        "choices": [
            {
                **CHOICE,
                "message": {**CALLED, "tool_calls": [{"id": "c", "function": {"name": "n", "arguments": {"a": 1}}}]},
            }
        ],
    },
    "no choices": {**HEAD, "choices": None, "error": {"message": "busy"}},
    "a list": [1, 2],
    "a text": "busy",
}


@pytest.mark.parametrize("said", REPLIES.values(), ids=REPLIES.keys())
async def test_a_reply_is_read_as_by_a_plain_client(said: Any) -> None:
    """Also one with missing, unknown or wrong fields, as some servers send."""
    with serving(lambda _: Sent(json.dumps(said), "application/json")) as server:
        plain, quick = openai(server.url), send_as_is(openai(server.url))
        read = [await sdk_client_of(each).chat.completions.create(model="m", messages=[]) for each in (plain, quick)]
    assert type(read[0]) is type(read[1])
    assert read[0] == read[1]
    assert not isinstance(said, dict) or read[0].to_dict() == read[1].to_dict()
