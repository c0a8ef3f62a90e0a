"""How a question leaves a turn and an answer enters one: plain AutoGen `HandoffMessage` metadata.

Custom message types are not registered through nested teams and do not survive a component dump; metadata does both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    UserInputRequestedEvent,
)
from pydantic import TypeAdapter, ValidationError

from upcall.errors import SchemaMismatch
from upcall.questions import Answer, Outcome, Question

QUESTIONS = "upcall.questions"
ANSWERS = "upcall.answers"
PATH = "upcall.path"
OUTPUT = "upcall.output"
OUTCOME = "upcall.outcome"
CLASSIFICATION = "upcall.classification"
PLAN = "upcall.plan"
CLARIFIER_LOG = "upcall.clarifier_log"
ERROR = "upcall.error"

Event: TypeAlias = BaseAgentEvent | BaseChatMessage

_questions = TypeAdapter(list[Question])
_answers = TypeAdapter(list[Answer])


def asking(questions: Sequence[Question], *, source: str, user_proxy: str, note: str = "") -> HandoffMessage:
    """The message that ends a turn because `questions` are open. Its content is readable without its metadata."""
    lines = ([note] if note else []) + [question.as_text() for question in questions]
    return HandoffMessage(
        source=source,
        target=user_proxy,
        content="\n".join(lines),
        metadata={QUESTIONS: _questions.dump_json(list(questions), exclude_none=True).decode()},
    )


def questions_in(message: object) -> list[Question]:
    """The open questions a message carries; none for any other message."""
    if not isinstance(message, HandoffMessage) or QUESTIONS not in message.metadata:
        return []
    try:
        return _questions.validate_json(message.metadata[QUESTIONS])
    except ValidationError as error:
        raise SchemaMismatch(
            f"The questions that {message.source!r} handed over cannot be read ({error.error_count()} problems): "
            "the agent was built with another version of upcall."
        ) from error


def answering(
    answers: Sequence[Answer], *, target: str, questions: Iterable[Question] = (), source: str = "user"
) -> HandoffMessage:
    """The message that brings `answers` back to `target`, the outermost agent of the questions' paths.

    Its content is what the rest of the group reads: question and answer, one pair a line where `questions` are given.
    The answer to a secret question is for its asker alone and stays out of it.
    """
    asked = {question.id: question for question in questions}
    return HandoffMessage(
        source=source,
        target=target,
        content="\n".join(_said(answer, asked.get(answer.question_id)) for answer in answers),
        metadata={ANSWERS: _answers.dump_json(list(answers), exclude_none=True).decode()},
    )


def _said(answer: Answer, question: Question | None) -> str:
    if question is None:
        return answer.as_text()
    secret = question.secret and answer.outcome is Outcome.ANSWERED
    return f"{_short(question.question)} - {'(given, and kept secret)' if secret else answer.as_text()}"


def _short(question: str, limit: int = 500) -> str:
    """The question, or how it begins: a plan under review would stand in every context once more with each answer."""
    return question if len(question) <= limit else f"{question[:limit]} ..."


def answers_in(message: BaseChatMessage) -> list[Answer]:
    """The answers a message carries; none for any other message."""
    if ANSWERS not in message.metadata:
        return []
    try:
        return _answers.validate_json(message.metadata[ANSWERS])
    except ValidationError as error:
        raise SchemaMismatch(
            f"The answers that {message.source!r} handed over cannot be read ({error.error_count()} problems): "
            "the message was written by another version of upcall."
        ) from error


def asked_event(question: Question, *, source: str) -> UserInputRequestedEvent:
    """The event that tells a stream of a new question: the request id is the question's id (decision X12)."""
    return UserInputRequestedEvent(
        request_id=question.id, source=source, metadata={QUESTIONS: _questions.dump_json([question]).decode()}
    )


def path_of(message: Event) -> tuple[str, ...]:
    """The agents from the outermost down to the one that produced this event."""
    return tuple(message.metadata.get(PATH, message.source).split("/"))


def under(parent: str, message: Event, call_id: str) -> Event:
    """The same event one level further up, with `parent` and its tool call in front of its path; that of a question in
    it too."""
    metadata = {**message.metadata, PATH: "/".join((parent, *path_of(message)))}
    if QUESTIONS in metadata:
        raised = [each.raised_through(parent, call_id) for each in _questions.validate_json(metadata[QUESTIONS])]
        metadata[QUESTIONS] = _questions.dump_json(raised, exclude_none=True).decode()
    return message.model_copy(update={"metadata": metadata})
