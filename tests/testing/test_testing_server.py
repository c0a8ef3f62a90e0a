"""The loopback server, seen through the client that people use."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from http.client import HTTPConnection
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import openai
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
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from upcall.testing import Call, Calls, CutShort, Fail, Hang, LoopbackServer, Raw, Reply, Request, Say, ScriptError
from upcall.testing.model import MODEL_INFO

Connect = Callable[..., OpenAIChatCompletionClient]

MESSAGES: list[LLMMessage] = [UserMessage(content="Build me a login", source="user")]
CALL = AssistantMessage(content=[FunctionCall(id="call_7", name="add", arguments="{}")], source="coder")
RESULT = FunctionExecutionResultMessage(
    content=[FunctionExecutionResult(call_id="call_7", name="add", content="3", is_error=False)]
)


class Plan(BaseModel):
    steps: list[str]


def add(a: int, b: int) -> int:
    return a + b


ADD = FunctionTool(add, description="Add two numbers")


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[OpenAIChatCompletionClient] = []

    def make(server: LoopbackServer, api_key: str = "k", timeout: float = 10) -> OpenAIChatCompletionClient:
        client = OpenAIChatCompletionClient(
            model="scripted",
            api_key=api_key,
            base_url=server.base_url,
            max_retries=0,
            timeout=timeout,
            model_info=MODEL_INFO,
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


async def streamed(client: OpenAIChatCompletionClient, **options: Any) -> tuple[list[str], CreateResult]:
    items = [item async for item in client.create_stream(MESSAGES, **options)]
    assert isinstance(items[-1], CreateResult)
    return [item for item in items if isinstance(item, str)], items[-1]


async def asked(client: OpenAIChatCompletionClient, stream: bool) -> CreateResult:
    return (await streamed(client))[1] if stream else await client.create(MESSAGES)


def posted(server: LoopbackServer, body: bytes, path: str = "/chat/completions") -> tuple[int, str]:
    try:
        with urlopen(HttpRequest(server.base_url + path, body)) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def chunks(server: LoopbackServer, **options: Any) -> list[dict[str, Any]]:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, **options}
    lines = posted(server, json.dumps(body).encode())[1].split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


async def test_text_arrives_with_its_word_counts(connect: Connect) -> None:
    with LoopbackServer(["Here it is"]) as server:
        result = await connect(server).create(MESSAGES)
    assert (result.content, result.finish_reason) == ("Here it is", "stop")
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (4, 3)


async def test_request_is_kept_as_the_protocol_has_it(connect: Connect) -> None:
    with LoopbackServer(["Done"]) as server:
        await connect(server).create([SystemMessage(content="You code."), *MESSAGES], tools=[ADD])
    assert server.requests[0].system == "You code."
    assert server.requests[0].body["tools"][0]["function"]["name"] == "add"


async def test_tool_call_arrives_and_its_result_is_taken(connect: Connect) -> None:
    with LoopbackServer([Call("add", {"a": 1, "b": 2}, id="call_7"), "It is 3"]) as server:
        client = connect(server)
        first = await client.create(MESSAGES, tools=[ADD])
        last = await client.create([*MESSAGES, CALL, RESULT], tools=[ADD])
    assert first.content == [FunctionCall(id="call_7", name="add", arguments='{"a": 1, "b": 2}')]
    assert (last.content, server.requests[1].tool_results) == ("It is 3", {"call_7": "3"})


async def test_several_calls_arrive_with_the_thought_beside_them(connect: Connect) -> None:
    with LoopbackServer([Calls([Call("add"), Call("add", "{broken")], thought="Let me add")]) as server:
        result = await connect(server).create(MESSAGES, tools=[ADD])
    assert isinstance(result.content, list)
    assert [call.arguments for call in result.content] == ["{}", "{broken"]
    assert (result.thought, result.finish_reason) == ("Let me add", "function_calls")


async def test_tool_call_ids_are_never_used_twice(connect: Connect) -> None:
    with LoopbackServer([Calls([Call("add"), Call("add")]), Call("add")]) as server:
        client = connect(server)
        results = [await client.create(MESSAGES, tools=[ADD]) for _ in range(2)]
    ids = [call.id for result in results for call in result.content if isinstance(call, FunctionCall)]
    assert ids == ["call_1_1", "call_1_2", "call_2_1"]


async def test_streamed_text_arrives_word_by_word(connect: Connect) -> None:
    with LoopbackServer(["Here  it is"]) as server:
        words, result = await streamed(connect(server))
    assert words == ["Here", " ", " it", " is"]
    assert (result.content, result.finish_reason) == ("Here  it is", "stop")


async def test_streamed_tool_calls_are_put_together_by_the_client(connect: Connect) -> None:
    calls = Calls([Call("add", {"a": 1, "b": 2}), Call("add", "")], thought="Let me")
    with LoopbackServer([calls]) as server:
        words, result = await streamed(connect(server), tools=[ADD])
    assert result.content == [
        FunctionCall(id="call_1_1", name="add", arguments='{"a": 1, "b": 2}'),
        FunctionCall(id="call_1_2", name="add", arguments=""),
    ]
    assert (words, result.thought, result.finish_reason) == (["Let", " me"], "Let me", "function_calls")


def test_streamed_tool_call_comes_in_pieces_name_first() -> None:
    with LoopbackServer([Call("add", '{"a": 1}')]) as server:
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks(server)]
    pieces = [delta["tool_calls"][0]["function"] for delta in deltas if "tool_calls" in delta]
    assert pieces == [{"name": "add", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ": 1}"}]


def test_stream_ends_with_its_finish_reason() -> None:
    with LoopbackServer(["Here", Call("add")]) as server:
        last = [chunks(server)[-1]["choices"][0] for _ in range(2)]
    assert [(each["delta"], each["finish_reason"]) for each in last] == [({}, "stop"), ({}, "tool_calls")]


async def test_stream_counts_tokens_only_when_asked_to(connect: Connect) -> None:
    with LoopbackServer(["Here it is", "Here it is"]) as server:
        client = connect(server)
        usages = [(await streamed(client, include_usage=asked))[1].usage for asked in (None, True)]
    assert [(usage.prompt_tokens, usage.completion_tokens) for usage in usages] == [(0, 0), (4, 3)]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # autogen-ext 0.7.5 dumps the parsed value
@pytest.mark.slow
async def test_structured_output_is_accepted(connect: Connect) -> None:
    with LoopbackServer([Say(Plan(steps=["login"]))]) as server:
        result = await connect(server).create(MESSAGES, json_output=Plan)
    assert isinstance(result.content, str)
    assert Plan.model_validate_json(result.content).steps == ["login"]
    assert server.requests[0].body["response_format"]["json_schema"]["name"] == "Plan"


async def test_structured_output_is_streamed(connect: Connect) -> None:
    with LoopbackServer([Say({"steps": ["log in", "log out"]})]) as server:
        words, result = await streamed(connect(server), json_output=Plan)
    assert len(words) > 1
    assert Plan.model_validate_json("".join(words)) == Plan.model_validate_json(str(result.content))


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, None, openai.BadRequestError),
        (401, "invalid_api_key", openai.AuthenticationError),
        (403, None, openai.PermissionDeniedError),
        (404, "model_not_found", openai.NotFoundError),
        (429, "rate_limit_exceeded", openai.RateLimitError),
        (500, "server_error", openai.InternalServerError),
        (503, "server_overloaded", openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_failure_is_the_sdks_error_for_its_status(
    connect: Connect, status: int, code: str | None, error: type[openai.APIStatusError], stream: bool
) -> None:
    with LoopbackServer([Fail(status, "no luck")]) as server, pytest.raises(error, match="no luck") as caught:
        await asked(connect(server), stream)
    assert (caught.value.status_code, caught.value.code) == (status, code)


@pytest.mark.parametrize("stream", [False, True])
async def test_hang_runs_into_the_clients_timeout(connect: Connect, stream: bool) -> None:
    with LoopbackServer([Hang()]) as server, pytest.raises(openai.APITimeoutError):
        await asked(connect(server, timeout=0.1), stream)


async def test_hang_that_is_over_closes_the_connection(connect: Connect) -> None:
    with LoopbackServer([Hang(0.05)]) as server, pytest.raises(openai.APIConnectionError):
        await connect(server).create(MESSAGES)


async def test_hang_does_not_keep_the_server_from_stopping(connect: Connect) -> None:
    with LoopbackServer([Hang()]) as server:
        call = asyncio.ensure_future(connect(server).create(MESSAGES))
        while not server.requests:
            await asyncio.sleep(0.01)
        started = time.monotonic()
        server.stop()
    assert time.monotonic() - started < 1
    with pytest.raises(openai.APIConnectionError):
        await call


@pytest.mark.filterwarnings("ignore:Resolved model mismatch")
@pytest.mark.parametrize(("body", "error"), [("not json", json.JSONDecodeError), ('{"choices": []}', IndexError)])
async def test_raw_body_reaches_the_client_as_it_is(connect: Connect, body: str, error: type[Exception]) -> None:
    with LoopbackServer([Raw(body)]) as server, pytest.raises(error):
        await connect(server).create(MESSAGES)


@pytest.mark.filterwarnings("ignore:No text content or tool calls")
async def test_server_raw_body_looks_like_an_empty_stream(connect: Connect) -> None:
    with LoopbackServer([Raw("not json")]) as server:
        words, result = await streamed(connect(server))
    assert (words, result.content, result.finish_reason) == ([], "", "unknown")


async def test_server_stream_cut_short_lacks_a_finish_reason(connect: Connect) -> None:
    with LoopbackServer([CutShort("Here it")]) as server:
        words, result = await streamed(connect(server))
    assert (words, result.finish_reason) == (["Here", " it"], "unknown")


def test_stream_cut_short_has_no_end() -> None:
    with LoopbackServer([CutShort("Here it")]) as server:
        status, body = posted(server, b'{"messages": [], "stream": true}')
    assert (status, body.count("data: "), body.count('"finish_reason": null')) == (200, 3, 3)


async def test_body_cut_short_is_a_connection_error(connect: Connect) -> None:
    with LoopbackServer([CutShort("Here it")]) as server, pytest.raises(openai.APIConnectionError):
        await connect(server).create(MESSAGES)


@pytest.mark.parametrize(
    ("message", "words"),
    [(CALL, "must be followed by tool messages .* call_7"), (RESULT, "must be a response to a preceeding")],
)
async def test_server_refuses_half_calls_in_openais_words(connect: Connect, message: LLMMessage, words: str) -> None:
    server = LoopbackServer(["never said"]).start()
    with pytest.raises(openai.BadRequestError, match=words):
        await connect(server).create([*MESSAGES, message])
    server.stop()
    with pytest.raises(ScriptError, match="call_7"):
        server.assert_used_up()


async def test_request_that_nobody_scripted_is_refused_and_remembered(connect: Connect) -> None:
    server = LoopbackServer({"You code": ["Done"]}).start()
    with pytest.raises(openai.BadRequestError, match="no replies scripted for"):
        await connect(server).create([SystemMessage(content="You plan"), *MESSAGES])
    server.stop()
    with pytest.raises(ScriptError, match="You plan"):
        server.assert_used_up()


async def test_responder_that_fails_is_refused_and_remembered(connect: Connect) -> None:
    def reply_to(request: Request) -> Reply:
        return {"greeting": "Hello"}[request.system]

    server = LoopbackServer(reply_to).start()
    with pytest.raises(openai.BadRequestError, match="KeyError"):
        await connect(server).create(MESSAGES)
    server.stop()
    assert server.errors == ["the script failed: KeyError('')"]


def test_leftover_replies_are_an_error_at_the_end() -> None:
    with pytest.raises(ScriptError, match=r"left over: \{'the model': 1\}"), LoopbackServer(["Hello"]):
        pass


def test_server_leftovers_do_not_hide_a_tests_error() -> None:
    with pytest.raises(ZeroDivisionError), LoopbackServer(["Hello"]):
        _ = 1 / 0


async def test_each_agent_gets_its_own_replies(connect: Connect) -> None:
    with LoopbackServer({"You plan": ["A plan"], "You code": ["Code"]}) as server:
        client = connect(server)
        texts = [
            (await client.create([SystemMessage(content=f"You {verb}."), *MESSAGES])).content
            for verb in ("code", "plan")
        ]
    assert texts == ["Code", "A plan"]


@pytest.mark.slow
async def test_server_answers_parallel_requests_with_different_replies(connect: Connect) -> None:
    replies = [f"Reply {number}" for number in range(20)]
    started = time.monotonic()
    with LoopbackServer(replies, delay=0.3) as server:
        client = connect(server)
        results = await asyncio.gather(*(client.create(MESSAGES) for _ in replies))
    assert sorted(str(result.content) for result in results) == sorted(replies)
    assert time.monotonic() - started < 20 * 0.3


async def test_one_connection_serves_call_after_call(connect: Connect) -> None:
    with LoopbackServer(["One", Fail(500), "Three four", Call("add")]) as server:
        client = connect(server)
        await client.create(MESSAGES)
        with pytest.raises(openai.InternalServerError):
            await client.create(MESSAGES)
        await streamed(client)
        await client.create(MESSAGES)
    assert (server.calls, server.connections) == (4, 1)


def test_refused_request_leaves_its_connection_in_step() -> None:
    with LoopbackServer(["Hello"]) as server:
        connection = HTTPConnection("127.0.0.1", urlsplit(server.base_url).port)
        statuses = []
        for path in ("/v1/nowhere", "/v1/chat/completions"):
            connection.request("POST", path, body='{"messages": []}')
            with connection.getresponse() as response:
                statuses.append((response.status, response.read()[:1]))
        connection.close()
    assert (statuses, server.connections) == ([(404, b"{"), (200, b"{")], 1)


async def test_another_key_is_refused_before_the_script_is_asked(connect: Connect) -> None:
    with LoopbackServer(["Hello"], api_key="right") as server:
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
            await connect(server, api_key="wrong").create(MESSAGES)
        await connect(server, api_key="right").create(MESSAGES)
    assert server.authorizations == ["Bearer wrong", "Bearer right"]
    assert (server.calls, len(server.requests)) == (2, 1)


async def test_server_that_was_stopped_can_be_started_again(connect: Connect) -> None:
    with LoopbackServer(["One", "Two"]) as server:
        client = connect(server)
        await client.create(MESSAGES)
        server.stop()
        with pytest.raises(openai.APIConnectionError):
            await client.create(MESSAGES)
        server.start()
        assert (await client.create(MESSAGES)).content == "Two"


@pytest.mark.slow
async def test_client_that_leaves_is_no_noise(connect: Connect, capfd: pytest.CaptureFixture[str]) -> None:
    with LoopbackServer(["Hello"], delay=0.2) as server:
        with pytest.raises(openai.APITimeoutError):
            await connect(server, timeout=0.05).create(MESSAGES)
        await asyncio.sleep(0.3)
    assert capfd.readouterr().err == ""


async def test_one_model_is_listed() -> None:
    with LoopbackServer([]) as server:
        async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as client:
            models = [model.id async for model in client.models.list()]
    assert models == ["scripted"]


def test_unknown_address_is_not_found() -> None:
    with LoopbackServer([]) as server:
        status, body = posted(server, b"{}", "/responses")
    assert (status, json.loads(body)["error"]["code"]) == (404, "unknown_url")


def test_body_that_is_no_json_is_refused() -> None:
    with LoopbackServer([]) as server:
        status, body = posted(server, b"{broken")
    assert (status, json.loads(body)["error"]["type"]) == (400, "invalid_request_error")


def test_without_a_start_there_is_no_address() -> None:
    with pytest.raises(RuntimeError, match=r"call start\(\)"):
        _ = LoopbackServer([]).base_url


async def test_log_probabilities_are_sent_where_they_are_asked_for(connect: Connect) -> None:
    with LoopbackServer([Say("yes", logprobs={"no": -2.5, "yes": -0.1})] * 2) as server:
        client = connect(server)
        plain = await client.create(MESSAGES)
        asked = await client.create(MESSAGES, extra_create_args={"logprobs": True, "top_logprobs": 2})
    assert plain.logprobs is None
    assert asked.logprobs is not None
    first = asked.logprobs[0]
    assert (first.token, first.logprob, [each.logprob for each in first.top_logprobs or ()]) == (
        "yes",
        -0.1,
        [-0.1, -2.5],
    )


def test_owner_of_the_model_can_be_chosen() -> None:
    with LoopbackServer([], owned_by="vllm") as server, urlopen(f"{server.base_url}/models") as response:
        assert json.load(response)["data"][0]["owned_by"] == "vllm"
