"""The MCP servers behind workbenches, in a run: a dead one takes its tools with it, not the run, and nobody waits long.

A server that cannot be started or reached, or that dies, is given up until the run's next segment. The run warns of it,
and each agent that has it learns so in one line. AutoGen's `McpWorkbench` waits for a silent HTTP server, and for one
that died during a call, as long as it waits for events: five minutes (autogen-ext 0.7.5).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from traceback import walk_tb
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import urlsplit

from autogen_core import CancellationToken
from autogen_core.tools import BaseTool, ToolResult, ToolSchema, Workbench

from upcall.autogen.internals import mcp_actor_of, mcp_params_of, reach_server_of
from upcall.autogen.scope import current_scope
from upcall.autogen.workbenches import tool_result
from upcall.lazy_pattern import LazyPattern
from upcall.questions.secrets import HIDDEN
from upcall.questions.tool_context import open_call
from upcall.text import first_line, shorten

T = TypeVar("T")

START_LIMIT_S = 30.0
"""How long a server may take to start and list its tools; longer only if its own settings say so."""

PROBE_INTERVAL_S = 5.0
"""How often a server with an address is looked for while it works on a call, and how long that may take."""

SETTLE_S = 1.0
"""How long a call may take to fail after its server has ended."""

LEAST_HIDDEN = 4
"""The characters of the shortest value that counts as a key."""

MAX_REASON_CHARS = 200

_URL = LazyPattern(r"\b(https?|wss?)://[^\s'\"<>]+")


@runtime_checkable
class ToolServer(Protocol):
    """A workbench of this library that says itself what is wrong with its server."""

    name: str
    lost: str | None


class LostServers:
    """The servers that a segment of a run has given up, and its warnings about servers."""

    def __init__(self) -> None:
        self._lost: dict[int, tuple[object, str]] = {}  # A workbench may be no key of a dictionary.
        self.warnings: dict[str, None] = {}

    def add(self, workbench: object, why: str) -> None:
        """Give up the server of a workbench, or of a tool."""
        if self.describe(workbench) is None:
            warning = f"The MCP server {name_server(workbench)} cannot be used ({why}): its tools are missing."
            self._lost[id(_server_of(workbench))] = (_server_of(workbench), warning)
            self.warn(workbench, f"it cannot be used ({why}); its tools are missing")

    def warn(self, workbench: object, what: str) -> None:
        """Warn the run's user."""
        self.warnings[f"MCP server {name_server(workbench)}: {what}"] = None

    def describe(self, workbench: object) -> str | None:
        """Return what a model is given of a server that was given up."""
        _, warning = self._lost.get(id(_server_of(workbench)), (None, None))
        return warning


def _server_of(part: object) -> object:
    """Return what stands for a server: its workbench; of the tools of `mcp_server_tools` the parameters they share."""
    return part if isinstance(part, Workbench) else mcp_params_of(part)


def describe_lost(workbenches: Iterable[object]) -> list[str]:
    """Return a line for each server of an agent that this run has given up, for the agent's model."""
    lost = current_scope().lost_servers
    found = dict.fromkeys(() if lost is None else (lost.describe(each) for each in workbenches if _has_server(each)))
    return [f"{each} Work without them, and say so where it matters." for each in found if each is not None]


async def list_tools(workbench: Workbench) -> list[ToolSchema]:
    """List the tools of a workbench; none in a run if its MCP server is given up."""
    lost = current_scope().lost_servers
    if lost is None or not _has_server(workbench):
        return await workbench.list_tools()
    if lost.describe(workbench) is not None:
        return []
    if isinstance(workbench, ToolServer):
        tools = await workbench.list_tools()
        if workbench.lost is not None:
            lost.add(workbench, workbench.lost)
        return tools
    limit = _start_limit(workbench)
    try:
        async with asyncio.timeout(limit):
            return await _until_gone(workbench, workbench.list_tools())
    except TimeoutError:
        lost.add(workbench, f"it did not start within {limit:g} seconds")
    except Exception as error:  # noqa: BLE001  (a missing command, no connection, no MCP)
        lost.add(workbench, explain_loss(workbench, error))
    return []


