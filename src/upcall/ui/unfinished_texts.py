"""The texts that agents are writing at this moment, for views that show them as they stream."""

from __future__ import annotations

from upcall.autogen.api import ModelClientStreamingChunkEvent
from upcall.autogen.messages import Event, TextKey, find_ended_text, text_key


def is_for_programs(text: str) -> bool:
    """Whether an agent writes JSON for the program that waits for it, and nothing for a reader."""
    return text.lstrip().startswith(("{", "[", "`"))


class UnfinishedTexts:
    """The unfinished texts; an agent that serves two calls at once writes two."""

    def __init__(self) -> None:
        self._texts: dict[TextKey, str] = {}

    def add(self, piece: ModelClientStreamingChunkEvent) -> None:
        """Append a piece to its text."""
        key = text_key(piece)
        self._texts[key] = self._texts.get(key, "") + piece.content

    def end(self, event: Event) -> None:
        """Drop the text that an event completes or ends."""
        if (ended := find_ended_text(self._texts, event)) is not None:
            del self._texts[ended]

    def list_named(self) -> list[tuple[str, str]]:
        """List the texts so far with their writers, oldest first."""
        return [(" > ".join(path), text) for (path, _), text in list(self._texts.items())]
