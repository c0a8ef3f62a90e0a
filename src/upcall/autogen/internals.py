"""Access to parts of AutoGen's agents and tools that have no public accessor (autogen-agentchat and -core 0.7.5)."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from contextvars import copy_context
from copy import copy
from dataclasses import dataclass
from functools import cache, partial, wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeGuard

from autogen_agentchat.agents import (
    ApprovalRequest,
    ApprovalResponse,
    AssistantAgent,
    BaseChatAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    SocietyOfMindAgent,
)
from autogen_agentchat.base import AndTerminationCondition, Handoff, OrTerminationCondition, Team
from autogen_agentchat.conditions import FunctionalTermination
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent
from autogen_agentchat.teams import BaseGroupChat, MagenticOneGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken, FunctionCall, RoutedAgent
from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    ModelInfo,
    RequestUsage,
    SystemMessage,
)
from autogen_core.tools import BaseTool, FunctionTool, StaticStreamWorkbench, StaticWorkbench, ToolSchema, Workbench
from opentelemetry import trace
from pydantic import BaseModel, ValidationError

from upcall.autogen.concurrency import contain
from upcall.autogen.model_info import find_model_info
from upcall.autogen.usage import add_usage

if TYPE_CHECKING:
    from autogen_ext.models.cache import ChatCompletionCache


@dataclass(frozen=True)
class AssistantParts:
    """The parts an `AssistantAgent` was made of, besides its name and description."""

    model_client: ChatCompletionClient
    system_message: str
    workbenches: Sequence[Workbench]
    handoffs: Sequence[Handoff]
    memory: Sequence[Memory]
    model_context: ChatCompletionContext
    output_type: type[BaseModel] | None
    stream: bool
    metadata: dict[str, str]


def assistant_parts(agent: AssistantAgent) -> AssistantParts:
    """Return its parts: only its model context is public. A component dump is no substitute, since tools made of local
    functions and clients with keys cannot be dumped (autogen-agentchat 0.7.5). Its tools are in a workbench already."""
    return AssistantParts(
        model_client=agent._model_client,
        system_message="\n\n".join(each.content for each in agent._system_messages),
        workbenches=list(agent._workbench),
        handoffs=list(agent._handoffs.values()),
        memory=list(agent._memory or ()),
        model_context=agent.model_context,
        output_type=agent._output_content_type,
        stream=agent._model_client_stream,
        metadata=dict(agent._metadata),
    )


def is_model_client_for(service: str, client: object) -> bool:
    """Return whether a model client is one of AutoGen's own for a service, such as ``openai``. Its module shows: the
    class itself is not needed, and importing it loads the service's SDK."""
    return type(client).__module__.startswith(f"autogen_ext.models.{service}.")


def _is_from(package: str, part: object) -> bool:
    """Return whether an object is of a class in a package of autogen-ext, or of a subclass. Its module shows: importing
    the class needs other packages."""
    names = (kind.__module__ for kind in type(part).__mro__)
    return any(f"{each}.".startswith(f"autogen_ext.{package}.") for each in names)


@dataclass(frozen=True)
class OpenAIClientParts:
    """What an AutoGen client for OpenAI's protocol was made of."""

    sdk: Any
    arguments: Mapping[str, Any]
    info: Any
    name_prefixes: bool
    include_name: bool


def parts_of_openai_client(client: Any) -> OpenAIClientParts:
    """Return the parts of an AutoGen client for OpenAI's protocol: the client of the `openai` package that it made, and
    what it sends with each request. A component dump masks the key, and lacks an HTTP client (autogen-ext 0.7.5)."""
    return OpenAIClientParts(
        sdk=client._client,
        arguments=dict(client._create_args),
        info=client.model_info,
        name_prefixes=client._add_name_prefixes,
        include_name=client._include_name_in_message,
    )


