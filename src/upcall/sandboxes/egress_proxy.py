"""The only way from a command in the sandbox to the network: a proxy in this process that connects to allowed hosts.

The command keeps its own, empty network namespace. A first program in it opens a port there, passes it to this process,
and becomes the command, which finds the proxy in its environment (``HTTPS_PROXY``). The namespace has no name service
and no route: without the proxy nothing can be reached.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from upcall import addresses
from upcall.sandboxes.descriptors import wait_readable
from upcall.text import escape_controls, one_line

HTTPS = 443
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 20.0
MAX_CONNECTIONS = 128
"""How many may be open at once: each takes two descriptors, and this process has other work."""

MAX_REFUSALS_SHOWN = 5
MAX_REFUSAL = 200

_BEGIN = """
import os, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as parent, socket.socket() as proxy:
    proxy.bind(("127.0.0.1", 0))
    proxy.listen(64)
    place = "http://127.0.0.1:%d" % proxy.getsockname()[1]
    socket.send_fds(parent, [b"."], [proxy.fileno()])
for name in ("https_proxy", "http_proxy", "all_proxy"):
    os.environ[name] = os.environ[name.upper()] = place
os.execvp(sys.argv[2], sys.argv[2:])
"""

_CHUNK = 1 << 16


@dataclass(frozen=True)
class NetworkAccess:
    """The hosts that a command may reach.

    Attributes:
        hosts: by name, ``host`` for https only, ``host:port`` for that port. A named host may be in a private network;
            this machine must be named by its address.
        public: whether all hosts of the public internet may be reached, at any port.
    """

    hosts: Sequence[str] = ()
    public: bool = False

    def names(self, host: str, port: int) -> bool:
        """Return whether a host is one of the named ones."""
        named = (urlsplit(f"//{each}") for each in self.hosts)
        return (host.lower(), port) in ((each.hostname, each.port or HTTPS) for each in named)


class EgressProxy:
    """Connects one command to its allowed hosts while it runs; it is an asynchronous context manager."""

    def __init__(self, access: NetworkAccess) -> None:
        self._access = access
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals: dict[str, None] = {}

    async def __aenter__(self) -> Self:
        self._own, self._inherited = socket.socketpair()
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        running = [self._serving, *self._tasks]
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for end in (self._own, self._inherited):
            end.close()

    @property
    def descriptor(self) -> int:
        """The descriptors that the command must inherit."""
        return self._inherited.fileno()

    def describe_refusals(self) -> str:
        """List refused connections for the reader of the command's output: most programs show only the number."""
        refusals = (escape_controls(one_line(each, MAX_REFUSAL), unseen=True) for each in self._refusals)
        return "".join(f"\n[Not connected: {each}]" for each in refusals)

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command that opens the port, and then becomes `command`."""
        return [sys.executable, "-I", "-S", "-c", _BEGIN, str(self.descriptor), *command]

    async def _serve(self) -> None:
        await wait_readable(self._own.fileno())
        _, given, *_ = socket.recv_fds(self._own, 1, 1)
        if given:
            async with await asyncio.start_server(self._accept, sock=socket.socket(fileno=given[0])) as server:
                await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._connect(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The command hung up, or never asked.
        except asyncio.CancelledError:
            # The command ended. Only `__aexit__` cancels this task, and it is over anyway; ending it as cancelled would
            # make asyncio's streams (Python 3.11) log a traceback: they ask it for its exception.
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                host, port = _read_target(await reader.readuntil(b"\r\n\r\n"))
            found = await self._find_addresses(host, port)
            there, out = await _open(found, port)
        except _Refused as refused:
            if len(self._refusals) < MAX_REFUSALS_SHOWN:
                self._refusals[str(refused)[len("403 ") :]] = None
            await _reply(writer, str(refused))
            return
        except (OSError, TimeoutError):
            await _reply(writer, "502 The host cannot be reached")
            return
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pass_on(reader, out), _pass_on(there, writer))
        finally:
            out.close()

    async def _find_addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses to connect to, which are looked up only once.

        Raises:
            _Refused: the host may not be reached.
        """
        named = self._access.names(host, port)
        if not named and not self._access.public:
            raise _Refused(f"403 {host}:{port} is none of the hosts that the user allows (workspace.network_hosts)")
        found = await addresses.resolve(host, port)
        if not found:
            raise _Refused(f"502 {host} is not known")
        allowed = (named and _is_address(host)) or (
            not any(map(addresses.is_of_this_machine, found)) if named else all(map(addresses.is_public, found))
        )
        if not allowed:
            raise _Refused(
                f"403 {host} is in a private network or this machine; the user can name it (workspace.network_hosts)"
            )
        return found


class _Refused(Exception):
    """A status line that says why no connection is made."""


def _read_target(head: bytes) -> tuple[str, int]:
    """Read the requested host and port.

    Raises:
        _Refused: the request has another form than the only one supported.
    """
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    host, _, port = rest.partition(" ")[0].rpartition(":")
    if method != "CONNECT":
        raise _Refused("405 Only https goes through this proxy")
    if not host or not port.isdecimal() or not port.isascii() or not 0 < int(port[:6]) < 65_536:
        raise _Refused("400 That is not a host and port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def _open(found: Sequence[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of some addresses that answers.

    Raises:
        OSError, TimeoutError: none does.
    """
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        for address in found[:-1]:
            with suppress(OSError):
                return await asyncio.open_connection(address, port)
        return await asyncio.open_connection(found[-1], port)


async def _reply(writer: asyncio.StreamWriter, status: str) -> None:
    line = status.encode("ascii", "replace").replace(b"\r", b"").replace(b"\n", b"")
    writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % line)
    await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until its end, then pass on the end."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
