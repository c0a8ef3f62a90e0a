"""A question from a member of any AutoGen team, wherever the team is, over new objects at each pause.

The model's script is strict: a call that is made again finds no reply, and one left out leaves a reply over. It also
refuses a request with a tool call that has no result.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, Swarm
from cryptography.fernet import Fernet
from foreign import ForeignAgent
from forked import run_python
from places import SUPPORT
from shapes import (
    PLACES,
    SCENARIOS,
    SHAPES,
    Make,
    Place,
    Scenario,
    Shape,
    World,
    ask,
    join_branches,
    note,
    script,
    some_slow,
    system_message_of,
    task,
)
from worlds import results_in

from upcall import Run, RunStatus, Upcall
from upcall.agents import NestedTeam, PausableAgent
from upcall.autogen.messages import message_answers, question_message
from upcall.questions.question import Question
from upcall.testing import Call, Calls, LoopbackServer, ScriptedModelClient


def app(make: Make, world: World) -> Upcall:
    """Return a new application over the one file; its team is new at each segment."""
    return Upcall(team=lambda: make(world), store="runs.db")


def given(run: Run, answers: Mapping[str, str | None]) -> dict[str, str]:
    """Return the answers by the ids of the open questions, which must be just those."""
    assert (run.error, run.status) == (None, RunStatus.AWAITING_CLARIFICATION)
    assert {each.question for each in run.questions} == set(answers)
    return {each.id: text for each in run.questions if (text := answers[each.question]) is not None}


async def through(make: Make, world: World, *pauses: Mapping[str, str | None]) -> Run:
    """Start a run and answer at each pause, by new objects."""
    run = await app(make, world).start("Build it")
    for pause in pauses:
        run = await app(make, world).answer(run.id, given(run, pause))
    assert (run.error, run.status, run.questions) == (None, RunStatus.COMPLETED, ())
    return run


def _few(of: Mapping[str, Any], *more: Mapping[str, Any]) -> list[Any]:
    """Every combination, of which the fast suite has those that have each pair with the first at least once."""
    params = []
    for numbered in itertools.product(*(enumerate(each) for each in (of, *more))):
        names, places = [name for _, name in numbered], [number for number, _ in numbered]
        slow = sum(places) % 7 != 0
        params.append(pytest.param(*names, marks=[pytest.mark.slow] if slow else []))
    return params


@pytest.mark.parametrize(("shape", "place", "scenario"), _few(SHAPES, PLACES, SCENARIOS))
async def test_question_from_any_place_rises_and_is_answered(shape: str, place: str, scenario: str) -> None:
    await _plays(SHAPES[shape], PLACES[place], SCENARIOS[scenario])


async def _plays(shape: Shape, place: Place, scenario: Scenario) -> None:
    with script(shape.others, place.others, scenario.wording) as client:
        world, make = World(client), place.put(shape.make)
        run = await app(make, world).start("Build it")
        answered: dict[str, str] = {}
        for pause in scenario.pauses:
            for question in run.questions:
                path = (*place.above, *shape.above, "coder", *scenario.askers[question.question])
                assert question.path == path
            answered |= {question: text for question, text in pause.items() if text is not None}
            run = await app(make, world).answer(run.id, given(run, pause))
    assert (run.error, run.status, run.questions) == (None, RunStatus.COMPLETED, ())
    assert run.result == (place.result or shape.result)
    assert len(world.noted()) == len(set(world.noted())) == shape.notes + scenario.notes
    for question, text in answered.items():
        assert text in results_in(client, system_message_of(("coder", *scenario.askers[question])[-1]))


# -- two askers that are teams ----------------------------------------------------------------------------------------

ORDERS: Mapping[str, list[dict[str, str | None]]] = {
    "in order": [{"Which red?": "Ruby", "Which blue?": None}, {"Which blue?": "Navy"}],
    "in reverse": [{"Which red?": None, "Which blue?": "Navy"}, {"Which red?": "Ruby"}],
    "at once": [{"Which red?": "Ruby", "Which blue?": "Navy"}],
}


def painter(world: World, colour: str, **options: Any) -> PausableAgent:
    return world.agent(colour, **options)


def paints(colour: str) -> Mapping[str, Any]:
    return {colour: [note(f"{colour}1"), ask(f"Which {colour}?"), note(f"{colour}2"), f"Painted {colour}."]}


def team_of(world: World, colour: str, kind: str) -> Team:
    """Return a team of any kind in which one agent asks for a colour."""
    one = world.agent(colour)
    if kind == "swarm":
        return Swarm([one], name=f"{colour}s", termination_condition=TextMessageTermination(colour))
    if kind == "graph":
        return GraphFlow([one], DiGraphBuilder().add_node(one).build(), name=f"{colour}s")
    return RoundRobinGroupChat([one], name=f"{colour}s", max_turns=1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["round robin", "swarm", "graph"])
async def test_two_teams_that_one_agent_calls_together_ask_together(kind: str, order: str) -> None:
    def make(world: World) -> Team:
        teams = [NestedTeam(team_of(world, colour, kind)) for colour in ("red", "blue")]
        return RoundRobinGroupChat([world.agent("lead", *teams)], max_turns=1)

    lead = {"lead": [Calls([task("reds"), task("blues")]), "Led."]}
    with script(lead, paints("red"), paints("blue")) as client:
        run = await through(make, world := World(client), *ORDERS[order])
    assert (run.result, sorted(world.noted())) == ("Led.", ["blue1", "blue2", "red1", "red2"])
    assert results_in(client, system_message_of("lead")) == ["Painted red.", "Painted blue."]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("as_members", ["agents", "teams as agents"])
@pytest.mark.parametrize("place", some_slow(["at the root", "as an agent", "as a team", "as a tool"]))
async def test_graph_join_waits_for_both_asking_branches(place: str, as_members: str, order: str) -> None:
    def make(world: World) -> Team:
        start, join = world.agent("starter"), world.agent("tester")
        red, blue = (
            world.agent(colour) if as_members == "agents" else NestedTeam(team_of(world, colour, "swarm"))
            for colour in ("red", "blue")
        )
        return join_branches(start, red, blue, join)

    others = PLACES[place].others
    fields = {"starter": ["Started."], "tester": ["Tested."]}
    with script(others, fields, paints("red"), paints("blue")) as client:
        run = await through(PLACES[place].put(make), world := World(client), *ORDERS[order])
    assert run.result == (PLACES[place].result or "Tested.")
    assert sorted(world.noted()) == ["blue1", "blue2", "red1", "red2"]
    assert [each.system[:15] for each in client.requests].count("You are the tes") == 1


@pytest.mark.parametrize("order", ORDERS)
async def test_team_called_twice_in_a_batch_asks_for_both(order: str) -> None:
    def make(world: World) -> Team:
        crew = RoundRobinGroupChat([world.agent("red")], name="crew", max_turns=1)
        return RoundRobinGroupChat([world.agent("lead", NestedTeam(crew))], max_turns=1)

    lead = {"lead": [Calls([task("crew"), task("crew")]), "Led."]}
    # The calls go one after another: each asks when it has its turn, and continues when it has its answer.
    asks = [note("one"), ask("Which red?"), note("two"), ask("Which blue?")]
    ends = {"in order": ["Red.", "Blue."], "in reverse": ["Blue.", "Red."], "at once": ["Red.", "Blue."]}[order]
    with script(lead, {"red": [*asks, *ends]}) as client:
        run = await through(make, world := World(client), *ORDERS[order])
    assert (run.result, world.noted()) == ("Led.", ["one", "two"])
    assert results_in(client, system_message_of("lead")) == ["Red.", "Blue."]


async def test_members_that_ask_belong_to_their_own_teams() -> None:
    """The outer graph's branches are agents that are teams, each with a lead whose nested team asks."""

    def make(world: World) -> Team:
        branches: list[ChatAgent] = []
        for colour in ("red", "blue"):
            lead = world.agent(f"{colour}_lead", NestedTeam(team_of(world, colour, "round robin")))
            branches.append(NestedTeam(RoundRobinGroupChat([lead], name=f"{colour}_team", max_turns=1)))
        builder = DiGraphBuilder().add_node(branches[0]).add_node(branches[1])
        return GraphFlow(branches, builder.build())

    leads = {f"{colour}_lead": [task(f"{colour}s"), f"Led {colour}."] for colour in ("red", "blue")}
    with script(leads, paints("red"), paints("blue")) as client:
        run = await app(make, world := World(client)).start("Paint")
        paths = {each.question: each.path for each in run.questions}
        assert paths["Which red?"] == ("red_team", "red_lead", "reds", "red")
        run = await app(make, world).answer(run.id, given(run, {"Which red?": None, "Which blue?": "Navy"}))
        run = await app(make, world).answer(run.id, given(run, {"Which red?": "Ruby"}))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Led red.")
    assert sorted(world.noted()) == ["blue1", "blue2", "red1", "red2"]


