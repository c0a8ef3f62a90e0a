"""Strands Agents: `tool_context.interrupt()` in the tool that asks, agents nested with `as_tool()`, and a snapshot of
the outermost agent as JSON, which holds the interrupted turns of those below.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from meter import Open, Rest, States
from openai import AsyncOpenAI
from scenarios import DESCRIPTIONS, Scenario
from strands import Agent, Snapshot, ToolContext, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel


@tool(context=True)
def ask_user(question: str, options: list[str], tool_context: ToolContext) -> str:
    """Ask the user.

    Args:
        question: What is asked.
        options: What can be answered.
    """
    return str(tool_context.interrupt("question", reason={"question": question, "options": options}))


class System:
    packages = ("strands-agents",)

    def __init__(self, base_url: str, http_client: Any, store: Path, scenario: Scenario) -> None:
        self._client = AsyncOpenAI(base_url=base_url, api_key="none", http_client=http_client)
        self._scenario, self._states = scenario, States(store)

    def _agent(self, name: str, wording: list[Any] | None = None) -> Agent:
        nested = [self._agent(each).as_tool() for each in self._scenario.nested(name)]
        return Agent(
            OpenAIModel(client=self._client, model_id="scripted"),
            name=name,
            description=DESCRIPTIONS.get(name, "Plans."),
            system_prompt=self._scenario.prompt(name),
            tools=[*nested] or [*map(tool, self._scenario.tools()), ask_user],
            messages=wording,
            callback_handler=None,
            conversation_manager=NullConversationManager(),
        )

    async def open(self) -> None:
        """Nothing: the store is open."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        texts = [{"role": role, "content": [{"text": text}]} for role, text in history]
        return await self._go(run, self._agent(self._scenario.root, texts), task)

    async def pending(self, run: str) -> Rest | None:
        if (stored := self._states.find(run)) is None:
            return None
        return _rest(json.loads(stored))

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        agent = self._agent(self._scenario.root)
        agent.load_snapshot(Snapshot.from_dict(json.loads(self._states.load(run))["snapshot"]))
        given = [{"interruptResponse": {"interruptId": key, "response": text}} for key, text in answers.items()]
        return await self._go(run, agent, given)

    async def _go(self, run: str, agent: Agent, given: Any) -> Rest:
        result = await agent.invoke_async(given)
        interrupts = result.interrupts or []
        state = {
            "snapshot": agent.take_snapshot(preset="session").to_dict(),
            "open": [[each.id, each.reason["question"]] for each in interrupts],
            "result": None if result.stop_reason == "interrupt" else str(result),
        }
        self._states.save(run, json.dumps(state))
        return _rest(state)

    async def close(self) -> None:
        self._states.close()


def _rest(state: dict[str, Any]) -> Rest:
    return Rest([Open(*each) for each in state["open"]], state["result"])
