"""How often questions on one topic were asked, and how often that was needless."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from upcall.questions.question import Detail

MIN_DISMISSED = 2
"""So often a topic has to be dismissed before that counts: once is a slip, or was meant for that task alone."""

MIN_DISMISSED_HIGH = 3
"""The same for a question whose wrong guess would spoil all of the result."""

LEAST = 0.2
"""No topic weighs less than this part of what it would weigh."""


class AskedTopic(BaseModel, frozen=True, defer_build=True):
    """What one user made of the questions on one topic, in one project.

    Attributes:
        project: the folder of the work that the user named; empty for runs that got one of their own.
        detail: what of a task the questions are about.
        asked: how many were closed by the user.
        dismissed: how many of them needlessly: skipped, declined, left to the agent in words, or answered with what is
            assumed where nobody answers.
    """

    project: str = ""
    detail: Detail
    asked: int = 0
    dismissed: int = 0

    def factor(self, *, spoils_all: bool = False) -> float:
        """Return what the weight of such a question is multiplied with.

        It is twice the chance that the next one is answered, by Laplace's rule of succession: ``2 * (answered + 1) /
        (asked + 2)``, between `LEAST` and 1. So a topic that is answered as often as not keeps its weight. Before it
        was dismissed `MIN_DISMISSED` times it is 1; `MIN_DISMISSED_HIGH` times for a question that `spoils_all`.
        """
        if self.dismissed < (MIN_DISMISSED_HIGH if spoils_all else MIN_DISMISSED):
            return 1.0
        return min(1.0, max(LEAST, 2 * (self.asked - self.dismissed + 1) / (self.asked + 2)))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**self.model_dump(mode="json"), "factor": round(self.factor(), 2)}

    def as_line(self) -> str:
        """Return it as a line."""
        where = f" in {self.project}" if self.project else ""
        return f"{self.detail}: asked {self.asked}, dismissed {self.dismissed}, weighs {self.factor():.2f}{where}"


def find_factor(topics: Iterable[AskedTopic], detail: Detail, *, spoils_all: bool) -> float:
    """Return the factor of a topic; 1 for one that was not asked before."""
    return next((each.factor(spoils_all=spoils_all) for each in topics if each.detail is detail), 1.0)
