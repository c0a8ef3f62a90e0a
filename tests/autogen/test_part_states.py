"""The states of memories, tools and replayed models beside a stock agent and one of ours, across teams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.tools import BaseToolWithState, StaticWorkbench
from autogen_ext.memory.canvas import TextCanvasMemory
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import answers, resumed_as, send
from pydantic import BaseModel

from upcall import PausableAgent, Upcall
from upcall.agents import Clarifier
from upcall.autogen.part_states import PartStates
from upcall.testing import Call, ScriptedModelClient
from upcall.testing.script import Request


class Nothing(BaseModel):
    pass


class Counted(BaseModel):
    count: int = 0


class Counter(BaseToolWithState[Nothing, str, Counted]):
    def __init__(self) -> None:
        super().__init__(Nothing, str, Counted, "count", "Count.")
        self.count = 0

    async def run(self, args: Nothing, cancellation_token: CancellationToken) -> str:
        self.count += 1
        return str(self.count)

    def save_state(self) -> Counted:
        return Counted(count=self.count)

    def load_state(self, state: Counted) -> None:
        self.count = state.count


def text(content: str) -> MemoryContent:
    return MemoryContent(content=content, mime_type=MemoryMimeType.TEXT)


def counting(request: Request) -> Any:
    return "Counted." if request.messages[-1]["role"] == "tool" else Call("count")


def stock(tool: Counter) -> ChatAgent:
    return AssistantAgent("one", ScriptedModelClient(counting), tools=[tool], reflect_on_tool_use=True)


def ours(tool: Counter) -> ChatAgent:
    return PausableAgent("one", ScriptedModelClient(counting), tools=[tool])


async def test_tool_with_a_state_continues_in_a_new_clarifier() -> None:
    question = '{"needs_clarification": true, "clarification_question": "Where?"}'
    replies = [Call("count"), question, Call("count"), '{"needs_clarification": false}']
    with ScriptedModelClient(replies) as client:
        first, tool = Clarifier(client, tools=[Counter()]), Counter()
        asked = await send(first, "Go")
        await send(await resumed_as(first, Clarifier(client, tools=[tool])), answers(asked, "Here"))
    assert tool.count == 2


@pytest.mark.parametrize("make", [stock, ours])
async def test_tool_with_a_state_continues_in_a_new_team(make: Callable[[Counter], ChatAgent]) -> None:
    made: list[Counter] = []

    def team() -> Team:
        asker = PausableAgent("two", ScriptedModelClient([Call("ask_user", {"question": "Which?"}), "Done."]))
        made.append(Counter())
        return RoundRobinGroupChat([make(made[-1]), asker], max_turns=3)

    run = await Upcall(store="runs.db", team=team).start("Go")

    def next_team() -> Team:
        made.append(Counter())
        asker = PausableAgent("two", ScriptedModelClient(["Done."]))
        return RoundRobinGroupChat([make(made[-1]), asker], max_turns=3)

    await Upcall(store="runs.db", team=next_team).answer(run.id, "this")
    assert max(each.count for each in made) == 2


async def test_memory_of_several_runs_is_left_as_it_is() -> None:
    memory = ListMemory()
    first = PartStates([memory])
    await first.begin()
    await memory.add(text("of the first run"))
    saved = await first.save()
    await memory.add(text("of the second run"))
    await PartStates([memory]).load(saved)
    assert [each.content for each in memory.content] == ["of the first run", "of the second run"]


async def test_memory_of_a_new_team_gets_what_was_added() -> None:
    memory, other = ListMemory(), ListMemory()
    states = PartStates([memory])
    await memory.add(text("new"))
    await PartStates([other]).load(await states.save())
    assert [each.content for each in other.content] == ["new"]


async def test_model_state_shared_by_agents_is_saved_as_loaded() -> None:
    model = ReplayChatCompletionClient(["one", "two", "three"])
    first, second = PartStates(model=model), PartStates(model=model)
    await first.begin()
    await model.create([])
    saved = await first.save()
    await second.load(saved)
    assert saved
    assert await second.save() == saved


async def test_memory_without_changes_has_no_state() -> None:
    memory = ListMemory(memory_contents=[text("old")])
    assert await PartStates([memory]).save() == []


async def test_canvas_of_a_new_team_is_its_tools_canvas() -> None:
    memory, other = TextCanvasMemory(), TextCanvasMemory()
    states, canvas = PartStates([memory]), other.canvas
    memory.canvas.add_or_update_file("a.md", "red")
    await PartStates([other]).load(await states.save())
    assert canvas.get_latest_content("a.md") == "red"
    assert other.canvas is canvas


async def test_workbench_that_saves_nothing_is_no_error() -> None:
    class Bare(StaticWorkbench):
        async def save_state(self) -> Any:
            raise NotImplementedError

    class Empty(StaticWorkbench):
        async def save_state(self) -> Any:
            return None

    assert await PartStates((), (), [Bare([]), Empty([])]).save() == []