async def call_tool(
    workbench: Workbench, name: str, arguments: Mapping[str, Any], token: CancellationToken, call_id: str
) -> ToolResult:
    """Call a tool of a workbench. If its server is gone, the result is an error that says so."""
    lost = current_scope().lost_servers
    call = workbench.call_tool(name, arguments, token, call_id=call_id)
    if not _has_server(workbench):
        return await call
    name_mcp_server(workbench)
    if lost is None:
        return await call
    if lost.describe(workbench) is not None:
        call.close()
    elif isinstance(workbench, ToolServer):
        result = await call
        if workbench.lost is not None:
            lost.add(workbench, workbench.lost)
        return result
    else:
        try:
            result = await _until_gone(workbench, call)
            if not result.is_error or (why := await _find_loss(workbench)) is None:
                return result
            lost.add(workbench, why)
        except ConnectionError as error:
            lost.add(workbench, explain_loss(workbench, error))
    return tool_result(name, *describe_lost([workbench]), is_error=True)


@asynccontextmanager
async def using_server(tool: BaseTool[Any, Any]) -> AsyncIterator[None]:
    """Call a tool inside. If it is one of `mcp_server_tools` and its server cannot be reached any more, that is given
    up, as the server of a workbench is.

    Raises:
        ConnectionError: it is; the text is for the model.
    """
    lost = current_scope().lost_servers
    if lost is None or not _has_server(tool):
        yield
        return
    if lost.describe(tool) is None:
        try:
            yield
        except Exception as error:
            # A failed call of a server that answers is a plain exception (autogen-ext 0.7.5).
            if type(error) is Exception or (why := await _explain_silence(tool)) is None:
                raise
            lost.add(tool, why)
            raise ConnectionError(*describe_lost([tool])) from error
        return
    raise ConnectionError(*describe_lost([tool]))


async def _explain_silence(tool: BaseTool[Any, Any]) -> str | None:
    """Return why the server of a tool cannot be reached; None if it answers."""
    try:
        async with asyncio.timeout(limit := _start_limit(tool)):
            await reach_server_of(tool)
    except TimeoutError:
        return f"it did not answer within {limit:g} seconds"
    except Exception as error:  # noqa: BLE001  (a missing command, no connection, no MCP)
        return explain_loss(tool, error)
    return None


def name_mcp_server(tool: object) -> None:
    """Note for the tool call that runs which MCP server it calls, if it does."""
    call = open_call()
    if call is not None and _has_server(tool):
        call.server = name_server(tool)


def name_server(workbench: object) -> str:
    """Return a name for the server of a workbench: the command that starts it, with its script or package, or its host.
    Other arguments, and the rest of an address, may contain keys."""
    if isinstance(workbench, ToolServer):
        return workbench.name
    params = mcp_params_of(workbench)
    if (url := getattr(params, "url", None)) is not None:
        parts = urlsplit(url)
        return parts.netloc.rpartition("@")[2] or "?"
    started = [each for each in [params.command, *params.args[:1]] if re.fullmatch(r"[^-=\s][^=\s]*", each)]
    return hide_keys(" ".join(PurePath(each).name for each in started), _keys_of(workbench)) or "?"


