"""LangGraph: LangChain's `create_agent`, subagents called from tools, `interrupt` in the tool that asks, and the SQLite
checkpointer with its default durability.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt
from meter import Rest
from pydantic import SecretStr
from scenarios import DESCRIPTIONS, PROMPTS, Scenario, look, save


def ask_user(question: str, options: list[str]) -> str:
    """Ask the user."""
    return str(interrupt({"question": question, "options": options}))


class System:
    packages = ("langgraph", "langgraph-checkpoint-sqlite", "langchain", "langchain-openai")

    def __init__(self, base_url: str, http_client: Any, store: Path, scenario: Scenario) -> None:
        self._model = ChatOpenAI(
            model="scripted", base_url=base_url, api_key=SecretStr("none"), http_async_client=http_client
        )
        self._scenario, self._store = scenario, store

    async def open(self) -> None:
        """Open the checkpointer, and compile the graphs."""
        self._opened = AsyncSqliteSaver.from_conn_string(str(self._store))
        self._graph = self._agent(self._scenario.root, await self._opened.__aenter__())

    def _agent(self, name: str, checkpointer: Any = None) -> Any:
        nested = [self._tool(each) for each in self._scenario.nested(name)]
        return create_agent(
            self._model,
            nested or [look, save, ask_user],
            system_prompt=PROMPTS[name],
            checkpointer=checkpointer,
            name=name,
        )

    def _tool(self, name: str) -> StructuredTool:
        graph = self._agent(name)

        async def call(task: str) -> str:
            state = await graph.ainvoke({"messages": [{"role": "user", "content": task}]})
            return str(state["messages"][-1].content)

        return StructuredTool.from_function(coroutine=call, name=name, description=DESCRIPTIONS[name])

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        messages = [{"role": role, "content": text} for role, text in [*history, ("user", task)]]
        return await self._go(run, {"messages": messages})

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        return await self._go(run, Command(resume=answers))

    async def _go(self, run: str, given: Any) -> Rest:
        config = {"configurable": {"thread_id": run}, "recursion_limit": 10_000}
        state = await self._graph.ainvoke(given, config)
        if found := state.get("__interrupt__"):
            return Rest([each.id for each in found])
        return Rest(result=str(state["messages"][-1].content))

    async def close(self) -> None:
        await self._opened.__aexit__(None, None, None)
