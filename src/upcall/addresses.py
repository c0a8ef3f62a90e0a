"""Addresses of hosts, and which of them are of the public internet."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks up the IP addresses of a host."""

_IETF = ipaddress.ip_network("192.0.0.0/24")
_METADATA = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "192.0.0.192", "100.100.100.200", "fd00:ec2::254")))
"""Where clouds tell a machine about itself, its keys included, beside the addresses of its link."""

_NOBODYS = {4: "192.0.2.1", 6: "2001:db8::1"}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet; one within another counts too."""
    ip = _parse(address)
    if ip is None or not ip.is_global or ip.is_multicast or ip.is_reserved or ip in _IETF:
        return False
    return not (isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local) and not is_of_this_machine(address)


def is_of_this_machine(address: str) -> bool:
    """Whether an IP address leads to this machine, or to what only this link has: a cloud's data of the machine."""
    ip = _parse(address)
    if ip is None or ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip in _METADATA:
        return True
    # Where one may listen at an address that nobody has, this says nothing (Linux: ip_nonlocal_bind).
    return _can_listen(str(ip)) and not _can_listen(_NOBODYS[ip.version])


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


def _can_listen(address: str) -> bool:
    """Return whether an address is one of this machine's interfaces: only there a socket can be bound."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True
