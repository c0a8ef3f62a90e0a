"""The way in for programs: a token in each request, and no session of a browser."""

from __future__ import annotations

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from upcall.server.callers import SCOPE_USER, Authenticator, NotLoggedIn, limit_json_nodes
from upcall.server.problems import describe, respond

SCOPE_CALLER = "upcall.caller"
"""Where the application inside finds who calls."""


class TokensOnly:
    """An ASGI application for programs: it requires a token, and accepts no browser session. A session of its protocol
    is its caller's alone. JSON of too many pieces is refused, as at all other addresses."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app, self._authenticator = app, authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        caller = await self._authenticator.find_caller(HTTPConnection(scope))
        if caller is None or caller.by_cookie:
            await respond(describe(NotLoggedIn()))(scope, receive, send)
            return
        scope[SCOPE_CALLER] = caller
        # By this the session manager knows whose session it is; anybody else's request does not find it.
        token = AccessToken(token="", client_id=scope[SCOPE_USER], scopes=[])
        scope["user"] = AuthenticatedUser(token)
        if scope["method"] == "POST":
            body = await Request(scope, receive).body()
            limit_json_nodes(body)
            await self._app(scope, _receive_again(body, receive), send)
        else:
            await self._app(scope, receive, send)


def _receive_again(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body already read, and then what follows it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
