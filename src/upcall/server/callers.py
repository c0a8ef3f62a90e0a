"""Who calls: identified by a token in the header or a browser session, never by what a request claims."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Coroutine
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from upcall.errors import UpcallError
from upcall.server.service import Caller, Service
from upcall.server.tokens import Token, close_session, find_token, open_session

SESSION_LIFETIME = timedelta(hours=12)
CSRF_HEADER, CSRF_FIELD = "X-CSRF-Token", "csrf"
SCOPE_USER = "upcall.let_in"
"""Where the scope of a request says whose it is: a name of the caller's own, empty where nobody is known by it."""

FILES = "multipart/"
FORMS = ("application/x-www-form-urlencoded", FILES)
MAX_JSON_NODES = 100_000
"""Some 3,000 messages of a conversation; half a second where each of the pieces is wrong."""

MAX_FIELDS = 10_000
"""Of a form: about as many as a body without files has room for. One page of the inbox may have thousands."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class NotLoggedIn(UpcallError):
    """The request has no token, or an invalid one."""

    def __init__(self) -> None:
        super().__init__(
            "This needs a token. Create one with: upcall token create USER; send it as Authorization: Bearer"
        )


class Forged(UpcallError):
    """The request may come from somebody else's page."""

    def __init__(self) -> None:
        super().__init__("The form is too old, or another page sent it; nothing was changed. Load the page again.")


class Authenticator:
    """Lets callers in.

    Args:
        service: whose store has the tokens.
        operator: the secret of whoever runs the service on this machine; None if there is no such caller.
    """

    def __init__(self, service: Service, operator: str | None) -> None:
        self._service, self._operator = service, operator
        self._trusted_proxy_key = secrets.token_bytes(32)

    async def identify(self, request: Request) -> Caller:
        """Return who calls; a browser's request that changes something has to show where it comes from.

        Raises:
            NotLoggedIn: the caller is unknown.
            Forged: see above.
        """
        caller = await self.find_caller(request)
        if caller is None:
            raise NotLoggedIn
        if caller.by_cookie and request.method not in SAFE:
            sent = request.headers.get(CSRF_HEADER) or await _form_field(request)
            if not (is_same_origin(request) and secrets.compare_digest(sent.encode(), csrf_of(caller).encode())):
                raise Forged
        return caller

    async def identify_tool_call(self, request: Request | None) -> Caller:
        """Return who calls a tool: each request carries its token.

        Raises:
            NotLoggedIn: the caller is unknown.
        """
        caller = await self.find_caller(request) if request is not None else None
        if caller is None or caller.by_cookie:
            raise NotLoggedIn
        return caller

    async def find_caller(self, request: HTTPConnection) -> Caller | None:
        """Find out who calls, whatever they want: by a valid token, else by the trusted proxy, else by a session.

        Raises:
            TrustedProxyRefused: the proxy's header does not say who calls.
        """
        caller = await self._find(request)
        request.scope[SCOPE_USER] = "" if caller is None else f"user {caller.user or ''}"
        return caller

    async def _find(self, request: HTTPConnection) -> Caller | None:
        scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
        by_token = await self.check(shown.strip(), sessions=False) if scheme.lower() == "bearer" else None
        if by_token is not None:
            return by_token
        proxied = self._find_proxied(request)
        if proxied is not None or scheme:
            return proxied
        cookie = request.cookies.get(cookie_name(request))
        return await self.check(cookie, sessions=True) if cookie else None

    def _find_proxied(self, request: HTTPConnection) -> Caller | None:
        found = (
            self._service.trusted_proxy.find_user(request.scope) if self._service.trusted_proxy is not None else None
        )
        if found is None:
            return None
        # The proxy lets a browser in whatever page makes the request: forms contain what only our pages can know.
        secret = hmac.new(self._trusted_proxy_key, found.user.encode(), sha256).hexdigest()
        return Caller(found.user, found.role, secret, by_cookie=True, by_trusted_proxy=True)

    async def is_still_good(self, caller: Caller) -> bool:
        """Return whether a caller let in earlier would be let in again. A trusted proxy decides that anew each time."""
        return caller.by_trusted_proxy or await self.check(caller.secret, sessions=caller.by_cookie) is not None

    async def check(self, secret: str, *, sessions: bool) -> Caller | None:
        """Find the owner of a secret: a token or a session."""
        if not sessions and self._is_operator(secret):
            return Caller(None, None, secret)
        token = await find_token(self._service.store, secret)
        if token is None or (token.session_of is not None) is not sessions:
            return None
        if token.user is None and self._operator is None:
            return None
        return Caller(token.user, token.role, secret, by_cookie=sessions)

    def may_log_in_by_link(self, request: Request, secret: str) -> bool:
        """Return whether to follow a link that contains a secret. A link on another page, with a token of that page's
        author, would make people work in a stranger's name; only the operator knows the operator's secret."""
        return self._is_operator(secret) or is_same_origin(request)

    def _is_operator(self, secret: str) -> bool:
        return self._operator is not None and secrets.compare_digest(secret.encode(), self._operator.encode())

    async def log_in(self, request: Request, response: Response, secret: str) -> bool:
        """Give a browser a new session for a token; return False if the token is invalid."""
        token: Token | None = None
        if not self._is_operator(secret):
            token = await find_token(self._service.store, secret)
            if token is None or token.session_of is not None:
                return False
        _, session = await open_session(self._service.store, token, SESSION_LIFETIME)
        response.set_cookie(
            cookie_name(request),
            session,
            max_age=int(SESSION_LIFETIME.total_seconds()),
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https" or self._service.is_public_name(request.headers.get("Host", "")),
        )
        return True

    async def log_out(self, request: Request, response: Response, caller: Caller) -> None:
        """End the session of a browser."""
        session = await find_token(self._service.store, caller.secret)
        if session is not None and session.session_of is not None:
            await close_session(self._service.store, session)
        response.delete_cookie(cookie_name(request))


