"""Instrumentors of AutoGen see our agents and tools: OpenInference's own, and others that wrap the same way."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from cryptography.fernet import Fernet
from forked import run_code
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from places import SUPPORT
from traced import ASK, SECRET, app_of, spans, team_of, tree, work
from worlds import solo
from wrapt import wrap_function_wrapper

from upcall import PausableAgent, Upcall, ask_secret
from upcall.autogen.instrumentors import is_shown
from upcall.questions.secrets import KEY
from upcall.testing import Call, Fail, LoopbackServer, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO

__all__ = ["spans"]

KIND = "openinference.span.kind"


@pytest.fixture
def seen(spans: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    """Yield what is recorded while OpenInference's instrumentor is at work."""
    instrumentor = AutogenAgentChatInstrumentor()
    instrumentor.instrument()
    yield spans
    instrumentor.uninstrument()


def theirs(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """Return the spans that are not ours."""
    return [
        span for span in spans.get_finished_spans() if str(span.instrumentation_scope.name).startswith("openinference")
    ]


def count(spans: InMemorySpanExporter) -> dict[str, int]:
    return dict(Counter(f"{(span.attributes or {})[KIND]} {span.name.split('.')[0]}" for span in theirs(spans)))


async def test_instrumentor_sees_agents_and_tools_in_one_trace(seen: InMemorySpanExporter) -> None:
    replies = {"lead": [work("coder"), "All done."], "coder": [ASK, Call("note", {"text": "x"}), "Noted."]}
    app = app_of(team_of(replies))
    run = await app.start("Build it.")
    await app.answer(run.id, "Express")
    assert count(seen) == {"CHAIN RoundRobinGroupChat": 2, "AGENT lead": 2, "AGENT coder": 2, "TOOL coder": 1}
    assert len({span.context.trace_id for span in seen.get_finished_spans()}) == 1


async def test_instrumentor_sees_each_where_it_is_nested(seen: InMemorySpanExporter) -> None:
    replies = {"lead": [work("coder"), "All done."], "coder": [Call("note", {"text": "x"}), "Noted."]}
    await app_of(team_of(replies)).start("Build it.")
    lines = tree(seen)
    depths = [
        next(len(each) - len(each.lstrip()) for each in lines if name in each)
        for name in (
            "RoundRobinGroupChat.run_stream",
            "lead.on_messages_stream",
            "coder.on_messages_stream",
            "coder.note",
            "write",
        )
    ]
    assert depths == sorted(set(depths))


async def test_instrumentor_sees_a_tool_with_its_arguments_and_result(seen: InMemorySpanExporter) -> None:
    await app_of(team_of({"lead": [Call("note", {"text": "blue"}), "Done."]})).start("Note it.")
    (tool,) = (dict(each.attributes or {}) for each in theirs(seen) if (each.attributes or {})[KIND] == "TOOL")
    assert (tool["tool.name"], tool["tool.description"]) == ("note", "Take a note.")
    assert (json.loads(tool["input.value"]), tool["output.value"]) == ({"text": "blue"}, "noted blue")


async def test_instrumentor_sees_a_failed_tool(seen: InMemorySpanExporter) -> None:
    await app_of(team_of({"lead": [Call("broken", {"text": "a"}), "Done."]})).start("Note it.")
    (tool,) = (dict(each.attributes or {}) for each in theirs(seen) if (each.attributes or {})[KIND] == "TOOL")
    assert tool["output.value"] == f"Error: {SECRET}"


async def test_instrumentor_sees_a_stock_agent_once(seen: InMemorySpanExporter) -> None:
    replies = {"lead": ["Well begun."], "last": [Call("note", {"text": "a"}), "Done."]}
    await app_of(team_of(replies, stock=True)).start("Build it.")
    assert count(seen) == {"CHAIN RoundRobinGroupChat": 1, "AGENT lead": 1, "AGENT last": 1, "TOOL last": 1}


async def test_instrumentor_sees_a_failed_turn(seen: InMemorySpanExporter) -> None:
    await app_of(team_of({"lead": [Fail(RuntimeError("gone"))]})).start("Build it.")
    (turn,) = (each for each in theirs(seen) if (each.attributes or {})[KIND] == "AGENT")
    assert [event.name for event in turn.events] == ["exception"]


async def test_instrumentor_sees_a_plain_script(seen: InMemorySpanExporter) -> None:
    """Without a run: an agent of ours in a team of AutoGen's."""

    async def note(text: str) -> str:
        """Take a note."""
        return text

    client = ScriptedModelClient([Call("note", {"text": "a"}), "Done."])
    lead = PausableAgent("lead", client, tools=[note])
    await RoundRobinGroupChat([lead], termination_condition=TextMessageTermination("lead")).run(task="Note it.")
    assert count(seen) == {"CHAIN RoundRobinGroupChat": 1, "AGENT lead": 1, "TOOL lead": 1}


async def test_instrumentor_sees_no_secret(seen: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    def deploy(host: str) -> str:
        """Deploy."""
        raise ConnectionError(f"{host} refused {ask_secret('Which password?')}")

    monkeypatch.setenv(KEY, Fernet.generate_key().decode())
    model = ScriptedModelClient([Call("deploy", {"host": "example.org"}), "Done."])
    app = Upcall(team=solo(model, tools=[deploy]), store="runs.db")
    run = await app.start("Deploy it.")
    await app.answer(run.id, "correct horse battery")
    assert "AGENT solo" in count(seen)
    assert "correct horse" not in json.dumps([span.to_json() for span in seen.get_finished_spans()])


OTHER_PROCESS = """
import asyncio, sys
sys.path[:0] = {tests!r}
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
from traced import app_of, record, team_of
from upcall.testing import Call
with record() as spans:
    AutogenAgentChatInstrumentor().instrument()
    app = app_of(team_of({{"lead": [Call("note", {{"text": "a"}}), "Done."]}}))
    asyncio.run(app.answer(sys.argv[1], "Express"))
    done = spans.get_finished_spans()
kinds = {{str(span.attributes.get("openinference.span.kind")) for span in done if "lead." in span.name}}
print(*{{format(span.context.trace_id, "032x") for span in done}}, *sorted(kinds))
"""


@pytest.mark.slow
async def test_instrumentor_sees_one_trace_over_processes(seen: InMemorySpanExporter) -> None:
    run = await app_of(team_of({"lead": [ASK]})).start("Build it.")
    (trace_id,) = {span.context.trace_id for span in theirs(seen)}
    done = await asyncio.to_thread(run_code, OTHER_PROCESS.format(tests=[str(SUPPORT)]), run.id)
    assert done.stdout.split() == [format(trace_id, "032x"), "AGENT", "TOOL"], done.stderr


@contextmanager
def wrapped(kind: type, name: str, calls: list[str], by: str) -> Iterator[None]:
    """Wrap a method as OpenTelemetry's instrumentors do."""
    before = kind.__dict__[name]

    def wrapper(method: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        calls.append(f"{by} {getattr(instance, 'name', None)}")
        return method(*args, **kwargs)

    wrap_function_wrapper(kind.__module__, f"{kind.__qualname__}.{name}", wrapper)
    try:
        yield
    finally:
        setattr(kind, name, before)


async def run_lead(reply: Reply = "Done.") -> None:
    await app_of(team_of({"lead": [reply]})).start("Build it.")


@pytest.mark.parametrize("kind", [AssistantAgent, BaseChatAgent])
async def test_instrumentors_of_either_class_see_a_turn(kind: type) -> None:
    calls: list[str] = []
    with wrapped(kind, "on_messages_stream", calls, "one"):
        await run_lead()
    await run_lead()
    assert calls == ["one lead"]


async def test_instrumentors_of_both_classes_see_a_turn_once() -> None:
    calls: list[str] = []
    with (
        wrapped(AssistantAgent, "on_messages_stream", calls, "own"),
        wrapped(BaseChatAgent, "on_messages_stream", calls, "base"),
    ):
        await run_lead()
    assert calls == ["own lead"]


async def test_two_instrumentors_see_a_turn_each() -> None:
    calls: list[str] = []
    with (
        wrapped(AssistantAgent, "on_messages_stream", calls, "first"),
        wrapped(AssistantAgent, "on_messages_stream", calls, "second"),
    ):
        await run_lead()
    assert calls == ["second lead", "first lead"]


async def test_instrumentor_may_come_after_an_agent_was_made() -> None:
    calls: list[str] = []
    lead = PausableAgent("lead", ScriptedModelClient(["Done."]))
    with wrapped(AssistantAgent, "on_messages_stream", calls, "late"):
        await lead.run(task="Build it.")
    assert calls == ["late lead"]


def test_nothing_is_shown_where_nothing_is_instrumented() -> None:
    lead = PausableAgent("lead", ScriptedModelClient([]))
    assert not is_shown(lead.on_messages_stream)
    assert lead.on_messages_stream([], None).__qualname__.endswith("_stream_turn")  # type: ignore[arg-type, attr-defined]


@pytest.mark.parametrize("stock", [False, True], ids=["ours", "stock"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_instrumentor_sees_calls_taken_over(seen: InMemorySpanExporter, stock: bool, stream: bool) -> None:
    """Our client makes the calls of a stock one for OpenAI's protocol."""
    with LoopbackServer(["Done."]) as server:

        def make() -> Team:
            client = OpenAIChatCompletionClient(
                model="m", base_url=server.base_url, api_key="none", model_info=MODEL_INFO
            )
            lead: ChatAgent = (
                AssistantAgent("lead", client, model_client_stream=stream)
                if stock
                else PausableAgent("lead", client, stream=stream)
            )
            return RoundRobinGroupChat([lead], termination_condition=TextMessageTermination("lead"))

        run = await app_of(make).start("Build it.")
    assert run.result == "Done.", run.error
    (call,) = (dict(each.attributes or {}) for each in theirs(seen) if (each.attributes or {})[KIND] == "LLM")
    assert call["llm.output_messages.0.message.content"] == "Done."
