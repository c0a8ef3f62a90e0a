"""Agents whose model calls no tools, and errors that are not the model server's."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import CreateResult, ModelInfo

from upcall import PausableAgent, with_questions
from upcall.autogen.model_errors import explain
from upcall.errors import ConfigurationError, ModelError
from upcall.testing import ScriptedModelClient
from upcall.testing.model import MODEL_INFO

NO_TOOLS: ModelInfo = {**MODEL_INFO, "function_calling": False}


class Refusing(ScriptedModelClient):
    """A client that refuses a call of a model that it would have to offer tools."""

    async def create(self, *given: Any, **options: Any) -> CreateResult:
        if options.get("tools"):
            raise ValueError("Model does not support function calling.")
        return await super().create(*given, **options)


async def test_agent_without_tools_works_with_models_that_call_none() -> None:
    client = Refusing(["Done."], NO_TOOLS)
    agent = with_questions(AssistantAgent("a", client, system_message="Work."))
    result = await agent.run(task="Build it")
    assert result.messages[-1].to_text() == "Done."
    assert client.requests[0].system == "Work."


def test_tools_for_a_model_that_calls_none_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="its model calls no tools"):
        PausableAgent("a", ScriptedModelClient([], NO_TOOLS), handoffs=["b"])


async def test_what_a_client_refuses_is_reported_in_its_words() -> None:
    agent = PausableAgent("a", Refusing([]))
    with pytest.raises(ModelError) as failed:
        await agent.run(task="Build it")
    assert "its model client Refusing failed (" in str(failed.value)
    assert "ValueError: Model does not support function" in str(failed.value)


@pytest.mark.parametrize("error", [ConnectionError("the shop is closed"), TimeoutError("the shop is slow")])
def test_error_of_the_agent_is_not_the_model_servers(error: Exception) -> None:
    assert str(explain(error, "shopper")) == (
        f"Agent 'shopper' failed: {type(error).__name__}: {error}. The run is stored and can be resumed."
    )
