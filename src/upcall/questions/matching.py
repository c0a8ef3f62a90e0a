"""Which answer belongs to which question, and whether the question accepts it.

Answers are matched by question id, or by the number under which a question is shown; never by order or type. A refusal
changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_json

from upcall.budget import parse_addition
from upcall.errors import AlreadyAnswered, AnswerRefused, FieldsRefused, OverrulesAssumption, UnknownQuestion
from upcall.identity import means
from upcall.lazy_pattern import LazyPattern
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.answer_form import InvalidFields
from upcall.questions.approval import is_edit
from upcall.questions.choices import (
    OwnWords,
    find_option,
    has_only_numbers,
    join_choices,
    list_choices,
    read_numbers,
    read_remark,
    set_of_choices,
)
from upcall.questions.question import BUDGET, Question
from upcall.questions.secrets import HIDDEN, seal
from upcall.text import one_line, shorten

AnswerValue: TypeAlias = str | int | Sequence[str | int] | Mapping[str, Any] | BaseModel | Answer
"""An option (label, number or id), several of them, free text, the object of an answer with several fields, or a whole
`Answer` (to skip or decline)."""

AnswersInput: TypeAlias = AnswerValue | Mapping[str, AnswerValue]
"""One value where one question is open, a reply like ``1. Express; 2. yes``, or one value for each question id."""

MAX_ANSWER_CHARS = 100_000
"""A longer answer is refused where it is given: it would be copied into messages, states and every model call, and stop
its run at the size limit of the store."""


_PART_IN_LINE = LazyPattern(r"(?:^|(?<=\s))(\d{1,3})\s*[.):：](?=\s)")
_PART = LazyPattern(r"(?:^|[;；\n])\s*(\d{1,3})\s*[.):：](?=\s)")


def match_answers(
    given: AnswersInput,
    open_questions: Sequence[Question],
    answered: Sequence[Answer] = (),
    user: str | None = None,
    closed: Sequence[Question] = (),
) -> list[Answer]:
    """Match what was given with the open questions: one new answer for each question that it names.

    An answer that was given before, with the same content, is left out: giving it twice is harmless. One that agrees
    with what was assumed for the time being confirms that. Those to secret questions are sealed.

    Args:
        given: what somebody answered.
        open_questions: in the order in which they are shown; a numbered reply counts them from 1.
        answered: the answers that the run has.
        user: who answers.
        closed: the questions behind `answered`, so that the same option is known by its number too.

    Raises:
        UnknownQuestion: an id that is neither open nor answered (with the list of open ids).
        AnswerRefused: a value the question does not accept, or one value that may be for any of several questions.
        AlreadyAnswered: a different second answer to a question.
        OverrulesAssumption: another answer than what was assumed for the time being.
        ConfigurationError: a question is secret, and there is no key to seal its answer with.
    """
    by_id = _assign(given, open_questions, answered)
    open_by_id = {question.id: question for question in open_questions}
    closed_by_id = {question.id: question for question in closed}
    earlier = {answer.question_id: answer for answer in answered}
    known = [*open_by_id, *earlier]
    new: dict[str, Answer] = {}
    for named, value in by_id.items():
        question_id = named if named in open_by_id or named in earlier else resolve_id(named, known)
        if question_id in open_by_id:
            answer = parse_unsealed(open_by_id[question_id], value, user)
            if question_id in new and not new[question_id].is_equivalent(answer):
                raise AnswerRefused(f"Question {question_id} was given two different answers at once; give one.")
            new[question_id] = answer
        elif question_id in earlier and earlier[question_id].provisional and question_id in closed_by_id:
            new[question_id] = _confirm(closed_by_id[question_id], earlier[question_id], value, user)
        elif question_id in earlier:
            _refuse_another(earlier[question_id], value, closed_by_id.get(question_id))
        else:
            raise UnknownQuestion(named, list(open_by_id))
    # Sealed last: the same text encrypted twice is not the same, and above two answers are compared.
    asked = closed_by_id | open_by_id
    return [_seal_answer(asked[question_id], answer) for question_id, answer in new.items()]


def _confirm(question: Question, assumed: Answer, value: AnswerValue, user: str | None) -> Answer:
    answer = parse_unsealed(question, value, user)
    if not _is_same(assumed.model_copy(update={"outcome": Outcome.ANSWERED}), value, question):
        raise OverrulesAssumption(question.id, assumed.text)
    return answer.model_copy(update={"text": assumed.text, "selected": assumed.selected})


def is_text(value: str) -> bool:
    """Return whether `value` can be stored and sent.

    A terminal or a shell hands off broken UTF-8 as lone surrogates.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_answer(question: Question, value: AnswerValue, user: str | None = None) -> Answer:
    """Read `value` as the human's answer to `question`, whatever a whole `Answer` says of itself.

    It is sealed where the question is secret.

    Raises:
        AnswerRefused: as `parse_unsealed`.
        ConfigurationError: the question is secret, and there is no key to seal its answer with.
    """
    return _seal_answer(question, parse_unsealed(question, value, user))


