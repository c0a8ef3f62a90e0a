"""The results so far, shown again and again while an experiment runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from upcall.errors import UpcallError

if TYPE_CHECKING:
    from upcall.experiments.results import Results

SHOW_INTERVAL_S = 2.0
"""How long to wait, at least, before the results so far are shown again."""

WAIT_RATIO = 9
"""How many times as long as it took to show them: it takes no more than a tenth of the time."""

INTERRUPTED = "It was interrupted; start it again to continue."
"""What the results that are shown last say if the experiment does not come to its end."""

ResultsListener: TypeAlias = Callable[["Results"], None]
"""Receives the results so far, in a thread of its own."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def show_results(load: Callable[[], Awaitable[Results]], listener: ResultsListener | None) -> AsyncIterator[None]:
    """Give the results so far to a listener now, as they change while the block lasts, and once more if it is
    interrupted. It is never called after the block.

    Raises:
        UpcallError: the first ones cannot be loaded or shown. That of later ones is only logged.
    """
    if listener is None:
        yield
        return
    display = _Display(load, listener)
    await display.show()
    try:
        async with _show_again(display):
            yield
    except BaseException:
        with _log_failure():
            await display.show_interrupted()
        raise


class _Display:
    """Loads results for a listener.

    Attributes:
        took: how many seconds the last attempt took.
    """

    def __init__(self, load: Callable[[], Awaitable[Results]], listener: ResultsListener) -> None:
        self._load, self._listener = load, listener
        self._last: Results | None = None
        self.took = 0.0

    async def show(self) -> None:
        """Show the results so far if they have changed."""
        started = time.monotonic()
        try:
            results = await self._load()
            if self._last is None or results.progress != self._last.progress:
                self._last = results
                await asyncio.to_thread(self._listener, results)
        finally:
            self.took = time.monotonic() - started

    async def show_interrupted(self) -> None:
        """Show that no more results come: with those that were loaded last, if the store can no longer be read."""
        with _log_failure():
            self._last = await self._load()
        assert self._last is not None, "the first results have been shown"
        await asyncio.to_thread(self._listener, replace(self._last, progress=None, stopped=INTERRUPTED))


@asynccontextmanager
async def _show_again(display: _Display) -> AsyncIterator[None]:
    """Show results again and again while the block lasts."""
    stopping = asyncio.Event()
    showing = asyncio.create_task(_repeat(display, stopping))
    try:
        yield
    finally:
        stopping.set()
        await showing


async def _repeat(display: _Display, stopping: asyncio.Event) -> None:
    while not await _wait(stopping, max(SHOW_INTERVAL_S, WAIT_RATIO * display.took)):
        with _log_failure():
            await display.show()


@contextmanager
def _log_failure() -> Iterator[None]:
    """Log why results cannot be shown: the trials continue, and report an error of the store themselves."""
    try:
        yield
    except UpcallError as error:
        _log.warning("The results so far cannot be shown: %s", error)


async def _wait(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait for some time; return early, and true, when there is nothing more to show."""
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return False
    return True
