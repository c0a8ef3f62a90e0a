"""Health of a worker over HTTP, for monitoring: ``/healthz``, ``/readyz``, and if it is open ``/metrics``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from http import HTTPStatus
from typing import TypeAlias

from upcall.errors import ConfigurationError
from upcall.text import first_line

Metrics: TypeAlias = tuple[str, bytes]
"""Their media type, and their text."""

REQUEST_TIMEOUT_S = 5.0
"""How long somebody may take to say what they want."""


@asynccontextmanager
async def serve_health(
    port: int | None, is_ready: Callable[[], bool], show_metrics: Callable[[], Metrics] | None = None
) -> AsyncIterator[None]:
    """Serve health checks on a port of all interfaces while the block lasts; without a port, serve nothing.

    ``/healthz`` is 200 as long as the worker's event loop runs, ``/readyz`` while it can take runs, and 503 otherwise.
    ``/metrics`` is there if something shows them.

    Raises:
        ConfigurationError: the port is not available.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                words = (await reader.readline()).decode("latin-1").split()
                path = words[1].partition("?")[0] if len(words) > 1 else ""
                if path == "/metrics" and show_metrics is not None:
                    writer.write(_reply(HTTPStatus.OK, *show_metrics()))
                else:
                    status = _judge(path, is_ready)
                    writer.write(_reply(status, "text/plain", f"{status.phrase}\n".encode()))
                await writer.drain()
        writer.close()

    try:
        server = None if port is None else await asyncio.start_server(answer, port=port)
    except OSError as error:
        raise ConfigurationError(
            f"Port {port} cannot be used: {first_line(error)}. Choose another --health-port."
        ) from error
    async with server or nullcontext():
        yield


def _judge(path: str, is_ready: Callable[[], bool]) -> HTTPStatus:
    match path:
        case "/healthz":
            return HTTPStatus.OK
        case "/readyz":
            return HTTPStatus.OK if is_ready() else HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.NOT_FOUND


def _reply(status: HTTPStatus, media_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
