"""Which answer belongs to which question, and whether the question accepts it.

Answers are matched by question id, never by order or type. A refusal changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from upcall.errors import AlreadyAnswered, AnswerRefused, UnknownQuestion
from upcall.questions import Answer, Option, Outcome, Question

AnswerValue: TypeAlias = str | Sequence[str] | Answer
"""An option (label, number or id), several of them, free text, or a whole `Answer` (to skip or decline)."""

GivenAnswers: TypeAlias = AnswerValue | Mapping[str, AnswerValue]
"""One value where one question is open, or one value for each question id."""


def match_answers(
    given: GivenAnswers, open_questions: Sequence[Question], answered: Sequence[Answer] = (), user: str | None = None
) -> list[Answer]:
    """The new answers, one for each question that `given` names and that is still open.

    An answer that was given before, with the same content, is left out: giving it twice is harmless.

    Raises:
        UnknownQuestion: an id that is neither open nor answered (with the list of open ids).
        AnswerRefused: a value the question does not accept, or one value where several questions are open.
        AlreadyAnswered: a different second answer to a question.
    """
    by_id = given if isinstance(given, Mapping) else {_only(open_questions).id: given}
    open_by_id = {question.id: question for question in open_questions}
    earlier = {answer.question_id: answer for answer in answered}
    new: dict[str, Answer] = {}
    for named, value in by_id.items():
        question_id = _full_id(named, [*open_by_id, *earlier])
        if question_id in open_by_id:
            answer = read_answer(open_by_id[question_id], value, user)
            if question_id in new and not new[question_id].says_the_same(answer):
                raise AnswerRefused(f"Question {question_id} was given two different answers at once; give one.")
            new[question_id] = answer
        elif question_id in earlier:
            _same_as_before(earlier[question_id], value)
        else:
            raise UnknownQuestion(named, list(open_by_id))
    return list(new.values())


def read_answer(question: Question, value: AnswerValue, user: str | None = None) -> Answer:
    """The answer that `value` gives to `question`.

    Raises:
        AnswerRefused: empty text, something that is not an option where only options count, several options where one
            is to be chosen, or an outcome that the human cannot give.
    """
    if isinstance(value, Answer):
        return _read_outcome(question, value, user)
    parts = [value] if isinstance(value, str) else list(value)
    parts = [part.strip() for part in parts if part.strip()]
    if not parts:
        raise AnswerRefused(f"The answer to {question.id} is empty. {_expected(question)}")
    if question.multi_select and len(parts) == 1 and _find_option(question, parts[0]) is None:
        parts = _split_choices(question, parts[0])
    chosen = [_find_option(question, part) for part in parts]
    if question.options and all(option is not None for option in chosen):
        labels = tuple(dict.fromkeys(option.label for option in chosen if option is not None))
        if len(labels) > 1 and not question.multi_select:
            raise AnswerRefused(f"Question {question.id} takes one option, not {len(labels)}. {_expected(question)}")
        return Answer(question_id=question.id, text=", ".join(labels), selected=labels, user=user)
    if not question.allow_free_text:
        wrong = [part for part, option in zip(parts, chosen, strict=True) if option is None]
        raise AnswerRefused(f"{', '.join(map(repr, wrong))} is not an option of {question.id}. {_expected(question)}")
    return Answer(question_id=question.id, text=", ".join(parts), user=user)


def _read_outcome(question: Question, answer: Answer, user: str | None) -> Answer:
    if answer.outcome is Outcome.ANSWERED:
        return read_answer(question, list(answer.selected) or answer.text, user or answer.user)
    if answer.outcome is Outcome.SKIPPED and question.required:
        raise AnswerRefused(f"Question {question.id} is required and cannot be skipped; answer it or decline it.")
    if answer.outcome not in (Outcome.SKIPPED, Outcome.DECLINED):
        raise AnswerRefused(f"Outcome {answer.outcome!r} cannot be given as an answer; give text, skip or decline.")
    return answer.model_copy(update={"question_id": question.id, "user": user or answer.user})


def _only(open_questions: Sequence[Question]) -> Question:
    if len(open_questions) == 1:
        return open_questions[0]
    ids = ", ".join(question.id for question in open_questions) or "none"
    raise AnswerRefused(
        f"{len(open_questions)} questions are open, so an answer must name its question: {{id: answer}}, or ID=ANSWER "
        f"on the command line. Open questions: {ids}."
    )


def _full_id(named: str, known: Sequence[str]) -> str:
    """The one known id that starts with `named`, or `named` itself where none or several do."""
    starting = [known_id for known_id in known if known_id.startswith(named)] if len(named) >= 4 else []
    return starting[0] if len(starting) == 1 else named


def _same_as_before(earlier: Answer, value: AnswerValue) -> None:
    if isinstance(value, Answer):
        same = earlier.says_the_same(value)
    else:
        parts = [value] if isinstance(value, str) else list(value)
        text = ", ".join(part.strip() for part in parts)
        same = earlier.outcome is Outcome.ANSWERED and text.casefold() == earlier.text.casefold()
    if not same:
        who = earlier.user or earlier.by.value
        raise AlreadyAnswered(
            f"Question {earlier.question_id} was answered by {who} at {earlier.answered_at.isoformat()}: "
            f"{earlier.text or earlier.outcome.value!r}. That answer stands."
        )


def _find_option(question: Question, text: str) -> Option | None:
    """By label (any case), then by id, then by number: a label that is itself a number names that option."""
    for option in question.options:
        if option.label.casefold() == text.casefold():
            return option
    for option in question.options:
        if option.id == text:
            return option
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(question.options):
        return question.options[int(text) - 1]
    return None


def _split_choices(question: Question, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return parts if parts and all(_find_option(question, part) for part in parts) else [text]


def _expected(question: Question) -> str:
    if not question.options:
        return "Answer in your own words, or decline the question."
    listed = ", ".join(f"{number}. {option.label}" for number, option in enumerate(question.options, start=1))
    return f"Options: {listed}." + (" Other text is accepted too." if question.allow_free_text else "")
