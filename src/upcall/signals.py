"""Ctrl-C and SIGTERM in a program of coroutines: they end the work, and never the closing of what it had open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

INTERRUPTED = 130
"""The exit status of a program that was stopped."""

_STOPS = (signal.SIGINT, signal.SIGTERM)


def _in_new_loop(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner() as runner:
        return runner.run(work)


def run(work: Coroutine[Any, Any, T], in_loop: Callable[[Coroutine[Any, Any, T]], T] = _in_new_loop) -> T:
    """As `asyncio.run`, whose own handling of Ctrl-C ends before the loop is closed: one that came then would cut off
    what closes the store, and report it in a traceback. `in_loop` runs a coroutine to its end in a loop.

    Raises:
        KeyboardInterrupt: it was stopped; what it had open is closed. A second stop does not wait for that.
    """
    return _Stoppable(work).run(in_loop)


def exit_on_stop() -> None:
    """From here on a stop ends the process at once: there is nothing open yet, or any more. An exception in the middle
    of an import comes out of compiled code as another one, or not at all."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # It may be missing, or closed.
        sys.stdout.flush()
    sys.unraisablehook = _ignore_stops
    _handle(_exit)


def ignore_stops() -> None:
    """From here on a stop changes nothing: the program has been stopped, and its interpreter takes itself apart, where
    a signal would end it with another status."""
    _handle(signal.SIG_IGN)


def raise_on_stop() -> None:
    """From here on a stop raises KeyboardInterrupt, that of a service manager too."""
    _handle(signal.default_int_handler)


@contextlib.contextmanager
def raise_at_once() -> Iterator[None]:
    """Let a stop raise KeyboardInterrupt inside, even in a coroutine that `run` runs: cancelling one would not end a
    call that blocks, such as reading a line."""
    handled = {each: signal.getsignal(each) for each in _STOPS} if _in_main_thread() else {}
    raise_on_stop()
    try:
        yield
    finally:
        for each, handler in handled.items():
            signal.signal(each, handler or signal.SIG_DFL)


def _ignore_stops(error: sys.UnraisableHookArgs) -> None:
    """Keep quiet where a stop came in the finalizer of some object, which Python would print as a traceback."""
    if not issubclass(error.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(error)


def _handle(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for each in _STOPS if _in_main_thread() else ():
        if signal.getsignal(each) is not signal.SIG_IGN:  # A job in the background ignores Ctrl-C.
            signal.signal(each, handler)


def _exit(*_: object) -> None:
    os.write(2, b"\nStopped.\n")  # A terminal has just shown ^C.
    os._exit(INTERRUPTED)


def _in_main_thread() -> bool:
    """Where signals can be handled."""
    return threading.current_thread() is threading.main_thread()


def _raise() -> None:
    raise KeyboardInterrupt


class _Stoppable(Generic[T]):
    """One coroutine, which a stop cancels."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._stops = 0

    def run(self, in_loop: Callable[[Coroutine[Any, Any, T]], T]) -> T:
        handled = []
        try:
            for each in _STOPS if _in_main_thread() else ():
                if signal.getsignal(each) is signal.default_int_handler:
                    handled.append(each)
                    signal.signal(each, self._stop)
            result = in_loop(self._watch())
        except asyncio.CancelledError:
            if not self._stops:
                raise
        finally:
            for each in handled:
                signal.signal(each, signal.default_int_handler)
        if self._stops:
            raise KeyboardInterrupt
        return result

    async def _watch(self) -> T:
        self._task = asyncio.current_task()
        if self._stops and self._task is not None:
            self._task.cancel()
        return await self._work

    def _stop(self, *_: object) -> None:
        self._stops += 1
        loop = self._task.get_loop() if self._task is not None else None
        if self._stops > 1:
            if loop is not None:
                loop.set_exception_handler(lambda *_: None)  # Tasks that are left behind would be reported.
            if self._stops > 2 or loop is None or not loop.is_running():
                raise KeyboardInterrupt
            # Not here: this may be the finalizer of some object, which would print the exception and lose it.
            loop.call_soon_threadsafe(_raise)
            return
        if self._task is not None and loop is not None and not self._task.done():
            self._task.cancel()
            loop.call_soon_threadsafe(lambda: None)  # It may be asleep until something happens.
