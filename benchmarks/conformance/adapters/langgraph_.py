"""LangGraph: LangChain's `create_agent`, subagents called from tools, `interrupt` in the tool that asks, and the SQLite
checkpointer with its default durability.

Where from: docs.langchain.com, "Subagents" (an agent called in a tool of another), "Interrupts" (`interrupt` in a tool,
`Command(resume={interrupt id: value})` for several), "Persistence" and "Durable execution": a run that was cut off
continues from its last checkpoint when the graph is invoked with None.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt
from meter import Open, Rest
from pydantic import SecretStr
from scenarios import DESCRIPTIONS, Scenario


def ask_user(question: str, options: list[str]) -> str:
    """Ask the user."""
    return str(interrupt({"question": question, "options": options}))


class System:
    packages = ("langgraph", "langgraph-checkpoint-sqlite", "langchain", "langchain-openai")
    durability = "async"

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
            nested or [*self._scenario.tools(), ask_user],
            system_prompt=self._scenario.prompt(name),
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

    async def pending(self, run: str) -> Rest | None:
        state = await self._graph.aget_state(_config(run))
        if not state.values:
            return None
        # A graph that waits stops at the same interrupt; one that was cut off continues, with an answer that it has.
        # `next` would be empty as well where the writes of a task are stored, but not yet the checkpoint after it.
        return await self._go(run, None) if state.tasks else self._rest(state.values, ())

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        return await self._go(run, Command(resume=answers))

    async def _go(self, run: str, given: Any) -> Rest:
        values = await self._graph.ainvoke(given, _config(run), durability=self.durability)
        return self._rest(values, values.get("__interrupt__", ()))

    def _rest(self, values: Any, interrupts: Any) -> Rest:
        if interrupts:
            return Rest([Open(each.id, each.value["question"]) for each in interrupts])
        return Rest(result=str(values["messages"][-1].content))

    async def close(self) -> None:
        await self._opened.__aexit__(None, None, None)


def _config(run: str) -> Any:
    return {"configurable": {"thread_id": run}, "recursion_limit": 10_000}
