"""What our MCP server needs of the `mcp` package, where 1.x and 2.x differ.

A client of the specification of 2026-07-28, which 2.x speaks, is sent no requests: the result of its call says what it
requires, with a state that comes back with the answers. The package seals the state (AES-GCM) with the call, its
arguments and the caller, and refuses any other; the key is in the store, so that each of its processes knows it.

Specification: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ElicitationCapability, ElicitResult
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import ASGIApp

from upcall.errors import StoreUnavailable
from upcall.storage.shared_keys import share_key
from upcall.storage.store import RunStore
from upcall.text import first_line

IS_SECOND = importlib.util.find_spec("mcp.server.mcpserver") is not None
"""Whether 2.x is installed."""

if TYPE_CHECKING or not IS_SECOND:
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.server.fastmcp.exceptions import ToolError
    from mcp.shared.exceptions import McpError
else:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as FastMCP
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.shared.exceptions import MCPError as McpError

if TYPE_CHECKING:
    AnyContext: TypeAlias = Context[Any, Any, Any]
    McpServer: TypeAlias = FastMCP[Any]
else:
    AnyContext, McpServer = Context, FastMCP

__all__ = ["AnyContext", "McpServer", "ToolError"]

FIRST_WITHOUT_REQUESTS = "2026-07-28"
"""Since this version of the protocol no server sends requests; versions are dates."""

STATE_LIFETIME = timedelta(days=3650)
"""How long a state is taken. Until when an answer is taken is its question's to say."""

_log = logging.getLogger(__name__)

# The guard checks the host for all routes.
_SECURITY = TransportSecuritySettings(enable_dns_rebinding_protection=False)


def make_server(name: str, version: str, instructions: str, store: RunStore, local_caller: str) -> McpServer:
    """Make a server without tools.

    Args:
        name: how clients know it.
        version: that of the program; by default the package gives its own.
        instructions: what a client's model reads.
        store: whose processes take each other's states.
        local_caller: by which name a client on standard input is known; one over HTTP, by `SCOPE_USER` of its scope.
    """
    if not IS_SECOND:
        first = FastMCP[Any](name, instructions, log_level="ERROR", transport_security=_SECURITY)
        first._mcp_server.version = version  # 1.x takes none, and has no other way.
        return first
    from mcp.server.mcpserver import RequestStateSecurity  # type: ignore[import-not-found,unused-ignore]

    def name_caller(context: Any) -> str:
        from upcall.server.callers import SCOPE_USER  # Over HTTP it is loaded; the server for askers does without.

        return local_caller if context.request is None else str(context.request.scope[SCOPE_USER])

    codec = _StoredKeyCodec(store)
    security = RequestStateSecurity(
        codec=codec, ttl=STATE_LIFETIME.total_seconds(), bind_principal=name_caller, audience=name
    )
    made: Any = FastMCP(  # type: ignore[call-arg,unused-ignore]
        name, instructions=instructions, version=version, log_level="ERROR", request_state_security=security
    )
    made.middleware.insert(0, codec.load_for)  # Outside of what opens the state.
    return made  # type: ignore[no-any-return]


class _StoredKeyCodec:
    """Seals states with a key from the store, as the package does with one of its own. It is read before the first call
    of a client that may get a state: the package opens and seals them synchronously."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._codec: Any = None

    async def load_for(self, context: Any, call_next: Any) -> Any:
        """Handle a message, with the key at hand if it needs one."""
        if context.method == "tools/call" and context.protocol_version >= FIRST_WITHOUT_REQUESTS and not self._codec:
            from mcp.server.mcpserver import AESGCMRequestStateCodec

            with suppress(StoreUnavailable):  # The tool says so too, in our words.
                self._codec = AESGCMRequestStateCodec([await share_key(self._store, "mcp request state")])
        return await call_next(context)

    def seal(self, payload: bytes) -> str:
        sealed: str = self._codec.seal(payload)
        return sealed

    def unseal(self, token: str) -> bytes:
        payload: bytes = self._codec.unseal(token)
        return payload


def make_http_application(server: McpServer, path: str = "/mcp") -> ASGIApp:
    """Return a server as an ASGI application (streamable HTTP) at a path."""
    if IS_SECOND:
        given: Mapping[str, Any] = {"transport_security": _SECURITY, "streamable_http_path": path}
        return server.streamable_http_app(**given)
    server.settings.streamable_http_path = path
    return server.streamable_http_app()


def read_request(context: AnyContext) -> Request | None:
    """Return the HTTP request of a call; None on standard input."""
    return context.request_context.request


def read_elicitation(context: AnyContext) -> ElicitationCapability | None:
    """Return in which ways the client asks its user for us."""
    if IS_SECOND:
        capabilities = context.session.client_capabilities  # type: ignore[attr-defined,unused-ignore]
    else:
        capabilities = context.session.client_params and context.session.client_params.capabilities
    return capabilities.elicitation if capabilities is not None else None


async def await_reply(request: Awaitable[ElicitResult]) -> ElicitResult:
    """Return what the user replied to a request. Some clients declare that they can ask, and then refuse it, or send
    what is not a reply: nobody has chosen anything then."""
    try:
        return await request
    except (McpError, ValidationError) as error:
        _log.warning("The client of MCP did not ask its user: %s", first_line(error))
        return ElicitResult(action="cancel")


def can_ask_by_form(context: AnyContext) -> bool:
    """Return whether the client asks its user for us by a form; one that names no way does."""
    ways = read_elicitation(context)
    return ways is not None and (ways.form is not None or ways.url is None)


def read_client_name(context: AnyContext) -> str:
    """Return what the client calls itself; empty where it says nothing."""
    params: Any = context.session.client_params
    about = getattr(params, "client_info", None) or getattr(params, "clientInfo", None)
    return str(about.name) if about is not None else ""


def takes_requests(context: AnyContext) -> bool:
    """Return whether the client takes requests in the middle of a call; it takes required input otherwise."""
    return getattr(context, "protocol_version", "") < FIRST_WITHOUT_REQUESTS


def read_retry(context: AnyContext) -> tuple[str | None, Mapping[str, ElicitResult] | None]:
    """Return the state with which a call was answered before, and what the user said since; None if there is none."""
    state, given = getattr(context, "request_state", None), getattr(context, "input_responses", None)
    return state, given and {key: each for key, each in given.items() if isinstance(each, ElicitResult)}


def require_input(
    forms: Mapping[str, tuple[str, Mapping[str, Any]]], pages: Mapping[str, tuple[str, str]], state: str
) -> Any:
    """Return the result that says what a call requires.

    Args:
        forms: a message and a schema for each key.
        pages: a message and an address for each key.
        state: what comes back with the answers.
    """
    from mcp_types import (  # type: ignore[import-not-found,unused-ignore]
        ElicitRequest,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        InputRequiredResult,
    )

    requests = {
        key: ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(schema)))
        for key, (message, schema) in forms.items()
    }
    for key, (message, url) in pages.items():
        requests[key] = ElicitRequest(params=ElicitRequestURLParams(message=message, url=url))
    return InputRequiredResult(input_requests=requests, request_state=state)
