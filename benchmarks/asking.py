"""Questions of programs outside, whose client and server are both killed in the wait: what is lost, and what is asked
twice. Beside it the same with a server that waits in memory, as a tool written by hand does.

Each round starts a client of the `mcp` package, which starts the server on its standard input and output, and asks from
depth 1, 2 or 3; every fifth round two clients ask the same. When the question is open all are killed, it is answered,
and the same clients are started again.

python benchmarks/asking.py --rounds 200 --in-memory 10
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
NAMES = ("lead", "coder", "tester")
GIVE_UP_S = 60.0

IN_MEMORY = """
import asyncio
from pathlib import Path
from {place} import {name} as Server

server = Server("memory")

@server.tool()
async def ask_human(question: str, path: list[str], run: str = "") -> str:
    Path(f"{{question}}.asked").open("a").write("x")
    while not (answer := Path(f"{{question}}.answer")).exists():
        await asyncio.sleep(0.05)
    answer.unlink()
    return question

server.run()
"""


async def ask(arguments: Sequence[str], path: str, question: str) -> None:
    """Start a server, and call its tool until there is an answer; print that."""
    import mcp
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    started = stdio_client(
        StdioServerParameters(command=sys.executable, args=[*arguments], env={**os.environ}), errlog=sys.stderr
    )
    given = {"question": question, "path": path.split("/"), "run": "rounds"}

    async def call(session: Any) -> str:
        while True:
            result = await session.call_tool("ask_human", given)
            text: str = result.content[0].text
            body = getattr(result, "structuredContent", None) or getattr(result, "structured_content", None) or {}
            if body.get("status") != "waiting":
                return str(body.get("text") or text)

    if hasattr(mcp, "Client"):  # 2.x
        async with mcp.Client(started) as client:
            text = await call(client)
    else:
        async with started as (read, write), mcp.ClientSession(read, write) as session:
            await session.initialize()
            text = await call(session)
    sys.stdout.write(text)


def begin(server: Sequence[str], path: str, question: str) -> subprocess.Popen[str]:
    """Start a client and its server as one group."""
    command = [sys.executable, str(HERE), "--client", path, question, *server]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def kill(clients: Sequence[subprocess.Popen[str]]) -> None:
    """Kill clients and their servers as `kill -9` does."""
    for each in clients:
        os.killpg(each.pid, signal.SIGKILL)
        each.communicate()


def read(clients: Sequence[subprocess.Popen[str]], seconds: float) -> list[str]:
    """Return what clients print; nothing for one that is still waiting, which is killed."""
    found = []
    for each in clients:
        try:
            found.append(each.communicate(timeout=seconds)[0])
        except subprocess.TimeoutExpired:
            kill([each])
            found.append("")
    return found


def list_paths(number: int) -> list[str]:
    """Return who asks in a round: one client at a depth, or two."""
    path = "/".join(NAMES[: number % 3 + 1])
    return [path, f"{path}/other"] if number % 5 == 0 else [path]


async def run_stored(rounds: int) -> Counter[str]:
    """Run the rounds with `upcall mcp --ask`; return how many of each thing there were."""
    from upcall.run_reader import RunReader
    from upcall.settings import Settings
    from upcall.subjects.external import Ticket

    reader, counted = RunReader(Settings.read(None, store={"path": "upcall.db"})), Counter[str]()
    server = ["-m", "upcall", "mcp", "--ask", "--wait", "0.5s"]
    for number in range(rounds):
        paths, question = list_paths(number), f"Which port for the service number {number}?"
        clients = [begin(server, path, question) for path in paths]
        opened: list[Any] = []
        until = time.monotonic() + GIVE_UP_S
        while len(opened) < len(paths) and time.monotonic() < until:
            await asyncio.sleep(0.05)
            if await reader.store.exists() and await reader.inbox():
                opened = [*(await reader.get("rounds")).open_questions]
        kill(clients)
        shown = (await reader.get("rounds")).questions
        await reader.external.answer(Ticket("rounds", shown[0].id), str(number))
        replies = read([begin(server, path, question) for path in paths], GIVE_UP_S)
        records = [each for each in (await reader.get("rounds")).records if each.question.question == question]
        counted["calls"] += len(paths)
        counted["lost"] += sum(reply != str(number) for reply in replies)
        counted["asked twice"] += len(shown) - 1 + len(records) - len(paths)
        counted["path wrong"] += {"/".join(each.question.path) for each in records} != set(paths)
    await reader.store.close()
    return counted


def run_in_memory(rounds: int) -> Counter[str]:
    """Run the rounds with a server that has its questions in memory."""
    is_second = version("mcp").startswith("2")
    place, name = ("mcp.server.mcpserver", "MCPServer") if is_second else ("mcp.server.fastmcp", "FastMCP")
    Path("memory.py").write_text(IN_MEMORY.format(place=place, name=name))
    counted = Counter[str]()
    for number in range(rounds):
        (path, *_), question = list_paths(number), f"q{number}"
        asked, first = Path(f"{question}.asked"), begin(["memory.py"], path, question)
        while not asked.exists():
            time.sleep(0.05)
        kill([first])
        counted["calls"] += 1
        again = begin(["memory.py"], path, question)
        while len(asked.read_text()) < 2:
            time.sleep(0.05)
        counted["asked twice"] += len(asked.read_text()) - 1
        # The human answers what they saw, the first question; its server is gone.
        (reply,) = read([again], 3)
        counted["lost"] += reply != question
    return counted


def main() -> int:
    """Print the table; return 1 if a question was lost, asked twice, or has another asker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="with upcall (default: %(default)s)")
    parser.add_argument("--in-memory", type=int, default=5, help="with a server in memory (default: %(default)s)")
    parser.add_argument("--client", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        path, question, *server = given.client
        asyncio.run(ask(server, path, question))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        began = time.monotonic()
        stored = asyncio.run(run_stored(given.rounds))
        took = time.monotonic() - began
        in_memory = run_in_memory(given.in_memory)
        os.chdir("/")
    print(f"mcp {version('mcp')}, {given.rounds} rounds in {took:.0f} s")
    print(f"{'':16} {'calls':>6} {'lost':>6} {'asked twice':>12} {'path wrong':>11}")
    for name, each in (("upcall mcp --ask", stored), ("in memory", in_memory)):
        print(f"{name:16} {each['calls']:6} {each['lost']:6} {each['asked twice']:12} {each['path wrong']:11}")
    return 1 if stored["lost"] or stored["asked twice"] or stored["path wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
