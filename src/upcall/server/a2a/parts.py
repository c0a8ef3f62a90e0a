"""Questions as parts of a message of A2A, and the parts of a client's message as a task or as answers."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from a2a.helpers import get_data_parts, get_text_parts, new_data_part, new_text_part
from a2a.types import Message, Part
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from pydantic import JsonValue, ValidationError

from upcall.errors import CallerError
from upcall.questions.matching import AnswerValue, match_answers
from upcall.questions.question import Question
from upcall.server.answer_schema import describe_answer
from upcall.server.bodies import Answers, Start, explain_validation
from upcall.server.own_choice import ELSEWHERE
from upcall.server.uploads import Sent

OPTIONS = "upcall"
"""Where the metadata of a message has the options of a start."""


class TaskMessage(NamedTuple):
    """What a client's message asks for."""

    wanted: Start
    documents: list[Sent]
    images: list[Sent]

    @property
    def digest(self) -> str:
        """What is the same for the same task, with the same files and options."""
        files = [sha256(each.content).hexdigest() for each in (*self.documents, *self.images)]
        text = json.dumps([self.wanted.as_content(), *files], sort_keys=True)
        return sha256(text.encode(errors="replace")).hexdigest()


def describe_questions(questions: Sequence[Question]) -> Iterator[Part]:
    """Yield the parts of the message that asks some questions: each as text for people, and as data for programs."""
    for number, question in enumerate(questions, 1):
        text = question.as_text()
        if needs_person(question):
            text += f"\n  No program answers this: {ELSEWHERE}"
        yield new_text_part(text if len(questions) == 1 else f"{number}. {text}", media_type="text/plain")
        yield new_data_part(describe_question(question), media_type="application/json")


def describe_question(question: Question) -> dict[str, JsonValue]:
    """Describe a question as data: what it is named by in an answer, who asks, and what may be answered."""
    return {
        "id": question.id,
        "path": [*question.path],
        "question": question.question,
        "type": question.clarification_type.value,
        "reason": question.context,
        "options": [each.model_dump(mode="json", exclude_none=True) for each in question.options],
        "schema": describe_answer(question),
        "default": question.default,
        "required": question.required,
        "expires_at": None if question.expires_at is None else question.expires_at.isoformat(),
        "needs_person": needs_person(question),
    }


def needs_person(question: Question) -> bool:
    """Return whether no program may answer it: a secret, or a risk that only a person takes."""
    return question.secret or question.is_risk


def has_data(message: Message) -> bool:
    """Return whether a message has structured parts."""
    return any(each.WhichOneof("content") == "data" for each in message.parts)


def read_answers(message: Message, questions: Sequence[Question]) -> Mapping[str, AnswerValue]:
    """Read the answers in a message, by the ids of their questions: from its data, else from its text.

    Args:
        message: what the client sent.
        questions: the open questions that it may answer, in the order in which they are shown.

    Raises:
        CallerError: the data holds no answers.
        AnswerRefused: the text does not say which question it answers, or does not fit.
    """
    if any(each.WhichOneof("content") in ("raw", "url") for each in message.parts):
        raise CallerError("An answer is text or data; it takes no files. Send files with the next task.")
    if not has_data(message):
        text = "\n".join(get_text_parts(message.parts)).strip()
        if len(questions) == 1:
            return {questions[0].id: text}
        return {each.question_id: each.text for each in match_answers(text, questions)}
    given: dict[str, AnswerValue] = {}
    for data in _read_data(message.parts):
        try:
            given.update(Answers.model_validate(data).read())
        except ValidationError as error:
            why = explain_validation(error.errors())
            raise CallerError(f'{why} Send the data {{"answers": {{"ID": ANSWER}}}}.') from error
    return given


def read_text(message: Message) -> str:
    """Read a message to agents at work: its text.

    Raises:
        CallerError: it has other parts, which no agent takes in at work.
    """
    if any(not each.HasField("text") for each in message.parts):
        raise CallerError("Agents at work read text alone. Send files with the next task.")
    return "\n".join(get_text_parts(message.parts))


def read_task(message: Message) -> TaskMessage:
    """Read a task from a message: its text and data, its files, and the options in its metadata.

    Raises:
        CallerError: it has parts that no agent reads, or unknown options.
    """
    texts, documents, images = list[str](), list[Sent](), list[Sent]()
    for part in message.parts:
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
            case "data":
                texts += [json.dumps(each, ensure_ascii=False) for each in _read_data([part])]
            case "raw" if part.media_type.startswith("image/"):
                images.append(Sent(part.filename or f"image {len(images) + 1}", part.raw))
            case "raw":
                ending = mimetypes.guess_extension(part.media_type) or ".txt"
                documents.append(Sent(part.filename or f"document-{len(documents) + 1}{ending}", part.raw))
            case kind:
                raise CallerError(f"A part of kind {kind!r} is not taken: send text, data, or the bytes of files.")
    options = _as_json(MessageToDict(message.metadata)).get(OPTIONS, {})
    if not isinstance(options, dict) or {"task", "follows"} & options.keys():
        raise CallerError(f"metadata.{OPTIONS} is an object of options; task and follows are what the message says.")
    try:
        wanted = Start.model_validate({**options, "task": "\n".join(texts)})
    except ValidationError as error:
        raise CallerError(f"metadata.{OPTIONS}: {explain_validation(error.errors())}") from error
    return TaskMessage(wanted, documents, images)


def _read_data(parts: Iterable[Part]) -> list[Any]:
    try:
        return [_as_json(each) for each in get_data_parts(list(parts))]
    except (SerializeToJsonError, ValueError) as error:
        raise CallerError("A number in the data is not finite, which JSON has none of.") from error


def _as_json(value: Any) -> Any:
    """Return data with its whole numbers as such: in the protocol's messages each number is a float."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_as_json(each) for each in value]
        case dict():
            return {name: _as_json(each) for name, each in value.items()}
        case _:
            return value
