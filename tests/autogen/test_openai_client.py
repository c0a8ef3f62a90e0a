"""Our client for OpenAI's protocol, and stock clients that it takes over, on a zoo of servers."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool, ToolSchema
from autogen_ext.models.openai import AzureOpenAIChatCompletionClient, OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from PIL import Image as Picture
from pydantic import BaseModel
from support.web_servers import Request, Sent, serving

from upcall import OpenAICompatibleClient, PausableAgent, RunStatus, Settings, Upcall
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.openai_client.takeover import calling_client
from upcall.errors import ModelError, ModelReplyInvalid
from upcall.testing.model import MODEL_INFO
from upcall.testing.zoo import DONE, ORDERS, THOUGHT, ZOO, Behaviour, ZooServer, call, chunk, completion

INFO: ModelInfo = {**MODEL_INFO, "vision": True}


class City(BaseModel):
    name: str


class Place(BaseModel):
    city: City


def order(item: str, place: Place | None = None) -> str:
    """Order something."""
    return f"ordered {item}"


def look() -> str:
    """Look."""
    return "tea"


ORDER = FunctionTool(order, "Order something.", strict=False)
LOOK = FunctionTool(look, "Look.", strict=False)
MESSAGES: list[LLMMessage] = [
    SystemMessage(content="Be brief."),
    UserMessage(content="I am here.", source="user"),
    UserMessage(content="Order tea.", source="boss"),
    AssistantMessage(content=[FunctionCall("call_9", '{"item": "tea"}', "order")], source="helper"),
    FunctionExecutionResultMessage(
        content=[FunctionExecutionResult(content="ordered", call_id="call_9", name="order", is_error=False)]
    ),
    SystemMessage(content="Be kind."),
    UserMessage(content=["And this?", Image.from_pil(Picture.new("RGB", (2, 2)))], source="user"),
]
ASKED = MESSAGES[:3]


def ours(url: str, **options: Any) -> ChatCompletionClient:
    return OpenAICompatibleClient("m", base_url=url, max_retries=0, timeout=10, **options)


def stock(url: str, **options: Any) -> ChatCompletionClient:
    return OpenAIChatCompletionClient(
        model="m", base_url=url, api_key="k", max_retries=0, timeout=10, model_info=INFO, **options
    )


def azure(url: str, **options: Any) -> ChatCompletionClient:
    return AzureOpenAIChatCompletionClient(
        model="m",
        azure_endpoint=url.removesuffix("/v1"),
        azure_deployment="d",
        api_version="1",
        api_key="k",
        max_retries=0,
        model_info=INFO,
        **options,
    )


Make = Callable[..., ChatCompletionClient]


async def ask(
    client: ChatCompletionClient, messages: Sequence[LLMMessage] = ASKED, *, stream: bool = False
) -> tuple[CreateResult, str]:
    """Return the reply to a call as an agent makes it, and the text that was shown before."""
    shown: list[str] = []
    reply: CreateResult | None = None
    stream_of = call_model(
        client,
        messages,
        agent="a",
        tools=[ORDER.schema, LOOK.schema],
        stream=stream,
        cancellation_token=CancellationToken(),
    )
    async for item in stream_of:
        if isinstance(item, CreateResult):
            reply = item
        else:
            shown.append(item)
    assert reply is not None
    return reply, "".join(shown)


JUDGED_BY_AGENTS = {"the answer in the reasoning alone", "a call cut off under the finish reason tool_calls"}
"""The client returns these replies as they are; the agent that gets one judges it (test_zoo_matrix.py)."""


def played(*, refusing: bool, replying: bool) -> list[Behaviour]:
    kinds = [(each, each.refuse is not None, each.refuse is None or each.body is not None) for each in ZOO.values()]
    return [each for each, *kind in kinds if kind == [refusing, replying] and each.name not in JUDGED_BY_AGENTS]


@pytest.mark.parametrize("make", [ours, stock])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("behaviour", played(refusing=False, replying=True), ids=lambda each: each.name)
@pytest.mark.slow
async def test_zoo_replies_are_read_right(behaviour: Behaviour, stream: bool, make: Make) -> None:
    with ZooServer(behaviour) as server:
        client = make(server.base_url)
        if behaviour.right == "error":
            with pytest.raises(ModelError, match=r"\AAgent 'a': the model server at 127\.0\.0\.1:\d+ [^\n]*\Z"):
                await ask(client, stream=stream)
            return
        reply, shown = await ask(client, stream=stream)
    if behaviour.calls:
        assert not isinstance(reply.content, str)
        assert [json.loads(each.arguments) for each in reply.content] == [*ORDERS][: behaviour.calls]
        assert {each.name for each in reply.content} == {"order"}
        assert len({each.id for each in reply.content} - {""}) == behaviour.calls
    else:
        assert reply.content == DONE
        assert shown == (DONE if stream and reply.content and "refusal" not in behaviour.name else "")
    assert (reply.finish_reason in ("length", "content_filter")) is (behaviour.right == "cut")
    assert behaviour.right != "thought" or reply.thought == THOUGHT


@pytest.mark.parametrize("make", [ours, stock])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("behaviour", played(refusing=True, replying=False), ids=lambda each: each.name)
@pytest.mark.slow
async def test_zoo_rules_are_learned_once_from_a_refusal(
    behaviour: Behaviour, stream: bool, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"temperature": 0.5, "parallel_tool_calls": False}
    options["max_completion_tokens" if "max_completion" in behaviour.name else "max_tokens"] = 9
    if behaviour.name == "no response_format":
        options["response_format"] = {"type": "json_object"}
    with ZooServer(behaviour) as server:
        client = make(server.base_url, **options)
        reply, _ = await ask(client, MESSAGES, stream=stream)
        refused = server.refused
        await ask(client, MESSAGES, stream=stream)
    assert reply.content == DONE
    assert server.refused == refused <= 3
    assert len([each for each in caplog.messages if "does not take" in each]) == (refused > 0)


@pytest.mark.parametrize("make", [ours, stock])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("behaviour", played(refusing=True, replying=True), ids=lambda each: each.name)
@pytest.mark.slow
async def test_zoo_items_of_a_reply_return_in_accepted_form(behaviour: Behaviour, stream: bool, make: Make) -> None:
    with ZooServer(behaviour) as server:
        client = make(server.base_url)
        messages = [*ASKED, *await order_once(client, ASKED, stream=stream)]
        reply, _ = await ask(client, messages, stream=stream)
        refused = server.refused
        await ask(client, messages, stream=stream)
    assert reply.content == DONE
    assert server.refused == refused <= 4


@pytest.mark.parametrize("stream", [False, True])
async def test_reply_that_its_server_cannot_read_is_requested_again(stream: bool) -> None:
    refusals = iter(["Failed to call a function. See 'failed_generation'.", "error parsing tool call: raw='{'"])
    with ZooServer(Behaviour("tool_use_failed", "Groq", refuse=lambda _: next(refusals, None))) as server:
        reply, _ = await ask(ours(server.base_url), stream=stream)
    assert (reply.content, server.refused) == (DONE, 2)


async def test_schema_of_a_tool_is_simplified_where_refused() -> None:
    refused = "Unknown name 'type': Proto field is not repeating, cannot start list."
    several = {"type": ["string", "null"], "x-note": 1}
    parameters: Any = {"type": "object", "properties": {"item": several, "place": {"anyOf": [{}, {"type": "null"}]}}}
    with ZooServer(
        Behaviour("one type", "Gemini", refuse=lambda body: refused if "x-note" in json.dumps(body) else None)
    ) as server:
        await ours(server.base_url).create(ASKED, tools=[ToolSchema(name="order", parameters=parameters)])
    sent = server.bodies[-1]["tools"][0]["function"]["parameters"]["properties"]
    assert sent == {"item": {"type": "string"}, "place": {"type": "string"}}


async def order_once(
    client: ChatCompletionClient, messages: Sequence[LLMMessage], *, stream: bool = False
) -> list[LLMMessage]:
    """Return a reply with calls, and their results."""
    reply, _ = await ask(client, messages, stream=stream)
    assert isinstance(reply.content, list)
    results = [
        FunctionExecutionResult(content="ordered", call_id=each.id, name=each.name, is_error=False)
        for each in reply.content
    ]
    return [AssistantMessage(content=reply.content, source="a"), FunctionExecutionResultMessage(content=results)]


@pytest.mark.parametrize("words", ["prompt is too long: 210000 tokens", "This model's maximum context length is 9"])
async def test_overflow_is_not_tried_again_and_names_a_remedy(words: str) -> None:
    with ZooServer(Behaviour("full", "x", refuse=lambda body: words)) as server:
        with pytest.raises(ModelError, match=rf"{words}. Give the agent a model_context"):
            await ask(ours(server.base_url))
        assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "words",
    [
        "'max_tokens' is too large: 8191. This model's maximum context length is 8192 tokens and your request has 30",
        "maximum context length is 8192 tokens. However, you requested 8221 (30 of text input, 8191 in the output)",
        "maximum context length is 8192 tokens. However, you requested 8191 output tokens and your prompt has 30",
        "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 30 `inputs` tokens and 8191 `max_new_tokens`",
    ],
)
async def test_limit_of_the_reply_gives_way_to_the_conversation(words: str) -> None:
    with ZooServer(Behaviour("full", "x", refuse=lambda body: words if "max_tokens" in body else None)) as server:
        client = ours(server.base_url, max_tokens=8191)
        for _ in range(2):  # Another conversation may leave room for it, so it is not left out from then on.
            assert (await ask(client))[0].content
    assert [body.get("max_tokens") for body in server.bodies] == [8191, None, 8191, None]


async def test_placeholder_of_a_parameterless_tool_leaves_its_calls() -> None:
    made = {"name": "look", "arguments": '{"no_argument_needed": ""}'}
    with ZooServer(Behaviour("x", "x", body=completion({"tool_calls": [call(0, function=made)]}))) as server:
        reply, _ = await ask(ours(server.base_url))
    assert isinstance(reply.content, list)
    assert [each.arguments for each in reply.content] == ["{}"]


async def test_null_arguments_of_a_call_are_none() -> None:
    made = {"name": "look", "arguments": None}
    with ZooServer(Behaviour("x", "x", body=completion({"tool_calls": [call(0, function=made)]}))) as server:
        reply = await ours(server.base_url).create(ASKED, tools=[LOOK])
    assert isinstance(reply.content, list)
    assert [each.arguments for each in reply.content] == [""]


async def test_call_continues_though_each_piece_names_its_tool() -> None:
    begun = {"index": 0, "id": "call_0", "function": {"name": "order", "arguments": '{"item": '}}
    rest = {"index": 0, "function": {"name": "order", "arguments": '"tea"}'}}
    chunks = [*(chunk({"tool_calls": [each]}) for each in (begun, rest)), chunk({}, "tool_calls")]
    with ZooServer(Behaviour("x", "x", chunks=chunks)) as server:
        reply, _ = await ask(ours(server.base_url), stream=True)
    assert isinstance(reply.content, list)
    assert [json.loads(each.arguments) for each in reply.content] == [ORDERS[0]]


# -- what is sent -----------------------------------------------------------------------------------------------------


def echo(request: Request) -> Sent:
    return Sent(json.dumps(completion({"content": '{"name": "Oslo"}'})), "application/json")


CASES: dict[str, Callable[[ChatCompletionClient], Any]] = {
    "text": lambda client: client.create(MESSAGES),
    "tools": lambda client: client.create(MESSAGES, tools=[ORDER], tool_choice=ORDER),
    "json": lambda client: client.create(MESSAGES, json_output=True),
    "extra body": lambda client: client.create(MESSAGES, extra_create_args={"extra_body": {"top_k": 3}, "seed": 1}),
}


@pytest.mark.parametrize("make", [stock, azure])
@pytest.mark.parametrize(
    "send",
    [
        *(pytest.param(send, id=name) for name, send in CASES.items()),
        # The package loads half of itself for it.
        pytest.param(lambda client: client.create(MESSAGES, json_output=City), id="structured", marks=pytest.mark.slow),
    ],
)
async def test_takeover_sends_what_the_stock_client_sends(make: Make, send: Callable[..., Any]) -> None:
    with serving(echo) as server:
        client = make(f"{server.url}/v1", parallel_tool_calls=False, seed=7)
        replies = [await send(client), await send(calling_client(client))]
    first, second = server.requests
    sent, own = json.loads(first.body), json.loads(second.body)
    sent.pop("stream", None)
    assert own == sent
    assert (first.path, first.query) == (second.path, second.query)
    assert [each.content for each in replies] == [replies[0].content] * 2


async def test_takeover_counts_tokens_in_the_users_client() -> None:
    with ZooServer(ZOO["content in parts"]) as server:
        client = stock(server.base_url)
        await ask(client)
    assert (client.total_usage().prompt_tokens, client.actual_usage().completion_tokens) == (1, 1)


class Own(OpenAIChatCompletionClient):
    async def create(self, *args: Any, **options: Any) -> CreateResult:
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason="stop", content="Mine.", usage=usage, cached=False)


async def test_takeover_leaves_subclasses_patched_and_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own(model="m", api_key="k", base_url="http://127.0.0.1:9/v1", model_info=INFO)
    assert (await ask(own))[0].content == "Mine."
    replay = ReplayChatCompletionClient([DONE])
    assert calling_client(replay) is replay
    patched = stock("http://127.0.0.1:9/v1")
    monkeypatch.setattr(patched, "create", own.create)
    assert (await ask(patched))[0].content == "Mine."


# -- what a server wants back -----------------------------------------------------------------------------------------


def wants_back(body: dict[str, Any]) -> str | None:
    for message in body["messages"]:
        for made in message.get("tool_calls") or ():
            if made.get("extra_content") != {"google": {"thought_signature": "sig"}}:
                return "Function call is missing a thought_signature"
        if message.get("tool_calls") and message.get("reasoning_content") != THOUGHT:
            return "The reasoning_content must be passed back."
    return None


def asking() -> Behaviour:
    asked = {"function": {"name": "ask_user", "arguments": '{"question": "Which?"}'}}
    made = call(0, extra_content={"google": {"thought_signature": "sig"}}, **asked)
    return Behaviour("wants back", "x", body=completion({"tool_calls": [made], "reasoning_content": THOUGHT}))


class WantsBack(ZooServer):
    def answer(self, body: dict[str, Any]) -> tuple[int, str, str]:
        if words := wants_back(body):
            self.refused += 1
            self.bodies.append(body)
            return 400, "application/json", json.dumps({"error": {"message": words}})
        return super().answer(body)


def team(url: str, make: Make, stream: bool) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([PausableAgent("solo", make(url), stream=stream)], max_turns=1)


@pytest.mark.parametrize("make", [ours, stock])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_returned_fields_survive_a_pause_and_a_new_process(make: Make, stream: bool) -> None:
    with WantsBack(asking()) as server:

        def app() -> Upcall:  # Nothing of the client is left but the stored run.
            return Upcall(store="runs.db", team=lambda: team(server.base_url, make, stream), settings=Settings.read())

        run = await app().start("Go")
        run = await app().answer(run.id, "left")
    assert (run.status, run.result, server.refused) == (RunStatus.COMPLETED, DONE, 0)
    assert THOUGHT not in json.dumps(run.as_json())


async def test_returned_fields_go_to_no_other_server() -> None:
    with WantsBack(asking()) as first, ZooServer(ZOO["content in parts"]) as second:
        urls = [first.base_url, second.base_url]
        app = Upcall(store="runs.db", team=lambda: team(urls[0], ours, False), settings=Settings.read())
        run = await app.start("Go")
        urls.pop(0)
        run = await app.answer(run.id, "left")
    assert run.status is RunStatus.COMPLETED
    assert "sig" not in json.dumps(second.bodies)
    assert THOUGHT not in json.dumps(second.bodies)


async def test_returned_fields_reach_the_server_from_a_stock_agent() -> None:
    ordered = call(0, extra_content={"google": {"thought_signature": "sig"}})
    wanting = Behaviour("x", "x", body=completion({"tool_calls": [ordered], "reasoning_content": THOUGHT}))
    with WantsBack(wanting) as server:
        agent = AssistantAgent("solo", stock(server.base_url), tools=[ORDER], reflect_on_tool_use=True)
        app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([agent], max_turns=1), settings=Settings.read())
        run = await app.start("Go")
    assert (run.status, run.result, server.refused) == (RunStatus.COMPLETED, DONE, 0)


@pytest.mark.parametrize("takes_over", [True, False])
async def test_setting_leaves_stock_clients_their_calls(takes_over: bool) -> None:
    """Also if another run of the program took the client over before."""
    with ZooServer(ZOO["no name in messages"]) as server:
        client = stock(server.base_url)
        await ask(client)

        def make_team() -> RoundRobinGroupChat:
            return RoundRobinGroupChat([PausableAgent("solo", client)], max_turns=1)

        settings = Settings.read(models={"take_over_clients": takes_over})
        run = await Upcall(store="runs.db", team=make_team, settings=settings).start("Go")
    assert run.status is (RunStatus.COMPLETED if takes_over else RunStatus.FAILED)


# -- the connection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_to_another_host_gets_neither_conversation_nor_key(status: int) -> None:
    with serving(echo) as other:
        away = Sent("", status=status, headers={"location": f"{other.url.replace('127.0.0.1', 'localhost')}/v1/x"})
        with serving(lambda _: away) as server:
            with pytest.raises(ModelError, match="sends requests on to localhost, which gets neither"):
                await ask(ours(f"{server.url}/v1", api_key="sk-secret"))
            assert not other.requests


async def test_redirect_on_the_same_server_is_followed() -> None:
    def move(request: Request) -> Sent:
        if request.path == "/v1/chat/completions":
            return Sent("", status=307, headers={"location": "/moved"})
        return echo(request)

    with serving(move) as server:
        reply, _ = await ask(ours(f"{server.url}/v1"))
    assert json.loads(str(reply.content)) == {"name": "Oslo"}


@pytest.mark.parametrize("status", [200, 400])
async def test_reply_that_unpacks_to_too_much_is_one_line(status: int) -> None:
    bomb = gzip.compress(b" " * 40_000_000, compresslevel=1)
    packed = Sent(bomb, "application/json", status=status, headers={"content-encoding": "gzip"})
    with serving(lambda _: packed) as server, pytest.raises(ModelReplyInvalid, match="larger than 32 MB"):
        await ask(ours(f"{server.url}/v1"))


@pytest.mark.parametrize(
    "event", [b"data: " + b"x" * 40_000_000, (b"data: " + b"x" * 9_993 + b"\n") * 4_000], ids=["line", "lines"]
)
async def test_event_that_unpacks_to_too_much_is_one_line(event: bytes) -> None:
    packed = Sent(gzip.compress(event, compresslevel=1), "text/event-stream", headers={"content-encoding": "gzip"})
    with serving(lambda _: packed) as server, pytest.raises(ModelReplyInvalid, match=r"one event .* larger than 32 MB"):
        await ask(ours(f"{server.url}/v1"))


async def test_packed_reply_is_unpacked() -> None:
    packed = gzip.compress(json.dumps(completion({"content": DONE})).encode())
    with serving(lambda _: Sent(packed, "application/json", headers={"content-encoding": "gzip"})) as server:
        assert (await ask(ours(f"{server.url}/v1")))[0].content == DONE


def test_one_client_works_in_two_event_loops() -> None:
    with ZooServer(ZOO["content in parts"]) as server:
        for client in (ours(server.base_url), stock(server.base_url)):
            for _ in range(2):
                assert asyncio.run(ask(client))[0].content == DONE


async def test_frontier_name_sends_images_and_its_token_parameter() -> None:
    with ZooServer(ZOO["content in parts"]) as server:
        client = OpenAICompatibleClient("gpt-5.6-luna", base_url=server.base_url, max_tokens=9, temperature=0.5)
        await ask(client, MESSAGES)
    (body,) = server.bodies
    assert "image_url" in json.dumps(body["messages"])
    assert body["max_completion_tokens"] == 9
    assert not {"max_tokens", "temperature"} & body.keys()


async def test_component_dump_hides_the_key_and_loads_again() -> None:
    client = OpenAICompatibleClient("m", base_url="http://127.0.0.1:9/v1", api_key="sk-secret", temperature=0.5)
    dumped = client.dump_component().model_dump_json()
    assert "sk-secret" not in dumped
    loaded = ChatCompletionClient.load_component(json.loads(dumped))
    assert loaded.dump_component().config["temperature"] == 0.5


async def test_call_outside_of_runs_returns_the_servers_items() -> None:
    ordered = call(0, extra_content={"google": {"thought_signature": "sig"}})
    wanting = Behaviour("x", "x", body=completion({"tool_calls": [ordered], "reasoning_content": THOUGHT}))
    with WantsBack(wanting) as server:
        client = ours(server.base_url)
        reply = await client.create(ASKED, tools=[ORDER])
        result = FunctionExecutionResult(content="ok", call_id="call_0", name="order", is_error=False)
        again: list[LLMMessage] = [
            *ASKED,
            AssistantMessage(content=reply.content, source="a"),
            FunctionExecutionResultMessage(content=[result]),
        ]
        assert (await client.create(again)).content == DONE


async def collect(stream: AsyncIterator[str | CreateResult]) -> list[str | CreateResult]:
    return [each async for each in stream]


async def test_stream_of_a_wrapped_client_ends_with_its_reply() -> None:
    with ZooServer(ZOO["usage in every chunk"]) as server:
        items = await collect(calling_client(stock(server.base_url)).create_stream(ASKED))
    assert items[:-1] == ["Do", "ne."]
    assert isinstance(items[-1], CreateResult)
    assert items[-1].usage.prompt_tokens == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": {"input_tokens": 20, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 10}},
        {"usage": {"prompt_tokens": None, "total_tokens": 107, "completion_tokens": 7}},
        {"x_groq": {"usage": {"prompt_tokens": 100}}},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 100}}]},
        {
            "usage": {
                "prompt_tokens": 100,
                "prompt_tokens_details": {"cached_tokens": 80},
                "cache_read_input_tokens": 80,
            }
        },
    ],
    ids=["Anthropic", "total", "Groq", "Moonshot", "OpenAI"],
)
async def test_usage_of_a_stream_is_read_wherever_it_stands(fields: dict[str, Any]) -> None:
    chunks = [chunk({"content": DONE}), {**chunk({}, "stop"), **fields}]
    with ZooServer(Behaviour("x", "x", chunks=chunks)) as server:
        reply, _ = await ask(ours(server.base_url), stream=True)
    assert (reply.content, reply.usage.prompt_tokens) == (DONE, 100)


@pytest.mark.parametrize(
    ("usages", "counted"),
    [
        ([{"total_tokens": 110}, {"completion_tokens": 40, "total_tokens": 140}], (100, 40)),
        ([{"prompt_tokens": 100, "completion_tokens": 1}, {"prompt_tokens": 100, "completion_tokens": 40}], (100, 40)),
        ([{"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}], (20, 603)),
        ([{"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81}], (21, 60)),
        ([{"total_tokens": 140}], (139, 1)),
        ([{"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 0}, {"total_tokens": True}], (100, 9)),
    ],
    ids=["growing total", "every chunk", "Gemini", "thoughts alone", "total alone", "odd total"],
)
async def test_usage_of_a_stream_adds_up_to_its_total(usages: list[dict[str, Any]], counted: tuple[int, int]) -> None:
    chunks = [chunk({"content": DONE}), chunk({}, "stop"), *({"choices": [], "usage": each} for each in usages)]
    with ZooServer(Behaviour("x", "x", chunks=chunks)) as server:
        reply, _ = await ask(ours(server.base_url), stream=True)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == counted


async def test_json_of_a_class_is_requested_by_its_schema() -> None:
    with serving(echo) as server:
        call_it = call_model(
            ours(f"{server.url}/v1"), ASKED, agent="a", json_output=City, cancellation_token=CancellationToken()
        )
        await result_of(call_it)
    asked = json.loads(server.requests[0].body)["response_format"]["json_schema"]
    assert asked["schema"]["required"] == ["name"]
