"""A real MCP server that asks its user in the middle of a call; each call is counted in a file."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.exceptions import McpError, UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams
from pydantic import BaseModel, Field

server = FastMCP("shop")
CALLS = Path("calls.txt")


def count(what: str) -> int:
    with CALLS.open("a") as file:
        file.write(f"{what}\n")
    return CALLS.read_text().split().count(what)


async def elicit(context: Context[Any, Any, Any], message: str, properties: dict[str, Any], required: list[str]) -> str:
    schema = {"type": "object", "properties": properties, "required": required}
    result = await context.session.elicit_form(message, schema, context.request_id)
    return f"{result.action} {result.content}"


@server.tool()
async def order(context: Context[Any, Any, Any], item: str) -> str:
    """Order something."""
    count("order")
    fields = {
        "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "title": "How many"},
        "gift": {"type": "boolean", "default": False},
        "note": {"type": "string", "maxLength": 5},
    }
    return f"{item}: " + await elicit(context, "How shall it be?", fields, ["size", "count", "gift"])


@server.tool()
async def confirm(context: Context[Any, Any, Any], what: str) -> str:
    """Do something if the user agrees."""
    count("confirm")

    class Sure(BaseModel):
        sure: bool = Field(title="Do it")

    try:
        got = await context.elicit(f"Really {what}?", Sure)
    except McpError:
        return f"{what} done without asking"
    return f"{what}: {got.action} {got.model_dump().get('data')}"


@server.tool()
async def twice(context: Context[Any, Any, Any]) -> str:
    """Ask the same twice, and something else."""
    count("twice")
    texts = [await elicit(context, "Your name?", {"name": {"type": "string"}}, ["name"]) for _ in range(2)]
    return " | ".join([*texts, await elicit(context, "And?", {}, [])])


@server.tool()
async def both(context: Context[Any, Any, Any], which: str) -> str:
    """Wait for the other call, then ask."""
    count("both")
    for _ in range(20):
        if CALLS.read_text().split().count("both") > 1:
            break
        await asyncio.sleep(0.05)
    return f"{which}: " + await elicit(context, f"Sure of {which}?", {}, [])


@server.tool()
async def quick(which: str) -> str:
    """Answer at once."""
    count("quick")
    return which


@server.tool()
async def login(context: Context[Any, Any, Any], url: str = "https://shop.example.org/login?id=") -> str:
    """Let the user log in on a page, another address each time."""
    number = count("login")
    result = await context.session.elicit_url("Log in to the shop.", f"{url}{number}", str(number), context.request_id)
    return result.action


@server.tool()
async def locked() -> str:
    """Refuse until a page was opened."""
    if count("locked") == 1:
        page = ElicitRequestURLParams(message="Pay first.", url="https://pay.example.org/1", elicitationId="1")
        raise UrlElicitationRequiredError([page])
    return "paid"


@server.tool()
async def nested(context: Context[Any, Any, Any]) -> str:
    """Ask with a form that the protocol does not allow."""
    return await elicit(context, "Where?", {"place": {"type": "object", "properties": {}}}, [])


if __name__ == "__main__":
    server.settings.port = int((*sys.argv[2:], 0)[0])
    server.run(*sys.argv[1:2])  # type: ignore[arg-type]
