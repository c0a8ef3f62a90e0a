"""The worker in the process itself: where the store is a file, who submits a run works on it, in the background."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from upcall.errors import RunConflict, UpcallError

_log = logging.getLogger("upcall")


class InProcessWorker:
    """Takes submitted runs to their next pause, in tasks of the event loop in which they were submitted.

    Args:
        advance: takes one run to its next pause: its id, and the version that was submitted.
        concurrency: how many runs at a time.
    """

    def __init__(self, advance: Callable[[str, int], Awaitable[object]], concurrency: int) -> None:
        self._advance, self._concurrency = advance, concurrency
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots] = weakref.WeakKeyDictionary()

    def start(self, run_id: str, version: int) -> None:
        """Take a run to its next pause as soon as there is a slot."""
        loop = asyncio.get_running_loop()
        slots = self._loops.setdefault(loop, _Slots(asyncio.Semaphore(self._concurrency)))
        task = loop.create_task(self._work(slots.free, run_id, version))
        slots.tasks.add(task)
        task.add_done_callback(slots.tasks.discard)

    async def drain(self) -> None:
        """Wait until all that was submitted in this event loop has come to its next pause."""
        slots = self._loops.get(asyncio.get_running_loop())
        while slots is not None and slots.tasks:
            await asyncio.wait(slots.tasks)

    async def _work(self, free: asyncio.Semaphore, run_id: str, version: int) -> None:
        async with free:
            try:
                await self._advance(run_id, version)
            except RunConflict:
                pass  # Somebody else works on it.
            except UpcallError as error:
                _log.warning("Run %s was submitted and cannot go on: %s", run_id, error)


@dataclass
class _Slots:
    free: asyncio.Semaphore
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
