"""A real MCP server of the specification of 2026-07-28, for `mcp` 2.x: its results say what they require."""

import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer  # type: ignore[import-not-found,unused-ignore]
from mcp_types import (  # type: ignore[import-not-found,unused-ignore]
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)

server = MCPServer("shop")
CALLS = Path("calls.txt")


def count(what: str) -> int:
    with CALLS.open("a") as file:
        file.write(f"{what}\n")
    return CALLS.read_text().split().count(what)


def form(message: str, **properties: Any) -> Any:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def say(answers: Any) -> str:
    return " ".join(f"{key}={each.action}:{each.content}" for key, each in sorted(answers.items()))


@server.tool()
async def order(context: Context, item: str) -> str | InputRequiredResult:
    """Order something: two questions at once, then one more, each from the state alone."""
    count("order")
    if context.input_responses is None:
        asked = {"size": form("How big?", size={"type": "string", "enum": ["s", "l"]}), "sure": form("Sure?")}
        return InputRequiredResult(input_requests=asked, request_state=item)
    if "size" in context.input_responses:
        state = f"{context.request_state}, {say(context.input_responses)}"
        return InputRequiredResult(
            input_requests={"count": form("How many?", n={"type": "integer"})}, request_state=state
        )
    return f"{context.request_state}, {say(context.input_responses)}"


@server.tool()
async def again(context: Context) -> str | InputRequiredResult:
    """Ask for the same until it is right."""
    count("again")
    text = context.input_responses
    if text is None or text["code"].content != {"code": "7"}:
        return InputRequiredResult(input_requests={"code": form("Code?", code={"type": "string"})})
    return "right"


@server.tool()
async def login(context: Context) -> str | InputRequiredResult:
    """Let the user log in on a page."""
    count("login")
    if context.input_responses is None:
        page = ElicitRequest(params=ElicitRequestURLParams(message="Log in.", url="https://shop.example.org/in"))
        return InputRequiredResult(input_requests={"page": page})
    return say(context.input_responses)


@server.tool()
async def busy(context: Context) -> str | InputRequiredResult:
    """Want the call once more, with its state."""
    number = count("busy")
    return "done" if number > 2 else InputRequiredResult(request_state=str(number))


@server.tool()
async def endless() -> str | InputRequiredResult:
    """Want the call once more, always."""
    return InputRequiredResult(request_state="x")


@server.tool()
async def sample() -> str | InputRequiredResult:
    """Ask for a model's reply."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Hi"))
    params = CreateMessageRequestParams(messages=[message], max_tokens=5)
    return InputRequiredResult(input_requests={"reply": CreateMessageRequest(params=params)})


@server.tool()
async def search(words: str) -> str:
    """Search."""
    return f"Found {words}"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run(sys.argv[1], port=int(sys.argv[2]))
    else:
        server.run()
