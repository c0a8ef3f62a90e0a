"""Check whether a stored run can continue with a given team, and adapt its checkpoint to that team.

The check compares names: the kind of each group chat, the members and nested agents that wait for an answer or speak
next, and the tools of calls without a result. All other differences are up to the team, which loads its state before
anything is changed: its own refusal is reported in one line.

The rules: only what the rest of the run needs has to be there, so that members, tools and prompts may come, go and
change while a run waits. Everything that is missing is reported at once, each with its remedy. What cannot be known
(the tools of a server, the inside of another library's agent) counts as present. A run that
is refused is left as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from autogen_core.tools import Workbench

from upcall.agents.message_filter import FilteringAgent
from upcall.agents.nested_team import NestedTeam
from upcall.agents.parts import look_behind, toolset_of
from upcall.agents.resumable import ResumableAgent
from upcall.agents.stock import StockAgent
from upcall.agents.tool_loop.turn import Frame
from upcall.agents.toolset import Toolset
from upcall.autogen.group_chats import InnerTeam, PendingQuestions, manager_of, members
from upcall.autogen.internals import assistant_parts, is_static, parts_of, static_tools
from upcall.autogen.journal import find_unfinished
from upcall.autogen.recording import EXECUTE_CODE
from upcall.autogen.workbenches import FileWorkbench
from upcall.errors import TeamMismatch
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.journal_records import ToolRecord
from upcall.text import first_line

State: TypeAlias = Mapping[str, Any]
MemberPath: TypeAlias = tuple[str, ...]

_NOTHING: Mapping[str, str] = MappingProxyType({})

_CHATS = {
    "SwarmGroupChatManager": "Swarm",
    "RoundRobinGroupChatManager": "RoundRobinGroupChat",
    "SelectorGroupChatManager": "SelectorGroupChat",
    "GraphManager": "GraphFlow",
    "MagenticOneOrchestrator": "MagenticOneGroupChat",
}
"""The managers of AutoGen's group chats, as named in a state (autogen-agentchat 0.7.5), and their teams."""

_CHAT_MESSAGES = ("TextMessage", "MultiModalMessage", "StopMessage", "ToolCallSummaryMessage", "HandoffMessage")
"""The types of messages that members receive from each other, besides structured ones; the rest are events."""

_STOCK = (AssistantAgent, CodeExecutorAgent, MessageFilterAgent, SocietyOfMindAgent, UserProxyAgent)
"""The agents of AutoGen whose inner agents are known, if they have any; a subclass may have more."""

_HAND_OFF = "transfer_to_"
"""How AutoGen names the tools of hand-offs without a name of their own."""


