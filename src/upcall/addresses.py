"""Addresses of hosts, and which of them are of the public internet."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks up the IP addresses of a host."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet; one within another counts too."""
    ip = _parse(address)
    return ip is not None and ip.is_global and not ip.is_multicast and not ip.is_reserved


def is_of_this_machine(address: str) -> bool:
    """Whether an IP address leads to this machine, or to what only this link has: a cloud's data of the machine."""
    ip = _parse(address)
    return ip is None or ip.is_loopback or ip.is_link_local or ip.is_unspecified


async def resolve(host: str, port: int) -> Sequence[str]:
    """Look up the addresses of a host; none where it is not known."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an address, of one within another the inner one; None where it is none."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return inner or ip
    return ip
