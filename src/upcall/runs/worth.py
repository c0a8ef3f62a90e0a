"""Whether a question was worth asking: whether another answer to it would have changed the result of its run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question
from upcall.text import one_line

_SHOWN_CHARS = 80


class TrialVerdict(StrEnum):
    """What came of trying the other answers to a question.

    Attributes:
        CHANGED: one of them leads to another result.
        SAME: all of them lead to the same.
        UNKNOWN: that is not known: one could not be tried to its end, and no other one changed anything.
    """

    CHANGED = "changed"
    SAME = "same"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TrialCost:
    """What the trials of a question may cost, by what the run took; they find again whatever turns out the same.

    Attributes:
        model_calls: how many model calls they make in all if each makes as many as the run: one for each other answer,
            and one for the same answer again, which is tried where another one changes something.
        tokens: how many tokens such calls took in the run; 0 where that is not known.
        held_back: the calls of the run that depend on the answer and may have had an effect. No trial makes them again.
    """

    model_calls: int = 0
    tokens: int = 0
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuestionWorth:
    """A question that the human answered, and what is known of its worth.

    Attributes:
        question: the question.
        answer: the human's answer.
        others: the answers to try, in this order.
        verdict: what came of trying them; None before that.
        reason: what differs, or why it cannot be tried.
        cost: what trying them may cost.
        trials: the forks in which they were tried.
        model_calls: how many model calls these made.
        counted: whether it counts in what is remembered of the user's questions on the topic.
    """

    question: Question
    answer: Answer
    others: tuple[str, ...] = ()
    verdict: TrialVerdict | None = None
    reason: str = ""
    cost: TrialCost = TrialCost()
    trials: tuple[str, ...] = ()
    model_calls: int = 0
    counted: bool = False

    @property
    def is_to_try(self) -> bool:
        """Whether trying other answers may bring something."""
        return bool(self.others) and self.verdict in (None, TrialVerdict.UNKNOWN)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "question": self.question.as_json(),
            "answered": self.answer.as_text(),
            "others": list(self.others),
            "verdict": self.verdict,
            "reason": self.reason,
            "again": {"model_calls": self.cost.model_calls, "tokens": self.cost.tokens},
            "held_back": list(self.cost.held_back),
            "trials": list(self.trials),
            "model_calls": self.model_calls,
            "counted": self.counted,
        }

    def lines(self) -> list[str]:
        """Return it as lines: what was asked, what is known, and what is to be done to know more."""
        asked = one_line(self.question.question, _SHOWN_CHARS)
        known = "not tried yet" if self.verdict is None else f"{self.verdict}"
        if self.verdict is None and not self.others:
            known = TrialVerdict.UNKNOWN
        lines = [f"{asked} - {one_line(self.answer.as_text(), _SHOWN_CHARS)}: {known}{self._why()}"]
        if self.is_to_try:
            tokens = f" and {self.cost.tokens:,} tokens" if self.cost.tokens else ""
            lines.append(f"  To try: {', '.join(self.others)}; about {_count(self.cost.model_calls)}{tokens}.")
            lines += [f"  Not made again: {each}" for each in self.cost.held_back]
        return lines

    def _why(self) -> str:
        made = f"; {_count(self.model_calls)} made" if self.trials else ""
        return f" ({self.reason}{made})" if self.reason else ""


@dataclass(frozen=True)
class RunWorth:
    """The questions of a completed run that the human answered, and what is known of their worth.

    Attributes:
        run_id: the run.
        questions: the questions, oldest first.
    """

    run_id: str
    questions: tuple[QuestionWorth, ...]

    @property
    def model_calls(self) -> int:
        """How many model calls it may take to try what was not tried."""
        return sum(each.cost.model_calls for each in self.questions if each.is_to_try)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "run_id": self.run_id,
            "model_calls": self.model_calls,
            "questions": [each.as_json() for each in self.questions],
        }

    def lines(self) -> list[str]:
        """Return it as lines."""
        return [line for each in self.questions for line in each.lines()]


def list_others(question: Question, answer: Answer) -> tuple[str, ...]:
    """List the other answers to a question that are known: its options, and its default. None where none is tried: see
    `why_untried`."""
    given = {each.casefold() for each in (answer.text, *answer.selected)}
    known = [*(option.label for option in question.options), *([question.default] if question.default else [])]
    others = {each.casefold(): each for each in reversed(known) if each.casefold() not in given}
    return tuple(reversed(others.values())) if why_untried(question) == "" else ()


def why_untried(question: Question) -> str:
    """Return why no other answer to a question is ever tried; empty if one may be."""
    return why_unrepeated(question) or ("its answer has several choices" if question.multi_select else "")


def why_unrepeated(question: Question) -> str:
    """Return why an answer to a question is not even repeated in a trial; empty if it may be."""
    if question.is_risk or question.approval or question.consent:
        return "it asks for consent, which is never given to try something"
    if question.secret:
        return "its answer is a secret"
    if question.answer_schema is not None:
        return "its answer has several fields"
    return ""


def is_by_human(answer: Answer) -> bool:
    """Return whether the human gave an answer to what was asked."""
    return answer.by is AnsweredBy.HUMAN and answer.outcome is Outcome.ANSWERED


def is_same_text(one: str | None, other: str | None) -> bool:
    """Return whether two results are the same text, whatever the space in it."""
    return (one or "").split() == (other or "").split()


def _count(calls: int) -> str:
    return f"{calls} model call{'' if calls == 1 else 's'}"
