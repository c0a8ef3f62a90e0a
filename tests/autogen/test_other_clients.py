"""AutoGen's clients for other services make their calls themselves, through a pause and in another process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall, InMemoryStore
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    RequestUsage,
    UserMessage,
)
from autogen_ext.models.anthropic import AnthropicChatCompletionClient
from autogen_ext.models.cache import ChatCompletionCache
from autogen_ext.models.ollama import OllamaChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from forked import run_python
from other_clients import (
    ANSWER,
    DONE,
    INFO,
    MAKERS,
    QUESTION,
    THOUGHT,
    answer_anthropic,
    answer_ollama,
    close_clients,
    make_anthropic,
    make_app,
)
from places import SUPPORT
from web_servers import Request, Sent, serving

from upcall import OpenAICompatibleClient, PausableAgent, RunStatus, Settings, Upcall, ask
from upcall.autogen.client_quirks import fit_client
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.model_errors import explain_call
from upcall.execution.model_clients import ModelClients
from upcall.testing.zoo import Behaviour, ZooServer, call, completion


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await close_clients()


def app_of(*agents: Any) -> Upcall:
    """Return a front door of one agent, made anew for each segment by what was given."""
    return Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([each() for each in agents], max_turns=1))


# -- a pause ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("client", MAKERS)
async def test_client_asks_pauses_and_resumes(client: str, stream: bool) -> None:
    with serving(MAKERS[client][1]) as server:
        run = await make_app(client, server.url, stream).start("Go.")
        assert [each.question for each in run.questions] == [QUESTION]
        run = await make_app(client, server.url, stream).answer(run.id, ANSWER)
    assert (run.status, run.result, run.error, run.warnings) == (RunStatus.COMPLETED, DONE, None, ())
    assert run.usage["solo"].prompt_tokens == 10


@pytest.mark.slow
@pytest.mark.parametrize("client", MAKERS)
def test_client_resumes_in_another_process(client: str) -> None:
    program = str(SUPPORT / "other_clients.py")
    with serving(MAKERS[client][1]) as server:
        first = run_python(program, client, server.url, "stream", "start")
        second = run_python(program, client, server.url, "stream", json.loads(first.stdout)["run_id"])
    assert (json.loads(second.stdout)["result"], second.stderr) == (DONE, "")


# -- Anthropic --------------------------------------------------------------------------------------------------------


async def test_anthropic_gets_thought_and_call_back_after_a_pause() -> None:
    """As AutoGen's client carries them: it keeps no signature, and sends a thought as text."""
    with serving(answer_anthropic) as server:
        run = await make_app("Anthropic", server.url, False).start("Go.")
        await make_app("Anthropic", server.url, False).answer(run.id, ANSWER)
    first, last = (json.loads(each.body) for each in server.requests)
    blocks = [block for message in last["messages"][1:] for block in message["content"]]
    assert [each["type"] for each in blocks] == ["text", "tool_use", "tool_result"]
    assert (blocks[0]["text"], blocks[1]["id"], blocks[2]["tool_use_id"]) == (THOUGHT, "toolu_1", "toolu_1")
    assert (first["model"], "temperature" in first) == ("claude-opus-4-7", False)


async def test_anthropic_arguments_unknown_to_its_package_join_the_body() -> None:
    with serving(answer_anthropic) as server:
        client = AnthropicChatCompletionClient(
            model="claude-opus-4-7", api_key="k", base_url=server.url, temperature=0.5, top_k=3
        )
        await app_of(lambda: PausableAgent("solo", client)).start("Go.")
        await client.close()
    body = json.loads(server.requests[0].body)
    assert (body["temperature"], body["top_k"]) == (0.5, 3)


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-5", "claude-opus-4-7"])
async def test_anthropic_names_of_today_see_images_and_call_tools(model: str) -> None:
    client = make_anthropic("http://127.0.0.1:9", model)
    assert PausableAgent("solo", client)._parts.calls_tools
    assert (client.model_info["vision"], client.model_info["structured_output"]) == (True, False)
    assert client.model_info["family"].startswith("claude-4")


