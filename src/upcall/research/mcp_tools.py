"""The tools of an MCP server, as a workbench.

autogen-ext's `McpWorkbench` (0.7.5) has no timeout on its start and cannot be stopped while it waits for a silent
server, so this module manages the session itself, with the `mcp` package.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pydantic import BaseModel

from upcall.autogen.api import CancellationToken, Component, ParametersSchema, ToolResult, ToolSchema
from upcall.autogen.tool_calls import idempotent
from upcall.autogen.tool_names import to_sendable
from upcall.autogen.tool_servers import PROBE_INTERVAL_S, hide_keys, is_unreachable, keys_in
from upcall.autogen.workbenches import StatelessWorkbench, tool_result
from upcall.errors import UserInputRequired, install_command
from upcall.questions.elicitation import UnusableRequest
from upcall.questions.json_values import list_fields, list_required
from upcall.research.mcp_server import McpServer
from upcall.research.sources.fences import CUT, DATA, MAX_TEXT_CHARS, fence
from upcall.text import first_line, shorten

if TYPE_CHECKING:
    from upcall.autogen.mcp_sessions import ServerSession

ListedTool: TypeAlias = dict[str, Any]
"""A tool as its server lists it, with the protocol's names."""

INSTALL = f"needs: {install_command('mcp')}"
STOP_TIMEOUT_S = 5.0
MAX_DESCRIPTION_CHARS = 1_000
_log = logging.getLogger("upcall")


class McpToolsConfig(BaseModel):
    """The declarative form of `McpTools`. Keys in it are masked."""

    name: str
    server: McpServer


