"""The GenAI conventions' metrics of model calls, read with OpenTelemetry's reader in memory."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import ComponentModel
from autogen_core.models import ChatCompletionClient
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from traced import app_of, attributes_of, measure, read_points, spans

from upcall.agents import PausableAgent
from upcall.testing import Fail, Reply, ScriptedModelClient

__all__ = ["spans"]


class Named(ScriptedModelClient):
    """A scripted model whose name no other test uses: metrics last as long as the process."""

    def __init__(self, name: str, *replies: Reply) -> None:
        super().__init__(list(replies))
        self._name = name

    def dump_component(self) -> ComponentModel:
        return ComponentModel(provider="Named", config={"model": self._name})


async def run_with(client: ChatCompletionClient, **options: Any) -> None:
    measure()

    def make() -> Team:
        lead = PausableAgent("lead", client, system_message="You are the lead.", **options)
        return RoundRobinGroupChat([lead], termination_condition=TextMessageTermination("lead"))

    await app_of(make).start("Build it.")


async def test_metrics_have_the_duration_and_tokens_of_calls(spans: InMemorySpanExporter) -> None:
    await run_with(Named("counted", "Done."))
    (duration,) = read_points("gen_ai.client.operation.duration", gen_ai_request_model="counted")
    assert dict(duration.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "Named",
        "gen_ai.request.model": "counted",
    }
    chat = attributes_of(spans, "chat counted")
    for kind in ("input", "output"):
        (tokens,) = read_points("gen_ai.client.token.usage", gen_ai_request_model="counted", gen_ai_token_type=kind)
        assert tokens.sum == chat[f"gen_ai.usage.{kind}_tokens"]


async def test_metrics_name_the_error_of_a_call(spans: InMemorySpanExporter) -> None:
    await run_with(Named("broken", Fail(RuntimeError("gone"))))
    (duration,) = read_points("gen_ai.client.operation.duration", gen_ai_request_model="broken")
    assert duration.attributes["error.type"] == "ScriptedFailure"
    assert read_points("gen_ai.client.token.usage", gen_ai_request_model="broken") == []


@pytest.mark.parametrize("stream", [True, False])
async def test_metrics_have_the_first_chunk_of_streams_only(spans: InMemorySpanExporter, stream: bool) -> None:
    name = f"stream {stream}"
    await run_with(Named(name, "Done."), stream=stream)
    assert len(read_points("gen_ai.client.operation.time_to_first_chunk", gen_ai_request_model=name)) == int(stream)
    chat = attributes_of(spans, f"chat {name}")
    assert ("gen_ai.response.time_to_first_chunk" in chat, "gen_ai.request.stream" in chat) == (stream, stream)


async def test_metrics_are_not_made_of_untraced_runs() -> None:
    await run_with(Named("untraced", "Done."))
    assert read_points("gen_ai.client.operation.duration", gen_ai_request_model="untraced") == []
