"""Whether a model counts as small: what is written, what its name says, and what its server shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.web_servers import Sent, serving

from upcall import OpenAICompatibleClient
from upcall.autogen.model_size import is_small, learn_size
from upcall.testing import ScriptedModelClient


@pytest.mark.parametrize(
    ("emitted", "small"),
    [
        ({"meta": {"n_params": 1_543_714_304}}, True),  # llama.cpp
        ({"meta": {"n_params": 70_000_000_000}}, False),
        ({"details": {"parameter_size": "8.0B"}}, True),  # Ollama
        ({"details": {"parameter_size": "494.03M"}}, True),
        ({"owned_by": "vllm"}, False),
    ],
)
async def test_small_is_what_the_server_shows_of_a_model(emitted: dict[str, Any], small: bool) -> None:
    listed = {"object": "list", "data": [{"id": "other", "meta": {"n_params": 1}}, {"id": "m", **emitted}]}
    with serving({"/v1/models": Sent(json.dumps(listed), "application/json")}) as server:
        client = OpenAICompatibleClient("m", base_url=f"{server.url}/v1")
        assert not is_small(client)
        await learn_size(client)
        await learn_size(client)
    assert is_small(client) is small
    assert len(server.requests) == 1


async def test_small_by_its_name_asks_no_server() -> None:
    client = OpenAICompatibleClient("qwen2.5-1.5b", base_url="http://127.0.0.1:9/v1")
    await learn_size(client)
    assert is_small(client)


async def test_small_that_is_set_stands_above_the_name() -> None:
    assert not is_small(OpenAICompatibleClient("qwen2.5-1.5b", base_url="http://127.0.0.1:9/v1", small=False))
    assert not is_small(ScriptedModelClient([], small=False))


async def test_size_unknown_to_the_server_is_not_small() -> None:
    client = OpenAICompatibleClient("m", base_url="http://127.0.0.1:9/v1")
    await learn_size(client)
    assert not is_small(client)
