"""What the workers do: teams that nest, work in parallel and ask; what their model says; what their human answers.

A model's reply depends on the request alone (who asks, and how many replies it has got), so that any process gets the
same one. Every call's id, every text and every tool result carries a token that says which it is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, Swarm
from autogen_core.models import ChatCompletionClient

from killing.points import Points
from upcall.agents import NestedTeam, PausableAgent
from upcall.autogen.tool_calls import idempotency_key, idempotent
from upcall.errors import UserInputRequired
from upcall.execution.demo import demo_reply
from upcall.runs.outputs import AmbiguityCheck, ClarificationResponse, Classification, Depth, Intent
from upcall.runs.plan import Plan, PlanStep
from upcall.runs.reports import Report
from upcall.testing import Call, Calls, Reply, Request, Say
from upcall.workspace.reports import CodingReport

Step: TypeAlias = Sequence[Call] | str
"""A batch of calls, or the text that ends a turn."""

IDEMPOTENT = ("look", "book")
"""Tools that are declared idempotent."""
TOOLS = (*IDEMPOTENT, "note", "stamp", "stumble", "sign")
"""The tools of `World`; their argument is the token of their call."""


def call(name: str, **arguments: Any) -> Call:
    """Return a call; a tool of `World` gets its token as its argument when the reply is sent."""
    return Call(name, arguments)


def ask(question: str) -> list[Call]:
    """Return a question to the user."""
    return [call("ask_user", question=question)]


def work(agent: str, part: str) -> Call:
    """Work for a nested agent, which plays a part of this name in the script."""
    return call(agent, task=f"Work as {part}")


@dataclass(frozen=True)
class World:
    """What a team is made with: the model, and tools that leave a line in a file each time they run."""

    client: ChatCompletionClient
    points: Points

    async def note(self, text: str) -> str:
        """Take a note. To take it twice would be wrong."""
        self._before("note", text)
        asyncio.get_running_loop().call_soon(self.points.reach, f"tool {text} after")
        return f"R={text}"

    def stamp(self, text: str) -> str:
        """Stamp a paper: not async, so that it runs in a thread. To stamp it twice would be wrong."""
        self._before("stamp", text)
        return f"R={text}"

    async def stumble(self, text: str) -> str:
        """Fail after all was done."""
        self._before("stumble", text)
        raise ValueError(f"R={text}")

    @idempotent
    def look(self, text: str) -> str:
        """Look something up: declared idempotent, since nothing is done by it."""
        self.points.reach(f"tool {text} before")
        self.points.reach(f"tool {text} middle")
        return f"R={text}"

    @idempotent
    async def book(self, text: str) -> str:
        """Book something with a service that does a thing once for each idempotency key: declared idempotent."""
        key = "/".join(idempotency_key().split("/")[1:])  # Without the run's id.
        self.points.reach(f"tool {text} before")
        if not self.points.has(f"book {text} {key}"):
            self.points.effect("book", f"{text} {key}")
        self.points.reach(f"tool {text} middle")
        return f"R={text}"

    def sign(self, text: str) -> str:
        """Have the user sign: a function tool that asks."""
        self.points.reach(f"tool {text} before")
        raise UserInputRequired("Will you sign?")

    def _before(self, tool: str, text: str) -> None:
        self.points.reach(f"tool {text} before")
        self.points.effect(tool, text)
        self.points.reach(f"tool {text} middle")

    def tools(self) -> list[Callable[..., Any]]:
        """Return the tools that an agent of any kind can use."""
        return [self.note, self.stamp, self.stumble, self.look, self.book]

    def agent(self, name: str, *nested: ChatAgent | Team, **options: Any) -> PausableAgent:
        """One of our agents, with all tools."""
        options = {"tools": [*self.tools(), self.sign], **options}
        text = f"You are the {name}."
        return PausableAgent(name, self.client, description=name, system_message=text, agents=nested, **options)

    def stock(self, name: str, **options: Any) -> AssistantAgent:
        """One of AutoGen's agents, with all tools."""
        options = {"tools": self.tools(), "max_tool_iterations": 5, **options}
        return AssistantAgent(name, self.client, system_message=f"You are the {name}.", **options)


@dataclass(frozen=True)
class Scenario:
    """A team, what its members say, and what the human answers.

    ``answers`` are found by words of the question, the first one that fits; with ``one_by_one`` the human answers one
    open question at a time. ``in_turn`` names those who act one after the other: what one of them does shows that the
    ones before it are done. With ``branches``, the turns of the outermost agents have no order; ``timed`` are those who
    are given more or less of the others, depending on when an answer comes. Without ``make`` it is the root team, with
    ``root_reply`` as its model.
    """

    answers: Mapping[str, str]
    script: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    make: Callable[[World], Team] | None = None
    root_reply: Callable[[str, Request], Reply] | None = None
    in_turn: Sequence[str] = ()
    branches: bool = False
    timed: Sequence[str] = ()
    one_by_one: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    task: str = "Build it"

    def answer_to(self, question: str) -> str | None:
        """Return what the human says, None to a question that is not of the scenario (about a call in doubt)."""
        return next((text for words, text in self.answers.items() if words in question), None)

    def idempotent(self, token: str) -> bool:
        """Whether the tool that this call is of was declared to be idempotent."""
        agent, number, place = token.split(":")
        step = self.script.get(agent, ())
        batch = step[int(number) - 1] if step else ""
        return not isinstance(batch, str) and batch[int(place) - 1].name in IDEMPOTENT

    def reply(self, token: str, request: Request) -> Reply:
        """Return the reply that `token` names."""
        if self.root_reply is not None:
            return _with_tokens(token, self.root_reply(token, request))
        agent, number = token.split(":")
        step = self.script[agent][int(number) - 1]
        return _with_tokens(token, step if isinstance(step, str) else Calls(step))


