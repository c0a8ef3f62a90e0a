"""Clients of a class that a user derives from ours: they count as ours, and what they replace is called."""

from __future__ import annotations

from typing import Any

from autogen_core import CancellationToken
from autogen_core.models import CreateResult, UserMessage
from autogen_ext.models.cache import ChatCompletionCache

from upcall import OpenAICompatibleClient
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.model_size import is_small
from upcall.testing import LoopbackServer

SMALL = "qwen2.5-1.5b"


class Named(OpenAICompatibleClient):
    """A client that only has a class of its own."""


class Counting(OpenAICompatibleClient):
    """A client that counts its calls, with AutoGen's arguments."""

    calls = 0

    async def create(self, messages: Any, **options: Any) -> CreateResult:  # type: ignore[override]
        """Count, and return the model's reply."""
        assert "keeps_format" not in options
        self.calls += 1
        return await super().create(messages, **options)


async def body_of(client: OpenAICompatibleClient, server: LoopbackServer, **options: Any) -> dict[str, Any]:
    """Return what a client sends for a call with a limit for small models."""
    asked = call_model(
        client,
        [UserMessage(content="Go.", source="user")],
        agent="solo",
        small_limit=7,
        cancellation_token=CancellationToken(),
        **options,
    )
    assert (await result_of(asked)).content == "Done."
    body = server.requests[-1].body
    return {name: body.get(name) for name in ("max_tokens", "stream")}


async def test_derived_client_is_limited_and_streams_like_ours() -> None:
    for kind in (OpenAICompatibleClient, Named):
        with LoopbackServer(["Done."]) as server:
            client = kind(SMALL, base_url=server.base_url, api_key="k")
            assert await body_of(client, server) == {"max_tokens": 7, "stream": True}
            await client.close()


async def test_derived_client_is_called_by_its_own_create() -> None:
    with LoopbackServer(["Done."]) as server:
        client = Counting(SMALL, base_url=server.base_url, api_key="k")
        assert await body_of(client, server, json_output=True) == {"max_tokens": 7, "stream": None}
        await client.close()
    assert client.calls == 1


async def test_create_replaced_in_our_client_is_called() -> None:
    with LoopbackServer(["Done."]) as server:
        client, calls = OpenAICompatibleClient(SMALL, base_url=server.base_url, api_key="k"), list[Any]()
        create = client.create

        async def note(*given: Any, **options: Any) -> CreateResult:
            calls.append(options)
            return await create(*given, **options)

        client.create = note  # type: ignore[method-assign]
        await body_of(client, server)
        await client.close()
    assert len(calls) == 1


def test_derived_client_in_a_cache_is_small_by_name() -> None:
    assert is_small(ChatCompletionCache(Named(SMALL, base_url="http://127.0.0.1:9/v1")))