def is_stock_openai_client(client: object) -> bool:
    """Return whether a model client is one of AutoGen's for OpenAI's protocol as it was shipped: no subclass, nothing
    of it replaced, as tests do, nor what it calls."""
    if not is_model_client_for("openai", client):
        return False
    from openai import AsyncOpenAI
    from openai.resources.chat.completions import AsyncCompletions

    kind: Any = type(client)
    called = (kind.create, kind.create_stream, AsyncCompletions.create)
    shipped = ("autogen_ext.models.openai.", "autogen_ext.models.openai.", "openai.resources.chat.")
    return (
        not {"create", "create_stream"} & vars(client).keys()
        and all(str(each.__module__).startswith(module) for each, module in zip(called, shipped, strict=True))
        and isinstance(getattr(client, "_client", None), AsyncOpenAI)
    )


def is_stock_cache(client: Any) -> TypeGuard[ChatCompletionCache]:
    """Return whether a model client is AutoGen's cache around another one as it was shipped."""
    return is_model_client_for("cache", client) and type(client).__name__ == "ChatCompletionCache"


def count_usage(client: Any, usage: RequestUsage) -> None:
    """Add what was used in place of an AutoGen client for OpenAI to its counters, which are private (autogen-ext
    0.7.5)."""
    for name in ("_total_usage", "_actual_usage"):
        setattr(client, name, add_usage(getattr(client, name), usage))


def fit_anthropic_client(client: Any) -> None:
    """Let AutoGen's client for Anthropic make the calls that its package and its model take (autogen-ext 0.7.5).

    It takes a name that it does not know for that of a Claude 2, which neither sees images nor calls tools; it takes no
    schema for JSON and no second system message, whatever its `model_info` says; and it always sends arguments such as
    ``temperature`` that version 2 of the package has no more. They go where they still belong, in the body of the
    request, unless they say no more than the default.
    """
    from autogen_ext.models.anthropic import _model_info

    raw, name = getattr(client, "_raw_config", {}), str(client._create_args.get("model"))
    is_known = raw.get("model_info") or name in _model_info._MODEL_INFO
    info: ModelInfo = client._model_info if is_known else find_model_info(name)
    cannot = {"structured_output": False, "multiple_system_messages": False}
    client._model_info = {**info, **cannot}
    messages = client._client.messages
    if _is_ours(messages.create):
        return
    create, taken = messages.create, signature(messages.create).parameters
    if any(each.kind is Parameter.VAR_KEYWORD for each in taken.values()):
        return

    @wraps(create)
    def create_fitting(**arguments: Any) -> Any:
        other = {key: arguments.pop(key) for key in [*arguments] if key not in taken}
        kept = {key: value for key, value in other.items() if _ANTHROPIC_DEFAULTS.get(key) != value}
        if kept:
            arguments["extra_body"] = {**(arguments.get("extra_body") or {}), **kept}
        return create(**arguments)

    create_fitting.upcall_own = True  # type: ignore[attr-defined]
    messages.create = create_fitting


_ANTHROPIC_DEFAULTS = {"temperature": 1.0}
"""What AutoGen's client for Anthropic sends though nobody asked for it."""


def agent_of(tool: BaseTool[Any, Any]) -> BaseChatAgent | None:
    """Return the agent behind a stock `AgentTool`, which runs it and offers no other access to it (autogen-agentchat
    0.7.5). None for any other tool: a subclass may do more than run its agent."""
    return tool._agent if type(tool) is AgentTool else None


def team_of(tool: BaseTool[Any, Any]) -> BaseGroupChat | None:
    """Return the team behind a stock `TeamTool`, for the same reason. None for any other tool."""
    return tool._team if type(tool) is TeamTool else None


def function_of(tool: object) -> Callable[..., Any] | None:
    """Return the function of a stock `FunctionTool`; None for anything else."""
    return tool._func if isinstance(tool, FunctionTool) else None


