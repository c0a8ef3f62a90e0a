"""A run that was stored with one team continues with another: what is missing is listed, and the run stays as it is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from autogen_agentchat.agents import (
    AssistantAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    SocietyOfMindAgent,
)
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import MaxMessageTermination, TextMessageTermination
from autogen_agentchat.messages import BaseChatMessage, ToolCallRequestEvent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.tools import StaticWorkbench, ToolResult, ToolSchema, Workbench
from foreign import ForeignAgent, ForeignWorkbench
from scenario import TASK, script, upcall
from shapes import ask, system_message_of, task
from stores import change_checkpoint

from upcall import PausableAgent, Run, RunStatus, Upcall, idempotent
from upcall import ask as upcall_ask
from upcall.agents import Clarifier, NestedTeam
from upcall.agents.toolset import as_tool
from upcall.autogen.journal import find_unfinished
from upcall.errors import TeamMismatch
from upcall.runs.unknown_outcomes import RUN_AGAIN
from upcall.testing import Call, Calls, Reply, ScriptedModelClient
from upcall.testing.server import LoopbackServer

ASK = ask("Which framework?", options=["Express", "FastAPI"])
STORE = "runs.db"

Make = Callable[[], Team]


def models(**replies: Sequence[Reply]) -> ScriptedModelClient:
    """Return the model of all agents: what it says to each."""
    return ScriptedModelClient({system_message_of(name): list(text) for name, text in replies.items()})


def agent(name: str, client: ScriptedModelClient, *nested: ChatAgent | Team, **options: Any) -> PausableAgent:
    return PausableAgent(name, client, system_message=system_message_of(name), agents=nested, **options)


def stock(name: str, client: ScriptedModelClient, **options: Any) -> AssistantAgent:
    return AssistantAgent(name, client, system_message=system_message_of(name), **options)


def swarm(*members: ChatAgent) -> Team:
    """Make a swarm that ends with a text of any member."""
    stops = TextMessageTermination(members[0].name)
    for each in members[1:]:
        stops = stops | TextMessageTermination(each.name)
    return Swarm([*members], termination_condition=stops)


def row(*members: ChatAgent | Team, turns: int | None = None) -> Team:
    """Each speaks once."""
    return RoundRobinGroupChat([*members], termination_condition=MaxMessageTermination(1 + (turns or len(members))))


def rows() -> list[Any]:
    """All that is stored."""
    with closing(sqlite3.connect(STORE)) as connection, connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        return [(table, connection.execute(f"select * from {table}").fetchall()) for table in sorted(tables)]


async def begun(team: Make) -> Run:
    """Return a run that waits for the answer to its first question."""
    run = await Upcall(store=STORE, team=team).start("Build it")
    assert run.status is RunStatus.AWAITING_CLARIFICATION, run.error
    return run


async def cut_off(team: Make, caller: str) -> Run:
    """Return a run that is cut off in the tool ``deploy``, once `caller` has called something."""
    app = Upcall(store=STORE, team=team)
    events = app.start_stream("Build it")
    async for event in events:
        if isinstance(event, ToolCallRequestEvent) and event.source == caller:
            break
    (run,) = await app.list()
    while not any(each.tool == "deploy" for each in find_unfinished(await app.store.journal.read(run.id)).values()):
        await asyncio.sleep(0.01)
    await events.aclose()
    (run,) = await app.list()
    assert run.working
    return run


async def gone_on(team: Make, run: Run) -> Run:
    """Return the run, taken to its end; a call in doubt is made again."""
    app = Upcall(store=STORE, team=team)
    done = await (app.answer(run.id, "Express") if run.waiting else app.resume(run.id))
    while done.records.unknown_outcomes:
        done = await app.answer(done.id, dict.fromkeys(done.records.unknown_outcomes, RUN_AGAIN))
    assert done.status is RunStatus.COMPLETED, done.error
    return done


async def refused(team: Make, run: Run) -> list[str]:
    """Return what does not fit, a line each: reported beforehand as well as where the run is to continue, and nothing
    is changed."""
    app, before = Upcall(store=STORE, team=team), rows()
    beforehand = [str(each) for each in await app.team.check(run.id)]
    with pytest.raises(TeamMismatch) as emitted:
        await (app.answer(run.id, "Express") if run.waiting else app.resume(run.id))
    summary, *lines = str(emitted.value).splitlines()
    assert summary.startswith(f"Run {run.id} cannot continue with this team: {len(lines)} thing")
    assert lines == beforehand == [str(each) for each in emitted.value.incompatibilities]
    assert rows() == before
    assert await app.get(run.id) == run
    return lines


async def stuck(region: str) -> str:
    """Deploy to a region."""
    await asyncio.Event().wait()
    return region


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = name
    return function


async def deploy(region: str) -> str:
    """Deploy to a region."""
    return f"deployed to {region}"


named(stuck, "deploy")


class Picky(ForeignAgent):
    """An agent of somebody else's, with a state of its own making."""

    def __init__(self, name: str, form: int) -> None:
        super().__init__(name, "x")
        self._form = form

    async def speak(self, messages: Sequence[BaseChatMessage]) -> str:
        return "Picked."

    async def save_state(self) -> Mapping[str, Any]:
        return {"form": self._form, "frames": "none", "dialog": ["a"], "questions": 1}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        if state["form"] != self._form:
            raise ValueError(f"form {state['form']} is not form {self._form}")


