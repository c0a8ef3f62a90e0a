"""Whether a stored run fits the team that is to go on with it: what its open work needs is there, and as it was.

Open is what its last rest waits for, and each tool call that the journal has begun since and has no outcome of.

What does not matter to the rest of the run does not count. So that AutoGen takes the state then, it is fitted to the
team: who is new, or is of another kind and has nothing open, begins with what was said so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from autogen_agentchat.agents import (
    AssistantAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_agentchat.state import ChatAgentContainerState
from autogen_agentchat.teams import BaseGroupChat
from autogen_core.tools import BaseTool, Workbench
from pydantic import ValidationError

from upcall.agents.nested_team import NestedTeam
from upcall.agents.resumable import STATE_VERSION, ResumableAgent
from upcall.agents.tool_loop.turn import Frame
from upcall.agents.toolset import Toolset
from upcall.autogen.group_chats import InnerTeam, PendingQuestions, can_inspect, graph_of, manager_of, members
from upcall.autogen.internals import assistant_parts, is_static, parts_of, static_tools
from upcall.autogen.journal import find_unfinished
from upcall.autogen.messages import extract_questions
from upcall.autogen.recording import EXECUTE_CODE, JournaledTool, JournaledWorkbench
from upcall.autogen.workbenches import FileWorkbench
from upcall.errors import SchemaMismatch, TeamMismatch
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.journal_records import ToolRecord
from upcall.text import first_line

State: TypeAlias = Mapping[str, Any]
MemberPath: TypeAlias = tuple[str, ...]
Tools: TypeAlias = Mapping[str, BaseTool[Any, Any] | None]
"""What can be called, by name, with the tool where it is in this process."""

_NOTHING: Mapping[str, str] = MappingProxyType({})

_CHATS = {
    "SwarmGroupChatManager": "Swarm",
    "RoundRobinGroupChatManager": "RoundRobinGroupChat",
    "SelectorGroupChatManager": "SelectorGroupChat",
    "GraphManager": "GraphFlow",
    "MagenticOneOrchestrator": "MagenticOneGroupChat",
}
"""What the managers of AutoGen's group chats are called in a state (0.7.5), and their teams."""

_SAID = ("TextMessage", "MultiModalMessage", "StopMessage", "ToolCallSummaryMessage", "HandoffMessage")
"""The types of messages that members hear from each other, beside structured ones; the rest are events."""

_STOCK = (AssistantAgent, CodeExecutorAgent, MessageFilterAgent, SocietyOfMindAgent, UserProxyAgent)
"""The agents of AutoGen whose inner agents are known, if they have any; a subclass may have more."""

_HAND_OFF = "transfer_to_"
"""How AutoGen names the tools of hand-offs that have no name of their own."""


@dataclass(frozen=True)
class Incompatibility:
    """One thing that the rest of a run needs and that the team does not have as it was.

    Attributes:
        path: the names from the outermost agent down to where it is missed; empty for the team itself.
        what: what is missing or was changed.
        why: why it matters.
        remedy: what to do.
    """

    path: MemberPath
    what: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{'/'.join(self.path) or 'the team'}: {self.what}; {self.why}. {self.remedy}"


async def adapt_checkpoint(
    team: Team,
    run_id: str,
    checkpoint: Checkpoint,
    records: Mapping[str, str] = _NOTHING,
    user_proxy: str = "user",
) -> Checkpoint:
    """The checkpoint as `team`, which was just built, can go on with it; the team has loaded it then. `records` are the
    journal of what was done since.

    Raises:
        TeamMismatch: the run cannot go on with this team; it lists all that does not fit.
        SchemaMismatch: a record was written by another version of upcall.
    """
    fitting, begun, state = _Fitting(), [*find_unfinished(records).values()], checkpoint.team_state
    try:
        if state is not None:
            state = dict(await fitting.team(team, state, (), user_proxy))
        await fitting.begun(team, begun)
        if state is not None and not fitting.incompatibilities:
            await team.load_state(state)
    except Exception as error:  # A team may raise anything at a state that is not its own.
        raise TeamMismatch(run_id, [*fitting.incompatibilities, _not_loaded(error)]) from error
    if fitting.incompatibilities:
        raise TeamMismatch(run_id, fitting.incompatibilities)
    return checkpoint.model_copy(update={"team_state": state})