def with_agent(tool: BaseTool[Any, Any], agent: BaseChatAgent) -> AgentTool:
    """Return a stock `AgentTool` like `tool`, also one, for another agent: whether it returns only the last message is
    private (autogen-agentchat 0.7.5)."""
    assert isinstance(tool, AgentTool)
    return AgentTool(agent, return_value_as_last_message=tool._return_value_as_last_message)


def is_static(workbench: Workbench) -> bool:
    """Return whether it is a stock static workbench; a subclass may do more than store tools."""
    return type(workbench) in (StaticWorkbench, StaticStreamWorkbench)


def is_running(server: Workbench | CodeExecutor) -> bool:
    """Return whether a workbench has started a server, or a code executor a container or kernel: `McpTools` says so,
    AutoGen's own classes keep it in private fields (autogen-ext 0.7.5)."""
    if isinstance(server, CodeExecutor):
        return is_started(server) is True
    return bool(getattr(server, "is_running", False) or getattr(server, "_actor", None))


def mcp_params_of(part: object) -> Any:
    """Return how AutoGen's `McpWorkbench` or a tool of `mcp_server_tools`, or a subclass, reaches its server; None for
    any other workbench or tool (autogen-ext 0.7.5)."""
    if not _is_from("tools.mcp", part):
        return None
    return getattr(part, "server_params", None) or getattr(part, "_server_params", None)


def let_mcp_servers_ask() -> None:
    """Let the sessions that AutoGen opens with MCP servers pass on what a server asks its user. AutoGen tells each
    server that it cannot ask, with no way to say otherwise (autogen-ext 0.7.5; its successor has one:
    https://github.com/microsoft/autogen/pull/6833)."""
    module = sys.modules.get("autogen_ext.tools.mcp._session")
    if module is not None and module.ClientSession.__module__.startswith("mcp."):
        from upcall.autogen.mcp_sessions import AskingSession

        module.ClientSession = AskingSession  # type: ignore[attr-defined]


async def reach_server_of(tool: Any) -> None:
    """Speak with the server of a tool of `mcp_server_tools`, over the session it was given or a new one: what it raises
    says why that cannot be reached (autogen-ext 0.7.5)."""
    if tool._session is not None:
        await tool._session.list_tools()
        return
    async with sys.modules["autogen_ext.tools.mcp._session"].create_mcp_server_session(tool._server_params) as session:
        await session.initialize()


def mcp_actor_of(workbench: object) -> asyncio.Task[Any] | None:
    """Return the task that an `McpWorkbench` has for its server's session; None before its start and after its end,
    which it does not report: who waits for that task's reply may wait for ever (autogen-ext 0.7.5)."""
    return getattr(getattr(workbench, "_actor", None), "_actor_task", None)


async def abandon_mcp_server(workbench: Any) -> None:
    """End the server of an `McpWorkbench` that cannot be stopped: `stop` waits for a silent server (autogen-ext
    0.7.5)."""
    actor = mcp_actor_of(workbench)
    if hasattr(workbench, "_actor"):
        workbench._actor = None
    if actor is not None:
        actor.cancel()
        await asyncio.wait([actor])


@cache
def without_tracebacks_of_mcp(is_reported: Callable[[], bool]) -> None:
    """Keep AutoGen and the `mcp` package from logging errors of a server with their tracebacks, which contain its
    address with all keys, where `is_reported` says that somebody else reports them (autogen-ext 0.7.5)."""
    for name in (
        "autogen_ext.tools.mcp._actor",
        *(f"mcp.client.{each}" for each in ("stdio", "sse", "streamable_http")),
    ):
        logging.getLogger(name).addFilter(lambda record: not (record.exc_info and is_reported()))


def is_started(executor: CodeExecutor) -> bool | None:
    """Return whether an AutoGen code executor was started; None if it does not say, or runs code without starting."""
    if _is_from("code_executors.local", executor):
        return None
    if _is_from("code_executors.docker_jupyter", executor):
        # It keeps the id of its kernel after that is deleted, but closes its client's connection.
        return executor._jupyter_client._async_session is not None  # type: ignore[attr-defined]
    states = (getattr(executor, name, None) for name in ("_running", "_started"))
    return next((each for each in states if isinstance(each, bool)), None)