async def identify(request: Request) -> Caller:
    """Return who calls; see `Authenticator.identify`."""
    authenticator: Authenticator = request.app.state.authenticator
    if not hasattr(request.state, "caller"):
        request.state.caller = await authenticator.identify(request)
    caller: Caller = request.state.caller
    return caller


class KnownCallersRoute(APIRoute):
    """A route that identifies the caller before it parses the body, which FastAPI does first: a stranger's 25 MB of
    JSON can become a gigabyte. It also counts the pieces of the body: nothing else is served while it is parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See `APIRoute`."""
        handle = super().get_route_handler()

        async def identify_first(request: Request) -> Response:
            await identify(request)
            # A file is not read as JSON; a body declared as the other kind of form may still be JSON.
            if not request.headers.get("Content-Type", "").startswith(FILES):
                limit_json_nodes(await request.body())
            return await handle(request)

        return identify_first


def limit_json_nodes(body: bytes) -> None:
    """Refuse JSON that would hold up all other requests. Its size does not show that: 24 MB take 0.1 s if they are one
    document, and 5 MB of wrong values take 30. A thread would not help: the JSON parser and pydantic let no other
    thread run.

    Raises:
        HTTPException: it has too many pieces.
    """
    pieces = sum(map(body.count, (b'"', b",", b"[", b"{")))
    if pieces > MAX_JSON_NODES:
        message = f"The JSON has {pieces:,} quotation marks, commas and brackets, and may have {MAX_JSON_NODES:,}."
        raise HTTPException(413, f"{message} Send less of it, and long texts as documents.")


CurrentUser = Annotated[Caller, Depends(identify)]
"""The parameter of a route that is for those who are let in."""


def csrf_of(caller: Caller) -> str:
    """Return the value that this session's forms contain, and no other page can know."""
    return hmac.new(caller.secret.encode(), b"csrf", sha256).hexdigest()


def cookie_name(request: HTTPConnection) -> str:
    """Name the cookie by the port: a host's cookies are shared by all its ports."""
    return f"upcall-session-{request.url.port or 80}"


def is_same_origin(request: HTTPConnection) -> bool:
    """Return whether the browser says that our page made the request; one that says nothing is old, or no browser."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("Origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("Host", "")


async def _form_field(request: Request) -> str:
    if not request.headers.get("Content-Type", "").startswith(FORMS):
        return ""
    sent = (await request.form(max_fields=MAX_FIELDS)).get(CSRF_FIELD, "")
    return sent if isinstance(sent, str) else ""
