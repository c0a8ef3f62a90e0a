"""What is assumed where no human answers: for good because nobody is there, or for now until somebody does.

A risk confirmation, a secret and an approval are never assumed: only the human's own word counts there.
"""

from __future__ import annotations

from upcall.errors import AnswerRefused
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.choices import read_default
from upcall.questions.matching import parse_unsealed
from upcall.questions.question import Question
from upcall.questions.reply_intents import read_lead


def answer_by_default(question: Question, reason: str | None) -> Answer:
    """Return the outcome of a question that no human answers: its own default, recorded as an assumption, else
    `expired`. That is never consent, and a risk confirmation has no default."""
    answer = Answer(question_id=question.id, outcome=Outcome.EXPIRED, by=AnsweredBy.POLICY, reason=reason)
    if question.default is None or not question.default.strip() or question.is_risk:
        return answer
    try:
        assumed = parse_unsealed(question, read_default(question, question.default))
    except AnswerRefused:
        return answer
    return answer.model_copy(update={"outcome": Outcome.ASSUMED, "text": assumed.text, "selected": assumed.selected})


def assume_for_now(question: Question) -> Answer | None:
    """Return what the asker of a question continues with until the human answers: its default, else its first option,
    which is the likeliest one as models write them. None where it waits: there is nothing to assume, or the options say
    yes or no to something."""
    if is_for_the_human(question):
        return None
    if not (question.default or "").strip():
        if not question.options or any(each.side or read_lead(each.label) for each in question.options):
            return None
        question = question.model_copy(update={"default": question.options[0].label})
    return hold_for_now(answer_by_default(question, None))


def is_for_the_human(question: Question) -> bool:
    """Return whether only the human's own word answers a question: about a risk, a secret or an approval."""
    return question.is_risk or question.secret or question.approval is not None or question.consent is not None


def hold_for_now(answer: Answer) -> Answer | None:
    """Return an assumption as one that the human may still confirm or overrule; None if nothing is assumed."""
    return answer.model_copy(update={"provisional": True}) if answer.outcome is Outcome.ASSUMED else None
