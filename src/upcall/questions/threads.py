"""Threads and thread pools that a tool call starts work in the context of the call, so that they can ask.

A task inherits the context of its creator; a thread does not (before Python 3.14, and there by choice). Two methods of
the standard library are replaced, those through which a thread gets its work, as tracing libraries do it. Outside of
tool calls they are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial, wraps
from threading import Thread
from typing import Any


def start_threads_in_context(is_wanted: Callable[[], bool]) -> None:
    """Let threads work in the context of the code that starts them, where `is_wanted` says so."""
    start = Thread.start
    submit: Callable[..., Future[Any]] = ThreadPoolExecutor.submit

    @wraps(start)
    def start_in_context(self: Thread) -> None:
        if is_wanted():
            self.run = partial(copy_context().run, self.run)  # type: ignore[method-assign]
        start(self)

    @wraps(submit)
    def submit_in_context(self: ThreadPoolExecutor, /, *given: Any, **named: Any) -> Future[Any]:
        if not is_wanted():
            return submit(self, *given, **named)
        # The thread of a pool outlives the call: the work it is given has the context, the thread itself an empty one.
        return Context().run(submit, self, copy_context().run, *given, **named)

    Thread.start = start_in_context  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_in_context  # type: ignore[method-assign, assignment]
