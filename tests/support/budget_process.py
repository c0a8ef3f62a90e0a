"""A lead with two coders that work side by side, each three steps, one per model call, and count what they use.

As a process, with a folder, a store, a place and a budget as its arguments, it is killed at that place: ``request N``,
when a model gets the N-th request of all, or ``question``, once the run waits at its limit; else it answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import Settings, Upcall, ask
from upcall.agents import PausableAgent
from upcall.autogen.tool_calls import idempotent
from upcall.testing import Call, Calls, Reply, Request, ScriptedModelClient

RUN = "the-run"
STEPS = 3


class World:
    """The team, its model, and what is left behind in a folder.

    Args:
        folder: where that is.
        store: the store of the run.
        dies: the request, of all, at which it kills itself.
        asks: the coders whose first step asks the user.
        deep: whether an agent is between the lead and the coders.
        settings: those of the application.
    """

    def __init__(
        self,
        folder: Path,
        store: str = "runs.db",
        *,
        dies: str = "",
        asks: str = "",
        deep: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self.folder, self._dies, self._asks, self._deep = folder, dies, asks, deep
        self.client = ScriptedModelClient(self._reply)
        self.app = Upcall(team=self.make_team, store=store if "://" in store else folder / store, settings=settings)

    def make_team(self) -> Team:
        """Return the team."""
        coders = [
            PausableAgent(name, self.client, description="c", system_message=f"You are {name}.", tools=[self.step])
            for name in ("a", "b")
        ]
        if self._deep:
            given = {"description": "m", "system_message": "You are mid."}
            coders = [PausableAgent("mid", self.client, agents=coders, **given)]
        lead = PausableAgent("lead", self.client, description="l", system_message="You are lead.", agents=coders)
        return RoundRobinGroupChat([lead], max_turns=1)

    async def step(self, who: str, number: int) -> str:
        """Take a step."""
        if who in self._asks and number == 1:
            await ask(f"Which colour for {who}?")
        with (self.folder / "steps").open("a") as file:
            file.write(f"{who}{number}\n")
        return f"{who} took step {number}"

    step = idempotent(step)  # type: ignore[assignment]

    def _reply(self, request: Request) -> Reply:
        with (self.folder / "requests").open("a") as file:
            file.write("r\n")
        if self._dies == f"request {self.count()}":
            os.kill(os.getpid(), signal.SIGKILL)
        agent, taken = request.system.split()[2].strip("."), len(request.tool_results)
        if agent == "lead" and self._deep:
            return "Done." if taken else Call("mid", {"task": "Code"}, id="m")
        if agent in ("lead", "mid"):
            calls = [Call(name, {"task": f"Code {name}"}, id=f"l{name}") for name in ("a", "b")]
            return "Done." if taken else Calls(calls)
        if taken == STEPS:
            return "Coded."
        return Calls([Call("step", {"who": agent, "number": taken + 1}, id=f"{agent}{taken}")], thought=f"Step {taken}")

    def count(self) -> int:
        """Return how many requests models got, in any process."""
        file = self.folder / "requests"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def steps(self) -> dict[str, list[int]]:
        """Return the steps that each coder took, in any process."""
        taken = (self.folder / "steps").read_text().split()
        return {who: sorted(int(each[1:]) for each in taken if each[0] == who) for who in ("a", "b")}


async def _run(world: World, budget: str, place: str) -> None:
    run = await world.app.start("Build it", run_id=RUN, budget=budget)
    if place == "question":
        os.kill(os.getpid(), signal.SIGKILL)
    while run.waiting:
        run = await world.app.answer(RUN, "100 calls")


if __name__ == "__main__":
    _, folder, store, place, budget = sys.argv
    asyncio.run(_run(World(Path(folder), store, dies=place), budget, place))
