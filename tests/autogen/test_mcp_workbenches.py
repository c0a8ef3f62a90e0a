"""AutoGen's own MCP workbenches and tools in runs, with real servers in processes of their own."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, StaticWorkbench, Workbench
from autogen_ext.tools.mcp import (
    McpWorkbench,
    SseServerParams,
    StdioServerParams,
    StreamableHttpServerParams,
    mcp_server_tools,
)
from forked import run_python, start_command
from mcp_servers import start_http_server
from places import SUPPORT

from upcall import PausableAgent, RunStatus, Upcall, ask, with_questions
from upcall.agents import Clarifier
from upcall.testing import Call, Request, ScriptedModelClient

pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client` instead:DeprecationWarning")
"""AutoGen calls the older function of the `mcp` package (autogen-ext 0.7.5)."""

NOTES = str(SUPPORT / "mcp_server.py")
KEY = "k-very-secret-1"
SEARCH = Call("search", {"words": "wind"})

Kind = Callable[..., ChatAgent]


def ours(model: ScriptedModelClient, **given: Any) -> ChatAgent:
    return PausableAgent("clerk", model, **given)


def stock(model: ScriptedModelClient, **given: Any) -> ChatAgent:
    return AssistantAgent("clerk", model, max_tool_iterations=8, reflect_on_tool_use=True, **given)


def converted(model: ScriptedModelClient, **given: Any) -> ChatAgent:
    return with_questions(AssistantAgent("clerk", model, **given))


KINDS = [ours, stock, converted]
OF_BOTH = [
    pytest.param(False, id="McpWorkbench"),
    pytest.param(True, id="McpTools", marks=pytest.mark.needs("research")),
]
"""AutoGen's workbench, and the one that a guest has beside it."""


def notes(**given: Any) -> McpWorkbench:
    return McpWorkbench(StdioServerParams(**{**start_command(NOTES), "read_timeout_seconds": 20, **given}))


def guests(**given: Any) -> Workbench:
    from upcall.research.mcp_server import McpServer
    from upcall.research.mcp_tools import McpTools

    return McpTools("notes", McpServer.model_validate(given))


def wait() -> str:
    """Ask."""
    return ask("Go on?").text


def waiting() -> Workbench:
    return StaticWorkbench([FunctionTool(wait, "Ask.")])


def in_order(*calls: Call) -> ScriptedModelClient:
    """Return a model that makes one call after the other, and then says what came."""

    def reply(request: Request) -> Call | str:
        done = list(request.tool_results.values())
        return calls[len(done)] if len(done) < len(calls) else " | ".join(each.split("\n")[0] for each in done)

    return ScriptedModelClient(reply)


def app_of(kind: Kind, model: ScriptedModelClient, workbench: Callable[[], Workbench | Sequence[Workbench]]) -> Upcall:
    def make() -> Team:
        given = workbench()
        given = [given] if isinstance(given, Workbench) else list(given)
        return RoundRobinGroupChat([kind(model, workbench=given)], max_turns=1)

    return Upcall(team=make, store="runs.db")


# -- calls and pauses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
async def test_mcp_workbench_is_called_before_and_after_a_pause(kind: Kind) -> None:
    model = in_order(SEARCH, Call("wait"), Call("search", {"words": "sea"}))
    run = await app_of(kind, model, lambda: [notes(), waiting()]).start("Look")
    assert (run.status, run.warnings) == (RunStatus.AWAITING_CLARIFICATION, ())
    run = await app_of(kind, model, lambda: [notes(), waiting()]).answer(run.id, "yes")
    assert run.result == "Notes on wind: >>>data 00000000 | yes | Notes on sea: >>>data 00000000"


