"""A process whose tool call needs approval: it is killed after the question, then after the call, then it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Upcall
from upcall.testing import Call, Reply, Request, ScriptedModelClient

STEP = sys.argv[1]


def die() -> None:
    """End at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def send(to: str) -> str:
    """Send it."""
    with Path("sent").open("a") as file:
        file.write(json.dumps(to))
    return "sent"


def reply(request: Request) -> Reply:
    """Call the tool, then report."""
    if not request.tool_results:
        return Call("send", {"to": "bob"})
    if STEP == "answer":
        die()
    return "Done."


def make() -> RoundRobinGroupChat:
    """Build the team."""
    agent = PausableAgent("mailer", ScriptedModelClient(reply), tools=[send], approve=["send"])
    return RoundRobinGroupChat([agent], max_turns=1)


async def main() -> None:
    """Take one step."""
    app = Upcall(store="runs.db", team=make)
    if STEP == "start":
        await app.start("Mail bob", run_id="r1")
        die()
    if STEP == "answer":
        await app.answer("r1", '{"to": "eve"}')
    run = await app.resume("r1")
    assert run.result == "Done.", run


asyncio.run(main())