async def find_incompatibilities(
    team: Team, checkpoint: Checkpoint, records: Mapping[str, str] = _NOTHING, user_proxy: str = "user"
) -> Sequence[Incompatibility]:
    """What does not fit; nothing where the run can go on with `team`, which was built for this look alone."""
    try:
        await adapt_checkpoint(team, "", checkpoint, records, user_proxy)
    except TeamMismatch as found:
        return found.misfits
    return ()


def _not_loaded(error: Exception) -> Incompatibility:
    return Incompatibility(
        (), "the stored state cannot be loaded", first_line(error), "Go on with the team that the run was stored with."
    )


@dataclass(frozen=True)
class _Chat:
    """The stored state of an AutoGen group chat."""

    state: State
    user_proxy: str

    @cached_property
    def manager(self) -> str:
        """The name of its manager; empty where it is the state of something else."""
        return next((name for name, each in self._states.items() if "message_thread" in each), "")

    @cached_property
    def managed(self) -> State:
        """The state of its manager."""
        return self._states[self.manager]

    @cached_property
    def members(self) -> Mapping[str, State]:
        """The states of its members, by name, in their order: the agent's, and the messages it has not taken in."""
        return {name: each for name, each in self._states.items() if name != self.manager}

    @property
    def _states(self) -> Mapping[str, State]:
        states: Mapping[str, State] = self.state.get("agent_states", {})
        return states

    @property
    def thread(self) -> Sequence[State]:
        """What was said, oldest first, as dumped messages."""
        thread: Sequence[State] = self.managed["message_thread"]
        return thread

    @cached_property
    def waiting(self) -> PendingQuestions:
        """Who waits for what. Only who said it counts in a message that is no hand-off."""
        speakers = {*_speakers(self.state), self.user_proxy}
        texts = {name: TextMessage(source=name, content="") for name in speakers}
        thread = [
            HandoffMessage.model_validate(message) if message["type"] == "HandoffMessage" else texts[message["source"]]
            for message in filter(_was_said, self.thread)
            if message["source"] in speakers
        ]
        return PendingQuestions.in_thread(thread, [*self.members], self.user_proxy)

    @cached_property
    def needed(self) -> Mapping[str, str]:
        """The members that the rest of the run needs in any case, by name, and why."""
        why: dict[str, str] = {}
        for question in self.waiting.questions.values():
            why.setdefault(question.path[0], f"it waits for the answer to question {question.id}")
        for name in self._next(bool(why)):
            why.setdefault(name, "it is the next to speak")
        return why

    def _next(self, others_first: bool) -> Sequence[str]:
        """Who speaks next, where the state says so: in the end of a `Swarm` that is who the turn was handed to last."""
        if self.next_in_round is not None:
            return [self.next_in_round]
        if "current_speaker" in self.managed and not others_first:
            targets = [each["target"] for each in self.thread if each["type"] == "HandoffMessage"]
            return [targets[-1] if targets else self.managed["current_speaker"]]
        return [*self.managed.get("ready", ())]

    @property
    def next_in_round(self) -> str | None:
        """Who comes next in a `RoundRobinGroupChat`; None in any other."""
        place = self.managed.get("next_speaker_index")
        return [*self.members][place] if isinstance(place, int) and place < len(self.members) else None

    @property
    def done(self) -> set[str]:
        """Who has ended a turn and has no other: the nodes of a `GraphFlow` without loops that need not run again."""
        said = [each for each in filter(_was_said, self.thread) if each["type"] != "HandoffMessage"]
        handed = [HandoffMessage.model_validate(each) for each in self.thread if each["type"] == "HandoffMessage"]
        ended = {each.source for each in handed if not extract_questions(each, self.user_proxy)}
        return ({each["source"] for each in said} | ended) - self.needed.keys()


@dataclass(frozen=True)
class _Call:
    """A tool call that is to be made again by the agent at ``path``, and ``why``."""

    tool: str
    id: str
    arguments: Mapping[str, Any]
    path: MemberPath
    why: str


