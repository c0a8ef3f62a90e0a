"""OpenTelemetry's spans of runs, with its real SDK: one trace a run, over pauses and processes."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from forked import run_code
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from places import SUPPORT
from scenario import TASK, upcall
from traced import ASK, SECRET, app_of, named, spans, team_of, the, tree, work

from upcall.agents import PausableAgent
from upcall.runs.states import RunStatus
from upcall.testing import Call, Calls, Fail, Reply, ScriptedModelClient

__all__ = ["spans"]


async def test_nested_agents_and_a_pause_are_one_trace(spans: InMemorySpanExporter) -> None:
    replies: dict[str, Sequence[Reply]] = {
        "lead": [work("coder"), "All done."],
        "coder": [ASK, Call("note", {"text": SECRET}), SECRET],
    }
    app = app_of(team_of(replies))
    run = await app.start(f"Build it. {SECRET}")
    run = await app.answer(run.id, "Express")
    assert run.status is RunStatus.COMPLETED
    assert tree(spans) == [
        "start_run",
        "  invoke_workflow RoundRobinGroupChat",
        "    invoke_agent lead",
        "      chat",
        "      invoke_agent coder",
        "        chat",
        "  ask_human",
        "  wait_for_human",
        "  invoke_workflow RoundRobinGroupChat",
        "    invoke_agent lead",
        "      invoke_agent coder",
        "        chat",
        "        execute_tool note",
        "          write",
        "        chat",
        "      chat",
        "  end_run",
    ]
    done = spans.get_finished_spans()
    assert len({span.context.trace_id for span in done}) == 1
    assert SECRET not in json.dumps([span.to_json() for span in done])
    chat = next(span for span in done if span.name == "chat").attributes or {}
    assert chat["gen_ai.operation.name"] == "chat"
    assert chat["gen_ai.agent.name"] == "lead"
    assert chat["gen_ai.provider.name"] == "ScriptedModelClient"
    usage = run.usage
    for kind, tokens in (
        ("input", sum(each.prompt_tokens for each in usage.values())),
        ("output", sum(each.completion_tokens for each in usage.values())),
    ):
        counts = [(span.attributes or {}).get(f"gen_ai.usage.{kind}_tokens", 0) for span in done]
        assert sum(map(int, counts)) == tokens  # type: ignore[arg-type]
    tool = the(spans, "execute_tool note").attributes or {}
    assert tool["gen_ai.tool.name"] == "note"
    assert tool["gen_ai.tool.call.id"]
    assert tool["upcall.path"] == "lead"
    assert all((span.attributes or {})["gen_ai.conversation.id"] == run.id for span in done if span.name != "write")


async def test_span_of_each_parallel_agent_is_its_own(spans: InMemorySpanExporter) -> None:
    replies: dict[str, Sequence[Reply]] = {
        "lead": [Calls([work("coder"), work("tester")]), "All done."],
        "coder": [Call("note", {"text": "a"}), "Coded."],
        "tester": [Call("note", {"text": "b"}), "Tested."],
    }
    run = await app_of(team_of(replies)).start("Build it.")
    assert run.status is RunStatus.COMPLETED, run.error
    lead = the(spans, "invoke_agent lead").context.span_id
    for name in ("coder", "tester"):
        nested = the(spans, f"invoke_agent {name}")
        assert nested.parent is not None
        assert nested.parent.span_id == lead
        inside = [
            each for each in spans.get_finished_spans() if each.parent and each.parent.span_id == nested.context.span_id
        ]
        assert sorted(each.name for each in inside) == ["chat", "chat", "execute_tool note"]


async def test_stock_agent_has_the_same_spans(spans: InMemorySpanExporter) -> None:
    replies: dict[str, Sequence[Reply]] = {"lead": ["Well begun."], "last": [Call("note", {"text": "a"}), "Done."]}
    run = await app_of(team_of(replies, stock=True)).start("Build it.")
    assert run.result == "Done.", run.error
    assert tree(spans)[4:] == [
        "    invoke_agent last",
        "      chat",
        "      execute_tool note",
        "        write",
        "      chat",
        "  end_run",
    ]


async def test_span_errors_have_a_type_without_text(spans: InMemorySpanExporter) -> None:
    replies: dict[str, Sequence[Reply]] = {
        "lead": [work("coder")],
        "coder": [Call("broken", {"text": "a"}), Fail(RuntimeError(SECRET))],
    }
    run = await app_of(team_of(replies)).start("Build it.")
    assert run.status is RunStatus.FAILED
    kinds = {span.name: (span.attributes or {}).get("error.type") for span in spans.get_finished_spans()}
    assert kinds["execute_tool broken"] == "tool_error"
    assert kinds["chat"] == "ScriptedFailure"
    assert kinds["invoke_agent coder"] == "ModelError"
    assert kinds["start_run"] is None
    assert SECRET not in json.dumps([span.to_json() for span in spans.get_finished_spans()])


async def test_what_the_journal_knows_has_no_span_again(spans: InMemorySpanExporter) -> None:
    replies: dict[str, Sequence[Reply]] = {
        "lead": [Call("note", {"text": "a"}), Fail(RuntimeError("gone")), "Done."],
    }
    app = app_of(team_of(replies))
    run = await app.start("Build it.")
    assert run.status is RunStatus.FAILED
    assert named(spans).count("chat") == 2
    spans.clear()
    run = await app.resume(run.id)
    assert run.status is RunStatus.COMPLETED
    assert sorted(named(spans)) == ["chat", "end_run", "invoke_agent lead", "invoke_workflow RoundRobinGroupChat"]


async def test_trace_of_a_run_is_its_callers(spans: InMemorySpanExporter) -> None:
    replies: dict[str, Sequence[Reply]] = {"lead": [ASK, "Done."]}
    app = app_of(team_of(replies))
    with trace.get_tracer("web").start_as_current_span("POST /runs") as request:
        run = await app.start("Build it.")
    with trace.get_tracer("web").start_as_current_span("POST /answers") as other:
        await app.answer(run.id, "Express")
    ours = [span for span in spans.get_finished_spans() if not span.name.startswith("POST")]
    assert {span.context.trace_id for span in ours} == {request.get_span_context().trace_id}
    second = [span for span in ours if span.name.startswith("invoke_workflow")][1]
    assert [link.context.trace_id for link in second.links] == [other.get_span_context().trace_id]


async def test_trace_of_a_fork_is_linked_to_its_run(spans: InMemorySpanExporter) -> None:
    replies: dict[str, Sequence[Reply]] = {"lead": [ASK, "Done.", "Done otherwise."]}
    app = app_of(team_of(replies))
    run = await app.start("Build it.")
    question = run.questions[0].id
    await app.answer(run.id, "Express")
    await app.fork(run.id, question, "FastAPI")
    first, second = [span for span in spans.get_finished_spans() if span.name == "start_run"]
    assert first.context.trace_id != second.context.trace_id
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


async def test_without_the_setting_there_is_nothing_of_ours(spans: InMemorySpanExporter) -> None:
    run = await app_of(team_of({"lead": ["Done."]}), telemetry={"tracing": False}).start("Build it.")
    assert run.config.traceparent is None
    assert not [span for span in spans.get_finished_spans() if span.instrumentation_scope.name == "upcall"]


async def test_trace_begins_where_an_untraced_run_is_resumed(spans: InMemorySpanExporter) -> None:
    replies: dict[str, Sequence[Reply]] = {"lead": [ASK, ASK, "Done."]}
    make = team_of(replies)
    run = await app_of(make, telemetry={"tracing": False}).start("Build it.")
    spans.clear()
    app = app_of(make, telemetry={"tracing": True})
    run = await app.answer(run.id, "Express")
    while run.questions:
        run = await app.answer(run.id, "Express")
    ours = [span for span in spans.get_finished_spans() if span.instrumentation_scope.name == "upcall"]
    assert len({span.context.trace_id for span in ours}) == 1


OTHER_PROCESS = """
import asyncio, sys
sys.path[:0] = {tests!r}
from traced import app_of, record, team_of
with record() as spans:
    run = asyncio.run(app_of(team_of({{"lead": ["Done."]}})).answer(sys.argv[1], "Express"))
    done = spans.get_finished_spans()
