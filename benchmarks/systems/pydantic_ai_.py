"""Pydantic AI: deferred tools. The tool that asks raises `CallDeferred`, the run ends with `DeferredToolRequests`, and
a new run continues from the message history with the results.

For nested agents the documents have no recipe: the tool that calls one raises `CallDeferred` in its turn, and the
program keeps the nested histories and continues from the innermost one.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from meter import Rest, States
from openai import AsyncOpenAI
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults, RunContext, Tool, UsageLimits
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResult
from scenarios import DESCRIPTIONS, PROMPTS, Scenario, look, save

Json = dict[str, Any]
NO_LIMITS = UsageLimits(request_limit=None)


def ask_user(question: str, options: list[str]) -> str:
    """Ask the user."""
    raise CallDeferred(kind="question")


class System:
    packages = ("pydantic-ai-slim",)

    def __init__(self, base_url: str, http_client: Any, store: Path, scenario: Scenario) -> None:
        client = AsyncOpenAI(base_url=base_url, api_key="none", http_client=http_client)
        self._model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))
        self._scenario, self._states = scenario, States(store)
        self._agents: dict[str, Agent[None, Any]] = {}
        self._make(scenario.root)

    def _make(self, name: str) -> None:
        nested = self._scenario.nested(name)
        for each in nested:
            self._make(each)
        tools = [self._tool(each) for each in nested] or [Tool(look), Tool(save), Tool(ask_user)]
        self._agents[name] = Agent(
            self._model, name=name, instructions=PROMPTS[name], tools=tools, output_type=[str, DeferredToolRequests]
        )

    def _tool(self, name: str) -> Tool[None]:
        async def call(ctx: RunContext[None], task: str) -> str:
            result = await self._run(name, task, usage=ctx.usage)
            if isinstance(result, dict):
                raise CallDeferred(metadata=result)
            return str(result.output)

        return Tool(call, takes_ctx=True, name=name, description=DESCRIPTIONS[name])

    async def _run(self, name: str, task: str | None = None, **given: Any) -> AgentRunResult[Any] | Json:
        """Return the result of an agent, or what is to be stored while it waits."""
        result = await self._agents[name].run(task, usage_limits=NO_LIMITS, **given)
        if isinstance(result.output, str):
            return result
        calls = {call.tool_call_id: call.tool_name for call in result.output.calls}
        return {"messages": _plain(result), "calls": calls, "nested": result.output.metadata}

    async def _resume(self, name: str, stored: Json, answers: dict[str, str]) -> AgentRunResult[Any] | Json:
        nested = {call: self._resume(stored["calls"][call], each, answers) for call, each in stored["nested"].items()}
        done = dict(zip(nested, await asyncio.gather(*nested.values()), strict=True))
        if any(isinstance(each, dict) for each in done.values()):
            return {**stored, "nested": done}
        results = {call: done[call].output if call in done else answers[call] for call in stored["calls"]}
        return await self._run(
            name,
            message_history=ModelMessagesTypeAdapter.validate_python(stored["messages"]),
            deferred_tool_results=DeferredToolResults(calls=results),
        )

    async def open(self) -> None:
        """Nothing: the store is open."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        texts: list[ModelMessage] = [
            ModelRequest([UserPromptPart(text)]) if role == "user" else ModelResponse([TextPart(text)])
            for role, text in history
        ]
        return self._rest(run, await self._run(self._scenario.root, task, message_history=texts))

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        return self._rest(run, await self._resume(self._scenario.root, json.loads(self._states.load(run)), answers))

    def _rest(self, run: str, result: AgentRunResult[Any] | Json) -> Rest:
        if isinstance(result, dict):
            self._states.save(run, json.dumps(result))
            return Rest(list(_open(result)))
        self._states.save(run, json.dumps({"messages": _plain(result), "output": result.output}))
        return Rest(result=result.output)

    async def close(self) -> None:
        self._states.close()


def _plain(result: AgentRunResult[Any]) -> Any:
    return ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")


def _open(stored: Json) -> list[str]:
    """Return the ids of the calls that wait for the user, nested ones included."""
    own = [call for call in stored["calls"] if call not in stored["nested"]]
    return own + [each for nested in stored["nested"].values() for each in _open(nested)]