async def test_anthropic_fits_for_any_caller_and_behind_a_cache() -> None:
    """An agent with an output in JSON, too, which makes its calls another way."""
    with serving(answer_anthropic) as server:
        for client in (make_anthropic(server.url), ChatCompletionCache(make_anthropic(server.url))):
            asked = call_model(
                client,
                [UserMessage(content="Go.", source="user")],
                agent="solo",
                json_output=True,
                cancellation_token=CancellationToken(),
            )
            assert (await result_of(asked)).thought == THOUGHT
            await client.close()
    assert all("temperature" not in json.loads(each.body) for each in server.requests)


async def test_anthropic_info_that_the_user_gave_stays() -> None:
    given = {**INFO, "vision": False, "structured_output": False, "family": "mine"}
    client = AnthropicChatCompletionClient(model="claude-haiku-4-5", api_key="k", model_info=given)
    fit_client(client)
    fit_client(client)
    assert client.model_info == {**given, "multiple_system_messages": False}


# -- Ollama, llama.cpp ------------------------------------------------------------------------------------------------


async def test_ollama_asks_twice_in_a_reply_despite_equal_ids() -> None:
    def answer(request: Request) -> Sent:
        text = json.loads(answer_ollama(request).body)
        if calls := text["message"].get("tool_calls"):
            again = {"function": {"name": "ask_user", "arguments": {"question": "How far?"}}}
            text["message"]["tool_calls"] = [*calls, again]
        return Sent(json.dumps(text), "application/json")

    with serving(answer) as server:
        app = app_of(lambda: PausableAgent("solo", MAKERS["Ollama"][0](server.url)))
        run = await app.start("Go.")
        run = await app.answer(run.id, {each.id: each.question[:3] for each in run.questions})
    results = [each["content"] for each in json.loads(server.requests[-1].body)["messages"] if each["role"] == "tool"]
    assert (run.result, results) == (DONE, ["Whi", "How"])


async def test_ollama_call_of_a_stock_agent_awaits_its_answer() -> None:
    def ask_user(question: str) -> str:
        """Ask."""
        return f"the human said {ask(question)}"

    with serving(answer_ollama) as server:

        def agent() -> AssistantAgent:
            client = OllamaChatCompletionClient(model="qwen3.5", host=server.url, model_info=INFO)
            return AssistantAgent("solo", client, tools=[ask_user], reflect_on_tool_use=True, model_client_stream=True)

        app = app_of(agent)
        run = await app.start("Go.")
        run = await app.answer(run.id, ANSWER)
    assert (run.status, run.result, run.error) == (RunStatus.COMPLETED, DONE, None)
    assert "the human said left" in server.requests[-1].body.decode()


class NoText(ReplayChatCompletionClient):
    """A client whose stream ends with an empty list of calls, as some of AutoGen's do after one piece of text."""

    async def create_stream(self, *given: Any, **options: Any) -> Any:
        async for item in super().create_stream(*given, **options):
            yield item if isinstance(item, str) else item.model_copy(update={"content": []})


@pytest.mark.parametrize("stock", [False, True])
async def test_stream_text_that_ends_without_calls_is_the_result(stock: bool) -> None:
    client = NoText([DONE])
    agent = AssistantAgent("a", client, model_client_stream=True) if stock else PausableAgent("a", client, stream=True)
    assert (await app_of(lambda: agent).start("Go.")).result == DONE


# -- a cache, a replay ------------------------------------------------------------------------------------------------


class WantsThought(ZooServer):
    """A server that refuses its calls without what came with them."""

    def answer(self, body: dict[str, Any]) -> tuple[int, str, str]:
        for message in body["messages"]:
            if message.get("tool_calls") and message.get("reasoning_content") != THOUGHT:
                self.refused += 1
                return (
                    400,
                    "application/json",
                    json.dumps({"error": {"message": "reasoning_content must be passed back"}}),
                )
        return super().answer(body)


def asking() -> Behaviour:
    asked = call(0, function={"name": "ask_user", "arguments": json.dumps({"question": QUESTION})})
    return Behaviour("asks", "x", body=completion({"tool_calls": [asked], "reasoning_content": THOUGHT}))