def is_distributed(team: BaseGroupChat) -> bool:
    """Return whether a team has a runtime that serializes its messages for other processes. AutoGen's own teams wait
    there for ever: it builds the abstract `BaseChatMessage` (autogen-ext 0.7.5)."""
    return _is_from("runtimes.grpc", team._runtime)


def executor_of(part: object) -> CodeExecutor | None:
    """Return the code executor that a stock agent was made with; None for any other part."""
    return part._code_executor if isinstance(part, CodeExecutorAgent) else None


def in_this_context(
    tool: BaseTool[Any, Any], begin: Callable[[], None], show: Callable[[Any], Any]
) -> BaseTool[Any, Any]:
    """Return the same tool, whose function runs with the current context variables, after `begin`, and passes its
    result to `show`. A `FunctionTool` runs a plain function in a thread, if there is one, without those variables, and
    serializes a returned model as JSON, which fails if a field is a time (autogen-core 0.7.5)."""
    if not isinstance(tool, FunctionTool):
        return tool
    twin = copy(tool)
    if asyncio.iscoroutinefunction(tool._func):

        async def call_async(*given: Any, **named: Any) -> Any:
            return show(await tool._func(*given, **named))

        twin._func = call_async
        return twin

    def call(*given: Any, **named: Any) -> Any:
        begin()
        return show(contain(tool._func, *given, **named))

    twin._func = partial(copy_context().run, call)
    return twin


def static_tools(workbench: Workbench) -> dict[str, BaseTool[Any, Any]]:
    """Return the tools of a stock static workbench by the names it offers; `list_tools` returns only their schemas
    (autogen-core 0.7.5). None for any other workbench."""
    if not is_static(workbench):
        return {}
    assert isinstance(workbench, StaticWorkbench)
    overrides = {name: each.name for name, each in workbench._tool_overrides.items() if each.name}
    return {overrides.get(tool.name, tool.name): tool for tool in workbench._tools}


def with_tools(workbench: Workbench, tools: Sequence[BaseTool[Any, Any]]) -> Workbench:
    """Return a static workbench like `workbench`, also one, with other tools: its overrides are private (autogen-core
    0.7.5)."""
    assert isinstance(workbench, StaticWorkbench)
    return type(workbench)(list(tools), dict(workbench._tool_overrides))


def parts_of(part: object) -> list[object]:
    """Return the agents and teams that a stock agent or team works through; none for any other part."""
    if isinstance(part, MessageFilterAgent):
        return [part._wrapped_agent]
    if isinstance(part, SocietyOfMindAgent):
        return [part._team]
    if isinstance(part, BaseGroupChat):
        return [*part._participants]
    if isinstance(part, AssistantAgent):
        tools = [tool for workbench in part._workbench for tool in static_tools(workbench).values()]
        return [each for each in (agent_of(tool) or team_of(tool) for tool in tools) if each is not None]
    return []


def list_helpers(part: object) -> list[object]:
    """Return what a stock agent or team works with besides models and tools: memories, model contexts, the conditions
    at which a team ends, and functions that choose its speakers, approve code or format results (autogen-agentchat
    0.7.5)."""
    found: list[object] = []
    if isinstance(part, AssistantAgent):
        found = [*(part._memory or ()), part.model_context]
    elif isinstance(part, CodeExecutorAgent):
        found = [part.model_context, part._approval_func]
    elif isinstance(part, SelectorGroupChat):
        found = [part._model_context, part._selector_func, part._candidate_func]
    if isinstance(part, BaseGroupChat):
        found += _list_conditions(part._termination_condition)
    return [each for each in found if each is not None]