def graph(*edges: str) -> Callable[[ScriptedModelClient], Team]:
    def make(client: ScriptedModelClient) -> Team:
        pairs = [edge.split(" > ") for edge in edges]
        made = {name: agent(name, client) for name in dict.fromkeys(name for pair in pairs for name in pair)}
        builder = DiGraphBuilder()
        for each in made.values():
            builder.add_node(each)
        for source, target in pairs:
            builder.add_edge(made[source], made[target])
        return GraphFlow(list(made.values()), graph=builder.build())

    return make


def sign() -> str:
    """Sign."""
    return f"signed as {upcall_ask('Which name?').text}"


# -- what waits -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A team whose run waits for an answer, the team of later, and the lines that refuse it."""

    wording: Mapping[str, Sequence[Reply]]
    first: Callable[[ScriptedModelClient], Team]
    later: Callable[[ScriptedModelClient], Team]
    lines: Sequence[str]


def crew(*members: ChatAgent) -> Team:
    return RoundRobinGroupChat([*members], name="crew", termination_condition=MaxMessageTermination(2))


LEAD = {"lead": [task("coder"), "Done."], "coder": [ASK, "Coded."]}
SOLO = {"solo": [ASK, "Done."]}
CREW = {"lead": [task("crew"), "Done."], "coder": [ASK, "Coded."]}
WAITS = "; it waits for the answer to question "


def lead_with(*names: str) -> Callable[[ScriptedModelClient], Team]:
    return lambda client: swarm(agent("lead", client, *(agent(name, client) for name in names)))


def deep(client: ScriptedModelClient, *, whole: bool = True) -> Team:
    helper, tester = [agent("helper", client)], [agent("tester", client)]
    coder = agent("coder", client, *(helper if whole else []))
    return swarm(agent("lead", client, coder, *(tester if whole else [])))


