"""Everything an agent can call: functions and AutoGen tools, workbenches, nested agents, and hand-offs to peers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from types import FunctionType
from typing import Any, ClassVar, TypeAlias
from weakref import WeakKeyDictionary

from autogen_agentchat.base import ChatAgent, Handoff, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken, FunctionCall
from autogen_core.tools import BaseTool, FunctionTool, ParametersSchema, ToolSchema, Workbench

from upcall.agents.approve import Approve, read_approve
from upcall.agents.nested_team import NestedTeam
from upcall.agents.nesting import to_registered
from upcall.agents.tool_loop.ask_user import ASK_USER, InvalidQuestion, ask_user_schema, parse_question
from upcall.agents.tool_loop.turn import Frame
from upcall.autogen.adapters import as_resumable
from upcall.autogen.call_path import raise_question
from upcall.autogen.concurrency import Emit, cancellable
from upcall.autogen.instrumentors import show_tool_call
from upcall.autogen.internals import (
    agent_of,
    function_of,
    in_this_context,
    is_static,
    let_mcp_servers_ask,
    static_tools,
    team_of,
)
from upcall.autogen.known_answers import list_answered, resolve_question
from upcall.autogen.messages import Event, answered_event, asked_event
from upcall.autogen.scope import current_scope, id_for_question
from upcall.autogen.tool_calls import check_start_time, find_undo, is_effect_free, is_idempotent, is_repeatable
from upcall.autogen.tool_names import is_sendable, require_sendable, to_sendable
from upcall.autogen.tool_servers import call_tool, describe_lost, list_tools, name_mcp_server, using_server
from upcall.autogen.workbenches import FileWorkbench
from upcall.errors import (
    AgentFailed,
    AskedOutsideTool,
    AwaitedValue,
    ConfigurationError,
    SharedAgent,
    StoreUnavailable,
    UpcallError,
    UserInputRequired,
)
from upcall.policy.approval import is_allowed
from upcall.questions.answer import Answer
from upcall.questions.approval import approval_fields
from upcall.questions.question import Question
from upcall.questions.secrets import require_key
from upcall.questions.tool_call import MAX_ARGUMENTS, PendingCall
from upcall.questions.tool_context import (
    OpenCall,
    let_question_through,
    name_question,
    question_fields,
    redact_secrets,
    tool_context,
)
from upcall.runs.journal_records import ToolOutcome
from upcall.text import first_line

let_mcp_servers_ask()  # A session may be open before there is an agent.

Tool: TypeAlias = BaseTool[Any, Any] | Callable[..., Any] | Callable[..., Awaitable[Any]]


RENAME_TOOL = (
    "Rename it, or give it a name: FunctionTool(function, name=..., description=...). An AgentTool or TeamTool has the "
    "name of its agent or team."
)
RENAME_HANDOFF = "Rename the agent, or give the hand-off a name: Handoff(target=..., name=...)."

_TOOL_FIELDS = ("id", "secret", "tool", "options", "consent", "answer_schema", "answer_draft", "on_ask")
"""The fields of a question that a tool may set, and no model."""

_SPOKEN = {"outcome", "text", "selected"}
"""The fields of an answer that matter to a tool."""


class Toolset:
    """The calls that an agent can make, by name.

    The agent of a stock `AgentTool`, and the team of a `TeamTool`, alone or in a static workbench, are served like a
    nested agent, under the tool's name and description: their questions get through, and concurrent calls do not share
    one object. The result is the last message. A team among `agents` becomes a `NestedTeam`.

    A tool of a workbench whose name model servers refuse is offered under one that they accept.

    Raises:
        ConfigurationError: two of them have the same name, or one has a name that model servers refuse; also raised by
            `schemas`, since the tools of a workbench are known only when it lists them.
    """

    error_prefix: ClassVar[str] = "Error: "
    """The prefix of a tool's error text."""

    def __init__(
        self,
        agent: str,
        *,
        tools: Sequence[Tool] = (),
        workbench: Workbench | Sequence[Workbench] = (),
        agents: Sequence[ChatAgent | Team] = (),
        handoffs: Sequence[Handoff | str] = (),
        ask_user: bool = True,
        approve: Approve = (),
        user_proxy: str = "user",
    ) -> None:
        self._agent = agent
        let_mcp_servers_ask()
        _refuse_single(agent, tools=tools, agents=agents, handoffs=handoffs)
        made = [as_tool(tool) for tool in tools]
        peers = [each if isinstance(each, Handoff) else Handoff(target=each) for each in handoffs]
        self.tools = {tool.name: tool for tool in made}
        self.workbenches = [workbench] if isinstance(workbench, Workbench) else list(workbench)
        self.approval = read_approve(agent, approve, self.workbenches)
        nested = [NestedTeam(each, user_proxy=user_proxy) if isinstance(each, Team) else each for each in agents]
        self.agents: dict[str, ChatAgent] = {each.name: each for each in nested}
        self.handoffs = {each.name: each for each in peers}
        self._homes: dict[str, Workbench] = {}
        self._listed: dict[str, str] = {}
        """The own names of the tools of workbenches that are offered under other ones, by these."""
        self._offered: dict[str, ToolSchema] = {}
        self.ask_user = ask_user
        self._static = {name: tool for each in self.workbenches for name, tool in static_tools(each).items()}
        self._static_homes = {name: each for each in self.workbenches for name in static_tools(each)}
        offered = self._static | self.tools
        behind = {name: _behind(name, tool, user_proxy) for name, tool in offered.items()}
        serving = {name: each for name, each in behind.items() if each is not None} | self.agents
        self.nested = {name: as_resumable(each, user_proxy) for name, each in serving.items()}
        self.runners = {name: tool for name, tool in offered.items() if behind[name] is not None}
        """The stock `AgentTool` and `TeamTool` objects among the tools, by name."""
        self._schemas = [_schema_of(tool) for tool in made]
        self._own_schemas = [_agent_schema(agent) for agent in self.agents.values()]
        self._own_schemas += [each.handoff_tool.schema for each in peers]
        self._own_schemas += [ask_user_schema()] if ask_user else []
        require_sendable(agent, "tool", offered, RENAME_TOOL)
        require_sendable(agent, "nested agent", self.agents, "Rename the agent.")
        require_sendable(agent, "hand-off", self.handoffs, RENAME_HANDOFF)
        names = [tool.name for tool in made] + [each.name for each in agents] + [each.name for each in peers]
        names += [ASK_USER] if ask_user else []
        self._refuse_twice(names)
        if all(map(is_static, self.workbenches)):  # What others offer is known when they are asked.
            self.approval.refuse_unknown(agent, self._list_held([*names, *self._static]))

    async def schemas(self) -> list[ToolSchema]:
        """Return the schemas offered to the model.

        Raises:
            AgentFailed: a workbench cannot list its tools.
        """
        schemas, homes = list(self._schemas), dict[str, Workbench]()
        listed = [(each, await self._list_tools(each)) for each in self.workbenches]
        complete = all(tools for _, tools in listed)  # A server that cannot be reached now lists none.
        own = [*schemas, *self._own_schemas, *(tool for _, tools in listed for tool in tools)]
        taken, renamed = {schema["name"] for schema in own}, dict[str, str]()
        for workbench, tools in listed:
            offered = [_offer(each, taken, renamed) for each in tools]
            schemas += offered
            homes |= dict.fromkeys((schema["name"] for schema in offered), workbench)
        schemas += self._own_schemas
        self._homes, self._offered = homes, {schema["name"]: schema for schema in schemas}
        self._listed = renamed
        names = [schema["name"] for schema in schemas]
        self._refuse_twice(names)
        held = [*self._list_held(names), *renamed.values()]
        self.approval.refuse_unknown(self._agent, held, complete=complete)
        return schemas

    def _list_held(self, names: Sequence[str]) -> list[str]:
        """Return the names whose calls can wait for approval: hand-offs and `ask_user` have no effect to hold back."""
        return [each for each in names if each not in self.handoffs and not (self.ask_user and each == ASK_USER)]

    @property
    def has_tools(self) -> bool:
        """Whether there is, or may be, anything to call besides `ask_user`."""
        others = [each for each in self.workbenches if not is_static(each)]
        return bool(self.tools or self._static or self.agents or self.handoffs or others)

    def describe_lost(self) -> list[str]:
        """Return a line for each MCP server of the agent that cannot be used, for its model."""
        return describe_lost([*self.workbenches, *self.tools.values(), *self._static.values()])

    def is_repeatable(self, name: str) -> bool:
        """Return whether the same call means something twice in one reply."""
        if name in self.agents:
            return is_repeatable(self.agents[name])
        tool = self.tools.get(name) or self._static.get(name)
        return is_repeatable(tool, tool and function_of(tool), self._bench_of(name))

    def _bench_of(self, name: str) -> Workbench | None:
        """Return the workbench that a tool is in, as far as that is known."""
        return None if name in self.tools else self._static_homes.get(name) or self._homes.get(name)

    @property
    def source_tools(self) -> frozenset[str]:
        """The names of the tools that search and read sources, including sources that are unavailable now."""
        found = [each.source_tools for each in self.workbenches if isinstance(each, FileWorkbench)]
        return frozenset().union(*found) - self.tools.keys()

    def look_up(self, task: str) -> list[FunctionCall]:
        """Return the calls that search the agent's own sources for a task."""
        found = [call for each in self.workbenches if isinstance(each, FileWorkbench) for call in each.look_up(task)]
        return [call for call in found if call.name not in self.tools]

    def holds_text(self, tool: str, result: str) -> bool:
        """Return whether a call of one of `source_tools` found a text."""
        benches = [each for each in self.workbenches if isinstance(each, FileWorkbench) and tool in each.source_tools]
        return any(each.holds_text(result) for each in benches)

    async def serve(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> None:
        """Make the frame's tool call: afterwards it has a result, which may be an error's text, or a question that
        the tool asked (reported as an event).

        Raises:
            ConfigurationError: a secret given to the call cannot be opened, or the key is invalid.
        """
        if await self.hold_for_approval(frame, token, emit):
            return
        while frame.runnable:  # Once more at once where what it asks for was given in this run already.
            with tool_context(frame.given, frame.kept) as call:
                outcome = await self._outcome(frame, call, token, emit)
            if outcome.asked is not None:
                frame.kept = outcome.kept or {}
                self.ask_for(frame, outcome.asked)
            else:
                frame.finish(outcome.content, is_error=outcome.is_error)
            for event in await question_call(frame, self._agent, token):
                emit(event)

    async def hold_for_approval(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> bool:
        """Let a call wait that the human has to approve first (reported as an event); return whether it must not be
        made now."""
        name, begun = frame.call.name, frame.approved or frame.nested is not None
        if begun or not frame.runnable or name in self.handoffs or self.approval.is_empty:
            return not frame.runnable
        schema = await cancellable(self._offered_schema(name), token)
        known_as = {name, self._listed.get(name, name)}
        if schema is None or not any(self.approval.cover(each, self._homes.get(name)) for each in known_as):
            return False
        if len(frame.call.arguments) > MAX_ARGUMENTS:
            why = f"it needs the user's approval and is too long to be shown (at most {MAX_ARGUMENTS} characters)"
            frame.finish(f"Error: nothing was done: {why}. Do it in smaller steps.", is_error=True)
            return True
        parameters = dict(schema.get("parameters", {}))
        fields = approval_fields(PendingCall(tool=name, arguments=frame.arguments(), parameters=parameters))
        own = id_for_question(self._agent, frame.call.id, fields["question"])
        question = Question(**fields, **own, path=(self._agent,), calls=(frame.call.id,))
        if is_allowed(raise_question(question), list_answered()):
            frame.approved = True
            return False
        frame.questions = [question]
        for event in await question_call(frame, self._agent, token):
            emit(event)
        return not frame.runnable

    async def _outcome(self, frame: Frame, call: OpenCall, token: CancellationToken, emit: Emit[Event]) -> ToolOutcome:
        """Return the outcome of the call, replayed if it was already made. A call without a known tool does nothing."""
        name, arguments, call_id = frame.call.name, frame.arguments(), frame.call.id
        try:
            tool = self.tools.get(name) or self._static.get(name)
            home: BaseTool[Any, Any] | Workbench | None = tool
            if tool is None:
                home = await cancellable(self._home(name), token)
        except Exception as error:  # noqa: BLE001  (a workbench too; nothing was begun)
            return self._report_failure(error)
        if home is None:
            known = ", ".join(schema["name"] for schema in await self.schemas())
            missing = " ".join(self.describe_lost())  # It may have been one of theirs.
            why = f"{name!r} cannot be called. {missing}" if missing else f"there is no tool {name!r}."
            text = f"Error: {why} Your tools: {known or 'none'}."
            return ToolOutcome(content=text, is_error=True)

        async def make() -> ToolOutcome:
            try:
                with let_question_through():
                    return await cancellable(self._run(home, name, arguments, call_id, token, emit), token)
            except (AskedOutsideTool, AwaitedValue, SharedAgent):
                raise  # That is for the program to mend, not for the model.
            except UserInputRequired as needed:
                return ToolOutcome(asked=question_fields(needed, name), kept=call.kept or None)
            except Exception as error:  # A tool may raise anything; the model sees it and can react.
                if isinstance(error, StoreUnavailable) and error.store == current_scope().store:
                    raise  # The run's own: what the call did could not be recorded, so it is made again, or in doubt.
                return self._report_failure(error)

        async def run() -> ToolOutcome:
            return await show_tool_call(make, agent=self._agent, call=frame.call, tool=home, token=token)

        journal = current_scope().journal
        if journal is None:
            return await run()
        function = function_of(home)
        bench = self._bench_of(name)
        is_local = isinstance(bench, FileWorkbench) and name in bench.local_tools
        has_undo = find_undo(home, function) is not None
        answers = [f"{asked} {given.model_dump_json(include=_SPOKEN)}" for asked, given in sorted(frame.given.items())]
        return await journal.replay_or_run(
            self._agent,
            call_id,
            name,
            arguments,
            run,
            idempotent=is_idempotent(home, function, bench),
            reversible=has_undo,
            effect_free=is_local or is_effect_free(home, function, bench),
            answers=answers,
        )

    def _report_failure(self, error: Exception) -> ToolOutcome:
        reason = f"{self.error_prefix}{str(error) or type(error).__name__}"
        return ToolOutcome(content=redact_secrets(reason), is_error=True)

    async def _home(self, name: str) -> Workbench | None:
        """Return the workbench that makes a call."""
        await self._offered_schema(name)
        return self._homes.get(name)

    async def _offered_schema(self, name: str) -> ToolSchema | None:
        """Return the schema last offered to the model under a name."""
        if name not in self._offered:  # No model was called since the agent was made.
            await self.schemas()
        return self._offered.get(name)

    async def _run(
        self,
        home: BaseTool[Any, Any] | Workbench,
        name: str,
        arguments: dict[str, Any],
        call_id: str,
        token: CancellationToken,
        emit: Emit[Event],
    ) -> ToolOutcome:
        check_start_time()  # Others had their turn since the journal looked.
        if isinstance(home, BaseTool):
            name_mcp_server(home)
            tool = in_this_context(home, check_start_time, _show_answer)
            stream = getattr(tool, "run_json_stream", None)  # `StreamTool` is a protocol, and dear to ask for.
            if stream is not None:
                value = await _last(stream(arguments, token, call_id=call_id), emit)
            else:
                async with using_server(home):
                    value = await tool.run_json(arguments, token, call_id=call_id)
            return ToolOutcome(content=redact_secrets(home.return_value_as_string(value)))
        result = await call_tool(home, self._listed.get(name, name), arguments, token, call_id)
        return ToolOutcome(content=redact_secrets(result.to_text(replace_image="[image]")), is_error=result.is_error)

    def ask_for(self, frame: Frame, asked: Mapping[str, Any]) -> None:
        """Let a call wait for its tool's question; a question that cannot be asked becomes an error's text."""
        own = {name: asked[name] for name in _TOOL_FIELDS if name in asked}
        if "secret" in own:
            require_key(f"Tool {frame.call.name!r} of agent {self._agent!r} asks for a secret")
        try:
            question = parse_question(dict(asked), agent=self._agent, call_id=frame.call.id, **own)
        except InvalidQuestion as refusal:
            frame.finish(f"Error: the tool asked for input in a way that cannot be shown. {refusal}", is_error=True)
            return
        if name_question(question) in frame.given:
            purpose = "for a secret that it was given; it takes it with upcall.ask_secret"
            purpose = purpose if question.secret else "what it was answered; it takes the answer with upcall.ask"
            frame.finish(f"Error: the tool asked again {purpose}.", is_error=True)
        else:
            frame.questions = [question]

    async def close(self) -> None:
        """Close the nested agents and stop the workbenches."""
        for agent in {id(each): each for each in self.nested.values()}.values():
            await agent.close()
        for workbench in self.workbenches:
            await workbench.stop()

    async def _list_tools(self, workbench: Workbench) -> list[ToolSchema]:
        try:
            return await list_tools(workbench)
        except UpcallError:
            raise
        except Exception as error:
            raise AgentFailed(
                f"Agent {self._agent!r}: a workbench cannot list its tools ({type(error).__name__}). Check that its "
                "server runs. The run is stored and can be resumed."
            ) from error

    def _refuse_twice(self, names: Sequence[str]) -> None:
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice:
            named = ", ".join(twice)
            raise ConfigurationError(
                f"Agent {self._agent!r}: two tools, agents or hand-offs are called {named}; give each its own name."
            )


def _offer(schema: ToolSchema, taken: set[str], renamed: dict[str, str]) -> ToolSchema:
    """Return the schema with a name that model servers accept; another one than its own is noted in `renamed`."""
    name = schema["name"]
    if is_sendable(name):
        return schema
    sendable = to_sendable(name, taken)
    taken.add(sendable)
    renamed[sendable] = name
    return {**schema, "name": sendable}


def _show_answer(value: Any) -> Any:
    """Return the text of a human's answer that a function returned; anything else unchanged."""
    return value.as_text() if isinstance(value, Answer) else value


async def _last(items: AsyncGenerator[Any, None], emit: Emit[Event]) -> Any:
    """Return the last item of a streaming tool, its result; events before it are emitted, without its secrets."""
    last: Any = None
    async with aclosing(items):
        async for item in items:
            if isinstance(last, BaseAgentEvent | BaseChatMessage):
                emit(_without_secrets(to_registered(last)))
            last = item
    return last


def _without_secrets(event: Event) -> Event:
    fields = event.model_dump(mode="json", exclude={"type", "id", "source"})
    shown = _redact(fields)
    return event if shown == fields else event.model_validate({**event.model_dump(mode="json"), **shown})


def _redact(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _redact(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_redact(each) for each in value]
    return redact_secrets(value) if isinstance(value, str) else value


async def question_call(frame: Frame, agent: str, token: CancellationToken) -> list[BaseAgentEvent]:
    """Return the events that report the questions of a call that `agent` made. A question with a known answer
    closes the call at once, or lets its tool continue."""
    events: list[BaseAgentEvent] = []
    for question in frame.questions:
        if answer := await cancellable(resolve_question(question), token):
            frame.take(answer)
            events.append(answered_event(question, answer, source=agent))
        else:
            events.append(asked_event(question, source=agent))
    return events


def as_tool(tool: Tool) -> BaseTool[Any, Any]:
    """Return the AutoGen tool that a function makes, or the tool itself.

    Raises:
        ConfigurationError: it is neither.
    """
    if isinstance(tool, BaseTool):
        return tool
    if not callable(tool):
        raise ConfigurationError(f"A tool must be a function or an AutoGen tool, not {type(tool).__name__}.")
    if not isinstance(tool, FunctionType):
        return _make_tool(tool)
    look, (seen, made) = _look_of(tool), getattr(tool, _MADE, (None, None))
    if made is None or seen != look or function_of(made) is not tool:  # A decorator copies what a function has.
        made = _make_tool(tool)
        setattr(tool, _MADE, (look, made))
    return made


def _make_tool(function: Callable[..., Any]) -> FunctionTool:
    try:
        return FunctionTool(function, description=(function.__doc__ or "").strip())
    except (TypeError, ValueError, NameError, LookupError) as error:  # The last where a parameter has no type.
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigurationError(
            f"The tool {name!r} cannot be described to a model: {first_line(error).rstrip('.')}. Give each of its "
            "parameters a type."
        ) from error


def _refuse_single(agent: str, **given: object) -> None:
    """Refuse a single value where a list is needed.

    Raises:
        ConfigurationError: it names the option.
    """
    for option, value in given.items():
        if not isinstance(value, Sequence) or isinstance(value, str):
            kind = type(value).__name__
            raise ConfigurationError(f"Agent {agent!r}: {option} must be a list, not {kind}: {option}=[...].")


def _look_of(function: FunctionType) -> tuple[Any, ...]:
    """Return the attributes that a tool takes from its function, which may change between two teams."""
    return function.__name__, function.__doc__, dict(function.__annotations__)


def _schema_of(tool: BaseTool[Any, Any]) -> ToolSchema:
    """Return the schema of a tool; a function's schema is made once."""
    if type(tool) is not FunctionTool:
        return tool.schema
    if tool not in _SCHEMAS:
        _SCHEMAS[tool] = tool.schema
    return _SCHEMAS[tool]


_SCHEMAS: WeakKeyDictionary[BaseTool[Any, Any], ToolSchema] = WeakKeyDictionary()

_MADE = "upcall_tool"
"""The attribute where a function keeps its stateless tool: a team is built for each segment, and reading a signature
takes as long as storing a pause."""


def _behind(name: str, tool: BaseTool[Any, Any], user_proxy: str) -> ChatAgent | None:
    """Return the agent that serves the calls of a tool, if it represents one."""
    if team := team_of(tool):
        return NestedTeam(team, name=name, description=tool.description, user_proxy=user_proxy)
    return agent_of(tool)


def _agent_schema(agent: ChatAgent) -> ToolSchema:
    return ToolSchema(
        name=agent.name,
        description=agent.description,
        parameters=ParametersSchema(
            type="object",
            properties={"task": {"type": "string", "description": "The whole task: the agent sees nothing else."}},
            required=["task"],
            additionalProperties=False,
        ),
        strict=False,
    )
