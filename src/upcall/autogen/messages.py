"""How a question leaves a turn and an answer enters one: in the metadata of plain AutoGen `HandoffMessage`s.

Custom message types are not registered through nested teams and do not survive a component dump; metadata does both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias, TypeVar

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core.models import AssistantMessage, FunctionExecutionResult, LLMMessage, UserMessage
from pydantic import ConfigDict, TypeAdapter, ValidationError

from upcall import identity
from upcall.autogen.thoughts import split_thoughts
from upcall.errors import SchemaMismatch
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import MAX_QUESTION_CHARS, Question
from upcall.runs.steering import SteeringMessage
from upcall.text import shorten

QUESTIONS = "upcall.questions"
CLARIFICATIONS = "upcall.clarifications"
ANSWERS = "upcall.answers"
PATH = "upcall.path"
RUN = "upcall.run"
TEXT = "upcall.text"
OUTPUT = "upcall.output"
OUTCOME = "upcall.outcome"
STOPPED = "upcall.stopped"
CHECKED = "upcall.checked"
FRUITLESS = "upcall.fruitless"
"""Marks a report that changed nothing and rests on nothing that was found."""
WARNINGS = "upcall.warnings"
STEERING = "upcall.steering"
"""Marks what the human wrote to an agent at work, where the agent takes it in, with the message's id."""
CLASSIFICATION = "upcall.classification"
PLAN = "upcall.plan"
CLARIFIER_LOG = "upcall.clarifier_log"
ASK_VERDICT = "upcall.ask_verdict"
"""What was found about whether a task lacks something, before it came to the clarifier."""
ERROR = "upcall.error"
REPLY_TO = "upcall.reply_to"
"""Marks a task in the user's own words, in a plain script, as the answer to the question with this id."""
ASKING = "upcall.asking"
REPEATED = "upcall.repeated"
"""Marks the request and the execution event of a batch in which a model asked the user: the places of those calls."""

_SHOWN_CHARS = 500
"""How much of a question its answer repeats: a plan under review would otherwise fill every context once more."""

USER = "user"
"""The name of the user proxy of the outermost group chat."""

NOTES = "upcall.notes"
REMINDER = "system"
"""The source of feedback to a model on its own replies, which is not a task."""

Event: TypeAlias = BaseAgentEvent | BaseChatMessage
MessageT = TypeVar("MessageT", bound=BaseChatMessage)

_RESOLVERS = (AnsweredBy.LEDGER, AnsweredBy.FACTS, AnsweredBy.PARENT)
"""Who may answer in the human's place; an answer that nobody gave explains itself."""

READ_MESSAGES = 128
"""How many messages' questions, and as many messages' answers, stay cached as parsed: those of a long thread."""

_questions = TypeAdapter(list[Question], config=ConfigDict(defer_build=True))
_answers = TypeAdapter(list[Answer], config=ConfigDict(defer_build=True))


@lru_cache(maxsize=READ_MESSAGES)
def _read_questions(text: str) -> tuple[Question, ...]:
    """Parse questions once: a thread, with all questions ever asked, is read again at each turn."""
    return tuple(_questions.validate_json(text))


@lru_cache(maxsize=READ_MESSAGES)
def _read_answers(text: str) -> tuple[Answer, ...]:
    return tuple(_answers.validate_json(text))


def is_question(message: object) -> bool:
    """Return whether a message says only its questions, which the group receives again with their answers."""
    return isinstance(message, HandoffMessage) and QUESTIONS in message.metadata and not message.context


def question_message(questions: Sequence[Question], *, source: str, user_proxy: str, note: str = "") -> HandoffMessage:
    """Return the message that ends a turn because `questions` are open. Its content is readable without its
    metadata."""
    lines = ([note] if note else []) + [question.as_text() for question in questions]
    return HandoffMessage(
        id=identity.new_message_id(),
        source=source,
        target=user_proxy,
        content="\n".join(lines),
        metadata=_question_metadata(questions),
    )


def handoff_question(message: HandoffMessage, words: str = "") -> HandoffMessage:
    """Return a stock hand-off to the user with its question: what its agent said, else the hand-off's own text."""
    question = Question(
        id=message.id,
        question=(words.strip() or message.content.strip())[:MAX_QUESTION_CHARS] or "What now?",
        asked_at=message.created_at,
        path=(message.source,),
    )
    return message.model_copy(update={"metadata": {**message.metadata, **_question_metadata([question])}})


def words_before_handoff(known: Sequence[LLMMessage]) -> str:
    """Return the last text of an agent in its context, from the reply that hands off or an earlier one; empty if it
    has said nothing since it last received a message."""
    for message in reversed(known):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            words = message.content if isinstance(message.content, str) else message.thought
            words = split_thoughts(words or "").text
            if words.strip():
                return words
    return ""


