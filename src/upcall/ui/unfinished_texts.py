"""What agents are writing at this moment, for those who see it by the piece."""

from __future__ import annotations

from autogen_agentchat.messages import ModelClientStreamingChunkEvent

from upcall.autogen.messages import Event, TextKey, find_ended_text, text_key


def is_for_programs(text: str) -> bool:
    """Whether an agent writes JSON for the program that waits for it, and nothing for a reader."""
    return text.lstrip().startswith(("{", "[", "`"))


class UnfinishedTexts:
    """The texts that are not whole yet; an agent that is called twice at once writes two."""

    def __init__(self) -> None:
        self._texts: dict[TextKey, str] = {}

    def add(self, piece: ModelClientStreamingChunkEvent) -> None:
        """Add a piece to its text."""
        key = text_key(piece)
        self._texts[key] = self._texts.get(key, "") + piece.content

    def end(self, event: Event) -> None:
        """Drop the text that an event is the whole of, or the end of."""
        if (ended := find_ended_text(self._texts, event)) is not None:
            del self._texts[ended]

    def list_named(self) -> list[tuple[str, str]]:
        """List the texts as far as they go, each with who writes it, the one that was begun first at the top."""
        return [(" > ".join(path), text) for (path, _), text in list(self._texts.items())]
