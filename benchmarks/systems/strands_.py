"""Strands Agents: `tool_context.interrupt()` in the tool that asks, agents nested with `as_tool()`, and a snapshot of
the outermost agent as JSON, which holds the interrupted turns of those below.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from meter import Rest, States
from openai import AsyncOpenAI
from scenarios import DESCRIPTIONS, PROMPTS, Scenario, look, save
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
            system_prompt=PROMPTS[name],
            tools=[*nested] or [tool(look), tool(save), ask_user],
            messages=wording,
            callback_handler=None,
            conversation_manager=NullConversationManager(),
        )

    async def open(self) -> None:
        """Nothing: the store is open."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        texts = [{"role": role, "content": [{"text": text}]} for role, text in history]
        return await self._go(run, self._agent(self._scenario.root, texts), task)

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        agent = self._agent(self._scenario.root)
        agent.load_snapshot(Snapshot.from_dict(json.loads(self._states.load(run))))
        given = [{"interruptResponse": {"interruptId": key, "response": text}} for key, text in answers.items()]
        return await self._go(run, agent, given)

    async def _go(self, run: str, agent: Agent, given: Any) -> Rest:
        result = await agent.invoke_async(given)
        self._states.save(run, json.dumps(agent.take_snapshot(preset="session").to_dict()))
        if result.stop_reason == "interrupt":
            return Rest([each.id for each in result.interrupts or []])
        return Rest(result=str(result))

    async def close(self) -> None:
        self._states.close()
