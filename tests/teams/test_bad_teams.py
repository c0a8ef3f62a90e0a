"""Teams and questions that are wrong: one clear line, or a result that the model can act on, and nothing is lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Response, Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import CancellationToken
from conversation import impatient
from foreign import ForeignAgent
from shapes import PLACES, Make, World, ask, note, script, some_slow, system_message_of, task
from worlds import results_in

from upcall import Run, RunStatus, Upcall
from upcall.agents import NestedTeam, PausableAgent
from upcall.errors import ConfigurationError, SchemaMismatch, TeamMismatch
from upcall.testing import Call, Calls, Hang, ScriptedModelClient

pytestmark = pytest.mark.usefixtures(impatient.__name__)

SOON = 0.5
"""Seconds that a nested agent has which would take for ever."""


def app(make: Make, world: World) -> Upcall:
    return Upcall(team=lambda: make(world), store="runs.db")


def open_ids(run: Run) -> list[str]:
    assert (run.error, run.status) == (None, RunStatus.AWAITING_CLARIFICATION)
    return [each.id for each in run.questions]


def completed(run: Run, result: str) -> None:
    assert (run.error, run.status, run.result, run.questions) == (None, RunStatus.COMPLETED, result, ())


def crew_of(*members: Any, name: str = "crew") -> Team:
    return RoundRobinGroupChat(list(members), name=name, max_turns=len(members))


# -- names ------------------------------------------------------------------------------------------------------------


async def test_member_names_that_repeat_are_refused_before_storing() -> None:
    now = app(lambda world: crew_of(world.agent("coder"), world.agent("coder")), World(script()))
    with pytest.raises(ConfigurationError, match="names must be unique") as refused:
        await now.start("Build it")
    assert "\n" not in str(refused.value)
    assert await now.list() == []


async def test_team_names_that_repeat_in_an_agent_are_refused() -> None:
    world = World(script())
    with pytest.raises(ConfigurationError, match=r"'lead'.*are called crew"):
        world.agent("lead", *(NestedTeam(crew_of(world.agent("coder"))) for _ in range(2)))


@pytest.mark.parametrize("names", [("coder", "coder"), ("crew", "coder"), ("coder", "crew"), ("crew", "crew")])
@pytest.mark.parametrize("place", some_slow(PLACES))
async def test_agents_of_one_name_get_their_own_answers(place: str, names: tuple[str, str]) -> None:
    """Also where an inner agent is called like its team."""

    def make(world: World) -> Team:
        inner = crew_of(world.agent(names[1], tools=[world.note]))
        return crew_of(world.agent(names[0]), NestedTeam(inner, name="inner"))

    asks = [ask("One?"), "First.", ask("Two?"), "Second."]
    text = dict.fromkeys(names, asks) if names[0] == names[1] else {names[0]: asks[:2], names[1]: asks[2:]}
    with script(PLACES[place].others, text) as client:
        world, put = World(client), PLACES[place].put(make)
        run = await app(put, world).start("Build it")
        run = await app(put, world).answer(run.id, {open_ids(run)[0]: "1"})
        assert run.questions[0].path == (*PLACES[place].above, "inner", names[1])
        run = await app(put, world).answer(run.id, {open_ids(run)[0]: "2"})
    completed(run, PLACES[place].result or "Second.")


# -- hand-offs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["at the root", "as an agent", "as a team", "as a tool", "two agents down"])
async def test_handoff_to_nobody_fails_and_names_the_target(place: str) -> None:
    def make(world: World) -> Team:
        members: list[ChatAgent] = [world.agent("coder", handoffs=["nobody"]), world.agent("tester")]
        return Swarm(members, name="crew", termination_condition=TextMessageTermination("tester"))

    above = {name: text[:1] for name, text in PLACES[place].others.items() if name == "lead"}
    with script(above, {"coder": [note("began"), Call("transfer_to_nobody")]}) as client:
        world = World(client)
        run = await app(PLACES[place].put(make), world).start("Build it")
    assert run.status is RunStatus.FAILED
    assert "nobody" in str(run.error)
    assert "\n" not in str(run.error)
    assert world.noted() == ["began"]


# -- questions --------------------------------------------------------------------------------------------------------

HUGE = "Which one? " * 1_000_000
"""About 10 MB."""


@pytest.mark.parametrize(
    "place",
    [*some_slow(["as an agent", "as a team", "as a tool"]), pytest.param("at the root", marks=pytest.mark.slow)],
)
@pytest.mark.slow
async def test_question_of_ten_megabytes_returns_to_its_model(place: str) -> None:
    def make(world: World) -> Team:
        return crew_of(world.agent("coder"))

    with script(PLACES[place].others, {"coder": [ask(HUGE), ask("Which one?"), "Coded."]}) as client:
        world, put = World(client), PLACES[place].put(make)
        run = await app(put, world).start("Build it")
        assert [each.question for each in run.questions] == ["Which one?"]
        completed(await app(put, world).answer(run.id, "This"), PLACES[place].result or "Coded.")
    refusal = results_in(client, system_message_of("coder"))[0]
    assert "at most 4000" in refusal
    assert len(refusal) < 500


class HandsOver(ForeignAgent):
    """A stock agent that hands off to the user with a text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, "Hands over.")
        self._text = text

    async def speak(self, messages: Sequence[BaseChatMessage]) -> BaseChatMessage | str:
        if any(isinstance(each, HandoffMessage) for each in messages):
            return "Thank you."
        return HandoffMessage(source=self.name, target="user", content=self._text)