def _question_metadata(questions: Sequence[Question]) -> dict[str, str]:
    return {QUESTIONS: dump_questions(questions)}


def dump_questions(questions: Sequence[Question]) -> str:
    """Return questions in the form of the metadata."""
    return _questions.dump_json(list(questions), exclude_none=True).decode()


def parse_questions(text: str) -> list[Question]:
    """Return the questions that `dump_questions` got.

    Raises:
        pydantic.ValidationError: they are damaged.
    """
    return list(_read_questions(text))


def message_questions(message: object) -> list[Question]:
    """Return the open questions a message carries; none for any other message."""
    if not isinstance(message, HandoffMessage) or QUESTIONS not in message.metadata:
        return []
    try:
        return parse_questions(message.metadata[QUESTIONS])
    except ValidationError as error:
        raise SchemaMismatch(
            f"The questions that {message.source!r} handed off cannot be read ({error.error_count()} problems): "
            "the agent was built with another version of upcall."
        ) from error


def extract_questions(message: object, user_proxy: str) -> list[Question]:
    """Return the questions that a message asks of `user_proxy`, each with the path from its sender.

    A stock agent's hand-off to the user counts as one, in its own words; its id is that of the message.
    """
    if not isinstance(message, HandoffMessage) or message.target != user_proxy:
        return []
    if message.source == user_proxy and QUESTIONS not in message.metadata:
        return []  # The user's own words; a `UserProxyAgent` of that name asks with questions.
    asked = message_questions(message) or message_questions(handoff_question(message))
    return [each if each.path else each.model_copy(update={"path": (message.source,)}) for each in asked]


def answer_message(
    answers: Sequence[Answer], *, target: str, questions: Iterable[Question] = (), source: str = "user"
) -> HandoffMessage:
    """Return the message that brings `answers` back to `target`, the outermost agent of the questions' paths.

    Its content is for the rest of the group: question and answer, one pair per line if `questions` are given. The
    answer to a secret question is for its asker alone and stays out of it.
    """
    asked = {question.id: question for question in questions}
    return HandoffMessage(
        id=identity.new_message_id(),
        source=source,
        target=target,
        content="\n".join(dict.fromkeys(_describe_answer(answer, asked.get(answer.question_id)) for answer in answers)),
        metadata={ANSWERS: _answers.dump_json(list(answers), exclude_none=True).decode()},
    )


def _describe_answer(answer: Answer, question: Question | None) -> str:
    if question is None:
        return answer.as_text()
    secret = question.secret and answer.outcome is Outcome.ANSWERED
    answer_text = "(given, and kept secret)" if secret else answer.as_text()
    return f"{shorten(question.question, _SHOWN_CHARS, ' ...')} - {answer_text}"


def _clarifications(questions: Sequence[Question]) -> str:
    """Return the questions as seed S1 describes them to richer interfaces (S1-22)."""
    return json.dumps([each.as_clarification() for each in questions], ensure_ascii=False)


def message_answers(message: BaseChatMessage) -> list[Answer]:
    """Return the answers a message carries; none for any other message."""
    if ANSWERS not in message.metadata:
        return []
    try:
        return list(_read_answers(message.metadata[ANSWERS]))
    except ValidationError as error:
        raise SchemaMismatch(
            f"The answers that {message.source!r} handed off cannot be read ({error.error_count()} problems): "
            "the message was written by another version of upcall."
        ) from error


def list_answers(messages: Iterable[BaseChatMessage]) -> list[Answer]:
    """Return the answers that all these messages carry, such as those of a checkpoint's inbox."""
    return [answer for message in messages for answer in message_answers(message)]


def asked_event(question: Question, *, source: str) -> UserInputRequestedEvent:
    """Return the event that announces a new question in a stream: its request id is the question's id (decision
    X12)."""
    return UserInputRequestedEvent(
        id=identity.new_message_id(),
        request_id=question.id,
        source=source,
        metadata={
            QUESTIONS: _questions.dump_json([question]).decode(),
            CLARIFICATIONS: _clarifications([question]),
        },
    )


def asking_metadata(places: Sequence[int]) -> dict[str, str]:
    """Return the metadata of an event of a batch whose calls at these places asked the user."""
    return {ASKING: json.dumps(list(places))} if places else {}


def without_asking(message: Event) -> Event | None:
    """Return an event of a batch without the calls that asked the user; None if nothing else is left. Any other message
    is returned as it is."""
    if ASKING not in message.metadata or not isinstance(message, ToolCallRequestEvent | ToolCallExecutionEvent):
        return message
    places = set(json.loads(message.metadata[ASKING]))
    left = [each for place, each in enumerate(message.content) if place not in places]
    return message.model_copy(update={"content": left}) if left else None