def make_client(url: str, ours: bool) -> ChatCompletionClient:
    if ours:
        return OpenAICompatibleClient("m", base_url=url, max_retries=0)
    return OpenAIChatCompletionClient(model="m", base_url=url, api_key="k", model_info=INFO, max_retries=0)


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "AutoGen's"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_cached_reply_brings_what_its_server_wants_back(ours: bool, stream: bool) -> None:
    stored: InMemoryStore[Any] = InMemoryStore()
    with WantsThought(asking()) as server:

        def app() -> Upcall:
            cache = ChatCompletionCache(make_client(server.base_url, ours), stored)
            return app_of(lambda: PausableAgent("solo", cache, stream=stream))

        for answer, requests in (("left", 2), ("right", 3), ("right", 3)):
            run = await app().start("Go.")
            assert [each.question for each in run.questions] == [QUESTION]
            run = await app().answer(run.id, answer)
            assert (run.status, run.result, server.refused, len(server.bodies)) == ("completed", DONE, 0, requests)
            assert run.usage["solo"].model_calls == 2
            assert run.answers[0].text == answer


async def test_cache_stores_no_reply_that_cannot_be_used() -> None:
    bodies = [completion({"content": ""}), completion({"content": "Do"}, "length"), completion({"content": DONE})]
    with serving(lambda _: Sent(json.dumps(bodies.pop(0)), "application/json")) as server:
        cache = ChatCompletionCache(OpenAICompatibleClient("m", base_url=f"{server.url}/v1", max_retries=0))
        app = app_of(lambda: PausableAgent("solo", cache))
        first = await app.start("Go.")
        again = await app.start("Go.")
    assert (first.result, again.result, len(server.requests)) == ("Do", DONE, 3)


async def test_replay_client_asks_and_resumes() -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    asked = FunctionCall("c1", json.dumps({"question": QUESTION}), "ask_user")
    first = CreateResult(finish_reason="function_calls", content=[asked], usage=usage, cached=False)
    client = ReplayChatCompletionClient([first, DONE], model_info={**INFO, "family": "gpt-4o"})
    app = app_of(lambda: PausableAgent("solo", client))
    run = await app.start("Go.")
    assert (await app.answer(run.id, ANSWER)).result == DONE


# -- names and versions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("ollama.OllamaChatCompletionClient", "qwen3.5"),
        ("openai.OpenAIChatCompletionClient", "gpt-5.6-luna"),
        ("anthropic.AnthropicChatCompletionClient", "opus-next"),
    ],
)
def test_component_of_a_new_model_needs_no_model_info(provider: str, model: str) -> None:
    config = {"model": model} | ({} if "ollama" in provider else {"api_key": "k"})
    settings = Settings.read(models={"model_client": {"provider": f"autogen_ext.models.{provider}", "config": config}})
    assert ModelClients(settings)("lead").model_info["vision"]


async def test_client_unfit_for_its_package_fails_in_one_line() -> None:
    def send(*, model: str) -> None: ...

    client = make_anthropic("http://127.0.0.1:9")
    try:
        send(model="m", temperature=1)  # type: ignore[call-arg]
    except TypeError as error:
        text = str(explain_call(error, "solo", client))
    assert "its model client AnthropicChatCompletionClient does not fit the version of its package" in text
    assert "unexpected keyword argument 'temperature'" in text


async def test_unreadable_reply_names_the_kind_of_server() -> None:
    with serving(lambda _: Sent("{}", "application/json")) as server:
        run = await make_app("Anthropic", server.url, False).start("Go.")
    assert run.error is not None
    assert "Check that the base URL is that of a server for AnthropicChatCompletionClient." in run.error


async def test_usage_of_the_users_client_counts_behind_caches() -> None:
    with ZooServer(asking()) as server:
        client = make_client(server.base_url, False)
        cache = ChatCompletionCache(client)
        await app_of(lambda: PausableAgent("solo", cache)).start("Go.")
    assert client.total_usage().prompt_tokens == 1


async def test_clients_of_autogen_still_work_by_themselves() -> None:
    """What is put right around them leaves their own calls as they were."""
    with serving(answer_anthropic) as server:
        client = make_anthropic(server.url)
        fit_client(client)
        reply = await client.create([UserMessage(content="Go.", source="user")])
        await client.close()
    assert isinstance(reply.content, list)
