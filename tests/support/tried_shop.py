"""A shop whose builder asks three questions one after another, makes calls with and without effects, and reports.

Each question has a role, which is the truth that trials have to find: its answer is in the ``result``, in a ``call``
with an effect, decides whether one is ``left`` out, is merely looked up by a call ``free`` of effects, or ``nothing``
comes of it. As a process, with a folder, roles and a number as its arguments, it measures the only run there, and is
killed when the model gets its request of that number.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import Run, Upcall, effect_free
from upcall.agents import PausableAgent
from upcall.testing import Call, Reply, Request, ScriptedModelClient

RUN = "the-run"
ASKED = {
    "Which framework?": ["Express", "FastAPI"],
    "Which colour?": ["Red", "Green", "Blue"],
    "Which city?": ["Rome", "Oslo"],
}
CHANGES = ("result", "call", "left")
"""The roles of questions whose answers change what comes of a run."""


class Shop:
    """The team, its model, and what it has done in a folder.

    Args:
        folder: where that is.
        roles: the role of each question.
        dies: the request at which it kills itself.
        chance: whether its reports have something that is never the same.
    """

    def __init__(self, folder: Path, roles: Sequence[str], *, dies: int = 0, chance: bool = False) -> None:
        self.folder, self.roles, self._dies, self._chance = folder, roles, dies, chance
        self.client = ScriptedModelClient(self._reply)
        self.app = Upcall(team=self._team, store=folder / "runs.db")

    def _reply(self, request: Request) -> Reply:
        if self._dies and len(self.client.requests) == self._dies:
            os.kill(os.getpid(), signal.SIGKILL)
        results = [*request.tool_results.values()]
        if len(results) < len(ASKED):
            question = [*ASKED][len(results)]
            return Call("ask_user", {"question": question, "options": ASKED[question]})
        calls = self._list_calls(results[: len(ASKED)])
        made = len(results) - len(ASKED)
        if made < len(calls):
            return calls[made]
        shown = [each for each, role in zip(results, self.roles, strict=False) if role == "result"]
        return " ".join(["Built", *shown, *([str(random.random())] if self._chance else [])])

    def _list_calls(self, answers: Sequence[str]) -> list[Call]:
        calls = [Call("deploy", {"to": "production"})]
        for answer, role, options in zip(answers, self.roles, ASKED.values(), strict=True):
            if role == "call":
                calls.append(Call("deploy", {"to": answer}))
            if role == "left" and answer == options[0]:
                calls.append(Call("deploy", {"to": "staging"}))
            if role == "free":
                calls.append(Call("look_up", {"what": answer}))
        return calls

    def _team(self) -> Team:
        def deploy(to: str) -> str:
            """Deploy it."""
            with (self.folder / "deployed").open("a") as file:
                file.write(f"{to}\n")
            return f"deployed to {to}"

        @effect_free
        def look_up(what: str) -> str:
            """Look something up."""
            return f"{what} is fine"

        return RoundRobinGroupChat([PausableAgent("lead", self.client, tools=[deploy, look_up])], max_turns=1)

    async def run(self) -> Run:
        """Return a completed run."""
        run = await self.app.start("Build a shop", run_id=RUN)
        for options in ASKED.values():
            run = await self.app.answer(run.id, options[0])
        return run

    @property
    def deployed(self) -> list[str]:
        """What was deployed so far, in any process."""
        return (self.folder / "deployed").read_text().split()

    @property
    def truth(self) -> list[str]:
        """The verdicts that trials have to find."""
        return ["changed" if role in CHANGES else "same" for role in self.roles]


if __name__ == "__main__":
    _, where, named, place = sys.argv
    shop = Shop(Path(where), named.split(), dies=int(place))
    asyncio.run(shop.app.worth.measure(RUN))
