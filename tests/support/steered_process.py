"""A lead with a coder that takes three steps, one per model call; somebody writes to them from another process.

As a process, with a folder, a store, a place and the kind of coder as its arguments, it waits in its second step, and
is killed at that place. What its model was asked is in a file, process by process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult, LLMMessage

from upcall import Upcall
from upcall.agents import PausableAgent
from upcall.autogen.tool_calls import idempotent
from upcall.testing import Call, Reply, Request, ScriptedModelClient

RUN = "the-run"
STEPS = 3


class World:
    """The team, its model, and what is left behind in a folder.

    Args:
        folder: where that is.
        store: the store of the run.
        dies: where it kills itself: ``step N`` in that step, ``request N`` when the coder's model gets its request of
            that number.
        holds: the step in which it waits for the file ``go``.
        ends: what the lead's model replies in the end, one after another.
        holds_end: whether the first of these waits for the file ``go``.
        coder: whether the coder is one of ``ours`` or a ``stock`` agent.
    """

    def __init__(
        self,
        folder: Path,
        store: str,
        *,
        dies: str = "",
        holds: int = 0,
        ends: Sequence[Reply] = ("Done.",),
        holds_end: bool = False,
        coder: str = "ours",
    ) -> None:
        self._coder = coder
        self.folder, self._dies, self._holds, self._ends = folder, dies, holds, [*ends]
        self.client = _WaitingClient(self._reply, folder) if holds_end else ScriptedModelClient(self._reply)
        self.app = Upcall(team=self.make_team, store=store)

    def make_team(self) -> Team:
        """Return the team."""
        given: dict[str, Any] = {"description": "c", "system_message": "You are the coder.", "tools": [self.step]}
        coder: ChatAgent = PausableAgent("coder", self.client, **given)
        if self._coder == "stock":
            coder = AssistantAgent("coder", self.client, max_tool_iterations=9, **given)
        lead = PausableAgent("lead", self.client, description="l", system_message="You are the lead.", agents=[coder])
        return RoundRobinGroupChat([lead], max_turns=1)

    async def step(self, number: int) -> str:
        """Take a step."""
        if number == self._holds:
            (self.folder / "at step").touch()
            await wait_for(self.folder / "go")
        if self._dies == f"step {number}":
            os.kill(os.getpid(), signal.SIGKILL)
        with (self.folder / "steps").open("a") as file:
            file.write(f"{number}\n")
        return f"took step {number}"

    step = idempotent(step)  # type: ignore[assignment]

    def _reply(self, request: Request) -> Reply:
        agent = request.system.split()[3].strip(".")
        answered = sum(each["role"] == "assistant" for each in request.messages)
        with (self.folder / f"{agent}.jsonl").open("a") as file:
            file.write(json.dumps(request.messages) + "\n")
        if agent == "coder" and self._dies == f"request {answered + 1}":
            os.kill(os.getpid(), signal.SIGKILL)
        if agent == "lead":
            return self._ends[answered - 1] if answered else Call("coder", {"task": "Code"}, id="l1")
        taken = len(request.tool_results)
        return "Coded." if taken == STEPS else Call("step", {"number": taken + 1}, id=f"c{taken + 1}")

    def requests(self, agent: str) -> list[list[dict[str, Any]]]:
        """Return the messages of each request that an agent's model got, in any process."""
        file = self.folder / f"{agent}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def steps(self) -> list[str]:
        """Return the steps that were taken, in any process."""
        return (self.folder / "steps").read_text().split()


class _WaitingClient(ScriptedModelClient):
    """Gives its second reply to the lead once the file ``go`` is there."""

    def __init__(self, reply: Callable[[Request], Reply], folder: Path) -> None:
        super().__init__(reply)
        self._folder, self._count = folder, 0

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        reply = await super().create(messages, **options)
        self._count += "lead" in str(messages[0].content)
        if self._count == 2:
            (self._folder / "at step").touch()
            await wait_for(self._folder / "go")
        return reply


async def wait_for(file: Path) -> None:
    """Wait until a file is there."""
    while not file.exists():
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    _, folder, store, place, coder = sys.argv
    asyncio.run(World(Path(folder), store, dies=place, holds=2, coder=coder).app.start("Build it", run_id=RUN))
