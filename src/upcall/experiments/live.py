"""The results so far, shown again and again while an experiment runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from upcall.errors import ConfigurationError

if TYPE_CHECKING:
    from upcall.experiments.results import Results

SHOW_INTERVAL_S = 2.0
"""How long to wait, at least, before the results so far are shown again."""

WAIT_RATIO = 9
"""How many times as long as it took to show them: it takes no more than a tenth of the time."""

ResultsListener: TypeAlias = Callable[["Results"], None]
"""Receives the results so far, in a thread of its own."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def show_results(load: Callable[[], Awaitable[Results]], listener: ResultsListener | None) -> AsyncIterator[None]:
    """Give the results so far to a listener now, and as they change while the block lasts. It is never called after
    the block.

    Raises:
        ConfigurationError: the listener cannot show the first ones. That of later ones is only logged.
    """
    if listener is None:
        yield
        return
    first = await load()
    await asyncio.to_thread(listener, first)
    stopping = asyncio.Event()
    showing = asyncio.create_task(_show_again(load, listener, first, stopping))
    try:
        yield
    finally:
        stopping.set()
        await showing


async def _show_again(
    load: Callable[[], Awaitable[Results]], listener: ResultsListener, last: Results, stopping: asyncio.Event
) -> None:
    took = 0.0
    while not await _wait(stopping, max(SHOW_INTERVAL_S, WAIT_RATIO * took)):
        started = time.monotonic()
        results = await load()
        if results.progress != last.progress:
            try:
                await asyncio.to_thread(listener, results)
            except ConfigurationError as error:
                _log.warning("The results so far cannot be shown: %s", error)
            last = results
        took = time.monotonic() - started


async def _wait(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait for some time; return early, and true, when there is nothing more to show."""
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return False
    return True
