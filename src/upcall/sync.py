"""`run_sync`, for scripts without ``async``: returns the result of a call, or raises its error."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, TypeVar, overload

from upcall import signals
from upcall.errors import CallerError, ConfigurationError

if TYPE_CHECKING:
    from upcall.autogen.messages import Event
    from upcall.runs.run import Run

T = TypeVar("T")

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop of each process. A forked child must not close its copy of the parent's loop."""


@overload
def run_sync(work: Awaitable[T]) -> T: ...


@overload
def run_sync(work: AsyncIterable[Event | Run], on_event: Callable[[Event | Run], object] | None = None) -> Run: ...


@overload
def run_sync(work: AsyncIterable[T], on_event: Callable[[T], object] | None = None) -> T: ...


def run_sync(work: Awaitable[Any] | AsyncIterable[Any], on_event: Callable[[Any], object] | None = None) -> Any:
    """Return the result of a coroutine, for a script without ``async``: ``run = run_sync(app.start("..."))``.

    For a stream (``app.start_stream``, an AutoGen team's ``run_stream``) this is the last item: the `Run`, the
    ``TaskResult``. `on_event` is called with each item as it arrives, including the last; nothing else runs
    meanwhile. Ctrl-C stops the work, stores the run, and is then raised.

    All calls in the main thread share one event loop, so that a model client keeps its connections. In another thread
    each call has its own loop: create a new model client there.

    Raises:
        CallerError: an event loop is already running (a notebook, async code): use ``await``.
        ConfigurationError: `work` is neither a coroutine nor a stream.
        KeyboardInterrupt: it was stopped.
    """
    stream = isinstance(work, AsyncIterable)
    if not stream and not inspect.isawaitable(work):
        raise ConfigurationError(
            f"run_sync takes a call that would be awaited, as in run_sync(app.start(...)), not {type(work).__name__}."
        )
    if on_event is not None and not stream:
        _leave(work)
        raise ConfigurationError("on_event needs a stream: run_sync(app.start_stream(...), on_event).")
    if _in_a_loop():
        _leave(work)
        instead = '"async for item in ..."' if stream else '"await ..."'
        raise CallerError(
            f'An event loop runs here already (a notebook, or async code): say {instead} in place of "run_sync(...)".'
        )
    whole = _last(work, on_event) if isinstance(work, AsyncIterable) else _await_it(work)
    if threading.current_thread() is threading.main_thread():
        return signals.run(whole, _in_shared_loop)
    return signals.run(whole)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _leave(work: object) -> None:
    """Close a coroutine that is dropped, or with which a stream would begin; it would warn that it was never awaited,
    in a notebook below some later cell."""
    begins = work.ag_frame.f_locals.values() if inspect.isasyncgen(work) and work.ag_frame is not None else ()
    for each in (work, *begins):
        if inspect.iscoroutine(each) and inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
            each.close()


async def _await_it(work: Awaitable[T]) -> T:
    return await work


async def _last(stream: AsyncIterable[T], on_event: Callable[[T], object] | None) -> T:
    items: list[T] = []
    async with AsyncExitStack() as stack:
        if inspect.isasyncgen(stream):
            await stack.enter_async_context(aclosing(stream))
        async for item in stream:
            items = [item]
            if on_event is not None:
                on_event(item)
    if not items:
        raise CallerError("The stream ended without any item. Of app.expire_stream() say run_sync(app.expire()).")
    return items[0]


def _in_shared_loop(work: Coroutine[Any, Any, T]) -> T:
    loop = _loops.get(os.getpid())
    if loop is None:
        loop = _loops[os.getpid()] = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    except (asyncio.CancelledError, KeyboardInterrupt):
        _close()  # Nothing continues behind the back of a script that was stopped.
        raise


@atexit.register
def _close() -> None:
    """End what is left in the loop. It starts no thread: at the exit of Python 3.12 none can be started any more, so
    that `asyncio.Runner` fails there."""
    loop = _loops.pop(os.getpid(), None)
    if loop is None or loop.is_closed():
        return
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
