"""Replies that arrive in pieces: what of them is text for a person, what is a thought, and what is neither.

Every stream of a model passes here, ours and those of AutoGen's and a user's own clients, for our agents and for stock
ones. Text goes to the agent. Thoughts go to the listener of the run, with the path of who thinks: AutoGen's events
have no place for a piece of a thought. Without a listener they come whole, with the reply.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from weakref import WeakSet

from autogen_core.models import ChatCompletionClient, CreateResult

from upcall import identity
from upcall.autogen.call_path import current_path
from upcall.autogen.messages import PATH, ThoughtChunkEvent
from upcall.autogen.openai_client.reply_parts import CallPiece
from upcall.autogen.scope import current_scope
from upcall.autogen.structured_text import Around, StructuredText
from upcall.autogen.text_calls.filter import CallFilter
from upcall.autogen.text_calls.formats import AROUND
from upcall.autogen.thoughts import PartKind, ReplyPart, ThoughtSplitter
from upcall.runs.shown_text import TextFields
from upcall.text import replace_surrogates


class Withdrawn(NamedTuple):
    """All text of a reply so far, which turned out to be a thought."""

    thought: str


StreamPiece: TypeAlias = str | ReplyPart | CallPiece
Read: TypeAlias = str | Withdrawn | CreateResult


@dataclass(frozen=True)
class ReplyShape:
    """How a reply is structured, so that its text can be read out of it.

    Attributes:
        fields: the fields with text; none where JSON can only be a call.
        around: what words around JSON are.
        may_call: whether calls may be written as text, which is not shown.
        tool: the tool whose arguments are the reply too.
    """

    fields: TextFields
    around: Around
    may_call: bool = False
    tool: str = ""

    def read(self, text: str) -> str:
        """Return the text for a person in a whole reply; the reply itself if none can be found."""
        reader = self.reader()
        return f"{reader.add(text)}{reader.end()}" or text

    def reader(self) -> StructuredText:
        """Return a reader of a reply that arrives in pieces."""
        return StructuredText(self.fields, self.around, AROUND if self.may_call else None)


_begin_within: WeakSet[ChatCompletionClient] = WeakSet()
"""The clients of models whose prompt opens their thoughts, as an earlier reply showed."""


def _begins_within(client: ChatCompletionClient) -> bool:
    try:
        return client in _begin_within
    except TypeError:  # A user's own class that cannot be a key: a dataclass, or one with slots.
        return False


class StreamReader:
    """Reads one reply, piece by piece.

    Args:
        client: the client that makes the call.
        agent: whose call it is.
        shape: how its text is read out; without it all of a reply is text.
        is_shown: whether somebody is to see the pieces.
    """

    def __init__(
        self, client: ChatCompletionClient, agent: str, shape: ReplyShape | None, *, is_shown: bool = True
    ) -> None:
        self._client, self._agent, self._shape, self._is_shown = client, agent, shape, is_shown
        self._splitter = ThoughtSplitter(begins_within=_begins_within(client))
        self._text = None if shape is None else shape.reader()
        self._filter = CallFilter(shows_json=bool(shape.fields)) if shape is not None and shape.may_call else None
        self._calls: dict[int, StructuredText] = {}
        self._thought_id = ""

    def add(self, item: StreamPiece) -> list[str | Withdrawn]:
        """Add what has come; return what it adds to the text."""
        match item:
            case CallPiece():
                return [*self._add_call(item)]
            case ReplyPart(PartKind.THOUGHT, content):
                self._think(content)
                return []
            case _:
                text = item.content if isinstance(item, ReplyPart) else item
                return self._read(self._splitter.add(replace_surrogates(text)))

    def end(self) -> list[str | Withdrawn]:
        """End the reply; return what waited for that."""
        found = self._read(self._splitter.end())
        if self._splitter.opened_by_prompt:
            with suppress(TypeError):
                _begin_within.add(self._client)
        if self._filter is not None:
            found += self._show(self._filter.end())
        if self._text is not None and (rest := self._text.end()):
            found.append(rest)
        return found

    def _add_call(self, piece: CallPiece) -> list[str]:
        if self._shape is None or piece.tool != self._shape.tool:
            return []
        known = self._calls.setdefault(piece.number, StructuredText(self._shape.fields, Around.INVALID))
        text = known.add(replace_surrogates(piece.arguments))
        return [text] if text else []

    def _read(self, parts: list[ReplyPart]) -> list[str | Withdrawn]:
        found: list[str | Withdrawn] = []
        for kind, content in parts:
            if kind is PartKind.THOUGHT:
                self._think(content)
            elif kind is PartKind.WITHDRAWN:
                found.append(Withdrawn(content))
                if self._text is not None:
                    self._text.withdraw()
                if self._filter is not None:
                    self._filter.withdraw()
            else:
                found += self._show(content if self._filter is None else self._filter.add(content))
        return found

    def _show(self, content: str) -> list[str]:
        text = content if self._text is None else self._text.add(content)
        return [text] if text else []

    def _think(self, content: str) -> None:
        listener = current_scope().thoughts if self._is_shown else None
        if listener is None or not content:
            return
        self._thought_id = self._thought_id or identity.new_message_id()
        path = [*(name for name, _ in current_path()), self._agent]
        metadata = {PATH: "/".join(path)} if len(path) > 1 else {}
        listener(
            ThoughtChunkEvent(source=self._agent, thought=content, full_message_id=self._thought_id, metadata=metadata)
        )
