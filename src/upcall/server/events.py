"""What happens to a run, as it happens: read from the store, whichever process works on it, so that a reader who names
the last event they have continues after it, even after a restart. Pieces of text are included if they are written in
this process."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from sse_starlette import EventSourceResponse, ServerSentEvent

from upcall.errors import UpcallError
from upcall.questions.question import Question
from upcall.runs.events import EntryAdded, FilesChanged, LogEntry, SegmentTimed
from upcall.runs.run import Run
from upcall.runs.transcript import TranscriptEntry, complete_entry
from upcall.server.background import StreamedToken, join_tokens
from upcall.server.callers import Authenticator
from upcall.server.service import Caller, Service
from upcall.storage.connection import Connection

POLL_INTERVAL_S = 0.4
MAX_STREAM_TIME_S = 900.0
"""Then it ends, and a browser opens the next one: whoever lost their rights meanwhile gets none."""

AUTH_CHECK_EVERY = 40
"""Of so many looks into the store, one is whether the caller still has their rights: a read of its own."""

STREAMS_PER_CALLER, STREAMS = 24, 400

LINE_END = "\n"
"""AG-UI's client (1.0.0) takes events apart at two of these alone; by itself sse-starlette ends lines with CR LF."""


class TooManyStreams(UpcallError):
    """Too many streams are open."""

    def __init__(self) -> None:
        super().__init__("Too many event streams are open. Close some, or look again later.")


def parse_position(text: str | None) -> int:
    """Parse a ``Last-Event-ID``: the number of the last event that a reader has. One that is not ours means the
    beginning."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text) else 0


class Streams:
    """The open streams, counted."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def refuse_more(self, caller: Caller) -> None:
        """Refuse a caller another stream if too many are open, of theirs or in all.

        Raises:
            TooManyStreams: too many are open.
        """
        if self._open.get(caller.user or "", 0) >= STREAMS_PER_CALLER or sum(self._open.values()) >= STREAMS:
            raise TooManyStreams

    @contextmanager
    def count(self, caller: Caller) -> Iterator[None]:
        """Count one more stream, as long as the block lasts."""
        name = caller.user or ""
        self._open[name] = self._open.get(name, 0) + 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]


def respond_with(events: AsyncIterator[ServerSentEvent], streams: Streams, caller: Caller) -> EventSourceResponse:
    """Send events to a caller, counted as one of their streams.

    Raises:
        TooManyStreams: too many are open.
    """
    streams.refuse_more(caller)

    async def count() -> AsyncIterator[ServerSentEvent]:
        with streams.count(caller):
            async for event in events:
                yield event

    return EventSourceResponse(count(), ping=15, sep=LINE_END, headers={"Cache-Control": "no-store"}, send_timeout=30)


@dataclass(frozen=True)
class Stored:
    """A stored item of a run.

    Attributes:
        item: an entry of its log, an entry of its transcript, or the run as it is now.
        position: the number of the newest event that a reader has who has this item.
        text_id: the one of its `Token` objects, if the text of an entry may have been streamed; otherwise empty.
    """

    item: LogEntry | TranscriptEntry | Run
    position: int
    text_id: str = ""


class EndOfRun:
    """The run is over: nothing follows."""


Update: TypeAlias = Stored | StreamedToken | EndOfRun


class RunFollower:
    """One reader of one run.

    Args:
        service: the service that has the run.
        caller: who reads; somebody to whom only questions are assigned gets the run as they see it, and nothing else.
        run_id: the run.
        position: the number of the last event that they have; 0 for none.
    """

    def __init__(self, service: Service, caller: Caller, run_id: str, position: int = 0) -> None:
        self._service, self._caller, self.run_id = service, caller, run_id
        self._position = position
        self._app = service.app_for(caller)
        self._run: Run | None = None
        self._texts = set[tuple[tuple[str, ...], str]]()

    @property
    def run(self) -> Run:
        """The run as last read."""
        assert self._run is not None, "nothing was read yet"
        return self._run

    def find_question(self, entry: TranscriptEntry) -> Question | None:
        """Find the question that an entry of the transcript is about."""
        record = self.run.records.get(entry.name) if entry.kind.is_of_question else None
        return None if record is None else record.question

    async def read_new(self) -> list[Stored]:
        """Read what the reader does not have yet: what happened, and the run if it has changed.

        Raises:
            UnknownRun: the run no longer exists for them.
        """
        # In this order: the run has the question of each entry that was read before it.
        entries = await self._service.store.events.read(self.run_id, self._position, without=(SegmentTimed,))
        run = await self._app.get(self.run_id, user=self._caller.user)
        before, self._run = self._run, run
        found = [] if run.restricted else [item for entry in entries if (item := self._take(run, entry)) is not None]
        if before != run:
            found.append(Stored(run, self._position))
        return found

    def _take(self, run: Run, entry: LogEntry) -> Stored | None:
        """Return an entry of the log as the reader gets it; None if it says nothing."""
        self._position = entry.id
        if not isinstance(event := entry.event, EntryAdded):
            return Stored(entry, entry.id)
        if event.text_id:
            self._texts.add((event.entry.path, event.text_id))
        whole = complete_entry(run, event.entry)
        return None if whole is None else Stored(whole, entry.id, event.text_id)

    @property
    def is_at_end(self) -> bool:
        """Whether nothing can follow."""
        return self._run is not None and self._run.is_final

    def follows(self, token: StreamedToken) -> bool:
        """Return whether a piece that an agent writes is for them, and not part of a text that they have in full."""
        is_whole = (token.path, token.text_id) in self._texts
        return self._run is not None and not self._run.restricted and not is_whole


