"""What can be seen of the calls of a run: OpenTelemetry spans (off by default), and the times of a timeline.

Spans follow OpenTelemetry's GenAI conventions. They contain names, ids and token counts, never what was said: no
arguments, results or texts of errors. With tracing off nothing of OpenTelemetry is used, and only `export` ever imports
its SDK here.

A run is one trace. A span cannot stay open while a run waits, perhaps for a week and for another process: so a
zero-length span marks the run's start, its ``traceparent`` is stored with the run, and each segment is a child of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from autogen_core.models import ChatCompletionClient, CreateResult

from upcall.autogen.call_path import current_path
from upcall.autogen.scope import current_scope, enter_scope
from upcall.errors import ConfigurationError, install_command
from upcall.runs.call_timings import ActiveCall, Timings

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


class Outcome(Protocol):
    """The outcome of a tool call: see `upcall.autogen.journal.ToolOutcome`."""

    @property
    def is_error(self) -> bool:
        """Whether it is an error."""

    @property
    def asked(self) -> Mapping[str, Any] | None:
        """The question of a tool that needs the human."""


OutcomeT = TypeVar("OutcomeT", bound=Outcome)
P = ParamSpec("P")
T = TypeVar("T")

_TRACEPARENT = "traceparent"

_PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "ollama": "ollama", "azure": "azure.ai.inference"}
"""The conventions' names for the providers whose clients are in ``autogen_ext.models``."""

SECONDS_TO_SEND = 2.0
"""How long a program waits at exit for a missing collector; OpenTelemetry's default of ten seconds is long for a
command that somebody has typed."""

_TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")

_unseen: ContextVar[bool] = ContextVar("upcall_unseen", default=False)


def turn_on() -> None:
    """Get ready to trace. AutoGen's own switch turns off its spans of runtime messages (two or three per message),
    unless ``AUTOGEN_DISABLE_RUNTIME_TRACING`` is set; our spans of agents and tools replace its own."""
    from upcall.autogen.internals import with_own_spans

    os.environ.setdefault("AUTOGEN_DISABLE_RUNTIME_TRACING", "true")
    with_own_spans(_in_place_of_autogens)


def export() -> None:
    """Send spans to where ``OTEL_EXPORTER_OTLP_*`` says, or with ``OTEL_TRACES_EXPORTER`` to standard error
    (``console``) or nowhere (``none``), if nobody has set up OpenTelemetry in this process. For programs; a library
    leaves that to its program.

    Raises:
        ConfigurationError: a package it needs is not installed.
    """
    from opentelemetry import trace

    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if wanted == "none" or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        from opentelemetry.sdk.trace import TracerProvider

        provider = TracerProvider()
        if wanted == "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

            provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            # It logs each failed try, even while a question is on the screen; we log once when it gives up.
            logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
            own = any(os.environ.get(name) for name in _TIMEOUTS)
            exporter = OTLPSpanExporter(timeout=None if own else SECONDS_TO_SEND)
            provider.add_span_processor(BatchSpanProcessor(exporter))
    except ImportError as error:
        raise missing_opentelemetry(error) from error
    trace.set_tracer_provider(provider)


def missing_opentelemetry(error: ImportError) -> ConfigurationError:
    """Return the error for spans or metrics that cannot be sent because a package is not installed."""
    return ConfigurationError(
        f"tracing is true, but {error.name} is not installed. Say: {install_command('otel')}, or leave it out."
    )


def start(run_id: str, *, link: str | None = None) -> str | None:
    """Mark the start of a run in a trace, that of the caller if there is one. Returns the ``traceparent`` for the run
    to store, None if nobody records spans. `link` is that of the run it branches from."""
    from opentelemetry import trace

    forked = trace.get_current_span(_context_of(link)).get_span_context()
    links = [trace.Link(forked)] if forked.is_valid else []
    attributes = {"gen_ai.conversation.id": run_id}
    with _get_tracer().start_as_current_span("start_run", attributes=attributes, links=links):
        return _present()


