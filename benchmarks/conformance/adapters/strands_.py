"""Strands Agents: `tool_context.interrupt()` in the tool that asks, agents nested with `as_tool()`, and a session
manager of the outermost agent, whose snapshot holds the interrupted turns of those below.

Where from: strandsagents.com, "Interrupts" (in tools; "Session Management": the next agent of the session takes the
`interruptResponse`s), "Agents as Tools", "Session Management" (`SnapshotSessionManager` is "the recommended option for
new single-agent and multi-agent sessions"; by default it saves when an invocation ends). After a restart the open
interrupts are read from the snapshot, as the documents have no other way to list them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meter import Open, Rest
from openai import AsyncOpenAI
from scenarios import DESCRIPTIONS, Scenario
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage


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
        self._scenario, self._storage = scenario, LocalFileStorage(str(store.parent))

    def _agent(self, name: str, run: str | None = None, wording: list[Any] | None = None) -> Agent:
        """Return an agent; the outermost one continues the session of its run, if there is one."""
        nested = [self._agent(each).as_tool() for each in self._scenario.nested(name)]
        return Agent(
            OpenAIModel(client=self._client, model_id="scripted"),
            agent_id=name,
            name=name,
            description=DESCRIPTIONS.get(name, "Plans."),
            system_prompt=self._scenario.prompt(name),
            tools=[*nested] or [*map(tool, self._scenario.tools()), ask_user],
            messages=wording,
            callback_handler=None,
            conversation_manager=NullConversationManager(),
            session_manager=SnapshotSessionManager(run, storage=self._storage) if run else None,
        )

    async def open(self) -> None:
        """Nothing: each run is a session."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        texts = [{"role": role, "content": [{"text": text}]} for role, text in history]
        return _rest(await self._agent(self._scenario.root, run, texts).invoke_async(task))

    async def pending(self, run: str) -> Rest | None:
        agent = self._agent(self._scenario.root, run)
        if not agent.messages:
            return None
        state = agent.take_snapshot(preset="session").data["interrupt_state"]
        if state["activated"]:
            asked = [each for each in state["interrupts"].values() if each["response"] is None]
            return Rest([Open(each["id"], each["reason"]["question"]) for each in asked])
        return Rest(result=" ".join(each["text"] for each in agent.messages[-1]["content"] if "text" in each))

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        given = [{"interruptResponse": {"interruptId": key, "response": text}} for key, text in answers.items()]
        return _rest(await self._agent(self._scenario.root, run).invoke_async(given))

    async def close(self) -> None:
        """Nothing is open."""


def _rest(result: Any) -> Rest:
    if result.stop_reason == "interrupt":
        return Rest([Open(each.id, each.reason["question"]) for each in result.interrupts])
    return Rest(result=str(result))
