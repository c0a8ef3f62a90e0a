"""MCP servers that ask their user in the middle of a call: real ones, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import Workbench
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams, mcp_server_tools
from forked import run_python, start_command
from mcp_servers import start_http_server
from places import SUPPORT

from upcall import PausableAgent, Run, RunStatus, Upcall, make_resumable
from upcall.errors import FieldsRefused
from upcall.questions.answer import Answer, Outcome
from upcall.research.mcp_server import McpServer
from upcall.research.mcp_tools import McpTools
from upcall.testing import Call, Calls, Request, ScriptedModelClient

pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client` instead:DeprecationWarning")

SHOP = str(SUPPORT / "asking_server.py")


def ours() -> Workbench:
    return McpTools("shop", McpServer.model_validate({**start_command(SHOP), "timeout": 30}))


def stock() -> McpWorkbench:
    return McpWorkbench(StdioServerParams(**start_command(SHOP), read_timeout_seconds=30))


def model(*calls: Call, prefix: str = "shop_") -> ScriptedModelClient:
    def reply(request: Request) -> Calls | str:
        done = [each.replace("\n", " ") for each in request.tool_results.values()]
        return " ".join(done) if done else Calls([Call(prefix + each.name, each.arguments) for each in calls])

    return ScriptedModelClient(reply)


def app_of(client: ScriptedModelClient, workbench: Callable[[], Workbench], kind: Any = PausableAgent) -> Upcall:
    return Upcall(
        team=lambda: RoundRobinGroupChat([kind("clerk", client, workbench=workbench())], max_turns=1), store="runs.db"
    )


def calls_of_the_server() -> list[str]:
    return Path("calls.txt").read_text().split()


def stock_agent(name: str, client: ScriptedModelClient, **given: Any) -> ChatAgent:
    return AssistantAgent(name, client, max_tool_iterations=3, reflect_on_tool_use=True, **given)


async def answer_all(app: Upcall, run: Run, *answers: Any) -> Run:
    for each in answers:
        (question,) = run.questions
        run = await app.answer(run.id, each if not isinstance(each, Outcome) else decline(question.id))
    return run


def decline(question_id: str) -> Answer:
    return Answer(question_id=question_id, outcome=Outcome.DECLINED)


SLOW_STOCK = pytest.param(stock_agent, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PausableAgent, stock_agent])
@pytest.mark.parametrize(("workbench", "prefix"), [(ours, "shop_"), (stock, "")])
async def test_mcp_form_is_completed_by_the_human(workbench: Any, prefix: str, kind: Any) -> None:
    app = app_of(model(Call("order", {"item": "hat"}), prefix=prefix), workbench, kind)
    run = await app.start("Buy")
    assert "How shall it be?" in run.questions[0].question
    order = {"size": "Large", "count": "3", "gift": "no"}
    with pytest.raises(FieldsRefused, match="greater than or equal to 1"):
        await app.answer(run.id, {**order, "count": "0"})
    run = await answer_all(app, run, order)
    assert "hat: accept {'size': 'l', 'count': 3, 'gift': False}" in str(run.result)
    assert calls_of_the_server() == ["order"] * 2


@pytest.mark.parametrize("kind", [PausableAgent, SLOW_STOCK])
@pytest.mark.slow
async def test_tool_of_mcp_server_tools_asks_the_human(kind: Any) -> None:
    tools = await mcp_server_tools(StdioServerParams(**start_command(SHOP), read_timeout_seconds=30))
    client = model(Call("confirm", {"what": "buy"}), prefix="")
    app = Upcall(team=lambda: RoundRobinGroupChat([kind("clerk", client, tools=tools)], max_turns=1), store="runs.db")
    run = await answer_all(app, await app.start("Buy"), "yes")
    assert "buy: accept {'sure': True}" in str(run.result)


@pytest.mark.slow
async def test_server_over_http_asks_the_human() -> None:
    with start_http_server(SHOP) as (url, _):
        client = model(Call("confirm", {"what": "buy"}), prefix="")
        app = app_of(client, lambda: McpWorkbench(StreamableHttpServerParams(url=url)))
        own = app_of(model(Call("confirm", {"what": "sell"})), lambda: McpTools("shop", McpServer(url=url)))
        assert "accept {'sure': True}" in str((await answer_all(app, await app.start("Buy"), "yes")).result)
        assert "decline" in str((await answer_all(own, await own.start("Sell"), Outcome.DECLINED)).result)


async def test_server_that_was_started_before_the_run_asks_too() -> None:
    async with stock() as started:
        app = app_of(model(Call("confirm", {"what": "buy"}), prefix=""), lambda: started)
        run = await answer_all(app, await app.start("Buy"), "yes")
    assert "accept {'sure': True}" in str(run.result)


async def test_plain_script_is_asked_by_a_server() -> None:
    async with stock() as started:
        client = model(Call("confirm", {"what": "buy"}), prefix="")
        team = make_resumable(RoundRobinGroupChat([stock_agent("clerk", client, workbench=started)], max_turns=1))
        stopped = await team.run(task="Buy")
        assert "Really buy?" in stopped.messages[-1].to_text()
        assert "accept {'sure': True}" in (await team.run(task="yes")).messages[-1].to_text()


async def test_server_without_anybody_to_ask_is_reported_so() -> None:
    tools = ours()
    assert "buy done without asking" in (await tools.call_tool("shop_confirm", {"what": "buy"})).to_text()
    await tools.stop()


@pytest.mark.slow
async def test_server_that_asks_the_same_twice_gets_two_answers() -> None:
    app = app_of(model(Call("twice")), ours)
    run = await answer_all(app, await app.start("Go"), "Ann", "Bob", "yes")
    assert "accept {'name': 'Ann'} | accept {'name': 'Bob'} | accept {}" in str(run.result)


@pytest.mark.slow
async def test_answer_of_one_call_never_serves_another() -> None:
    """Both calls run at once, both ask, and the protocol does not say which asks."""
    app = app_of(
        model(Call("both", {"which": "first"}), Call("both", {"which": "second"}), Call("quick", {"which": "q"})), ours
    )
    run = await app.start("Go")
    assert sorted(each.question.split("\n")[1] for each in run.questions) == ["| Sure of first?", "| Sure of second?"]
    first, second = sorted(run.questions, key=lambda each: each.question)
    assert "call both(first)" in str(first.context)
    run = await app.answer(run.id, {first.id: "yes", second.id: "no"})
    assert "first: accept {}" in str(run.result)
    assert "second: decline None" in str(run.result)
    assert calls_of_the_server().count("quick") == 1


@pytest.mark.parametrize(("tool", "host"), [("login", "shop.example.org"), ("locked", "pay.example.org")])
@pytest.mark.slow
async def test_page_of_a_server_is_opened_by_the_human(tool: str, host: str) -> None:
    app = app_of(model(Call(tool)), ours)
    run = await app.start("Go")
    assert f"\nHost: {host}" in run.questions[0].question
    run = await answer_all(app, run, "yes")
    assert (run.status, calls_of_the_server()) == (RunStatus.COMPLETED, [tool] * 2)
    assert str(run.result).count("accept" if tool == "login" else "paid") == 1


@pytest.mark.slow
async def test_mcp_page_not_opened_fails_the_call() -> None:
    app = app_of(model(Call("locked")), ours)
    run = await answer_all(app, await app.start("Go"), "no")
    assert "the user did not open the page that it needs" in str(run.result)
    assert calls_of_the_server() == ["locked"]


@pytest.mark.slow
async def test_mcp_form_without_a_display_fails_the_call() -> None:
    run = await app_of(model(Call("nested")), ours).start("Go")
    assert "The MCP server shop cannot ask the user: its form cannot be shown" in str(run.result)


PROGRAM = """
import sys
from autogen_agentchat.teams import RoundRobinGroupChat
from upcall import PausableAgent, Upcall, run_sync
from upcall.agents import McpTools
from upcall.research.mcp_server import McpServer
from upcall.testing import Call, ScriptedModelClient

what, command, *rest = sys.argv[1:]

def reply(request):
    done = list(request.tool_results.values())
    return done[-1].replace("\\n", " ") if done else Call("shop_order", {"item": "hat"})

def make():
    server = McpTools("shop", McpServer(command=command, args=rest))
    return RoundRobinGroupChat([PausableAgent("clerk", ScriptedModelClient(reply), workbench=server)], max_turns=1)

app = Upcall(store="runs.db", team=make)
run = run_sync(app.start("Buy")) if what == "start" else run_sync(app.answer(run_sync(app.list())[0].id, what))
print(run.status.value, run.result)
"""


@pytest.mark.slow
def test_mcp_form_is_answered_in_another_process() -> None:
    command = start_command(SHOP)
    Path("buy.py").write_text(PROGRAM)
    steps = ["start", '{"size": "Small", "count": "2", "gift": "yes", "note": "thick"}']
    texts = [run_python("buy.py", what, command["command"], *command["args"]).stdout for what in steps]
    assert texts[:-1] == ["awaiting_clarification None\n"]
    assert "accept {'size': 's', 'count': 2, 'gift': True, 'note': 'thick'}" in texts[-1]
    assert calls_of_the_server() == ["order"] * 2
