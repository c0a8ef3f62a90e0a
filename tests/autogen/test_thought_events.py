"""Thoughts in a stream that others print: AutoGen's Console, and reasoning beside calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from autogen_agentchat.messages import ThoughtEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from zoo_cells import Caller, Cell, make_agent

from upcall import Settings, Upcall
from upcall.autogen.messages import ThoughtChunkEvent
from upcall.testing.zoo import THOUGHT, Behaviour, ZooServer, call, chunk, completion
from upcall.testing.zoo.responses import function_call, reasoning, response

CALLING = completion({"content": None, "reasoning_content": THOUGHT, "tool_calls": [call(0)]}, "tool_calls")
BESIDE = Behaviour("reasoning beside a call", "DeepSeek", body=CALLING)
WITH_TEXT = Behaviour("reasoning beside text", "DeepSeek", chunks=[
    chunk({"reasoning_content": "Hm"}), chunk({"reasoning_content": "."}), chunk({"content": "Done."}, "stop")
])  # fmt: skip
CALLERS: list[Caller] = ["ours", "user's", "stock agent"]


def app_of(caller: Caller, url: str, folder: Path, *, stream: bool) -> Upcall:
    cell = Cell(caller, stream=stream, tools=True, resume=False)

    def team() -> RoundRobinGroupChat:
        return RoundRobinGroupChat([make_agent(cell, url, lambda item: None)], max_turns=1)

    return Upcall(store=str(folder / "runs.db"), team=team, settings=Settings.read())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("caller", CALLERS)
async def test_thought_beside_calls_is_an_event(caller: Caller, stream: bool, tmp_path: Path) -> None:
    with ZooServer(BESIDE) as server:
        app = app_of(caller, server.base_url, tmp_path, stream=stream)
        events = [each async for each in app.start_stream("Order.")]
    assert [each.content for each in events if isinstance(each, ThoughtEvent)] == [THOUGHT]
    pieces = [each for each in events if isinstance(each, ThoughtChunkEvent)]
    assert "".join(each.thought for each in pieces) == (THOUGHT if stream else "")


async def test_thought_beside_calls_of_responses_is_an_event(tmp_path: Path) -> None:
    behaviour = Behaviour("reasons", "OpenAI", body=response(reasoning(), function_call(0)), api="responses")
    with ZooServer(behaviour) as server:
        app = app_of("ours", server.base_url, tmp_path, stream=True)
        events = [each async for each in app.start_stream("Order.")]
    assert [each.content for each in events if isinstance(each, ThoughtEvent)] == [THOUGHT]


async def test_thought_beside_calls_is_not_sent_back_as_text(tmp_path: Path) -> None:
    with ZooServer(BESIDE) as server:
        await app_of("stock agent", server.base_url, tmp_path, stream=False).start("Order.")
    sent = next(each for each in server.bodies[1]["messages"] if each.get("tool_calls"))
    assert not sent.get("content")
    assert sent["reasoning_content"] == THOUGHT


@pytest.mark.parametrize("behaviour", [BESIDE, WITH_TEXT], ids=lambda each: each.name)
@pytest.mark.parametrize("caller", CALLERS)
async def test_console_prints_thoughts_and_all_behind_them(
    caller: Caller, behaviour: Behaviour, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ZooServer(behaviour) as server:
        await Console(app_of(caller, server.base_url, tmp_path, stream=True).start_stream("Order."))  # type: ignore[type-var]
    out = capsys.readouterr().out
    assert out.count(THOUGHT) == 1
    assert "Done." in out
    if behaviour is BESIDE:
        assert re.search(r"ToolCallRequestEvent \(solo\) -+\n\[FunctionCall\(", out)
        assert re.search(r"ToolCallExecutionEvent \(solo\) -+\n\[FunctionExecutionResult\(", out)
