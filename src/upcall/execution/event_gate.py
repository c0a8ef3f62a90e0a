"""Hold events back so that nobody learns of a question before it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from autogen_agentchat.messages import ThoughtEvent, ToolCallRequestEvent, UserInputRequestedEvent

from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.autogen.messages import ANSWERS, PATH, QUESTIONS, Event, answered_event, event_path, event_questions
from upcall.execution.deadline_events import attach_deadline
from upcall.questions.answer import Answer, AnsweredBy
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.questions.states import QuestionState

_CallKey: TypeAlias = tuple[tuple[str, ...], str]
"""The path of an agent, and the id of a call that it makes."""


class EventGate:
    """Holds back the events that mention a question, until the question or the team's work is stored."""

    def __init__(self) -> None:
        self._held: dict[str, Event] = {}
        self._asked_by: dict[_CallKey, str] = {}
        """By call of ``ask_user``: the id of its event."""
        self._open_calls: dict[str, set[_CallKey]] = {}
        """By id of a held event: its calls whose questions were not announced yet."""
        self._emitted: set[_CallKey] = set()
        self._is_closed = False
        self._late: list[Event] = []
        """The events that came while it was closed."""

    def close(self) -> None:
        """Let nothing through until the end: the next question is stored with the pause, and what follows it must not
        be emitted before it."""
        self._is_closed = True

    def let_through(self, event: Event, records: QuestionRecords) -> list[Event]:
        """Return the events that can be released with this one, whose questions are stored.

        Publishing a question, or answering it at once, releases the call that asked; an answer replaces
        the request.
        """
        if self._is_closed:
            self._late.append(event)
            return []
        if isinstance(event, UserInputRequestedEvent):
            emitted = _as_emitted(event, records)
            return [] if emitted is None else [*self._release(event_questions(emitted)), emitted]
        if isinstance(event, ThoughtEvent) and ANSWERS in event.metadata:
            return [*self._release(event_questions(event)), event]
        calls = _asking_calls(event)
        if not calls and QUESTIONS not in event.metadata:
            return [event]
        if calls and calls <= self._emitted:
            return [event]
        self.hold(event)
        if calls:
            self._open_calls[event.id] = calls - self._emitted
            self._asked_by |= dict.fromkeys(calls, event.id)
        return []

    def hold(self, event: Event) -> None:
        """Hold an event back until the end."""
        self._held[event.id] = event

    def open(self, records: QuestionRecords) -> list[Event]:
        """Return the events that came while it was closed, whose questions are stored now, and those still held, each
        oldest first."""
        self._is_closed = False
        late, self._late = self._late, []
        emitted = [each for event in late for each in self.let_through(event, records)]
        held, self._held = list(self._held.values()), {}
        return [*emitted, *held]

    def _release(self, questions: Sequence[Question]) -> list[Event]:
        calls = [(each.path, each.calls[-1]) for each in questions if each.calls]
        self._emitted.update(calls)
        released = []
        for call in calls:
            event_id = self._asked_by.get(call, "")
            left = self._open_calls.get(event_id, set())
            left.discard(call)
            if event_id in self._held and not left:
                released.append(self._held.pop(event_id))
        return released


def answer_event(question: Question, answer: Answer) -> Event:
    """Make the event that reports the outcome of a question."""
    event = answered_event(question, answer, source=question.asker)
    return event.model_copy(update={"metadata": {**event.metadata, PATH: "/".join(question.path)}})


def _as_emitted(event: UserInputRequestedEvent, records: QuestionRecords) -> Event | None:
    """Return the request as published, or the outcome of the question if nobody is asked; None for a
    duplicate."""
    record = records.get(event.request_id)
    if record is None or record.state is QuestionState.DUPLICATE:
        return None
    if record.answer is not None and record.answer.by is AnsweredBy.POLICY:
        return answer_event(record.question, record.answer)
    return attach_deadline(event, record.question)


def _asking_calls(event: Event) -> set[_CallKey]:
    if not isinstance(event, ToolCallRequestEvent):
        return set()
    path = event_path(event)
    return {(path, call.id) for call in event.content if call.name == ASK_USER}
