"""Connections that wait for a request: for how long, and how many.

uvicorn bounds how long a connection may be silent between two requests, and nothing else: whoever sends a byte now and
then keeps one for ever, and each takes one of the process's files. Here a connection that has no whole request in
progress ends after a time, whatever it sends; so does one whose caller takes in nothing of a response.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT_S = 20.0
"""From the beginning of a connection, or the end of a response, to the headers of the next request."""

WRITE_TIMEOUT_S = 60.0
"""How long the caller may take in nothing of what was sent."""

WAITING_PER_ADDRESS, WAITING = 100, 500
"""How many connections may wait for the rest of a request. One more ends those that have waited longest: who asks at
once is served, however many others say nothing."""

PROMPT_S, BURST = 1.0, 10
"""A request takes a moment to arrive: of those that came within so many seconds none is ended, be they many at once as
those of a page's readers after a restart; unless they are so many times more than may wait, or take half of the files
that the process may open."""

ENDED_AT_ONCE = 10
"""How many connections a new one ends at most, so that a burst is gone soon after its time."""


def _count_files() -> int:
    """Return how many files the process may open; each connection is one."""
    try:
        import resource
    except ImportError:  # Not on Windows.
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP, with these bounds."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._waits_since: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._left = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._wait()
        waiting = [each for each in self.connections if isinstance(each, BoundedProtocol) and each.is_waiting]
        near = [each for each in waiting if each.address == self.address]
        for some, most in ((near, WAITING_PER_ADDRESS), (waiting, WAITING)):
            ended = self._choose_ended(some, most)
            for each in ended:
                each.transport.abort()
            if ended:
                return

    def _choose_ended(self, waiting: Sequence[BoundedProtocol], most: int) -> Sequence[BoundedProtocol]:
        """Return which of the connections that wait are to be ended, where only so many may wait."""
        excess = max(0, len(waiting) - most)
        longest = nsmallest(min(excess, ENDED_AT_ONCE), waiting, key=lambda each: each.waits_since)
        is_flood = len(waiting) > min(BURST * most, _count_files() // 2)
        now = self.loop.time()
        return [each for each in longest if now - each.waits_since >= PROMPT_S] or (longest[:1] if is_flood else [])

    @property
    def is_waiting(self) -> bool:
        """Whether bytes of a request are still to come."""
        return self._waits_since is not None and not self.transport.is_closing()

    @property
    def waits_since(self) -> float:
        """Since when, by the loop's clock."""
        return self._waits_since or 0.0

    @property
    def address(self) -> str:
        """The other end, without the port."""
        return self.client[0] if self.client else ""

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_waiting()
        self._stop_stall()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read the events that are there; a whole request ends the wait."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_deadline()
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin to watch whether the caller takes in what waits for them."""
        super().pause_writing()
        self._left = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(WRITE_TIMEOUT_S, self._look)

    def resume_writing(self) -> None:
        """End the watch."""
        self._stop_stall()
        super().resume_writing()

    def _wait(self) -> None:
        self._stop_deadline()
        self._waits_since = self.loop.time()
        self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self._give_up)

    def _give_up(self) -> None:
        if self._stall is None:
            self.transport.abort()
        else:  # A response is still on its way.
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self._give_up)

    def _look(self) -> None:
        left, before = self.transport.get_write_buffer_size(), self._left
        if left >= before:
            self.transport.abort()
            return
        self._left = left
        self._stall = self.loop.call_later(WRITE_TIMEOUT_S, self._look)

    def _stop_waiting(self) -> None:
        self._waits_since = None
        self._stop_deadline()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