@dataclass(frozen=True)
class Incompatibility:
    """Something that the rest of a run needs and the team lacks.

    Attributes:
        path: the names from the outermost agent to where it is missing; empty for the team itself.
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
    """Load a checkpoint into a newly built `team`, and return it in the form that this team can load.

    `records` are the journal of what was done since. A member that is new, or of another kind and not needed as it was,
    starts with the conversation so far.

    Raises:
        TeamMismatch: the run cannot continue with this team; everything missing is listed.
        SchemaMismatch: a record was written by another version of upcall.
    """
    comparison, unfinished, state = _Comparison(user_proxy), [*find_unfinished(records).values()], checkpoint.team_state
    try:
        if state is not None:
            state = dict(await comparison.team(team, state, ()))
        await comparison.unfinished_calls(team, unfinished)
        if state is not None and not comparison.found:  # A team may take in half of a state before it refuses the rest.
            await team.load_state(state)
    except Exception as error:  # A team may raise anything at a state that is not its own.
        raise TeamMismatch(run_id, [*comparison.found, _not_loaded((), error)]) from error
    if comparison.found:
        raise TeamMismatch(run_id, comparison.found)
    return checkpoint.model_copy(update={"team_state": state})


async def find_incompatibilities(
    team: Team, checkpoint: Checkpoint, records: Mapping[str, str]
) -> Sequence[Incompatibility]:
    """Find what prevents a run from continuing with `team`, which was built only for this check."""
    try:
        await adapt_checkpoint(team, "", checkpoint, records)
    except TeamMismatch as found:
        return found.incompatibilities
    return ()


def _not_loaded(path: MemberPath, error: Exception) -> Incompatibility:
    why, _, remedy = first_line(error).partition(". ")
    remedy = remedy or "Use the team that the run was stored with."
    return Incompatibility(path, "the stored state cannot be loaded", why.rstrip("."), remedy)


@dataclass(frozen=True)
class _StoredChat:
    """The stored state of an AutoGen group chat."""

    state: State
    user_proxy: str

    @cached_property
    def manager(self) -> str:
        """The name of its manager; empty if it is the state of something else."""
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
    def chat_messages(self) -> list[State]:
        """What members said to each other, oldest first, as dumped messages."""
        return [each for each in self.managed["message_thread"] if _is_chat_message(each)]

    @cached_property
    def needed(self) -> Mapping[str, str]:
        """The members that the rest of the run always needs, by name, and why."""
        questions = self._pending().questions.values()
        why = {each.path[0]: f"it waits for the answer to question {each.id}" for each in reversed(questions)}
        return dict.fromkeys(self._next_speakers(bool(why)), "it is the next to speak") | why

    def _pending(self) -> PendingQuestions:
        """Return who waits for what. For messages other than hand-offs only the source counts."""
        names = {*_speakers(self.state), self.user_proxy}
        spoke = {name: TextMessage(source=name, content="") for name in names}
        thread = [
            HandoffMessage.model_validate(each) if each["type"] == "HandoffMessage" else spoke[each["source"]]
            for each in self.chat_messages
            if each["source"] in names
        ]
        return PendingQuestions.in_thread(thread, [*self.members], self.user_proxy)

    def _next_speakers(self, is_waiting: bool) -> Sequence[str]:
        """Return who speaks next, if the state says so: in a `Swarm`, the target of the last hand-off."""
        if self.next_in_round is not None:
            return [self.next_in_round]
        if "current_speaker" in self.managed and not is_waiting:  # With a question open, its asker comes next.
            targets = [each["target"] for each in self.chat_messages if each["type"] == "HandoffMessage"]
            return [targets[-1] if targets else self.managed["current_speaker"]]
        return [*self.managed.get("ready", ())]

    @property
    def next_in_round(self) -> str | None:
        """Return who comes next in a `RoundRobinGroupChat`; None in any other."""
        place = self.managed.get("next_speaker_index")
        return [*self.members][place] if isinstance(place, int) and place < len(self.members) else None


@dataclass
class _Comparison:
    """A comparison of a stored state with a team, from the outermost team down."""

    user_proxy: str
    found: list[Incompatibility] = field(default_factory=list)

    def _add(self, path: MemberPath, what: str, why: str, remedy: str) -> None:
        """Add an incompatibility once: a call in the journal may also be in a checkpoint's frame."""
        if not any(each.path == path and each.what == what for each in self.found):
            self.found.append(Incompatibility(path, what, why, remedy))

    def _miss_member(self, path: MemberPath, why: str) -> None:
        self._add(path, "the team has no such member", why, f"Put {path[-1]!r} into the team again.")

    def _miss_nested(self, path: MemberPath, why: str) -> None:
        above, name = path[-2:]
        self._add(path, f"{above!r} has no such nested agent", why, f"Give {above!r} a nested agent {name!r} again.")

    async def _miss_tool(self, path: MemberPath, tool: str, call_id: str, why: str, *makers: object) -> None:
        """Report a missing tool, unless one of the `makers`, which have the same name, has or may have it."""
        offered = [await _tool_names(each) for each in makers]
        if all(names is not None and tool not in names for names in offered):
            call = f"call {call_id}" if call_id else "a call"
            remedy = f"Give {path[-1]!r} a tool {tool!r} again; one that only says why it is gone is enough."
            self._add(path, f"it has no tool {tool!r}", f"{call} to it was made, and {why}", remedy)

    # -- teams --------------------------------------------------------------------------------------------------------

    async def team(self, team: Team, state: State, path: MemberPath) -> State:
        """Compare a team with its state, and return the adapted state; a team of another library judges itself."""
        here, chat = members(team), _StoredChat(state, self.user_proxy)
        if here is None or not chat.manager:
            return state
        if chat.manager != manager_of(team):
            stored, given = (_CHATS.get(each, each) for each in (chat.manager, manager_of(team)))
            what = f"the state is that of a {stored}, and this is a {given}"
            self._add(path, what, "each chooses its next speaker in its own way", f"Make it a {stored} again.")
            return state
        for name, why in chat.needed.items():
            if name not in here and name != self.user_proxy:  # The user is not a member, except in live mode.
                self._miss_member((*path, name), why)
        taken = {name: await self._member(each, name, chat, path) for name, each in here.items()}
        states = {**chat.members, **taken, chat.manager: _manager_state(chat, [*here])}
        return {**state, "agent_states": states}

    async def _member(self, member: ChatAgent | Team, name: str, chat: _StoredChat, path: MemberPath) -> State:
        if name not in chat.members:
            return await _new_member(member, chat)
        stored = chat.members[name]
        state = stored.get("agent_state", {})
        fresh = await member.save_state()  # Nothing but a state names the kind of agent that wrote it.
        if isinstance(member, Team) or state.get("type") == fresh.get("type"):
            return {**stored, "agent_state": await self.agent(member, state, (*path, name))}
        if name not in chat.needed:
            return await _new_member(member, chat)  # It has nothing open, so another kind may take its place.
        self._miss_kind((*path, name), member, chat.needed[name])
        return stored

    def _miss_kind(self, path: MemberPath, agent: ChatAgent | Team, why: str) -> None:
        kind = type(agent.stock if isinstance(agent, StockAgent) else agent).__name__
        what = f"its state was stored by another kind of agent than {kind}"
        self._add(path, what, why, f"Make {path[-1]!r} an agent of its former kind.")

    # -- agents -------------------------------------------------------------------------------------------------------

    async def agent(self, agent: ChatAgent | Team, state: State, path: MemberPath) -> State:
        """Compare an agent, or a team inside another, with its state, and return the adapted state."""
        if isinstance(agent, Team):
            return await self.team(agent, state, path)
        if isinstance(agent, NestedTeam):
            inner = state.get("team")
            return state if inner is None else {**state, "team": await self.team(agent.team, inner, path)}
        toolset = toolset_of(agent)
        if toolset is None:
            return state
        if "context" in state:  # The clarifier's, with the calls of its own tools.
            return {
                **state,
                "context": {**state["context"], "frames": await self._frames(toolset, state["context"], path)},
            }
        return {**state, "frames": await self._frames(toolset, state, path)}

    async def _frames(self, toolset: Toolset, state: State, path: MemberPath) -> list[State]:
        return [await self._frame(toolset, each, path) for each in state.get("frames", ())]

    async def _frame(self, toolset: Toolset, state: State, path: MemberPath) -> State:
        """Compare an open call. One that waits for its own answer needs nothing, unless its tool continues with it."""
        frame = Frame.model_validate(state)
        name, call_id = frame.call.name, frame.call.id
        if frame.nested is not None:
            return {**state, "nested": await self._compare_nested(toolset, frame, path)}
        if any(question.tool or question.approval for question in frame.questions):
            await self._miss_tool(path, name, call_id, "it waits for an answer", toolset)
        # A hand-off that was called takes effect at the end of the turn, which is still to come.
        is_handoff = name.startswith(_HAND_OFF) and frame.result is not None and not frame.result.is_error
        if is_handoff and name not in (await _tool_names(toolset) or {name}):
            why = f"call {call_id} handed the turn over with it"
            self._add(path, f"it has no hand-off {name!r}", why, "Give it that hand-off again.")
        return state

    async def _compare_nested(self, toolset: Toolset, frame: Frame, path: MemberPath) -> State:
        assert frame.nested is not None
        path, agent = (*path, frame.call.name), toolset.nested.get(frame.call.name)
        asked = ", ".join(question.id for question in frame.questions)
        why = f"its call {frame.call.id} waits for the answer to question {asked}"
        if agent is None:
            self._miss_nested(path, why)
        elif not isinstance(agent, ResumableAgent):
            self._miss_kind(path, agent, why)
        else:
            try:
                await agent.fresh().load_state(
                    frame.nested
                )  # Into a twin: the real one gets it when its call continues.
            except Exception as error:  # noqa: BLE001  (a subclass may raise anything at a state that is not its own)
                self.found.append(_not_loaded(path, error))
            else:
                return await self.agent(agent, frame.nested, path)
        return frame.nested

    # -- the journal --------------------------------------------------------------------------------------------------

    async def unfinished_calls(self, team: Team, records: Sequence[ToolRecord]) -> None:
        """Compare the calls without a result with the agents that made them, and must make them again."""
        here = members(team)
        for record in records if here is not None else ():
            level = _with_parts([*(here or {}).values()])
            for depth, name in enumerate(record.path):
                makers = [each for each in level if getattr(each, "name", None) == name]
                if not makers:
                    self._miss_maker(record, depth, level, records)
                    break
                if depth + 1 == len(record.path):
                    await self._miss_tool(record.path, record.tool, record.calls[-1], "it has no result yet", *makers)
                level = _with_parts([inner for each in makers for inner in list_workers(each)])

    def _miss_maker(
        self, record: ToolRecord, depth: int, level: Sequence[object], records: Sequence[ToolRecord]
    ) -> None:
        """Report a missing agent at `depth` of a record's path, unless it may work out of sight: in an agent of another
        library, or in a function whose call has no result either."""
        names = {getattr(each, "name", None) for each in level}
        above, calls = record.path[:depth], record.calls[:depth]
        in_function = any(
            each.path[:-1] == above and each.calls[:-1] == calls and each.path[-1] in names for each in records
        )
        if in_function or not all(map(_is_known, level)):
            return
        path = record.path[: depth + 1]
        why = f"call {record.calls[-1]} of its tool {record.tool!r} has no result yet"
        if depth + 1 < len(record.path):
            why = f"its call {record.calls[depth]} is not finished"
        if calls and calls[-1]:
            self._miss_nested(path, why)
        else:  # A team calls its members without a tool call.
            self._miss_member(path, why)


