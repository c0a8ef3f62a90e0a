"""Runs that work in the service's own loop, after the requests that started them."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import aclosing, contextmanager
from itertools import groupby
from typing import NamedTuple

from upcall.autogen.api import ModelClientStreamingChunkEvent
from upcall.autogen.begun_texts import BegunTexts
from upcall.autogen.messages import TEXT
from upcall.errors import StoreUnavailable, UpcallError
from upcall.execution.driver import Stream
from upcall.runs.run import Run
from upcall.text import first_line

MAX_TOKENS_AHEAD = 1_000
"""How many pieces of text wait for one reader. One who reads slower loses some: the whole text comes afterwards."""

_log = logging.getLogger(__name__)


class StreamedToken(NamedTuple):
    """A piece of text as it arrives from a model.

    Attributes:
        path: the agent that writes.
        text: the piece.
        text_id: the text that it belongs to, among those of this agent; its transcript entry has the same id.
        is_thought: whether it is part of a thought.
    """

    path: tuple[str, ...]
    text: str
    text_id: str
    is_thought: bool = False


def join_tokens(tokens: Iterable[StreamedToken]) -> Iterator[StreamedToken]:
    """Yield tokens, joining successive ones of the same text."""
    for (path, text_id, is_thought), pieces in groupby(tokens, lambda each: (each.path, each.text_id, each.is_thought)):
        yield StreamedToken(path, "".join(each.text for each in pieces), text_id, is_thought)


class BackgroundWork:
    """The work started here. When closed, it leaves each run resumable."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: dict[str, set[asyncio.Queue[StreamedToken]]] = defaultdict(set)
        self._written: dict[str, BegunTexts] = {}

    async def begin(self, run_id: str, items: Stream, *, patience: float | None = None) -> None:
        """Start a stream, and return when its work has begun, or after a number of seconds.

        Raises:
            UpcallError: it cannot begin; nothing was changed.
        """
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._consume(run_id, items, begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        done, _ = await asyncio.wait([begun], timeout=patience)
        for each in done:
            each.result()

    async def _consume(self, run_id: str, items: Stream, begun: asyncio.Future[None]) -> None:
        written = self._written[run_id] = BegunTexts()
        try:
            async with aclosing(items):
                async for item in items:
                    if not begun.done():
                        begun.set_result(None)
                    if isinstance(item, ModelClientStreamingChunkEvent):
                        text = written.add(item)
                        text.name = item.metadata[TEXT]
                        self._publish(run_id, StreamedToken(text.path, text.pieces[-1], text.name, text.is_thought))
                    elif not isinstance(item, Run):
                        written.end(item)
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            elif isinstance(error, StoreUnavailable):
                pass  # The store itself reports that, once.
            elif isinstance(error, UpcallError):  # The run says it too.
                _log.warning("Run %s: %s", run_id, first_line(error))
            else:
                raise
        finally:
            if self._written.get(run_id) is written:
                del self._written[run_id]
            if not begun.done():
                begun.set_result(None)

    def _publish(self, run_id: str, token: StreamedToken) -> None:
        for queue in self._listeners.get(run_id, ()):
            if not queue.full():
                queue.put_nowait(token)

    @contextmanager
    def listen(self, run_id: str) -> Iterator[asyncio.Queue[StreamedToken]]:
        """Pass on what the agents of a run write, as it arrives, as long as the block lasts; first what was already
        written of each unfinished text, in one piece."""
        queue: asyncio.Queue[StreamedToken] = asyncio.Queue(MAX_TOKENS_AHEAD)
        for text in self._written.get(run_id, ()):
            queue.put_nowait(StreamedToken(text.path, text.content, text.name, text.is_thought))
        self._listeners[run_id].add(queue)
        try:
            yield queue
        finally:
            self._listeners[run_id].discard(queue)
            if not self._listeners[run_id]:
                del self._listeners[run_id]

    async def close(self) -> None:
        """Stop all work, and wait until it is stored."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