def _list_conditions(condition: object) -> list[object]:
    """Return a condition with those that it joins, or with its function."""
    if isinstance(condition, FunctionalTermination):
        return [condition._func]
    joined = isinstance(condition, AndTerminationCondition | OrTerminationCondition)
    below: Sequence[object] = getattr(condition, "_conditions", ()) if joined else ()
    return [condition, *(inner for each in below for inner in _list_conditions(each))]


def model_client_of(part: object) -> ChatCompletionClient | None:
    """Return the model client of a stock agent; None if it has none."""
    if isinstance(part, AssistantAgent | CodeExecutorAgent | SocietyOfMindAgent):
        return part._model_client
    return None


def apply_filter(agent: MessageFilterAgent, messages: Sequence[BaseChatMessage]) -> Sequence[BaseChatMessage]:
    """Return the messages that pass a `MessageFilterAgent`."""
    return agent._apply_filter(messages)


ApprovalFunction: TypeAlias = Callable[[ApprovalRequest], Awaitable[ApprovalResponse] | ApprovalResponse]
"""Approves code, or refuses it."""

CallTool: TypeAlias = Callable[
    [FunctionCall, CancellationToken, Callable[[Any], None]], Awaitable[FunctionExecutionResult | None]
]
"""Makes a tool call, which may emit events; returns None if AutoGen should make it."""


ListTools: TypeAlias = Callable[[Sequence[Workbench]], Awaitable[tuple[list[ToolSchema], list[str]]]]
"""Lists the tools of workbenches, and lines for the model about those that cannot be used."""


_BROWSER = ("_playwright", "_context", "_page", "_last_download", "did_lazy_init", "_lazy_init")
"""What a `MultimodalWebSurfer` has of its browser, which it opens in its first turn (autogen-ext 0.7.5)."""


def list_browser_attributes(agent: object) -> Sequence[str]:
    """Return the attributes in which an agent keeps a browser; none for any agent but a `MultimodalWebSurfer`."""
    return _BROWSER if _is_from("agents.web_surfer", agent) else ()


def get_browser_address(agent: Any) -> str | None:
    """Return the address that a web surfer is at; None if it has opened no browser."""
    address: str | None = getattr(getattr(agent, "_page", None), "url", None)
    return address


def open_browser_at(agent: Any, address: str) -> None:
    """Let a web surfer go to an address as soon as it has opened its browser, which it does at its start page."""
    opens = type(agent)._lazy_init

    async def open_there() -> None:
        await opens(agent)
        await agent._page.goto(address)
        await agent._page.wait_for_load_state()

    agent._lazy_init = open_there


def get_replay_position(client: Any) -> int:
    """Return how many replies a `ReplayChatCompletionClient` has given, which is private (autogen-ext 0.7.5)."""
    position: int = client._current_index
    return position


def set_replay_position(client: Any, position: int) -> None:
    """Let a `ReplayChatCompletionClient` continue after so many replies."""
    client._current_index = position


@dataclass(frozen=True)
class Wrappers:
    """The wrappers for the parts a stock agent works through; some get the agent's name too."""

    model: Callable[[ChatCompletionClient, str], ChatCompletionClient]
    code: Callable[[CodeExecutor, str], CodeExecutor]
    call: CallTool
    tools: ListTools
    approve: Callable[[ApprovalFunction], ApprovalFunction]
    team: Callable[[Team], Team]


def wrap_parts(part: object, wrappers: Wrappers) -> None:
    """Wrap the parts of a stock agent, which are private (autogen-agentchat 0.7.5). Leave other parts unchanged."""
    if isinstance(part, AssistantAgent):
        part._model_client = wrappers.model(part._model_client, part.name)
        part.__class__ = _calling(type(part), wrappers.call, wrappers.tools)
    elif isinstance(part, CodeExecutorAgent):
        if part._model_client is not None:
            part._model_client = wrappers.model(part._model_client, part.name)
        part._code_executor = wrappers.code(part._code_executor, part.name)
        if part._approval_func is not None and not _is_ours(part._approval_func):
            approve: Any = wrappers.approve(part._approval_func)
            approve.upcall_own = True
            part._approval_func, part._approval_func_is_async = approve, True
    elif isinstance(part, SocietyOfMindAgent):
        part._model_client = wrappers.model(part._model_client, part.name)
        part._team = wrappers.team(part._team)