# -- what is read from a state, and from an agent ---------------------------------------------------------------------


def _manager_state(chat: _StoredChat, here: Sequence[str]) -> State:
    """Return the manager's state, with its place in the round moved to the next of the current members."""
    if chat.next_in_round is None:
        return chat.managed
    place = here.index(chat.next_in_round) if chat.next_in_round in here else 0
    return {**chat.managed, "next_speaker_index": place}


async def _new_member(member: ChatAgent | Team, chat: _StoredChat) -> State:
    """Return the state of a member that starts now: it still has to take in the conversation so far."""
    return ChatAgentContainerState(
        agent_state=await member.save_state(), message_buffer=chat.chat_messages
    ).model_dump()


async def _tool_names(agent: object) -> set[str] | None:
    """Return the tool names of an agent or a toolset; None if not all are known without asking a server."""
    agent = look_behind(agent)
    toolset = agent if isinstance(agent, Toolset) else toolset_of(agent)
    if toolset is not None:
        names = {*toolset.nested, *toolset.handoffs, *toolset.tools}
        workbenches: Sequence[Workbench] = toolset.workbenches
    elif isinstance(agent, AssistantAgent):
        names, workbenches = set(), assistant_parts(agent).workbenches
    else:
        return {EXECUTE_CODE} if isinstance(agent, CodeExecutorAgent) else None
    for each in workbenches:
        if isinstance(each, FileWorkbench):
            names |= {schema["name"] for schema in await each.list_tools()}
        elif is_static(each):
            names |= static_tools(each).keys()
        else:
            return None
    return names