@pytest.mark.parametrize("text", [HUGE, "", " \n", "Which one?"])
@pytest.mark.parametrize("place", some_slow(["at the root", "as an agent", "as a team", "as a tool"]))
async def test_handoff_to_the_user_is_a_readable_question(place: str, text: str) -> None:
    with script(PLACES[place].others) as client:
        world, put = World(client), PLACES[place].put(lambda world: crew_of(HandsOver("stock", text)))
        run = await app(put, world).start("Build it")
        (question,) = run.questions
        assert 0 < len(question.question) <= 4000
        completed(await app(put, world).answer(run.id, "This"), PLACES[place].result or "Thank you.")


@pytest.mark.slow
@pytest.mark.parametrize("place", some_slow(["at the root", "as an agent", "as a team", "as a tool"]))
async def test_thousand_open_questions_are_each_answered_by_id(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"Value of {number}?" for number in range(1000)]

    def make(world: World) -> Team:
        return crew_of(world.agent("coder", max_questions=1000))

    monkeypatch.setenv("UPCALL_QUESTIONS__MAX_QUESTIONS_RUN", "1000")
    text = {"coder": [Calls([ask(text) for text in texts]), "Coded."]}
    with script(PLACES[place].others, text) as client:
        world, put = World(client), PLACES[place].put(make)
        run = await app(put, world).start("Build it")
        ids = dict(zip(open_ids(run), texts, strict=True))
        assert [each.question for each in run.questions] == texts
        last = list(ids)[-1]
        run = await app(put, world).answer(run.id, {last: f"Answer to {ids[last]}"})
        assert open_ids(run) == list(ids)[:-1]
        run = await app(put, world).answer(run.id, {key: f"Answer to {ids[key]}" for key in open_ids(run)})
    completed(run, PLACES[place].result or "Coded.")
    assert results_in(client, system_message_of("coder")) == [f"Answer to {text}" for text in texts]


@pytest.mark.parametrize("place", some_slow(["at the root", "as an agent", "as a team", "as a tool"]))
async def test_options_with_equal_labels_return_to_their_model(place: str) -> None:
    asks = [ask("Which?", options=["Flask", "flask"]), ask("Which?", options=["Flask", "Django"]), "Coded."]
    with script(PLACES[place].others, {"coder": asks}) as client:
        world, put = World(client), PLACES[place].put(lambda world: crew_of(world.agent("coder")))
        run = await app(put, world).start("Build it")
        assert [option.label for option in run.questions[0].options] == ["Flask", "Django"]
        completed(await app(put, world).answer(run.id, "2"), PLACES[place].result or "Coded.")
    assert "two options have the same label: Flask, flask" in results_in(client, system_message_of("coder"))[0]


