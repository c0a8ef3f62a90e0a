"""Work at the same time, and work that may hang: run it, hear from it, let go of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

from autogen_core import CancellationToken

T = TypeVar("T")
Emit: TypeAlias = Callable[[T], None]

SECONDS_TO_LET_GO = 1.0
"""How long work that is cancelled may take to end before it is left to itself."""


async def emitted(works: Sequence[Callable[[Emit[T]], Coroutine[Any, Any, None]]]) -> AsyncGenerator[T, None]:
    """What works that run at the same time emit, as it comes. One that fails does not stop the others.

    Raises:
        BaseException: the first error of any, in the order of `works`, after all have ended.
    """
    items: asyncio.Queue[T | None] = asyncio.Queue()
    tasks = [asyncio.create_task(work(items.put_nowait)) for work in works]
    for task in tasks:
        task.add_done_callback(lambda _: items.put_nowait(None))
    try:
        running = len(tasks)
        while running:
            item = await items.get()
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        await _let_go(tasks)
    for task in tasks:
        task.result()


async def cancellable(work: Coroutine[Any, Any, T], token: CancellationToken) -> T:
    """What `work` gives: work of others, which may hang, ignore its cancellation, or end in an odd way.

    Raises:
        asyncio.CancelledError: the token was cancelled; not where the work cancelled itself.
        RuntimeError: the work cancelled itself, or tried to end the program.
    """
    if token.is_cancelled():
        work.close()
        raise asyncio.CancelledError
    task = asyncio.create_task(_contained(work))
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    token.link_future(cancelled)
    first: set[asyncio.Future[Any]] = {task, cancelled}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _let_go([task], timeout=SECONDS_TO_LET_GO)
    if task.done() and not task.cancelled():
        return task.result()
    if cancelled.cancelled():
        raise asyncio.CancelledError
    raise RuntimeError("it cancelled itself")


async def _contained(work: Coroutine[Any, Any, T]) -> T:
    """A task that raises `SystemExit` ends the whole event loop; a tool may be the `main` of some command line."""
    try:
        return await work
    except SystemExit as error:
        raise RuntimeError(f"it tried to end the program (exit status {error.code})") from error


async def _let_go(tasks: Sequence[asyncio.Task[Any]], *, timeout: float | None = None) -> None:
    """Cancel what still runs and wait until it has ended, for `timeout` seconds at most."""
    for task in tasks:
        task.add_done_callback(_error_seen)
        task.cancel()
    running = [task for task in tasks if not task.done()]
    if running:
        await asyncio.wait(running, timeout=timeout)


def _error_seen(task: asyncio.Task[Any]) -> None:
    """Without this, asyncio complains of the error of a task that nobody asks for its result any more."""
    if not task.cancelled():
        task.exception()
