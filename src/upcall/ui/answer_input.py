"""What somebody typed, read as the answer to a question."""

from __future__ import annotations

import re
from collections.abc import Callable

from upcall.errors import AnswerRefused
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue, OwnWords, parse_answer
from upcall.questions.question import Question

SKIP, DECLINE = "/skip", "/decline"

_NUMBERS = re.compile(r"\d+(?:\s*[,，、]\s*\d+)*")
_QUOTED_NUMBERS = re.compile(r"\"([\d\s,，、]+)\"")


def read_answer(question: Question, text: str) -> AnswerValue:
    """Read a line as the answer to a question: options, other text, `SKIP` or `DECLINE`.

    Raises:
        AnswerRefused: it is not one that the question accepts.
        ConfigurationError: the question is secret, and there is no key to seal its answer with.
    """
    value: AnswerValue = text
    if text.strip() == DECLINE:
        value = Answer(question_id=question.id, outcome=Outcome.DECLINED)
    elif text.strip() == SKIP or (not text.strip() and not question.required):
        value = Answer(question_id=question.id, outcome=Outcome.SKIPPED)
    else:
        value = read_numbers(question, text)
    parse_answer(question, value)
    return value


def read_numbers(question: Question, text: str, quote: Callable[[str], str] = str) -> str:
    """Read the numbers in a text as options, and in double quotes as themselves.

    A number that is no option is most likely a slip: it is refused even where the question accepts other text.

    Args:
        question: what was asked.
        text: what was typed.
        quote: shows how a quoted number is typed there; a shell takes one pair of quotes away.

    Raises:
        AnswerRefused: a number is beyond the options.
    """
    if not question.options or question.secret:
        return text
    typed = text.strip()
    if quoted := _QUOTED_NUMBERS.fullmatch(typed):
        return OwnWords(quoted[1])
    names = {option.label.casefold() for option in question.options} | {option.id for option in question.options}
    if typed.casefold() in names or not _NUMBERS.fullmatch(typed):
        return text
    count = len(question.options)
    for number in re.findall(r"\d+", typed):
        if not 1 <= int(number) <= count and number not in names:
            in_quotes = quote(f'"{typed}"')
            hint = f" If you mean the number itself, write {in_quotes} in quotes." if question.allow_free_text else ""
            raise AnswerRefused(f"There is no option {number}: choose 1 to {count}.{hint}")
    return text