@pytest.mark.parametrize("transport", ["streamable-http", pytest.param("sse", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [ours, stock])
@pytest.mark.slow
async def test_mcp_workbench_is_called_over_http(kind: Kind, transport: str) -> None:
    with start_http_server(NOTES, transport) as (url, _):
        params = (SseServerParams if transport == "sse" else StreamableHttpServerParams)(url=url)
        run = await app_of(kind, in_order(SEARCH, SEARCH), lambda: McpWorkbench(params)).start("Look")
    assert (run.warnings, str(run.result).count("Notes on wind")) == ((), 2)


PROGRAM = """
import os, sys
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams
from upcall import PausableAgent, Upcall, ask, idempotent, run_sync
from upcall.testing import Call, ScriptedModelClient

what, kind, command, *rest = sys.argv[1:]

@idempotent
def die() -> str:
    if what == "start":
        os.kill(os.getpid(), 9)
    return "alive"

def wait() -> str:
    return ask("Go on?").text

def reply(request):
    asked = [("search", {"words": "wind"}), ("die", {}), ("wait", {}), ("search", {"words": "sea"})]
    calls = [Call(name, given, id=f"call-{number}") for number, (name, given) in enumerate(asked)]
    done = list(request.tool_results.values())
    return calls[len(done)] if len(done) < len(calls) else " | ".join(each.split(":")[0] for each in done)

def make():
    tools = StaticWorkbench([FunctionTool(die, "Die."), FunctionTool(wait, "Wait.")])
    server = McpWorkbench(StdioServerParams(command=command, args=rest, read_timeout_seconds=20))
    made = PausableAgent if kind == "ours" else AssistantAgent
    more = {} if kind == "ours" else {"max_tool_iterations": 8}
    agent = made("clerk", ScriptedModelClient(reply), workbench=[server, tools], **more)
    return RoundRobinGroupChat([agent], max_turns=1)

app = Upcall(store="runs.db", team=make)
if what == "start":
    run_sync(app.start("Look"))
(run,) = run_sync(app.list())
run = run_sync(app.resume(run.id) if what == "resume" else app.answer(run.id, "yes"))
print(run.status.value, run.result, dict(run.failed_tools), list(run.warnings))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_mcp_workbench_is_called_after_kill_and_pause(kind: str) -> None:
    command = start_command(NOTES)
    Path("clerk.py").write_text(PROGRAM)
    given = [kind, command["command"], *command["args"]]
    started, resumed, answered = [run_python("clerk.py", what, *given) for what in ("start", "resume", "answer")]
    assert started.returncode == -9
    assert resumed.stdout == "awaiting_clarification None {} []\n"
    assert answered.stdout == "completed Notes on wind | alive | yes | Notes on sea {} []\n"


@pytest.mark.slow
async def test_mcp_workbench_is_shared_by_agents_of_a_run() -> None:
    shared, first, second = notes(), in_order(SEARCH), in_order(Call("whoami"))

    def make() -> Team:
        members: list[ChatAgent | Team] = [
            ours(first, workbench=shared),
            AssistantAgent("other", second, workbench=[shared]),
        ]
        return RoundRobinGroupChat(members, max_turns=2)

    app = Upcall(team=make, store="runs.db")
    run = await app.start("Look")
    assert (run.status, run.warnings, dict(run.failed_tools)) == (RunStatus.COMPLETED, (), {})
    assert [*run.tools] == ["clerk/search", "other/whoami"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of_guest", OF_BOTH)
@pytest.mark.slow
async def test_mcp_tool_of_a_later_page_is_called(of_guest: bool, kind: Kind) -> None:
    """The server lists three tools a page."""
    model = in_order(Call("notes_travel" if of_guest else "travel", {"to": {"city": "Rome"}}))

    def workbench() -> Workbench:
        return guests(**start_command(NOTES)) if of_guest else notes()

    run = await app_of(kind, model, workbench).start("Look")
    assert (run.warnings, dict(run.failed_tools)) == ((), {})
    assert ["Rome" in each for each in model.requests[-1].tool_results.values()] == [True]


@pytest.mark.slow
async def test_mcp_server_tools_include_those_of_later_pages() -> None:
    await app_of(stock, in_order(SEARCH), notes).start("Look")
    params = StdioServerParams(**start_command(NOTES), read_timeout_seconds=20)
    assert "travel" in [each.name for each in await mcp_server_tools(params)]


@pytest.mark.parametrize("kind", [ours, stock])
@pytest.mark.slow
async def test_mcp_server_tools_are_called(kind: Kind) -> None:
    params = StdioServerParams(**start_command(NOTES), read_timeout_seconds=20)
    tools = [each for each in await mcp_server_tools(params) if each.name == "search"]
    model = in_order(SEARCH)
    app = Upcall(team=lambda: RoundRobinGroupChat([kind(model, tools=tools)], max_turns=1), store="runs.db")
    assert "Notes on wind" in str((await app.start("Look")).result)


@pytest.mark.parametrize("kind", [ours, stock])
async def test_stream_workbench_is_called_in_a_run(kind: Kind) -> None:
    run = await app_of(kind, in_order(Call("wait")), lambda: StaticStreamWorkbench([FunctionTool(wait, "Ask.")])).start(
        "Go"
    )
    app = app_of(kind, in_order(Call("wait")), lambda: StaticStreamWorkbench([FunctionTool(wait, "Ask.")]))
    assert (await app.answer(run.id, "yes")).result == "yes"


# -- dead servers -----------------------------------------------------------------------------------------------------

SILENT = {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}
DEAD: dict[str, dict[str, Any]] = {
    "no command": {"command": "/no/such/server", "args": []},
    "ends": {"command": sys.executable, "args": ["-c", "raise SystemExit(4)"]},
    "no protocol": {"command": "/bin/echo", "args": ["hello"]},
    "silent": SILENT,
    "nobody listens": {"url": "http://127.0.0.1:9/mcp?key=" + KEY},
}


def workbench_of(of_guest: bool, given: dict[str, Any], limit: float) -> Workbench:
    if of_guest:
        keys = {"headers": {"X-Key": KEY}} if "url" in given else {"env": {"NOTES_KEY": KEY}}
        return guests(**given, **keys, timeout=limit)
    if "url" in given:
        return McpWorkbench(StreamableHttpServerParams(**given, headers={"Authorization": f"Bearer {KEY}"}))
    return McpWorkbench(StdioServerParams(**given, env={"NOTES_KEY": KEY}, read_timeout_seconds=limit))


@pytest.mark.parametrize("kind", [ours, stock])
@pytest.mark.parametrize("of_guest", OF_BOTH)
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each == "silent" else each for each in DEAD]
)
async def test_mcp_dead_server_warns_and_informs_the_model(
    name: str, of_guest: bool, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    limit = 0.5 if name == "silent" else 10
    model = in_order(Call("wait"))
    app = app_of(kind, model, lambda: [workbench_of(of_guest, DEAD[name], limit), waiting()])
    run = await app.start("Look")
    (warning,) = run.warnings
    (line,) = [each for each in model.requests[0].system.splitlines() if each.startswith("The MCP server ")]
    assert "its tools are missing" in warning
    assert "say so" in line
    assert KEY not in f"{warning} {line} {caplog.text}"
    assert "Traceback" not in caplog.text
    assert (await app.answer(run.id, "yes")).result == "yes"


@pytest.mark.parametrize("kind", [ours, stock])
@pytest.mark.parametrize("of_guest", OF_BOTH)
async def test_server_that_dies_in_the_middle_is_a_warning(of_guest: bool, kind: Kind) -> None:
    prefix = "notes_" if of_guest else ""
    model = in_order(Call(f"{prefix}whoami"), Call(f"{prefix}leave"), Call(f"{prefix}whoami"))
    app = app_of(kind, model, lambda: workbench_of(of_guest, start_command(NOTES), 20))
    run = await app.start("Look")
    assert (run.status, len(run.warnings)) == (RunStatus.COMPLETED, 1)
    assert "cannot be used (it has ended)" in run.warnings[0]
    assert "cannot be used (it has ended)" in list(model.requests[-1].tool_results.values())[-1]
    assert "The MCP server " in model.requests[-1].system


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ours, stock])
async def test_mcp_server_killed_during_http_call_warns(kind: Kind) -> None:
    with start_http_server(NOTES) as (url, _):
        model = in_order(SEARCH, Call("leave"), SEARCH)
        run = await app_of(kind, model, lambda: McpWorkbench(StreamableHttpServerParams(url=url))).start("Look")
    assert (run.status, len(run.warnings)) == (RunStatus.COMPLETED, 1)
    assert "nobody listens" in run.warnings[0]


@pytest.mark.slow
async def test_silent_server_over_http_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.autogen.tool_servers.START_LIMIT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        model = in_order(Call("wait"))
        params = StreamableHttpServerParams(url=url, timeout=1)
        run = await app_of(stock, model, lambda: [McpWorkbench(params), waiting()]).start("Look")
    assert "it did not start within 1 seconds" in run.warnings[0]


@pytest.mark.parametrize("kind", [ours, stock])
@pytest.mark.slow
async def test_dead_server_of_mcp_server_tools_is_one_warning(kind: Kind) -> None:
    """Their tools were listed before it died; each call starts or reaches it anew."""
    with start_http_server(NOTES) as (url, _):
        listed = await mcp_server_tools(StreamableHttpServerParams(url=url, headers={"Authorization": f"Bearer {KEY}"}))
    tools = [each for each in listed if each.name in ("search", "whoami")]
    model = in_order(SEARCH, Call("whoami"))
    app = Upcall(team=lambda: RoundRobinGroupChat([kind(model, tools=tools)], max_turns=1), store="runs.db")
    run = await app.start("Look")
    (warning,) = run.warnings
    assert "its tools are missing" in warning
    assert "cannot be used" in model.requests[1].system
    assert KEY not in f"{warning} {model.requests}"


@pytest.mark.slow
async def test_failed_call_of_mcp_server_tools_is_no_warning() -> None:
    params = StdioServerParams(**start_command(NOTES), read_timeout_seconds=20)
    tools = [each for each in await mcp_server_tools(params) if each.name in ("broken", "search")]
    model = in_order(Call("broken"), Call("search", {"no": 1}), SEARCH)
    app = Upcall(team=lambda: RoundRobinGroupChat([ours(model, tools=tools)], max_turns=1), store="runs.db")
    run = await app.start("Look")
    assert (run.warnings, "Notes on wind" in str(run.result)) == ((), True)


async def test_clarifier_learns_of_a_dead_server() -> None:
    model = ScriptedModelClient(['{"need_clarification": false}'])
    agent = Clarifier(model, workbench=workbench_of(False, DEAD["no command"], 10))
    app = Upcall(team=lambda: RoundRobinGroupChat([agent], max_turns=1), store="runs.db")
    run = await app.start("Look")
    assert len(run.warnings) == 1
    assert "'/no/such/server'): its tools are missing" in model.requests[-1].system