CHANGES = {
    "member": Change(
        SOLO,
        lambda client: swarm(agent("solo", client)),
        lambda client: swarm(agent("other", client)),
        [f"solo: the team has no such member{WAITS}"],
    ),
    "stock member": Change(
        {"solo": [Call("transfer_to_user"), "Done."]},
        lambda client: swarm(stock("solo", client, handoffs=["user"])),
        lambda client: swarm(stock("other", client)),
        [f"solo: the team has no such member{WAITS}"],
    ),
    "nested at any depth": Change(
        {
            "lead": [Calls([task("coder"), task("tester")]), "Done."],
            "coder": [task("helper"), "Coded."],
            "helper": [ASK, "Helped."],
            "tester": [ASK, "Tested."],
        },
        deep,
        partial(deep, whole=False),
        [
            "lead/coder/helper: 'coder' has no such nested agent; its",
            "lead/tester: 'lead' has no such nested agent; its",
        ],
    ),
    "behind a stock AgentTool": Change(
        LEAD,
        lambda client: swarm(agent("lead", client, tools=[AgentTool(agent("coder", client))])),
        lambda client: swarm(agent("lead", client, tools=[deploy])),
        ["lead/coder: 'lead' has no such nested agent; its call "],
    ),
    "inner team": Change(
        CREW,
        lambda client: row(crew(agent("coder", client))),
        lambda client: row(crew(agent("other", client))),
        [f"crew/coder: the team has no such member{WAITS}"],
    ),
    "member of a NestedTeam": Change(
        CREW,
        lambda client: row(NestedTeam(crew(agent("coder", client)))),
        lambda client: row(NestedTeam(crew(agent("other", client)))),
        [f"crew/coder: the team has no such member{WAITS}"],
    ),
    "member of a team in a tool": Change(
        CREW,
        lambda client: swarm(agent("lead", client, NestedTeam(crew(agent("coder", client))))),
        lambda client: swarm(agent("lead", client, NestedTeam(crew(agent("other", client))))),
        [f"lead/crew/coder: the team has no such member{WAITS}"],
    ),
    "next in the round": Change(
        {"a": [ASK, "A."], "b": ["Done."]},
        lambda client: row(agent("a", client), agent("b", client)),
        lambda client: row(agent("a", client), agent("c", client)),
        ["b: the team has no such member; it is the next to speak. Put 'b' into the team again."],
    ),
    "hand-off beside an open call": Change(
        {"a": [Calls([Call("transfer_to_b"), task("coder")])], "coder": [ASK, "Coded."], "b": ["Done."]},
        lambda client: swarm(agent("a", client, agent("coder", client), handoffs=["b"]), agent("b", client)),
        lambda client: swarm(agent("a", client, agent("coder", client)), agent("b", client)),
        ["a: it has no hand-off 'transfer_to_b'; call "],
    ),
    "tool that goes on with the answer": Change(
        {"lead": [task("coder"), "Done."], "coder": [Call("sign"), "Coded."]},
        lambda client: swarm(agent("lead", client, agent("coder", client, tools=[sign]))),
        lead_with("coder"),
        ["lead/coder: it has no tool 'sign'; call "],
    ),
    "kind of the member": Change(
        SOLO,
        lambda client: swarm(agent("solo", client)),
        lambda client: swarm(stock("solo", client)),
        [f"solo: its state was stored by another kind of agent than AssistantAgent{WAITS}"],
    ),
    "kind of the group chat": Change(
        SOLO,
        lambda client: swarm(agent("solo", client)),
        lambda client: row(agent("solo", client)),
        ["the team: the state is that of a Swarm, and this is a RoundRobinGroupChat; "],
    ),
    "kind of the nested agent, stock": Change(
        LEAD,
        lead_with("coder"),
        lambda client: swarm(agent("lead", client, stock("coder", client))),
        ["lead/coder: the stored state cannot be loaded; The stored state of agent 'coder' is that of another kind"],
    ),
    "kind of the nested agent, a team": Change(
        LEAD,
        lead_with("coder"),
        lambda client: swarm(agent("lead", client, NestedTeam(row(agent("inner", client)), name="coder"))),
        ["lead/coder: the stored state cannot be loaded; The stored state of agent 'coder' is that of another kind"],
    ),
    "edges of a graph": Change(
        {"a": [ASK, "A."], "b": ["B."], "x": ["X."], "c": ["Done."]},
        graph("a > x", "a > b", "x > c", "b > c"),
        graph("a > b", "b > c"),
        ["the team: the stored state cannot be loaded; The graph has other edges than the stored one (a -> x, x"],
    ),
    "state of another library's agent": Change(
        {"solo": [ASK, "Asked."]},
        lambda client: row(agent("solo", client), Picky("picky", 1)),
        lambda client: row(agent("solo", client), Picky("picky", 2)),
        ["the team: the stored state cannot be loaded; form 1 is not form 2. Use the team that"],
    ),
}


