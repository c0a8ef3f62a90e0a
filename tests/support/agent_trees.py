"""Random trees of agents that ask and take notes, whose every word depends on all that they were given."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import Run, RunStatus, Settings, Upcall, reversible
from upcall.agents import PausableAgent
from upcall.testing import Call, Calls, Fail, Reply, Request, ScriptedModelClient

ANSWERS = ("red", "green", "blue")


def choose(*of: object, count: int) -> int:
    """Return a number that looks random and is the same each time."""
    return int.from_bytes(blake2b(repr(of).encode(), digest_size=4).digest()) % count


@dataclass
class Node:
    """An agent: the replies that it gives one after another, and the agents below it."""

    name: str
    steps: list[list[str]] = field(default_factory=list)
    below: list[Node] = field(default_factory=list)

    def walk(self) -> list[Node]:
        return [self, *(each for child in self.below for each in child.walk())]


def grow(rng: random.Random, name: str = "a", depth: int = 0) -> Node:
    node = Node(name)
    if depth < 2:
        node.below = [grow(rng, f"{name}{number}", depth + 1) for number in range(rng.randint(1 + (depth == 0), 3))]
    calls = [each.name for each in node.below]
    while calls:
        count = rng.randint(1, len(calls))
        node.steps.append(calls[:count])
        calls = calls[count:]
    for kind in ("ask_user", "note", "ask_user", "note"):
        if rng.random() < 0.5:
            node.steps.insert(rng.randint(0, len(node.steps)), [kind])
    return node


class Shape:
    """A tree of agents at work, with all that they asked of their model, and all notes that they took."""

    def __init__(self, seed: int, folder: Path, *, ids_repeat: bool = False, **questions: Any) -> None:
        rng = random.Random(seed)
        self.ids_repeat = ids_repeat
        self.members = [grow(rng, name) for name in ("x", "y")[: rng.randint(1, 2)]]
        self.nodes = {each.name: each for member in self.members for each in member.walk()}
        self.client = ScriptedModelClient(self._reply)
        self.notes: list[str] = []
        self.fails_at: int | None = None
        """The number of the request that fails."""
        settings = Settings.read(None, models={"model": "demo"}, questions={"max_questions_run": 1000, **questions})
        folder.mkdir(exist_ok=True)
        self.app = Upcall(team=self._team, store=folder / "runs.db", settings=settings)

    def _reply(self, request: Request) -> Reply:
        """Return the next step of an agent. Its words depend on all that it was given."""
        if len(self.client.requests) == self.fails_at:
            self.client.requests.pop()
            self.fails_at = None
            return Fail(400)
        node = self.nodes[request.system.split()[0]]
        made = sum(each["role"] == "assistant" for each in request.messages)
        seen = choose([each.get("content") for each in request.messages], count=10**6)
        if made >= len(node.steps):
            return f"{node.name} is done, having seen {seen}"
        calls = [self._call(node, step, made, seen) for step in node.steps[made]]
        return Calls(calls) if len(calls) > 1 else calls[0]

    def _call(self, node: Node, step: str, made: int, seen: int) -> Call:
        # Most servers name each call otherwise, some count from the same number in every reply.
        call_id = f"call_{step}" if self.ids_repeat else f"{node.name}-{made}-{step}-{seen}"
        if step == "ask_user":
            options = [*ANSWERS]
            return Call(step, {"question": f"Which color has step {made} of {node.name}?", "options": options}, call_id)
        return Call(step, {"text" if step == "note" else "task": f"{node.name}-{made}-{seen}"}, call_id)

    def _team(self) -> Team:
        @reversible(undo=lambda text: self.notes.remove(text))
        async def note(text: str) -> str:
            """Take a note."""
            self.notes.append(text)
            return f"noted {text}"

        def agent(node: Node) -> PausableAgent:
            below = [agent(each) for each in node.below]
            return PausableAgent(node.name, self.client, system_message=node.name, agents=below, tools=[note])

        return RoundRobinGroupChat([agent(each) for each in self.members], max_turns=len(self.members))

    async def finish(self, run: Run, other: dict[str, str], rng: random.Random | None = None) -> Run:
        """Answer until the run is over: `other` to these questions, by their texts; some at a time, with `rng`. What
        fails is resumed."""
        while not run.is_final or run.status is RunStatus.FAILED:
            if run.status is RunStatus.FAILED:
                run = await self.app.resume(run.id)
                continue
            count = rng.randint(1, len(run.questions)) if rng else len(run.questions)
            given = {
                each.id: other.get(each.question, ANSWERS[choose(each.question, count=3)])
                for each in run.questions[:count]
            }
            run = await self.app.answer(run.id, given)
        return run

    def requests(self, since: int = 0) -> Counter[str]:
        """Count the requests to the model, by all that they say."""
        return Counter(
            repr([(each["role"], each.get("content"), each.get("tool_calls")) for each in request.messages])
            for request in self.client.requests[since:]
        )
