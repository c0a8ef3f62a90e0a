"""Names that model servers refuse: reported when the team is built; a workbench's tools get others, and keep their
own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core.tools import FunctionTool, StaticWorkbench, TextResultContent, ToolResult, ToolSchema
from conversation import answers, send
from worlds import STORE

from upcall import PausableAgent, Settings, Upcall
from upcall.autogen.tool_names import is_sendable, to_sendable
from upcall.autogen.workbenches import StatelessWorkbench
from upcall.errors import ConfigurationError
from upcall.questions.answer import Answer
from upcall.testing import Call, ScriptedModelClient

LONG = "a" * 65
CLIENT = ScriptedModelClient([])


def tool(name: str) -> Callable[[], str]:
    def function() -> str:
        """Do it."""
        return "done"

    function.__name__ = name
    return function


def named(name: str) -> PausableAgent:
    return PausableAgent(name, CLIENT, description="d")


@pytest.mark.parametrize("name", ["规划", "prüfer", LONG], ids=["Chinese", "German", "long"])
@pytest.mark.parametrize(
    ("parts", "output"),
    [
        (lambda name: {"tools": [tool(name)]}, "the name of its tool {}"),
        (lambda name: {"workbench": StaticWorkbench([FunctionTool(tool(name), "d")])}, "the name of its tool {}"),
        (lambda name: {"agents": [named(name)]}, "the name of its nested agent {}"),
        (lambda name: {"agents": [RoundRobinGroupChat([named("one")], name=name)]}, "the name of its nested agent {}"),
        (lambda name: {"handoffs": [name]}, "the name of its hand-off transfer_to_{}"),
        (lambda name: {"tools": [AgentTool(AssistantAgent(name, CLIENT))]}, "the name of its tool {}"),
    ],
    ids=["function", "static workbench", "agent", "team", "hand-off", "AgentTool"],
)
def test_name_that_servers_refuse_is_reported_in_one_line(name: str, parts: Any, output: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PausableAgent("lead", CLIENT, **parts(name))
    text = str(refused.value)
    assert text.replace("'", "").startswith(f"Agent lead: {output.format(name)} is refused by model servers")
    assert "Rename" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "options", [{"tools": [tool(LONG)]}, {"handoffs": ["规划"]}, {"tools": [AgentTool(AssistantAgent("规划", CLIENT))]}]
)
async def test_name_in_a_stock_agent_is_reported_early(options: Any) -> None:
    app = Upcall(
        store=STORE,
        team=lambda: RoundRobinGroupChat([AssistantAgent("lead", CLIENT, **options)], max_turns=1),
        settings=Settings.read(None),
    )
    with pytest.raises(ConfigurationError, match="Agent 'lead': the name of its"):
        await app.start("Go")


def test_name_that_is_given_instead_is_taken() -> None:
    given: Any = FunctionTool(tool("规划"), "d", name="plan")
    made = PausableAgent("lead", CLIENT, tools=[given], handoffs=[Handoff(target="审阅", name="review")])
    assert [*made.toolset.tools, *made.toolset.handoffs] == ["plan", "review"]


@pytest.mark.parametrize("name", ["a", "a-b_C9", "x" * 64, "files.read", "规划", "", "x" * 65, "a b", "a\n"])
def test_name_becomes_one_that_servers_accept(name: str) -> None:
    assert is_sendable(to_sendable(name))
    assert is_sendable(name) is (to_sendable(name) == name)


def test_name_that_is_taken_ends_with_a_digest() -> None:
    assert to_sendable("files.read", ["files_read"]).startswith("files_read_")


class Server(StatelessWorkbench):
    """A workbench like that of an MCP server, whose tools have any names."""

    component_type = "workbench"

    def __init__(self, *names: str) -> None:
        self.names, self.called = names, list[str]()

    async def list_tools(self) -> list[ToolSchema]:
        """List the tools."""
        return [ToolSchema(name=name, description="d") for name in self.names]

    async def call_tool(self, name: str, *given: Any, **named: Any) -> ToolResult:
        """Note the call."""
        self.called.append(name)
        return ToolResult(name=name, result=[TextResultContent(content=f"made {name}")])


async def test_workbench_tool_is_offered_renamed_and_called_as_itself() -> None:
    server = Server("files.read", "files_read", "files/read", LONG, "plain")
    with ScriptedModelClient([Call(to_sendable("files.read", ["files_read"])), "Done."]) as client:
        await send(PausableAgent("solo", client, workbench=server, ask_user=False), "Go")
    offered = [each["name"] for each in client.requests[0].body["tools"]]
    assert len(set(offered)) == 5
    assert all(map(is_sendable, offered))
    assert server.called == ["files.read"]
    assert list(client.requests[-1].tool_results.values()) == ["made files.read"]


async def test_workbench_tool_is_approved_by_its_own_name() -> None:
    server = Server("files.wipe")
    with ScriptedModelClient([Call("files_wipe"), "Done."]) as client:
        solo = PausableAgent("solo", client, workbench=server, approve=["files.wipe"])
        rest = await send(solo, "Go")
        assert server.called == []
        yes = rest.questions[0].options[0].label
        await send(solo, answers(rest, Answer(question_id=rest.questions[0].id, text=yes, selected=(yes,))))
    assert server.called == ["files.wipe"]
