"""Whom a question is for: rules of the settings say it, never the model that asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from upcall.policy.same_question import content_words
from upcall.questions.question import ClarificationType, Question

ROLE = "role:"
"""How an assignee begins that is no user but a role."""


class AssignRule(BaseModel):
    """Questions that fit all that is said of them are for the assignee ``to``: a user's name, or ``role:NAME``.

    ``agent`` is the asker's name, or the end of its path (``lead/coder``). ``words`` must all be in the question's
    text, in any order. Without any condition every question fits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    to: Annotated[str, Field(min_length=1)]
    type: ClarificationType | None = None
    agent: Annotated[str, Field(min_length=1)] | None = None
    words: Annotated[str, Field(min_length=1)] | None = None

    def fits(self, question: Question) -> bool:
        """Whether the question, with its whole path, is one of those."""
        if self.type is not None and question.clarification_type is not self.type:
            return False
        names = tuple(self.agent.split("/")) if self.agent is not None else ()
        if names and question.path[-len(names) :] != names:
            return False
        return self.words is None or set(content_words(self.words)) <= set(content_words(question.question))


def parse_rules(given: Iterable[Any]) -> tuple[AssignRule, ...]:
    """The rules as settings or a stored run hold them."""
    return tuple(AssignRule.model_validate(each) for each in given)


def find_assignee(question: Question, rules: Iterable[AssignRule]) -> str | None:
    """Whom the first rule that fits names."""
    return next((rule.to for rule in rules if rule.fits(question)), None)
