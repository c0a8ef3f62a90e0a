"""The texts and thoughts that agents are writing at this moment, and which event completes which.

A text is completed by the message with its id. A stock agent gives its thoughts an id of their own, so a thought is
known by its words. What is not completed is dropped with the next event that shows that nothing follows: calls, unless
it was read out of their arguments; calls that failed; a question; the end of a turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from autogen_agentchat.messages import (
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)

from upcall.autogen.messages import Event, ThoughtChunkEvent, event_path


@dataclass(eq=False)
class BegunText:
    """A text as far as it has arrived.

    Attributes:
        path: the agents from the outermost down to the one that writes.
        id: that of the message it will be. An agent that is called twice at once writes two.
        is_thought: whether it is a thought.
        pieces: what has arrived.
        number: which of its agent's texts it is, from 1 on, where they are counted.
        name: the name of the text, where it has one.
    """

    path: tuple[str, ...]
    id: str
    is_thought: bool
    pieces: list[str] = field(default_factory=list)
    number: int = 0
    name: str = ""

    @property
    def content(self) -> str:
        """All that has arrived."""
        return "".join(self.pieces)

    def tail(self, chars: int) -> str:
        """Return the last characters, without reading the rest."""
        taken, place, pieces = 0, len(self.pieces), self.pieces
        while place and taken < chars:
            place -= 1
            taken += len(pieces[place])
        return "".join(pieces[place:])[-chars:]


class BegunTexts:
    """The texts that have begun and not ended, oldest first."""

    def __init__(self) -> None:
        self._all: dict[tuple[tuple[str, ...], str], BegunText] = {}

    def __iter__(self) -> Iterator[BegunText]:
        """Iterate over a copy: a view may draw in another thread."""
        return iter([*self._all.values()])

    def add(self, piece: ModelClientStreamingChunkEvent) -> BegunText:
        """Add a piece to its text; return that text."""
        path, name, is_thought = event_path(piece), piece.full_message_id or "", isinstance(piece, ThoughtChunkEvent)
        text = self._all.setdefault((path, name), BegunText(path, name, is_thought))
        text.pieces.append(piece.thought if isinstance(piece, ThoughtChunkEvent) else piece.content)
        return text

    def end(self, event: Event) -> BegunText | None:
        """Drop what an event completes or ends; return what it completes."""
        path = event_path(event)
        own = [each for each in self if each.path == path]
        if not own:
            return None
        completed, dropped = self._all.get((path, event.id)), [each for each in own if each.is_thought]
        match event:
            case ThoughtEvent():
                completed = completed or next((each for each in own if _is_whole(each, event.content)), None)
                dropped = []
            case BaseChatMessage():
                texts = [each for each in own if not each.is_thought]
                dropped = dropped if completed else own
                completed = completed or (texts[-1] if texts else None)
            case ToolCallRequestEvent():
                dropped = [each for each in own if each.is_thought or not _is_argument(each, event)]
            case ToolCallExecutionEvent() if not all(each.is_error for each in event.content):
                pass
            case ToolCallExecutionEvent() | UserInputRequestedEvent():
                dropped = own
            case _:
                pass
        for each in [*dropped, completed]:
            if each is not None:
                self._all.pop((each.path, each.id), None)
        return completed

    def clear(self) -> None:
        """Forget them: their agents stopped."""
        self._all.clear()


def _is_argument(text: BegunText, event: ToolCallRequestEvent) -> bool:
    """Return whether a text is what a call says in its arguments, as a report does."""
    content = text.content
    return any(value and content.startswith(value) for call in event.content for value in _texts_in(call.arguments))


def _texts_in(arguments: str) -> Iterator[str]:
    try:
        found = [json.loads(arguments)]
    except ValueError:
        return
    while found:
        match found.pop():
            case str() as text:
                yield text
            case dict() as fields:
                found += fields.values()
            case list() as items:
                found += items


def _is_whole(text: BegunText, text_so_far: str) -> bool:
    """Return whether a text is what an event says; of several thoughts the event has all."""
    content = text.content.strip()
    return content == text_so_far.strip() or (text.is_thought and bool(content) and content in text_so_far)
