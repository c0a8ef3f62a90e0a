"""What goes over the connection to a model server: where it may lead, how much may come, and events of a stream.

All of it is in hooks of the HTTP client, so it holds for errors and lists of models too:

- A redirect to another host is not followed: that host would get the conversation, and a key in a header of its own.
- A reply is inflated in pieces and counted: 300 KB of gzip can be 300 MB.
- Where the run waits for a busy server itself, the `openai` package does not.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakSet

from upcall.autogen.model_errors import REDIRECTED, ServerError, UnreadableBody, is_page
from upcall.autogen.server_waits import leave_retry_to_us

MAX_BODY = 32_000_000
"""The most bytes of a body, or of one event of a stream, after inflating it."""

MAX_STREAM = 256_000_000
"""The most bytes of a stream of events: each of a reply's tokens comes in a few hundred."""

_PIECE = 65_536

_guarded: WeakSet[Any] = WeakSet()


def guard(http_client: Any) -> None:
    """Put the guards into an HTTP client, once."""
    if http_client not in _guarded:
        _guarded.add(http_client)
        http_client.event_hooks["request"].append(_ask_for_known_packing)
        # First, so that hooks of the user's see what we let through.
        http_client.event_hooks["response"][:0] = [_refuse_other_host, _bound_size, leave_retry_to_us]


def response_class(http_client: Any) -> Any:
    """Return the class of an HTTP client's responses: of `httpx`, or of `httpx2`, which `openai` 3 is built on."""
    bases = (each.__module__.partition(".")[0] for each in type(http_client).__mro__)
    package = next(each for each in bases if each in ("httpx", "httpx2"))
    return sys.modules[package].Response


async def _ask_for_known_packing(request: Any) -> None:
    request.headers["accept-encoding"] = "gzip, deflate"


async def _refuse_other_host(response: Any) -> None:
    if not response.has_redirect_location:
        return
    here = response.request.url
    there = here.join(response.headers["location"])
    if not _is_same_server(here, there):
        response.headers[REDIRECTED] = there.host or "another address"
        del response.headers["location"]


def _is_same_server(here: Any, there: Any) -> bool:
    """Return whether a redirect stays on the server, or only changes to its encrypted port."""
    if here.host != there.host:
        return False
    ports = [url.port or {"http": 80, "https": 443}.get(url.scheme) for url in (here, there)]
    upgraded = (here.scheme, there.scheme) == ("http", "https") and ports == [80, 443]
    return upgraded or (here.scheme == there.scheme and ports[0] == ports[1])


async def _bound_size(response: Any) -> None:
    packing = response.headers.get("content-encoding", "").strip().lower()
    is_stream = "event-stream" in response.headers.get("content-type", "")
    limit = MAX_STREAM if is_stream else MAX_BODY
    kind: Any = type(response.stream)
    response.stream = _derive_counting(kind)(response.stream, packing, limit)
    if packing:
        # Unpacked here, so no longer packed.
        del response.headers["content-encoding"]
        response.headers.pop("content-length", None)


@cache
def _derive_counting(kind: Any) -> Any:
    """Return a class of streams, which counts as one of this `kind`: the HTTP client checks that."""

    class Bounded(kind):  # type: ignore[misc]  # the class is known at run time only
        def __init__(self, stream: Any, packing: str, limit: int) -> None:
            self._inner, self._packing, self._limit = stream, packing, limit

        async def __aiter__(self) -> AsyncIterator[bytes]:
            count = 0
            async for piece in _unpack(self._inner, self._packing):
                count += len(piece)
                if count > self._limit:
                    raise UnreadableBody(f"its reply is larger than {self._limit // 1_000_000} MB")
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Bounded


