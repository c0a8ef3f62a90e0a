"""`Memory`: what the user was asked before, and did not want to be asked (``ask_memory``)."""

from __future__ import annotations

from collections.abc import Iterable

from upcall.agents.asking.ask_policy import AskPolicy, Proposal, WeighedCandidate
from upcall.runs.asked_topics import AskedTopic, find_factor
from upcall.runs.outputs import Weight


class Memory(AskPolicy):
    """Lowers the weight of questions on topics that the user dismissed before (`AskedTopic.factor`).

    It also lowers what a verdict demands, if that has a score: a first look must be surer of such a question.
    """

    def __init__(self, topics: Iterable[AskedTopic] = ()) -> None:
        self._topics = tuple(topics)

    def weigh(self, proposal: Proposal) -> Proposal:
        """See `AskPolicy`."""
        is_open = proposal.verdict.score is not None

        def lower(each: WeighedCandidate) -> WeighedCandidate:
            spoils_all = each.candidate.weight is Weight.HIGH
            factor = find_factor(self._topics, each.candidate.detail, spoils_all=spoils_all)
            return each.scale(factor, factor if is_open else 1.0)

        return proposal.map(lower)
