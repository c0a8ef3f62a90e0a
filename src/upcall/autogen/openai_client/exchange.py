"""One request and its reply, with errors that say whose they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from autogen_core.models import CreateResult

from upcall.autogen.concurrency import Emit
from upcall.autogen.model_errors import ServerError, StreamBrokenOff, UnreadableBody
from upcall.autogen.model_notes import Returned
from upcall.autogen.openai_client.connections import Connections
from upcall.autogen.openai_client.http import DONE, read_events
from upcall.autogen.openai_client.reply_parts import Piece, Reader, holds_something
from upcall.autogen.openai_client.requests import JsonObject


async def exchange(
    connections: Connections,
    path: str,
    body: JsonObject,
    options: Mapping[str, Any],
    reader: Reader,
    provider: str,
    emit: Emit[Piece | CreateResult] | None,
) -> tuple[CreateResult, Returned | None]:
    """Send a request and read its reply; `emit` gets what arrives of it.

    A stream in which nothing of the reply comes, for as long as a request may wait, is one whose server is silent: the
    HTTP client takes comments that keep the connection open, and empty chunks, for signs of life.

    Raises:
        ServerError, UnreadableBody, StreamBrokenOff: with the `request`, and whether the reply `has_begun`.
        openai.OpenAIError: the request failed.
    """
    response = await connections.send(path, body, options)
    try:
        async with aclosing(response), aclosing(response.aiter_bytes()) as pieces:
            limit = float("inf") if emit is None else connections.read_timeout(options)
            async with asyncio.timeout(limit if limit < float("inf") else None) as silence:
                await _read(pieces, reader, emit, limit, silence)
        return reader.finish(provider)
    except (ServerError, UnreadableBody, StreamBrokenOff) as error:
        error.request, error.has_begun = response.request, reader.has_begun  # type: ignore[union-attr]
        raise
    except Exception as error:
        if "Timeout" in type(error).__name__:
            from openai import APITimeoutError

            raise APITimeoutError(request=response.request) from error
        if type(error).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore"):
            cut = StreamBrokenOff()
            cut.request = response.request  # type: ignore[attr-defined]
            raise cut from error
        raise


async def _read(
    pieces: AsyncIterator[bytes],
    reader: Reader,
    emit: Emit[Piece | CreateResult] | None,
    limit: float,
    silence: asyncio.Timeout,
) -> None:
    async for event in read_events(pieces):
        if event.data is DONE:
            reader.done = True
            return
        arrived = reader.add(event.data, whole=event.whole)
        if silence.when() is not None and any(map(holds_something, arrived)):
            silence.reschedule(asyncio.get_running_loop().time() + limit)
        if emit is not None:
            for piece in arrived:
                emit(piece)