@pytest.mark.parametrize("changed", CHANGES)
async def test_what_waits_for_an_answer_is_missed(changed: str) -> None:
    change = CHANGES[changed]
    client = models(other=[], idle=[], **change.wording)
    run = await begun(lambda: change.first(client))
    lines = await refused(lambda: change.later(client), run)
    assert [line.startswith(begin) for line, begin in zip(lines, change.lines, strict=True)] == [True] * len(lines), (
        lines
    )
    done = await gone_on(lambda: change.first(client), run)
    assert done.status is RunStatus.COMPLETED


@pytest.mark.parametrize("nested", [False, True])
async def test_state_of_another_version_is_refused(nested: bool) -> None:
    client = models(**LEAD)
    run = await begun(lambda: lead_with("coder")(client))

    def change(state: Any) -> None:
        lead = state["team_state"]["agent_states"]["lead"]["agent_state"]
        (lead["frames"][0]["nested"] if nested else lead)["version"] = 9

    before = await change_checkpoint(STORE, run.id, change)
    (line,) = await refused(lambda: lead_with("coder")(client), run)
    assert "has format 9, and this version of upcall (0.1.0) reads formats up to 1. Continue with a later" in line
    await change_checkpoint(STORE, run.id, lambda _: before.as_json())
    assert (await gone_on(lambda: lead_with("coder")(client), run)).result == "Done."


# -- tools ------------------------------------------------------------------------------------------------------------


class Served(ForeignWorkbench):
    """A workbench whose tools only its server knows: to ask it now would be a fault."""

    asked = 0

    async def list_tools(self) -> list[ToolSchema]:
        Served.asked += 1
        return [as_tool(deploy).schema]

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> ToolResult:
        return ToolResult.model_validate(
            {"name": name, "result": [{"type": "TextResultContent", "content": "deployed"}]}
        )


def with_tools(client: ScriptedModelClient, *tools: Any, **options: Any) -> Make:
    return lambda: swarm(agent("lead", client, agent("coder", client, tools=tools, **options)))


def deploying() -> ScriptedModelClient:
    return models(
        lead=[task("coder"), "Done."], coder=[Call("deploy", {"region": "eu"}, id="call_7"), "Coded."], deploy=[]
    )


async def test_resume_misses_a_tool_whose_call_is_pending() -> None:
    client = deploying()
    run = await cut_off(with_tools(client, stuck), "coder")
    (line,) = await refused(with_tools(client), run)
    assert line == (
        "lead/coder: it has no tool 'deploy'; call call_7 to it was made, and it has no result yet. Give 'coder' a "
        "tool 'deploy' again; one that only says why it is gone is enough."
    )
    assert (await gone_on(with_tools(client, deploy), run)).result == "Done."
    assert client.requests[-2].tool_results == {"call_7": "deployed to eu"}


@pytest.mark.parametrize("workbench", [StaticWorkbench([as_tool(deploy)]), Served()], ids=["here", "served"])
async def test_tool_that_moved_is_not_missed(workbench: Workbench) -> None:
    """Into a workbench; where only a server knows what a workbench has, it is not asked beforehand."""
    client = deploying()
    run = await cut_off(with_tools(client, stuck), "coder")
    assert await Upcall(store=STORE, team=with_tools(client, workbench=workbench)).team.check(run.id) == ()
    assert Served.asked == 0
    assert (await gone_on(with_tools(client, workbench=workbench), run)).result == "Done."


async def test_resume_asks_about_calls_only_where_the_team_fits() -> None:
    client = deploying()
    run = await cut_off(with_tools(client, stuck), "coder")
    await refused(with_tools(client), run)
    asked = await Upcall(store=STORE, team=with_tools(client, stuck)).resume(run.id)
    assert asked.status is RunStatus.AWAITING_CLARIFICATION
    (question,) = asked.questions
    assert [*asked.records.unknown_outcomes] == [question.id]
    app, before = Upcall(store=STORE, team=with_tools(client)), rows()
    with pytest.raises(TeamMismatch, match="it has no tool 'deploy'"):
        await app.answer(run.id, RUN_AGAIN)
    assert rows() == before
    done = await Upcall(store=STORE, team=with_tools(client, deploy)).answer(run.id, RUN_AGAIN)
    assert (done.status, done.result) == (RunStatus.COMPLETED, "Done.")
    assert client.requests[-2].tool_results == {"call_7": "deployed to eu"}


