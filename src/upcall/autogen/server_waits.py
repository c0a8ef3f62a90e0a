"""A model server that is still loading (503), or says when it has time again (429, Retry-After), is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from upcall.autogen.scope import current_scope, report_progress

LOADING, BUSY = 503, 429

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0
"""Seconds between two attempts where the server does not say how many."""

T = TypeVar("T")


async def wait_while_busy(fetch: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request while its server asks for time, as long in all as the run may wait; say so meanwhile.

    Raises:
        Whatever `fetch` raises in the end.
    """
    limit, began, pause = current_scope().server_wait, time.monotonic(), FIRST_PAUSE
    while True:
        try:
            return await fetch()
        except Exception as error:
            asked = _asked_pause(getattr(error, "response", None))
            waited = time.monotonic() - began
            seconds = pause if asked is None else asked
            status = getattr(error, "status_code", None)
            if not _can_wait(status, asked) or waited + seconds > limit:
                raise
            report_progress(
                f"seconds waited for the model server (HTTP {status})", round(waited + seconds), round(limit)
            )
            await asyncio.sleep(seconds)
            pause = min(2 * pause, LONGEST_PAUSE)


async def leave_retry_to_us(response: Any) -> None:
    """Tell the `openai` package not to wait for such a server by itself, without a word: the header is its own."""
    if current_scope().server_wait and _can_wait(response.status_code, _asked_pause(response)):
        response.headers["x-should-retry"] = "false"


def _can_wait(status: object, asked: float | None) -> bool:
    # A quota that is used up is 429 too, and no time is named for it.
    return status == LOADING or (status == BUSY and asked is not None)


def _asked_pause(response: Any) -> float | None:
    """Return the seconds that a Retry-After header asks for: a number, or a date."""
    text = getattr(response, "headers", {}).get("retry-after", "")
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        return max((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