def parse_unsealed(question: Question, value: AnswerValue, user: str | None = None) -> Answer:
    """Read as `parse_answer`, but in clear also where the question is secret: to check it, never to keep it.

    Raises:
        AnswerRefused: no text, an empty one or one that is too long, something that is not an option where only options
            count, a number beyond the options, several options where one is to be chosen, an outcome that the human
            cannot give, or an `Answer` to another question.
        FieldsRefused: fields of its answer do not fit.
    """
    if isinstance(value, Answer):
        return _read_outcome(question, value, user)
    if question.answer_schema is not None:
        return Answer(question_id=question.id, text=_read_object(question, value), user=user)
    parts = _read_parts(question, value)
    if not parts:
        raise AnswerRefused(f"The answer to {question.id} is empty. {_describe_expected(question)}")
    if question.multi_select and len(parts) == 1 and find_option(question, parts[0]) is None:
        parts = list_choices(question, parts[0])
    chosen = [find_option(question, part) for part in parts]
    labels = tuple(dict.fromkeys(option.label for option in chosen if option is not None))
    wrong = [part for part, option in zip(parts, chosen, strict=True) if option is None]
    if len(labels) > 1 and not question.multi_select:
        raise AnswerRefused(
            f"Question {question.id} takes one option, not {len(labels)}. {_describe_expected(question)}"
        )
    if wrong and not question.allow_free_text:
        raise AnswerRefused(
            f"{HIDDEN if question.secret else ', '.join(map(_quote, wrong))} is not an option of {question.id}. "
            f"{_describe_expected(question)}"
        )
    text = join_choices([*labels, *wrong], (option.label for option in question.options))
    answer = Answer(question_id=question.id, text=text, selected=labels, user=user)
    if wrong and question.consent is not None and question.consent.act == BUDGET:
        try:
            parse_addition(answer.text, question.consent.subject.split(","))
        except ValueError as problem:
            raise AnswerRefused(f"{problem}. {_describe_expected(question)}") from problem
    if question.approval is not None and is_edit(answer.text):
        try:
            question.approval.edit(answer.text)
        except ValueError as problem:
            raise AnswerRefused(
                f"The arguments for {question.approval.tool} cannot be used: {problem}. Nothing was called."
            ) from problem
    return answer


def resolve_id(named: str, known: Sequence[str]) -> str:
    """Find the one known id that starts with `named`; give `named` itself where none or several do."""
    meant = [known_id for known_id in known if means(named, known_id)]
    return meant[0] if len(meant) == 1 else named


# -- one value, and one question or several ---------------------------------------------------------------------------