# -- a nested agent that never returns --------------------------------------------------------------------------------


class Endless(ForeignAgent):
    """A stock agent that never ends its turn, and may ignore that it is cancelled."""

    def __init__(self, name: str, *, stubborn: bool) -> None:
        super().__init__(name, "Never returns.")
        self._stubborn = stubborn

    async def speak(self, messages: Sequence[BaseChatMessage]) -> BaseChatMessage:
        for again in range(2):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if again or not self._stubborn:
                    raise
        raise AssertionError("it was cancelled more often than anybody would")


def hanging(world: World, kind: str) -> ChatAgent:
    """Return a nested agent called ``slow`` that would take for ever."""
    if kind == "ours":
        return world.agent("slow")
    if kind == "deep":
        return world.agent("slow", world.agent("slower"))
    return Endless("slow", stubborn=kind == "stock, stubborn")


SLOW = {
    "ours": {"slow": [note("did"), Hang()]},
    "deep": {"slow": [note("did"), task("slower")], "slower": [Hang()]},
    "stock": {},
    "stock, stubborn": {},
}


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.slow
async def test_nested_agent_that_never_returns_is_an_error_result(kind: str) -> None:
    def make(world: World) -> Team:
        nested = [hanging(world, kind), world.agent("quick")]
        return crew_of(world.agent("lead", *nested, nested_timeout=SOON), world.agent("tester"))

    lead = [Calls([task("slow"), task("quick")]), "Did without."]
    with script({"lead": lead, "quick": ["Quick."], "tester": ["Tested."]}, SLOW[kind]) as client:
        world = World(client)
        completed(await app(make, world).start("Build it"), "Tested.")
    slow, quick = results_in(client, system_message_of("lead"))
    assert slow.startswith("Error: slow did not finish within 0.5 seconds")
    assert quick == "Quick."


async def test_question_may_outwait_the_time_limit_of_its_agent() -> None:
    def make(world: World) -> Team:
        return crew_of(world.agent("lead", world.agent("coder"), nested_timeout=5))

    with script({"lead": [task("coder"), "Led."], "coder": [ask("Which?"), "Coded."]}) as client:
        world = World(client)
        run = await app(make, world).start("Build it")
        stored = await app(make, world).get(run.id)
        completed(await app(make, world).answer(stored.id, "This"), "Led.")
    assert results_in(client, system_message_of("lead")) == ["Coded."]


@pytest.mark.slow
async def test_agent_given_up_leaves_its_neighbours_question_open() -> None:
    def make(world: World) -> Team:
        return crew_of(world.agent("lead", world.agent("slow"), world.agent("coder"), nested_timeout=SOON))

    fields = {
        "lead": [Calls([task("slow"), task("coder")]), "Led."],
        "slow": [Hang()],
        "coder": [ask("Which?"), "Coded."],
    }
    with script(fields) as client:
        world = World(client)
        run = await app(make, world).start("Build it")
        assert run.questions[0].path == ("lead", "coder")
        completed(await app(make, world).answer(run.id, "This"), "Led.")
    assert [each[:20] for each in results_in(client, system_message_of("lead"))] == ["Error: slow did not ", "Coded."]


def test_time_limit_is_part_of_the_declarative_form() -> None:
    from autogen_ext.models.replay import ReplayChatCompletionClient

    agent = PausableAgent("lead", ReplayChatCompletionClient(["Led."]), nested_timeout=30)
    dumped = agent.dump_component()
    assert dumped.config["nested_timeout"] == 30
    assert PausableAgent.load_component(dumped).dump_component() == dumped


# -- teams that say nothing, and states that do not fit ---------------------------------------------------------------