@contextmanager
def workflow(run_id: str, team: str, traceparent: str | None) -> Iterator[str | None]:
    """Trace a segment of a run: a child of its start, which may have been in another process. Yields the
    ``traceparent`` for the run to store, even if it was started without tracing."""
    from opentelemetry import trace

    tracer = _get_tracer()
    context = _context_of(traceparent) if traceparent else None
    here = trace.get_current_span().get_span_context()
    known = trace.get_current_span(context).get_span_context()
    links = [trace.Link(here)] if here.is_valid and here.trace_id != known.trace_id else []
    attributes = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": team,
        "gen_ai.conversation.id": run_id,
    }
    with (
        enter_scope(replace(current_scope(), tracer=tracer)),
        tracer.start_as_current_span(
            f"invoke_workflow {team}",
            context,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
        _failures(span),
    ):
        yield traceparent or _present()


@contextmanager
def agent(name: str) -> Iterator[None]:
    """Trace the part of an agent's turn that lies in this segment."""
    if (tracer := current_scope().tracer) is None:
        yield
        return
    with _span(tracer, "invoke_agent", name, {"gen_ai.agent.name": name}):
        yield


async def model_call(name: str, client: ChatCompletionClient, work: Awaitable[CreateResult]) -> CreateResult:
    """Return the result of a model call by the agent `name`."""
    scope = current_scope()
    tracer, timings = scope.tracer, scope.timings
    if tracer is None and timings is None:
        return await work
    with _measure(timings, name) as call:
        reply = await (work if tracer is None else _chat(tracer, name, client, work))
        call.failed = False
        return reply


async def tool_call(name: str, tool: str, call_id: str, run: Callable[[], Awaitable[OutcomeT]]) -> OutcomeT:
    """Return the outcome of a tool call by the agent `name`."""
    scope = current_scope()
    tracer, timings = scope.tracer, scope.timings
    if tracer is None and timings is None:
        return await run()
    with _measure(timings, name, tool) as call:
        outcome = await (run() if tracer is None else _execute(tracer, name, tool, call_id, run))
        call.failed = outcome.is_error
        return outcome


def _measure(timings: Timings | None, name: str, tool: str = "") -> AbstractContextManager[ActiveCall]:
    path = _path(name)
    return nullcontext(ActiveCall(path, tool)) if timings is None else timings.measure(path, tool)


async def _chat(tracer: Tracer, name: str, client: ChatCompletionClient, work: Awaitable[CreateResult]) -> CreateResult:
    provider, model = _identify(client)
    attributes = {"gen_ai.provider.name": provider, "gen_ai.agent.name": name}
    attributes |= {"gen_ai.request.model": model} if model else {}
    with _span(tracer, "chat", model, attributes, client=True) as span:
        reply = await work
        span.set_attribute("gen_ai.usage.input_tokens", reply.usage.prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", reply.usage.completion_tokens)
        span.set_attribute("gen_ai.response.finish_reasons", [reply.finish_reason])
        return reply


async def _execute(
    tracer: Tracer, name: str, tool: str, call_id: str, run: Callable[[], Awaitable[OutcomeT]]
) -> OutcomeT:
    attributes = {"gen_ai.tool.name": tool, "gen_ai.tool.type": "function", "gen_ai.agent.name": name}
    attributes |= {"gen_ai.tool.call.id": call_id} if call_id else {}
    with _span(tracer, "execute_tool", tool, attributes) as span:
        outcome = await run()
        if outcome.is_error:
            _mark(span, "tool_error")
        if outcome.asked is not None:
            span.set_attribute("upcall.asked", True)
        return outcome


@contextmanager
def _span(
    tracer: Tracer, operation: str, of: str, attributes: Mapping[str, str], *, client: bool = False
) -> Iterator[Span]:
    """Make a span by the conventions, current inside; an error marks it with its type only."""
    from opentelemetry.trace import SpanKind

    named = {"gen_ai.operation.name": operation, "upcall.path": "/".join(name for name, _ in current_path())}
    with (
        tracer.start_as_current_span(
            f"{operation} {of}".strip(),
            kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
            attributes={**{key: value for key, value in named.items() if value}, **attributes},
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
        _failures(span),
    ):
        yield span


@contextmanager
def _failures(span: Span) -> Iterator[None]:
    try:
        yield
    except (GeneratorExit, asyncio.CancelledError):
        _mark(span, "cancelled")
        raise
    except BaseException as error:
        _mark(span, type(error).__name__)
        raise


def _mark(span: Span, kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR))
    span.set_attribute("error.type", kind)


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
    if current_scope().tracer is None:
        yield _unseen.get()
    elif operation == "invoke_agent":
        with agent(name):
            yield True
    else:
        yield True


def _path(name: str) -> tuple[str, ...]:
    return (*(above for above, _ in current_path()), name)


def _get_tracer() -> Tracer:
    from opentelemetry import trace

    return trace.get_tracer("upcall", schema_url="https://opentelemetry.io/schemas/1.41.0")


def _present() -> str | None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(_TRACEPARENT)


def _context_of(traceparent: str | None) -> Any:
    """Return the context that a ``traceparent`` names, without what is current here."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({_TRACEPARENT: traceparent or ""}, Context())


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
    with suppress(Exception):  # It is not a component, or contains what cannot be dumped.
        model = str(client.dump_component().config.get("model", ""))
    return provider, model