def _assign(
    given: AnswersInput, open_questions: Sequence[Question], answered: Sequence[Answer]
) -> Mapping[str, AnswerValue]:
    """Say which questions a value is for: those it names, the only one, those it numbers, or all of one asker."""
    if isinstance(given, Mapping):
        known = [*(each.id for each in open_questions), *(each.question_id for each in answered)]
        if len(open_questions) == 1 and open_questions[0].answer_schema is not None:
            fields = open_questions[0].answer_schema.get("properties")
            is_object = isinstance(fields, dict) and given.keys() <= fields.keys()
            if is_object or not any(means(name, each) for name in given for each in known):
                return {open_questions[0].id: given}
        return given
    if isinstance(given, Answer) and given.question_id:
        return {given.question_id: given}
    if len(open_questions) == 1:
        return {open_questions[0].id: given}
    if not open_questions:
        raise AnswerRefused("No question is open, so there is nothing to answer.")
    if isinstance(given, str):
        if numbered := _split_numbered(given, open_questions):
            return numbered
        if _answers_all(given, open_questions):
            return {question.id: OwnWords(given) for question in open_questions}
    raise _ask_for_names(open_questions)


def _split_numbered(text: str, open_questions: Sequence[Question]) -> dict[str, AnswerValue]:
    """Split a reply like ``1. Express; 2. yes``; nothing where it is not of that form.

    Raises:
        AnswerRefused: a number is that of no question, or comes twice.
    """
    if in_line := _split_line(text, open_questions):
        return in_line
    found = list(_PART.finditer(text))
    if not found or text[: found[0].start()].strip():
        return {}
    ends = [*(each.start() for each in found[1:]), len(text)]
    parts: dict[str, AnswerValue] = {}
    for part, end in zip(found, ends, strict=True):
        number = int(part[1])
        if not 1 <= number <= len(open_questions) or open_questions[number - 1].id in parts:
            raise _ask_for_names(open_questions)
        parts[open_questions[number - 1].id] = text[part.end() : end].strip()
    return parts


def _split_line(text: str, open_questions: Sequence[Question]) -> dict[str, AnswerValue]:
    """Split a reply like ``1. yes 2. no``; nothing where a number may belong to the text before it.

    Each text but the last is an option of its question, so that none is cut.
    """
    found = list(_PART_IN_LINE.finditer(text))
    numbers = [int(each[1]) for each in found]
    inside = all(1 <= number <= len(open_questions) for number in numbers)
    if len(found) < 2 or text[: found[0].start()].strip() or len(set(numbers)) < len(numbers) or not inside:
        return {}
    ends = [*(each.start() for each in found[1:]), len(text)]
    parts = [text[part.end() : end].strip(" ,;，；、\n") for part, end in zip(found, ends, strict=True)]
    asked = [open_questions[number - 1] for number in numbers]
    if not all(find_option(question, each) for question, each in zip(asked[:-1], parts[:-1], strict=True)):
        return {}
    return {question.id: each for question, each in zip(asked, parts, strict=True)}


def _answers_all(text: str, open_questions: Sequence[Question]) -> bool:
    """Return whether one text can only be meant for all.

    They are several aspects of one thing, asked by one agent in one message (seed S3), that take any text; and the text
    chooses an option of none.
    """
    first = open_questions[0]
    if len(first.calls) >= len(first.path) or not text.strip() or has_only_numbers(text):
        return False  # Each tool call asks for itself; a number chooses.
    return all(
        (each.path, each.calls, each.assignee) == (first.path, first.calls, first.assignee)
        and each.allow_free_text
        and each.answer_schema is None
        and not (each.secret or each.is_risk)
        and find_option(each, text.strip()) is None
        for each in open_questions
    )


def _ask_for_names(open_questions: Sequence[Question]) -> AnswerRefused:
    ids = ", ".join(question.id for question in open_questions)
    return AnswerRefused(
        f"{len(open_questions)} questions are open, so an answer must say which it is for: by number, as in "
        "'1. Express; 2. yes', or by id, {id: answer}, ID=ANSWER on the command line. "
        f"Open questions, in this order: {ids}."
    )


