"""What may be told of a question, and when: nobody hears of one before it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from autogen_agentchat.messages import ThoughtEvent, ToolCallRequestEvent, UserInputRequestedEvent

from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.autogen.messages import ANSWERS, PATH, QUESTIONS, Event, answered_event, event_path, event_questions
from upcall.policy.deadlines import attach_deadline
from upcall.questions.answer import Answer, AnsweredBy
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.questions.states import QuestionState

_Call: TypeAlias = tuple[tuple[str, ...], str]
"""The path of an agent, and the id of a call that it makes."""


class EventGate:
    """Holds the events back that tell of a question, until that is stored or the team's work is."""

    def __init__(self) -> None:
        self._held: dict[str, Event] = {}
        self._asked_by: dict[_Call, str] = {}
        """By call of ``ask_user``: the id of the event that holds it."""
        self._open_calls: dict[str, set[_Call]] = {}
        """By id of a held event: those of its calls whose questions were not told of."""
        self._told: set[_Call] = set()

    def let_through(self, event: Event, records: QuestionRecords) -> list[Event]:
        """Give what can be told with this event, whose questions are stored.

        That a question is published, or was answered at once, brings the call that asked; an answer takes the place of
        the request.
        """
        if isinstance(event, UserInputRequestedEvent):
            told = _as_told(event, records)
            return [] if told is None else [*self._release(event_questions(told)), told]
        if isinstance(event, ThoughtEvent) and ANSWERS in event.metadata:
            return [*self._release(event_questions(event)), event]
        calls = _asking_calls(event)
        if not calls and QUESTIONS not in event.metadata:
            return [event]
        if calls and calls <= self._told:
            return [event]
        self.hold(event)
        if calls:
            self._open_calls[event.id] = calls - self._told
            self._asked_by |= dict.fromkeys(calls, event.id)
        return []

    def hold(self, event: Event) -> None:
        """Hold an event back until the end."""
        self._held[event.id] = event

    def open(self) -> list[Event]:
        """Give all that is held, oldest first."""
        held, self._held = list(self._held.values()), {}
        return held

    def _release(self, questions: Sequence[Question]) -> list[Event]:
        calls = [(each.path, each.calls[-1]) for each in questions if each.calls]
        self._told.update(calls)
        released = []
        for call in calls:
            event_id = self._asked_by.get(call, "")
            left = self._open_calls.get(event_id, set())
            left.discard(call)
            if event_id in self._held and not left:
                released.append(self._held.pop(event_id))
        return released


def tell_answer(question: Question, answer: Answer) -> Event:
    """Make the event that tells what a question came to."""
    event = answered_event(question, answer, source=question.asker)
    return event.model_copy(update={"metadata": {**event.metadata, PATH: "/".join(question.path)}})


def _as_told(event: UserInputRequestedEvent, records: QuestionRecords) -> Event | None:
    """Give the request as it was published, or what the question came to where nobody is asked; None for a
    duplicate."""
    record = records.get(event.request_id)
    if record is None or record.state is QuestionState.DUPLICATE:
        return None
    if record.answer is not None and record.answer.by is AnsweredBy.POLICY:
        return tell_answer(record.question, record.answer)
    return attach_deadline(event, record.question)


def _asking_calls(event: Event) -> set[_Call]:
    if not isinstance(event, ToolCallRequestEvent):
        return set()
    path = event_path(event)
    return {(path, call.id) for call in event.content if call.name == ASK_USER}
