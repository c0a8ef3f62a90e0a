"""The reply to a question: an `Answer`, who gave it, and its outcome."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from upcall import identity
from upcall.questions.question import CAMEL_TOO
from upcall.questions.secrets import HIDDEN, unseal


class Outcome(StrEnum):
    """How a question ended.

    Attributes:
        ANSWERED: with an answer.
        SKIPPED: the human left it to the agent.
        DECLINED: the human does not want to answer.
        EXPIRED: nobody answered in time, and nothing was assumed.
        CANCELLED: the run ended.
        ASSUMED: nobody answered, and its own default was taken.
    """

    ANSWERED = "answered"
    SKIPPED = "skipped"
    DECLINED = "declined"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ASSUMED = "assumed"


class AnsweredBy(StrEnum):
    """Who gave the answer.

    Attributes:
        HUMAN: the human.
        FACTS: a standing answer of the run or of the settings.
        LEDGER: an earlier answer of the same run.
        PARENT: the agent that delegated the work.
        POLICY: nobody: the question expired, or nobody is there.
    """

    HUMAN = "human"
    FACTS = "facts"
    LEDGER = "ledger"
    PARENT = "parent"
    POLICY = "policy"


class Answer(BaseModel, defer_build=True):
    """The reply to a question: who gave it, when, and its outcome.

    Attributes:
        question_id: the question.
        outcome: how it ended.
        text: the answer in words; encrypted if ``sealed``.
        selected: labels of the chosen options; empty if ``sealed``.
        by: who gave it.
        user: the name of the human who gave it, if known.
        answered_at: when, in UTC.
        reason: the reason for an answer not given by a human: which fact, which earlier answer, which limit.
        sealed: whether it is a secret.
        provisional: whether it is assumed for the time being: the human may still confirm it, or answer otherwise.
    """

    model_config = ConfigDict(
        frozen=True,
        str_strip_whitespace=True,
        populate_by_name=True,
        alias_generator=CAMEL_TOO,
        extra="forbid",
    )

    question_id: str
    outcome: Outcome = Outcome.ANSWERED
    text: str = ""
    selected: tuple[str, ...] = ()
    by: AnsweredBy = AnsweredBy.HUMAN
    user: str | None = None
    answered_at: datetime = Field(default_factory=lambda: identity.now())
    reason: str | None = None
    sealed: bool = False
    provisional: bool = False

    def is_equivalent(self, other: Answer) -> bool:
        """Return whether both answers mean the same to the asker; who gave them, when and why does not count."""
        mine, others = self.unseal(), other.unseal()
        return (mine.outcome, mine.text, mine.selected) == (others.outcome, others.text, others.selected)

    def confirms(self, assumed: Answer) -> bool:
        """Return whether this is the human's word for what was assumed."""
        return self.outcome is Outcome.ANSWERED and (self.text, self.selected) == (assumed.text, assumed.selected)

    def unseal(self) -> Answer:
        """Return the same answer with a secret in the clear: for its asker, who must neither show nor store it.

        Raises:
            ConfigurationError: it is sealed, and the key is missing or wrong.
        """
        if not self.sealed:
            return self
        return self.model_copy(update={"text": unseal(self.text, f"question {self.question_id}"), "sealed": False})

    def __await__(self) -> Generator[None, None, Self]:
        """Return it at once: whoever writes ``await ask(...)`` loses no answer."""
        yield from ()
        return self

    def __str__(self) -> str:
        """Return `as_text`."""
        return self.as_text()

    def as_text(self) -> str:
        """Return the text that the asking model reads as the result of its call, actionable for every outcome."""
        match self.outcome:
            case Outcome.ANSWERED if self.sealed:
                return HIDDEN
            case Outcome.ANSWERED:
                return self.text or ", ".join(self.selected) or "The user gave an empty answer."
            case Outcome.SKIPPED:
                return "The user skipped this question. Go on with your best judgement and say what you assumed."
            case Outcome.DECLINED:
                reason = f" They said: {self.text}" if self.text else ""
                return f"The user declined to answer.{reason} Do not ask again; do without, or say what cannot be done."
            case Outcome.EXPIRED:
                why = self.reason or "Nobody answered in time."
                return f"{why} Do not take this as consent; do without, or say what stays open."
            case Outcome.CANCELLED:
                return "The question was cancelled. Do not ask again; end your work and say what stays open."
            case Outcome.ASSUMED if self.provisional and self.reason is None:
                return self.text  # As the human would say it: if they agree, nothing has to be done again.
            case Outcome.ASSUMED:
                assumed = self.text or "what seems best"
                why = self.reason or "Nobody answered"
                return f"{why.rstrip('.')}; assumed: {assumed}. Go on with this and list it as an assumption."
