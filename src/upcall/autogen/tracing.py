"""What can be seen of the calls of a run: their spans and metrics (`upcall.telemetry`), and the times of a timeline.

Where a run is not traced nothing of OpenTelemetry is used.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage

from upcall.autogen.call_path import current_path
from upcall.autogen.message_parts import show_reply, show_request
from upcall.autogen.scope import current_scope, enter_scope
from upcall.runs.call_timings import ActiveCall, Timings
from upcall.telemetry.metrics import CallMeasures, record_call
from upcall.telemetry.spans import Attributes, RunTrace, enter_segment, mark_error, name_error, to_json

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from upcall.runs.run import Run


class TracedOutcome(Protocol):
    """The outcome of a tool call: see `upcall.autogen.journal.ToolOutcome`."""

    @property
    def content(self) -> Any:
        """What it returned, any JSON."""

    @property
    def is_error(self) -> bool:
        """Whether it is an error."""

    @property
    def asked(self) -> Mapping[str, Any] | None:
        """The question of a tool that needs the human."""


OutcomeT = TypeVar("OutcomeT", bound=TracedOutcome)
P = ParamSpec("P")
T = TypeVar("T")

_PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "ollama": "ollama", "azure": "azure.ai.inference"}
"""The conventions' names for the providers whose clients are in ``autogen_ext.models``."""

_unseen: ContextVar[bool] = ContextVar("upcall_unseen", default=False)


@dataclass(eq=False)
class ModelRequest:
    """A request to a model, while it is made.

    Attributes:
        messages: what the model is sent.
        streams: whether the reply comes in pieces.
        began: when it was made, by `time.monotonic`.
        first_chunk: after how many seconds the first piece came.
    """

    messages: Sequence[LLMMessage]
    streams: bool = False
    began: float = field(default_factory=time.monotonic)
    first_chunk: float | None = None

    def note_chunk(self) -> None:
        """Note that a piece of the reply has come."""
        if self.first_chunk is None:
            self.first_chunk = time.monotonic() - self.began


def turn_on() -> None:
    """Get ready to trace: in runs that are traced, our spans of agents and tools replace AutoGen's own."""
    from upcall.autogen.internals import with_own_spans

    with_own_spans(_in_place_of_autogens)


@contextmanager
def segment(run: Run, team: str, *, content: bool) -> Iterator[str | None]:
    """Trace a segment of a run, as `upcall.telemetry.spans.enter_segment` does, and the calls in it."""
    made = RunTrace.of(run, content=content)
    with enter_scope(replace(current_scope(), trace=made)), enter_segment(made, team) as traceparent:
        yield traceparent


@contextmanager
def agent(name: str) -> Iterator[None]:
    """Trace the part of an agent's turn that lies in this segment."""
    if (made := current_scope().trace) is None:
        yield
        return
    with made.enter("invoke_agent", name, _describe_caller(name)):
        yield


async def model_call(
    name: str, client: ChatCompletionClient, request: ModelRequest, work: Awaitable[CreateResult]
) -> CreateResult:
    """Return the result of a model call by the agent `name`, made by `work`."""
    scope = current_scope()
    made, timings = scope.trace, scope.timings
    if made is None and timings is None:
        return await work
    with _measure(timings, name) as call:
        reply = await (work if made is None else _chat(made, name, client, request, work))
        call.failed = False
        return reply


async def tool_call(
    name: str, tool: str, call_id: str, arguments: str, run: Callable[[], Awaitable[OutcomeT]]
) -> OutcomeT:
    """Return the outcome of a tool call by the agent `name`. `arguments` are JSON."""
    scope = current_scope()
    made, timings = scope.trace, scope.timings
    if made is None and timings is None:
        return await run()
    with _measure(timings, name, tool) as call:
        outcome = await (run() if made is None else _execute(made, name, tool, call_id, arguments, run))
        call.failed = outcome.is_error
        return outcome


def _measure(timings: Timings | None, name: str, tool: str = "") -> AbstractContextManager[ActiveCall]:
    path = _path(name)
    return nullcontext(ActiveCall(path, tool)) if timings is None else timings.measure(path, tool)


