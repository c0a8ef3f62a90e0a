"""Log probabilities of the first token: only servers that are known to tell them are asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.cache import ChatCompletionCache
from autogen_ext.models.openai import OpenAIChatCompletionClient
from support.web_servers import Sent, serving

from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.token_odds import FIRST_TOKEN, NO_CALL, may_report_odds, reports_odds
from upcall.testing import LoopbackServer, Say, ScriptedModelClient

INFO = ModelInfo(
    vision=False, function_calling=True, json_output=True, structured_output=True, family=ModelFamily.UNKNOWN
)

Connect = Callable[..., OpenAIChatCompletionClient]

MESSAGES: list[LLMMessage] = [SystemMessage(content="Be brief."), UserMessage(content="Why?", source="user")]
ODDS = {"yes": -0.1, " no": -2.5}


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[OpenAIChatCompletionClient] = []

    def make(base_url: str) -> OpenAIChatCompletionClient:
        client = OpenAIChatCompletionClient(
            model="m", base_url=base_url, api_key="k", model_info=INFO, timeout=10, max_retries=0
        )
        made.append(client)
        return client

    yield make
    for client in made:
        await client.close()


async def ask(client: ChatCompletionClient) -> CreateResult:
    call = call_model(client, MESSAGES, agent="a", cancellation_token=CancellationToken(), first_token=True)
    return await result_of(call)


def models(*owners: str | None) -> dict[str, Sent]:
    data = [{"id": f"m{at}", "object": "model", "created": 0, "owned_by": owner} for at, owner in enumerate(owners)]
    return {"/v1/models": Sent(json.dumps({"object": "list", "data": data}), "application/json")}


@pytest.mark.parametrize("owned_by", ["llamacpp", "vllm", "sglang"])
async def test_server_that_reports_is_asked_for_one_token(owned_by: str, connect: Connect) -> None:
    with LoopbackServer([Say("yes", logprobs=ODDS)], owned_by=owned_by) as server:
        reply = await ask(connect(server.base_url))
    assert {name: server.requests[0].body[name] for name in FIRST_TOKEN} == FIRST_TOKEN
    assert reply.logprobs is not None
    emitted = {bytes(each.bytes or ()).decode(): each.logprob for each in reply.logprobs[0].top_logprobs or ()}
    assert emitted == ODDS


@pytest.mark.parametrize("owners", [(), ("openai",), ("vllm", "openai"), (None,)])
async def test_any_other_server_gets_no_request(owners: tuple[str | None, ...], connect: Connect) -> None:
    with serving(models(*owners)) as server:
        assert await ask(connect(f"{server.url}/v1")) == NO_CALL
    assert [each.path for each in server.requests] == ["/v1/models"]


@pytest.mark.parametrize("sent", [Sent(status=404), Sent(status=503), Sent("no JSON"), Sent("{}", "application/json")])
async def test_server_that_lists_no_models_gets_no_request(sent: Sent, connect: Connect) -> None:
    with serving(sent) as server:
        assert await ask(connect(f"{server.url}/v1")) == NO_CALL
    assert len(server.requests) == 1


async def test_server_that_is_missing_has_unknown_odds(connect: Connect) -> None:
    with LoopbackServer([], owned_by="vllm") as server:
        client = connect(server.base_url)
    assert await reports_odds(client) is False


async def test_client_asks_for_the_models_once(connect: Connect) -> None:
    with serving(models("llamacpp")) as server:
        client = connect(f"{server.url}/v1")
        assert [await reports_odds(client), await reports_odds(ChatCompletionCache(client))] == [True, True]
    assert len(server.requests) == 1


async def test_client_of_another_kind_is_never_asked() -> None:
    with ScriptedModelClient([]) as client:
        assert not may_report_odds(client)
        assert not may_report_odds(ChatCompletionCache(client))
        assert await ask(client) == NO_CALL


async def test_what_a_cache_holds_may_be_shown(connect: Connect) -> None:
    with LoopbackServer([Say("yes", logprobs=ODDS)], owned_by="vllm") as server:
        client = ChatCompletionCache(connect(server.base_url))
        assert may_report_odds(client)
        first, second = await ask(client), await ask(client)
    assert first.logprobs
    assert second.logprobs == first.logprobs
    assert server.calls == 1


@pytest.mark.parametrize("odds", [{"yes": float("nan")}, {"yes": -0.1, "no": float("-inf")}, {"yes": float("inf")}])
async def test_log_probabilities_that_are_no_numbers_are_left_out(odds: Any, connect: Connect) -> None:
    with LoopbackServer([Say("yes", logprobs=odds)], owned_by="vllm") as server:
        reply = await ask(connect(server.base_url))
    assert (reply.content, reply.logprobs) == ("yes", None)
