"""OpenTelemetry spans by its GenAI conventions, and the trace that a run keeps over pauses and processes.

A run is one trace. A span cannot stay open while a run waits, perhaps for a week and for another process: so a
zero-length span marks the run's start, its ``traceparent`` is stored with the run, and each segment, question and wait
is a child of it.

Spans contain names, ids and counts. What was written is in them by choice only (`captures_content`), and never the text
of an exception, nor a secret: calls return their results with secrets removed, and answers to secret questions are not
put into spans at all.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer
    from opentelemetry.util.types import AttributeValue

    from upcall.runs.run import Run

Attributes = dict[str, "AttributeValue"]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
"""The version of the conventions."""

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which OpenTelemetry's own GenAI instrumentations are instructed to record what was written."""

_IN_SPANS = frozenset({"true", "1", "span_only", "span_and_event"})
"""Its values that ask for content in spans. ``EVENT_ONLY`` does not, and we make no events."""

_KINDS = {"invoke_workflow": "CHAIN", "invoke_agent": "AGENT", "execute_tool": "TOOL", "chat": "LLM"}
"""The kinds of OpenInference by operation: its readers, as Phoenix, do not know ``invoke_workflow``."""

_TRACEPARENT = "traceparent"


@dataclass(frozen=True)
class RunTrace:
    """How the spans of a run are made.

    Attributes:
        tracer: makes them.
        attributes: those that each of them has: which run, and whose.
        traceparent: the start of the run, None where it has not been stored.
        content: whether they contain what was written.
    """

    tracer: Tracer
    attributes: Mapping[str, AttributeValue]
    traceparent: str | None = None
    content: bool = False

    @classmethod
    def of(cls, run: Run, *, content: bool) -> RunTrace:
        """Return how those of `run` are made."""
        from opentelemetry import trace

        attributes: Attributes = {"gen_ai.conversation.id": run.id, "session.id": run.id}
        attributes |= {"user.id": run.user} if run.user else {}
        return cls(trace.get_tracer("upcall", schema_url=SCHEMA_URL), attributes, run.config.traceparent, content)

    def start(self, name: str, attributes: Attributes, *, at: int | None = None) -> Span:
        """Start a span below the start of the run, now or `at` a time in nanoseconds since 1970."""
        return self.tracer.start_span(
            name, context_of(self.traceparent), attributes={**self.attributes, **attributes}, start_time=at
        )

    @contextmanager
    def enter(
        self,
        operation: str,
        of: str,
        attributes: Attributes,
        *,
        client: bool = False,
        context: Context | None = None,
        links: list[Link] | None = None,
    ) -> Iterator[Span]:
        """Make a span by the conventions, current inside; an error marks it with its type only."""
        from opentelemetry.trace import SpanKind

        named = {"gen_ai.operation.name": operation, "openinference.span.kind": _KINDS[operation]}
        with (
            self.tracer.start_as_current_span(
                f"{operation} {of}".strip(),
                context,
                kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
                attributes={**self.attributes, **named, **attributes},
                links=links or [],
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
            _failures(span),
        ):
            yield span


def is_on(setting: bool | None) -> bool:
    """Return whether runs are traced: as the setting says, or else wherever somebody has set up OpenTelemetry, as
    programs do that are instrumented."""
    return is_recorded() if setting is None else setting


def is_recorded() -> bool:
    """Return whether this process has a tracer provider. Without one OpenTelemetry returns a stand-in."""
    from opentelemetry import trace

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def captures_content(setting: bool | None) -> bool:
    """Return whether spans contain what was written: as the setting says, or else as the environment does."""
    return os.environ.get(CAPTURE, "").lower() in _IN_SPANS if setting is None else setting


def start_run(run: Run, *, content: bool, link: str | None = None) -> str | None:
    """Mark the start of a run in a trace, that of the caller if there is one. Returns the ``traceparent`` for the run
    to store, None if nobody records spans. `link` is that of the run it branches from."""
    from opentelemetry import trace

    forked = trace.get_current_span(context_of(link)).get_span_context()
    links = [trace.Link(forked)] if forked.is_valid else []
    made = RunTrace.of(run, content=content)
    input_attributes = {"openinference.span.kind": "CHAIN", **show_text("input", run.task if content else None)}
    with made.tracer.start_as_current_span(
        "start_run", attributes={**made.attributes, **input_attributes}, links=links
    ):
        return _present()


@contextmanager
def enter_segment(made: RunTrace, team: str) -> Iterator[str | None]:
    """Trace a segment of a run: a child of its start, which may have been in another process. Yields the
    ``traceparent`` for the run to store, even if it was started without tracing."""
    from opentelemetry import trace

    context = context_of(made.traceparent) if made.traceparent else None
    here = trace.get_current_span().get_span_context()
    known = trace.get_current_span(context).get_span_context()
    links = [trace.Link(here)] if here.is_valid and here.trace_id != known.trace_id else []
    named: Attributes = {"gen_ai.workflow.name": team}
    with made.enter("invoke_workflow", team, named, context=context, links=links):
        yield made.traceparent or _present()


def context_of(traceparent: str | None) -> Context:
    """Return the context that a ``traceparent`` names, without what is current here."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({_TRACEPARENT: traceparent or ""}, Context())


def mark_error(span: Span, kind: str) -> None:
    """Mark a span as failed. `kind` is the class of the error, never its text."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR))
    span.set_attribute("error.type", kind)


def name_error(error: BaseException) -> str:
    """Return the ``error.type`` of an error."""
    return "cancelled" if isinstance(error, GeneratorExit | asyncio.CancelledError) else type(error).__name__


def show_text(side: str, text: str | None) -> Attributes:
    """Return OpenInference's attributes for a text that went in (``input``) or came out (``output``), if there is
    one."""
    return {} if text is None else {f"{side}.value": text, f"{side}.mime_type": "text/plain"}


def to_json(value: Any) -> str:
    """Return a value as the JSON that stands in attributes, which take no nested ones."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _present() -> str | None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(_TRACEPARENT)


@contextmanager
def _failures(span: Span) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        mark_error(span, name_error(error))
        raise