def wrap_manager(team: BaseGroupChat, wrappers: Wrappers) -> None:
    """Do the same as `wrap_parts` for the model a team itself selects and plans with, before the team's first run."""
    if isinstance(team, SelectorGroupChat | MagenticOneGroupChat):
        team._model_client = wrappers.model(team._model_client, team._group_chat_manager_name)


class _Listed(StaticWorkbench):
    """The tools of an agent as they were listed: a model is shown them, and calls none here."""

    def __init__(self, schemas: list[ToolSchema]) -> None:
        super().__init__([])
        self._listed = schemas

    async def list_tools(self) -> list[ToolSchema]:
        return self._listed


class _Calling(AssistantAgent):
    """An `AssistantAgent` whose tool calls can be made in another way, and always end.

    The stock one waits forever for a call that raises, for example one that is cancelled, or whose arguments are JSON
    but not an object (autogen-agentchat 0.7.5: the queue of their events has no `finally`). Here an error ends the wait
    too.
    """

    _call: ClassVar[CallTool]
    _list: ClassVar[ListTools]

    @classmethod
    async def _call_llm(  # type: ignore[override]  # AutoGen names each argument
        cls, *, system_messages: list[SystemMessage], workbench: Sequence[Workbench], **given: Any
    ) -> AsyncGenerator[CreateResult | ModelClientStreamingChunkEvent, None]:
        tools, missing = await cls._list(workbench)
        prompts = [*system_messages, *(SystemMessage(content=each) for each in missing)]
        call = super()._call_llm(system_messages=prompts, workbench=[_Listed(tools)], **given)
        async with aclosing(call) as items:
            async for item in items:
                yield item

    @classmethod
    async def _execute_tool_call(
        cls,
        tool_call: FunctionCall,
        workbench: Sequence[Workbench],
        handoff_tools: list[BaseTool[Any, Any]],
        agent_name: str,
        cancellation_token: CancellationToken,
        stream: asyncio.Queue[BaseAgentEvent | BaseChatMessage | None],
    ) -> tuple[FunctionCall, FunctionExecutionResult]:
        is_handoff = any(each.name == tool_call.name for each in handoff_tools)
        try:
            result = None if is_handoff else await cls._call(tool_call, cancellation_token, stream.put_nowait)
            if result is not None:
                return tool_call, result
            return await super()._execute_tool_call(
                tool_call, workbench, handoff_tools, agent_name, cancellation_token, stream
            )
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (reported to the model, like other errors)
            reason = str(error) or type(error).__name__
        try:
            return tool_call, FunctionExecutionResult(
                content=f"Error: {reason}", call_id=tool_call.id, is_error=True, name=tool_call.name
            )
        except ValidationError as error:  # No result fits such an id or name: the turn ends with an error.
            stream.put_nowait(None)
            raise ValueError(
                f"the model called {tool_call.name!r} under the id {tool_call.id!r}: both must be strings"
            ) from error


@cache
def _calling(kind: type[AssistantAgent], call: CallTool, tools: ListTools) -> type[AssistantAgent]:
    if issubclass(kind, _Calling):
        return kind
    fields = {
        "_call": staticmethod(call),
        "_list": staticmethod(tools),
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
    }
    return type(kind.__name__, (_Calling, kind), fields)


def has_stock_turn(agent: object) -> bool:
    """Return whether the turn of a stock agent is AutoGen's own; a subclass may override it."""
    for kind in (AssistantAgent, CodeExecutorAgent, SocietyOfMindAgent):
        if isinstance(agent, kind):
            return type(agent).on_messages_stream is kind.on_messages_stream
    return False


