"""Runs whose spans and metrics a test reads, with OpenTelemetry's real SDK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

from upcall import Settings, Upcall
from upcall.agents import PausableAgent
from upcall.execution.team_factory import MakeTeam
from upcall.testing import Call, Reply, ScriptedModelClient

ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})
SECRET = "a text that nobody but the human is to read"

READER = InMemoryMetricReader()
"""Reads the metrics of this process, once `measure` was called."""


@contextmanager
def record() -> Iterator[InMemorySpanExporter]:
    """Yield what the process exports. A provider cannot be replaced, and with one each run is traced: so it is taken
    away again as OpenTelemetry's own tests do."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        yield exporter
    finally:
        trace._TRACER_PROVIDER_SET_ONCE = Once()
        trace._TRACER_PROVIDER = None


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with record() as exporter:
        yield exporter


def measure() -> None:
    """Measure from now on. There is one provider a process, which cannot be set twice."""
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        metrics.set_meter_provider(MeterProvider([READER]))


def read_points(name: str, **attributes: str) -> list[Any]:
    """Return what was measured under a name with these attributes; their dots are underscores here."""
    found = READER.get_metrics_data()
    scopes = [scope for each in found.resource_metrics for scope in each.scope_metrics] if found else []
    points = [point for each in scopes for one in each.metrics if one.name == name for point in one.data.data_points]
    return [
        point
        for point in points
        if attributes.items() <= {key.replace(".", "_"): value for key, value in point.attributes.items()}.items()
    ]


async def note(text: str) -> str:
    """Take a note."""
    with trace.get_tracer("a tool's own").start_as_current_span("write"):
        return f"noted {text}"


async def broken(text: str) -> str:
    """Fail."""
    raise ValueError(SECRET)


def team_of(replies: dict[str, Sequence[Reply]], *, stock: bool = False) -> MakeTeam:
    """Return a lead with the agents coder and tester nested in it, and behind it perhaps a stock agent."""
    client = ScriptedModelClient({f"You are the {name}.": text for name, text in replies.items()})

    def agent(name: str, *nested: PausableAgent) -> PausableAgent:
        expected = f"You are the {name}."
        return PausableAgent(
            name, client, description=name, system_message=expected, agents=nested, tools=[note, broken]
        )

    def make() -> Team:
        members = [agent("lead", agent("coder"), agent("tester"))]
        if stock:
            last = AssistantAgent(
                "last", client, system_message="You are the last.", tools=[note], reflect_on_tool_use=True
            )
            return RoundRobinGroupChat([*members, last], termination_condition=TextMessageTermination("last"))
        return RoundRobinGroupChat(members, termination_condition=TextMessageTermination("lead"))

    return make


def app_of(make: MakeTeam, **settings: Any) -> Upcall:
    """Return a program whose runs are traced because somebody records spans, unless the settings say otherwise."""
    return Upcall(team=make, store="runs.db", settings=Settings(**settings))


def work(agent: str) -> Call:
    return Call(agent, {"task": f"{agent}, do it: {SECRET}"})


def named(spans: InMemorySpanExporter) -> list[str]:
    return [span.name for span in spans.get_finished_spans()]


def tree(spans: InMemorySpanExporter) -> list[str]:
    """Return the spans as indented names, in the order in which they began; a wait, whose begin is exact to the second
    only, where it ended."""

    def place(span: ReadableSpan) -> int:
        return (span.end_time if span.name == "wait_for_human" else span.start_time) or 0

    done = sorted(spans.get_finished_spans(), key=place)
    below: dict[int, list[ReadableSpan]] = {}
    for span in done:
        below.setdefault(span.parent.span_id if span.parent else 0, []).append(span)

    def lines(of: int, depth: int) -> Iterator[str]:
        for span in below.get(of, []):
            yield "  " * depth + span.name
            yield from lines(span.context.span_id, depth + 1)

    return list(lines(0, 0))


def the(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = [each for each in spans.get_finished_spans() if each.name == name]
    return span


def attributes_of(spans: InMemorySpanExporter, name: str) -> dict[str, Any]:
    return dict(the(spans, name).attributes or {})