# -- what an inner team learns of the outer one ------------------------------------------------------------------------

HEARING = [shape for shape in SHAPES if shape != "round robin by condition"]
"""Its condition counts what the team hears from outside, as in AutoGen."""


@pytest.mark.parametrize("member", ["agent", pytest.param("team", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", HEARING)
async def test_inner_team_is_not_confused_by_neighbours_questions(shape: str, member: str) -> None:
    def make(world: World) -> Team:
        crew = SHAPES[shape].make(world)
        members = [world.agent("scribe"), NestedTeam(crew) if member == "agent" else crew]
        return RoundRobinGroupChat(members, max_turns=2)

    scribe = {"scribe": [ask("Which title?"), "Titled."]}
    scenario = SCENARIOS["asks again"]
    with script(SHAPES[shape].others, scribe, scenario.wording) as client:
        run = await through(make, World(client), {"Which title?": "Moby-Dick"}, *scenario.pauses)
    assert run.result == SHAPES[shape].result


@pytest.mark.parametrize("shape", HEARING)
async def test_swarm_hands_off_to_a_team_as_agent(shape: str) -> None:
    def make(world: World) -> Team:
        members: list[ChatAgent] = [world.agent("chief", handoffs=["crew"]), NestedTeam(SHAPES[shape].make(world))]
        return Swarm(members, termination_condition=TextMessageTermination("crew"))

    scenario = SCENARIOS["two in reverse"]
    with script(SHAPES[shape].others, {"chief": [Call("transfer_to_crew")]}, scenario.wording) as client:
        run = await through(make, World(client), *scenario.pauses)
    assert run.result == SHAPES[shape].result


async def test_swarm_that_is_an_agent_takes_another_turn() -> None:
    def make(world: World) -> Team:
        crew = NestedTeam(SHAPES["swarm"].make(world))
        return RoundRobinGroupChat([crew, world.agent("scribe")], max_turns=3)

    fields = {"starter": [Call("transfer_to_coder")], "coder": [ask("One?"), "Coded.", ask("Two?"), "Coded again."]}
    with script(fields, {"scribe": ["Written."]}) as client:
        run = await through(make, World(client), {"One?": "1"}, {"Two?": "2"})
    assert (run.result, run.execution_path) == ("Coded again.", ("crew", "scribe", "crew"))


# -- a new process at each pause --------------------------------------------------------------------------------------

_HELPER = SUPPORT / "shape_process.py"


def process(*arguments: str) -> dict[str, Any]:
    """One run segment in a process of its own."""
    done = run_python(str(_HELPER), *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


_PROCESSES = [
    (shape, list(PLACES)[number], list(SCENARIOS)[(2 * number + 1) % len(SCENARIOS)])
    for number, shape in enumerate(SHAPES)
] + [
    ("graph", "as a team", "two in order"),
    ("magentic", "as a tool", "asks again"),
    ("selector", "two agents down", "two in reverse"),
    ("swarm", "two teams down", "three levels deep"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "place", "scenario"), _PROCESSES)
def test_question_from_any_place_waits_for_another_process(shape: str, place: str, scenario: str) -> None:
    text = script(SHAPES[shape].others, PLACES[place].others, SCENARIOS[scenario].wording).script
    with LoopbackServer(text) as server:
        run = process(server.base_url, shape, place, "start")
        for pause in SCENARIOS[scenario].pauses:
            assert {each["question"] for each in run["questions"]} == set(pause), run
            answers = {each["id"]: pause[each["question"]] for each in run["questions"]}
            run = process(server.base_url, shape, place, run["run_id"], json.dumps(answers))
    assert (run["status"], run["result"]) == ("completed", PLACES[place].result or SHAPES[shape].result)
    noted = World(ScriptedModelClient([])).noted()
    assert len(noted) == len(set(noted)) == SHAPES[shape].notes + SCENARIOS[scenario].notes


class Keeper(ForeignAgent):
    """Asks for a secret."""

    async def speak(self, messages: Sequence[BaseChatMessage]) -> BaseChatMessage | str:
        if given := [answer for message in messages for answer in message_answers(message)]:
            assert given[0].unseal().text == "hunter2"
            return "Logged in."
        question = Question(question="What is the password?", secret=True, path=(self.name,))
        return question_message([question], source=self.name, user_proxy="user")


async def test_secret_is_not_read_by_nested_team_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())
    replies = {"You are the lead": [task("crew"), "Done."], "You are the writer": ["Written."]}
    with ScriptedModelClient(replies) as client:

        def make(world: World) -> Team:
            crew = RoundRobinGroupChat([Keeper("keeper", "Logs in"), world.agent("writer")], max_turns=2)
            return RoundRobinGroupChat([world.agent("lead", NestedTeam(crew, name="crew"))], max_turns=1)

        world = World(client)
        run = await app(make, world).start("Log in")
        run = await app(make, world).answer(run.id, "hunter2")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert not [request for request in client.requests if "hunter2" in json.dumps(request.messages)]
