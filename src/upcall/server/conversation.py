"""The transcript of a run as a conversation: who works for whom, calls with their results, questions with answers.

A transcript is flat: each entry names its agent by a path. Here what a nested agent did stands in the part of the call
by which it was called, however many agents worked at once; a result stands with its call, and an answer with its
question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from upcall.questions.tool_call import NAME_CHARS, VALUE_CHARS
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.text import one_line
from upcall.ui.diagrams.labels import AgentPath

SUMMARY_CHARS = 140


@dataclass
class ConversationPart:
    """One part of a conversation.

    Attributes:
        number: the place of its first entry in the transcript; it never changes.
        entry: that entry; for a nested agent the call of it, or its own first entry where nobody called it.
        agent: the path of the nested agent whose parts these are; empty if it is none.
        result: what the call returned, once it did.
        answer: the answer to a question, once there is one.
        parts: what the nested agent did, in order.
        last: the place of the last entry in it.
    """

    number: int
    entry: TranscriptEntry
    agent: AgentPath = ()
    result: TranscriptEntry | None = None
    answer: TranscriptEntry | None = None
    parts: list[ConversationPart] = field(default_factory=list)
    last: int = 0

    @property
    def kind(self) -> EntryKind:
        """The kind of its first entry."""
        return self.entry.kind

    @property
    def is_call(self) -> bool:
        """Whether it begins with a call."""
        return self.kind is EntryKind.CALL

    @property
    def is_pending(self) -> bool:
        """Whether it is a call that has not returned."""
        return self.is_call and self.result is None

    @property
    def failed(self) -> bool:
        """Whether the call returned an error."""
        return self.result.failed if self.result is not None else self.entry.failed

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """The arguments of the call: each name, and its value as text with its own lines."""
        return read_arguments(self.entry.text)

    @property
    def summary(self) -> str:
        """What a tool was called with, in a few words: the first argument, and others that are short."""
        values = [value.strip() for _, value in self.arguments]
        shown = [value for place, value in enumerate(values) if not place or len(value) <= VALUE_CHARS]
        return one_line(", ".join(one_line(value[:SUMMARY_CHARS]) for value in shown if value), SUMMARY_CHARS)

    @property
    def outcome(self) -> str:
        """The first words of the result."""
        return one_line(self.result.text[: 4 * SUMMARY_CHARS], SUMMARY_CHARS) if self.result is not None else ""


@dataclass(frozen=True)
class ConversationTree:
    """The parts of a run's transcript, oldest first.

    Attributes:
        parts: the parts.
        paths: the agents in it, in the order of their first entry.
        turn: the outermost agent that had the turn last.
        length: how many entries it was made from.
    """

    parts: Sequence[ConversationPart] = ()
    paths: Sequence[AgentPath] = ()
    turn: AgentPath = ()
    length: int = 0

    @classmethod
    def of(cls, entries: Sequence[TranscriptEntry]) -> ConversationTree:
        """Make the conversation of a whole transcript."""
        builder = _Builder()
        for number, entry in enumerate(entries):
            builder.add(number, entry)
        return cls(builder.parts, [*builder.paths], builder.turn, len(entries))

    def window(self, first: int, end: int) -> list[ConversationPart]:
        """Return the parts with the entries from `first` up to `end`; what a nested agent did before is left out."""
        return [*_window(self.parts, first, end)]

    def list_pending(self) -> list[tuple[AgentPath, ConversationPart]]:
        """List the calls of the agent that has the turn, and of those it called, that have not returned: each with its
        caller."""
        return [*_list_pending(self.parts, self.turn)]


class _Builder:
    def __init__(self) -> None:
        self.parts: list[ConversationPart] = []
        self.paths: dict[AgentPath, None] = {}
        self.turn: AgentPath = ()
        self._nested: dict[AgentPath, ConversationPart] = {}
        self._calls: dict[tuple[AgentPath, str], list[ConversationPart]] = {}
        self._questions: dict[str, ConversationPart] = {}

    def add(self, number: int, entry: TranscriptEntry) -> None:
        kind, path = entry.kind, entry.path
        if kind is EntryKind.ANSWER and (asked := self._questions.get(entry.name)) is not None:
            asked.answer = entry
            return
        if kind not in (EntryKind.TASK, EntryKind.ANSWER):
            if path not in self.paths:
                self.paths |= dict.fromkeys(path[:depth] for depth in range(1, len(path) + 1))
            self.turn = (entry.name,) if kind is EntryKind.HANDOFF and len(path) == 1 else path[:1]
        if kind is EntryKind.RESULT and (calls := self._calls.get((path, entry.name))):
            self._end(calls.pop(0), number, entry)
            return
        part = ConversationPart(number, entry, last=number)
        self._list_of(path, part).append(part)
        if kind is EntryKind.CALL:
            self._calls.setdefault((path, entry.name), []).append(part)
        elif kind is EntryKind.QUESTION:
            self._questions[entry.name] = part

    def _end(self, call: ConversationPart, number: int, result: TranscriptEntry) -> None:
        call.result = result
        call.last = number
        for path in [path for path in self._nested if path[: len(call.agent)] == call.agent] if call.agent else ():
            del self._nested[path]  # What comes next of it belongs to its next call.
        self._extend(result.path, number)

    def _extend(self, path: AgentPath, number: int) -> None:
        for depth in range(2, len(path) + 1):
            if (above := self._nested.get(path[:depth])) is not None:
                above.last = number

    def _list_of(self, path: AgentPath, part: ConversationPart) -> list[ConversationPart]:
        """Return the list where a part of the agent at `path` belongs."""
        if len(path) < 2:
            return self.parts
        if path not in self._nested:
            self._nested[path] = self._open(path, part)
        self._extend(path, part.number)
        return self._nested[path].parts

    def _open(self, path: AgentPath, part: ConversationPart) -> ConversationPart:
        above = self._list_of(path[:-1], part)
        waiting = [call for call in self._calls.get((path[:-1], path[-1]), ()) if not call.agent]
        opened = waiting[0] if waiting else ConversationPart(part.number, part.entry, last=part.number)
        opened.agent = path
        if not waiting:
            above.append(opened)
        return opened


def _window(parts: Iterable[ConversationPart], first: int, end: int) -> Iterator[ConversationPart]:
    for part in parts:
        if part.number >= end or part.last < first:
            continue
        yield replace(part, parts=[*_window(part.parts, first, end)]) if part.parts else part


def _list_pending(parts: Iterable[ConversationPart], path: AgentPath) -> Iterator[tuple[AgentPath, ConversationPart]]:
    for part in parts:
        if part.is_pending and part.entry.path == path:
            yield path, part
            if part.agent:
                yield from _list_pending(part.parts, part.agent)


def read_arguments(text: str) -> list[tuple[str, str]]:
    """Read the arguments of a call, JSON or whatever a model wrote: each name, and its value as text."""
    try:
        given = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        given = text
    if not isinstance(given, dict):
        return [("", text)]
    return [
        (one_line(name, NAME_CHARS), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in given.items()
    ]
