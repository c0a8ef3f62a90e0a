"""`Weights`: which of the unknowns of a task are worth a question.

For each, the model says how it is known and what a wrong guess would spoil. From these follows the question's weight,
between 0 and 1. The user's choice of what to be asked for (``ask``) is a row of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from upcall.agents.asking.ask_policy import AskPolicy, Proposal, WeighedCandidate
from upcall.options import AskFor
from upcall.runs.outputs import Candidate, KnownFrom, Weight
from upcall.words import holds_most_of

SPOILT: Mapping[AskFor, Mapping[Weight, float]] = {
    "essential": {Weight.HIGH: 1.0, Weight.MEDIUM: 0.6, Weight.TASTE: 0.3, Weight.LOW: 0.0},
    "preferences": {Weight.HIGH: 1.0, Weight.MEDIUM: 0.8, Weight.TASTE: 0.6, Weight.LOW: 0.1},
}
"""The cost of a wrong guess, by what it would spoil."""

SAME_FOR_MOST = 0.2
"""The factor if nearly everybody wants the same, or it can be looked up."""

NOT_FOUND = 0.6
"""The factor if a reply says that the request settles it, in words that are not there: enough for a second look if the
whole result depends on it."""

NOT_NEEDED = 0.4
"""The factor if the same reply concludes that nothing must be asked: too little for the default threshold."""


MAX_PLACEHOLDER_CHARS = 3
"""The length of "n/a", "-" and the like, which settle nothing."""


class Weights(AskPolicy):
    """Weighs each question by what the model says about it.

    Args:
        ask: what the user wants to be asked for.
        checks_quotes: whether words claimed to settle a question must be in the task.
    """

    def __init__(self, ask: AskFor, *, checks_quotes: bool) -> None:
        self._ask, self._checks_quotes = ask, checks_quotes

    def weigh(self, proposal: Proposal) -> Proposal:
        """See `AskPolicy`."""
        is_needed = proposal.reply.needs_clarification

        def change(each: WeighedCandidate) -> WeighedCandidate:
            is_stated = self._is_stated(each.candidate, proposal.task)
            weight = weigh(each.candidate, self._ask, is_stated=is_stated, is_needed=is_needed, factor=each.weight)
            return replace(each, weight=weight)

        return proposal.map(change)

    def _is_stated(self, candidate: Candidate, task: str) -> bool:
        """Whether the task contains the words said to settle a question; without a check the reply is trusted."""
        if not self._checks_quotes:
            return candidate.known_from is KnownFrom.REQUEST
        stated = candidate.said
        if len(stated) > 2 and stated.casefold() in task.casefold():
            return True
        return max(map(len, stated.split()), default=0) > MAX_PLACEHOLDER_CHARS and holds_most_of(task, stated)


def weigh(candidate: Candidate, ask: AskFor, *, is_stated: bool, is_needed: bool = True, factor: float = 1.0) -> float:
    """Return the weight of a question about this.

    Args:
        is_stated: whether the task contains the words claimed to settle it.
        is_needed: whether the reply concludes that something must be asked.
        factor: what is left of its weight for other reasons.
    """
    spoilt = SPOILT[ask][candidate.weight or Weight.MEDIUM] * factor
    if not is_needed and candidate.weight is not Weight.TASTE:  # The decision ignores taste.
        spoilt *= NOT_NEEDED
    match candidate.known_from:
        case KnownFrom.REQUEST:
            return 0.0 if is_stated else spoilt * NOT_FOUND
        case KnownFrom.DEFAULT:
            return spoilt * SAME_FOR_MOST
        case _:
            return spoilt
