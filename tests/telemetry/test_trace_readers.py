"""Phoenix and Langfuse: the attributes that these tools read, and that a recorded run has them.

Sources, as of 2026-11 (facts only):

- Phoenix: ``conversion.py`` of Arize-ai/phoenix turns ``gen_ai.*`` into OpenInference's
  attributes where a span has none (release note of 2026-05-15).
- OpenInference: ``spec/semantic_conventions.md`` of Arize-ai/openinference: kinds, ``session.id``, ``user.id``,
  ``input.value``, ``output.value``.
- Langfuse: ``packages/shared/src/server/otel/`` of langfuse/langfuse (``ObservationTypeMapper.ts``,
  ``OtelIngestionProcessor.ts``), and "property mapping" in its documentation of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from traced import ASK, app_of, named, spans, team_of, the, work

from upcall.testing import Call

__all__ = ["spans"]


READ = {
    ("Phoenix", "start_run"): ("openinference.span.kind=CHAIN", "session.id", "user.id", "input.value"),
    ("Phoenix", "invoke_workflow"): ("openinference.span.kind=CHAIN", "session.id"),
    ("Phoenix", "invoke_agent"): ("openinference.span.kind=AGENT", "gen_ai.operation.name=invoke_agent"),
    ("Phoenix", "chat"): (
        *("openinference.span.kind=LLM", "gen_ai.operation.name=chat", "gen_ai.provider.name"),
        *("gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages"),
        *("gen_ai.response.finish_reasons", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
    ),
    ("Phoenix", "execute_tool"): (
        *("openinference.span.kind=TOOL", "gen_ai.tool.name=note", "gen_ai.tool.call.id"),
        *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
    ),
    ("Phoenix", "wait_for_human"): ("openinference.span.kind=CHAIN", "output.value=Express"),
    ("Langfuse", "start_run"): ("session.id", "user.id=ann", "input.value=Build it."),
    ("Langfuse", "invoke_agent"): ("gen_ai.operation.name=invoke_agent", "session.id", "user.id"),
    ("Langfuse", "chat"): (
        *("gen_ai.operation.name=chat", "session.id", "user.id"),
        *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.usage.input_tokens"),
    ),
    ("Langfuse", "execute_tool"): (
        *("gen_ai.operation.name=execute_tool", "gen_ai.tool.name=note"),
        *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result=noted blue"),
    ),
    ("Langfuse", "ask_human"): ("input.value=Which framework?", "session.id"),
    ("Langfuse", "end_run"): ("output.value=All done.", "session.id"),
}
"""By tool and operation, the attributes it reads; some with the value that they must have."""

FIRST = {
    "langfuse.observation.type": (),
    "input.value": ("chat", "execute_tool"),
    "output.value": ("chat", "execute_tool"),
}
"""Attributes that Langfuse prefers to those of the conventions, and the operations that must not have them."""


@pytest.fixture
async def recorded(spans: InMemorySpanExporter) -> Mapping[str, ReadableSpan]:
    """Return a span of each operation of a run with a nested agent, a question and a tool call."""
    replies = {"lead": [work("coder"), "All done."], "coder": [ASK, Call("note", {"text": "blue"}), "Noted."]}
    app = app_of(team_of(replies), telemetry={"trace_content": True})
    run = await app.start("Build it.", user="ann")
    await app.answer(run.id, "Express", user="ann")
    return {name.split()[0]: next(s for s in spans.get_finished_spans() if s.name == name) for name in named(spans)}


@pytest.mark.parametrize(("tool", "operation"), READ, ids=["-".join(each) for each in READ])
def test_reader_finds_what_it_reads(recorded: Mapping[str, ReadableSpan], tool: str, operation: str) -> None:
    has: Mapping[str, Any] = recorded[operation].attributes or {}
    missing = [each for each in READ[tool, operation] if not _has(has, *each.partition("=")[::2])]
    assert missing == []


def _has(attributes: Mapping[str, Any], name: str, value: str) -> bool:
    return name in attributes and value in ("", attributes[name])


@pytest.mark.parametrize(("name", "operations"), FIRST.items(), ids=list(FIRST))
def test_reader_finds_nothing_it_prefers(
    recorded: Mapping[str, ReadableSpan], name: str, operations: tuple[str, ...]
) -> None:
    assert [each for each in operations if name in (recorded[each].attributes or {})] == []


@pytest.mark.slow
def test_reader_finds_one_session_and_user(recorded: Mapping[str, ReadableSpan], spans: InMemorySpanExporter) -> None:
    ours = [span for span in spans.get_finished_spans() if span.instrumentation_scope.name == "upcall"]
    assert len({(span.attributes or {})["session.id"] for span in ours}) == 1
    assert {(span.attributes or {})["user.id"] for span in ours} == {"ann"}
    assert the(spans, "start_run").parent is None
