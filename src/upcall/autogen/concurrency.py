"""Work at the same time, and work that may hang: run it, hear from it, let go of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from autogen_core import CancellationToken

T = TypeVar("T")
Emit: TypeAlias = Callable[[T], None]

SECONDS_TO_LET_GO = 1.0
"""How long work that is cancelled may take to end before it is left to itself."""

Work: TypeAlias = Callable[[Emit[T]], Coroutine[Any, Any, None]]
"""Work that tells of what it does by calling what it is given."""


async def merge_streams(
    works: Sequence[Work[T]], more: Callable[[], Coroutine[Any, Any, Sequence[Work[T]]]] | None = None
) -> AsyncGenerator[T, None]:
    """Yield what works that run at the same time emit, as it comes. One that fails does not stop the others.

    While any of them runs, `more` is awaited, again and again, for works that can begin now.

    Raises:
        BaseException: the first error of any, in the order of `works`, after all have ended.
    """
    items: asyncio.Queue[T | None] = asyncio.Queue()
    tasks: list[asyncio.Task[None]] = []
    running = 0

    def start(begun: Sequence[Work[T]]) -> None:
        nonlocal running
        for work in begun:
            task = asyncio.create_task(work(items.put_nowait))
            task.add_done_callback(lambda _: items.put_nowait(None))
            tasks.append(task)
            running += 1

    async def follow(ask: Callable[[], Coroutine[Any, Any, Sequence[Work[T]]]]) -> None:
        while True:
            start(await ask())

    start(works)
    following = [] if more is None else [asyncio.create_task(follow(more))]
    try:
        while running:
            item = await items.get()
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        await _let_go([*following, *tasks])
    for task in tasks:
        task.result()


async def cancellable(work: Coroutine[Any, Any, T], token: CancellationToken) -> T:
    """Return what `work` gives: work of others, which may hang, ignore its cancellation, or end in an odd way.

    Raises:
        asyncio.CancelledError: the token was cancelled; not where the work cancelled itself.
        RuntimeError: the work cancelled itself, or tried to end the program.
    """
    if token.is_cancelled():
        work.close()
        raise asyncio.CancelledError
    task = asyncio.create_task(_contain_exit(work))
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


async def run_to_completion(work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
    """Return the result of `work`, which is done to its end also if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await task
        raise


async def _contain_exit(work: Coroutine[Any, Any, T]) -> T:
    """Contain `SystemExit`: a task that raises it ends the whole event loop; a tool may be the `main` of some command
    line."""
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


class Locks(Generic[T]):
    """One lock for each object and event loop: a lock of another loop cannot be waited for."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[T, asyncio.Lock]]
        self._by_loop = WeakKeyDictionary()

    def of(self, shared: T) -> asyncio.Lock:
        """Return the lock of an object that is shared, in this loop."""
        locks = self._by_loop.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
        return locks.setdefault(shared, asyncio.Lock())
