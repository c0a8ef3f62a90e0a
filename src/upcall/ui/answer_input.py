"""Parse typed text as the answer to a question."""

from __future__ import annotations

from upcall.questions.answer import Answer, Outcome
from upcall.questions.choices import read_numbers
from upcall.questions.matching import AnswerValue, parse_answer
from upcall.questions.question import Question

SKIP, DECLINE = "/skip", "/decline"


def read_answer(question: Question, text: str) -> AnswerValue:
    """Read a line as the answer to a question: options, other text, `SKIP` or `DECLINE`.

    Raises:
        AnswerRefused: the question does not accept it.
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
