"""Steering: what the human writes to a run that is not over, and that its agents read while they work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel

from upcall.runs.events import LogEvent, MessageSent, MessageTaken


class SteeringMessage(BaseModel, frozen=True, defer_build=True):
    """A message of the human to the agents of a run.

    Attributes:
        id: its name in the log of the run.
        text: the words.
        to: the agent that it is for, by its name or its whole path (``lead/coder``); None is whoever is next to read.
        user: who wrote it, if known.
    """

    id: str
    text: str
    to: str | None = None
    user: str | None = None

    def is_for(self, path: str) -> bool:
        """Return whether the agent at a path reads it."""
        return self.to is None or self.to in (path, path.rpartition("/")[2])


class TakenMessages(BaseModel, frozen=True, defer_build=True):
    """What an agent took in at one point of its work, in the journal."""

    path: str
    messages: tuple[SteeringMessage, ...]

    def as_events(self) -> list[LogEvent]:
        """Return what the log says of it."""
        return [MessageTaken(message=each.id, path=tuple(self.path.split("/"))) for each in self.messages]


@dataclass(frozen=True)
class SentMessage:
    """A message that is stored for the agents of a run.

    Attributes:
        run_id: the run.
        id: the message, as the log of the run names it.
        to: the agent that it is for; None is whoever is next to read.
        note: what becomes of it, in one line.
    """

    run_id: str
    id: str
    to: str | None
    note: str

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Return what becomes of it."""
        return self.note


def list_unread(events: Iterable[LogEvent]) -> dict[str, SteeringMessage]:
    """Return the messages that no agent has taken in, by their ids, oldest first."""
    unread: dict[str, SteeringMessage] = {}
    for event in events:
        match event:
            case MessageSent():
                unread[event.message] = SteeringMessage(id=event.message, text=event.text, to=event.to, user=event.user)
            case MessageTaken():
                unread.pop(event.message, None)
            case _:
                pass
    return unread
