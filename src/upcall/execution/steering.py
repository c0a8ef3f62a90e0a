"""What the human writes to the agents of a run while a team works on it, and that it is to stop after a step.

The rules:

- A message is stored in the log of the run before anything else (`MessageSent`), and an agent finds it there: before
  it calls its model, and where its turn would end. Nothing is sent between processes, so nothing can get lost there.
- That an agent took it in (`MessageTaken`) is stored in one transaction with the journal's record of where, so that a
  replay takes it in at the same place, and nobody takes it in twice.
- Where the run is to stop, an agent waits before it calls its model until no other tool runs and no model writes. Then
  the segment is interrupted, as by Ctrl-C: no call is in doubt, and a resume continues from the journal.
- A message that nobody took in before the run was completed is in the warnings of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from autogen_core import CancellationToken

from upcall.autogen.journal import Journal
from upcall.runs.events import MessageSent, MessageTaken, StopRequested
from upcall.runs.steering import SteeringMessage, list_unread
from upcall.storage.connection import Connection
from upcall.storage.event_log import find_last_of
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
    """

    def __init__(self, store: RunStore, run_id: str, journal: Journal, token: CancellationToken) -> None:
        self._store, self._run_id, self._journal, self._token = store, run_id, journal, token
        self._unread: dict[str, SteeringMessage] = {}
        self._seen = 0
        self._is_stop_requested = False
        self.is_stopped = False
        """Whether the segment was interrupted because the human wants the run to stop."""

    async def begin(self) -> None:
        """Read what was written before; an earlier stop was for an earlier segment."""
        await self._read()
        self._is_stop_requested = False

    async def take(self, agent: str, place: int, *, ends: bool = False) -> Sequence[SteeringMessage]:
        """See `upcall.autogen.scope.Steering`."""
        await self._read()
        if self._is_stop_requested and not ends and await self._journal.wait_until_idle(IDLE_TIMEOUT_S):
            self.is_stopped = True
            self._token.cancel()
            raise asyncio.CancelledError
        return await self._journal.replay_or_take(agent, place, self._take_for)

    async def _take_for(self, path: str) -> Sequence[SteeringMessage]:
        taken = [each for each in self._unread.values() if each.is_for(path)]
        for each in taken:
            del self._unread[each.id]
        return taken

    async def _read(self) -> None:
        entries = await self._store.events.read_new(self._run_id, self._seen, _TYPES)
        if not entries:
            return
        self._seen = entries[-1].id
        events = [each.event for each in entries]
        taken = {each.message for each in events if isinstance(each, MessageTaken)}
        self._unread |= {key: each for key, each in list_unread(events).items() if key not in taken}
        self._is_stop_requested |= any(isinstance(each, StopRequested) for each in events)

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
        if find_last_of(connection, self._run_id, _TYPES) > self._seen:
            raise AnswersQueued
