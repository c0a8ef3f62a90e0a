"""A slow model has its time: what counts is how long nothing comes, and a small model's reply comes in pieces."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
from autogen_core import CancellationToken
from autogen_core.models import UserMessage

from upcall import OpenAICompatibleClient, PausableAgent
from upcall.agents import Classifier
from upcall.autogen.model_calls import call_model, result_of
from upcall.errors import ModelTimeout
from upcall.testing import Hang, Reply, Say
from upcall.testing.server import LoopbackServer

from conversation import send  # isort: skip

SMALL, LARGE = "qwen2.5-coder-1.5b", "gpt-4o"
TIMEOUT_S = 1.5
SLOW = Say(" ".join(["word"] * 30), pace=TIMEOUT_S / 15)
"""A reply that takes twice the timeout, and is never silent for long."""


def client_of(server: LoopbackServer, model: str, **options: float) -> OpenAICompatibleClient:
    return OpenAICompatibleClient(model, base_url=server.base_url, api_key="k", max_retries=0, **options)


async def request(server: LoopbackServer, model: str, limit: float | None, **options: float) -> str:
    return await request_from(client_of(server, model, **options), limit)


async def request_from(client: OpenAICompatibleClient, limit: float | None) -> str:
    call = call_model(
        client,
        [UserMessage(content="Go", source="user")],
        agent="solo",
        cancellation_token=CancellationToken(),
        timeout=limit,
    )
    return str((await result_of(call)).content)


@pytest.mark.parametrize("model", [SMALL, LARGE])
@pytest.mark.slow
async def test_slow_reply_outlasts_the_timeout_of_a_call(model: str) -> None:
    with LoopbackServer([SLOW]) as server:
        assert await request(server, model, TIMEOUT_S) == SLOW.text


@pytest.mark.slow
async def test_slow_small_model_outlasts_the_request_timeout() -> None:
    with LoopbackServer([SLOW]) as server:
        assert await request(server, SMALL, None, timeout=TIMEOUT_S) == SLOW.text


async def test_prompt_is_read_within_the_request_timeout() -> None:
    """On a slow machine the server of a small model says nothing until it has read the prompt."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.6)
        chunk = {"choices": [{"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}]}
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        writer.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        waits = OpenAICompatibleClient(SMALL, base_url=url, api_key="k", max_retries=0, timeout=30)
        assert await request_from(waits, 0.2) == "Done."


@pytest.mark.parametrize("model", [SMALL, LARGE])
async def test_silent_server_ends_the_call(model: str) -> None:
    with LoopbackServer([Hang()]) as server, pytest.raises(ModelTimeout):
        await request(server, model, 0.3, timeout=0.3)


@pytest.mark.parametrize(("model", "streams"), [(SMALL, True), (LARGE, None)])
async def test_pieces_are_requested_of_a_small_model(model: str, streams: bool | None) -> None:
    with LoopbackServer(["Done."]) as server:
        assert await request(server, model, None) == "Done."
        assert server.requests[0].body.get("stream") is streams


async def test_pieces_nobody_asked_for_are_not_shown() -> None:
    with LoopbackServer(["<think>Hm.</think>Done."]) as server:
        turn = await send(PausableAgent("solo", client_of(server, SMALL)), "Go")
    assert turn.text == "Done."
    assert [type(each).__name__ for each in turn.events] == ["ThoughtEvent"]


async def test_classifier_waits_while_its_model_writes() -> None:
    reply: Reply = Say('{"intent": "meta", "meta_response": "' + "hello " * 30 + '"}', pace=TIMEOUT_S / 15)
    with LoopbackServer([reply]) as server:
        turn = await send(Classifier(client_of(server, LARGE), llm_timeout=TIMEOUT_S), "Hello")
    assert turn.text.startswith("hello hello")


EMPTY = {
    "comment": b": ping\n\n",
    "empty text": b'data: {"choices": [{"index": 0, "delta": {"content": ""}}]}\n\n',
    "no choice": b'data: {"object": "chat.completion.chunk", "choices": []}\n\n',
    "empty call": b'data: {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": '
    b'{"name": "write", "arguments": ""}}]}}]}\n\n',
}


@pytest.mark.parametrize("limit", [None, 0.4], ids=["agent", "classifier"])
@pytest.mark.parametrize(
    "begun",
    [pytest.param(False, id="from the beginning", marks=pytest.mark.slow), pytest.param(True, id="after a word")],
)
@pytest.mark.parametrize("kind", EMPTY)
async def test_empty_signs_of_life_are_silence(kind: str, begun: bool, limit: float | None) -> None:
    """Each of them resets the timeouts of the HTTP client, so without a limit of ours the call would never end."""
    open_streams = asyncio.Semaphore(0)

    async def ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        writer.write(b'data: {"choices": [{"index": 0, "delta": {"content": "Well"}}]}\n\n' if begun else b"")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(EMPTY[kind])
                await writer.drain()
                await asyncio.sleep(0.05)
        open_streams.release()

    async with await asyncio.start_server(ping, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        client = OpenAICompatibleClient(SMALL, base_url=url, api_key="k", max_retries=0, timeout=0.4)
        with pytest.raises(ModelTimeout):
            await request_from(client, limit)
        await open_streams.acquire()
        await client.close()
