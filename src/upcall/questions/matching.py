"""Which answer belongs to which question, and whether the question accepts it.

Answers are matched by question id, never by order or type. A refusal changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from upcall.errors import AlreadyAnswered, AnswerRefused, UnknownQuestion
from upcall.identity import means
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Option, Question
from upcall.questions.secrets import HIDDEN, seal
from upcall.text import shorten

AnswerValue: TypeAlias = str | Sequence[str] | Answer
"""An option (label, number or id), several of them, free text, or a whole `Answer` (to skip or decline)."""

AnswersInput: TypeAlias = AnswerValue | Mapping[str, AnswerValue]
"""One value where one question is open, or one value for each question id."""


class OwnWords(str):
    """A text that says what it says: a number in it is that of no option. A label is still that option."""


_COMMA = re.compile("[,，、]")
_SHOWN_CHARS = 80


def match_answers(
    given: AnswersInput,
    open_questions: Sequence[Question],
    answered: Sequence[Answer] = (),
    user: str | None = None,
    closed: Sequence[Question] = (),
) -> list[Answer]:
    """The new answers, one for each question that `given` names and that is still open.

    An answer that was given before, with the same content, is left out: giving it twice is harmless. Those to secret
    questions are sealed. `closed` are the
    questions behind `answered`, so that the same option is known by its number too.

    Raises:
        UnknownQuestion: an id that is neither open nor answered (with the list of open ids).
        AnswerRefused: a value the question does not accept, or one value where several questions are open.
        AlreadyAnswered: a different second answer to a question.
        ConfigurationError: a question is secret, and there is no key to seal its answer with.
    """
    by_id = given if isinstance(given, Mapping) else {_named(given, open_questions): given}
    open_by_id = {question.id: question for question in open_questions}
    closed_by_id = {question.id: question for question in closed}
    earlier = {answer.question_id: answer for answer in answered}
    new: dict[str, Answer] = {}
    for named, value in by_id.items():
        question_id = resolve_id(named, [*open_by_id, *earlier])
        if question_id in open_by_id:
            answer = parse_unsealed(open_by_id[question_id], value, user)
            if question_id in new and not new[question_id].says_the_same(answer):
                raise AnswerRefused(f"Question {question_id} was given two different answers at once; give one.")
            new[question_id] = answer
        elif question_id in earlier:
            _same_as_before(earlier[question_id], value, closed_by_id.get(question_id))
        else:
            raise UnknownQuestion(named, list(open_by_id))
    return [_sealed(open_by_id[question_id], answer) for question_id, answer in new.items()]


def is_text(value: str) -> bool:
    """Whether `value` can be stored and sent: a terminal or a shell hands over broken UTF-8 as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_answer(question: Question, value: AnswerValue, user: str | None = None) -> Answer:
    """The answer that `value` gives to `question`, recorded as the human's, whatever a whole `Answer` says of itself;
    sealed, if the question is secret.

    Raises:
        AnswerRefused: as `parse_unsealed`.
        ConfigurationError: the question is secret, and there is no key to seal its answer with.
    """
    return _sealed(question, parse_unsealed(question, value, user))


def parse_unsealed(question: Question, value: AnswerValue, user: str | None = None) -> Answer:
    """As `parse_answer`, but in clear also where the question is secret: to check it, never to keep it.

    Raises:
        AnswerRefused: no text or an empty one, something that is not an option where only options count, several
            options where one is to be chosen, an outcome that the human cannot give, or an `Answer` to another
            question.
    """
    if isinstance(value, Answer):
        return _read_outcome(question, value, user)
    parts = _parts(question.id, value, secret=question.secret)
    if not parts:
        raise AnswerRefused(f"The answer to {question.id} is empty. {_expected(question)}")
    if question.multi_select and len(parts) == 1 and _find_option(question, parts[0]) is None:
        parts = _split_choices(question, parts[0])
    chosen = [_find_option(question, part) for part in parts]
    labels = tuple(dict.fromkeys(option.label for option in chosen if option is not None))
    wrong = [part for part, option in zip(parts, chosen, strict=True) if option is None]
    if len(labels) > 1 and not question.multi_select:
        raise AnswerRefused(f"Question {question.id} takes one option, not {len(labels)}. {_expected(question)}")
    if wrong and not question.allow_free_text:
        said = HIDDEN if question.secret else ", ".join(repr(shorten(each, _SHOWN_CHARS)) for each in wrong)
        raise AnswerRefused(f"{said} is not an option of {question.id}. {_expected(question)}")
    return Answer(question_id=question.id, text=", ".join([*labels, *wrong]), selected=labels, user=user)


def _sealed(question: Question, answer: Answer) -> Answer:
    if not question.secret or answer.outcome is not Outcome.ANSWERED:
        return answer
    return answer.model_copy(update={"text": seal(answer.text), "selected": (), "sealed": True})


