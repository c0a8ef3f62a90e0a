"""LangGraph over PostgreSQL, its runs brought to workers by procrastinate: what `benchmarks/throughput.py` measures.

    python langgraph_fleet.py prepare URL
    python langgraph_fleet.py worker URL async   # 8 runs at a time, until it is ended; or sync: its durability
    python langgraph_fleet.py drive URL RUNS     # submit so many, answer what they ask, until all are done

The agent is LangChain's `create_agent`, which asks by `interrupt` in a tool; the model is a class of this process, as
upcall's scripted one. LangGraph has no list of the threads that wait, so that a worker notes in a table of its own what
became of each.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.types import Command, interrupt
from procrastinate import App, PsycopgConnector
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

CONCURRENCY = 8
STEPS = (
    {"name": "ask_user", "args": {"question": "Which framework?"}, "id": "ask_1"},
    {"name": "note", "args": {"text": "first"}, "id": "note_1"},
    {"name": "ask_user", "args": {"question": "Which database?"}, "id": "ask_2"},
    {"name": "note", "args": {"text": "second"}, "id": "note_2"},
)


class Scripted(BaseChatModel):
    """Replies with the step that follows those in the context."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Scripted:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        step = sum(isinstance(each, AIMessage) for each in messages)
        reply = AIMessage("", tool_calls=[STEPS[step]]) if step < len(STEPS) else AIMessage("Done.")
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _agenerate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)


async def ask_user(question: str) -> str:
    """Ask the user."""
    return str(interrupt({"question": question}))


async def note(text: str) -> str:
    """Take a note."""
    with Path("notes.txt").open("a") as file:  # noqa: ASYNC230  (as upcall's clerk does)
        file.write(f"{text}\n")
    return f"noted {text}"


def application(url: str) -> App:
    """Return the queue."""
    app = App(connector=PsycopgConnector(conninfo=url))
    app.task(name="advance", queue="runs")(_nobody)
    return app


async def _nobody(run_id: str, answer: str | None = None) -> None:
    raise AssertionError("a driver takes no jobs")


async def prepare(url: str) -> None:
    """Make the tables."""
    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        await saver.setup()
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, questions INT NOT NULL, done BOOL NOT NULL)")
    async with application(url).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def work(url: str, durability: str) -> None:
    """Take runs from pause to pause."""
    kwargs = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url, kwargs=kwargs, min_size=1, max_size=CONCURRENCY, open=False) as pool:
        graph: Any = create_agent(Scripted(), [ask_user, note], checkpointer=AsyncPostgresSaver(pool))  # type: ignore[arg-type]
        app = App(connector=PsycopgConnector(conninfo=url))

        @app.task(name="advance", queue="runs")
        async def advance(run_id: str, answer: str | None = None) -> None:
            start = {"messages": [{"role": "user", "content": "Build it"}]}
            config = {"configurable": {"thread_id": run_id}}
            result = await graph.ainvoke(
                start if answer is None else Command(resume=answer), config, durability=durability
            )
            waits = "__interrupt__" in result
            async with pool.connection() as connection:
                await connection.execute(
                    "INSERT INTO runs VALUES (%s, 1, %s) "
                    "ON CONFLICT (id) DO UPDATE SET questions = runs.questions + 1, done = excluded.done",
                    (run_id, not waits),
                )

        async with app.open_async():
            print("ready", flush=True)
            await app.run_worker_async(
                queues=["runs"], concurrency=CONCURRENCY, delete_jobs="always", install_signal_handlers=False
            )


async def drive(url: str, runs: int) -> None:
    """Submit runs, and answer what they ask; print the seconds of CPU that this took."""
    answered: set[tuple[str, int]] = set()
    began = time.process_time()
    async with application(url).open_async() as app, await AsyncConnection.connect(url, autocommit=True) as connection:
        task = app.tasks["advance"]
        for number in range(runs):
            await task.defer_async(run_id=f"run-{number}")
        while True:
            rows = await (await connection.execute("SELECT id, questions, done FROM runs")).fetchall()
            for run_id, questions, done in rows:
                if not done and (run_id, questions) not in answered:
                    answered.add((run_id, questions))
                    await task.defer_async(run_id=run_id, answer="Express")
            if sum(done for *_, done in rows) == runs:
                print(time.process_time() - began)
                return
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["prepare", place]:
            asyncio.run(prepare(place))
        case ["worker", place, durability]:
            asyncio.run(work(place, durability))
        case ["drive", place, count]:
            asyncio.run(drive(place, int(count)))