# -- what a value says ------------------------------------------------------------------------------------------------


def _seal_answer(question: Question, answer: Answer) -> Answer:
    if not question.secret or answer.outcome is not Outcome.ANSWERED:
        return answer
    return answer.model_copy(update={"text": seal(answer.text), "selected": (), "sealed": True})


def list_parts(value: str | int | Sequence[str | int] | Mapping[str, Any] | BaseModel) -> list[str]:
    """List the texts of a value, numbers written out; an object is one."""
    if isinstance(value, Mapping | BaseModel):
        return [_write_object(value)]
    given = [value] if isinstance(value, str | int) else value
    return [part if isinstance(part, str) else _as_text(part) for part in given]


def _read_parts(
    question: Question, value: str | int | Sequence[str | int] | Mapping[str, Any] | BaseModel
) -> list[str]:
    """Read the texts in `value`, trimmed, without empty ones."""
    given = [value] if isinstance(value, str | int) else value
    if not isinstance(given, list | tuple) or not all(map(_is_readable, given)):
        shown = HIDDEN if question.secret else _quote(value)
        raise AnswerRefused(
            f"The answer to {question.id} is {shown}; give text, a number, a list of them, or an Answer."
        )
    texts = list_parts(given)
    _refuse_long(question.id, texts)
    if not all(map(is_text, texts)):
        raise AnswerRefused(f"The answer to {question.id} is not valid text (UTF-8); type it again.")
    read = [read_numbers(question, text) for text in texts]
    return [OwnWords(part.strip()) if isinstance(part, OwnWords) else part.strip() for part in read if part.strip()]


def _write_object(value: Mapping[str, Any] | BaseModel) -> str:
    return to_json(value, by_alias=True, fallback=str).decode(errors="replace")


def _read_object(question: Question, value: AnswerValue) -> str:
    """Read the fields of an answer, from an object or the text of one, as the text that is stored. What is refused
    keeps what was filled in."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", by_alias=True)
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        _refuse_long(question.id, [value])
    value = _find_object(question, value)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise AnswerRefused(f"The answer to {question.id} is not a JSON object. {_describe_expected(question)}")
    try:
        text = json.dumps(_check_object(question, value), ensure_ascii=False)
        _refuse_long(question.id, [text])
    except InvalidFields as error:
        raise FieldsRefused(f"The answer to {question.id} does not fit: {error}", error.problems, value) from error
    except AnswerRefused as error:
        raise FieldsRefused(str(error), {"": str(error)}, value) from error
    except (ValueError, RecursionError) as error:  # A number of more digits than Python writes, too many levels.
        problem = f"The answer to {question.id} cannot be stored: {one_line(str(error), 200)}"
        raise FieldsRefused(problem, {"": problem}, value) from error
    if not is_text(text):
        raise AnswerRefused(f"The answer to {question.id} is not valid text (UTF-8); type it again.")
    return text


def _find_object(question: Question, value: Any) -> Any:
    """Return the object that a value is, or the text of one. Where there is one field, any other value is that of the
    field."""
    read = value
    if isinstance(value, str):
        try:
            read = json.loads(value)
        except (ValueError, RecursionError):
            read = ""
    form = question.answer_form
    if isinstance(read, Mapping) or form is None or len(form.fields) != 1 or value == "":
        return read
    return {form.fields[0].name: value}


def _check_object(question: Question, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object of an answer as its form reads it; where that cannot be shown, as its schema takes it."""
    if (form := question.answer_form) is not None:
        return form.check(value)
    from upcall.questions.json_values import find_problem

    if (problem := find_problem(question.answer_schema or {}, value)) is not None:
        raise InvalidFields({"": problem})
    return value


def _is_readable(part: object) -> bool:
    return isinstance(part, str | int) and not isinstance(part, bool)


