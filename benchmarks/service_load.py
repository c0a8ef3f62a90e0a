"""How the service bears 200 open event streams and 20 answers a second: times, memory, and whether anything is lost.

    python benchmarks/service_load.py [--streams 200] [--rate 20] [--seconds 60]

The server is a process of its own on loopback, over an SQLite file; its team asks again after each answer, and its
model answers at once. Each stream follows a run of its own. Lost would be an answer that its run does not have, or an
entry of a transcript that its stream did not emit, or emitted twice.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Settings
from upcall.server.server import serve
from upcall.server.service import Service
from upcall.server.tokens import create_token
from upcall.testing import Call, ScriptedModelClient

STREAMS_PER_USER = 20
TIMEOUT_S = 60.0


async def run_server(store: str, users: int) -> None:
    """Serve a team that asks without end, with tokens for so many users."""
    asks = [
        Call("ask_user", {"question": f"What of {number:05d}{chr(97 + number % 26)}?"}) for number in range(100_000)
    ]
    model = ScriptedModelClient(asks)

    def make_team() -> Team:
        return RoundRobinGroupChat([PausableAgent("agent", model, max_rounds=500, max_questions=500)], max_turns=1)

    settings = Settings.read(None, store={"path": store}, questions={"max_questions_run": 1_000})
    service = Service(settings, team=make_team)
    secrets = [(await create_token(service.store, f"user{number}"))[1] for number in range(users)]

    def report(link: str) -> None:
        print(json.dumps({"url": link.partition("/login")[0], "secrets": secrets}), flush=True)

    await serve(service, "127.0.0.1", 0, operator="nobody", show_link=report)


@dataclass
class Follower:
    """One stream: what it emitted, and when it emitted the question that is open."""

    client: httpx.AsyncClient
    run_id: str
    entries: list[Any] = field(default_factory=list)
    asked: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    known: set[str] = field(default_factory=set)
    answered: dict[str, float] = field(default_factory=dict)
    delivered: list[float] = field(default_factory=list)
    last: str = ""

    async def follow(self) -> None:
        """Read to the end, which is that it is cancelled; again behind the last event where it is cut off."""
        while True:
            headers = {"Last-Event-ID": self.last} if self.last else {}
            path = f"/api/runs/{self.run_id}/events"
            async with self.client.stream("GET", path, headers=headers, timeout=None) as response:
                response.raise_for_status()
                async for event in _read(response):
                    self._take(event)

    def _take(self, event: dict[str, str]) -> None:
        self.last = event.get("id", self.last)
        data = json.loads(event["data"])
        if event["event"] == "entry":
            self.entries.append(data)
            if data["kind"] == "answer" and data["name"] in self.answered:
                self.delivered.append(time.perf_counter() - self.answered[data["name"]])
        elif event["event"] == "run":
            for question in data["questions"]:
                if question["id"] not in self.known:
                    self.known.add(question["id"])
                    self.asked.put_nowait(question["id"])


async def _read(response: httpx.Response) -> AsyncIterator[dict[str, str]]:
    event: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if line:
            event[name] = value
        elif "event" in event:
            yield event
            event = {}


async def measure(place: dict[str, Any], server: int, streams: int, rate: float, seconds: float) -> None:
    """Open the streams, answer at the rate, and print what came of it."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(place["url"], each)) for each in place["secrets"]]
        owners = [clients[number // STREAMS_PER_USER] for number in range(streams)]
        before = read_memory(server)
        followers = [Follower(each, await start_run(each)) for each in owners]
        following = [asyncio.create_task(each.follow()) for each in followers]
        await wait_for(followers)
        print(f"{streams} streams open; memory {before[0]} MB before, {read_memory(server)[0]} MB now")
        taken, late = await _answer_all(followers, rate, seconds)
        await wait_for(followers)
        await asyncio.sleep(2)
        lost = [await _find_lost(each) for each in followers]
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    emitted = [one for each in followers for one in each.delivered]
    now, most = read_memory(server)
    print(f"{len(taken)} answers in {seconds:.0f} s, {late} of them sent late; memory {now} MB, at most {most} MB")
    print(f"request: {_quantiles(taken)}")
    print(f"answer told by the stream: {_quantiles(emitted)}")
    answers, entries = (sum(each) for each in zip(*lost, strict=True))
    print(f"lost: {answers} answers, {entries} entries")
    if answers or entries or len(emitted) != len(taken):
        raise SystemExit(f"{len(taken) - len(emitted)} answers were not told")


def connect(url: str, secret: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(
        base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=TIMEOUT_S, limits=limits
    )


async def start_run(client: httpx.AsyncClient) -> str:
    response = await client.post("/api/runs", json={"task": "Ask me"})
    response.raise_for_status()
    return str(response.json()["run_id"])


async def wait_for(followers: list[Follower]) -> None:
    """Wait until each stream has emitted a question that is open."""
    async with asyncio.timeout(TIMEOUT_S * 2):
        for each in followers:
            each.asked.put_nowait(await each.asked.get())


async def _answer_all(followers: list[Follower], rate: float, seconds: float) -> tuple[list[float], int]:
    """Answer one run after the other at the rate; how long each request took, and how many were sent late."""
    taken: list[float] = []
    late, begun, sending = 0, time.perf_counter(), []

    async def answer(follower: Follower, question: str) -> None:
        follower.answered[question] = start = time.perf_counter()
        body = {"answers": {question: f"Answer to {question}"}}
        response = await follower.client.post(f"/api/runs/{follower.run_id}/answers", json=body)
        response.raise_for_status()
        taken.append(time.perf_counter() - start)

    for number, follower in zip(range(int(rate * seconds)), itertools.cycle(followers), strict=False):
        await asyncio.sleep(begun + number / rate - time.perf_counter())
        late += follower.asked.empty()
        question = await asyncio.wait_for(follower.asked.get(), TIMEOUT_S)
        sending.append(asyncio.create_task(answer(follower, question)))
    await asyncio.gather(*sending)
    return taken, late


async def _find_lost(follower: Follower) -> tuple[int, int]:
    """Count the answers that the run does not have, and the entries that the stream did not emit exactly once."""
    kept = (await follower.client.get(f"/api/runs/{follower.run_id}/transcript")).json()
    has = {each["name"] for each in kept if each["kind"] == "answer"}
    whole, emitted = (
        [(each["kind"], each["name"], each["text"]) for each in found] for found in (kept, follower.entries)
    )
    return len(follower.answered.keys() - has), len(whole) - len(emitted) if whole[: len(emitted)] == emitted else len(
        whole
    )


def _quantiles(values: list[float]) -> str:
    cut = statistics.quantiles(values, n=100)
    return f"p50 {cut[49] * 1000:.0f} ms, p99 {cut[98] * 1000:.0f} ms, max {max(values) * 1000:.0f} ms"


def read_memory(process: int) -> tuple[int, int]:
    """Return the memory of a process now, and at most, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    now, most = (re.search(rf"{name}:\s+(\d+)", status) for name in ("VmRSS", "VmHWM"))
    assert now
    assert most
    return int(now[1]) // 1024, int(most[1]) // 1024


def main() -> None:
    """Read the arguments, and measure in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--serve", nargs=2, metavar=("STORE", "USERS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(run_server(given.serve[0], int(given.serve[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        users = -(-given.streams // STREAMS_PER_USER)
        command = [sys.executable, __file__, "--serve", f"{folder}/runs.db", str(users)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
            try:
                assert server.stdout
                place = json.loads(server.stdout.readline())
                asyncio.run(measure(place, server.pid, given.streams, given.rate, given.seconds))
            finally:
                server.kill()


if __name__ == "__main__":
    main()