@pytest.mark.parametrize("place", some_slow(PLACES))
async def test_team_that_ends_silently_is_a_resumable_failure(place: str) -> None:
    silent = [""]

    class Silent(HandsOver):
        async def on_messages(
            self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
        ) -> Response:
            return Response(chat_message=TextMessage(source=self.name, content=silent.pop() if silent else "Said."))

    with script(PLACES[place].others) as client:
        world, put = World(client), PLACES[place].put(lambda world: crew_of(Silent("mute", "")))
        run = await app(put, world).start("Build it")
        if run.status is RunStatus.FAILED:
            assert "stopped without a result" in str(run.error)
            run = await app(put, world).resume(run.id)
    completed(run, PLACES[place].result or "Said.")


OTHERS: dict[str, Callable[[World], Team]] = {
    "another member": lambda world: crew_of(world.agent("coder"), world.agent("painter")),
    "another kind of member": lambda world: crew_of(world.agent("coder"), HandsOver("tester", "")),
    "another kind of asker": lambda world: crew_of(NestedTeam(crew_of(world.agent("coder")), name="coder")),
    "another kind of team": lambda world: Swarm(
        [world.agent("coder"), world.agent("tester")],
        name="crew",
        termination_condition=TextMessageTermination("tester"),
    ),
}


@pytest.mark.parametrize("place", some_slow(PLACES))
@pytest.mark.parametrize("other", OTHERS)
async def test_state_that_does_not_fit_is_refused_without_loss(other: str, place: str) -> None:
    def make(world: World) -> Team:
        return crew_of(world.agent("coder"), world.agent("tester"))

    fields = {"coder": [ask("Which?"), "Coded."], "tester": ["Tested."]}
    with script(PLACES[place].others, fields) as client:
        world, put = World(client), PLACES[place].put(make)
        run = await app(put, world).start("Build it")
        with pytest.raises(TeamMismatch) as refused:
            await app(PLACES[place].put(OTHERS[other]), world).answer(run.id, "This")
        assert len(str(refused.value).splitlines()) == 1 + len(refused.value.incompatibilities)
        assert "Traceback" not in str(refused.value)
        assert await app(put, world).get(run.id) == run
        completed(await app(put, world).answer(run.id, "This"), PLACES[place].result or "Tested.")


async def test_nested_team_refuses_the_state_of_another_agent() -> None:
    world = World(script())
    crew = NestedTeam(crew_of(world.agent("coder")))
    with pytest.raises(SchemaMismatch, match="'crew' is that of another kind"):
        await crew.load_state(await world.agent("crew").save_state() | {"messages": []})
    with pytest.raises(SchemaMismatch, match="is that of another kind"):
        await crew.load_state({})


@pytest.mark.parametrize("nested", [False, True])
async def test_member_that_passes_for_the_user_is_refused(nested: bool) -> None:
    """Authority: only the user's own words confirm a risk."""
    with ScriptedModelClient([]) as client:
        team: Team = RoundRobinGroupChat([AssistantAgent("user", client)], name="crew")
        if nested:
            team = RoundRobinGroupChat([team])
        with pytest.raises(ConfigurationError, match="AssistantAgent 'user' has the name of the user proxy"):
            await Upcall(team=lambda: team, store="runs.db").start("Build it")


def raises() -> Team:
    raise KeyError("cfg")


async def coroutine() -> Team:
    raise AssertionError("nobody awaits it")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: None, "gave NoneType; it must give a team"),
        (list, "gave list; it must give a team"),
        (coroutine, "gave coroutine; it must give a team"),
        (
            lambda: PausableAgent("a", ScriptedModelClient([])),
            "a team. Say: RoundRobinGroupChat([agent], max_turns=1).",
        ),
        (raises, "The team cannot be built: KeyError: 'cfg'"),
        (lambda: RoundRobinGroupChat([]), "The team cannot be built: ValueError: At least one participant"),
    ],
)
async def test_function_that_builds_no_team_is_refused_before_storing(make: Any, expected: str) -> None:
    app = Upcall(team=make, store="runs.db")
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        await app.start("Build it")
    assert await app.list() == []


@pytest.mark.parametrize("team", [3, ["team"], RoundRobinGroupChat([PausableAgent("a", ScriptedModelClient([]))])])
def test_team_in_place_of_its_function_is_refused(team: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a function that builds a team, not "):
        Upcall(team=team)
