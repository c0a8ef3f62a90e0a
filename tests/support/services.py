"""The service on a free port of loopback, in this process or in one of its own, and callers of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Settings
from upcall.execution.team_factory import MakeTeam
from upcall.server.server import serve
from upcall.server.service import Service
from upcall.server.tokens import create_token
from upcall.testing import Call, Reply, ScriptedModelClient

OPERATOR = "the-operator"
TIMEOUT_S = 30
ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})


def one_agent(*replies: Reply, **options: Any) -> MakeTeam:
    """Return a team of one agent that says these."""
    model = ScriptedModelClient([*replies])

    def make_team() -> Team:
        return RoundRobinGroupChat([PausableAgent("agent", model, **options)], max_turns=1)

    return make_team


@dataclass
class Site:
    """A service that runs: where, and what is behind it."""

    url: str
    service: Service
    secrets: dict[str, str] = field(default_factory=dict)

    async def caller(self, user: str | None = None, role: str | None = None) -> httpx.AsyncClient:
        """Return a client with a token of a user, without one with that of who runs the service."""
        secret = OPERATOR if user is None else (await create_token(self.service.store, user, role))[1]
        return httpx.AsyncClient(base_url=self.url, headers={"Authorization": f"Bearer {secret}"}, timeout=TIMEOUT_S)

    async def browser(self, user: str) -> httpx.AsyncClient:
        """Return a client that has logged in, as a browser does."""
        secret = (await create_token(self.service.store, user))[1]
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT_S) as client:
            entered = await client.post("/login", data={"token": secret})
        assert entered.status_code == 303
        page = {"Accept": "text/html"}
        return httpx.AsyncClient(base_url=self.url, headers=page, cookies=entered.cookies, timeout=TIMEOUT_S)


@asynccontextmanager
async def serving(team: MakeTeam | None = None, /, **settings: Any) -> AsyncIterator[Site]:
    """Yield a service in this loop; at the end it is stopped as Ctrl-C does."""
    service = Service(Settings.read(None, **settings), team=team)
    link: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(serve(service, "127.0.0.1", 0, operator=OPERATOR, show_link=link.set_result))
    try:
        await asyncio.wait([link, work], return_when=asyncio.FIRST_COMPLETED)
        yield Site((await link).partition("/login")[0], service)
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


class Process:
    """The service as a command in a process of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "upcall", "serve", "--port", "0", *arguments]
        env = {**os.environ, **environment}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        assert self._process.stdout is not None
        self.link = self._process.stdout.readline().strip()
        self.url, _, token = self.link.partition("/login?token=")
        assert token, self._process.communicate()[1]
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S)

    def caller(self) -> httpx.AsyncClient:
        """Return a client of who runs it."""
        return httpx.AsyncClient(base_url=self.client.base_url, headers=self.client.headers, timeout=TIMEOUT_S)

    def stop(self, how: signal.Signals) -> tuple[int, str]:
        """Send it a signal; how it ended, and what it said."""
        self.client.close()
        self._process.send_signal(how)
        _, text = self._process.communicate(timeout=TIMEOUT_S)
        return self._process.returncode, text


@contextmanager
def serve_apart(*arguments: str, **environment: str) -> Iterator[Process]:
    """Yield the command; what is left of it at the end is killed."""
    process = Process(*arguments, **environment)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.stop(signal.SIGKILL)


async def start(client: httpx.AsyncClient, task: str = "Build it", **more: Any) -> Mapping[str, Any]:
    """Start a run, and wait until it is pausing."""
    response = await client.post("/api/runs", json={"task": task, **more})
    assert response.status_code == 202, response.text
    return await settle(client, response.json()["run_id"])


async def settle(client: httpx.AsyncClient, run_id: str) -> Mapping[str, Any]:
    """Wait until a run is not at work; the run."""
    async with asyncio.timeout(TIMEOUT_S):
        while (run := (await client.get(f"/api/runs/{run_id}")).json())["status"] in (
            "queued",
            "initializing",
            "planning",
            "executing",
        ):
            await asyncio.sleep(0.05)
    return run  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Event:
    """An event of a stream."""

    kind: str
    id: str
    data: Any


async def read_events(
    client: httpx.AsyncClient, path: str, last: str | None = None, *, until: str = "end"
) -> list[Event]:
    """Read a stream up to the first event of a kind, or of several (``log,end``), or to where it was cut off."""
    found: list[Event] = []
    headers = {"Last-Event-ID": last} if last else {}
    with suppress(httpx.TransportError):
        await _read_into(found, client, path, headers, until)
    return found


async def _read_into(
    found: list[Event], client: httpx.AsyncClient, path: str, headers: Mapping[str, str], until: str
) -> None:
    async with asyncio.timeout(TIMEOUT_S), client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                found.append(Event(fields["event"], fields.get("id", ""), json.loads(fields["data"])))
                fields = {}
                if found[-1].kind in until.split(","):
                    return
            else:
                fields = {}
