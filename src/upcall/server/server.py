"""The service as an ASGI application, and as a server that runs until it is stopped."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import upcall
from upcall.errors import ConfigurationError, NotAllowed, UpcallError
from upcall.execution.prometheus import MEDIA_TYPE
from upcall.extensions import load_all
from upcall.server.agui import make_agui
from upcall.server.api import make_router
from upcall.server.ask_tools import OutsideAsker, make_ask_mcp
from upcall.server.bodies import explain_validation
from upcall.server.callers import Authenticator, identify
from upcall.server.connections import BoundedProtocol
from upcall.server.events import Streams
from upcall.server.guard import Guard
from upcall.server.mcp_package import make_http_application
from upcall.server.mcp_tools import make_mcp
from upcall.server.pages import make_pages, show_problem
from upcall.server.problems import describe, make_problem, respond
from upcall.server.service import Service
from upcall.server.tokens import list_tokens
from upcall.server.tokens_only import TokensOnly
from upcall.server.views import PageFrame, prepare_pages

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
ASK_PATH = "/mcp/ask"
"""Where agents of other programs ask."""

UPLOAD_PATHS = ("/api/runs", "/start", "/agui")
CLOSE_TIMEOUT_S = 5
IDLE_TIMEOUT_S = 5
"""How long a connection may be silent between two requests; `connections` bounds those that are not silent."""

_log = logging.getLogger(__name__)


def make_application(service: Service, *, operator: str | None, loopback: bool = True) -> Guard:
    """Make the ASGI application of a service.

    Args:
        service: the service that it opens.
        operator: the secret of whoever runs it on this machine; None if there is no such caller.
        loopback: whether it is called only from this machine, by the machine's own names.
    """
    authenticator = Authenticator(service, operator)
    tools = make_mcp(service, authenticator.identify_tool_call)
    tools_application = make_http_application(tools)
    asking = make_ask_mcp(
        service.store, lambda request: _find_asker(service, authenticator, request), explain=explain_to_client
    )
    asking_application = make_http_application(asking, ASK_PATH)
    made = FastAPI(
        title="upcall",
        version=upcall.__version__,
        summary="Runs that ask their humans in the middle of the work.",
        openapi_url=None,  # The pages have a route for it, for those who are let in.
        docs_url=None,
        redoc_url=None,
        lifespan=lambda _: _work_beside(service, tools.session_manager, asking.session_manager),
    )
    made.state.authenticator = authenticator
    made.state.frame = PageFrame(None, service.is_demo)
    streams = Streams()
    made.include_router(make_router(service, authenticator, streams))
    made.include_router(make_agui(service, authenticator, streams))
    made.include_router(make_pages(service, authenticator, made.openapi), include_in_schema=False)

    made.router.routes.append(Route("/mcp", endpoint=TokensOnly(tools_application, authenticator)))
    made.router.routes.append(Route(ASK_PATH, endpoint=TokensOnly(asking_application, authenticator)))
    for make_routes in load_all("routes"):
        made.router.routes.extend(make_routes(service, authenticator, streams))

    @made.get("/healthz", tags=["service"])
    async def check_health() -> JSONResponse:
        """Say that the service runs, and nothing else: anybody may ask. A service without its store waits for it; to
        start it again would not help."""
        return JSONResponse({"status": "ok"})

    @made.get("/readyz", tags=["service"], responses={503: {"description": "It cannot; the log says why."}})
    async def check_readiness() -> JSONResponse:
        """Say whether requests can be served: the store can be read, and the service does not end. Nothing else:
        anybody may ask."""
        ready = not service.closing.is_set() and await service.is_store_readable()
        return JSONResponse({"status": "ok" if ready else "not ready"}, 200 if ready else 503)

    @made.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def show_metrics(request: Request) -> Response:
        """Show the metrics of all runs as Prometheus' text, to the operator and admins; to anybody if
        `server.open_metrics` says so."""
        if not service.server_settings.open_metrics:
            caller = await identify(request)
            if not service.is_operator(caller):
                raise NotAllowed("Only admins read the metrics; they are about the runs of everybody.")
        return Response(await service.render_metrics(), media_type=MEDIA_TYPE)

    async def show_error(request: Request, error: Exception) -> Response:
        problem = describe(error, to_operator=service.is_operator(getattr(request.state, "caller", None)))
        if problem.status == 500:
            _log.error("%s %s: %s", request.method, request.url.path, type(error).__name__, exc_info=error)
        return show_problem(request, problem)

    made.add_exception_handler(ClientDisconnect, _end_quietly)
    made.add_exception_handler(UpcallError, show_error)
    made.add_exception_handler(RequestValidationError, _show_invalid)
    made.add_exception_handler(HTTPException, _show_http_error)
    made.add_exception_handler(Exception, show_error)
    public = [service.public_host] if service.public_host is not None else []
    hosts = [*LOOPBACK_NAMES, *public] if loopback else ()
    return Guard(made, hosts, UPLOAD_PATHS, service.trusted_proxy, service.origins)


@asynccontextmanager
async def _work_beside(service: Service, *sessions: StreamableHTTPSessionManager) -> AsyncIterator[None]:
    """Do the work that no request asks for while the application is up: deadlines, notifications, MCP sessions,
    pages to be ready."""
    watching = asyncio.create_task(service.watch_deadlines())
    sending = asyncio.create_task(service.work_in_background())
    preparing = asyncio.create_task(asyncio.to_thread(prepare_pages))
    try:
        async with AsyncExitStack() as running:
            for each in sessions:
                await running.enter_async_context(each.run())
            yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await service.close()
        await asyncio.gather(watching, preparing)


async def _find_asker(service: Service, authenticator: Authenticator, request: Request | None) -> OutsideAsker:
    caller = await authenticator.identify_tool_call(request)
    return OutsideAsker(service.app_for(caller).external, caller.user)


def explain_to_client(error: UpcallError) -> str:
    """Describe an error to somebody who does not run the service."""
    return describe(error).detail


async def _end_quietly(request: Request, _: Exception) -> Response:
    """End a request whose caller hung up in the middle of it. Nobody reads the response."""
    _log.info("%s %s: the caller hung up", request.method, request.url.path)
    return Response(status_code=400)


async def _show_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return respond(make_problem("InvalidRequest", 422, explain_validation(error.errors())))


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    name = {404: "NotFound", 405: "MethodNotAllowed", 413: "BodyTooLarge"}.get(error.status_code, "HttpError")
    return show_problem(request, make_problem(name, error.status_code, error.detail))


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller, and reports when it listens."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(service: Service, host: str, port: int, *, operator: str, show_link: Callable[[str], None]) -> None:
    """Serve until cancelled; leave every run resumable.

    Args:
        service: the service.
        host: the address to listen on.
        port: 0 for any free one.
        operator: the secret of whoever runs it; valid on loopback only.
        show_link: gets the login link, once the service answers.

    Raises:
        ConfigurationError: nobody could log in from elsewhere, or the address cannot be used.
    """
    loopback = is_loopback(host)
    if not loopback and service.trusted_proxy is None and not await list_tokens(service.store):
        raise ConfigurationError(
            f"{host} can be reached from other machines, and there are no tokens in {service.store.name}. Make one for "
            "each user with: upcall token create USER; or name a proxy that authenticates under server.trusted_proxy"
        )
    application = make_application(service, operator=operator if loopback else None, loopback=loopback)
    with _listen(host, port) as listener:
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # With X-Forwarded-For anybody on this machine could claim the proxy's address.
            server_header=False,
            timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
            http=BoundedProtocol,
            ws="none",
            h11_max_incomplete_event_size=64_000,
            timeout_keep_alive=IDLE_TIMEOUT_S,
        )
        link = _link(host, listener.getsockname()[1], operator if loopback else None)
        server = _Server(config, lambda: show_link(link))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)  # A stop cancels the wait; the server ends its streams first.
        finally:
            service.closing.set()
            server.should_exit = True
            await serving


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _link(host: str, port: int, operator: str | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/login" + (f"?token={operator}" if operator is not None else "")


@contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                f"Cannot listen at {host}:{port}: {reason}. Choose others with --host and --port."
            ) from error
        yield listener