@dataclass(frozen=True)
class _Callable:
    """The tools that an agent can call; ``all_known`` where it has no others."""

    tools: Tools
    all_known: bool


@dataclass
class _Fitting:
    """One look at a stored state, from the outermost team down: collects what does not fit, and gives the state as the
    team can load it."""

    incompatibilities: list[Incompatibility] = field(default_factory=list)

    def _miss(self, path: MemberPath, what: str, why: str, remedy: str) -> None:
        """Once for each thing: what a rest waits for may have gone on since."""
        if not any(each.path == path and each.what == what for each in self.incompatibilities):
            self.incompatibilities.append(Incompatibility(path, what, why, remedy))

    def _miss_member(self, path: MemberPath, why: str) -> None:
        self._miss(path, "the team has no such member", why, f"Put {path[-1]!r} into the team again.")

    def _miss_nested(self, path: MemberPath, why: str) -> None:
        above, name = path[-2:]
        self._miss(path, f"{above!r} has no such nested agent", why, f"Give {above!r} a nested agent {name!r} again.")

    # -- teams --------------------------------------------------------------------------------------------------------

    async def team(self, team: Team, state: State, path: MemberPath, user_proxy: str) -> State:
        """A team's state; that of a team which is no group chat of AutoGen's as it is: it must judge itself."""
        here, chat = members(team), _Chat(state, user_proxy)
        if here is None or not chat.manager:
            return state
        if chat.manager != manager_of(team):
            stored, given = _chat_kind(chat.manager), _chat_kind(manager_of(team))
            self._miss(
                path,
                f"the state is that of a {stored}, and this is a {given}",
                f"who speaks next is stored in the way of a {stored}",
                f"Make it a {stored} again.",
            )
            return state
        for name, why in chat.needed.items():
            if name not in here and name != user_proxy:
                self._miss_member((*path, name), why)
        taken = {name: await self._member(each, name, chat, path) for name, each in here.items()}
        states = {**chat.members, **taken, chat.manager: self._manager(team, chat, [*here], path)}
        return {**state, "agent_states": {name: _readable(team, each) for name, each in states.items()}}

    async def _member(self, member: ChatAgent | Team, name: str, chat: _Chat, path: MemberPath) -> State:
        stored = chat.members.get(name)
        if stored is None:
            return await _new(member, chat)
        state = stored.get("agent_state", {})
        problem = await _unreadable(member, state)
        if problem is None:
            return {**stored, "agent_state": await self.agent(member, state, (*path, name), chat.user_proxy)}
        if await _is_blank(member, state):
            return {**stored, "agent_state": await member.save_state()}
        if problem.another_kind and name not in chat.needed:
            return await _new(member, chat)
        why = chat.needed.get(name, "what it knows of the run is in that state")
        self._miss((*path, name), problem.what, why, problem.remedy)
        return stored

    def _manager(self, team: Team, chat: _Chat, here: Sequence[str], path: MemberPath) -> State:
        """The manager's state, with what it says of its members said of those of now."""
        state = chat.managed
        if chat.next_in_round is not None:
            order = [*chat.members]
            place = order.index(chat.next_in_round)
            left = [name for name in (*order[place:], *order[:place]) if name in here]
            return {**state, "next_speaker_index": here.index(left[0]) if left else 0}
        if graph_of(team) is not None and "remaining" in state:
            return self._graph(team, chat, path)
        return state

    def _graph(self, team: Team, chat: _Chat, path: MemberPath) -> State:
        """What a `GraphFlow` still waits for, node by node. Of a changed graph this must be what it waits for in the
        graph of now, or nodes would never run."""
        graph, state = graph_of(team), chat.managed
        assert graph is not None
        fresh = graph.get_remaining_map()
        same = fresh.keys() == state["remaining"].keys() and all(
            fresh[node].keys() == groups.keys() for node, groups in state["remaining"].items()
        )
        if same and chat.members.keys() == graph.nodes.keys():
            return state
        remedy = "Resume it with the graph that the run was stored with."
        if graph.get_has_cycles():
            self._miss(path, "the graph has other nodes or edges", "what it waits for in its loops is stored", remedy)
            return state
        remaining: dict[str, dict[str, int]] = {}
        for node, groups in fresh.items():
            remaining[node] = {}
            for group in groups:
                edges = [
                    (name, edge)
                    for name, each in graph.nodes.items()
                    for edge in each.edges
                    if edge.target == node and edge.activation_group == group
                ]
                to_come = sum(name not in chat.done for name, _ in edges)
                passed_by = sum(name in chat.done and edge.condition is not None for name, edge in edges)
                waits = state["remaining"].get(node, {}).get(group, to_come)
                remaining[node][group] = waits
                every = any(edge.activation_condition == "all" for _, edge in edges)
                if every and node not in chat.done and not to_come <= waits <= to_come + passed_by:
                    self._miss(
                        (*path, node),
                        "the graph has other edges to it",
                        f"it waits for {waits} more to finish, and in this graph for {to_come}",
                        remedy,
                    )
        stored = state["enqueued_any"]
        enqueued = {
            node: {group: stored.get(node, {}).get(group, False) for group in groups} for node, groups in fresh.items()
        }
        return {**state, "remaining": remaining, "enqueued_any": enqueued}

    # -- agents -------------------------------------------------------------------------------------------------------

    async def agent(self, agent: ChatAgent | Team, state: State, path: MemberPath, user_proxy: str) -> State:
        """The state of an agent, or of a team that is a member of another."""
        if isinstance(agent, Team):
            return await self.team(agent, state, path, user_proxy)
        if isinstance(agent, NestedTeam):
            inner = state.get("team")
            return state if inner is None else {**state, "team": await self.team(agent.team, inner, path, user_proxy)}
        toolset = getattr(agent, "toolset", None)
        if not isinstance(toolset, Toolset):
            return state
        if "context" in state:  # The clarifier's, with the calls of its own tools.
            frames = await self._frames(toolset, state["context"].get("frames", ()), path, user_proxy)
            return {**state, "context": {**state["context"], "frames": frames}}
        return {**state, "frames": await self._frames(toolset, state.get("frames", ()), path, user_proxy)}

    async def _frames(
        self, toolset: Toolset, frames: Sequence[State], path: MemberPath, user_proxy: str
    ) -> list[State]:
        return [await self._frame(toolset, each, path, user_proxy) for each in frames]

    async def _frame(self, toolset: Toolset, state: State, path: MemberPath, user_proxy: str) -> State:
        """A call of the open batch. One that waits for an answer needs nothing else, but where the answer is for its
        tool, which is called again with it."""
        frame = Frame.model_validate(state)
        name = frame.call.name
        if frame.nested is not None:
            return {**state, "nested": await self._nested(toolset, frame, path, user_proxy)}
        if any(question.tool for question in frame.questions):
            what = "a secret" if any(question.secret for question in frame.questions) else "an answer"
            waits = _Call(name, frame.call.id, frame.arguments(), path, f"it waits for {what}")
            self._miss_tool(waits, await _callable(toolset))
        handed_over = frame.result is not None and not frame.result.is_error and name.startswith(_HAND_OFF)
        if handed_over and name not in (await _callable(toolset)).tools:
            self._miss(
                path,
                f"it has no hand-off {name!r}",
                f"call {frame.call.id} handed the turn over with it",
                "Give it that hand-off again.",
            )
        return state

    async def _nested(self, toolset: Toolset, frame: Frame, path: MemberPath, user_proxy: str) -> State:
        assert frame.nested is not None
        name, agent = frame.call.name, toolset.nested.get(frame.call.name)
        asked = ", ".join(question.id for question in frame.questions)
        why = f"its call {frame.call.id} waits for the answer to question {asked}"
        if agent is None:
            self._miss_nested((*path, name), why)
            return frame.nested
        problem = await _unreadable(agent, frame.nested)
        if problem is None and isinstance(agent, ResumableAgent):
            try:
                await agent.fresh().load_state(frame.nested)
            except SchemaMismatch as error:
                problem = _Unreadable(first_line(error), "Resume the run with the agent that stored it.")
        if problem is not None:
            self._miss((*path, name), problem.what, why, problem.remedy)
            return frame.nested
        return await self.agent(agent, frame.nested, (*path, name), user_proxy)

    # -- the journal --------------------------------------------------------------------------------------------------

    async def begun(self, team: Team, records: Sequence[ToolRecord]) -> None:
        """The calls that were begun and have no outcome: who made one is there, and can make it again."""
        here = members(team)
        if here is None:
            return
        for record in records:
            level = _working([*here.values()])
            for depth, name in enumerate(record.path):
                found = [each for each in level if getattr(each, "name", None) == name]
                if not found:
                    self._miss_maker(record, depth, level, records)
                    break
                if depth + 1 == len(record.path):
                    made = _Call(
                        record.tool, record.calls[-1], json.loads(record.arguments), record.path, "it has no result yet"
                    )
                    self._miss_tool(made, *[await _callable(each) for each in found])
                level = _working([inner for each in found for inner in _below(each)])

    def _miss_maker(
        self, record: ToolRecord, depth: int, level: Sequence[object], records: Sequence[ToolRecord]
    ) -> None:
        """Nobody in `level` has the name in a record's path, unless it works out of sight: in an agent of somebody
        else's, or in a function that was begun as well."""
        names = {getattr(each, "name", None) for each in level}
        above, calls = record.path[:depth], record.calls[:depth]
        in_tool = any(
            each.path[:-1] == above and each.calls[:-1] == calls and each.path[-1] in names for each in records
        )
        if in_tool or any(map(_is_opaque, level)):
            return
        path = record.path[: depth + 1]
        why = f"call {record.calls[-1]} of its tool {record.tool!r} has no result yet"
        if depth + 1 < len(record.path):
            why = f"its call {record.calls[depth]} is not finished"
        if calls and calls[-1]:
            self._miss_nested(path, why)
        else:  # A team calls its members without a tool call.
            self._miss_member(path, why)

    # -- tools --------------------------------------------------------------------------------------------------------

    def _miss_tool(self, call: _Call, *makers: _Callable) -> None:
        """What keeps the call from being made again, unless one of the `makers` can; they have the same name."""
        if any(not maker.all_known and call.tool not in maker.tools for maker in makers):
            return
        problems: list[str] = []
        for maker in makers:
            if call.tool in maker.tools:
                tool = maker.tools[call.tool]
                refused = [*_refused(tool, call.arguments)] if tool is not None else []
                if not refused:
                    return
                problems += refused
        of_it = f"call {call.id}" if call.id else "a call"
        if problems:
            self._miss(
                call.path,
                f"tool {call.tool!r} does not take the arguments of {of_it} ({'; '.join(problems)})",
                call.why,
                f"Let {call.tool!r} take them again, or give it the parameters with defaults.",
            )
        else:
            self._miss(
                call.path,
                f"it has no tool {call.tool!r}",
                f"{of_it} of it was made, and {call.why}",
                f"Give {call.path[-1]!r} a tool {call.tool!r} again; one that only says why it is gone will do.",
            )