async def test_resume_needs_the_tool_of_a_repeatable_call() -> None:
    @idempotent
    async def stuck(region: str) -> str:
        """Deploy to a region."""
        await asyncio.Event().wait()
        return region

    client = deploying()
    run = await cut_off(with_tools(client, named(stuck, "deploy")), "coder")
    (line,) = await refused(with_tools(client), run)
    assert line.startswith("lead/coder: it has no tool 'deploy'; call call_7")
    done = await Upcall(store=STORE, team=with_tools(client, deploy)).resume(run.id)
    assert (done.status, done.result) == (RunStatus.COMPLETED, "Done.")


async def test_resume_needs_nothing_for_calls_that_have_outcomes() -> None:
    async def look() -> str:
        """Look around."""
        return "seen"

    client = models(lead=[task("coder"), "Done."], coder=[Call("look", {}), Call("deploy", {"region": "eu"}), "Coded."])
    first = with_tools(client, look, stuck)
    app = Upcall(store=STORE, team=first)
    events = app.start_stream("Build it")
    async for event in events:
        if isinstance(event, ToolCallRequestEvent) and event.content[0].name == "deploy":
            break
    (run,) = await app.list()
    while not find_unfinished(await app.store.journal.read(run.id)):
        await asyncio.sleep(0.01)
    await events.aclose()
    (run,) = await app.list()

    async def relook(where: str) -> str:
        """Another tool of that name, which no longer takes the call."""
        raise AssertionError(where)

    assert (await gone_on(with_tools(client, named(relook, "look"), deploy), run)).result == "Done."


@pytest.mark.parametrize("place", ["member", "filter", "society's team", "nested", "team in a team", "nested team"])
async def test_resume_misses_calls_begun_by_stock_agents_or_teams(place: str) -> None:
    client = models(
        lead=[task("coder" if place != "nested team" else "crew"), "Done."],
        coder=[Call("deploy", {"region": "eu"}, id="call_7"), "Coded."],
        mind=["Thought."],
    )

    def team(*tools: Any, name: str = "coder") -> Make:
        def make() -> Team:
            if "team" in place:  # A stock agent that is cut off there leaves AutoGen's runtime behind.
                coder: ChatAgent = agent(name, client, tools=tools)
            else:
                coder = stock(name, client, tools=tools, reflect_on_tool_use=True)
            if place == "filter":
                return row(MessageFilterAgent("filter", coder, MessageFilterConfig(per_source=[])))
            if place == "member":
                return row(coder)
            if place == "nested":
                return swarm(agent("lead", client, coder))
            crew = RoundRobinGroupChat([coder], name="crew", termination_condition=MaxMessageTermination(2))
            if place == "society's team":
                return row(SocietyOfMindAgent("mind", crew, client, instruction=system_message_of("mind")))
            return row(crew) if place == "team in a team" else swarm(agent("lead", client, crew))

        return make

    where = {
        "nested": "lead/coder",
        "society's team": "mind/crew/coder",
        "team in a team": "crew/coder",
        "nested team": "lead/crew/coder",
    }
    at = where.get(place, "coder")
    run = await cut_off(team(as_tool(stuck)), "coder")
    (line,) = await refused(team(), run)
    assert line.startswith(f"{at}: it has no tool 'deploy'; call call_7")
    (line,) = await refused(team(as_tool(deploy), name="other"), run)
    assert line.startswith(f"{at}: ")
    assert "no such" in line
    assert (await gone_on(team(as_tool(deploy)), run)).status is RunStatus.COMPLETED


class Failing(CodeExecutor):
    """It cannot run code at first."""

    ran = 0

    async def execute_code_blocks(self, code_blocks: Sequence[CodeBlock], _: CancellationToken) -> CodeResult:
        self.ran += 1
        if self.ran == 1:
            raise RuntimeError("docker is gone")
        return CodeResult(exit_code=0, output="42")

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def restart(self) -> None: ...


