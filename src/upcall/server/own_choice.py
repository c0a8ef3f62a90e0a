"""Questions whose answer is a person's own choice: no program passes it on in their name, but it may refuse."""

from __future__ import annotations

from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue

ELSEWHERE = "let them answer in the browser (upcall serve) or on a terminal (upcall inbox)."


def is_refusal(value: AnswerValue) -> bool:
    """Return whether an answer declines, which anybody may pass on: it allows nothing."""
    return isinstance(value, Answer) and value.outcome is Outcome.DECLINED