class McpTools(StatelessWorkbench, Component[McpToolsConfig]):
    """The tools of the server `name`, each called ``NAME_TOOL``: a server cannot take the name of another tool.

    It is started when its tools are first listed. An unreachable server has no tools, and a warning says why; the work
    continues without it, and the next run tries again. Results are fenced as data and limited in length.
    """

    component_config_schema = McpToolsConfig
    component_provider_override = "upcall.agents.McpTools"

    def __init__(self, name: str, server: McpServer) -> None:
        self.name, self._server = name, server
        self.lost: str | None = None
        """Why its server cannot be used, if it was tried."""
        self._session: ServerSession | None = None
        self._tools: dict[str, ListedTool] | None = None
        self._starting = asyncio.Lock()
        self._closing = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        if server.idempotent:
            idempotent(self)

    @property
    def description(self) -> str:
        """Its description while its tools are unknown."""
        return self._server.description or f"Tools of the MCP server {self.name}."

    @property
    def is_running(self) -> bool:
        """Whether its server is started and not stopped."""
        return self._serving is not None

    def problem(self) -> str | None:
        """Return the missing package, if one is."""
        return None if importlib.util.find_spec("mcp") else INSTALL

    async def list_tools(self) -> list[ToolSchema]:
        """List the schemas of its tools; none if it is unreachable."""
        return [_schema(name, tool) for name, tool in (await self._list_known()).items()]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Make one call. Errors are returned as error results."""
        tool = (await self._list_known()).get(name)
        if tool is None or self._session is None:
            return tool_result(name, f"There is no tool {name!r}.", is_error=True)
        try:
            async with asyncio.timeout(self._server.timeout):
                result = await self._session.call_tool(tool["name"], dict(arguments or {}))
        except TimeoutError:
            if self._server.url is not None and await is_unreachable(self._server.url):
                return tool_result(name, self._lose("nobody listens at its address any more"), is_error=True)
            reason = f"The MCP server {self.name} did not answer within {self._server.timeout:g} seconds."
            return tool_result(name, f"{reason} Go on without it, and say so.", is_error=True)
        except UserInputRequired:
            raise
        except UnusableRequest as error:
            return tool_result(name, f"The MCP server {self.name} cannot ask the user: {error}.", is_error=True)
        except Exception as error:  # noqa: BLE001  (errors of the server, or in reaching it)
            if await self._is_gone():
                return tool_result(name, self._lose("it has ended"), is_error=True)
            text = fence(self.name, tool["name"], "", first_line(error) or type(error).__name__)
            return tool_result(name, f"The call failed.\n{DATA}\n\n{text}", is_error=True)
        text = shorten(_text(result), MAX_TEXT_CHARS, CUT)
        return tool_result(
            name, f"{DATA}\n\n{fence(self.name, tool['name'], '', text)}", is_error=result.get("isError", False)
        )

    async def stop(self) -> None:
        """End the session, and with it a server that we started."""
        serving, self._serving = self._serving, None
        self._closing.set()
        if serving is not None:
            await asyncio.wait([serving], timeout=STOP_TIMEOUT_S)
            serving.cancel()
            await asyncio.wait([serving], timeout=STOP_TIMEOUT_S)
        self._session = self._tools = self.lost = None
        self._closing = asyncio.Event()

    def _to_config(self) -> McpToolsConfig:
        return McpToolsConfig(name=self.name, server=self._server)

    @classmethod
    def _from_config(cls, config: McpToolsConfig) -> Self:
        return cls(config.name, config.server)

    async def _list_known(self) -> dict[str, ListedTool]:
        async with self._starting:
            if self._tools is None:
                self._tools = await self._start()
            return self._tools

    async def _start(self) -> dict[str, ListedTool]:
        if why := self.problem():
            self._lose(why)
            return {}
        ready: asyncio.Future[dict[str, ListedTool]] = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve(ready))
        try:
            async with asyncio.timeout(self._server.timeout):
                return await ready
        except TimeoutError:
            why = f"it did not answer within {self._server.timeout:g} seconds"
        except Exception as error:  # noqa: BLE001  (a missing command, no connection, no MCP)
            why = first_line(error).rstrip(".") or type(error).__name__
        self._lose(why)
        self._serving.cancel()
        return {}

    def _lose(self, why: str) -> str:
        """Give up the server until it is stopped, and return what that means for a model."""
        keys = (each.get_secret_value() for each in [*self._server.env.values(), *self._server.headers.values()])
        self.lost, self._tools = hide_keys(why, keys_in(keys)), {}
        _log.warning("MCP server %s cannot be used: %s. The run continues without its tools.", self.name, self.lost)
        return f"The MCP server {self.name} cannot be used ({self.lost}). Go on without it, and say so."

    async def _is_gone(self) -> bool:
        """Return whether the server has ended; one that is only busy has not."""
        if self._session is None:
            return True
        try:
            async with asyncio.timeout(PROBE_INTERVAL_S):
                await self._session.list_tools()
        except TimeoutError:
            return False
        except Exception:  # noqa: BLE001  (whatever it is, no list came)
            return True
        return False

    async def _serve(self, ready: asyncio.Future[dict[str, ListedTool]]) -> None:
        """Run the session in its own task: what the `mcp` package opens must be closed in the task that opened it."""
        try:
            async with _connect(self._server) as session:
                tools = await session.list_tools()
                self._session = session
                if not ready.done():
                    ready.set_result(_names(self.name, tools))
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001  (the waiting task gets it)
            if not ready.done():
                ready.set_exception(_cause(error))
        finally:
            self._session = None


@asynccontextmanager
async def _connect(server: McpServer) -> AsyncIterator[ServerSession]:
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    from upcall.autogen.mcp_sessions import open_http, open_session

    if server.url is not None:
        headers = {name: value.get_secret_value() for name, value in server.headers.items()}
        async with open_session(open_http(server.url, headers), server.timeout) as session:
            yield session
        return
    own = {name: value.get_secret_value() for name, value in server.env.items()}
    params = StdioServerParameters(command=server.command or "", args=server.args, env=own)
    # Whatever a server prints besides the protocol is not for the terminal.
    with Path(os.devnull).open("w") as nowhere:  # noqa: ASYNC230  (nothing to wait for)
        async with open_session(stdio_client(params, errlog=nowhere), server.timeout) as session:
            yield session


def _names(server: str, tools: Sequence[ListedTool]) -> dict[str, ListedTool]:
    """Return the tools by their names for the model; one that is too long or taken ends with a digest."""
    named: dict[str, ListedTool] = {}
    for tool in tools:
        named[to_sendable(f"{server}_{tool['name']}", named)] = tool
    return named


def _schema(name: str, tool: ListedTool) -> ToolSchema:
    given = tool["inputSchema"]
    parameters = ParametersSchema(
        type="object",
        properties=dict(list_fields(given)),
        required=list_required(given),
        additionalProperties=bool(given.get("additionalProperties", False)),
    )
    shared: Any = {key: given[key] for key in ("$defs", "definitions") if key in given}  # The targets of references.
    return ToolSchema(
        name=name,
        description=shorten(tool.get("description", ""), MAX_DESCRIPTION_CHARS, CUT),
        parameters={**parameters, **shared},
    )


def _text(result: dict[str, Any]) -> str:
    """Join the texts of a result; other content is named by its kind."""
    texts = []
    for part in result.get("content", ()):
        text = part.get("resource", part).get("text")
        texts.append(text if isinstance(text, str) else f"[{part['type']}]")
    return "\n".join(texts)


def _cause(error: BaseException) -> BaseException:
    """Return the first error of a group: anyio wraps them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