async def _chat(
    made: RunTrace, name: str, client: ChatCompletionClient, request: ModelRequest, work: Awaitable[CreateResult]
) -> CreateResult:
    provider, model = _identify(client)
    attributes: Attributes = {"gen_ai.provider.name": provider, **_describe_caller(name)}
    attributes |= {"gen_ai.request.model": model} if model else {}
    attributes |= {"gen_ai.request.stream": True} if request.streams else {}
    if made.content:
        attributes |= show_request(request.messages)
    error: str | None = None
    tokens: dict[str, int] = {}
    try:
        with made.enter("chat", model, attributes, client=True) as span:
            reply = await work
            tokens |= {"input": reply.usage.prompt_tokens, "output": reply.usage.completion_tokens}
            _describe_reply(span, reply, tokens, request.first_chunk, content=made.content)
            return reply
    except BaseException as failure:
        error = name_error(failure)
        raise
    finally:
        seconds = time.monotonic() - request.began
        record_call(provider, model, CallMeasures(seconds, request.first_chunk, tokens, error))


def _describe_reply(
    span: Span, reply: CreateResult, tokens: Mapping[str, int], first_chunk: float | None, *, content: bool
) -> None:
    span.set_attribute("gen_ai.response.finish_reasons", [reply.finish_reason])
    for kind, count in tokens.items():
        span.set_attribute(f"gen_ai.usage.{kind}_tokens", count)
    if first_chunk is not None:
        span.set_attribute("gen_ai.response.time_to_first_chunk", first_chunk)
    if content:
        span.set_attributes(show_reply(reply))


async def _execute(
    made: RunTrace, name: str, tool: str, call_id: str, arguments: str, run: Callable[[], Awaitable[OutcomeT]]
) -> OutcomeT:
    attributes: Attributes = {"gen_ai.tool.name": tool, "gen_ai.tool.type": "function", **_describe_caller(name)}
    attributes |= {"gen_ai.tool.call.id": call_id} if call_id else {}
    attributes |= {"gen_ai.tool.call.arguments": arguments} if made.content else {}
    with made.enter("execute_tool", tool, attributes) as span:
        outcome = await run()
        if outcome.is_error:
            mark_error(span, "tool_error")
        if outcome.asked is not None:
            span.set_attribute("upcall.asked", True)
        elif made.content:
            output = outcome.content if isinstance(outcome.content, str) else to_json(outcome.content)
            span.set_attribute("gen_ai.tool.call.result", output)
        return outcome


def _describe_caller(name: str) -> Attributes:
    path = "/".join(name for name, _ in current_path())
    return {"gen_ai.agent.name": name, **({"upcall.path": path} if path else {})}


def unseen(build: Callable[P, T]) -> Callable[P, T]:
    """Keep a function that builds a team from making spans: a team is rebuilt for each segment, which is of no
    interest."""

    @wraps(build)
    def build_unseen(*given: P.args, **named: P.kwargs) -> T:
        token = _unseen.set(True)
        try:
            return build(*given, **named)
        finally:
            _unseen.reset(token)

    return build_unseen


@contextmanager
def _in_place_of_autogens(operation: str, name: str) -> Iterator[bool]:
    """Stand in where AutoGen would make a span: ours for an agent's turn, none for a tool's call, since `tool_call` has
    made it. False if the run is not traced."""
    if current_scope().trace is None:
        yield _unseen.get()
    elif operation == "invoke_agent":
        with agent(name):
            yield True
    else:
        yield True


def _path(name: str) -> tuple[str, ...]:
    return (*(above for above, _ in current_path()), name)


def read_model(client: ChatCompletionClient) -> str:
    """Return the name of a client's model; empty if it has none."""
    return _identify(client)[1]


_KNOWN: WeakKeyDictionary[ChatCompletionClient, tuple[str, str]] = WeakKeyDictionary()


def _identify(client: ChatCompletionClient) -> tuple[str, str]:
    """Return the provider and the model of a client, if known; looked up once if it is hashable (a dataclass is
    not)."""
    if not isinstance(client, Hashable):
        return _read_component(client)
    if client not in _KNOWN:
        _KNOWN[client] = _read_component(client)
    return _KNOWN[client]


def _read_component(client: ChatCompletionClient) -> tuple[str, str]:
    """Read them from the client's component, the only public access."""
    parts = type(client).__module__.split(".")
    provider = type(client).__name__
    if parts[:2] == ["autogen_ext", "models"] and len(parts) > 2:
        azure = provider.startswith("AzureOpenAI")
        provider = "azure.ai.openai" if azure else _PROVIDERS.get(parts[2], parts[2])
    elif parts[:3] == ["upcall", "autogen", "openai_client"]:
        provider = "openai"
    model = ""
    # It is not a component, contains what cannot be dumped, or warns of how AutoGen itself named it.
    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        model = str(client.dump_component().config.get("model", ""))
    return provider, model
