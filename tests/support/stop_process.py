"""A process whose team is at work until it is stopped: stock agents, with a model or a tool that listens to no token.

Prints `busy` when it hangs, and at its end how many of its tasks are left behind.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import TeamTool
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.tools import FunctionTool, StaticStreamWorkbench

from upcall import Upcall
from upcall.testing import Call, Hang, Reply, Request, ScriptedModelClient


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class DeafWorkbench(StaticStreamWorkbench):
    """Gives its tools no token."""

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):  # type: ignore[no-untyped-def]
        return await super().call_tool(name, arguments, None, call_id)


class Executor(CodeExecutor):
    """Runs nothing."""

    component_type = "code_executor"

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: object) -> CodeResult:
        return CodeResult(exit_code=0, output="ran")

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def restart(self) -> None: ...


async def hang() -> str:
    """Hang."""
    say("busy")
    await asyncio.sleep(3600)
    return ""


CALLS = {"tool": Call("hang"), "team as a tool": Call("crew", {"task": "Build it"})}


def make(kind: str) -> Team:
    """Return a team that hangs in a place of this kind."""

    def reply(request: Request) -> Reply:
        if request.system == "boss":
            return CALLS[kind]
        if request.system == "coder" and len(request.messages) == 2:
            return "```python\nprint(1)\n```"
        say("busy")
        return Hang()

    client = ScriptedModelClient(reply)
    solo = AssistantAgent("solo", client, system_message="solo")
    if kind == "reflection":
        coder = CodeExecutorAgent("coder", Executor(), model_client=client, system_message="coder")
        return RoundRobinGroupChat([coder])
    if kind == "tool":
        bench = DeafWorkbench([FunctionTool(hang, "Hang.")])
        return RoundRobinGroupChat([AssistantAgent("boss", client, system_message="boss", workbench=bench)])
    if kind == "team as a tool":
        tool = TeamTool(RoundRobinGroupChat([solo]), name="crew", description="Builds.")
        return RoundRobinGroupChat([AssistantAgent("boss", client, system_message="boss", tools=[tool])])
    return RoundRobinGroupChat([RoundRobinGroupChat([solo], name="crew")] if kind == "inner team" else [solo])


async def main(kind: str) -> None:
    try:
        await Upcall(team=lambda: make(kind), store="runs.db").start("Build it")
    finally:
        say(f"left behind: {len(asyncio.all_tasks() - {asyncio.current_task()})}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A job in the background ignores it.
    asyncio.run(main(sys.argv[1]))