# -- what is read from a state, and from an agent ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Unreadable:
    """Why an agent cannot take over a state."""

    what: str
    remedy: str
    another_kind: bool = False


async def _unreadable(agent: ChatAgent | Team, state: State) -> _Unreadable | None:
    """Why `agent` cannot take over `state`, as far as its outline tells."""
    kind = _Unreadable(
        f"its state was stored by another kind of agent than {type(agent).__name__}",
        f"Make {agent.name!r} an agent of the kind that it was.",
        another_kind=True,
    )
    if isinstance(agent, Team) or "agent_states" in state:
        return None if isinstance(agent, Team) and "agent_states" in state else kind
    if not isinstance(agent, ResumableAgent):
        return None if (await agent.save_state()).get("type") == state.get("type") else kind
    version = state.get("version")
    if isinstance(version, int) and version != STATE_VERSION:
        return _Unreadable(
            f"its state has version {version}, and this version of upcall reads version {STATE_VERSION}",
            "Go on with the version of upcall that stored it.",
        )
    return kind if version != STATE_VERSION or state.keys() - agent.state_type.model_fields.keys() else None


async def _is_blank(agent: ChatAgent | Team, state: State) -> bool:
    """Whether a state says nothing, but for its version."""
    fresh = await agent.save_state()
    return {**state, "version": None} == {**fresh, "version": None}