def _with_tokens(token: str, reply: Reply) -> Reply:
    """Return the reply with its token in its text or in the ids of its calls."""
    if isinstance(reply, str):
        return f"{reply} {token}"
    if isinstance(reply, Call):
        reply = Calls([reply])
    if not isinstance(reply, Calls):
        return reply
    made = []
    for number, each in enumerate(reply.calls, start=1):
        own = f"{token}:{number}"
        made.append(Call(each.name, _arguments(each, own), id=own))
    return Calls(made, reply.thought)


def _arguments(call: Call, token: str) -> dict[str, Any]:
    assert not isinstance(call.arguments, str)
    if call.name in TOOLS:
        return {"text": token}
    more = {"task": f"{call.arguments['task']} ({token})"} if "task" in call.arguments else {}
    return {**call.arguments, **more}


STOCK = ("opener", "checker", "closer")
"""AutoGen's agents: what a tool raises stands in their context as it is, and in ours behind "Error: "."""


def result_of(effect: str, agent: str) -> str:
    """Return what a call came to, by the line that it left and the agent that made it, as the agent's model reads
    it."""
    tool, token = effect.split()[:2]
    return f"Error: R={token}" if tool == "stumble" and agent not in STOCK else f"R={token}"


# -- teams ------------------------------------------------------------------------------------------------------------

LOOK, BOOK, NOTE, STAMP, STUMBLE, SIGN = map(call, TOOLS)


def nested(world: World) -> Team:
    """Return a lead with a coder that it calls twice at once, and a desk with a clerk in it."""
    desk = world.agent("desk", world.agent("clerk"))
    return RoundRobinGroupChat([world.agent("lead", world.agent("coder"), desk)], max_turns=1)


def streamed(world: World) -> Team:
    """As `nested`, with replies that are streamed."""
    coder = world.agent("coder", stream=True)
    return RoundRobinGroupChat([world.agent("lead", coder, stream=True)], max_turns=1)


def round_robin(world: World) -> Team:
    """Stock agents before and after one of ours."""
    return RoundRobinGroupChat([world.stock("opener"), world.agent("coder"), world.stock("closer")], max_turns=3)


def swarm(world: World) -> Team:
    """Make a stock agent that hands off to one of ours, which hands back."""
    members: list[ChatAgent] = [world.stock("opener", handoffs=["coder"]), world.agent("coder", handoffs=["opener"])]
    return Swarm(members, termination_condition=TextMessageTermination("opener"))


def graph(world: World) -> Team:
    """Return a fan-out to one of ours and a stock agent, joined by another of ours."""
    start, coder = world.stock("opener"), world.agent("coder")
    checker, end = world.stock("checker"), world.agent("closer")
    builder = DiGraphBuilder().add_node(start).add_node(coder).add_node(checker).add_node(end)
    builder.add_edge(start, coder).add_edge(start, checker).add_edge(coder, end).add_edge(checker, end)
    return GraphFlow([start, coder, checker, end], builder.build())


def team_in_agent(world: World) -> Team:
    """Return a lead with a coder and a whole team at once; the team has one of ours and a stock agent."""
    crew = RoundRobinGroupChat([world.agent("writer"), world.stock("checker")], max_turns=2)
    agents: list[ChatAgent] = [world.agent("coder"), NestedTeam(crew, name="crew")]
    return RoundRobinGroupChat([world.agent("lead", *agents)], max_turns=1)


CODER: list[Step] = [[NOTE], ask("Which framework?"), [NOTE, STUMBLE], "Coded."]
CHECKER: list[Step] = [[NOTE], [LOOK, STAMP, BOOK], [STUMBLE], "Checked."]
SIDES: Mapping[str, Sequence[Step]] = {
    "left": [[NOTE], ask("Which browser?"), [NOTE, STAMP], "Left."],
    "right": [[STAMP, NOTE, LOOK], [BOOK], ask("How many rows?"), [NOTE], "Right."],
}
BOTH_SIDES = [work("coder", "left"), work("coder", "right"), NOTE]
FRAMEWORK = {"Which framework?": "Express"}
SIDES_ANSWERS = {"Which browser?": "Firefox", "How many rows?": "12"}

# -- the root team ----------------------------------------------------------------------------------------------------

