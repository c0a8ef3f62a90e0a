"""A program of somebody else: it starts the MCP server for askers, asks one question, and prints what came of it.

``asking_client.py RUN PATH QUESTION``: the path is written ``lead/coder``. It calls again until it has an answer.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import mcp
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

WAIT = "0.5s"


def serve(run: str, wait: str = WAIT) -> StdioServerParameters:
    """Return how the server is started; without the name of a run where `run` is empty."""
    arguments = ["-m", "upcall", "mcp", "--ask", "--wait", wait, *(["--run", run] if run else [])]
    return StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ})


async def ask(session: Any, path: str, question: str) -> dict[str, Any]:
    """Ask until there is an answer, as an agent does that is begun anew; return the result of the last call."""
    given = {"question": question, "path": path.split("/")}
    while True:
        result = await session.call_tool("ask_human", given)
        body = getattr(result, "structuredContent", None) or result.structured_content
        if body["status"] != "waiting":
            return body  # type: ignore[no-any-return]


async def main(run: str, path: str, question: str) -> None:
    """Print the status and the answer."""
    if hasattr(mcp, "Client"):  # 2.x
        async with mcp.Client(stdio_client(serve(run))) as client:
            body = await ask(client, path, question)
    else:
        async with stdio_client(serve(run)) as (read, write), mcp.ClientSession(read, write) as session:
            await session.initialize()
            body = await ask(session, path, question)
    sys.stdout.write(f"{body['status']} {body['text']}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