async def _new(member: ChatAgent | Team, chat: _Chat) -> State:
    """The state of a member that begins now: it has heard what was said so far, as all others have."""
    heard = [message for message in chat.thread if _was_said(message)]
    return ChatAgentContainerState(agent_state=await member.save_state(), message_buffer=heard).model_dump()


async def _callable(agent: object) -> _Callable:
    """What an agent, or the one that a toolset is of, can call. A server, which a workbench may need for its list, is
    not asked."""
    toolset = agent if isinstance(agent, Toolset) else getattr(agent, "toolset", None)
    if isinstance(toolset, Toolset):
        known: dict[str, BaseTool[Any, Any] | None] = dict.fromkeys((*toolset.nested, *toolset.handoffs))
        return await _with_workbenches({**known, **toolset.tools}, toolset.workbenches)
    if isinstance(agent, AssistantAgent):
        return await _with_workbenches({}, assistant_parts(agent).workbenches)
    if isinstance(agent, CodeExecutorAgent):
        return _Callable({EXECUTE_CODE: None}, all_known=True)
    return _Callable({}, all_known=not _is_opaque(agent))


async def _with_workbenches(tools: Tools, workbenches: Iterable[Workbench]) -> _Callable:
    known, all_known = dict(tools), True
    for each in workbenches:
        workbench = each.inner if isinstance(each, JournaledWorkbench) else each
        if isinstance(workbench, FileWorkbench):
            known |= dict.fromkeys(schema["name"] for schema in await workbench.list_tools())
        elif is_static(workbench):
            known |= static_tools(workbench)
        else:
            all_known = False
    return _Callable(known, all_known)