def _with_parts(agents: Sequence[object]) -> list[object]:
    """Return agents, and those through which stock ones work: the journal lists these beside them, not below."""
    parts = [[each.inner] if isinstance(each, FilteringAgent) else parts_of(each) for each in agents]
    return [each for agent, below in zip(agents, parts, strict=True) for each in (agent, *_with_parts(below))]


def list_workers(agent: object) -> Sequence[object]:
    """Return the agents that work for an agent: those nested in it, or the members if it is a team."""
    team = agent.team if isinstance(agent, NestedTeam) else agent
    if isinstance(team, InnerTeam | BaseGroupChat):
        return [*(members(team) or {}).values()]
    if isinstance(agent, FilteringAgent):
        return [agent.inner]
    toolset, stock = toolset_of(agent), look_behind(agent)
    nested = [*toolset.nested.values()] if toolset is not None else []
    return [*nested, *map(look_behind, parts_of(stock))] if isinstance(stock, SocietyOfMindAgent) else nested


def _is_known(agent: object) -> bool:
    """Whether all agents inside an agent are known; in one of another library anybody may work."""
    return type(agent) in _STOCK or isinstance(agent, ResumableAgent | InnerTeam | BaseGroupChat)


def _is_chat_message(message: State) -> bool:
    kind = message["type"]
    return kind in _CHAT_MESSAGES or kind.startswith("StructuredMessage")


def _speakers(state: State) -> Iterator[str]:
    """Return who speaks in a team, according to its state: its members and manager, and those of inner teams."""
    for name, each in state.get("agent_states", {}).items():
        yield name
        yield from _speakers(each.get("agent_state", {}))