def executed_event(
    results: Sequence[FunctionExecutionResult],
    *,
    invalid: Sequence[str],
    source: str,
    warnings: Sequence[str] = (),
    asking: Sequence[int] = (),
    repeated: Sequence[str] = (),
) -> ToolCallExecutionEvent:
    """Return the event that reports the results of a batch in a stream, why its `invalid` questions were invalid, and
    what the user is warned of; the calls at the places `asking` asked the user, and those with the ids `repeated` were
    not made, but have the result of an earlier one."""
    refused = [{"version": "v1", "kind": "clarification", "invalid": True, "reason": reason} for reason in invalid]
    metadata = {CLARIFICATIONS: json.dumps(refused, ensure_ascii=False)} if refused else {}
    metadata |= {WARNINGS: dump_warnings(warnings)} if warnings else {}
    metadata |= asking_metadata(asking)
    metadata |= {REPEATED: json.dumps(list(repeated))} if repeated else {}
    return ToolCallExecutionEvent(id=identity.new_message_id(), source=source, content=list(results), metadata=metadata)


class ThoughtChunkEvent(ModelClientStreamingChunkEvent, defer_build=True):
    """A piece of what a model thinks, as it arrives: ``thought``.

    Its ``content`` is empty: who joins pieces of text gets nothing of it. Its text is what AutoGen's `Console` prints,
    which leaves out the text of the event behind the pieces: a `ThoughtEvent` with the whole. All pieces of one reply
    have the same ``full_message_id``.
    """

    content: str = ""
    thought: str
    type: Literal["ThoughtChunkEvent"] = "ThoughtChunkEvent"  # type: ignore[assignment]  # another than its base's

    def to_text(self) -> str:
        """Return the piece of the thought."""
        return self.thought


def steering_event(message: SteeringMessage, source: str) -> ThoughtEvent:
    """Return the event of an agent that takes in what the human wrote to it."""
    return ThoughtEvent(
        id=identity.new_message_id(), source=source, content=message.text, metadata={STEERING: message.id}
    )


def answered_event(question: Question, answer: Answer, *, source: str) -> ThoughtEvent:
    """Return the event that reports in a stream a question answered before anybody was asked, with who answered and
    why."""
    secret = question.secret and answer.outcome is Outcome.ANSWERED
    shown = answer.model_copy(update={"text": "", "selected": (), "sealed": False}) if secret else answer
    why = f" ({answer.by.value}: {answer.reason})" if answer.by in _RESOLVERS else ""
    return ThoughtEvent(
        id=identity.new_message_id(),
        source=source,
        content=_describe_answer(answer, question) + why,
        metadata={
            QUESTIONS: dump_questions([question]),
            ANSWERS: _answers.dump_json([shown], exclude_none=True).decode(),
        },
    )


def dump_warnings(warnings: Sequence[str]) -> str:
    """Return warnings in the form of the metadata."""
    return json.dumps(list(warnings), ensure_ascii=False)


def event_warnings(event: Event) -> list[str]:
    """Return the warnings about its agent's work that an event carries."""
    return [str(each) for each in json.loads(event.metadata.get(WARNINGS, "[]"))]


def with_warnings(message: MessageT, warnings: Sequence[str]) -> MessageT:
    """Return the message with these warnings before those it carries."""
    if not warnings:
        return message
    listed = dump_warnings([*warnings, *event_warnings(message)])
    return message.model_copy(update={"metadata": {**message.metadata, WARNINGS: listed}})


def add_warnings(text: str, warnings: Sequence[str]) -> str:
    """Return the text with the warnings below it, for an agent that uses it further."""
    return "\n".join([text, "", "Warnings:", *(f"- {each}" for each in warnings)]) if warnings else text


def event_questions(event: Event) -> list[Question]:
    """Return the questions an event reports, asked or answered."""
    return _questions.validate_json(event.metadata[QUESTIONS]) if QUESTIONS in event.metadata else []


def event_path(message: Event) -> tuple[str, ...]:
    """Return the agents from the outermost down to the one that produced this event."""
    return tuple(message.metadata.get(PATH, message.source).split("/"))


def name_text(event: Event, segment: int, number: int) -> Event:
    """Return a piece of text with the name of its text: its number among the agent's texts in a segment."""
    return event.model_copy(update={"metadata": {**event.metadata, TEXT: f"{segment}-{number}"}})


def prefix_path(parent: str, message: Event, call_id: str) -> Event:
    """Return the same event one level further up, its path and that of a question in it prefixed with `parent` and its
    tool call."""
    metadata = {**message.metadata, PATH: "/".join((parent, *event_path(message)))}
    if QUESTIONS in metadata:
        raised = [each.raise_through(parent, call_id) for each in _questions.validate_json(metadata[QUESTIONS])]
        metadata[QUESTIONS] = dump_questions(raised)
    return message.model_copy(update={"metadata": metadata})
