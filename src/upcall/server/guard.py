"""Checks on every request before anything else (host, size, rate), and the headers of responses."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from upcall.server.callers import SCOPE_USER
from upcall.server.problems import Problem, make_problem, respond
from upcall.server.trusted_proxy import TrustedProxy

MAX_BODY_BYTES = 1_000_000
MAX_UPLOAD_BYTES = 25_000_000
"""Of a request that brings files along."""

BODY_TIMEOUT_S = 60.0
REQUESTS_PER_SECOND, REQUESTS_AT_ONCE = 40.0, 200.0
MAX_CALLERS = 10_000
"""Of so many callers the pace is known; of the one who was silent longest it is forgotten."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class BodyTooLarge(HTTPException):
    """A body is too long, or takes too long. FastAPI passes on only this kind of exception."""

    def __init__(self, detail: str) -> None:
        super().__init__(413, detail)


@dataclass
class _Pace:
    """How many requests are left now: a token bucket."""

    left: float
    at: float

    def take(self) -> bool:
        """Count a request; return False if there is no room for it."""
        now = time.monotonic()
        self.left = min(REQUESTS_AT_ONCE, self.left + (now - self.at) * REQUESTS_PER_SECOND)
        self.at = now
        has_room = self.left >= 1
        self.left -= has_room
        return has_room


class Guard:
    """An ASGI application around another one.

    Args:
        app: the other application.
        hosts: the names by which it may be called; any if empty. A page under another name that leads to this machine
            must not read it.
        uploads: the paths that accept files.
        proxy: the trusted one in front, behind which each user has their own rate limit.
        origins: origins of other pages that may read responses, including refusals: otherwise their browser reports a
            network error.
    """

    def __init__(
        self,
        app: Starlette,
        hosts: Collection[str],
        uploads: Collection[str],
        proxy: TrustedProxy | None = None,
        origins: Collection[str] = (),
    ) -> None:
        self._app, self._hosts, self._uploads, self._proxy = app, hosts, uploads, proxy
        self._paces: OrderedDict[str, _Pace] = OrderedDict()
        self._handle: ASGIApp = self._guard
        if origins:  # Tokens come in a header: cookies are never sent or accepted.
            self._handle = CORSMiddleware(
                self._guard,
                allow_origins=origins,
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
            )

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The routes of the application inside."""
        return self._app.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        await self._handle(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        address = self._proxy.name_origin(scope) if self._proxy else (scope.get("client") or ("",))[0]
        shown = headers.get("Authorization") or headers.get("Cookie")
        caller = sha256(f"{address}\n{shown}".encode(errors="replace")).hexdigest() if shown else address
        limit = MAX_UPLOAD_BYTES if scope["path"] in self._uploads else MAX_BODY_BYTES
        sent = _with_headers(send, partial(self._remember, scope, caller, address))
        problem = self._refuse(headers, caller if caller in self._paces else address, limit)
        if problem is not None:
            await respond(problem)(scope, receive, sent)
            return
        await self._app(scope, _limit(receive, limit), sent)

    def _refuse(self, headers: Headers, caller: str, limit: int) -> Problem | None:
        host = headers.get("Host", "").rpartition("]")[0] + "]" if "]" in headers.get("Host", "") else ""
        host = host or headers.get("Host", "").partition(":")[0]
        if self._hosts and host not in self._hosts:
            return make_problem("WrongHost", 421, f"This service is not called {host!r}.")
        if not self._pace_of(caller).take():
            return make_problem("TooManyRequests", 429, "Too many requests. Wait a second, and send fewer.")
        length = headers.get("Content-Length", "0")
        if length.isdecimal() and int(length) > limit:
            return make_problem("BodyTooLarge", 413, _too_large(limit))
        return None

    def _remember(self, scope: Scope, caller: str, address: str) -> None:
        """Give a caller who was let in one rate limit, whatever secrets they show. All others at an address share one:
        guessing gains nothing with each guess, and takes nothing from those let in before."""
        name = scope.get(SCOPE_USER)
        if caller == address or name is None:
            return
        if not name:
            self._paces.pop(caller, None)
        elif caller not in self._paces:
            pace = self._pace_of(sha256(f"{address}\n{name}".encode(errors="replace")).hexdigest())
            if pace.take():  # Otherwise it still counts for the address.
                self._paces[caller] = pace
                if address in self._paces:
                    self._paces[address].left += 1

    def _pace_of(self, caller: str) -> _Pace:
        """Return the rate limit of a caller or an address; a fresh one if it is unknown."""
        pace = self._paces.pop(caller, None) or _Pace(REQUESTS_AT_ONCE, time.monotonic())
        self._paces[caller] = pace
        while len(self._paces) > MAX_CALLERS:
            self._paces.popitem(last=False)
        return pace


def _limit(receive: Receive, limit: int) -> Receive:
    size, end = 0, time.monotonic() + BODY_TIMEOUT_S
    is_whole = False

    async def take() -> Message:
        nonlocal size, is_whole
        if is_whole:  # The next message says that the caller has gone; a stream waits for it.
            return await receive()
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                message = await receive()
        except TimeoutError:
            raise BodyTooLarge(f"The body took longer than {BODY_TIMEOUT_S:.0f} s. Send less, or faster.") from None
        size += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if size > limit:
            raise BodyTooLarge(_too_large(limit))
        return message

    return take


def _too_large(limit: int) -> str:
    return f"The body is longer than {limit:,} bytes. Send less."


def _with_headers(send: Send, on_start: Callable[[], None]) -> Send:
    async def put(message: Message) -> None:
        if message["type"] == "http.response.start":
            on_start()
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return put
