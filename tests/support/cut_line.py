"""A line to a server on loopback that can be cut, and mended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Line:
    """Passes bytes on between a port of its own and a server, unless it is cut.

    Args:
        port: the server's.
    """

    def __init__(self, port: int) -> None:
        self._to, self.port = port, 0
        self._flows, self._is_refused = asyncio.Event(), False
        self._flows.set()
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self, *, silently: bool) -> None:
        """Let nothing through: with all connections closed and new ones refused, or without a word."""
        self._is_refused = not silently
        self._flows.clear()
        for writer in [] if silently else self._open.copy():
            writer.transport.abort()

    def mend(self) -> None:
        """Let all through again; what was on its way comes late."""
        self._is_refused = False
        self._flows.set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        if self._is_refused:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        ways = [asyncio.create_task(self._pass_on(reader, back)), asyncio.create_task(self._pass_on(there, writer))]
        self._open |= {writer, back}
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in ways:
            each.cancel()
        self._open -= {writer, back}
        writer.transport.abort()
        back.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()


@contextlib.asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    """Yield a line to a server."""
    line = Line(port)
    async with await asyncio.start_server(line.connect, "127.0.0.1", 0) as server:
        line.port = server.sockets[0].getsockname()[1]
        yield line
        line.cut(silently=False)
