"""OpenAI Agents SDK: agents as tools, an `ask_user` tool that needs approval, and the `RunState` stored as its string.

An approval is yes or no, so that the answer itself goes through the run's context, as the SDK's documents have it for
data of the application. What is not answered yet stays undecided.

Where from: openai.github.io/openai-agents-python, "Human-in-the-loop" (interruptions of an agent in `as_tool()` surface
on the outer run; `state.to_string()`, `RunState.from_string`, `approve`; "You do not need to resolve every pending
approval in the same pass"), "Context management".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.tool_context import ToolContext
from meter import Open, Rest, States
from openai import AsyncOpenAI
from scenarios import DESCRIPTIONS, Scenario

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, RunState, function_tool


@function_tool(needs_approval=True)
def ask_user(context: ToolContext[dict[str, str]], question: str, options: list[str]) -> str:
    """Ask the user."""
    return context.context[context.tool_call_id]


class System:
    packages = ("openai-agents",)

    def __init__(self, base_url: str, http_client: Any, store: Path, scenario: Scenario) -> None:
        self._client = AsyncOpenAI(base_url=base_url, api_key="none", http_client=http_client)
        self._model = OpenAIChatCompletionsModel("scripted", self._client)
        self._config = RunConfig(tracing_disabled=True)
        self._scenario, self._states = scenario, States(store)
        self._agent = self._make(scenario.root)

    def _make(self, name: str) -> Agent[Any]:
        nested = [
            self._make(each).as_tool(each, DESCRIPTIONS[each], run_config=self._config, max_turns=1000)
            for each in self._scenario.nested(name)
        ]
        tools = nested or [*map(function_tool, self._scenario.tools()), ask_user]
        return Agent(name=name, instructions=self._scenario.prompt(name), model=self._model, tools=tools)

    async def open(self) -> None:
        """Nothing: the store is open."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        return await self._go(run, [_item(*each) for each in [*history, ("user", task)]], {})

    async def pending(self, run: str) -> Rest | None:
        if (stored := self._states.find(run)) is None:
            return None
        state, result = json.loads(stored)
        return await self._rest(state, result)

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        stored, _ = json.loads(self._states.load(run))
        state = await RunState.from_string(self._agent, stored, context_override=answers)
        for item in state.get_interruptions():
            if item.call_id in answers:
                state.approve(item)
        return await self._go(run, state, None)

    async def _go(self, run: str, given: Any, context: Any) -> Rest:
        result = await Runner.run(self._agent, given, context=context, run_config=self._config, max_turns=1000)
        state = result.to_state().to_string()
        output = None if result.interruptions else str(result.final_output)
        self._states.save(run, json.dumps([state, output]), over=output is not None)
        return self._list(result.interruptions, output)

    async def _rest(self, stored: str, output: str | None) -> Rest:
        state = await RunState.from_string(self._agent, stored, context_override={})
        return self._list([] if output is not None else state.get_interruptions(), output)

    def _list(self, interruptions: Any, output: str | None) -> Rest:
        items = [
            Open(str(each.call_id), json.loads(each.arguments)["question"], (each.agent.name,))
            for each in interruptions
        ]
        return Rest(items, output)

    async def close(self) -> None:
        self._states.close()


def _item(role: str, text: str) -> Any:
    """Return a message as the SDK's own `to_input_list` has it; a plain assistant message does not survive its
    state."""
    if role == "user":
        return {"role": "user", "content": text}
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "__fake_id__", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
