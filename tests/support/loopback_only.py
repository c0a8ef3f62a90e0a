"""Refuse every connection that leaves this machine, so that no test depends on the network.

Loading this module is enough. An audit hook sees the sockets of all Python code and cannot be taken off again;
`child_processes/sitecustomize.py` loads it in the processes that tests start. What is left out: libraries that open
sockets outside Python's `socket`, and processes that get an environment without our `PYTHONPATH` (building packages
with pip does, which needs the index).
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Sequence

_ADDRESSED = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_LOOKED_UP = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
_HERE = {"", "localhost", "localhost.localdomain", "ip6-localhost"}

refused: list[str] = []
"""What was refused so far; code under test may swallow the error, so a fixture looks here."""


class NetworkRefused(RuntimeError):
    """A test tried to reach another machine. Not an `OSError`: code that copes with a dead network must not hide it."""


def is_local(host: object) -> bool:
    """Return whether a host is this machine."""
    name = _as_name(host)
    address = _as_address(name)
    return name in _HERE if address is None else address.is_loopback or address.is_unspecified


def _as_name(host: object) -> str:
    return (host.decode() if isinstance(host, bytes) else str(host or "")).partition("%")[0].rstrip(".")


def _as_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an address in any of its notations (``127.1``, ``0x7f000001``); None for a name."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(name)
        return getattr(address, "ipv4_mapped", None) or address
    with contextlib.suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(name))
    return None


def _refuse(event: str, arguments: Sequence[object]) -> None:
    if event in _ADDRESSED:
        address = arguments[1]
        if not (isinstance(address, tuple) and isinstance(address[0], str)):
            return  # A Unix socket, netlink, or a datagram to where the socket is connected already.
        host: object = address[0]
        allowed = is_local(host)
    elif event in _LOOKED_UP:  # An address is looked up without asking anybody.
        host = arguments[0]
        allowed = is_local(host) or _as_address(_as_name(host)) is not None
    else:
        return
    if not allowed:
        refused.append(f"{event} {host}")
        raise NetworkRefused(f"{event} {host}: tests reach this machine only")


sys.addaudithook(_refuse)
