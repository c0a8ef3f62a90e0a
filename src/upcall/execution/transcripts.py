"""What a segment's events say, as entries of the run's transcript."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)

from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.autogen.messages import (
    ANSWERS,
    QUESTIONS,
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
"""How much is kept of one text."""

MAX_ENTRIES = 20_000
"""How many entries are kept of one segment: the first ones."""


class TranscriptRecorder:
    """The entries of one segment.

    Args:
        task: the task of the run, which is stored with it and not again.
        asked: the ids of questions of earlier segments, which those who asked put again.
        keep: whether any are kept.
    """

    def __init__(self, task: str, asked: Iterable[str] = (), *, keep: bool = True) -> None:
        self.entries: list[TranscriptEntry] = []
        self._task, self._keep, self._asked = task, keep, set(asked)
        self._known = Counter[tuple[object, ...]]()

    def go_on_behind(self, stored: Sequence[TranscriptEntry]) -> None:
        """Begin with what was kept of a segment that was cut off, and is repeated now: each entry keeps its place, and
        what comes again is kept once."""
        self.entries = [*stored]
        self._known = Counter(map(_words_of, stored))

    def add(self, event: Event) -> None:
        """Keep what an event says."""
        if self._keep and len(self.entries) < MAX_ENTRIES:
            for entry in self._read(event):
                if self._known[words := _words_of(entry)] > 0:
                    self._known[words] -= 1
                else:
                    self.entries.append(entry)

    def _read(self, event: Event) -> Iterator[TranscriptEntry]:
        path = event_path(event)

        def entry(kind: EntryKind, text: str = "", name: str = "", *, failed: bool = False) -> TranscriptEntry:
            return TranscriptEntry(kind, path, event.created_at, shorten(text, MAX_TEXT_CHARS), name, failed)

        match event:
            case ModelClientStreamingChunkEvent():
                return
            case ThoughtEvent() if PROGRESS in event.metadata:
                return
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
        """Note that a question was put; return whether that was the first time."""
        is_new = question.id not in self._asked
        self._asked.add(question.id)
        return is_new


def _words_of(entry: TranscriptEntry) -> tuple[object, ...]:
    return entry.kind, entry.path, entry.text, entry.name, entry.failed
