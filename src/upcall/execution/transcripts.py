"""Turn a segment's events into entries of the run's transcript."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)

from upcall import identity
from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.autogen.begun_texts import BegunText, BegunTexts
from upcall.autogen.messages import (
    ANSWERS,
    QUESTIONS,
    STEERING,
    USER,
    Event,
    event_path,
    event_questions,
    extract_questions,
    message_answers,
)
from upcall.progress import PROGRESS
from upcall.questions.question import Question
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.text import shorten

MAX_TEXT_CHARS = 200_000
"""The maximum number of characters kept of one text."""

MAX_ENTRIES = 20_000
"""The maximum number of entries kept of one segment: the first ones."""


class TranscriptRecorder:
    """The entries of one segment.

    Args:
        task: the task of the run, which is stored with it and not again.
        asked: the ids of questions of earlier segments, which their askers ask again.
        keep: whether to keep any.
    """

    def __init__(self, task: str, asked: Iterable[str] = (), *, keep: bool = True) -> None:
        self.entries: list[TranscriptEntry] = []
        self._task, self._keep, self._asked = task, keep, set(asked)
        self._known = Counter[tuple[object, ...]]()
        self._highest = Counter[tuple[str, ...]]()
        """By path: the highest number of a text."""
        self._of_questions = set[tuple[object, ...]]()
        self._begun = BegunTexts()

    def continue_from(self, stored: Sequence[TranscriptEntry]) -> None:
        """Start with the entries of an interrupted segment that is repeated now: each entry keeps its place, and
        repeated entries are kept once."""
        self.entries = [*stored]
        self._known = Counter(map(_words_of, stored))
        self._of_questions = {(each.kind, each.name) for each in stored if each.kind.is_of_question}
        for each in stored:
            self._highest[each.path] = max(self._highest[each.path], each.number)

    def add(self, event: Event) -> None:
        """Add the content of an event."""
        begun = self._begun.end(event)
        for entry in self._read(event):
            self._add(self._number(entry, begun) if entry.kind.is_text else entry)

    def add_answers(self, question_ids: Iterable[str]) -> None:
        """Record that answers to these questions reached their askers while others worked: no message brings them."""
        for question_id in question_ids:
            self._add(TranscriptEntry(EntryKind.ANSWER, (USER,), identity.now(), name=question_id))

    def _add(self, entry: TranscriptEntry) -> None:
        if not self._keep or len(self.entries) >= MAX_ENTRIES:
            return
        if self._known[words := _words_of(entry)] > 0:
            self._known[words] -= 1
        elif not entry.kind.is_of_question or (mention := (entry.kind, entry.name)) not in self._of_questions:
            self.entries.append(entry)
            if entry.kind.is_of_question:
                self._of_questions.add(mention)

    def _number(self, entry: TranscriptEntry, begun: BegunText | None) -> TranscriptEntry:
        """Return a text with its number."""
        if begun is None and self._known[_words_of(entry)] > 0:
            return entry
        return replace(entry, number=begun.number if begun is not None else self._next_number(entry.path))

    def _next_number(self, path: tuple[str, ...]) -> int:
        self._highest[path] += 1
        return self._highest[path]

    def number_text(self, piece: ModelClientStreamingChunkEvent) -> int:
        """Return the number, from 1 on, of the text in this segment to which an agent's piece belongs."""
        begun = self._begun.add(piece)
        begun.number = begun.number or self._next_number(begun.path)
        return begun.number

    def _read(self, event: Event) -> Iterator[TranscriptEntry]:
        path = event_path(event)

        def entry(kind: EntryKind, text: str = "", name: str = "", *, failed: bool = False) -> TranscriptEntry:
            return TranscriptEntry(kind, path, event.created_at, shorten(text, MAX_TEXT_CHARS), name, failed)

        match event:
            case ModelClientStreamingChunkEvent():
                return
            case ThoughtEvent() if PROGRESS in event.metadata:
                return
            case ThoughtEvent() if STEERING in event.metadata:
                yield replace(entry(EntryKind.TASK, event.content, "/".join(path)), path=(USER,))
            case ThoughtEvent() if ANSWERS in event.metadata:
                for question in event_questions(event):
                    if self._is_new(question):
                        yield entry(EntryKind.QUESTION, name=question.id)
                    yield entry(EntryKind.ANSWER, name=question.id)
            case UserInputRequestedEvent():
                for question in filter(self._is_new, event_questions(event)):
                    yield entry(EntryKind.QUESTION, name=question.id)
            case HandoffMessage() if ANSWERS in event.metadata:
                for answer in message_answers(event):
                    yield entry(EntryKind.ANSWER, name=answer.question_id)
            case HandoffMessage() if asked := extract_questions(event, USER):
                for question in filter(self._is_new, asked):  # Of a stock agent, in its own words.
                    yield entry(EntryKind.QUESTION, name=question.id)
            case HandoffMessage():
                yield entry(EntryKind.HANDOFF, event.content, event.target)
            case ToolCallRequestEvent():
                for call in event.content:
                    if call.name != ASK_USER:
                        yield entry(EntryKind.CALL, call.arguments, call.name)
            case ToolCallExecutionEvent():
                for result in event.content:
                    if result.name != ASK_USER or result.is_error:
                        yield entry(EntryKind.RESULT, result.content, result.name, failed=bool(result.is_error))
            case _ if QUESTIONS in event.metadata:
                return
            case BaseChatMessage() if path == (USER,):
                text = event.to_text()
                yield entry(EntryKind.TASK, "" if text == self._task else text)
            case BaseChatMessage():
                yield entry(EntryKind.MESSAGE, event.to_text())
            case _:
                yield entry(EntryKind.THOUGHT, event.to_text())

    def _is_new(self, question: Question) -> bool:
        """Note that a question was asked; return whether that was the first time."""
        is_new = question.id not in self._asked
        self._asked.add(question.id)
        return is_new


def _words_of(entry: TranscriptEntry) -> tuple[object, ...]:
    return entry.kind, entry.path, entry.text, entry.name, entry.failed