async def follow(
    service: Service, authenticator: Authenticator, caller: Caller, run_id: str, position: int
) -> AsyncIterator[ServerSentEvent]:
    """Yield what happens to a run until it is over, or the caller may no longer see it."""
    async for news in follow_run(service, authenticator, caller, RunFollower(service, caller, run_id, position)):
        yield _as_event(news)


async def follow_run(
    service: Service, authenticator: Authenticator, caller: Caller, reader: RunFollower
) -> AsyncGenerator[Update]:
    """Yield what is new to a reader, as `follow` does."""
    seen: object = None
    with service.work.listen(reader.run_id) as tokens, suppress(UpcallError):
        async for _ in _ticks(service, authenticator, caller):
            marks = await service.store.database.read(lambda connection: _read_marks(connection, reader.run_id))
            if marks != seen:
                for token in _take(tokens) if seen is not None else ():  # What is stored by now was written before.
                    if reader.follows(token):
                        yield token
                for news in await reader.read_new():
                    yield news
                seen = marks
            if reader.is_at_end:  # What was stored with the end may be newer than what was read before it.
                for news in await reader.read_new():
                    yield news
                yield EndOfRun()
                return
            async for token in _drain(service, tokens):
                if reader.follows(token):
                    yield token


def _as_event(news: Update) -> ServerSentEvent:
    match news:
        case Stored(LogEntry() as entry, position):
            return _event("log", _log_as_json(entry), position)
        case Stored(TranscriptEntry() as item, position, text_id):
            return _event("entry", {**item.as_json(), **({"text_id": text_id} if text_id else {})}, position)
        case Stored(Run() as run, position):
            return _event("run", run.as_json(), position)
        case StreamedToken():
            data = {"path": news.path, "text": news.text, "text_id": news.text_id}
            kind = "thought" if news.is_thought else "token"  # Of a kind of its own: who shows text shows no thought.
            return ServerSentEvent(json.dumps(data), event=kind, sep=LINE_END)
        case EndOfRun():
            return ServerSentEvent("{}", event="end", sep=LINE_END)
        case _:
            raise AssertionError(news)


def _event(kind: str, data: dict[str, Any], position: int) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(data, ensure_ascii=False), event=kind, id=str(position), sep=LINE_END)


async def follow_questions(
    service: Service, authenticator: Authenticator, caller: Caller
) -> AsyncIterator[ServerSentEvent]:
    """Yield the ids of a caller's open questions, whenever they change."""
    app, seen = service.app_for(caller), None
    with suppress(UpcallError):
        async for _ in _ticks(service, authenticator, caller):
            ids = [each.question.id for each in await app.inbox(user=caller.user)]
            if ids != seen:
                seen = ids
                yield ServerSentEvent(json.dumps({"questions": ids}), event="questions", sep=LINE_END)
            with suppress(TimeoutError):
                await asyncio.wait_for(service.closing.wait(), 3 * POLL_INTERVAL_S)


async def _ticks(service: Service, authenticator: Authenticator, caller: Caller) -> AsyncIterator[None]:
    """Yield each time to look into the store, as long as the stream may continue."""
    loop = asyncio.get_running_loop()
    end = loop.time() + MAX_STREAM_TIME_S
    for tick in count():
        if service.closing.is_set() or loop.time() >= end:
            return
        if tick % AUTH_CHECK_EVERY == 0 and not await authenticator.is_still_good(caller):
            return
        yield


async def _drain(service: Service, tokens: asyncio.Queue[StreamedToken]) -> AsyncIterator[StreamedToken]:
    """Yield the pieces of text that arrive until it is time to look into the store again, joined by text."""
    loop = asyncio.get_running_loop()
    end = loop.time() + POLL_INTERVAL_S
    while (left := end - loop.time()) > 0 and not service.closing.is_set():
        try:
            first = await asyncio.wait_for(tokens.get(), left)
        except TimeoutError:
            return
        for token in _take(tokens, first):
            yield token


def _take(tokens: asyncio.Queue[StreamedToken], *before: StreamedToken) -> Iterator[StreamedToken]:
    """Take the waiting pieces of text, after those before, joined by text."""
    return join_tokens([*before, *(tokens.get_nowait() for _ in range(tokens.qsize()))])


def _read_marks(connection: Connection, run_id: str) -> tuple[Any, ...]:
    """Read what changes whenever something of the run does."""
    row = connection.execute(
        "SELECT r.version, (SELECT max(id) FROM upcall_log l WHERE l.run_id = r.id), "
        "(SELECT count(*) FROM upcall_queued_answers q WHERE q.run_id = r.id), r.worker "
        "FROM upcall_runs r WHERE r.id = :id",
        {"id": run_id},
    ).fetchone()
    return () if row is None else tuple(row)


async def read_position(service: Service, run_id: str) -> int:
    """Read the number of the newest event of a run; 0 if it has none, or there is no such run."""
    marks = await service.store.database.read(lambda connection: _read_marks(connection, run_id))
    return int(marks[1] or 0) if marks else 0


def _log_as_json(entry: LogEntry) -> dict[str, Any]:
    """Return an entry of the log, without the diff of a file change, which `changes` has."""
    found = entry.as_json()
    if isinstance(entry.event, FilesChanged):
        change = entry.event.change
        found["detail"] = {"change": change.id, "tool": change.tool, "files": [each.path for each in change.files]}
    return found
