"""Teams of every AutoGen shape with an agent in them that asks, where such a team can be put, and what it is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import MaxMessageTermination, TextMessageTermination
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_core.models import ChatCompletionClient

from upcall.agents import NestedTeam, PausableAgent
from upcall.testing import Call, Calls, Reply, ScriptedModelClient

Replies = Mapping[str, Sequence[Reply]]


@dataclass
class World:
    """What a team is made with: the model of all its agents, and the file where a tool leaves its side effects."""

    client: ChatCompletionClient
    notes: Path = field(default_factory=lambda: Path("notes.txt"))

    def noted(self) -> list[str]:
        """Return the side effects so far."""
        return self.notes.read_text().split() if self.notes.exists() else []

    async def note(self, text: str) -> str:
        """Take a note."""
        with self.notes.open("a") as file:
            file.write(f"{text}\n")
        return f"noted {text}"

    def agent(self, name: str, *nested: ChatAgent, **options: Any) -> PausableAgent:
        """One of our agents, with the tool ``note``."""
        options = {"tools": [self.note], **options}
        return PausableAgent(
            name,
            self.client,
            description=f"The {name}",
            system_message=system_message_of(name),
            agents=nested,
            **options,
        )

    def coder(self, **options: Any) -> PausableAgent:
        """Return the one that asks, itself or through the agents nested in it."""
        helper = self.agent("helper", self.agent("clerk"))
        return self.agent("coder", self.agent("left"), self.agent("right"), helper, **options)


Make = Callable[[World], Team]


def system_message_of(name: str) -> str:
    """Return the system message that tells the agents of a script apart."""
    return f"You are the {name}."


def ask(question: str, **more: Any) -> Call:
    """Return a question to the user."""
    return Call("ask_user", {"question": question, **more})


def note(text: str) -> Call:
    """Return a side effect."""
    return Call("note", {"text": text})


def task(name: str) -> Call:
    """Work for a nested agent."""
    return Call(name, {"task": f"Work of the {name}"})


def script(*parts: Replies) -> ScriptedModelClient:
    """Return a model with a list of replies for each agent. The selecting models have no system message: their name
    is ""."""
    replies = {name: text for part in parts for name, text in part.items()}
    named: dict[str, Sequence[Reply]] = {system_message_of(name): text for name, text in replies.items() if name}
    return ScriptedModelClient({**named, **({"": replies[""]} if "" in replies else {})})


# -- shapes -----------------------------------------------------------------------------------------------------------


def agent_as_tool(world: World) -> Team:
    return RoundRobinGroupChat([world.agent("boss", world.coder())], name="crew", max_turns=1)


def round_robin(world: World) -> Team:
    return RoundRobinGroupChat([world.coder(), world.agent("tester")], name="crew", max_turns=2)


def round_robin_by_condition(world: World) -> Team:
    """Return the condition counts task, coder and tester, and neither question nor answer, in whatever process."""
    members: list[ChatAgent | Team] = [world.coder(), world.agent("tester")]
    return RoundRobinGroupChat(members, name="crew", termination_condition=MaxMessageTermination(3))


def selector(world: World) -> Team:
    members: list[ChatAgent | Team] = [world.coder(), world.agent("tester")]
    prompt = "Select one: {participants}"
    return SelectorGroupChat(members, world.client, name="crew", selector_prompt=prompt, max_turns=2)


def swarm(world: World) -> Team:
    members: list[ChatAgent] = [world.agent("starter", handoffs=["coder"]), world.coder()]
    return Swarm(members, name="crew", termination_condition=TextMessageTermination("coder"))


def graph(world: World) -> Team:
    """Return a fan-out to coder and painter, joined by the tester."""
    starter, painter, tester = (world.agent(name) for name in ("starter", "painter", "tester"))
    coder = world.coder()
    return join_branches(starter, coder, painter, tester)


def join_branches(start: ChatAgent, one: ChatAgent, other: ChatAgent, end: ChatAgent) -> GraphFlow:
    """Return a graph with two branches between start and end."""
    builder = DiGraphBuilder().add_node(start).add_node(one).add_node(other).add_node(end)
    builder.add_edge(start, one).add_edge(start, other).add_edge(one, end).add_edge(other, end)
    return GraphFlow([start, one, other, end], builder.build(), name="crew")


def magentic(world: World) -> Team:
    return MagenticOneGroupChat([world.coder(), world.agent("tester")], world.client, name="crew")


def ledger(speaker: str, done: bool) -> str:
    """Return what the orchestrator of `magentic` decides."""
    fields: dict[str, bool | str] = {"is_request_satisfied": done, "is_progress_being_made": True, "is_in_loop": False}
    fields |= {"instruction_or_question": "Go on.", "next_speaker": speaker}
    return json.dumps({name: {"reason": "so", "answer": answer} for name, answer in fields.items()})


ORCHESTRATOR = ["Facts.", "Plan.", ledger("coder", False), ledger("tester", False), ledger("coder", True), "All done."]
TESTED: Replies = {"tester": [note("tested"), "Tested."]}


@dataclass(frozen=True)
class Shape:
    """A team called ``crew``: what others than the coder say in it, who is above the coder, and how it ends."""

    make: Make
    others: Replies
    result: str
    above: tuple[str, ...] = ()
    notes: int = 1
    """Side effects of the others."""


SHAPES: Mapping[str, Shape] = {
    "agent as tool": Shape(agent_as_tool, {"boss": [task("coder"), "Bossed."]}, "Bossed.", ("boss",), notes=0),
    "round robin": Shape(round_robin, TESTED, "Tested."),
    "round robin by condition": Shape(round_robin_by_condition, TESTED, "Tested."),
    "selector": Shape(selector, {**TESTED, "": ["coder"]}, "Tested."),
    "swarm": Shape(swarm, {"starter": [note("started"), Call("transfer_to_coder")]}, "Coded."),
    "graph": Shape(
        graph, {"starter": ["Started."], "painter": [note("painted"), "Painted."], **TESTED}, "Tested.", notes=2
    ),
    "magentic": Shape(magentic, {**TESTED, "": ORCHESTRATOR}, "All done."),
}


# -- places -----------------------------------------------------------------------------------------------------------


def at_the_root(make: Make) -> Make:
    return make


def as_agent(make: Make) -> Make:
    return lambda world: Swarm([NestedTeam(make(world))], termination_condition=TextMessageTermination("crew"))


def as_team(make: Make) -> Make:
    return lambda world: RoundRobinGroupChat([make(world), world.agent("scribe")], max_turns=2)


def as_tool(make: Make) -> Make:
    return lambda world: RoundRobinGroupChat([world.agent("lead", NestedTeam(make(world)))], max_turns=1)


def in_an_agent_in_a_team(make: Make) -> Make:
    def outer(world: World) -> Team:
        lead = world.agent("lead", NestedTeam(make(world)))
        return RoundRobinGroupChat([RoundRobinGroupChat([lead], name="middle", max_turns=1)], max_turns=1)

    return outer


def two_teams_down(make: Make) -> Make:
    def outer(world: World) -> Team:
        middle = RoundRobinGroupChat([make(world)], name="middle", max_turns=1)
        return RoundRobinGroupChat([middle], max_turns=1)

    return outer


def two_agents_down(make: Make) -> Make:
    def outer(world: World) -> Team:
        middle = RoundRobinGroupChat([NestedTeam(make(world))], name="middle", max_turns=1)
        return RoundRobinGroupChat([world.agent("lead", NestedTeam(middle))], max_turns=1)

    return outer


@dataclass(frozen=True)
class Place:
    """Where a team is put: who is above it, what they say, and how they end (None: as the team)."""

    put: Callable[[Make], Make]
    above: tuple[str, ...] = ()
    others: Replies = field(default_factory=dict)
    result: str | None = None


LED: Replies = {"lead": [task("crew"), "Led."]}

PLACES: Mapping[str, Place] = {
    "at the root": Place(at_the_root),
    "as an agent": Place(as_agent, ("crew",)),
    "as a team": Place(as_team, ("crew",), {"scribe": ["Written."]}, "Written."),
    "as a tool": Place(as_tool, ("lead", "crew"), LED, "Led."),
    "in an agent in a team": Place(in_an_agent_in_a_team, ("middle", "lead", "crew"), LED, "Led."),
    "two teams down": Place(two_teams_down, ("middle", "crew")),
    "two agents down": Place(
        two_agents_down, ("lead", "middle", "crew"), {"lead": [task("middle"), "Led."]}, result="Led."
    ),
}


# -- scenarios --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """What happens at the coder: what is written, and at each pause which questions are open and what is answered.

    ``askers`` are the paths from the coder down, by question. ``notes`` counts the side effects.
    """

    wording: Replies
    pauses: Sequence[Mapping[str, str | None]]
    askers: Mapping[str, tuple[str, ...]]
    notes: int


TWO: Replies = {
    "coder": [note("began"), Calls([task("left"), task("right")]), "Coded."],
    "left": [note("left"), ask("Which browser?"), note("left2"), "Left."],
    "right": [note("right"), ask("How many rows?"), note("right2"), "Right."],
}
SIDES = {"Which browser?": ("left",), "How many rows?": ("right",)}
ROOT: Mapping[str, tuple[str, ...]] = {"Which framework?": (), "Whose server?": ()}

SCENARIOS: Mapping[str, Scenario] = {
    "one asks": Scenario(
        {"coder": [note("began"), ask("Which framework?"), note("ended"), "Coded."]},
        [{"Which framework?": "Express"}],
        ROOT,
        2,
    ),
    "asks again": Scenario(
        {"coder": [note("began"), ask("Which framework?"), note("went_on"), ask("Whose server?"), "Coded."]},
        [{"Which framework?": "Express"}, {"Whose server?": "Ours"}],
        ROOT,
        2,
    ),
    "two in order": Scenario(
        TWO, [{"Which browser?": "Firefox", "How many rows?": None}, {"How many rows?": "12"}], SIDES, 5
    ),
    "two in reverse": Scenario(
        TWO, [{"Which browser?": None, "How many rows?": "12"}, {"Which browser?": "Firefox"}], SIDES, 5
    ),
    "two at once": Scenario(TWO, [{"Which browser?": "Firefox", "How many rows?": "12"}], SIDES, 5),
    "three levels deep": Scenario(
        {
            "coder": [task("helper"), "Coded."],
            "helper": [note("helped"), task("clerk"), "Helped."],
            "clerk": [ask("Which form?"), note("filed"), ask("Which drawer?"), "Filed."],
        },
        [{"Which form?": "A 38"}, {"Which drawer?": "The top one"}],
        {"Which form?": ("helper", "clerk"), "Which drawer?": ("helper", "clerk")},
        2,
    ),
}


def some_slow(places: Iterable[str]) -> list[Any]:
    """Return the places as parameters of a test; all but two are marked slow."""
    fast = ("at the root", "as a tool")
    return [pytest.param(place, marks=[] if place in fast else [pytest.mark.slow]) for place in places]
