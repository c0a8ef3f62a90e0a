"""The MCP server for agents of other programs, with the client of `mcp` 2.x: ``.ci/run`` has an environment with it."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp
import pytest
from asking_client import serve
from mcp.client.stdio import stdio_client
from mcp.types import ElicitResult

from upcall import Settings, Upcall
from upcall.run_reader import RunReader

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("mcp.server.mcpserver") is None, reason="mcp 1.x is installed, these need 2.x"
    ),
    pytest.mark.slow,
]

PORT = {"question": "Which port?", "path": ["lead", "coder"], "schema": {"enum": ["80", "81"]}}


def reader() -> RunReader:
    return RunReader(Settings.read(None, store={"path": "upcall.db"}))


async def ask_nobody(*_: Any) -> ElicitResult:
    raise AssertionError("nobody is asked by a request")


@asynccontextmanager
async def client_of(wait: str = "1m", user: Any = None, mode: str = "2026-07-28") -> AsyncIterator[Any]:
    make: Any = mcp.Client  # type: ignore[attr-defined,unused-ignore]
    async with make(stdio_client(serve("work", wait)), elicitation_callback=user, mode=mode) as client:
        yield client


async def send(client: Any, state: str | None = None, **replies: ElicitResult) -> Any:
    """Ask once: what came of it, or what it requires."""
    result = await client.session.call_tool(
        "ask_human", PORT, request_state=state, input_responses=replies or None, allow_input_required=True
    )
    return result if result.result_type == "input_required" else result.structured_content


def accept(**content: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=content)


async def answered(answer: str) -> None:
    async with asyncio.timeout(60):
        while not await reader().inbox():
            await asyncio.sleep(0.05)
    await Upcall(store="upcall.db", settings=Settings.read(None)).answer("work", answer)


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_modern_client_without_a_user_waits_in_the_call(mode: str) -> None:
    async with client_of(mode=mode) as client:
        result, _ = await asyncio.gather(client.call_tool("ask_human", PORT), answered("81"))
    assert (result.structured_content["status"], result.structured_content["value"]) == ("answered", "81")


async def test_modern_client_gets_a_ticket_for_later() -> None:
    async with client_of(wait="0.01s") as client:
        ticket = (await client.call_tool("ask_human", PORT)).structured_content["ticket"]
    await answered("81")
    async with client_of() as client:
        assert (await client.call_tool("get_answer", {"ticket": ticket})).structured_content["text"] == "81"


async def test_required_answer_is_taken_by_another_process() -> None:
    async with client_of(user=ask_nobody) as client:
        required = await send(client)
    assert required.input_requests["answer"].params.requested_schema["properties"]["chosen"]["enum"] == ["80", "81"]
    async with client_of(user=ask_nobody) as client:
        again = await send(client, required.request_state, answer=accept(chosen="none"))
        assert again.input_requests["answer"].params.message.startswith("'none' is not an option")
        body = await send(client, again.request_state, answer=accept(chosen="81"))
    assert (body["status"], body["value"]) == ("answered", "81")
    assert len((await reader().get("work")).records) == 1


async def test_required_answer_that_came_by_another_door_counts() -> None:
    async with client_of(user=ask_nobody) as client:
        required = await send(client)
        await answered("80")
        body = await send(client, required.request_state, answer=accept(chosen="81"))
    assert (body["status"], body["value"]) == ("answered", "80")


async def test_user_of_a_modern_client_leaves_it_to_others() -> None:
    async with client_of(user=ask_nobody) as client:
        required = await send(client)
        cancel = ElicitResult(action="cancel")
        body, _ = await asyncio.gather(send(client, required.request_state, answer=cancel), answered("80"))
    assert body["value"] == "80"