def explain_mcp_import(error: BaseException) -> str | None:
    """Return what to do if AutoGen's part for MCP servers could not be imported; None for any other error. It is
    written for `mcp` 1.x, and takes 2.x in a new environment (autogen-ext 0.7.5)."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    if not isinstance(error, ImportError) or not any(each.startswith("autogen_ext.tools.mcp") for each in modules):
        return None
    try:
        installed = f"{version('mcp')} is installed"
    except PackageNotFoundError:
        installed = "none is installed"
    return (
        f"AutoGen's MCP workbench needs mcp 1.x, and {installed}: pip install 'mcp>=1.30,<2'. Or take upcall's own, "
        "upcall.agents.McpTools, which works with both."
    )


def explain_loss(workbench: object, error: BaseException) -> str:
    """Return in one line why a server cannot be used, without what its settings keep: keys and addresses."""
    while isinstance(error, BaseExceptionGroup):  # anyio wraps the errors of its tasks.
        error = error.exceptions[0]
    reason = first_line(str(error)).rstrip(".")
    if not reason or (isinstance(error, RuntimeError) and mcp_actor_of(workbench) is None):
        reason = "it has ended"  # anyio's errors of a closed stream have no text.
    return hide_keys(reason, _keys_of(workbench))


def hide_keys(text: str, keys: Sequence[str]) -> str:
    """Return a text for people and models without keys, and with addresses cut down to their hosts."""
    for key in sorted(keys, key=len, reverse=True):  # One may be the beginning of another.
        text = text.replace(key, HIDDEN)
    text = _URL.sub(lambda found: urlsplit(found[0]).netloc.rpartition("@")[2], text)
    return shorten(text, MAX_REASON_CHARS)


async def is_unreachable(url: str) -> bool:
    """Return whether nobody listens at an address; any reply, and none in time, means that somebody may."""
    import httpx

    try:
        async with httpx.AsyncClient(timeout=PROBE_INTERVAL_S) as client:
            await client.head(url)
    except httpx.ConnectError:
        return True
    except httpx.HTTPError:
        return False
    return False


def _has_server(workbench: object) -> bool:
    return isinstance(workbench, ToolServer) or mcp_params_of(workbench) is not None


def _start_limit(workbench: object) -> float:
    params = mcp_params_of(workbench)
    own = getattr(params, "read_timeout_seconds", None) or getattr(params, "timeout", 0)
    return max(START_LIMIT_S, own or 0)


async def _until_gone(workbench: Workbench, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, unless its server is gone before.

    Raises:
        ConnectionError: it is.
    """
    task = asyncio.ensure_future(work)
    url = getattr(mcp_params_of(workbench), "url", None)
    try:
        while True:
            actor = mcp_actor_of(workbench)
            watched = {task, actor} if actor is not None else {task}
            await asyncio.wait(watched, timeout=PROBE_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
            if actor is not None and actor.done():
                await asyncio.wait([task], timeout=SETTLE_S)
            if task.done():
                return task.result()
            if actor is not None and actor.done():
                raise ConnectionError("it has ended")
            if url is not None and await is_unreachable(url):
                raise ConnectionError("nobody listens at its address any more")
    finally:
        task.cancel()


async def _find_loss(workbench: Workbench) -> str | None:
    """Return why the server behind an error is gone; None if it answers, or may be only busy."""
    url = getattr(mcp_params_of(workbench), "url", None)
    if mcp_actor_of(workbench) is None:
        return "it has ended"
    if url is not None:
        return "nobody listens at its address any more" if await is_unreachable(url) else None
    try:
        async with asyncio.timeout(PROBE_INTERVAL_S):
            await _until_gone(workbench, workbench.list_tools())
    except TimeoutError:
        return None
    except Exception as error:  # noqa: BLE001  (as above)
        return explain_loss(workbench, error)
    return None


def _keys_of(workbench: object) -> list[str]:
    """Return the values of the environment and the headers of a server, the words of a header (``Bearer KEY``) too."""
    params = mcp_params_of(workbench)
    values = [*(getattr(params, "env", None) or {}).values(), *(getattr(params, "headers", None) or {}).values()]
    return keys_in(map(str, values))


def keys_in(values: Iterable[str]) -> list[str]:
    """Return what must not be shown of values that contain keys: they, and their words."""
    return [word for value in values for word in (value, *value.split()) if len(word) >= LEAST_HIDDEN]
