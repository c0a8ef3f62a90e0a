"""How fast the page of a long run opens while many event streams are open, and what memory the service takes.

    python benchmarks/run_page.py [--events 2000] [--streams 200] [--pages 20] [--beside CHECKOUT]

Each server is a process of its own on loopback, over an SQLite file; the pages are opened in Chromium in turn, one of
each checkout, in one browser without a cache of pages. Paint is the browser's first contentful paint; a page is
interactive when its document and its deferred scripts have run. `CHECKOUT` is another checkout of this repository, in
which `make install` was run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from playwright.async_api import BrowserContext, async_playwright
from service_load import STREAMS_PER_USER, Follower, connect, read_memory, start_run, wait_for

from upcall import PausableAgent, Run, RunStatus, Settings
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.server.server import serve
from upcall.server.service import Service
from upcall.server.tokens import create_token
from upcall.storage.transcripts import write_transcript
from upcall.testing import Call, ScriptedModelClient

ROOT = Path(__file__).resolve().parents[1]
KIND_CYCLE = (EntryKind.MESSAGE, EntryKind.CALL, EntryKind.RESULT, EntryKind.THOUGHT)
TIMING = """() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
    interactive: performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
    bytes: performance.getEntriesByType("navigation")[0].encodedBodySize,
})"""


async def run_server(store: str, events: int, users: int) -> None:
    """Serve a finished run of so many events, and a team that asks once, with tokens for so many users."""
    model = ScriptedModelClient([Call("ask_user", {"question": "Which framework?"})] * (users * STREAMS_PER_USER))

    def make_team() -> Team:
        return RoundRobinGroupChat([PausableAgent("agent", model)], max_turns=1)

    service = Service(Settings.read(None, store={"path": store}), team=make_team)
    at = datetime.now(UTC)
    entries = [
        TranscriptEntry(
            KIND_CYCLE[number % len(KIND_CYCLE)],
            ("lead", "coder") if number % 3 else ("lead",),
            at,
            f"Entry {number}: **what was done**, in `server.py`, and why.\n\n- one\n- two\n",
            name="write_file" if number % len(KIND_CYCLE) in (1, 2) else "",
            number=number + 1 if number % len(KIND_CYCLE) in (0, 3) else 0,
        )
        for number in range(events)
    ]
    run = Run(task="Write a server", user="user0", status=RunStatus.COMPLETED, result="Done.")
    await service.store.create(run, Checkpoint(inbox=(TextMessage(source="user", content="Write a server"),)))
    await service.store.database.write(write_transcript(run.id, 0, entries))
    secrets = [(await create_token(service.store, f"user{number}"))[1] for number in range(users)]

    def report(link: str) -> None:
        print(json.dumps({"url": link.partition("/login")[0], "secrets": secrets, "run": run.id}), flush=True)

    await serve(service, "127.0.0.1", 0, operator="nobody", show_link=report)


@dataclass
class Served:
    """A server that runs, and what was measured of it: milliseconds and megabytes."""

    name: str
    process: subprocess.Popen[str]
    place: dict[str, Any]
    paint: list[float] = field(default_factory=list)
    interactive: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    page_bytes: int = 0

    def note_memory(self) -> None:
        """Note the memory that it has now."""
        self.memory.append(read_memory(self.process.pid)[0])

    def describe(self) -> str:
        """Return one line of what was measured."""
        now, streams, end = self.memory
        return (
            f"{self.name}: paint {_spread(self.paint)}, interactive {_spread(self.interactive)}, page "
            f"{self.page_bytes / 1000:.0f} KB; memory {now} MB, with the streams {streams} MB, at the end {end} MB"
        )


def start_server(name: str, checkout: Path, folder: Path, events: int, users: int) -> Served:
    """Start the server of a checkout."""
    folder.mkdir()
    python = sys.executable if checkout == ROOT else str(checkout / ".venv/bin/python")
    command = [python, __file__, "--serve", str(folder / "runs.db"), str(events), str(users)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"The server of {checkout} did not start.")
    return Served(name, process, json.loads(line))


async def measure(servers: Sequence[Served], streams: int, pages: int) -> None:
    """Open the streams and then the pages, in turn."""
    async with AsyncExitStack() as stack:
        following = []
        for server in servers:
            server.note_memory()
            clients = [
                await stack.enter_async_context(connect(server.place["url"], each)) for each in server.place["secrets"]
            ]
            owners = [clients[number // STREAMS_PER_USER] for number in range(streams)]
            followers = []
            for each in owners:
                followers.append(Follower(each, await start_run(each)))
                following.append(asyncio.create_task(followers[-1].follow()))
            await wait_for(followers)
            server.note_memory()
        playwright = await stack.enter_async_context(async_playwright())
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        contexts = [await browser.new_context(viewport={"width": 1440, "height": 900}) for _ in servers]
        for server, context in zip(servers, contexts, strict=True):
            await _log_in(context, server)
        for _ in range(pages):
            for server, context in zip(servers, contexts, strict=True):
                await _open_page(context, server)
        for server in servers:
            server.note_memory()
        await browser.close()
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def _log_in(context: BrowserContext, server: Served) -> None:
    page = await context.new_page()
    await page.goto(f"{server.place['url']}/login")
    await page.get_by_label("Your token").fill(server.place["secrets"][0])
    await page.keyboard.press("Enter")
    await page.get_by_role("navigation").get_by_role("link", name="Runs").wait_for()
    await page.close()


async def _open_page(context: BrowserContext, server: Served) -> None:
    page = await context.new_page()
    await page.goto(f"{server.place['url']}/runs/{server.place['run']}")
    await page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    found = await page.evaluate(TIMING)
    server.paint.append(found["paint"])
    server.interactive.append(found["interactive"])
    server.page_bytes = found["bytes"]
    await page.close()


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} ms ({min(values):.0f}-{max(values):.0f})"


def main() -> None:
    """Read the arguments, and measure in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT")
    parser.add_argument("--serve", nargs=3, metavar=("STORE", "EVENTS", "USERS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(run_server(given.serve[0], int(given.serve[1]), int(given.serve[2])))
        return
    checkouts = {"here": ROOT} | ({"beside": given.beside.resolve()} if given.beside else {})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        users = max(1, -(-given.streams // STREAMS_PER_USER))
        servers = []
        for name, checkout in checkouts.items():
            servers.append(start_server(name, checkout, Path(folder, name), given.events, users))
            stack.callback(servers[-1].process.kill)
        asyncio.run(measure(servers, given.streams, given.pages))
    print(f"{given.events} events, {given.streams} streams on each server, {given.pages} pages of each in turn; median")
    for server in servers:
        print(server.describe())
    if given.beside:
        one, other = (statistics.median(server.paint) for server in servers)
        print(f"paint here / beside: {one / other:.2f}")


if __name__ == "__main__":
    main()