@pytest.mark.filterwarnings("ignore:No approval function")
async def test_code_executor_that_failed_runs_its_code_again() -> None:
    executor = Failing()
    app = Upcall(store=STORE, team=lambda: row(CodeExecutorAgent("runner", executor)))
    run = await app.start("```python\nprint(42)\n```")
    assert run.status is RunStatus.FAILED
    assert "42" in str((await gone_on(lambda: row(CodeExecutorAgent("runner", executor)), run)).result)


async def test_agent_that_a_function_runs_is_not_missed() -> None:
    """Nobody knows of it beforehand."""
    client = models(lead=[Call("delegate", {}), "Done."], inner=[Call("deploy", {"region": "eu"}), "Inner."])

    def team(tool: Any) -> Make:
        async def delegate() -> str:
            """Let another do it."""
            result = await agent("inner", client, tools=[tool]).run(task="Deploy")
            return result.messages[-1].to_text()

        return lambda: swarm(agent("lead", client, tools=[delegate]))

    app = Upcall(store=STORE, team=team(stuck))
    events = app.start_stream("Build it")
    reading = asyncio.create_task(anext(aiter(events)))
    await reading
    (run,) = await app.list()
    while len(find_unfinished(await app.store.journal.read(run.id))) < 2:
        await asyncio.sleep(0.01)
    await events.aclose()
    (run,) = await app.list()
    assert await Upcall(store=STORE, team=team(deploy)).team.check(run.id) == ()
    assert (await gone_on(team(deploy), run)).result == "Done."


async def test_tool_of_the_clarifier_is_missed_too() -> None:
    client = ScriptedModelClient([Call("deploy", {"region": "eu"}), '{"needs_clarification": false}'])

    def team(*tools: Any) -> Make:
        return lambda: swarm(Clarifier(client, tools=tools, target="end"), agent("end", models(end=["Done."])))

    run = await cut_off(team(stuck), "clarifier")
    (line,) = await refused(team(), run)
    assert line.startswith("clarifier: it has no tool 'deploy'; call ")
    assert (await gone_on(team(deploy), run)).result == "Done."


async def test_resume_misses_a_member_in_the_middle_of_calls() -> None:
    client = models(a=[Call("transfer_to_b")], b=[Call("deploy", {"region": "eu"}, id="call_7"), "Done."], c=["C."])

    def team(*names: str, tool: Any = deploy) -> Make:
        made = {
            "a": lambda: agent("a", client, handoffs=["b"]),
            "b": lambda: agent("b", client, tools=[tool]),
            "c": lambda: agent("c", client),
        }
        return lambda: swarm(*(made[name]() for name in names))

    run = await cut_off(team("a", "b", tool=stuck), "b")
    (line,) = await refused(team("a", "c"), run)
    assert line == (
        "b: the team has no such member; call call_7 of its tool 'deploy' has no result yet. "
        "Put 'b' into the team again."
    )
    assert (await gone_on(team("a", "b", "c"), run)).result == "Done."


# -- what does not matter ---------------------------------------------------------------------------------------------


async def test_resume_allows_members_without_open_work_to_change() -> None:
    """Who is new hears what was written before it came."""
    client = models(a=["A says one."], b=["B."], c=[ASK, "C."], d=["D."], e=["E."])
    run = await begun(lambda: row(*(agent(name, client) for name in "abcd")))
    done = await gone_on(lambda: row(*(agent(name, client) for name in "ebcd"), turns=5), run)
    assert done.execution_path == ("a", "b", "c", "d", "e")
    received = str(client.requests[-1].messages)
    assert "A says one." in received
    assert "D." in received


async def test_resume_keeps_the_next_speaker_despite_changed_members() -> None:
    for later in ("bcd", "dcba", "cb"):
        client = models(a=["A."], b=[ASK, "B."], c=["C."], d=["D."])
        run = await begun(lambda client=client: row(*(agent(name, client) for name in "abcd")))
        done = await gone_on(
            lambda client=client, later=later: row(*(agent(name, client) for name in later), turns=3), run
        )
        assert done.execution_path == ("a", "b", "c")


