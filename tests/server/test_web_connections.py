"""Connections of callers who are slow, say nothing, read nothing or hang up, by real sockets."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from scenario import TASK
from services import Process, Site, one_agent, serve_apart, serving

from upcall import Settings
from upcall.execution.demo import NOTICE
from upcall.server import connections, server
from upcall.server.commands import describe_worker

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HEAD = b"Host: 127.0.0.1\r\n"
UNFINISHED = {
    "nothing at all": b"",
    "half a line": b"GET /hea",
    "headers without an end": b"GET /healthz HTTP/1.1\r\n" + HEAD,
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a whole request, and half of the next": b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\nGET /healthz HTTP/1.1\r\nHo",
    "a body that nobody waits for": b"POST /api/runs HTTP/1.1\r\n" + HEAD + b"Content-Length: 9999\r\n\r\n{",
}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(one_agent()) as served:
        yield served


async def connect(site: Site) -> Stream:
    return await asyncio.open_connection("127.0.0.1", int(site.url.rpartition(":")[2]))


async def is_ended(stream: Stream, *, drips: bool = False) -> bool:
    """Return whether the other end closes the connection, though a byte is sent now and then."""
    reader, writer = stream
    with suppress(OSError):
        for _ in range(100):
            if drips:
                writer.write(b"x")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    if await reader.read(4096) == b"":
                        return True
        return False
    return True


@pytest.mark.parametrize("drips", [False, True])
@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=[*UNFINISHED])
@pytest.mark.slow
async def test_connection_without_a_whole_request_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch, sent: bytes, drips: bool
) -> None:
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.3)
    stream = await connect(site)
    stream[1].write(sent)
    assert await is_ended(stream, drips=drips)
    stream[1].close()


@pytest.mark.slow
async def test_connection_is_kept_for_the_next_request(site: Site) -> None:
    reader, writer = await connect(site)
    for _ in range(3):
        writer.write(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert (await reader.readuntil(b"}")).endswith(b'{"status":"ok"}')
    writer.close()


@pytest.mark.slow
async def test_stream_outlives_the_time_to_ask(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.2)
    async with await site.caller() as me, me.stream("GET", "/api/questions/events") as response:
        lines = response.aiter_lines()
        await anext(lines)
        await asyncio.sleep(0.6)
        assert (await me.post("/api/runs", json={"task": "Build it"})).status_code == 202
        assert not response.is_closed


@pytest.mark.parametrize("bound", ["WAITING", "WAITING_PER_ADDRESS"])
@pytest.mark.slow
async def test_one_waiting_connection_too_many_ends_the_oldest(
    site: Site, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(connections, bound, 5)
    monkeypatch.setattr(connections, "PROMPT_S", 0.0)
    waiting = [await connect(site) for _ in range(8)]
    async with httpx.AsyncClient(base_url=site.url) as client:
        assert (await client.get("/healthz")).status_code == 200
    assert [await is_ended(each) for each in waiting[:3]] == [True] * 3
    for reader, writer in waiting[4:]:
        writer.write(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    for _, writer in waiting:
        writer.close()


@pytest.mark.slow
async def test_many_who_ask_at_once_all_get_a_response(site: Site) -> None:
    many = [await connect(site) for _ in range(3 * connections.WAITING_PER_ADDRESS)]
    for _, writer in many:
        writer.write(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n")
    lines = {await reader.readline() for reader, _ in many}
    assert lines <= {b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 429 Too Many Requests\r\n"}
    for _, writer in many:
        writer.close()


@pytest.mark.slow
async def test_burst_of_the_silent_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WAITING_PER_ADDRESS", 2)
    silent = [await connect(site) for _ in range(2 * connections.BURST + 3)]
    assert [await is_ended(each) for each in silent[:3]] == [True] * 3
    for _, writer in silent:
        writer.close()


@pytest.mark.slow
async def test_burst_of_the_silent_leaves_files(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WAITING_PER_ADDRESS", 2)
    monkeypatch.setattr(connections, "PROMPT_S", 600.0)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, 10))
    silent = [await connect(site) for _ in range(8)]
    assert [await is_ended(each) for each in silent[:3]] == [True] * 3
    for _, writer in silent:
        writer.close()


@pytest.mark.slow
async def test_overdue_connections_end_several_at_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WAITING_PER_ADDRESS", 2)
    silent = [await connect(site) for _ in range(8)]
    monkeypatch.setattr(connections, "PROMPT_S", 0.0)
    silent.append(await connect(site))
    assert [await is_ended(each) for each in silent[:7]] == [True] * 7
    for _, writer in silent:
        writer.close()


@pytest.mark.slow
async def test_caller_who_takes_in_nothing_is_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WRITE_TIMEOUT_S", 0.2)
    lost = asyncio.Event()
    ended = connections.BoundedProtocol.connection_lost

    def note(protocol: connections.BoundedProtocol, error: Exception | None) -> None:
        ended(protocol, error)
        lost.set()

    monkeypatch.setattr(connections.BoundedProtocol, "connection_lost", note)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", int(site.url.rpartition(":")[2])))
        await loop.sock_sendall(client, (b"GET /static/app.js HTTP/1.1\r\n" + HEAD + b"\r\n") * 2000)
        async with asyncio.timeout(20):
            await lost.wait()


@pytest.mark.slow
async def test_idle_connection_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_TIMEOUT_S", 0)
    async with serving(one_agent()) as site:
        reader, writer = await connect(site)
        writer.write(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert (await reader.read()).endswith(b'{"status":"ok"}')
        writer.close()


# -- hanging up -------------------------------------------------------------------------------------------------------

FORM = (
    b'--B\r\nContent-Disposition: form-data; name="start"\r\n\r\n{"task":"x"}\r\n'
    b'--B\r\nContent-Disposition: form-data; name="documents"; filename="a.txt"\r\n\r\nabc'
)
MCP = b"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
MULTIPART = b"Content-Type: multipart/form-data; boundary=B\r\nContent-Length: 99999\r\n\r\n" + FORM
FIELDS = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\n"
HALF = b"Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"


def make_requests(process: Process) -> dict[str, bytes]:
    """Return requests in the middle of which callers hang up."""
    api, hello = (
        process.client,
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    )
    run = api.post("/api/runs", json={"task": TASK}).json()["run_id"].encode()
    opened = api.post(
        "/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        headers={"Accept": "application/json, text/event-stream"},
    )
    session = b"Mcp-Session-Id: " + opened.headers["Mcp-Session-Id"].encode() + b"\r\n"
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "start", "arguments": {"task": TASK}}}
    message = {"id": "m", "role": "user", "content": TASK}
    agui = {
        "threadId": "t",
        "runId": "r",
        "state": {},
        "messages": [message],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }

    def whole(body: object) -> bytes:
        content = json.dumps(body).encode()
        return b"Content-Length: %d\r\n\r\n%b" % (len(content), content)

    return {
        "GET /api/runs/" + run.decode() + "/events": b"\r\n",
        "GET /api/questions/events": b"\r\n",
        "GET /login": b"\r\n",
        "POST /api/runs": HALF,
        "POST /start": MULTIPART,
        "POST /api/runs ": MULTIPART,
        "POST /login": FIELDS + b"token=",
        f"POST /runs/{run.decode()}/answers": FIELDS + b"question=",
        "POST /agui": HALF,
        "POST /agui ": b"Content-Type: application/json\r\n" + whole(agui),
        "POST /mcp": MCP + session + b"Content-Length: 99\r\n\r\n{",
        "POST /mcp ": MCP + session + whole(call),
        "GET /mcp": MCP + session + b"\r\n",
    }


@pytest.mark.slow
def test_hanging_up_writes_nothing_into_the_log() -> None:
    """In the middle of a body, a stream, a call; by an end and by a reset; at once and later."""
    with serve_apart("--model", "demo") as process:
        address = ("127.0.0.1", int(process.url.rpartition(":")[2]))
        shown = b"Authorization: " + process.client.headers["Authorization"].encode() + b"\r\n"
        for name, rest in make_requests(process).items():
            for reset in (False, True):
                for seconds in (0.0, 0.3):
                    with socket.create_connection(address) as caller:
                        caller.sendall(name.strip().encode() + b" HTTP/1.1\r\n" + HEAD + shown + rest)
                        time.sleep(seconds)
                        if reset:
                            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert process.client.get("/healthz").json() == {"status": "ok"}
        code, text = process.stop(signal.SIGTERM)
    assert [line for line in text.splitlines() if line.strip()] == [
        NOTICE,
        "Open this in a browser; Ctrl-C stops the service.",
        "Stopped.",
    ]
    assert code == 0


@pytest.mark.parametrize(
    ("models", "team", "line"),
    [
        ({"model": "demo"}, None, NOTICE),
        ({"model": "gpt-4o"}, None, "Model: gpt-4o."),
        ({"model": "gpt-4o", "kinds": {"coding": "gpt-4.1"}}, None, "Model: gpt-4o; gpt-4.1 (coder)."),
        ({"model": "gpt-4o"}, "teams:make", "Team: teams:make."),
    ],
)
def test_service_names_the_model_that_works(models: dict[str, Any], team: str | None, line: str) -> None:
    assert describe_worker(Settings.read(None, models=models), team) == line