def gives_last_message(tool: BaseTool[Any, Any]) -> bool:
    """Return whether the result of a stock `AgentTool` or `TeamTool` is only the last message, which is private."""
    return bool(getattr(tool, "_return_value_as_last_message", True))


def find_handlers_once(kind: type[RoutedAgent]) -> None:
    """Let AutoGen find the message handlers of `kind`, and of each class derived from it, once. It looks through all
    attributes of a class whenever it registers or makes an agent of it (autogen-core 0.7.5)."""
    find: Any = kind._discover_handlers
    find_once: Any = cache(find.__func__)
    kind._discover_handlers = classmethod(find_once)  # type: ignore[method-assign, assignment]


@cache
def without_tracebacks_of(kind: type[Exception]) -> None:
    """Keep AutoGen's runtime from logging errors of this class with a full traceback (it logs every error that an agent
    raises, and passes it on; autogen-core 0.7.5). The code that handles them reports them."""

    def other(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], kind))

    logging.getLogger("autogen_core").addFilter(other)


def before_each_use(check: Callable[[Any], None]) -> None:
    """Call `check` with each agent, team and model context that is about to take in messages, once per process. An
    agent that only the code of a tool leads to (``await expert.run(task=...)``) can be seen nowhere else: these are the
    methods that subclasses do not override (autogen-agentchat and -core 0.7.5)."""
    kinds = ((BaseChatAgent, "run"), (BaseChatAgent, "run_stream"), (BaseGroupChat, "run_stream"))
    for kind, name in (*kinds, (ChatCompletionContext, "add_message")):
        setattr(kind, name, _check_before(getattr(kind, name), check))


def _check_before(method: Callable[..., Any], check: Callable[[Any], None]) -> Callable[..., Any]:
    @wraps(method)
    def use(self: Any, *given: Any, **named: Any) -> Any:
        check(self)
        return method(self, *given, **named)

    return use


AGENT_TURNS = ((AssistantAgent, "on_messages_stream"), (BaseChatAgent, "on_messages_stream"))
"""Where instrumentors see the turn of an agent; see `upcall.autogen.instrumentors`."""

TOOL_CALLS = ((AssistantAgent, "_execute_tool_call"),)
"""Where they see a tool call: a private method (autogen-agentchat 0.7.5)."""

OwnSpan = Callable[[str, str], AbstractContextManager[bool]]
"""Given the operation and the name of the agent or tool: makes a span of our own, if any; False if AutoGen should make
its own."""

_SPANS = {
    "trace_tool_span": "execute_tool",
    "trace_create_agent_span": "create_agent",
    "trace_invoke_agent_span": "invoke_agent",
}


def with_own_spans(own: OwnSpan) -> None:
    """Replace the spans that AutoGen makes of agents and tools with `own`, once per process. They cannot be turned off,
    and contain the texts of exceptions (autogen-core 0.7.5)."""
    packages = ("autogen_core.", "autogen_agentchat.", "autogen_ext.")
    for module in [each for name, each in [*sys.modules.items()] if name.startswith(packages)]:
        for name, operation in _SPANS.items():
            theirs = vars(module).get(name)
            if theirs is not None and not _is_ours(theirs):
                setattr(module, name, _instead(theirs, operation, own))


def _is_ours(made: object) -> bool:
    return getattr(made, "upcall_own", False) is True


def _instead(theirs: Callable[..., Any], operation: str, own: OwnSpan) -> Callable[..., Any]:
    @contextmanager
    def span(*given: Any, **named: Any) -> Iterator[Any]:
        called = given[0] if given else named.get("tool_name") or named.get("agent_name")
        with own(operation, str(called)) as made:
            if made:
                yield trace.INVALID_SPAN
            else:
                with theirs(*given, **named) as made_by_them:
                    yield made_by_them

    span.upcall_own = True  # type: ignore[attr-defined]
    return span
