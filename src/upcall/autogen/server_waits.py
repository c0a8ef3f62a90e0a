"""Waiting for a model server that is still loading (503), or says when to retry (429, Retry-After); in the latter case
everyone who shares the store waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from autogen_core.models import ChatCompletionClient

from upcall.autogen.overflow_words import is_over_rate_alone
from upcall.autogen.scope import SharedModelCalls, current_scope, report_progress
from upcall.autogen.tracing import read_model
from upcall.retry_after import read_retry_after

LOADING, BUSY = 503, 429

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0
"""Seconds between two attempts if the server does not say how many."""

T = TypeVar("T")


async def call_when_free(client: ChatCompletionClient, fetch: Callable[[], Awaitable[T]]) -> T:
    """Call a model once fewer calls are under way than its limit, and retry while its server asks for time, up to the
    total wait the run allows; report the waiting.

    Raises:
        Whatever the last `fetch` raises.
    """
    shared = current_scope().model_calls
    model = read_model(client) if shared is not None else ""
    if shared is None or not model:
        return await _repeat_while_busy(fetch, "", None)
    async with shared.take(model):
        return await _repeat_while_busy(fetch, model, shared)


async def _repeat_while_busy(fetch: Callable[[], Awaitable[T]], model: str, shared: SharedModelCalls | None) -> T:
    limit, began, pause = current_scope().server_wait, time.monotonic(), FIRST_PAUSE
    while True:
        # If others were instructed to wait for longer than this call may, the server itself decides.
        while shared is not None and 0 < (left := await shared.read_wait(model)) <= limit - (time.monotonic() - began):
            await _wait(left, BUSY, time.monotonic() - began, limit)
        try:
            return await fetch()
        except Exception as error:
            asked = _asked_pause(getattr(error, "response", None))
            waited = time.monotonic() - began
            seconds = pause if asked is None else asked
            status = getattr(error, "status_code", None)
            if not _can_wait(status, asked) or waited + seconds > limit or is_over_rate_alone(str(error)):
                raise
            if shared is not None and status == BUSY:
                await shared.note_wait(model, seconds)
            await _wait(seconds, status, waited, limit)
            pause = min(2 * pause, LONGEST_PAUSE)


async def _wait(seconds: float, status: object, waited: float, limit: float) -> None:
    report_progress(f"seconds waited for the model server (HTTP {status})", round(waited + seconds), round(limit))
    await asyncio.sleep(seconds)


async def leave_retry_to_us(response: Any) -> None:
    """Stop the `openai` package from waiting for such a server silently: it reads this header itself."""
    if current_scope().server_wait and _can_wait(response.status_code, _asked_pause(response)):
        response.headers["x-should-retry"] = "false"


def _can_wait(status: object, asked: float | None) -> bool:
    # An exhausted quota is a 429 too, but names no time.
    return status == LOADING or (status == BUSY and asked is not None)


def _asked_pause(response: Any) -> float | None:
    return read_retry_after(getattr(response, "headers", {}))
