"""The model: one scripted OpenAI server in a process of its own, which counts the requests and can kill who asks."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from zlib import crc32

from killing.forks import fork
from killing.http import httpx
from killing.points import TOKEN, Points, Reached, note
from upcall.testing import LoopbackServer, Reply, Request, Script

DELAY = 0.004
"""Seconds before each reply, so that parallel agents are in flight at the same time."""

DECIDED_BY_REQUEST = ("classifier", "clarifier", "check", "planner")

_AGENT = re.compile(r"You are the (\w+)")
_PART = re.compile(r"Work as (\w+)")


def asker(body: dict[str, Any]) -> str:
    """Who sends a request: the agent's name, or the part it plays in this call ("Work as left")."""
    request = Request(body)
    first = next((str(each.get("content")) for each in request.messages if each["role"] == "user"), "")
    if part := _PART.match(first):
        return part.group(1)
    found = _AGENT.search(request.system)
    agent = found.group(1) if found else "selector"
    return "check" if agent == "planner" and "check whether the request" in request.system else agent


def token_of(body: dict[str, Any]) -> str:
    """Return the token of the reply that a request asks for: ``left:2`` is the second reply of ``left``. An agent
    that merges what was written into its prompt has no replies to count; its number stands for the whole request."""
    who = asker(body)
    if who in DECIDED_BY_REQUEST:
        return f"{who}:{crc32(json.dumps(body['messages']).encode())}"
    # A hand-off brings along the calls of the agent that made it; this one's are those with its own tokens.
    text = json.dumps([each for each in body["messages"] if each["role"] == "assistant"])
    numbers = re.findall(rf"\b{who}:(\d+)", text)
    return f"{who}:{max(map(int, numbers), default=0) + 1}"


def held_by(body: dict[str, Any]) -> list[str]:
    """Return the tokens that whoever sends this request has got."""
    return sorted(set(TOKEN.findall(json.dumps(body["messages"]))))


def _serve(base_url: Path) -> None:
    """Serve for ever; the address is written to the file `base_url`."""
    from killing.scenarios import SCENARIOS

    script: Script

    def respond(request: Request) -> Reply:
        script.requests.clear()  # They are on file; thousands of them need not stay in memory.
        sender = json.loads(request.body["user"])
        token = token_of(dict(request.body))
        held = Reached(sender["process"], sender["stage"], f"held {token}", tuple(held_by(dict(request.body))))
        note(Path(sender["folder"]), held)
        if sender["kill_at"] == f"{held.stage}/{held.label}":
            os.kill(held.process, sender["signal"])
        return SCENARIOS[sender["scenario"]].reply(token, request)

    script = Script(respond)
    server = LoopbackServer(script, delay=DELAY).start()
    unfinished = base_url.with_suffix(".part")
    unfinished.write_text(server.base_url)
    unfinished.rename(base_url)
    while os.getppid() != 1:
        sleep(0.5)


@contextmanager
def model_server(folder: Path) -> Iterator[str]:
    """Yield the address of a model server in a process of its own."""
    address, output = folder / "address", folder / "server.txt"
    child = fork(lambda: _serve(address), output)
    try:
        until = monotonic() + 30
        while not address.exists():
            if monotonic() > until:
                raise RuntimeError(f"the model server does not start; see {output}")
            sleep(0.01)
        yield address.read_text()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class WatchedTransport(httpx.AsyncHTTPTransport):
    """HTTP as it is, with a point before each request and one after each reply, streamed replies in the middle too."""

    def __init__(self, points: Points) -> None:
        super().__init__(verify=False)  # To read the machine's certificates takes longer than all requests together.
        self._points = points

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, and note it."""
        body = json.loads(request.content)
        token = token_of(body)
        self._points.reach(f"request {token}", held_by(body))
        response = await super().handle_async_request(request)
        if body.get("stream"):
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _WatchedStream(response.stream, self._points, token)
        else:
            await response.aread()
            self._points.reach(f"reply {token}")
        return response


class _WatchedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, points: Points, token: str) -> None:
        self._stream, self._points, self._token = stream, points, token

    async def __aiter__(self) -> Any:
        first = True
        async for chunk in self._stream:
            yield chunk
            if first:
                self._points.reach(f"stream {self._token}")
            first = False
        self._points.reach(f"reply {self._token}")

    async def aclose(self) -> None:
        await self._stream.aclose()