def _as_text(number: int) -> str:
    """Write a number out; one beyond what Python writes is longer than any answer may be."""
    return str(number) if number.bit_length() < 10_000 else "9" * (MAX_ANSWER_CHARS + 1)


def _refuse_long(question_id: str, texts: Sequence[str]) -> None:
    size = sum(map(len, texts))
    if size > MAX_ANSWER_CHARS:
        raise AnswerRefused(
            f"The answer to {question_id} has {size:,} characters; at most {MAX_ANSWER_CHARS:,} are taken. Put it in a "
            "file that the agents can read, and answer with its name."
        )


def _read_outcome(question: Question, answer: Answer, user: str | None) -> Answer:
    """Read the outcome as a new value: who answers, and when, is for the caller to say and not for the answer."""
    if not question.id.startswith(answer.question_id):
        raise AnswerRefused(f"This answers question {answer.question_id}, not {question.id}; give it to that one.")
    match answer.outcome:
        case Outcome.ANSWERED:
            return parse_unsealed(question, _list_parts(answer), user or answer.user)
        case Outcome.SKIPPED if question.required:
            raise AnswerRefused(f"Question {question.id} is required and cannot be skipped; answer it or decline it.")
        case Outcome.SKIPPED | Outcome.DECLINED:
            _refuse_long(question.id, [answer.text])
            return Answer(question_id=question.id, outcome=answer.outcome, text=answer.text, user=user or answer.user)
        case _:
            raise AnswerRefused(
                f"Outcome {answer.outcome.value!r} cannot be given as an answer; give text, skip or decline."
            )


def _list_parts(answer: Answer) -> list[str]:
    """List what an `Answer` says: the labels, and what its text says besides them."""
    labels = list(answer.selected)
    if not labels:
        return [answer.text]
    remark = read_remark(answer.text, labels)
    return [*labels, remark] if remark else labels


def _refuse_another(earlier: Answer, value: AnswerValue, question: Question | None) -> None:
    """Refuse a value that differs from the earlier answer. If the question is unknown, options count by label only."""
    if not _is_same(earlier.unseal(), value, question):
        first = repr(HIDDEN if earlier.sealed else one_line(earlier.text or earlier.outcome.value, 200))
        who = f"{earlier.user or earlier.by.value} at {earlier.answered_at.isoformat()}"
        if earlier.by is not AnsweredBy.HUMAN and earlier.outcome is not Outcome.CANCELLED:
            who = f"{earlier.by.value} ({earlier.reason})"
        asked = earlier.question_id
        raise AlreadyAnswered(f"Question {asked} was answered by {who}: {first}. That answer stands.", asked)


def _is_same(earlier: Answer, value: AnswerValue, question: Question | None) -> bool:
    if isinstance(value, Answer) and value.outcome is not Outcome.ANSWERED:
        return earlier.is_equivalent(value)
    asked = question or Question(id=earlier.question_id, question="?")
    try:
        parsed = parse_unsealed(asked, value)
    except AnswerRefused:
        return False
    now, before = parsed.text.casefold(), earlier.text.casefold()
    if question is None:
        any_order = len(earlier.selected) > 1 and set_of_choices(now) == set_of_choices(before)
    else:
        any_order = bool(parsed.selected) and {*_list_parts(parsed)} == {*_list_parts(earlier)}
    return earlier.outcome is Outcome.ANSWERED and (now == before or any_order)


def _quote(value: object) -> str:
    return repr(shorten(value, 80)) if isinstance(value, str) else shorten(repr(value), 80)


def _describe_expected(question: Question) -> str:
    if (form := question.answer_form) is not None:
        return f"Fields: {'; '.join(form.describe())}."
    if (problem := question.form_problem) is not None:
        return f"Its fields cannot be shown: {problem}."
    if not question.options:
        return "Answer in your own words, or decline the question."
    listed = ", ".join(f"{number}. {option.label}" for number, option in enumerate(question.options, start=1))
    return f"Options: {listed}." + (" Other text is accepted too." if question.allow_free_text else "")