_CHAIN = ("classifier", "clarifier", "check", "planner", "lead")
_PLAN = Plan(title="Log in", sections=("Login",), steps=(PlanStep(step_id="1", description="Write it", name="coder"),))
_CHAIN_SAYS: Mapping[str, Any] = {
    "classifier": Classification(intent=Intent.CODING, research_depth=Depth.DEEP),
    "clarifier": ClarificationResponse(needs_clarification=False),
    "check": AmbiguityCheck(needs_clarification=False),
    "planner": _PLAN,
}
_ROOT: Mapping[str, Sequence[Reply]] = {
    "lead": [Calls([work("coder", "left"), work("researcher", "right")]), Say(Report(summary="All done."))],
    "left": [
        Call("list_files"),
        ask("Which framework?")[0],
        Call("write_file", {"path": "auth.js", "content": "// Express\n"}),
        Say(CodingReport(summary="Written (left:4).", files=("auth.js",))),
    ],
    "right": [
        Calls([NOTE, STAMP]),
        ask("How many rows?")[0],
        NOTE,
        Say(Report(summary="Researched (right:4).")),
    ],
}


def _root(token: str, request: Request) -> Reply:
    """Coder and researcher at once; both ask."""
    agent, number = token.split(":")
    return Say(_CHAIN_SAYS[agent]) if agent in _CHAIN_SAYS else _ROOT[agent][int(number) - 1]


def _root_asks(token: str, request: Request) -> Reply:
    """Clarifier, planner and lead ask; the plan is sent back once; then as `_root`."""
    agent, text = token.partition(":")[0], str(request.messages)
    match agent:
        case "clarifier" if "Small" not in text:
            return Say({"needs_clarification": True, "clarification_question": f"How large? ({token})"})
        case "check" if "SQLite" not in text:
            aspect = {"aspect": "store", "description": "", "clarification_question": f"Which store? ({token})"}
            return Say({"needs_clarification": True, "ambiguity_details": [aspect]})
        case "planner":
            title = f"Log in {'with sessions' if 'Use sessions' in text else 'somehow'} ({token})"
            return Say(_PLAN.model_copy(update={"title": title}))
    return _root(token, request)


def _demo(token: str, request: Request) -> Reply:
    """Return the demo of the library, its reports with their tokens."""
    reply = demo_reply(request)
    if isinstance(reply, Say) and re.match("(lead|coder)", token):
        assert isinstance(reply.content, Report)
        return Say(reply.content.model_copy(update={"summary": f"{reply.content.summary} ({token})"}))
    return reply


SCENARIOS: Mapping[str, Scenario] = {
    "small": Scenario(
        FRAMEWORK,
        {"lead": [[work("coder", "coder"), NOTE], "Done."], "coder": [[STAMP], ask("Which framework?"), "Coded."]},
        streamed,
    ),
    "nested": Scenario(
        SIDES_ANSWERS | {"Which drawer?": "The top one", "Will you sign?": "Signed"},
        {
            "lead": [BOTH_SIDES, [NOTE], [work("desk", "desk")], "All done."],
            **SIDES,
            "desk": [[work("clerk", "clerk"), STAMP], "Filed."],
            "clerk": [ask("Which drawer?"), [NOTE], [SIGN], [NOTE], "Put away."],
        },
        nested,
    ),
    "streamed": Scenario(SIDES_ANSWERS, {"lead": [BOTH_SIDES, "All done."], **SIDES}, streamed),
    "round robin": Scenario(FRAMEWORK, {"opener": CHECKER, "coder": CODER, "closer": CHECKER}, round_robin),
    "swarm": Scenario(
        FRAMEWORK,
        {
            "opener": [[NOTE], [call("transfer_to_coder")], [STAMP], "All done."],
            "coder": [[NOTE], ask("Which framework?"), [STAMP], [call("transfer_to_opener")]],
        },
        swarm,
    ),
    "graph": Scenario(
        FRAMEWORK,
        {"opener": [[NOTE], "Go."], "coder": CODER, "checker": CHECKER, "closer": [[NOTE], "Done."]},
        graph,
        branches=True,
        timed=["coder"],
    ),
    "team in agent": Scenario(
        FRAMEWORK | {"Which style?": "Plain"},
        {
            "lead": [[work("coder", "coder"), call("crew", task="Write")], [NOTE], "All done."],
            "coder": CODER,
            "writer": [[NOTE], ask("Which style?"), [NOTE], "Written."],
            "checker": CHECKER,
        },
        team_in_agent,
        one_by_one=True,
    ),
    "root team": Scenario(FRAMEWORK | {"How many rows?": "12"}, root_reply=_root, in_turn=_CHAIN),
    "root team that asks": Scenario(
        {
            "How large?": "Small",
            "Which store?": "SQLite",
            "Log in with sessions": "approve",
            "Log in somehow": "Use sessions",
            **FRAMEWORK,
            "How many rows?": "12",
        },
        root_reply=_root_asks,
        in_turn=_CHAIN,
        settings={"planning": {"enable_plan_approval": True}},
    ),
    "demo": Scenario(FRAMEWORK, root_reply=_demo, in_turn=_CHAIN, task="Build me a user authentication system"),
}


def workspace(folder: Path) -> Path:
    """Where the root team's coder writes."""
    return folder / "work"
