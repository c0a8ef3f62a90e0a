"""Concurrent work, and work that may hang: run it, receive from it, abandon it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from autogen_core import CancellationToken

from upcall.autogen.tool_calls import Interruption

T = TypeVar("T")
P = ParamSpec("P")
Emit: TypeAlias = Callable[[T], None]

_log = logging.getLogger("upcall")

CANCEL_TIMEOUT_S = 1.0
"""How long cancelled work may take to end before it is abandoned."""

EmittingWork: TypeAlias = Callable[[Emit[T]], Coroutine[Any, Any, None]]
"""Work that reports by calling the function it is given."""


class SingleReaderQueue(Generic[T]):
    """An unbounded queue for one reader; every run always has a few. An `asyncio.Queue` holds four deques, 3 KB, for
    readers, writers and a `join` that are not needed here."""

    def __init__(self) -> None:
        self._came: list[T] = []
        self._next: list[T] = []
        """Items that the reader takes before those, from the end of the list."""
        self._reader: asyncio.Future[None] | None = None

    def put_nowait(self, item: T) -> None:
        """Add an item, and wake the reader."""
        self._came.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def put(self, item: T) -> None:
        """Add an item as `put_nowait` does: an unbounded queue never makes the writer wait."""
        self.put_nowait(item)

    async def get(self) -> T:
        """Return the next item, as soon as there is one."""
        while self.empty():
            self._reader = reader = asyncio.get_running_loop().create_future()
            try:
                await reader
            finally:
                if self._reader is reader:  # A cancelled one may not have ended when the next begins.
                    self._reader = None
        return self.get_nowait()

    def get_nowait(self) -> T:
        """Return the next item.

        Raises:
            asyncio.QueueEmpty: there is none.
        """
        if not self._next:
            self._next, self._came = self._came[::-1], []
        if not self._next:
            raise asyncio.QueueEmpty
        return self._next.pop()

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return not (self._next or self._came)


class SegmentToken(CancellationToken):
    """A cancellation token that forgets finished futures. AutoGen's keeps every future linked to it, with its result,
    for its lifetime: in a run, every model request with its reply and every event of the team (autogen-core 0.7.5).

    Like AutoGen's, it takes anything: a future of asyncio or of a thread, an object with a `cancel` of its own, and
    the coroutine that `McpWorkbench` links (autogen-ext 0.7.5). Only what can be cancelled is kept: a coroutine ends
    with the task that awaits it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._linked: dict[int, Any] = {}
        """By identity: not everything linked can be hashed."""

    def cancel(self) -> None:
        """Cancel everything linked, outside AutoGen's lock: what is cancelled may ask the token."""
        super().cancel()
        for key in [*self._linked]:
            self._cancel_linked(key)

    def link_future(self, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Link a future, or anything else that AutoGen's token takes."""
        given: Any = future
        is_done, key = getattr(given, "done", None), id(given)
        if not callable(getattr(given, "cancel", None)) or (callable(is_done) and is_done()):
            return future
        self._linked[key] = given
        if callable(when_done := getattr(given, "add_done_callback", None)):
            when_done(lambda _: self._linked.pop(key, None))
        if self.is_cancelled():  # Perhaps since this began, by another thread.
            self._cancel_linked(key)
        return future

    def _cancel_linked(self, key: int) -> None:
        linked = self._linked.pop(key, None)
        try:
            if linked is not None:
                linked.cancel()
        except Exception:  # noqa: BLE001  (of the user's own class; the others are to be cancelled all the same)
            _log.warning("Something linked to a cancellation token (%s) failed to cancel.", type(linked).__name__)


async def merge_streams(
    works: Sequence[EmittingWork[T]], more: Callable[[], Coroutine[Any, Any, Sequence[EmittingWork[T]]]] | None = None
) -> AsyncGenerator[T, None]:
    """Yield the items of concurrent works as they come. One that fails does not stop the others.

    While any of them runs, `more` is awaited repeatedly for works that can begin now.

    Raises:
        BaseException: the first error of any, in the order of `works`, after all have ended.
    """
    items = SingleReaderQueue[T | None]()
    tasks: list[asyncio.Task[None]] = []
    running = 0

    def start(begun: Sequence[EmittingWork[T]]) -> None:
        nonlocal running
        for work in begun:
            task = asyncio.create_task(work(items.put_nowait))
            task.add_done_callback(lambda _: items.put_nowait(None))
            tasks.append(task)
            running += 1

    async def follow(ask: Callable[[], Coroutine[Any, Any, Sequence[EmittingWork[T]]]]) -> None:
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
    """Return the result of `work`: foreign code, which may hang, ignore its cancellation, or end in an odd way.

    Raises:
        asyncio.CancelledError: the token was cancelled; not raised if the work cancelled itself.
        RuntimeError: the work cancelled itself, or tried to end the program.
    """
    if token.is_cancelled():
        work.close()
        raise asyncio.CancelledError
    task = asyncio.create_task(_contain_exit(work))
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
    token.link_future(ended)
    caller = asyncio.current_task()
    assert caller is not None
    cancels = caller.cancelling()
    try:
        await ended
    except asyncio.CancelledError:
        if caller.cancelling() > cancels or not token.is_cancelled():
            raise
    finally:
        await _let_go([task], timeout=CANCEL_TIMEOUT_S)
    if task.done() and not task.cancelled():
        return task.result()
    if token.is_cancelled():
        raise asyncio.CancelledError
    raise RuntimeError("it cancelled itself")


async def run_to_completion(work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
    """Return the result of `work`, which runs to its end even if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await task
        raise


def contain(function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return what foreign code returns that runs in a thread; whatever ends it oddly, as an error.

    A future takes no `StopIteration`, so that its thread would be waited for without end, and handlers of errors
    catch no `BaseException`. A Ctrl-C arrives in the main thread: here `KeyboardInterrupt` is the code's own.

    Raises:
        RuntimeError: it raised what is not an error.
    """
    try:
        return function(*given, **named)
    except BaseException as error:
        if _is_error(error) or isinstance(error, asyncio.CancelledError | Interruption):
            raise
        raise RuntimeError(_describe_end(error)) from error


async def _contain_exit(work: Coroutine[Any, Any, T]) -> T:
    """Do as `contain` with a coroutine: a task that raises `SystemExit` ends the whole event loop, and a tool may be
    the `main` of some command line. `KeyboardInterrupt` is a Ctrl-C, and `GeneratorExit` may close this coroutine."""
    task = asyncio.current_task()
    try:
        return await work
    except BaseException as error:
        if _is_error(error) or isinstance(error, asyncio.CancelledError | Interruption | KeyboardInterrupt):
            raise
        if isinstance(error, GeneratorExit) and not _is_at_work(task):
            raise
        raise RuntimeError(_describe_end(error)) from error


def _is_error(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration)


def _is_at_work(task: asyncio.Task[Any] | None) -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # Its event loop is closed.
        return False


def _describe_end(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it tried to end the program (exit status {error.code})"
    return f"it ended with {type(error).__name__}" + (f": {error}" if str(error) else "")


async def _let_go(tasks: Sequence[asyncio.Task[Any]], *, timeout: float | None = None) -> None:
    """Cancel what still runs and wait until it has ended, for at most `timeout` seconds."""
    running = [task for task in tasks if not task.done()]
    for task in tasks:
        if task.done():
            _error_seen(task)
        else:
            task.add_done_callback(_error_seen)
            task.cancel()
    if running:
        await asyncio.wait(running, timeout=timeout)


def _error_seen(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of an abandoned task; otherwise asyncio logs that nobody did."""
    if not task.cancelled():
        task.exception()


class Locks(Generic[T]):
    """One lock per object and event loop: a lock of another loop cannot be awaited."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[T, asyncio.Lock]]
        self._by_loop = WeakKeyDictionary()

    def of(self, shared: T) -> asyncio.Lock:
        """Return the lock of a shared object in this loop."""
        locks = self._by_loop.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
        return locks.setdefault(shared, asyncio.Lock())
