"""The in-process worker: with a file store, the process that submits a run works on it in the background."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from upcall.errors import RunConflict, RunHeld, StoreUnavailable, UpcallError, UserAtLimit

REOPEN_DELAY_S = 2.0
"""Seconds until a run whose store was unavailable is tried again."""

HOLD_POLL_INTERVAL_S = 2.0
"""How often a run that is held looks whether it was released."""

_log = logging.getLogger("upcall")


class InProcessWorker:
    """Takes submitted runs to their next pause, in tasks of the event loop in which they were submitted.

    Args:
        advance: takes one run to its next pause: its id, and the version that was submitted.
        concurrency: how many runs at a time.
    """

    def __init__(self, advance: Callable[[str, int], Coroutine[Any, Any, object]], concurrency: int) -> None:
        self._advance, self._concurrency = advance, concurrency
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots] = weakref.WeakKeyDictionary()

    def start(self, run_id: str, version: int) -> None:
        """Take a run to its next pause as soon as there is a slot."""
        loop = asyncio.get_running_loop()
        slots = self._loops.setdefault(loop, _Slots(asyncio.Semaphore(self._concurrency)))
        # In a context of its own: who submits may be a tool in the middle of another run, and is not who acts then.
        task = loop.create_task(self._work(slots.free, run_id, version), context=Context())
        slots.tasks.add(task)
        task.add_done_callback(slots.tasks.discard)

    async def drain(self) -> None:
        """Wait until all runs submitted in this event loop have reached their next pause."""
        slots = self._loops.get(asyncio.get_running_loop())
        while slots is not None and slots.tasks:
            await asyncio.wait(slots.tasks)

    async def _work(self, free: asyncio.Semaphore, run_id: str, version: int) -> None:
        wait: float | None = 0.0
        while wait is not None:
            await asyncio.sleep(wait)
            async with free:
                wait = await self._try(run_id, version)

    async def _try(self, run_id: str, version: int) -> float | None:
        """Take a run to its next pause; return the seconds until the next try, None for never."""
        try:
            # In a task of its own, with which its lease ends if the claim was stored and its success remained unknown.
            await asyncio.create_task(self._advance(run_id, version))
        except RunHeld:
            return HOLD_POLL_INTERVAL_S
        except UserAtLimit as limit:
            return limit.seconds
        except RunConflict:
            return None  # Somebody else works on it.
        except StoreUnavailable:  # The store itself reports that, once.
            return REOPEN_DELAY_S
        except UpcallError as error:
            _log.warning("Run %s was submitted and cannot continue: %s", run_id, error)
        except Exception:  # noqa: BLE001  (stored with the run; nobody awaits this task)
            _log.exception("Run %s was submitted and cannot continue", run_id)
        return None


@dataclass
class _Slots:
    free: asyncio.Semaphore
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
