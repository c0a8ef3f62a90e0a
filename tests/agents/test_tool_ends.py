"""Tools that end in an odd way: the model sees it, and the run continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Upcall, UserInputRequired
from upcall.autogen.concurrency import _contain_exit
from upcall.runs.states import RunStatus
from upcall.testing import Call, ScriptedModelClient


class Odd(BaseException):
    pass


ENDS = {
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "Odd": lambda: Odd("what"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("all", [KeyboardInterrupt()]),
    "ExceptionGroup": lambda: ExceptionGroup("all", [ValueError("one")]),
    "CancelledError": asyncio.CancelledError,
    "TimeoutError": TimeoutError,
    "options": lambda: UserInputRequired("Which?", [object(), {"no": "label"}]),
}


def sync_tool(make: Callable[[], BaseException]) -> Callable[[], str]:
    def work() -> str:
        """Work."""
        raise make()

    return work


def async_tool(make: Callable[[], BaseException]) -> Callable[[], Any]:
    async def work() -> str:
        """Work."""
        raise make()

    return work


def ours(model: ScriptedModelClient, tool: Any) -> ChatAgent:
    return PausableAgent("solo", model, tools=[tool])


def stock(model: ScriptedModelClient, tool: Any) -> ChatAgent:
    return AssistantAgent("solo", model, tools=[tool], reflect_on_tool_use=True)


@pytest.mark.parametrize("agent", [ours, stock])
@pytest.mark.parametrize(
    ("kind", "end"),
    [
        (kind, end)
        for kind in (sync_tool, async_tool)
        for end in ENDS
        # Raised in the event loop's own thread, it is a Ctrl-C.
        if (kind, end) != (async_tool, "KeyboardInterrupt")
    ],
)
async def test_tool_that_ends_oddly_gives_its_model_an_error(agent: Any, kind: Any, end: str) -> None:
    with ScriptedModelClient([Call("work"), "Done."]) as model:
        app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([agent(model, kind(ENDS[end]))], max_turns=1))
        run = await asyncio.wait_for(app.start("Go"), 20)
    (emitted,) = model.requests[-1].tool_results.values()
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert any(words in emitted for words in (end, "one", "all", "it cancelled itself", "exit status 3"))


def test_closed_coroutine_of_a_tool_ends_quietly() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    async def begin() -> None:
        contained.send(None)

    contained = _contain_exit(work())
    asyncio.run(begin())
    contained.close()
    assert contained.cr_frame is None  # type: ignore[attr-defined]