def _working(parts: Sequence[object]) -> list[object]:
    """Agents, and those through which stock ones work: the journal has these beside them, not below."""
    return [each for part in parts for each in (part, *_working(parts_of(part)))]


def _below(part: object) -> Sequence[object]:
    """The agents that work for one: nested in it, or the members of the team that it is."""
    team = part.team if isinstance(part, NestedTeam) else part
    if isinstance(team, InnerTeam | BaseGroupChat):
        return [*(members(team) or {}).values()]
    toolset = getattr(part, "toolset", None)
    return [*toolset.nested.values()] if isinstance(toolset, Toolset) else []


def _is_opaque(part: object) -> bool:
    """Whether nobody knows which agents work in it: it is somebody else's."""
    return type(part) not in _STOCK and not isinstance(part, ResumableAgent | InnerTeam | BaseGroupChat)


def _refused(tool: BaseTool[Any, Any], arguments: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with arguments, by parameter, without their values. More than the tool takes is no fault: AutoGen
    drops it, and models do send it. A tool that runs its calls in a way of its own may take any."""
    tool = tool.inner if isinstance(tool, JournaledTool) else tool
    if type(tool).run_json is not BaseTool.run_json:
        return
    try:
        tool.args_type().model_validate(arguments)
    except ValidationError as error:
        for each in error.errors(include_input=False, include_url=False):
            yield f"{'.'.join(map(str, each['loc']))}: {each['msg']}"


def _chat_kind(manager: str) -> str:
    return _CHATS.get(manager, manager)


def _was_said(message: State) -> bool:
    kind = message["type"]
    return kind in _SAID or kind.startswith("StructuredMessage")


def _speakers(state: State) -> Iterator[str]:
    """Who speaks in a team, by its state: its members and manager, and those of the teams that are its members."""
    for name, each in state.get("agent_states", {}).items():
        yield name
        yield from _speakers(each.get("agent_state", {}))


def _readable(team: Team, state: State) -> State:
    """The state of a member or a manager, with texts in the place of messages of a type that only a member had that is
    gone."""
    for part in ("message_buffer", "message_thread"):
        kinds = {each["type"] for each in state.get(part, ())}
        if unknown := {kind for kind in kinds if not can_inspect(team, kind)}:
            state = {**state, part: [_as_text(each) if each["type"] in unknown else each for each in state[part]]}
    return state


def _as_text(message: State) -> State:
    text = TextMessage(source=message["source"], content=str(message.get("content", "")))
    kept = {name: message[name] for name in ("id", "created_at", "metadata", "models_usage") if name in message}
    return {**text.dump(), **kept}