async def test_resume_gives_a_replaced_idle_member_the_conversation() -> None:
    client = models(a=["A says one.", "A says two."], b=[ASK, "B."])
    run = await begun(lambda: selected(client, stock("a", client), agent("b", client), turns=3))
    done = await gone_on(lambda: selected(client, agent("a", client), agent("b", client), turns=3), run)
    assert done.result == "A says two."
    assert "A says one." in str(client.requests[-1].messages)


def selected(client: ScriptedModelClient, *members: ChatAgent, turns: int) -> Team:
    """Two, a and b, that speak in turn."""
    return SelectorGroupChat(
        [*members],
        model_client=client,
        selector_func=lambda thread: "b" if thread[-1].source == "a" else "a",
        termination_condition=MaxMessageTermination(1 + turns),
    )


async def test_other_prompts_descriptions_models_and_limits_do_not_matter() -> None:
    client = models(lead=[task("coder")], coder=[ASK])
    run = await begun(lambda: swarm(agent("lead", client, agent("coder", client))))
    other = ScriptedModelClient({"You lead.": ["Done."], "You code.": ["Coded."]})

    def later() -> Team:
        coder = PausableAgent(
            "coder", other, description="new", system_message="You code.", tools=[deploy], ask_user=False
        )
        return swarm(
            PausableAgent(
                "lead", other, description="new", system_message="You lead.", agents=[coder], max_rounds=5, stream=True
            )
        )

    assert (await gone_on(later, run)).result == "Done."


async def test_what_closed_calls_were_served_by_may_go() -> None:
    """Of an earlier batch and of the open one."""
    client = models(
        lead=[Call("deploy", {"region": "eu"}), Calls([task("helper"), task("coder")]), "Done."],
        coder=[ASK, "Coded."],
        helper=["Helped."],
    )
    run = await begun(
        lambda: swarm(agent("lead", client, agent("coder", client), agent("helper", client), tools=[deploy]))
    )
    assert (await gone_on(lambda: swarm(agent("lead", client, agent("coder", client))), run)).result == "Done."


async def test_run_that_is_over_is_not_checked() -> None:
    client = models(solo=["Done."], other=[])
    done = await Upcall(store=STORE, team=lambda: swarm(agent("solo", client))).start("Build it")
    assert await Upcall(store=STORE, team=lambda: swarm(agent("other", client))).team.check(done.id) == ()


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_command_line_prints_the_list_and_changes_nothing(as_json: bool) -> None:
    """The root team of another version, in which the lead had an engineer."""
    with LoopbackServer(script()) as server:
        options = ("--model", "scripted", "--base-url", server.base_url, "--store", STORE)
        run_id = upcall("run", TASK, "--detach", "--json", *options).json["run_id"]

        def by_engineer(state: Any) -> None:
            state["team_state"]["agent_states"]["lead"]["agent_state"]["frames"][0]["call"]["name"] = "engineer"

        stored = asyncio.run(change_checkpoint(STORE, run_id, by_engineer))
        before = rows()
        ended = upcall("answer", run_id, "Express", *options, *(["--json"] if as_json else []))
        assert rows() == before
        asyncio.run(change_checkpoint(STORE, run_id, lambda _: stored.as_json()))
        done = upcall("answer", run_id, "Express", "--json", *options)
    assert ended.status == 1
    summary = f"Run {run_id} cannot continue with this team: 1 thing does not fit. The run was left unchanged."
    line = "lead/engineer: 'lead' has no such nested agent; its call call_"
    if as_json:
        assert ended.json["error"].splitlines()[0] == summary
        assert ended.json["error"].splitlines()[1].startswith(line)
    assert ended.error == f"error: {summary}"
    emitted = " ".join(ended.err.split())
    assert line in emitted
    assert "Give 'lead' a nested agent 'engineer' again." in emitted
    assert (done.status, done.json["status"]) == (0, "completed")