async def _unpack(stream: AsyncIterator[bytes], packing: str) -> AsyncIterator[bytes]:
    if packing in ("", "identity"):
        async for raw in stream:
            yield raw
        return
    if packing not in ("gzip", "x-gzip", "deflate"):
        raise UnreadableBody(f"its reply is packed in a way that was not asked for ({packing[:20]})")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        async for raw in stream:
            while raw:
                yield inflate.decompress(raw, _PIECE)
                raw = inflate.unconsumed_tail
        yield inflate.flush()
    except zlib.error as error:
        raise UnreadableBody("its reply is packed in a way that cannot be read") from error


class StreamEvent(NamedTuple):
    """The data of an event of a stream, or what the `whole` body holds."""

    data: object
    whole: bool = False


async def read_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[StreamEvent]:
    """Yield what a body holds: the data of each event of a stream, `DONE` at its end; else the body, the only one.

    A server that streams although it was not asked to, or does not although it was, is understood both ways.

    Raises:
        ServerError: it is one line of plain text.
        UnreadableBody: it is neither, such as a web page; or one event is larger than a body may be.
    """
    lines = _Lines()
    is_stream, held, name = False, 0, ""
    data: list[str] = []
    async for piece in pieces:
        held += len(piece)
        if held > MAX_BODY:
            raise UnreadableBody(f"one event of its stream is larger than {MAX_BODY // 1_000_000} MB")
        for line in lines.add(piece):
            held = held if line else 0
            line = line.removeprefix("\ufeff")
            if not is_stream and not any(map(str.strip, data)) and _begins_stream(line):
                is_stream, data = True, []
            if not is_stream:
                data.append(line)
                continue
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif not line:
                for event in _parse_event(data):
                    yield StreamEvent(_as_error(event) if name == "error" else event)
                data, name = [], ""
    last = lines.rest()
    if not is_stream and not (_begins_stream(last) and not any(map(str.strip, data))):
        yield StreamEvent(_parse_body("\n".join([*data, last])), whole=True)
        return
    if last.startswith("data:"):
        data.append(last[5:].removeprefix(" "))
    for event in _parse_event(data):
        yield StreamEvent(event)


DONE = object()
"""The end of a stream, as its server says."""


def _begins_stream(line: str) -> bool:
    return line.startswith(("data:", "event:", "id:", "retry:", ":"))


def _parse_event(data: list[str]) -> list[object]:
    """Return what an event says; nothing for one that was cut off, or is not JSON."""
    text = "\n".join(data).strip()
    if text.strip('"') == "[DONE]":
        return [DONE]
    try:
        return [json.loads(text)] if text not in ("", "null") else []
    except (ValueError, RecursionError):
        # Some servers leave out the empty line between two events.
        return [event for each in data if len(data) > 1 for event in _parse_event([each])]


def _as_error(event: object) -> object:
    """Return what an event named ``error`` says as an error, which some servers leave to the name alone."""
    return event if isinstance(event, dict) and event.get("error") else {"error": event}


def _parse_body(text: str) -> object:
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        if is_page(text):
            raise UnreadableBody("it sent a web page") from error
        words = text.strip()
        if 0 < len(words) <= _LONGEST_WORDS and "\n" not in words and words[0] not in "{[":
            raise ServerError(words) from error
        raise UnreadableBody("it sent no JSON" if words else "its reply is empty") from error


_LONGEST_WORDS = 200
"""How long a body may be that is taken for the words of an error, in characters."""


class _Lines:
    """Lines of UTF-8 in pieces, ended by CR, LF or both."""

    def __init__(self) -> None:
        self._left: list[bytes] = []

    def add(self, piece: bytes) -> list[str]:
        """Return the lines that are complete with a piece."""
        self._left.append(piece)
        if b"\n" not in piece and b"\r" not in piece[:-1] and self._left[-2:-1] != [b"\r"]:
            return []
        text = b"".join(self._left)
        text, held = (text[:-1], b"\r") if text.endswith(b"\r") else (text, b"")  # Its LF may follow.
        *whole, left = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._left = [each for each in (left, held) if each]
        return [line.decode(errors="replace") for line in whole]

    def rest(self) -> str:
        """Return what follows the last complete line."""
        return b"".join(self._left).decode(errors="replace").rstrip("\r")
