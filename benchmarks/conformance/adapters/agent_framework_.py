"""Microsoft Agent Framework: a functional workflow around agents whose tools are steps; the tool that asks calls
`request_info`. Checkpoints are files.

An agent as a tool (`as_tool()`) does not ask: "Child function approvals are not propagated into the calling agent.
[...] Use a workflow when approval is interactive, delayed, or durable." So the agents are nested in the tools of a
workflow.
Calls of one reply are made one after another (`allow_concurrent_invocation`): with the default, the call that asks has
those beside it cancelled, and the workflow ends with a `CancelledError`.

Where from: learn.microsoft.com/agent-framework, "Functional Workflow API" (experimental): agents are called "as plain
function calls inside `@workflow`"; `@step` for what is "expensive to re-run: agent calls, external API requests, or any
operation where re-execution on resume would be costly or have side effects"; `ctx.request_info()` "is also supported
inside `@step` functions"; on resume "the workflow re-executes from the top". "Checkpoints" for the storage. What
`as_tool()` does not do is quoted from its docstring; the sample `agent_as_tool_vs_workflow_approval.py` shows the same.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    FileCheckpointStorage,
    Message,
    RunContext,
    WorkflowCheckpoint,
    step,
    tool,
    workflow,
)
from agent_framework.openai import OpenAIChatCompletionClient
from meter import Open, Rest
from openai import AsyncOpenAI
from scenarios import DESCRIPTIONS, Scenario


@step(replay_key=lambda question, options, path: question)
async def ask(question: str, options: list[str], path: list[str], ctx: RunContext) -> str:
    """Ask the user; the answer is kept as the result of this step."""
    asked = {"question": question, "options": options, "path": path}
    return str(await ctx.request_info(asked, str, request_id=question))


class System:
    packages = ("agent-framework-core", "agent-framework-openai")

    def __init__(self, base_url: str, http_client: Any, store: Path, scenario: Scenario) -> None:
        logging.getLogger("agent_framework").setLevel(logging.ERROR)
        openai = AsyncOpenAI(base_url=base_url, api_key="none", http_client=http_client)
        self._client = OpenAIChatCompletionClient("scripted", async_client=openai)
        self._client.function_invocation_configuration.update(max_iterations=1000, allow_concurrent_invocation=False)
        self._scenario, self._folder = scenario, store.parent
        self._root = self._agent(scenario.root, ())

    def _agent(self, name: str, above: tuple[str, ...]) -> Agent:
        path = (*above, name)
        nested = [self._nested(each, path) for each in self._scenario.nested(name)]
        return Agent(
            client=self._client,
            name=name,
            instructions=self._scenario.prompt(name),
            tools=nested or [*map(_as_step, self._scenario.tools()), self._ask_user(path)],
        )

    def _nested(self, name: str, path: tuple[str, ...]) -> Any:
        agent = self._agent(name, path)

        @step(name=name, replay_key=lambda task: task)
        async def run(task: str) -> str:
            return (await agent.run(task)).text

        @tool(name=name, description=DESCRIPTIONS[name])
        async def call(task: str) -> str:
            return await run(task)

        return call

    def _ask_user(self, path: tuple[str, ...]) -> Any:
        @tool(name="ask_user", description="Ask the user.")
        async def ask_user(question: str, options: list[str]) -> str:
            return await ask(question, options, list(path))

        return ask_user

    def _workflow(self) -> Any:
        root = self._root

        @workflow(name="plan")
        async def plan(messages: list[list[str]], ctx: RunContext) -> str:
            result = await root.run([Message(role, [text]) for role, text in messages])
            ctx.set_state("result", result.text)
            return result.text

        return plan.build()

    async def open(self) -> None:
        """Nothing: each run has a folder of checkpoints."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        return await self._go(run, message=[*map(list, history), ["user", task]])

    async def pending(self, run: str) -> Rest | None:
        if not (self._folder / run).exists() or (found := await self._latest(run)) is None:
            return None
        if found.pending_request_info_events or "result" in found.state:
            return _rest(found)
        return await self._go(run, checkpoint_id=found.checkpoint_id)

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        found = await self._latest(run)
        if found is None or "result" in found.state:
            raise LookupError(f"run {run} is over")
        return await self._go(run, checkpoint_id=found.checkpoint_id, responses=answers)

    async def _go(self, run: str, **given: Any) -> Rest:
        await self._workflow().run(**given, checkpoint_storage=FileCheckpointStorage(self._folder / run))
        found = await self._latest(run)
        assert found is not None
        return _rest(found)

    async def _latest(self, run: str) -> WorkflowCheckpoint | None:
        return await FileCheckpointStorage(self._folder / run).get_latest(workflow_name="plan")

    async def close(self) -> None:
        """Nothing is open."""


def _as_step(function: Callable[[str], str]) -> Any:
    @step(name=function.__name__, replay_key=lambda text: text)
    async def run(text: str) -> str:
        return function(text)

    @functools.wraps(function)
    async def call(*args: str, **kwargs: str) -> str:
        return await run(*args, *kwargs.values())

    return tool(call)


def _rest(found: WorkflowCheckpoint) -> Rest:
    asked = found.pending_request_info_events.items()
    items = [Open(key, each.data["question"], tuple(each.data["path"])) for key, each in asked]
    return Rest(items, None if items else found.state["result"])
