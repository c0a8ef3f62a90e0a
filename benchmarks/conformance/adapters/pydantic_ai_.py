"""Pydantic AI: deferred tools. The tool that asks raises `CallDeferred`, the run ends with `DeferredToolRequests`, and
a new run continues from the message history with the results.

For nested agents the documents have no recipe: the tool that calls one raises `CallDeferred` in its turn, and the
program keeps the nested histories and continues from the innermost one. The path is the program's own, too.

Where from: ai.pydantic.dev, "Deferred Tools" (external tools), "Multi-agent Applications" (agent delegation), "Messages
and chat history" (`ModelMessagesTypeAdapter`); for what is nested, issues 3274 and 4302 of pydantic/pydantic-ai.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from meter import Open, Rest, States
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
from scenarios import DESCRIPTIONS, Scenario

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
        tools = [self._tool(each) for each in nested] or [Tool(each) for each in (*self._scenario.tools(), ask_user)]
        self._agents[name] = Agent(
            self._model,
            name=name,
            instructions=self._scenario.prompt(name),
            tools=tools,
            output_type=[str, DeferredToolRequests],
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
        asked = {call.tool_call_id: call.args_as_dict().get("question", "") for call in result.output.calls}
        nested = {call: each for call, each in result.output.metadata.items() if "calls" in each}
        return {"messages": _plain(result), "calls": calls, "questions": asked, "nested": nested}

    async def _resume(self, name: str, stored: Json, answers: dict[str, str]) -> AgentRunResult[Any] | Json:
        """Continue the innermost agents, each once all its calls have results; those that come earlier are kept."""
        names, ready = stored["calls"], {**stored.get("ready", {})}
        ready |= {call: answers[call] for call in names if call in answers}
        nested = {call: each for call, each in stored["nested"].items() if call not in ready}
        done = await asyncio.gather(*(self._resume(names[call], each, answers) for call, each in nested.items()))
        left = {}
        for call, each in zip(nested, done, strict=True):
            if isinstance(each, dict):
                left[call] = each
            else:
                ready[call] = str(each.output)
        if len(ready) < len(names):
            return {**stored, "nested": left, "ready": ready}
        return await self._run(
            name,
            message_history=ModelMessagesTypeAdapter.validate_python(stored["messages"]),
            deferred_tool_results=DeferredToolResults(calls=ready),
        )

    async def open(self) -> None:
        """Nothing: the store is open."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        texts: list[ModelMessage] = [
            ModelRequest([UserPromptPart(text)]) if role == "user" else ModelResponse([TextPart(text)])
            for role, text in history
        ]
        return self._rest(run, await self._run(self._scenario.root, task, message_history=texts))

    async def pending(self, run: str) -> Rest | None:
        if (found := self._states.find(run)) is None:
            return None
        stored = json.loads(found)
        return Rest(result=stored["output"]) if "output" in stored else Rest(_open(stored, (self._scenario.root,)))

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        stored = json.loads(self._states.load(run))
        return self._rest(run, await self._resume(self._scenario.root, stored, answers))

    def _rest(self, run: str, result: AgentRunResult[Any] | Json) -> Rest:
        if isinstance(result, dict):
            self._states.save(run, json.dumps(result), over=False)
            return Rest(_open(result, (self._scenario.root,)))
        self._states.save(run, json.dumps({"output": result.output}), over=True)
        return Rest(result=result.output)

    async def close(self) -> None:
        self._states.close()


def _plain(result: AgentRunResult[Any]) -> Any:
    return ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")


def _open(stored: Json, path: tuple[str, ...]) -> list[Open]:
    """Return the calls that wait for the user, nested ones included."""
    found = []
    for call, name in stored["calls"].items():
        if call in stored["nested"]:
            found += _open(stored["nested"][call], (*path, name))
        elif call not in stored.get("ready", {}):
            found.append(Open(call, stored["questions"][call], path))
    return found
