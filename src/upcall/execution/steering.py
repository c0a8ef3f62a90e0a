"""What the human writes to the agents of a run while a team works on it, and that it is to stop after a step.

The rules:

- A message is stored in the log of the run before anything else (`MessageSent`), and an agent finds it there: before
  it calls its model, and where its turn would end. Nothing is sent between processes, so nothing can get lost there.
- That an agent took it in (`MessageTaken`) is stored in one transaction with the journal's record of where, so that a
  replay takes it in at the same place, and nobody takes it in twice.
- Where the run is to stop, whoever is to call a model waits until no other tool runs and no model writes. Then the
  segment is interrupted, as by Ctrl-C: no call is in doubt, and a resume continues from the journal.
- A message that nobody took in before the run was completed is in the warnings of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from autogen_core import CancellationToken

from upcall.autogen.journal import Journal
from upcall.runs.events import MessageSent, MessageTaken, StopRequested
from upcall.runs.steering import SteeringMessage, list_unread
from upcall.storage.connection import Connection
from upcall.storage.event_log import find_last
from upcall.storage.queued_answers import AnswersQueued
from upcall.storage.store import RunStore
from upcall.text import one_line

IDLE_TIMEOUT_S = 30.0
"""How long an agent waits for the calls of others before the run stops: one of them may wait for this agent, so that it
works on afterwards, and the run stops later."""

SHOWN_CHARS = 80

_TYPES = (MessageSent, MessageTaken, StopRequested)


class RunSteering:
    """The messages to the agents of one segment.

    Args:
        store: where the run is.
        run_id: the run.
        journal: the records of the segment.
        token: cancels the segment.
        since: the id in the log behind which a stop is meant for this work; an earlier one was for earlier work.
    """

    def __init__(
        self, store: RunStore, run_id: str, journal: Journal, token: CancellationToken, *, since: int = 0
    ) -> None:
        self._store, self._run_id, self._journal, self._token = store, run_id, journal, token
        self._since = since
        self._reading = asyncio.Lock()
        self._unread: dict[str, SteeringMessage] = {}
        self._seen = 0
        self._is_stop_requested = False
        self.is_stopped = False
        """Whether the segment was interrupted because the human wants the run to stop."""

    async def take(self, agent: str, place: int) -> Sequence[SteeringMessage]:
        """See `upcall.autogen.scope.Steering`."""
        await self._read()
        return await self._journal.replay_or_take(agent, place, self._take_for)

    async def stop_if_requested(self) -> None:
        """See `upcall.autogen.scope.Steering`."""
        await self._read()
        if self._is_stop_requested and await self._journal.wait_until_idle(IDLE_TIMEOUT_S):
            self._end()

    async def stop(self) -> NoReturn:
        """See `upcall.autogen.scope.Steering`."""
        await self._journal.wait_until_idle(IDLE_TIMEOUT_S)
        self._end()

    def _end(self) -> NoReturn:
        self.is_stopped = True
        self._token.cancel()
        raise asyncio.CancelledError

    async def _take_for(self, path: str) -> Sequence[SteeringMessage]:
        taken = [each for each in self._unread.values() if each.is_for(path)]
        for each in taken:
            del self._unread[each.id]
        return taken

    async def _read(self) -> None:
        async with self._reading:  # One at a time: a message that was taken meanwhile would be unread again.
            entries, self._seen = await self._store.events.read_new(self._run_id, self._seen, _TYPES)
            self._unread |= list_unread(each.event for each in entries)
            self._is_stop_requested |= any(
                isinstance(each.event, StopRequested) and each.id > self._since for each in entries
            )

    async def list_late(self) -> list[str]:
        """Return a warning for each message that nobody has taken in: the team has ended."""
        await self._read()
        return [
            f"Nobody read your message, since the run was about to end: {one_line(each.text, SHOWN_CHARS)!r}. Send it "
            "as the task of a run that follows this one."
            for each in self._unread.values()
        ]

    def refuse_late(self, connection: Connection) -> None:
        """Refuse, in the write that ends the run, that a message came since `list_late`.

        Raises:
            AnswersQueued: one came.
        """
        if find_last(connection, self._run_id, _TYPES) > self._seen:
            raise AnswersQueued
