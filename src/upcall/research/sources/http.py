"""HTTP for the sources: limits on time, size and redirects, one line per error, no access to private addresses.

An address that a model names may come from a page that it read. So before a page is read, its host is resolved here,
all its addresses must be public, and the connection goes to exactly the checked address: a name that resolves to
something else a moment later leads nowhere. Redirects are checked in the same way.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from upcall import addresses
from upcall.addresses import Resolve
from upcall.research.sources.base import SourceUnavailable
from upcall.research.sources.readers import INSTALL
from upcall.text import first_line

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0
TOTAL_TIMEOUT_S = 30.0
MAX_BYTES = 10_000_000
MAX_REDIRECTS = 5
AGENT = "upcall/0.1 (research agent; https://pypi.org/project/upcall)"


@dataclass(frozen=True)
class HttpReply:
    """A server's reply: its final address, its type, and the bytes."""

    url: str
    content_type: str
    data: bytes


class Refused(ValueError):
    """An address that may not be read. The text is for the model."""


def explain_missing() -> str | None:
    """Return what must be installed for the network; None if nothing."""
    return None if importlib.util.find_spec("httpx") else INSTALL


async def fetch(
    who: str,
    url: str,
    *,
    method: str = "GET",
    transport: httpx.AsyncBaseTransport | None = None,
    redirects: int = MAX_REDIRECTS,
    seconds: float = TOTAL_TIMEOUT_S,
    **request: Any,
) -> HttpReply:
    """Return a server's reply to a request (`params`, `json`, `headers` as httpx takes them).

    Raises:
        SourceUnavailable: `who` cannot be reached, takes too long, sends too much, or refuses (401, 403, 429, 5xx).
        ValueError: there is nothing at this address (another HTTP 4xx, too many redirects), or it may not be read.
    """
    import httpx

    limits = httpx.Limits(max_keepalive_connections=0)  # A connection is for one host, even if two share an address.
    options: dict[str, Any] = {"transport": transport} if transport is not None else {"limits": limits}
    headers = {"User-Agent": AGENT, **request.pop("headers", {})}
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(
                timeout=CONNECT_TIMEOUT_S, follow_redirects=redirects > 0, max_redirects=redirects, **options
            ) as client,
            client.stream(method, url, headers=headers, **request) as response,
        ):
            return await _read_reply(who, response)
    except TimeoutError as error:
        raise SourceUnavailable(f"{who} did not answer within {seconds:g} seconds.") from error
    except httpx.TimeoutException as error:
        raise SourceUnavailable(f"{who} did not answer in time ({type(error).__name__}).") from error
    except httpx.TooManyRedirects as error:
        raise ValueError(f"{who} redirects more than {redirects} times.") from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ValueError(f"{url!r} is not an address that can be read: {first_line(error)}.") from error
    except httpx.HTTPError as error:
        raise SourceUnavailable(f"{who} cannot be reached ({type(error).__name__}).") from error


async def _read_reply(who: str, response: httpx.Response) -> HttpReply:
    _refuse_error(who, response.status_code)
    data = bytearray()
    async for block in response.aiter_bytes():  # Unpacked: the announced length says nothing.
        data += block
        if len(data) > MAX_BYTES:
            raise SourceUnavailable(f"{who} sent more than {MAX_BYTES // 1_000_000} MB.")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return HttpReply(str(response.url), kind, bytes(data))


def _refuse_error(who: str, status: int) -> None:
    if status in (401, 403):
        raise SourceUnavailable(f"{who} refuses access (HTTP {status}).")
    if status == 429 or status >= 500:
        raise SourceUnavailable(f"{who} is overloaded or broken (HTTP {status}).")
    if status >= 300:
        raise ValueError(f"{who} has nothing there (HTTP {status}).")


def guard_url(private_hosts: Sequence[str] = (), resolve: Resolve | None = None) -> httpx.AsyncBaseTransport:
    """Make a transport that connects to public addresses, and raises `Refused` for any other.

    Hosts named in `private_hosts` (``wiki.corp`` or ``127.0.0.1:8000``) are allowed too.
    """
    import httpx

    allowed = {host.lower() for host in private_hosts}
    look_up = resolve or addresses.resolve

    class Guarded(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self._inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_keepalive_connections=0), retries=0)

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            url = request.url
            host, port = _read_host(url)
            found = await look_up(host, port)
            if not found:
                raise httpx.ConnectError("the host is not known", request=request)
            is_named = bool({host, f"{host}:{port}"} & allowed)
            # One private address among several is enough to refuse: the host chooses which of them is used.
            if not (is_named or all(map(addresses.is_public, found))):
                raise Refused(f"{host} is a private address, which is not read. Name a public one.")
            # Certificates are for names, but the connection goes to a bare address.
            request.extensions = {**request.extensions, "sni_hostname": host}
            request.url = url.copy_with(host=found[0])  # The Host header was set before, from the name.
            try:
                response = await self._inner.handle_async_request(request)
            finally:
                request.url = url  # Redirects are relative to it.
            return response

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Guarded()


def _read_host(url: httpx.URL) -> tuple[str, int]:
    """Read the host and the port of an address.

    Raises:
        Refused: it has none, or contains credentials, which are sent to nobody.
    """
    if url.scheme not in ("http", "https") or not url.host:
        raise Refused(f"{str(url)!r} cannot be read: only http and https addresses can.")
    if url.userinfo:
        raise Refused("An address with a user name or a password in it is not read.")
    return url.raw_host.decode("ascii").lower(), url.port or (443 if url.scheme == "https" else 80)
