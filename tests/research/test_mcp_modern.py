"""MCP servers of the specification of 2026-07-28, with `mcp` 2.x: ``.ci/run`` has an environment with it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from mcp_servers import start_http_server
from places import SUPPORT

from upcall import PausableAgent, Run, RunStatus, Upcall
from upcall.errors import ConfigurationError
from upcall.execution.named_teams import import_team
from upcall.questions.answer import Answer, Outcome
from upcall.research.mcp_server import McpServer
from upcall.research.mcp_tools import McpTools
from upcall.testing import Call, ScriptedModelClient

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mcp.server.mcpserver") is None, reason="mcp 1.x is installed, these need 2.x"
)

SHOP = str(SUPPORT / "modern_server.py")
COMMAND: dict[str, Any] = {"command": sys.executable, "args": [SHOP]}


def app_of(tool: str, given: dict[str, Any] | None = None, **server: Any) -> Upcall:
    client = ScriptedModelClient(
        lambda request: (
            list(request.tool_results.values())[-1].replace("\n", " ")
            if request.tool_results
            else Call(f"shop_{tool}", given or {})
        )
    )
    made = McpServer.model_validate(server or COMMAND)
    return Upcall(
        team=lambda: RoundRobinGroupChat(
            [PausableAgent("clerk", client, workbench=McpTools("shop", made))], max_turns=1
        ),
        store="runs.db",
    )


async def answer_all(app: Upcall, run: Run, *answers: str) -> Run:
    for each in answers:
        run = await app.answer(run.id, each)
    return run


def calls_of_the_server() -> list[str]:
    return Path("calls.txt").read_text().split()


async def test_tools_of_a_modern_server_are_called() -> None:
    run = await app_of("search", {"words": "wind"}).start("Look")
    assert ("Found wind" in str(run.result), run.warnings) == (True, ())


async def test_mcp_required_input_is_asked_over_pauses_with_state() -> None:
    """Over HTTP the server lives on, so that its state is good: it sees a call for each round."""
    with start_http_server(SHOP) as (url, _):
        app = app_of("order", {"item": "hat"}, url=url)
        run = await answer_all(app, await app.start("Buy"), "l", "no", "3")
    assert "hat, size=accept:{'size': 'l'} sure=decline:None, count=accept:{'n': 3}" in str(run.result)
    assert calls_of_the_server() == ["order"] * 3


async def test_mcp_server_that_refuses_its_state_is_answered_anew() -> None:
    app = app_of("order", {"item": "hat"})  # Its process, and the key of its state, end with each segment.
    run = await answer_all(app, await app.start("Buy"), "l", "yes", "3")
    assert "hat, size=accept:{'size': 'l'} sure=accept:{}, count=accept:{'n': 3}" in str(run.result)


async def test_input_that_is_required_again_is_asked_again() -> None:
    app = app_of("again")
    run = await answer_all(app, await app.start("Go"), "5", "7")
    assert ("right" in str(run.result), calls_of_the_server()) == (True, ["again"] * 3)


def test_team_with_autogens_workbench_is_refused_with_the_remedy() -> None:
    """AutoGen's part for MCP servers is written for `mcp` 1.x (autogen-ext 0.7.5)."""
    Path("shop_team.py").write_text("from autogen_ext.tools.mcp import McpWorkbench\n")
    with pytest.raises(ConfigurationError, match=r"needs mcp 1.x, and 2\.\S+ is installed: pip install") as refused:
        import_team("shop_team:make")
    assert "\n" not in str(refused.value)


async def test_required_page_is_opened_by_the_human() -> None:
    app = app_of("login")
    run = await app.start("Go")
    assert run.questions[0].question.endswith("https://shop.example.org/in\nHost: shop.example.org")
    assert "page=accept:None" in str((await answer_all(app, run, "yes")).result)


async def test_required_input_may_be_declined() -> None:
    app = app_of("login")
    run = await app.start("Go")
    run = await app.answer(run.id, Answer(question_id=run.questions[0].id, outcome=Outcome.DECLINED))
    assert "page=decline:None" in str(run.result)


async def test_mcp_call_that_is_postponed_is_repeated_at_once() -> None:
    run = await app_of("busy").start("Go")
    assert (run.status, "done" in str(run.result), calls_of_the_server()) == (RunStatus.COMPLETED, True, ["busy"] * 3)


@pytest.mark.parametrize(
    ("tool", "why"), [("endless", "wants the same call again"), ("sample", "asks for sampling/createMessage")]
)
async def test_mcp_result_requiring_the_impossible_is_an_error(tool: str, why: str) -> None:
    run = await app_of(tool).start("Go")
    assert (run.status, run.questions) == (RunStatus.COMPLETED, ())
    assert why in str(run.result)
