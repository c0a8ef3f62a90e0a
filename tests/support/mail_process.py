"""A lead with a coder and a writer that both ask; the coder is answered, and the writer by mail while the coder works.

As a process, with a folder as its argument, it is killed when all of the writer's work is recorded.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import Run, Upcall
from upcall.agents import PausableAgent
from upcall.autogen.tool_calls import idempotent
from upcall.storage.store import RunStore
from upcall.testing import Call, Calls, Reply, Request, ScriptedModelClient

RUN = "the-run"
SCRIPT: dict[str, list[Reply]] = {
    "lead": [Calls([Call("coder", {"task": "Code"}, id="l1"), Call("writer", {"task": "Write"}, id="l2")]), "Done."],
    "coder": [Call("ask_user", {"question": "Which framework?"}, id="c1"), Call("wait", id="c2"), "Coded."],
    "writer": [Call("ask_user", {"question": "Which style?"}, id="w1"), Call("note", id="w2"), "Written."],
}


class World:
    """The team, its model, and what its tools leave behind."""

    def __init__(self, folder: Path, *, waits: bool = False, dies: bool = False) -> None:
        self.store, self.notes = folder / "runs.db", folder / "notes.txt"
        self._waits, self._dies = waits, dies
        self.client = ScriptedModelClient(self._reply)
        self.app = Upcall(team=self._team, store=self.store)

    @property
    def calls(self) -> list[str]:
        """Who made a model call, in order."""
        return [request.system.split()[3].strip(".") for request in self.client.requests]

    def noted(self) -> int:
        """How often the side effect happened."""
        return len(self.notes.read_text().splitlines()) if self.notes.exists() else 0

    def _reply(self, request: Request) -> Reply:
        agent = request.system.split()[3].strip(".")
        return SCRIPT[agent][sum(each["role"] == "assistant" for each in request.messages)]

    def _team(self) -> Team:
        async def note() -> str:
            """Take a note."""
            with self.notes.open("a") as file:
                file.write("noted\n")
            return "noted"

        @idempotent
        async def wait() -> str:
            """Wait until the writer is done."""
            while self._waits and not await self._written():
                await asyncio.sleep(0.01)
            if self._dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return "waited"

        def agent(name: str, *nested: PausableAgent, tools: tuple[object, ...] = ()) -> PausableAgent:
            text = f"You are the {name}."
            return PausableAgent(
                name, self.client, description=name, system_message=text, agents=nested, tools=list(tools)
            )

        lead = agent("lead", agent("coder", tools=(wait,)), agent("writer", tools=(note,)))
        return RoundRobinGroupChat([lead], max_turns=1)

    async def _written(self) -> bool:
        """Whether all that the writer did is recorded."""
        return any("Written." in record for record in (await RunStore(self.store).journal.read(RUN)).values())


async def work(world: World) -> Run:
    """Start, answer the coder, and answer the writer from another program while the coder works."""
    run = await world.app.start("Build it", run_id=RUN)
    ids = {each.question: each.id for each in run.questions}
    working = asyncio.create_task(world.app.answer(RUN, {ids["Which framework?"]: "Express"}))
    while world.calls.count("coder") < 2:
        await asyncio.sleep(0.01)
    await Upcall(team=world._team, store=world.store).answer(RUN, {ids["Which style?"]: "Plain"})
    return await working


if __name__ == "__main__":
    asyncio.run(work(World(Path(sys.argv[1]), waits=True, dies=True)))