def _parts(question_id: str, value: str | Sequence[str], *, secret: bool = False) -> list[str]:
    """The texts in `value`, trimmed, without empty ones."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        shown = HIDDEN if secret else repr(value)
        raise AnswerRefused(f"The answer to {question_id} is {shown}; give text, a list of texts, or an Answer.")
    if not all(map(is_text, parts)):
        raise AnswerRefused(f"The answer to {question_id} is not valid text (UTF-8); type it again.")
    return [OwnWords(part.strip()) if isinstance(part, OwnWords) else part.strip() for part in parts if part.strip()]


def _read_outcome(question: Question, answer: Answer, user: str | None) -> Answer:
    """The same outcome as a new value: who answers, and when, is for the caller to say and not for the answer."""
    if not question.id.startswith(answer.question_id):
        raise AnswerRefused(f"This answers question {answer.question_id}, not {question.id}; give it to that one.")
    match answer.outcome:
        case Outcome.ANSWERED:
            return parse_unsealed(question, _said(answer), user or answer.user)
        case Outcome.SKIPPED if question.required:
            raise AnswerRefused(f"Question {question.id} is required and cannot be skipped; answer it or decline it.")
        case Outcome.SKIPPED | Outcome.DECLINED:
            return Answer(question_id=question.id, outcome=answer.outcome, text=answer.text, user=user or answer.user)
        case _:
            raise AnswerRefused(
                f"Outcome {answer.outcome.value!r} cannot be given as an answer; give text, skip or decline."
            )


def _said(answer: Answer) -> list[str]:
    """What an `Answer` says, part by part: the labels, and the text where it is more than the labels again."""
    labels = list(answer.selected)
    remark = [] if labels and answer.text.casefold() == ", ".join(labels).casefold() else [answer.text]
    return labels + remark


def _named(given: AnswerValue, open_questions: Sequence[Question]) -> str:
    """The question that one value is for: the one it names itself, else the only one that is open."""
    if isinstance(given, Answer) and given.question_id:
        return given.question_id
    if len(open_questions) == 1:
        return open_questions[0].id
    if not open_questions:
        raise AnswerRefused("No question is open, so there is nothing to answer.")
    ids = ", ".join(question.id for question in open_questions)
    raise AnswerRefused(
        f"{len(open_questions)} questions are open, so an answer must name its question: {{id: answer}}, or ID=ANSWER "
        f"on the command line. Open questions: {ids}."
    )


def resolve_id(named: str, known: Sequence[str]) -> str:
    """The one known id that starts with `named`, or `named` itself where none or several do."""
    meant = [known_id for known_id in known if means(named, known_id)]
    return meant[0] if len(meant) == 1 else named


def _same_as_before(earlier: Answer, value: AnswerValue, question: Question | None) -> None:
    """Accept what was said before once more. Where the question is not known, an option counts by its label only."""
    if not _says_again(earlier.opened(), value, question):
        said = repr(HIDDEN if earlier.sealed else earlier.text or earlier.outcome.value)
        who = f"{earlier.user or earlier.by.value} at {earlier.answered_at.isoformat()}"
        if earlier.by is not AnsweredBy.HUMAN and earlier.outcome is not Outcome.CANCELLED:
            who = f"{earlier.by.value} ({earlier.reason})"
        raise AlreadyAnswered(
            f"Question {earlier.question_id} was answered by {who}: {said}. That answer stands. A branch of the run "
            f"goes on with another one: upcall fork RUN {earlier.question_id} ANSWER"
        )


def _says_again(earlier: Answer, value: AnswerValue, question: Question | None) -> bool:
    if isinstance(value, Answer) and value.outcome is not Outcome.ANSWERED:
        return earlier.says_the_same(value)
    if question is not None:
        try:
            value = parse_unsealed(question, value).text
        except AnswerRefused:
            return False
    secret = question is not None and question.secret
    parts = _parts(earlier.question_id, _said(value) if isinstance(value, Answer) else value, secret=secret)
    said, before = ", ".join(parts).casefold(), earlier.text.casefold()
    any_order = bool(earlier.selected) and _choices(said) == _choices(before)
    return earlier.outcome is Outcome.ANSWERED and (said == before or any_order)


def _choices(text: str) -> set[str]:
    return {part.strip() for part in text.split(",")}


def _find_option(question: Question, text: str) -> Option | None:
    """By label (any case), then by number, then by id: what the human sees comes before what only programs see."""
    for option in question.options:
        if option.label.casefold() == text.casefold():
            return option
    if isinstance(text, OwnWords):
        return None
    for number, option in enumerate(question.options, start=1):
        if text == str(number):
            return option
    return next((option for option in question.options if option.id == text), None)


def _split_choices(question: Question, text: str) -> list[str]:
    if isinstance(text, OwnWords):
        return [text]
    parts = [part.strip() for part in _COMMA.split(text) if part.strip()]
    return parts if parts and all(_find_option(question, part) for part in parts) else [text]


def _expected(question: Question) -> str:
    if not question.options:
        return "Answer in your own words, or decline the question."
    listed = ", ".join(f"{number}. {option.label}" for number, option in enumerate(question.options, start=1))
    return f"Options: {listed}." + (" Other text is accepted too." if question.allow_free_text else "")