print(run.status, *{{format(span.context.trace_id, "032x") for span in done}}, *sorted({{span.name for span in done}}))
"""


@pytest.mark.slow
async def test_another_process_continues_with_the_trace(spans: InMemorySpanExporter) -> None:
    run = await app_of(team_of({"lead": [ASK]})).start("Build it.")
    traced = the(spans, "start_run").context.trace_id
    done = await asyncio.to_thread(run_code, OTHER_PROCESS.format(tests=[str(SUPPORT)]), run.id)
    status, trace_id, *names = done.stdout.split(maxsplit=2)
    assert (status, trace_id) == ("completed", format(traced, "032x")), done.stderr
    assert "wait_for_human" in names[0]


NOTHING_LOADED = """
import asyncio, sys
from upcall import Settings, Upcall
from upcall.testing import ScriptedModelClient
from upcall.agents import PausableAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.conditions import TextMessageTermination
def make():
    lead = PausableAgent("lead", ScriptedModelClient({"You are": ["Done."]}), system_message="You are")
    return RoundRobinGroupChat([lead], termination_condition=TextMessageTermination("lead"))
run = asyncio.run(Upcall(team=make, store="runs.db", settings=Settings()).start("Build it."))
print(run.status, [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""


@pytest.mark.slow
def test_without_the_setting_the_sdk_is_not_even_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTHING_LOADED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["completed", "[]"], done.stderr


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_command_line_exports_to_the_console() -> None:
    done = upcall("run", TASK, "--detach", "--json", UPCALL_TELEMETRY__TRACING="true", OTEL_TRACES_EXPORTER="console")
    assert done.json["status"] == "awaiting_clarification", done.err
    emitted = re.findall(r'^    "name": "(.*)"', done.err, re.MULTILINE)
    assert {"start_run", "invoke_workflow Swarm", "invoke_agent lead", "invoke_agent coder", "chat"} <= set(emitted)
    assert not [name for name in emitted if name.startswith(("autogen", "create_agent"))]


@pytest.mark.slow
def test_trace_is_not_exported_where_the_environment_forbids() -> None:
    nowhere = {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    done = upcall("run", TASK, "--detach", "--json", UPCALL_TELEMETRY__TRACING="true", **nowhere)
    assert done.json["status"] == "awaiting_clarification"
    assert "export" not in done.err


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_command_line_exports_by_otlp() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    came: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        done = upcall("run", TASK, "--detach", UPCALL_TELEMETRY__TRACING="true", OTEL_EXPORTER_OTLP_ENDPOINT=address)
        server.shutdown()
    assert done.status == 0, done.err
    assert {path for path, _ in came} == {"/v1/traces"}
    assert b"invoke_agent coder" in b"".join(body for _, body in came)


@pytest.mark.slow
def test_trace_collector_that_is_missing_is_one_line() -> None:
    with socket.socket() as taken:  # Bound and not listening: whoever connects is refused.
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = upcall(
            "run", TASK, "--detach", "--json", UPCALL_TELEMETRY__TRACING="true", OTEL_EXPORTER_OTLP_ENDPOINT=address
        )
    assert done.status == 0, done.err
    assert done.json["status"] == "awaiting_clarification"
    assert len([line for line in done.err.splitlines() if "export" in line]) == 1


async def test_client_that_cannot_be_hashed_is_traced_too(spans: InMemorySpanExporter) -> None:
    """As one that is a dataclass."""

    class Compared(ScriptedModelClient):
        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = None  # type: ignore[assignment]

    def make() -> Team:
        lead = PausableAgent("lead", Compared({"You are the lead.": ["Done."]}), system_message="You are the lead.")
        return RoundRobinGroupChat([lead], termination_condition=TextMessageTermination("lead"))

    run = await app_of(make).start("x")
    assert (run.status, run.error) == (RunStatus.COMPLETED, None)
    assert "chat" in " ".join(named(spans))
